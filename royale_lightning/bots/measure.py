"""What ``validate``, ``test`` and ``predict`` were asked to play; the command line hands it to the data module."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError


@dataclass(frozen=True)
class Measure:
    """Found as ``trainer.datamodule.measure`` while a measuring subcommand runs.

    Args:
        stage: ``validate``, ``test`` or ``predict``.
        games: games per opponent.
        seed: where the paired seeds start.
        out: the folder results are written to: ``--out``, or the checkpoint's run folder.
        by_deck: of ``test``, whether to score by deck and card as well.
    """

    stage: str
    games: int
    seed: int
    out: Path
    by_deck: bool = False

    def __post_init__(self) -> None:
        if self.games < 1:
            raise UserError(f"games is {self.games}; at least 1 must be played")


#: Where the paired seeds start without ``--seed``. Battles of training have seeds of 63 hashed bits, so no small number
#: is ever one of them.
DEFAULT_SEED = 20_000_000
#: Games per opponent without ``--games``.
DEFAULT_GAMES = {"validate": 20, "test": 60, "predict": 1}
