"""The answer: a value with its error bar, how it came about, and how to keep it.

A `Result` is computed on the log scale, so that log_value and log_stderr stay exact where value
itself is too small or too large for a float64.
"""

import contextlib
import dataclasses
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit

from tabi.diagnostics import LegDiagnostics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = 1
MAX_ROWS = 10
_NO_RESULT = "{} holds no tabi result: expected a file written by Result.save()."


@dataclass(frozen=True)
class RoundRecord:
    """One round of sampling: what it was for and what it cost.

    Attributes
    ----------
    phase
        "warm-up", "measure", or whatever the method calls it.
    sweeps
        Sweeps per ladder.
    evaluations
        Model calls.
    seconds
        Wall time.
    """

    phase: str
    sweeps: int
    evaluations: int
    seconds: float


@dataclass(frozen=True, eq=False)
class RunDiagnostics:
    """What a run tells about itself beyond its answer.

    Attributes
    ----------
    legs
        One record per leg.
    condition
        (c+ + c-) / |c+ - c-| of f's shape: 1 without cancellation, large with it.
    autocorrelation_time
        Of the estimate's influence per sweep, f's shape.
    ladder_ratio
        Spread of the ladders' own estimates over the spread that stderr implies, f's shape.
    rounds
        Every round in order.
    barrier
        Rejection barrier of each leg.
    invalid_proposals
        Proposals whose density or f was NaN; they were rejected.
    first_invalid
        The first such position, as text.
    compilations, compile_seconds
        Number and cost of the compilations.
    seconds
        Wall time of the whole run.
    notes
        What is worth knowing but no reason for distrust.
    """

    legs: tuple[LegDiagnostics, ...]
    condition: np.ndarray
    autocorrelation_time: np.ndarray
    ladder_ratio: np.ndarray
    rounds: tuple[RoundRecord, ...]
    barrier: tuple[float, ...]
    invalid_proposals: int
    first_invalid: str | None
    compilations: int
    compile_seconds: float
    seconds: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Result:
    """E[f(x)] under the posterior, with its error bar.

    Arrays are NumPy float64 (`converged`: bool) of f's shape, () for a scalar f.

    Attributes
    ----------
    value
        The estimate.
    stderr
        Its standard error; where `sign` is 0, an upper bound of |value|.
    log_value
        log|value|, right also where value under- or overflows; -inf where `sign` is 0.
    log_stderr
        stderr / |value|, the standard error of log_value.
    sign
        -1, 0 or 1. 0: no draw ever saw f different from 0.
    evaluations, gradients
        Every call of the model, and those of them that computed a gradient.
    converged
        Whether the tolerance was met and every check passed.
    warnings
        What a reader of the answer must know, in plain words.
    method
        The method that gave the answer, as text.
    diagnostics
        How sampling and estimation went.
    dof
        Degrees of freedom of the t quantiles of the intervals.
    one_signed
        Where f has one sign: the interval is taken on the log scale.
    """

    value: np.ndarray
    stderr: np.ndarray
    log_value: np.ndarray
    log_stderr: np.ndarray
    sign: np.ndarray
    evaluations: int
    gradients: int
    converged: np.ndarray
    warnings: tuple[str, ...]
    method: str
    diagnostics: RunDiagnostics | None
    dof: np.ndarray
    one_signed: np.ndarray

    @classmethod
    def from_log(
        cls,
        sign: Any,
        log_abs: Any,
        log_stderr: Any,
        *,
        dof: Any = np.inf,
        upper_bound: Any = np.inf,
        one_signed: Any = True,
        evaluations: int,
        gradients: int = 0,
        converged: Any,
        warnings: tuple[str, ...] = (),
        method: str = "",
        diagnostics: RunDiagnostics | None = None,
    ) -> "Result":
        """Make a result from an estimate on the log scale.

        Parameters
        ----------
        sign, log_abs
            The estimate is sign * exp(log_abs).
        log_stderr
            Its relative standard error.
        dof
            Degrees of freedom of log_stderr.
        upper_bound
            Upper bound of |value|, used where sign is 0.
        one_signed
            Where f has one sign.
        evaluations, gradients, converged, warnings, method, diagnostics
            As in `Result`.

        Returns
        -------
        Result
            With all arrays of the common shape of the arguments.
        """
        arrays = (sign, log_abs, log_stderr, dof, upper_bound)
        shape = np.broadcast_shapes(*(np.shape(a) for a in arrays))
        sign, log_abs, log_stderr, dof, bound = (_full(a, shape, np.float64) for a in arrays)
        nothing = (sign == 0) | np.isneginf(log_abs)
        sign = np.where(nothing, 0.0, sign)
        log_abs = np.where(nothing, -np.inf, log_abs)
        log_stderr = np.where(nothing, np.inf, log_stderr)
        with np.errstate(all="ignore"):
            value = np.where(nothing, 0.0, sign * np.exp(log_abs))
            # Added before the exponential: neither factor alone need be a float64.
            stderr = np.where(nothing, bound, np.exp(log_abs + np.log(log_stderr)))
        return cls(
            value=np.asarray(value),
            stderr=np.asarray(stderr),
            log_value=np.asarray(log_abs),
            log_stderr=np.asarray(log_stderr),
            sign=np.asarray(sign),
            evaluations=int(evaluations),
            gradients=int(gradients),
            converged=_full(converged, shape, np.bool_),
            warnings=tuple(warnings),
            method=method,
            diagnostics=diagnostics,
            dof=dof,
            one_signed=_full(one_signed, shape, np.bool_),
        )

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Confidence interval of every component.

        On the log scale, value * exp(-+ t log_stderr), where f has one sign; value -+ t stderr
        elsewhere, and -+ the upper bound where `sign` is 0.

        Parameters
        ----------
        level
            Coverage, between 0 and 1.

        Returns
        -------
        lower, upper
            Arrays of f's shape.
        """
        if not 0 < level < 1:
            raise ValueError(
                f"interval(level={level!r}): expected a coverage between 0 and 1, such as 0.95."
            )
        with np.errstate(all="ignore"):
            shift = stdtrit(self.dof, 0.5 + level / 2) * self.log_stderr
            # Relative to the value: its standard error alone may have overflowed.
            down = np.where(self.one_signed, np.exp(self.log_value - shift) * self.sign,
                            self.value * (1 - shift))  # fmt: skip
            up = np.where(self.one_signed, np.exp(self.log_value + shift) * self.sign,
                          self.value * (1 + shift))  # fmt: skip
        lower = np.where(self.sign == 0, -self.stderr, np.minimum(down, up))
        upper = np.where(self.sign == 0, self.stderr, np.maximum(down, up))
        return lower, upper

    def plot(self) -> "Figure":
        """Draw the run: integrand, rates along the ladder, estimators, cost.

        Returns
        -------
        matplotlib.figure.Figure
            Needs the extra `tabi[plot]`.
        """
        from tabi.plots import plot_result

        return plot_result(self)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write one HTML page with the table, the diagnostics and the plot.

        Parameters
        ----------
        path
            The page; it needs no other file.
        """
        from tabi.report import write_report

        write_report(self, path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one .npz file, arrays and JSON; `tabi.load` reads it back.

        Parameters
        ----------
        path
            The file, written under exactly this name, whole or not at all.
        """
        arrays: dict[str, np.ndarray] = {}
        tree = json.dumps({"format": FORMAT, "result": _pack(self, arrays)})
        with atomic_file(path) as file:
            np.savez(file, json=np.array(tree), **arrays)  # pyright: ignore[reportArgumentType]

    def __repr__(self) -> str:
        if self.value.shape == ():
            what = f"{_number(self.value)} ± {_number(self.stderr, 2)}"
            state = "converged" if self.converged else "not converged"
        else:
            what = f"shape {self.value.shape}"
            state = f"{np.sum(self.converged)} of {self.converged.size} converged"
        return f"Result({what}, {state}, {self.evaluations:,} evaluations)"

    def __str__(self) -> str:
        lines = _scalar_lines(self) if self.value.shape == () else _table_lines(self)
        cost = f"{self.evaluations:,}"
        if self.gradients:
            cost += f", {self.gradients:,} of them with gradient"
        lines += [_row("evaluations", cost), _row("method", self.method or "not named")]
        notes = self.diagnostics.notes if self.diagnostics else ()
        for label, texts in (("warning", self.warnings), ("note", notes)):
            lines += [_row(label if i == 0 else "", text) for i, text in enumerate(texts)]
        return "\n".join(lines)


def load(path: str | os.PathLike[str]) -> Result:
    """Read a result written by `Result.save`.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    Result
        Equal to the saved one, bit for bit.

    Raises
    ------
    ValueError
        If the file holds no result, or one of a later version of tabi.
    """
    stored = np.load(path, allow_pickle=False)
    if not isinstance(stored, np.lib.npyio.NpzFile):
        raise ValueError(_NO_RESULT.format(path))
    with stored:
        if "json" not in stored.files:
            raise ValueError(_NO_RESULT.format(path))
        tree = json.loads(str(stored["json"]))
        if tree["format"] > FORMAT:
            raise ValueError(
                f"{path} has format {tree['format']}, this tabi reads up to {FORMAT}: update tabi."
            )
        arrays = {name: stored[name] for name in stored.files if name != "json"}
    return _unpack(tree["result"], arrays)


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]):
    """A binary file that takes its name only once it is written whole.

    Parameters
    ----------
    path
        The final name.

    Yields
    ------
    file
        Open for writing bytes.
    """
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def component_rows(result: Result, max_rows: int = MAX_ROWS) -> list[list[str]]:
    """One row of text per component: header first, an ellipsis where rows are left out.

    Parameters
    ----------
    result
        The result to tabulate.
    max_rows
        Most components to show.

    Returns
    -------
    list of list of str
        All rows of the same length.
    """
    indices = list(np.ndindex(result.value.shape))
    keep = indices
    if len(indices) > max_rows:
        keep = indices[: max_rows - 2] + indices[-1:]
    lower, upper = result.interval()
    rows = [["f", "value", "stderr", "relative", "95% interval", "log value", "converged"]]
    for i in keep:
        if len(indices) > max_rows and i == indices[-1]:
            rows.append(["…"] * len(rows[0]))
        rows.append(
            [
                ",".join(map(str, i)),
                _number(result.value[i]),
                _number(result.stderr[i], 2),
                _percent(result.log_stderr[i]),
                f"{_number(lower[i])} to {_number(upper[i])}",
                _fixed(result.log_value[i]),
                "yes" if result.converged[i] else "no",
            ]
        )
    return rows


def _scalar_lines(result: Result) -> list[str]:
    lower, upper = result.interval()
    if result.sign == 0:
        answer = f"0, no draw saw f different from 0; |value| < {_number(result.stderr, 2)}"
    else:
        answer = (
            f"{_number(result.value)} ± {_number(result.stderr, 2)} "
            f"(relative {_percent(result.log_stderr)})"
        )
    return [
        _row("value", answer),
        _row("95% interval", f"{_number(lower)} to {_number(upper)}"),
        _row("log |value|", f"{_fixed(result.log_value)} ± {_number(result.log_stderr, 2)}"),
        _row("converged", "yes" if result.converged else "no"),
    ]


def _table_lines(result: Result) -> list[str]:
    rows = component_rows(result)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:], ""]


def _row(label: str, text: str) -> str:
    return f"{label:<14}{text}"


def _number(value: Any, digits: int = 4) -> str:
    return f"{float(value):.{digits}g}"


def _fixed(value: Any) -> str:
    return f"{float(value):.4f}"


def _percent(value: Any) -> str:
    return f"{100 * float(value):.2g}%"


def _full(array: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.array(np.broadcast_to(np.asarray(array, dtype), shape))


def _umask() -> int:
    # The only way to read it is to set it.
    mask = os.umask(0)
    os.umask(mask)
    return mask


_RECORDS = {c.__name__: c for c in (Result, RunDiagnostics, RoundRecord, LegDiagnostics)}


def _pack(thing: Any, arrays: dict[str, np.ndarray]) -> Any:
    """`thing` as JSON, with its arrays set aside under the names that stand in for them."""
    if isinstance(thing, np.ndarray):
        name = f"array{len(arrays)}"
        arrays[name] = thing
        return {"array": name}
    if isinstance(thing, np.generic):
        return thing.item()
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        fields = {f.name: _pack(getattr(thing, f.name), arrays) for f in dataclasses.fields(thing)}
        return {"record": type(thing).__name__, "fields": fields}
    if isinstance(thing, tuple | list):
        kind = "tuple" if isinstance(thing, tuple) else "list"
        return {kind: [_pack(item, arrays) for item in thing]}
    if isinstance(thing, dict):
        return {"dict": [[key, _pack(item, arrays)] for key, item in thing.items()]}
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    raise TypeError(f"cannot save a {type(thing).__name__}: expected arrays, numbers and text.")


def _unpack(tree: Any, arrays: dict[str, np.ndarray]) -> Any:
    if not isinstance(tree, dict):
        return tree
    if "record" in tree:
        fields = {name: _unpack(item, arrays) for name, item in tree["fields"].items()}
        return _RECORDS[tree["record"]](**fields)
    ((kind, content),) = tree.items()
    if kind == "array":
        return arrays[content]
    if kind == "dict":
        return {key: _unpack(item, arrays) for key, item in content}
    items = [_unpack(item, arrays) for item in content]
    return tuple(items) if kind == "tuple" else items
