"""Where battles step: in this process, or in workers over shared memory. The bytes are the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from ...errors import UserError
from ..prepare import culprit, prepare
from ..round import Assignment, Round, SavedBattle
from ..rows.layout import Loss
from ..spec import BattleSpec
from .arena import Arena, ArenaSettings, build_arena


class RolloutSource(ABC):
    """Battles in rounds.

    ``round`` is the block of the current round: write ``round.action`` where ``round.kind`` is CHOICE, then call
    :meth:`advance` with an assignment for every battle that ended (for all, at the start).
    """

    round: Round
    #: bool ``[battles]``: whose process is gone until :meth:`revive`; they stand still and take no assignment.
    down: np.ndarray
    #: Processes lost so far, by way; empty for a source that has none.
    faults: dict[str, int]

    def take_voided(self) -> np.ndarray:
        """Battles lost since the last call, int64 ascending, counted from this source's first: their last round, the
        current one, never came to its end, and they need an assignment once they are no longer down."""
        return np.zeros(0, dtype=np.int64)

    def revive(self) -> None:  # noqa: B027 - nothing to wait for where nothing can be down
        """Wait until no battle is down."""

    @abstractmethod
    def set_gamma(self, gamma: float) -> None:
        """Discount of the coming rounds, per game step."""

    @abstractmethod
    def advance(self, assignments: Sequence[Assignment]) -> None:
        """Play one round and fill the block."""

    @abstractmethod
    def observe(self, slots: np.ndarray) -> None:
        """Write running battles' slots as they stand, also where they are forced, into ``round.rows``."""

    @abstractmethod
    def save(self) -> list[SavedBattle]:
        """The battles in flight, between two rounds."""

    @abstractmethod
    def restore(self, saved: Sequence[SavedBattle]) -> None:
        """Bring saved battles back to where they stood, rows included; before the first round."""

    @abstractmethod
    def refused(self) -> int:
        """Actions the engine refused so far. The mask promises 0."""

    @abstractmethod
    def loss(self) -> Loss:
        """Numbers of observations that the rows so far did not hold exactly."""

    @abstractmethod
    def close(self) -> None:
        """Give back threads, processes and shared memory. Idempotent."""


class InlineSource(RolloutSource):
    """All battles in this process, stepped by a thread pool: the reference for every other source."""

    def __init__(self, spec: BattleSpec, first: int, battles: int, settings: ArenaSettings) -> None:
        self.round = Round(battles, prepare(spec).row_layout.row_bytes)
        self.down = np.zeros(battles, dtype=bool)
        self.faults = {}
        self.spec = spec
        self.arena: Arena = build_arena(spec, first, battles, self.round, settings)

    def set_gamma(self, gamma: float) -> None:
        self.arena.set_gamma(gamma)

    def advance(self, assignments: Sequence[Assignment]) -> None:
        try:
            self.arena.advance(assignments)
        except Exception as exc:
            if isinstance(exc, UserError) or (part := culprit(exc, self.spec)) is None:
                raise
            raise UserError(f"{part}: a battle raised {type(exc).__name__}: {exc}") from exc

    def observe(self, slots: np.ndarray) -> None:
        self.arena.observe(slots)

    def save(self) -> list[SavedBattle]:
        return self.arena.save()

    def restore(self, saved: Sequence[SavedBattle]) -> None:
        self.arena.restore(saved)

    def refused(self) -> int:
        return self.arena.refused

    def loss(self) -> Loss:
        return self.arena.loss

    def close(self) -> None:
        self.arena.close()
