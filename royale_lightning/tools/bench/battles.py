"""Battles to measure on: random-legal play whose own cost is nobody's, recorded so that others can repeat it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...battle.players import LEARNER
from ...battle.round import CHOICE, RUNNING, Assignment, Round
from ...battle.rows.layout import MASK, RowLayout
from ...battle.spec import BattleSpec
from ...battle.streams import generator, stream_seed

#: Share of choices at which the random-legal policy waits, as RoyaleGym's random bot does by default.
NOOP_SHARE = 0.9


def random_battles() -> BattleSpec:
    """Random decks on both seats, ``entities`` rows."""
    return BattleSpec(deck="random")


@dataclass(frozen=True)
class Turn:
    """One round, as it was asked for and as it went.

    Args:
        assignments: of the battles that begin in it.
        action: int32 ``[slots]``, read where a slot had a choice; 0 elsewhere.
        duration: int32 ``[battles]``, game steps it took.
        rows: rows that were written at its end.
    """

    assignments: list[Assignment]
    action: np.ndarray
    duration: np.ndarray
    rows: int


class RandomPlay:
    """Assigns battles and picks actions for a round block: both seats policy-driven, random-legal.

    Args:
        round_: the block.
        layout: of its rows, for the masks in them.
        seed: of the battles and the actions.
        first: global id of the block's first battle.
    """

    def __init__(self, round_: Round, layout: RowLayout, seed: int, first: int = 0) -> None:
        self.round = round_
        self.layout = layout
        self.seed = seed
        self.first = first
        self.ordinals = np.full(round_.battles, -1, dtype=np.int64)
        self.ended = np.ones(round_.battles, dtype=bool)
        self._rng = generator(seed, "bench/act", first)

    def prepare(self) -> list[Assignment]:
        """Write the actions of the coming round and return its assignments. Not for timing."""
        r = self.round
        r.action[:] = 0
        slots = np.flatnonzero(r.kind == CHOICE)
        for slot in slots[self._rng.random(len(slots)) >= NOOP_SHARE]:
            mask = self.layout.unpack_mask(self.layout.views(r.rows[slot : slot + 1])[MASK])[0]
            legal = np.flatnonzero(mask)[1:]
            r.action[slot] = legal[self._rng.integers(len(legal))]
        out = []
        for b in np.flatnonzero(self.ended):
            self.ordinals[b] += 1
            battle, ordinal = self.first + int(b), int(self.ordinals[b])
            seed = stream_seed(self.seed, "bench/battle", battle, ordinal) >> 1
            out.append(Assignment(battle, ordinal, (LEARNER, LEARNER), seed))
            # What stood there belonged to the battle that ended.
            r.action[2 * b : 2 * b + 2] = 0
        return out

    def finish(self, assignments: list[Assignment]) -> Turn:
        """Take note of the round that was just played."""
        r = self.round
        self.ended = r.end != RUNNING
        return Turn(assignments, r.action.copy(), r.duration.copy(), int((r.kind > 0).sum()))


def steps_of(turns: Sequence[Turn]) -> int:
    """Game steps of some rounds."""
    return sum(int(t.duration.sum()) for t in turns)
