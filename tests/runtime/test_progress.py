"""Progress: where it shows, where it stays silent, and what it accepts."""

import io

import pytest

from tabi.runtime.progress import (
    LineProgress,
    NoProgress,
    RichProgress,
    is_terminal,
    resolve_progress,
    visible_progress,
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Own:
    def __init__(self):
        self.seen = []

    def update(self, phase, done, total, note):
        self.seen.append((phase, done, total, note))

    def close(self):
        self.seen.append("closed")


def _drive(progress, steps=50):
    for i in range(steps + 1):
        progress.update("warm-up", i, steps, "")
    for i in range(steps + 1):
        progress.update("measure", 1000 * i, None, "error 3%")
    progress.close()


def test_true_shows_a_bar_in_a_terminal_only():
    assert isinstance(resolve_progress(True, Terminal()), RichProgress)
    assert isinstance(resolve_progress(True, io.StringIO()), NoProgress)
    assert isinstance(resolve_progress(False, Terminal()), NoProgress)


def test_standard_error_is_the_stream_that_decides(monkeypatch):
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert is_terminal()
    assert isinstance(resolve_progress(True), RichProgress)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    monkeypatch.setattr("sys.stdout", Terminal())
    assert isinstance(resolve_progress(True), NoProgress)


def test_nothing_is_written_without_a_terminal(capsys):
    _drive(resolve_progress(True))
    out, err = capsys.readouterr()
    assert out == err == ""


def test_the_users_own_object_is_used_as_it_is():
    own = Own()
    assert resolve_progress(own) is own
    _drive(own, steps=1)
    assert own.seen[0] == ("warm-up", 0, 1, "") and own.seen[-1] == "closed"


@pytest.mark.parametrize("wrong", ["yes", 3, lambda *args: None])
def test_anything_else_is_refused_with_what_is_expected(wrong):
    with pytest.raises(TypeError, match=r"update\(phase, done, total, note\)"):
        resolve_progress(wrong)


def test_lines_are_few_and_name_every_phase():
    stream = io.StringIO()
    _drive(LineProgress(stream, interval=60.0), steps=1000)
    lines = stream.getvalue().splitlines()
    # Start and end of the first phase, start of the second, whose end nobody knows.
    assert lines == ["warm-up: 0 of 1,000", "warm-up: 1,000 of 1,000", "measure: 0  error 3%"]


def test_lines_go_on_during_a_long_phase(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    stream = io.StringIO()
    progress = LineProgress(stream, interval=5.0)
    for i in range(21):
        progress.update("measure", i, None, "")
    assert [line.split()[1] for line in stream.getvalue().splitlines()] == "0 5 10 15 20".split()


def test_the_bar_shows_phases_counts_and_notes_and_can_be_closed_twice():
    stream = Terminal()
    progress = RichProgress(stream)
    _drive(progress)
    progress.close()
    progress.update("late", 1, 1, "")
    text = stream.getvalue()
    assert "warm-up" in text and "50/50" in text and "50,000" in text and "error 3%" in text
    assert "late" not in text


def test_visible_progress_shows_everywhere():
    assert isinstance(visible_progress(Terminal()), RichProgress)
    assert isinstance(visible_progress(io.StringIO()), LineProgress)
