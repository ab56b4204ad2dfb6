"""What a user waits for before anything runs twice: imports, compilation, a first answer.

Every repeat is a new process without a persistent compilation cache: first `import jax`, then
`import tabi`, then the banana to 5% with all defaults but its key (0, 1, ...). Medians over 7
repeats are judged: `import tabi` may add 0.5 s to `import jax`, and the process may take 15 s on
two cores. A first process that only fills the file caches is not counted.
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
import json, sys, time
begin = time.perf_counter()
import jax
after_jax = time.perf_counter()
import tabi
after_tabi = time.perf_counter()
from tabi.paper import banana
p = banana()
result = tabi.expect(p.f, tabi.Posterior(p.log_density, p.init), rel_tol=0.05,
                     key=int(sys.argv[1]), progress=False)
done = time.perf_counter()
d = result.diagnostics
assert jax.config.jax_compilation_cache_dir is None
print(json.dumps({
    "import_jax": after_jax - begin, "import_tabi": after_tabi - after_jax,
    "answer": done - after_tabi, "compile_seconds": d.compile_seconds,
    "compilations": d.compilations, "converged": bool(result.converged)}))
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


def start(key: int) -> Start:
    """One new process, timed from outside and from inside."""
    environment = {k: v for k, v in os.environ.items() if "COMPILATION_CACHE" not in k}
    begin = time.perf_counter()
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(key)], env=environment, stdout=subprocess.PIPE, check=True
    )
    return Start(**json.loads(child.stdout), total=time.perf_counter() - begin)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="processes that count")
    args = parser.parse_args()
    repeats = 1 if args.quick else args.repeats
    start(0)
    starts = [start(key) for key in range(repeats)]
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
    compilations = max(one.compilations for one in starts)
    converged = sum(one.converged for one in starts)
    note = f"At most {compilations} compilations; {converged} of {repeats} runs converged."
    tables = f"{markdown(header, lines)}\n\n{note}"
    finish("cold_start", f"Cold start, {repeats} processes", tables, passed, starts, args.quick)


if __name__ == "__main__":
    main()
