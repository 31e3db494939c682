"""What the two callbacks that have starts read off a run: scheduled shares of the game steps, and who is met."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Trainer

from ..battle.players import scripted_player
from ..errors import UserError
from ..ppo.schedule import Schedule, Scheduled, progress, schedule_of
from ..restarts.shares import TRUE_RESERVE
from ..rollout.data import data_of
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


def scripted_names(trainer: Trainer) -> list[str]:
    """The scripted opponents that the run names, as players are named."""
    return [scripted_player(n) for n in data_of(trainer).opponents.scripted_opponents]


def met_by_name(trainer: Trainer) -> set[str]:
    """Whom the training can meet by name now: its scripted opponents and the pool's snapshots."""
    return {*scripted_names(trainer), *data_of(trainer).ladder.table().snapshots}
