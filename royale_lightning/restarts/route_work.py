"""What is done about a run's routes: demonstrated, judged, and their rungs minted, within a budget of game steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ..battle.players import LEARNER, scripted_player
from ..battle.round import CURRICULUM, TRUE_START, EpisodeRecord, Start
from ..battle.spec import BattleSpec
from ..battle.stamp import Stamp
from ..battle.streams import stream_seed
from .harvest import Harvester, replenished
from .records.episodes import priority_of
from .records.points import RestartPoint
from .records.route import Priority, Route
from .routes.demonstrations import RouteDemonstrations
from .routes.judging import Judgement, judge, next_to_judge, probes, wanted_routes
from .routes.store import RouteStore, StoreSettings
from .row_metrics import curriculum_counts, curriculum_figures

#: Plays the learner's seat without ever playing a card.
_PASSIVE = scripted_player("noop")
#: Demonstrations in flight at once: some 40 rows a round, beyond which a forward gets no cheaper per row.
_SHOWN_AT_ONCE = 64


class Game(NamedTuple):
    """One battle to be played.

    Attributes:
        players: by name, blue first; ``learner`` is whoever is asked to play it.
        seed: as RoyaleGym's ``env.reset(seed)`` takes it.
        start: from where.
    """

    players: tuple[str, str]
    seed: int
    start: Start = TRUE_START


class Play(Protocol):
    """Plays battles with policies, which this package knows nothing of."""

    def __call__(self, policy: Any, games: Sequence[Game], battles: int, keep_commands: bool) -> list[EpisodeRecord]:
        """A record per game, in order.

        Args:
            policy: plays the seat of ``learner``; whatever the caller of :class:`RouteWork` gave.
            games: in the training's own battles, whose save states their starts are.
            battles: in flight at once. Who shares a batch can change a battle in a last bit, so it is said here.
            keep_commands: the records can be played again.
        """


@dataclass(frozen=True)
class RouteSettings:
    """What is done about routes; each is explained at
    :class:`~royale_lightning.callbacks.route_curriculum.RouteCurriculum`.

    Args:
        store: of the trajectory store.
        budget: game steps of judging and of minting rungs, as a share of those played.
        probes: moments of a route that are judged.
        games: of the policy, and of a learner that waits, from each.
        demonstrations: battles a demonstrator plays against each opponent.
    """

    store: StoreSettings
    budget: float
    probes: int
    games: int
    demonstrations: int


class RouteWork:
    """See the module; of one run, alike on every rank.

    Args:
        spec: the battles.
        seed: of the named streams.
        stamp: of the battles.
        settings: of the work.
        harvester: plays battles again.
        from_rank_zero: what rank 0 makes, on every rank: one rank plays, or ranks could differ in a last bit and then
            in everything.

    Attributes:
        store: the routes.
        demonstrations: their decisions, to be imitated.
    """

    def __init__(
        self, spec: BattleSpec, seed: int, stamp: Stamp, settings: RouteSettings, harvester: Harvester,
        from_rank_zero: Callable[[Callable[[], Any]], Any],
    ) -> None:
        self.settings = settings
        self.store = RouteStore(settings.store, seed, stamp)
        self.demonstrations = RouteDemonstrations(spec, self.store)
        self._seed = seed
        self._harvester = harvester
        self._from_rank_zero = from_rank_zero
        self._credit = 0.0
        self._judged = self._lucky = 0
        self._unjudged: list[int] = []
        self._counted: dict[str, int] = {}

    def wanted(
        self, record: EpisodeRecord, ratings: Mapping[str, Mapping[str, float]]
    ) -> list[tuple[int, Priority]]:
        """``(seat, priority)`` of the routes to mint of a battle."""
        return wanted_routes(record, self.store, ratings)

    # ---- demonstrations ----------------------------------------------------------------------------------------
    def demonstrate(self, policy: Any, opponents: Sequence[str], play: Play) -> int:
        """Let another policy win what the learner cannot, before the first iteration.

        Its won battles are archived, judged by its own play and walked back like the learner's.

        Args:
            policy: who shows.
            opponents: whom the training meets by name.
            play: plays the battles.

        Returns:
            How many routes there are to walk now.
        """
        for route in self._from_rank_zero(lambda: self._shown(policy, opponents, play)):
            self.store.add(route)
        for route_id in self.store.archive.ids:
            self._judge(route_id, policy, play, demonstrated=True)
        while (unminted := self.store.route_to_mint()) is not None:
            self._mint_rungs(unminted)
        return sum(self.store.repository[i].checked for i in self.store.archive.ids)

    def _shown(self, policy: Any, opponents: Sequence[str], play: Play) -> list[Route]:
        """The routes of the battles it won, playing the learner's seat."""
        games = [
            Game((LEARNER, name) if k % 2 == 0 else (name, LEARNER), seed)
            for name in opponents for k in range(self.settings.demonstrations)
            for seed in [stream_seed(self._seed, "restarts/demonstrate", k) >> 2]
        ]
        found: list[Route] = []
        for record in play(policy, games, min(_SHOWN_AT_ONCE, len(games)), keep_commands=True):
            seat = record.players.index(LEARNER)
            if record.winner == seat:
                minted, _ = self._harvester.mint(record, 0, [(seat, priority_of(record, seat))])
                found += minted.routes if minted is not None else ()
        return found

    # ---- an iteration's end --------------------------------------------------------------------------------------
    def act(
        self, game_steps: int, policy: Callable[[], Any], playable: Collection[str], play: Play
    ) -> dict[str, float]:
        """Judge archived wins that nobody has judged, and mint rungs that are missing, as far as the budget goes.

        Args:
            game_steps: played since the last call, by all ranks.
            policy: makes the learner as it plays now; asked for once a route.
            playable: opponents that can be met now.
            play: plays the battles.

        Returns:
            ``curriculum/...`` of the metric row.
        """
        store = self.store
        self._credit = replenished(self._credit, self.settings.budget * game_steps)
        self._unjudged = [i for i in self._unjudged if i in store.archive]
        while self._credit > 0.0 and (route_id := next_to_judge(store, playable, self._unjudged)) is not None:
            self._credit -= self._judge(route_id, policy(), play)
        while self._credit > 0.0 and (route_id := store.route_to_mint()) is not None:
            self._credit -= self._mint_rungs(route_id)
        row = curriculum_figures(store, self._counted)
        row["curriculum/judged"], row["curriculum/lucky"] = self._judged, self._lucky
        self._counted = curriculum_counts(store)
        return row

    def _mint_rungs(self, route_id: int) -> int:
        """The rungs of a route where each game step is one, and the game steps they cost."""
        route = self.store.repository[route_id]
        points, cost = self._from_rank_zero(lambda: self._harvester.mint_decisions(route))
        if points is None:
            self.store.judge_route(route_id, lucky=True)  # it does not replay, so nothing can begin on it
        else:
            self.store.set_decisions(route_id, points)
        return int(cost)

    def _judge(self, route_id: int, policy: Any, play: Play, demonstrated: bool = False) -> int:
        """Judge a route and enter what came of it; the game steps that took."""
        route = self.store.repository[route_id]
        starts = probes(route, self.settings.probes)
        if not starts:
            self._unjudged.append(route_id)  # too short to begin on
            return 0
        found, cost = self._from_rank_zero(lambda: self._played(policy, route, starts, play, demonstrated))
        self._judged += 1
        self._lucky += found.lucky
        self.store.judge_route(route_id, found.lucky, found.reference_rates, found.contested_step)
        return int(cost)

    def _played(
        self, policy: Any, route: Route, starts: Sequence[RestartPoint], play: Play, demonstrated: bool
    ) -> tuple[Judgement, int]:
        """A judgement by playing a route's tails, and the game steps that took."""
        n = self.settings.games
        seeds = [stream_seed(self._seed, "restarts/judge", route.seed, k) >> 2 for k in range(n)]
        games = [
            Game(_table(player, route), seed, Start(CURRICULUM, p.blob, p.payload, route.seat))
            for p in starts for player in (_PASSIVE, LEARNER) for seed in seeds
        ]
        records = play(policy, games, 2 * n, keep_commands=False)
        won = [int(r.winner == route.seat and not r.refused) for r in records]
        wins = [sum(won[i : i + n]) for i in range(0, len(won), n)]
        steps = [p.game_step for p in starts]
        found = judge(steps, wins[0::2], wins[1::2], n, demonstrated=demonstrated)
        return found, sum(r.game_steps for r in records)

    # ---- state -------------------------------------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        """Plain data; the store's own is the scheduler's."""
        return {
            "credit": self._credit, "judged": self._judged, "lucky": self._lucky, "unjudged": list(self._unjudged),
            "counted": dict(self._counted),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` gave."""
        self._credit = float(state["credit"])
        self._judged, self._lucky = int(state["judged"]), int(state["lucky"])
        self._unjudged = list(state["unjudged"])
        self._counted = dict(state["counted"])


def _table(player: str, route: Route) -> tuple[str, str]:
    return (player, route.opponent) if route.seat == 0 else (route.opponent, player)
