"""The screen is never in the way: real processes whose output is gone, full, a file or a simple terminal."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from royale_lightning.cli import console as cli
from royale_lightning.run.screen import Screen, guarded, say, was_lost

ROOT = Path(__file__).parents[2]
FULL = Path("/dev/full")


def rows(run: Path) -> int:
    return len((run / "metrics.jsonl").read_text().splitlines())


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full")
def test_a_reader_that_leaves_and_a_full_disk_end_nothing(tmp_path: Path) -> None:
    # The parent's own end of the pipe is closed before a line is written, as `| true` does.
    read, write = os.pipe()
    with FULL.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.tiny_run", "fit", "--stop.iterations", "4", "--run_dir", "run"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL, stdout=write, stderr=sink,
        )
    os.close(read)
    os.close(write)
    assert process.wait() == 0
    assert rows(tmp_path / "run") == 4


def test_a_run_says_once_that_its_log_is_not_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.support import tiny_run

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.chdir(tmp_path)
    lost = "not all that was printed could be shown: No space left on device"
    for stream, told in ((Full(), [lost]), (Broken(), [])):
        monkeypatch.setattr(sys, "stdout", stream)
        assert tiny_run.main(["fit", "--run_dir", type(stream).__name__, "--stop.iterations", "1"]) == 0
        assert rows(tmp_path / type(stream).__name__) == 1
        assert [x for x in capsys.readouterr().err.splitlines() if "could be shown" in x] == told
        monkeypatch.delenv("ROYALE_LIGHTNING_RUN_DIR")


def test_a_tool_that_has_the_screen_alone_says_that_it_was_lost() -> None:
    if not FULL.exists():
        pytest.skip("no /dev/full")
    with FULL.open("wb") as sink:
        done = subprocess.run(
            [sys.executable, "-m", "royale_lightning", "--help"], cwd=ROOT, stdout=sink, stderr=subprocess.PIPE,
            check=False,
        )
    said = "error: not all that was printed could be shown: No space left on device\n"
    assert (done.returncode, done.stderr.decode()) == (2, said)


class Poor(io.StringIO):
    """A stream of an encoding that lacks letters."""

    encoding = "ascii"

    def write(self, text: str) -> int:
        text.encode(self.encoding)
        return super().write(text)


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    def flush(self) -> None:
        self.write("")


def test_what_an_encoding_lacks_is_written_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    poor = Poor()
    monkeypatch.setattr(sys, "stdout", poor)
    say("0.5–0.7 ± 0.1 … 王 \udcff")
    assert poor.getvalue() == "0.5-0.7 +- 0.1 ... ? ?\n"


def test_a_stream_that_is_not_there_or_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed, Broken()):
        monkeypatch.setattr(sys, "stdout", stream)
        say("nobody hears it")
        with guarded() as screen:
            print("nor this")  # a user's own part
            assert sys.stdout is screen
        assert sys.stdout is stream
    assert was_lost(Screen(None)) is None  # type: ignore[arg-type]


def test_files_are_written_before_anything_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever printing does, a result that took an hour is on disk already."""
    from royale_lightning.bots.scores import run_validate
    from tests.support.bots import make_bot

    seen: list[bool] = []

    class Watching(Broken):
        def write(self, text: str) -> int:
            seen.append((tmp_path / "validation.json").exists())
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Watching())
    run_validate(make_bot(), 2, out=tmp_path)
    assert json.loads((tmp_path / "validation.json").read_text())["modes"]
    assert seen
    assert all(seen)


def test_the_commands_streams_are_put_back(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = sys.stdout, sys.stderr
    assert cli.main(["--version"]) == 0
    assert (sys.stdout, sys.stderr) == (out, err)
    assert capsys.readouterr().out.startswith("royale-lightning ")
