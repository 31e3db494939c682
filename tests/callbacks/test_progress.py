"""What the display computes, and where it writes."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from royale_lightning.callbacks import StopAfter
from royale_lightning.callbacks import progress as module_under_test
from royale_lightning.callbacks.progress import History, Status, Tally, against_scripted, clock, tally


def test_results_count_from_the_learners_seat() -> None:
    from tests.support.tiny_run import Episode

    learner, push = "learner", "scripted:push"
    results = tally(
        [
            Episode((learner, push), 0),
            Episode((push, learner), 1),
            Episode((push, learner), 0),
            Episode((learner, push), 2),
            Episode((learner, push), -1),
            Episode((learner, learner), 0),
            Episode((learner, push), 0, staggered=True),
            Episode((learner, "snapshot-3"), 1),
        ]
    )
    assert results == {push: Tally(2, 1, 1), "snapshot-3": Tally(0, 0, 1)}
    assert against_scripted(results) == pytest.approx(2.5 / 4)
    assert against_scripted({"snapshot-3": Tally(1, 0, 0)}) is None, "no game is not a score of 0.5"


def test_lines() -> None:
    assert clock(3723.9) == "1:02:03"
    assert clock(63) == "1:03"
    assert Status(3, "collect", 1500).line() == "iteration 3  collect       1,500 game steps  vs scripted –"
    full = Status(3, "", 1500, seconds_per_step=0.01, scripted=0.25, seconds_left=63).line()
    assert full == "iteration 3  1,500 game steps  100/s  vs scripted 0.25  1:03 left"


def test_pace_and_time_left() -> None:
    history = History()
    assert history.pace() is None
    history.ends.extend([(0.0, 0), (10.0, 100), (20.0, 200)])
    assert history.pace() == (0.1, 10.0)
    assert StopAfter(game_steps=1000).seconds_left(200, 2, 0.1, 10.0) == pytest.approx(80)
    assert StopAfter(game_steps=1000, iterations=3).seconds_left(200, 2, 0.1, 10.0) == pytest.approx(10)
    assert StopAfter().seconds_left(200, 2, 0.1, 10.0) == float("inf")
    assert StopAfter(iterations=1).seconds_left(200, 2, 0.1, 10.0) == 0


def test_plain_lines_where_there_is_no_terminal(
    fit: Callable[..., Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module_under_test, "LINE_SECONDS", 0.0)
    fit(max_epochs=3)
    out = capsys.readouterr().out
    lines = [x for x in out.splitlines() if x.startswith("iteration ")]
    assert len(lines) == 3
    assert "vs scripted 0.75" in lines[0]
    assert "0:00 left" in lines[2]
    assert "\x1b" not in out
    assert "push" in out
    assert "3 iterations, 300 game steps" in out


def in_a_terminal(run: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> str:
    """What a pseudo-terminal of 100 columns was sent while ``run`` ran."""
    ours, theirs = os.openpty()
    received = bytearray()

    def read() -> None:
        # Linux says with an error that the other end is closed.
        with contextlib.suppress(OSError):
            while part := os.read(ours, 65536):
                received.extend(part)

    reader = threading.Thread(target=read)
    reader.start()
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "30")
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        run()
    reader.join()
    os.close(ours)
    return received.decode()


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no pseudo-terminals here")
@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_terminal_is_redrawn_and_a_dumb_one_appended_to(
    fit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, term: str
) -> None:
    monkeypatch.setattr(module_under_test, "LINE_SECONDS", 0.0)
    monkeypatch.setenv("TERM", term)
    out = in_a_terminal(lambda: fit(max_epochs=2), monkeypatch)
    lines = [x for x in out.splitlines() if x.startswith("iteration ")]
    if term == "dumb":
        assert len(lines) == 2
        assert "\x1b" not in out
    else:
        assert not lines, "they stand in the panel"
        assert "╭" in out
        assert "\x1b[?25l" in out, "the cursor is hidden while the panel is live"
        assert out.rindex("\x1b[?25h") > out.rindex("\x1b[?25l"), "and shown again"


def test_a_file_is_never_redrawn_whatever_colours_it_is_given(
    fit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module_under_test, "LINE_SECONDS", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with (tmp_path / "log").open("w", encoding="utf-8") as log:
        monkeypatch.setattr(sys, "stdout", log)
        fit(max_epochs=2)
    text = (tmp_path / "log").read_text(encoding="utf-8")
    assert len([x for x in text.splitlines() if x.startswith("iteration ")]) == 2
    assert "\x1b[?25l" not in text
    assert "╭" not in text


@pytest.mark.parametrize("widgets", [False, True])
def test_a_notebook_without_widgets_gets_plain_lines(
    fit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], widgets: bool
) -> None:
    """rich would show nothing but the advice to install ipywidgets."""
    started: list[Any] = []

    class Recorded:
        def __init__(self, **_: Any) -> None:
            started.append(self)

        def start(self) -> None:
            pass

        stop = start

    real = importlib.util.find_spec
    found = importlib.machinery.ModuleSpec("ipywidgets", None) if widgets else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: found if n == "ipywidgets" else real(n, *a))
    monkeypatch.setattr(module_under_test, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(module_under_test, "Live", Recorded)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr(module_under_test.Progress, "_print_table", lambda *_: None)  # shown by IPython, absent here
    fit(max_epochs=2)
    lines = [x for x in capsys.readouterr().out.splitlines() if x.startswith("iteration ")]
    assert (len(started), len(lines)) == ((1, 0) if widgets else (0, 2))


def test_a_limit_by_minutes(fit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    class Data:
        pass

    from tests.support import tiny_run

    class Slow(tiny_run.TinyModule):
        def on_train_epoch_start(self) -> None:
            now[0] += 40.0

    monkeypatch.setattr("royale_lightning.callbacks.stopping.time.monotonic", lambda: now[0])
    trainer, _, _ = fit(module=Slow(), callbacks=[StopAfter(minutes=2)])
    assert trainer.current_epoch == 3
