"""Memory of a long run: the banana with 10^9 evaluations must stay below 2 GB.

One run, key 0, `rel_tol=None`, in a child process; the number is the child's peak resident
memory as the operating system saw it, interpreter, JAX and compiler included.
"""

import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass

from common import arguments, finish, markdown

CHILD = """
import json, sys
import tabi
from tabi.paper import banana
p = banana()
result = tabi.expect(p.f, tabi.Posterior(p.log_density, p.init), rel_tol=None,
                     max_evaluations=int(sys.argv[1]), progress=False)
print(json.dumps({"evaluations": result.evaluations,
                  "log_error": float(result.log_value - p.log_truth),
                  "log_stderr": float(result.log_stderr)}))
"""
LIMIT = 2e9


@dataclass(frozen=True)
class Run:
    """What one child process did and held."""

    evaluations: int
    log_error: float
    log_stderr: float
    peak_bytes: int
    seconds: float


def run(evaluations: int) -> Run:
    """One child process; it must be the only one so far, for the peak is over all of them."""
    begin = time.perf_counter()
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(evaluations)], stdout=subprocess.PIPE, check=True
    )
    seconds = time.perf_counter() - begin
    # Kilobytes on Linux, bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit
    return Run(**json.loads(child.stdout), peak_bytes=peak, seconds=seconds)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--evaluations", type=int, default=10**9, help="budget of the run")
    args = parser.parse_args()
    one = run(10**7 if args.quick else args.evaluations)
    passed = one.peak_bytes < LIMIT
    header = ("problem", "evaluations", "peak GB", "limit", "within", "log error", "±", "seconds")
    line = ("banana", one.evaluations, one.peak_bytes / 1e9, LIMIT / 1e9, passed)
    table = markdown(header, [(*line, one.log_error, one.log_stderr, one.seconds)])
    finish("memory", "Peak memory of a long run", table, passed, [one], args.quick)


if __name__ == "__main__":
    main()
