"""One route's front: where it stands, what has been seen there, and where it may first be put."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .state import Rung


class Vote(NamedTuple):
    """Where an episode began, as its result must say again to be counted."""

    route: int
    generation: int
    rung: int


@dataclass
class Front:
    """One route's front and what has been seen there.

    Attributes:
        rungs: by time; the last is the end and is never served.
        group: of the route.
        opponent: who must be playable for it.
        margin: crown margin of the route's win, which ``salimans_chen`` ties.
        index: the front's rung; -1 when the route is retired, its battle mastered from the start.
        generation: raised whenever front or rungs change, so that votes from before do not count.
        votes: latest successes, newest last.
        seen: votes at this place.
        best, since_best: best rate at this place, and votes since.
        retreats_from: rung -> retreats.
        stalled: it does not advance any more; starts go on, and it may still retreat.
        asleep: the opponent is gone.
    """

    rungs: tuple[Rung, ...]
    group: str
    opponent: str
    margin: int
    index: int
    generation: int = 0
    votes: deque[bool] = field(default_factory=deque)
    seen: int = 0
    best: float = 0.0
    since_best: int = 0
    retreats_from: Counter[int] = field(default_factory=Counter)
    stalled: bool = False
    asleep: bool = False

    @property
    def last(self) -> int:
        """The easiest rung that is ever served."""
        return len(self.rungs) - 2

    @property
    def remaining(self) -> int:
        """Game steps of the battle that lie before the front; 0 when retired."""
        return self.rungs[self.index].game_step if self.index >= 0 else 0

    def move(self, index: int) -> None:
        """Stand at another rung, and forget what was seen at the old one."""
        self.index = max(-1, min(index, self.last))
        self.generation += 1
        self.votes.clear()
        self.seen, self.best, self.since_best = 0, 0.0, 0


def rung_at(rungs: Sequence[Rung], steps_left: int) -> int:
    """The latest rung with at least ``steps_left`` game steps to play, the first if none has; never the end."""
    return max((i for i in range(len(rungs) - 1) if rungs[i].steps_left >= steps_left), default=0)


def latest_contested(passive: Sequence[float], policy: Sequence[float]) -> int | None:
    """The last rung at which a battle is still open: waiting wins at most 60 % and the policy less than 90 %.

    Args:
        passive: win rate of a learner that only passes, per rung (some 16 games each).
        policy: win rate of the current policy, per rung.

    Returns:
        Its index, None where no rung is open.
    """
    open_ones = [i for i, (p, q) in enumerate(zip(passive, policy, strict=True)) if p <= 0.6 and q < 0.9]
    return open_ones[-1] if open_ones else None
