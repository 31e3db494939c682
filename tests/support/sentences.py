"""What a mistaken command line prints."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

CONFIG = str(Path(__file__).parents[2] / "configs" / "debug.yaml")
FIT = ["fit", "--config", CONFIG]


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence. Lightning's own log lines go to the stream of the test that first used them."""
    lines = [x for x in capsys.readouterr().err.strip().splitlines() if x]
    sentences = [x for x in lines if x.startswith("error: ")]
    assert len(sentences) == 1, lines
    assert lines[-1] == sentences[0]
    return sentences[0]


@pytest.fixture(autouse=True)
def quiet_lightning() -> Iterator[None]:
    """Lightning's loggers hold the stream of whoever imported it; capsys closes that stream after its test."""
    loggers = [logging.getLogger(n) for n in ("lightning.pytorch", "lightning.fabric")]
    kept = [(x, x.handlers[:]) for x in loggers]
    for x in loggers:
        x.handlers = []
    yield
    for x, handlers in kept:
        x.handlers = handlers
