"""Whether an archived win was more than luck: its battle is begun again in the middle, until enough games say so.

The learner plays these games against the frozen loser, as part of its training, so that a trial costs nothing. By then
it is some iterations past the policy that won, which is near enough for the question asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .archive import above_chance
from .draws import draw, pick
from .fronts import Vote
from .state import Route

#: Games of a trial: 12 must be won.
TRIAL_GAMES = 16
#: The generation that votes of a trial carry; a front's are from 0 up.
TRIAL = -1


def middle(route: Route) -> int | None:
    """The segment whose end, with a save state minted, lies nearest to the middle of the battle; None without one."""
    half = (route.first_step + route.last_step) / 2
    minted = [i for i, s in enumerate(route.segments) if s.end is not None]
    return min(minted, key=lambda i: abs(route.segments[i].end_step - half), default=None)


class Verdict(NamedTuple):
    """What a trial has shown: ``wins`` of ``games``, above chance or not."""

    wins: int
    games: int

    @property
    def lucky(self) -> bool:
        return not above_chance(self.wins, self.games)


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
        self._tallies: dict[int, Verdict] = {}
        self._frozen: tuple[_Candidate, ...] = ()

    def freeze(self, routes: Iterable[tuple[int, Route]]) -> None:
        """Fix what :meth:`choose` draws from until the next call: those of the routes that can begin in the middle."""
        found = [(i, route, middle(route)) for i, route in routes]
        self._frozen = tuple(_Candidate(i, at, r.segments[at].end_step) for i, r, at in found if at is not None)

    @property
    def remaining(self) -> int:
        """Game steps before the middles of all that can be tried: their claim beside the walking fronts'."""
        return sum(c.game_step for c in self._frozen)

    def choose(self, battle: int, ordinal: int) -> Vote | None:
        """A route to be tried, drawn by what lies before its middle; ``rung`` is the segment to begin at the end of."""
        if not self._frozen:
            return None
        (u,) = draw(self.seed, "start/trial", battle, ordinal, 1)
        one = self._frozen[pick([float(c.game_step) for c in self._frozen], u)]
        return Vote(one.route, TRIAL, one.segment)

    def record(self, route_id: int, won: bool) -> Verdict | None:
        """One more game of a trial; the verdict once there are enough."""
        wins, games = self._tallies.get(route_id, Verdict(0, 0))
        tally = self._tallies[route_id] = Verdict(wins + won, games + 1)
        if tally.games < TRIAL_GAMES:
            return None
        self.counts["lucky" if tally.lucky else "confirmed"] += 1
        return tally

    def drop(self, route_id: int) -> None:
        """The route is judged or gone."""
        self._tallies.pop(route_id, None)

    def state(self) -> dict[str, Any]:
        return {
            "tallies": [[i, *tally] for i, tally in sorted(self._tallies.items())],
            "counts": dict(sorted(self.counts.items())),
        }

    def load(self, state: Mapping[str, Any], archived: Sequence[int]) -> None:
        """Take over :meth:`state`, as far as the routes are still there."""
        self._frozen = ()
        self._tallies = {i: Verdict(wins, games) for i, wins, games in state["tallies"] if i in archived}
        self.counts = Counter(state["counts"])
