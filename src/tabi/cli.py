"""The command line: `tabi demo`. What a command needs is imported inside it."""

import enum
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tabi.paper import Problem
    from tabi.result import Result

CHUNK = 50_000
RUNS = 8
MOST_DRAWS = 2 * 10**7

app = typer.Typer(
    help="Posterior expectations of a known f, to the accuracy you ask for.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class ProblemName(enum.StrEnum):
    """The problems that the demo knows, see `tabi.paper`."""

    gaussian = "gaussian"
    banana = "banana"


@app.callback(invoke_without_command=True)
def _main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        import tabi

        typer.echo(f"tabi {tabi.__version__}")
        raise typer.Exit()


@app.command()
def demo(
    problem: Annotated[
        ProblemName, typer.Option(help="Which of the paper's two problems.")
    ] = ProblemName.gaussian,
    evaluations: Annotated[
        int, typer.Option(min=1_000, help="Most model evaluations to spend.")
    ] = 10**7,
    out: Annotated[Path, typer.Option(help="Where to save the plot.")] = Path("tabi-demo.png"),
) -> None:
    """Estimate E[f(x)] to 2%, beside the posterior average and the exact answer."""
    import tabi
    from tabi.runtime.progress import visible_progress

    chosen = _problem(problem)
    typer.echo(f"{chosen.name}: E[f(x)] under the posterior, to 2%\n")
    result = tabi.expect(
        chosen.target,
        tabi.Posterior(chosen.log_density, chosen.init),
        log=chosen.log,
        rel_tol=0.02,
        max_evaluations=evaluations,
        key=0,
        progress=visible_progress(),
    )
    counts, sums, squares = _posterior_sums(chosen, result.evaluations)
    typer.echo(f"{result}\n")
    typer.echo(_comparison(result, chosen, counts, sums, squares))
    _save_plot(result, chosen, counts, sums, out)


def _problem(name: ProblemName) -> "Problem":
    from tabi import paper

    return paper.gaussian(y=5.0, dimension=10) if name == "gaussian" else paper.banana()


def _posterior_sums(problem: "Problem", draws: int) -> tuple[Any, Any, Any]:
    """Running sums of f and f**2 over exact posterior draws, in units of the exact answer.

    Returns the numbers of draws, [point], and the sums, [run, point]: each run is independent,
    and the first stands for "the" posterior average.
    """
    import jax
    import numpy as np

    points = np.unique(np.geomspace(min(100, draws), draws, 120).astype(int))
    runs = int(np.clip(MOST_DRAWS // draws, 1, RUNS))
    with jax.enable_x64(True):
        sample = jax.jit(lambda key: jax.vmap(problem.log_f)(problem.sample_posterior(key, CHUNK)))

        def ratios(key, chunk):
            return np.exp(np.asarray(sample(jax.random.fold_in(key, chunk))) - problem.log_truth)

        keys = jax.random.split(jax.random.key(1), runs)
        both = np.array([_running_sums(partial(ratios, key), points) for key in keys])
    return points, both[:, 0], both[:, 1]


def _running_sums(ratios: Callable[[int], Any], points: Any) -> Any:
    """Sums of f and of f**2 over the first `points` draws, [2, point], chunk by chunk."""
    import numpy as np

    sums, total = np.zeros((2, len(points))), np.zeros((2, 1))
    for chunk in range(-(-int(points[-1]) // CHUNK)):
        ratio, done = ratios(chunk), chunk * CHUNK
        running = total + np.cumsum([ratio, ratio**2], axis=1)
        here = (points > done) & (points <= done + CHUNK)
        sums[:, here] = running[:, points[here] - done - 1]
        total = running[:, -1:]
    return sums


def _comparison(result: "Result", problem: "Problem", counts: Any, sums: Any, squares: Any) -> str:
    n, truth = int(counts[-1]), problem.truth
    mean = sums[0, -1] / n
    stderr = max(squares[0, -1] / n - mean**2, 0.0) ** 0.5 / n**0.5
    rows = [
        ("", "estimate", "error bar", "true error", "evaluations"),
        (
            "tabi",
            f"{result.value:.4g}",
            f"± {result.stderr:.2g}",
            f"{result.value / truth - 1:+z.1%}",
            f"{result.evaluations:,}",
        ),
        (
            "posterior average *",
            f"{mean * truth:.4g}",
            f"± {stderr * truth:.2g}",
            f"{mean - 1:+z.1%}",
            f"{n:,}",
        ),
        ("exact answer", f"{truth:.4g}", "", "", ""),
    ]
    lines = [f"{r[0]:<20}{r[1]:>12}{r[2]:>12}{r[3]:>12}{r[4]:>14}" for r in rows]
    notes = ["* of independent exact posterior draws: kinder than what any sampler would hand it"]
    if len(sums) > 1:
        low, high = sums[:, -1].min() / n, sums[:, -1].max() / n
        notes.append(
            f"  {len(sums)} such averages lie between {low:.3g} and {high:.3g} times the truth"
        )
    return "\n".join([*lines, *notes])


def _save_plot(result: "Result", problem: "Problem", counts: Any, sums: Any, out: Path) -> None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        typer.echo('\nno plot: it needs matplotlib, pip install "tabi[plot]"')
        return
    import numpy as np

    from tabi.plots import plot_comparison

    with np.errstate(divide="ignore"):
        running = np.log(sums / counts)
    title = f"{problem.name}:  E[f] = {result.value:.4g} ± {result.stderr:.2g}"
    plot_comparison(result, counts, running, problem.log_truth, title).savefig(out, dpi=150)
    typer.echo(f"\nplot saved to {out}")


reproduce = typer.Typer(
    help="The experiments of the paper, with its settings, and tabi's default beside them.",
    no_args_is_help=True,
)
app.add_typer(reproduce, name="reproduce")

Runs = Annotated[
    int, typer.Option(min=1, help="Repetitions; at most 30 of tabi's default, 20 of 10^7.")
]
Most = Annotated[int, typer.Option("--max-evaluations", min=10_000, help="The largest budget E.")]
Methods = Annotated[
    str, typer.Option(help="Which lines, by name and separated by commas; all of them if empty.")
]
Out = Annotated[Path, typer.Option(help="Folder for results; finished cells in it are kept.")]


@reproduce.command("gaussian")
def reproduce_gaussian(
    runs: Runs = 20,
    most: Most = 10**5,
    panels: Annotated[
        str, typer.Option(help='Which panels, "D:y" separated by commas; all nine if empty.')
    ] = "",
    methods: Methods = "",
    out: Out = Path("tabi-reproduction"),
) -> None:
    """The figure: relative squared error against evaluations (paper: 100 runs, E up to 10^7)."""
    from tabi.paper.experiments import PANELS, Settings
    from tabi.paper.reproduction import reproduce_gaussian as run

    chosen = _panels(panels) or PANELS
    _reproduce(run, Settings(runs, most, chosen, _names(methods)), out)


@reproduce.command("banana")
def reproduce_banana(
    runs: Runs = 20,
    most: Most = 10**5,
    methods: Methods = "",
    out: Out = Path("tabi-reproduction"),
) -> None:
    """The table of the banana and its densities (paper: 100 runs at E = 10^6)."""
    from tabi.paper.experiments import Settings
    from tabi.paper.reproduction import reproduce_banana as run

    _reproduce(run, Settings(runs, most, methods=_names(methods)), out)


def _reproduce(run: Callable[..., list[Path]], settings: Any, out: Path) -> None:
    try:
        files = run(settings, out, typer.echo)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    table = next(path for path in files if path.suffix == ".md")
    typer.echo(f"\n{table.read_text(encoding='utf-8')}")
    typer.echo("saved: " + ", ".join(str(path) for path in files))


def _panels(text: str) -> tuple[tuple[int, float], ...]:
    from tabi.paper.experiments import PANELS

    panels = []
    for part in _names(text):
        try:
            dimension, y = part.split(":")
            panels.append((int(dimension), float(y)))
        except ValueError:
            raise typer.BadParameter(f'a panel is "D:y" such as 10:3.5, got "{part}"') from None
        if panels[-1] not in PANELS:
            raise typer.BadParameter(f"the paper's panels are {PANELS}, got {panels[-1]}")
    return tuple(panels)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
