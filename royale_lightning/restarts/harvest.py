"""Which finished battles are played again for their moments, within a budget.

Replaying is cheaper than training and not free, so only a drawn part of an iteration's battles is harvested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..battle.round import EpisodeRecord
from ..battle.save_state import Refused, SaveStateCodec
from ..battle.spec import BattleSpec
from ..battle.stamp import Stamp
from ..battle.steps.arena import build_games
from ..battle.steps.replay import Replay, ReplayMismatch
from ..battle.streams import generator
from ..errors import UserError
from .mint import Minted, mint, mint_decisions
from .moments import MarkerSettings
from .records.episodes import record_of, replayable
from .records.points import RestartPoint
from .records.route import Priority, Route

#: ``(seat, priority)`` of the routes that are wanted of a battle.
Routes = Callable[[EpisodeRecord], Sequence[tuple[int, Priority]]]


def replenished(credit: float, allowance: float) -> float:
    """Game steps that may be spent once an iteration's allowance is added to ``credit``.

    A debt is paid off first, and of what was left over an allowance is kept, so that a small share still buys something
    now and then.
    """
    return min(credit + allowance, max(credit, allowance))


class Harvester:
    """Plays finished battles again, in a drawn order, as long as its budget lasts.

    The budget is counted in game steps and not in seconds, or two runs of one seed would keep different moments; what
    it took in seconds is a metric. What a battle takes beyond it is owed by the next iterations, and of what is left
    over an iteration's allowance is kept, so that a small share still replays a battle now and then.

    Args:
        spec: the battles.
        stamp: of them.
        markers: which moments are kept.
        budget: game steps replayed, saves counted in, as a share of those played.
        seed: of the named stream that draws the order.

    Attributes:
        replays: battles played again so far.
        failures: of them, those that did not come out as they had; nothing of them is kept.
        credit: game steps that may be replayed yet, negative for a debt.
    """

    def __init__(self, spec: BattleSpec, stamp: Stamp, markers: MarkerSettings, budget: float, seed: int) -> None:
        if not 0.0 < budget <= 1.0:
            raise UserError(f"a harvest's budget is {budget}; give a share of the game steps above 0 and up to 1")
        self.markers = markers
        self.budget = budget
        self.credit = 0.0
        self.replays = self.failures = 0
        self._seed = seed
        self._stamp = stamp
        self._tick_limit = spec.max_ticks
        (self._game,), self._codec = build_games(spec, 1), SaveStateCodec(stamp)

    def harvest(
        self, episodes: Sequence[EpisodeRecord], game_steps: int, iteration: int, first: int = 0,
        routes: Routes | None = None,
    ) -> Iterator[tuple[int, Minted]]:
        """Index and moments of the battles that are replayed.

        Args:
            episodes: finished in this iteration.
            game_steps: played in it, by this rank.
            iteration: counted from 1; its weights played them.
            first: global id of this rank's first battle, so that ranks draw apart.
            routes: unset, none is wanted; battles of which one is come first.
        """
        self.credit = replenished(self.credit, self.budget * game_steps)
        candidates = [i for i, e in enumerate(episodes) if replayable(e)]
        wanted = {i: routes(episodes[i]) if routes is not None else () for i in candidates}
        drawn = generator(self._seed, "restarts/harvest", iteration, first).permutation(candidates).tolist()
        for i in sorted(drawn, key=lambda i: not wanted[i]):
            if self.credit <= 0.0:
                return
            minted, cost = self.mint(episodes[i], iteration, wanted[i])
            self.credit -= cost
            if minted is not None:
                yield i, minted

    def mint(
        self, record: EpisodeRecord, iteration: int, routes: Sequence[tuple[int, Priority]] = ()
    ) -> tuple[Minted | None, int]:
        """Play one battle again, outside the budget.

        Args:
            record: of it, :func:`replayable`.
            iteration: whose weights played it.
            routes: ``(seat, priority)`` of those that are wanted.

        Returns:
            What it gave, None where it did not come out as it had; and its cost in game steps, saves counted in.
        """
        replay = Replay(self._game, self._codec, record)
        self.replays += 1
        try:
            minted = mint(
                replay, self.markers, self._stamp, policy_version=iteration, tick_limit=self._tick_limit, routes=routes
            )
        except (ReplayMismatch, Refused):
            self.failures += 1
            return None, replay.cost
        return minted, replay.cost

    def mint_decisions(self, route: Route) -> tuple[dict[int, RestartPoint] | None, int]:
        """A save state before every game step of an archived route, outside the budget.

        Returns:
            By game step, None where the route did not come out as it had; and the cost in game steps, saves counted in.
        """
        replay = Replay(self._game, self._codec, record_of(route))
        self.replays += 1
        try:
            return mint_decisions(replay, route, self._stamp, tick_limit=self._tick_limit), replay.cost
        except ReplayMismatch:
            self.failures += 1
            return None, replay.cost
