"""Error against cost: mean relative squared error x evaluations on the paper's two problems.

Each of the eleven problems is run with `GTI()` as it is, `rel_tol=None` and 10^6 evaluations
(warm-up included), once for each of 100 keys. The yardstick is the squared thermodynamic length
Lambda^2 of the geometric path, which n independent draws would reach; the limits are 6 Lambda^2
for the Gaussian problems and 9 Lambda^2 for the banana. A row fails when its mean, divided by
1.24 for the mean's own error, exceeds the limit. Every run counts, converged or not.
"""

from common import (
    ALLOWANCE,
    Row,
    arguments,
    by_case,
    finish,
    markdown,
    paper_cases,
    paper_limits,
    run_all,
    run_case,
    summarize,
)

HEADER = (
    *("problem", "Λ", "mean relMSE × E", "95% interval", "limit", "mean/limit", "median"),
    *("rms z", "abs mean z", "95% covers", "converged", "evaluations", "within", "seconds"),
)


def run(name: str, key: int, evaluations: int) -> list[Row]:
    """One run of one problem."""
    import tabi

    options = {"method": tabi.GTI(), "rel_tol": None, "max_evaluations": evaluations}
    return run_case(name, paper_cases()[name], key, **options)


def main() -> None:
    parser = arguments(__doc__, keys=100)
    parser.add_argument("--evaluations", type=int, default=10**6, help="budget of a run")
    parser.add_argument("--only", default="", help="problems whose name contains this text")
    args = parser.parse_args()
    keys = 4 if args.quick else args.keys
    names = [name for name in paper_cases() if args.only in name]
    rows = run_all(run, [(name, key, args.evaluations) for name in names for key in range(keys)])
    lines, passed = [], True
    for name, found in by_case(rows).items():
        s, (length, limit) = summarize(found), paper_limits()[name]
        within = s.missing == 0 and s.mean / ALLOWANCE <= limit
        passed &= within
        lines.append(
            (
                *(name, f"{length:.2f}", s.mean, f"{s.low:.3g} to {s.high:.3g}", limit),
                *(s.mean / limit, s.median, s.rms_z, s.mean_z, f"{s.coverage:.0%}"),
                *(f"{s.converged:.0%}", s.evaluations, within, s.seconds),
            )
        )
    title = f"Error × cost, {args.evaluations:,} evaluations, {keys} keys"
    note = (
        f"A row passes when mean / {ALLOWANCE} ≤ limit. The interval of the mean is a bootstrap "
        "over keys. Seconds: median of a run on one thread while every core runs another."
    )
    finish("error_cost", title, f"{markdown(HEADER, lines)}\n\n{note}", passed, rows, args.quick)


if __name__ == "__main__":
    main()
