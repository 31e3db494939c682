"""What callbacks want of a run's battles, said before the battles exist."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from ..battle.round import Start


class StartAuthority(Protocol):
    """Decides where each episode begins: the collector asks one authority, and everything else reads the record.

    Between two rollouts it may change its mind; inside one, the same arguments give the same answer, so that what an
    episode begins from does not depend on which battle ended first.
    """

    def begin(self, battle: int, ordinal: int, players: tuple[str, str]) -> tuple[tuple[str, str], Start]:
        """Who plays this episode, and from where.

        Args:
            battle, ordinal: global battle id, and how many episodes it began before.
            players: whom the matchmaker names; they play a true start.
        """


class Demonstrations(NamedTuple):
    """Choice decisions of won battles, as their seat saw them.

    Attributes:
        rows: uint8 ``[n, row_bytes]``.
        action: int64 ``[n]``.
    """

    rows: np.ndarray
    action: np.ndarray


class DemonstrationSource(Protocol):
    """Shows decisions of archived wins to the loss term ``self_imitation``."""

    def demonstrations(self, rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Rows and actions, as in :class:`Demonstrations`, of about ``rows`` decisions of slices of archived wins; None
        while nothing is archived."""


@dataclass(frozen=True)
class RunPlan:
    """What the callbacks of a run registered with :meth:`SelfPlayData.register
    <royale_lightning.rollout.data.SelfPlayData.register>`.

    Attributes:
        keep_commands: episodes keep both seats' commands, so that they can be replayed.
        starts: says which episodes begin in the middle of a battle; without, none does.
        demonstrations: of archived wins; without, none are archived.
    """

    keep_commands: bool = False
    starts: StartAuthority | None = None
    demonstrations: DemonstrationSource | None = None
