"""What a user waits for before anything runs twice: imports, compilation, a first answer.

Every repeat is a new process without a persistent compilation cache: first `import jax`, then
`import tabi`, then the banana to 5% with all defaults. Medians over the repeats are judged:
`import tabi` may add 0.5 s to `import jax`, and the process may take 15 s on two cores. A first
process that only fills the file caches is not counted.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

from common import arguments, finish, markdown

CHILD = """
import json, time
begin = time.perf_counter()
import jax
after_jax = time.perf_counter()
import tabi
after_tabi = time.perf_counter()
from tabi.paper import banana
p = banana()
result = tabi.expect(p.f, tabi.Posterior(p.log_density, p.init), rel_tol=0.05, progress=False)
done = time.perf_counter()
d = result.diagnostics
assert jax.config.jax_compilation_cache_dir is None
print(json.dumps([after_jax - begin, after_tabi - after_jax, done - after_tabi,
                  d.compile_seconds, d.compilations, bool(result.converged)]))
"""
IMPORT_LIMIT, TOTAL_LIMIT = 0.5, 15.0


@dataclass(frozen=True)
class Start:
    """Seconds of one process."""

    import_jax: float
    import_tabi: float
    answer: float
    compile_seconds: float
    compilations: int
    converged: bool
    total: float


def start() -> Start:
    """One new process, timed from outside and from inside."""
    environment = {k: v for k, v in os.environ.items() if "COMPILATION_CACHE" not in k}
    begin = time.perf_counter()
    child = subprocess.run(
        [sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True, check=True
    )
    return Start(*json.loads(child.stdout), time.perf_counter() - begin)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="processes that count")
    args = parser.parse_args()
    repeats = 1 if args.quick else args.repeats
    starts = [start() for _ in range(repeats + 1)][1:]
    assert all(one.converged for one in starts)
    limits = {"import_tabi": IMPORT_LIMIT, "total": TOTAL_LIMIT}
    labels = {
        "import_tabi": "`import tabi` beyond jax",
        "total": "process: start, imports, compile, banana to 5%",
        "import_jax": "`import jax`",
        "answer": "`expect` alone",
        "compile_seconds": "of it compiling",
    }
    lines, passed = [], True
    for field, label in labels.items():
        seconds = [getattr(one, field) for one in starts]
        median, limit = statistics.median(seconds), limits.get(field)
        within = limit is None or median < limit
        passed &= within
        verdict = "" if limit is None else within
        lines.append((label, median, min(seconds), max(seconds), limit or "", verdict))
    header = ("seconds", "median", "least", "most", "limit", "within")
    title = f"Cold start, {repeats} processes, {starts[0].compilations} compilations each"
    finish("cold_start", title, markdown(header, lines), passed, starts, args.quick)


if __name__ == "__main__":
    main()
