"""Whether an archived win was more than luck, and where its front may begin.

Before a route leads a curriculum the learner plays it again from its middle, against the frozen loser. If it does not
win there more often than it does from true starts, the middle was worth nothing, and a later place is tried: half of
what is left, and half of that. The first place that holds is where the front begins; where none does, the win was luck.
These games are part of the training, so that a trial costs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .archive import above_chance
from .draws import draw, pick
from .fronts import Vote
from .state import Route

#: Games at one place: 12 must be won by who wins half from true starts, 2 by who wins one in a hundred.
TRIAL_GAMES = 16
#: The generation that votes of a trial carry; a front's are from 0 up.
TRIAL = -1
#: Latest games from true starts that say how often an opponent is beaten.
_MEMORY = 100


def halfway(route: Route, after: int | None = None) -> int | None:
    """The segment whose end, with a save state minted, lies nearest to the middle of a route; None without one.

    Args:
        after: of what is left after this segment; unset, of the whole.
    """
    begin = route.first_step if after is None else route.segments[after].end_step
    minted = [i for i, s in enumerate(route.segments) if s.end is not None and s.end_step > begin]
    half = (begin + route.last_step) / 2
    return min(minted, key=lambda i: abs(route.segments[i].end_step - half), default=None)


class Verdict(NamedTuple):
    """What a trial has shown: ``wins`` of ``games`` from ``game_step``, the last place that was tried."""

    lucky: bool
    game_step: int
    wins: int
    games: int


class _Tally(NamedTuple):
    segment: int
    wins: int = 0
    games: int = 0


class _Candidate(NamedTuple):
    route: int
    segment: int
    game_step: int


class Trials:
    """Archived routes that nobody has judged yet.

    Args:
        seed: of the named stream.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self._tallies: dict[int, _Tally] = {}
        self._true: dict[str, tuple[float, float]] = {}
        self._frozen: tuple[_Candidate, ...] = ()

    def freeze(self, routes: Iterable[tuple[int, Route]]) -> None:
        """Fix what :meth:`choose` draws from until the next call: those of the routes that have a place to begin."""
        found = []
        for i, route in routes:
            if i not in self._tallies and (place := halfway(route)) is not None:
                self._tallies[i] = _Tally(place)
            if i in self._tallies:
                segment = self._tallies[i].segment
                found.append(_Candidate(i, segment, route.segments[segment].end_step))
        self._frozen = tuple(found)

    @property
    def remaining(self) -> int:
        """Game steps before the places that are tried: their claim beside the walking fronts'."""
        return sum(c.game_step for c in self._frozen)

    def choose(self, battle: int, ordinal: int) -> Vote | None:
        """A route to be tried, drawn by what lies before its place; ``rung`` is the segment to begin at the end of."""
        if not self._frozen:
            return None
        (u,) = draw(self.seed, "start/trial", battle, ordinal, 1)
        one = self._frozen[pick([float(c.game_step) for c in self._frozen], u)]
        return Vote(one.route, TRIAL, one.segment)

    def record_true(self, opponent: str, won: bool) -> None:
        """The learner played an opponent from a true start."""
        wins, games = self._true.get(opponent, (0.0, 0.0))
        keep = min(1.0, (_MEMORY - 1) / games) if games else 1.0
        self._true[opponent] = (keep * wins + won, keep * games + 1.0)

    def chance(self, opponent: str) -> float:
        """How often an opponent is beaten from true starts: ``(wins + 1) / (games + 2)`` (Laplace)."""
        wins, games = self._true.get(opponent, (0.0, 0.0))
        return (wins + 1.0) / (games + 2.0)

    def record(self, route_id: int, route: Route, segment: int, won: bool) -> tuple[bool, Verdict | None]:
        """One more game of a trial.

        Returns:
            Whether it counted (it was begun at the place that is tried now), and the verdict if that decided it.
        """
        tally = self._tallies.get(route_id)
        if tally is None or tally.segment != segment:
            return False, None
        tally = self._tallies[route_id] = _Tally(segment, tally.wins + won, tally.games + 1)
        if tally.games < TRIAL_GAMES:
            return True, None
        lucky = not above_chance(tally.wins, tally.games, self.chance(route.opponent))
        if lucky and (later := halfway(route, segment)) is not None:
            self._tallies[route_id] = _Tally(later)
            return True, None
        self.counts["lucky" if lucky else "confirmed"] += 1
        return True, Verdict(lucky, route.segments[segment].end_step, tally.wins, tally.games)

    def drop(self, route_id: int) -> None:
        """The route is judged or gone."""
        self._tallies.pop(route_id, None)

    def state(self) -> dict[str, Any]:
        return {
            "tallies": [[i, *tally] for i, tally in sorted(self._tallies.items())],
            "true": [[name, *tally] for name, tally in sorted(self._true.items())],
            "counts": dict(sorted(self.counts.items())),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._frozen = ()
        self._tallies = {i: _Tally(*tally) for i, *tally in state["tallies"]}
        self._true = {name: (wins, games) for name, wins, games in state["true"]}
        self.counts = Counter(state["counts"])
