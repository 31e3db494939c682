"""How callbacks that have starts read a scheduled share of the game steps."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Trainer

from ..errors import UserError
from ..ppo.schedule import Schedule, Scheduled, progress, schedule_of
from ..restarts.shares import TRUE_RESERVE
from .base import game_steps

#: Points of a schedule that are looked at for a share nobody can have.
_LOOKS = 20


def share_schedule(share: Scheduled, where: str) -> Schedule:
    """A scheduled share of the game steps.

    Raises:
        UserError: it is no share, or leaves true starts too little.
    """
    schedule = schedule_of(share, where)
    most = 1.0 - TRUE_RESERVE
    for i in range(_LOOKS + 1):
        if not 0.0 <= (value := schedule(i / _LOOKS)) <= most:
            raise UserError(
                f"{where} becomes {value:g}; give a share of the game steps from 0 to {most:g}, for the rest belongs "
                "to true starts"
            )
    return schedule


def progress_of(trainer: Trainer, module: Any) -> float:
    """How far the run is on the horizon that all its schedules share."""
    return progress(game_steps(trainer), module.ppo.horizon_game_steps)
