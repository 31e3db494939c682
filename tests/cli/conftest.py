"""Each test runs in a folder of its own, in this process: starting Python for each would take minutes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# Before any test: Lightning's loggers keep the stream of whoever imported it, and a test's own is closed after it.
import lightning.pytorch  # noqa: F401
import pytest


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line a user error prints; fails when there is more, or a traceback."""
        lines = [x for x in self.err.splitlines() if x.startswith("error: ")]
        assert self.code == 2, self.err
        assert len(lines) == 1, self.err
        assert self.err.rstrip().endswith(lines[0]), "something follows the error"
        assert "Traceback" not in self.err
        return lines[0].removeprefix("error: ")


@pytest.fixture
def royale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], Result]:
    """``royale("fit --config x.yaml")`` over the stand-ins, in an empty folder."""
    from tests.support import tiny_run

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROYALE_LIGHTNING_RUN_DIR", raising=False)

    def run(line: str) -> Result:
        capsys.readouterr()
        try:
            code = tiny_run.main(shlex.split(line))
        except SystemExit as exc:
            code = int(exc.code or 0)
        finally:
            os.environ.pop("ROYALE_LIGHTNING_RUN_DIR", None)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run
