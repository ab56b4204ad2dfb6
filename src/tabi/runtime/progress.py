"""What a run shows while it works: a bar in a terminal, a few plain lines, or nothing."""

import sys
import time
from typing import Any, Protocol, TextIO, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """What a run reports to. Any object with these two methods will do."""

    def update(self, phase: str, done: int, total: int | None, note: str) -> None:
        """Report that `done` of `total` evaluations (None: unknown) of a phase are over."""
        ...

    def close(self) -> None:
        """The run is over, or has failed; nothing follows."""
        ...


class NoProgress:
    """Shows nothing."""

    def update(self, phase: str, done: int, total: int | None, note: str) -> None:
        pass

    def close(self) -> None:
        pass


class LineProgress:
    """A few plain lines: one when a phase starts, then one per interval and at its end.

    Parameters
    ----------
    stream
        Where the lines go; standard error by default.
    interval
        Seconds of silence between two lines of the same phase.
    """

    def __init__(self, stream: TextIO | None = None, interval: float = 2.0):
        self._stream = sys.stderr if stream is None else stream
        self._interval = interval
        self._phase: str | None = None
        self._last = 0.0

    def update(self, phase: str, done: int, total: int | None, note: str) -> None:
        now = time.monotonic()
        new_phase = phase != self._phase
        finished = total is not None and done >= total
        if not (new_phase or finished or now - self._last >= self._interval):
            return
        self._phase, self._last = phase, now
        of_total = "" if total is None else f" of {total:,}"
        suffix = f"  {note}" if note else ""
        print(f"{phase}: {done:,}{of_total}{suffix}", file=self._stream, flush=True)

    def close(self) -> None:
        self._stream.flush()


class RichProgress:
    """One live bar per phase, drawn with rich.

    Parameters
    ----------
    stream
        Where the bars go; standard error by default.
    """

    def __init__(self, stream: TextIO | None = None):
        # Rich is imported here: a run without a terminal does not pay for it.
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[note]}"),
            console=Console(file=sys.stderr if stream is None else stream),
        )
        self._tasks: dict[str, Any] = {}
        self._closed = False

    def update(self, phase: str, done: int, total: int | None, note: str) -> None:
        if self._closed:
            return
        if phase not in self._tasks:
            self._finish_others()
            self._tasks[phase] = self._bars.add_task(phase, total=total, count="", note="")
            self._bars.start()
        count = f"{done:,}" if total is None else f"{done:,}/{total:,}"
        self._bars.update(self._tasks[phase], completed=done, total=total, count=count, note=note)

    def close(self) -> None:
        self._finish_others()
        self._bars.stop()
        self._closed = True

    def _finish_others(self) -> None:
        # A phase that another one follows is over, whatever its total had been.
        for task in self._tasks.values():
            self._bars.stop_task(task)


def resolve_progress(progress: bool | Progress, stream: TextIO | None = None) -> Progress:
    """What `progress=` of a run means.

    Parameters
    ----------
    progress
        True shows a bar where the stream is an interactive terminal, False shows nothing, and
        an object of the user's own is used as it is.
    stream
        Standard error by default.

    Returns
    -------
    Progress
        The object the run reports to.

    Raises
    ------
    TypeError
        If an object has no `update` and `close`.
    """
    if progress is True:
        return RichProgress(stream) if is_terminal(stream) else NoProgress()
    if progress is False or progress is None:
        return NoProgress()
    if isinstance(progress, Progress):
        return progress
    raise TypeError(
        f"progress={progress!r} cannot show progress: expected True, False or an object with "
        "update(phase, done, total, note) and close()."
    )


def visible_progress(stream: TextIO | None = None) -> Progress:
    """Progress that shows everywhere: a bar in a terminal, plain lines elsewhere."""
    return RichProgress(stream) if is_terminal(stream) else LineProgress(stream)


def is_terminal(stream: TextIO | None = None) -> bool:
    """Whether a person watches this stream (standard error by default)."""
    stream = sys.stderr if stream is None else stream
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty())
