"""What the ranks played in an iteration, put together: a figure of the run is a figure of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..battle.round import EpisodeRecord


@dataclass(frozen=True)
class Played:
    """An iteration of one rank, or of all of them.

    Args:
        episodes: finished; without their commands, which no figure is made of.
        value_errors: of these, per seat.
        start_steps: game steps by kind of start.
        action: int ``[choices]``, of the learner's choice rows.
        offers: int16 ``[choices, hand]``, as in ``Round``.
        counts: figures that add up, such as workers lost.
        most: figures of a process, of which the largest one is told, such as its memory.
    """

    episodes: Sequence[EpisodeRecord]
    value_errors: Sequence[tuple[float | None, float | None]]
    start_steps: Mapping[str, int]
    action: np.ndarray
    offers: np.ndarray
    counts: Mapping[str, float]
    most: Mapping[str, float]

    def small(self) -> Played:
        """The same in few bytes, to be sent to the other ranks."""
        bare = [replace(e, commands=[], start=replace(e.start, state=b"")) for e in self.episodes]
        # The largest action space we know has some 2,300 actions.
        small = np.min_scalar_type(int(self.action.max(initial=0)))
        return replace(self, episodes=bare, action=self.action.astype(small))


def together(ranks: Sequence[Played]) -> Played:
    """All ranks' as one, in the order of the ranks: battles ascend, as on a single rank."""
    if len(ranks) == 1:
        return ranks[0]
    steps: dict[str, int] = {}
    counts: dict[str, float] = {}
    most: dict[str, float] = {}
    for played in ranks:
        for kind, n in played.start_steps.items():
            steps[kind] = steps.get(kind, 0) + n
        for key, x in played.counts.items():
            counts[key] = counts.get(key, 0) + x
        for key, x in played.most.items():
            most[key] = max(x, most.get(key, x))
    return Played(
        [e for p in ranks for e in p.episodes], [x for p in ranks for x in p.value_errors], steps,
        np.concatenate([p.action.astype(np.int64) for p in ranks]), np.concatenate([p.offers for p in ranks]),
        counts, most,
    )
