"""The backward curriculum in a run: wins are archived, and training walks back from their ends."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from ..battle.opponents import PREFIX, is_scripted
from ..battle.round import CURRICULUM, EpisodeRecord, Start
from ..battle.stamp import Stamp
from ..battle.steps.arena import LEARNER
from ..battle.streams import stream_seed
from ..bots.bot import Bot
from ..bots.evaluate import BATTLES, PlannedGame, Policy, Referee
from ..errors import UserError
from ..ppo.schedule import Scheduled
from ..restarts.curriculum import CurriculumSettings
from ..restarts.demonstrations import RouteDemonstrations
from ..restarts.figures import curriculum_counts, curriculum_figures
from ..restarts.harvest import Harvester
from ..restarts.judging import Verdict, next_to_judge, probes, verdict, wanted_routes
from ..restarts.mint import priority_of
from ..restarts.scheduler import StartScheduler
from ..restarts.state import Priority, RestartPoint, Route
from ..restarts.store import TrajectoryStore
from ..restarts.store_settings import StoreSettings
from ..screen import say
from .base import RunCallback
from .row import add_seconds, game_steps, iteration_row
from .start_shares import share_schedule

#: Plays the learner's seat without ever playing a card.
_PASSIVE = PREFIX + "noop"


class RouteCurriculum(RunCallback):
    """Archive the learner's wins against named opponents, and begin a share of the training on them, from the end
    backwards (Salimans and Chen 2018, "Learning Montezuma's Revenge from a single demonstration", for battles).

    It stands beside :class:`RestartHarvest`, whose replays mint the routes; with it, wins that the archive would take
    are replayed first. Before a route leads, its tail is played again: by the policy and by a learner that only waits.
    Where waiting still loses and the policy does not yet win is where the curriculum begins; a win that the policy
    repeats no more often than waiting does was luck, and the route goes. Several routes walk at once, each with its own
    front, always against the very opponent that was beaten.

    Where the learner wins against nobody, a ``demonstrator`` does: wins of that bot against whom the training meets are
    archived before the first iteration, judged by its own play, and walked back like the learner's.

    The archive also feeds the loss term ``self_imitation``. Adds ``curriculum/...`` to every row; its time is in
    ``time/restarts``.

    Args:
        share: of the training's game steps that episodes on routes shall have; may be scheduled. With the pool's it
            must leave true starts 0.3. Until a route leads, nothing comes of it.
        bucket_share: of the game steps that episodes shall have which begin anywhere on a stored win, wherever the
            fronts stand; may be scheduled. None by default: the front is where the learning is.
        archive_size: best routes kept a match-up and seat. One fits one shuffle; each one more has to be judged.
        budget: game steps of judging and of minting rungs (``curriculum.decision_granular``), as a share of those
            played.
        probes: moments of a route that are judged.
        games: of the policy, and of a learner that waits, from each. 8 tell 0.2 from 0.7.
        curriculum: how fronts are judged and moved.
        demonstrator: a bot (folder, snapshot, checkpoint or run) whose wins are the first routes; unset, there are the
            learner's alone.
        demonstrations: battles the demonstrator plays against each opponent, half of them in either seat; of its wins
            the archive keeps the best. 32 fill an archive of 8 routes twice over where it wins every second one.
    """

    store: TrajectoryStore | None = None

    def __init__(
        self,
        share: Scheduled = 0.3,
        bucket_share: Scheduled = 0.0,
        archive_size: int = 2,
        budget: float = 0.1,
        probes: int = 4,
        games: int = 8,
        curriculum: CurriculumSettings = CurriculumSettings(),  # noqa: B008 - frozen
        demonstrator: str | None = None,
        demonstrations: int = 32,
    ) -> None:
        self.share = share
        self.bucket_share = bucket_share
        self.schedule = share_schedule(share, "RouteCurriculum.share")
        self.bucket_schedule = share_schedule(bucket_share, "RouteCurriculum.bucket_share")
        if not 0.0 < budget <= 1.0:
            raise UserError(f"RouteCurriculum.budget is {budget}; give a share of the game steps above 0 and up to 1")
        for name, value in (
            ("archive_size", archive_size), ("probes", probes), ("games", games), ("demonstrations", demonstrations)
        ):
            if value < 1:
                raise UserError(f"RouteCurriculum.{name} is {value}; give at least 1")
        self.budget = budget
        self.probes = probes
        self.games = games
        self.settings = StoreSettings(archive_size=archive_size, curriculum=curriculum)
        self.demonstrator = demonstrator
        self.demonstrations = demonstrations
        self._resumed = False
        self._teacher: Bot | None = None
        self._harvester: Harvester | None = None
        self._credit = 0.0
        self._steps = self._judged = self._lucky = 0
        self._unjudged: list[int] = []
        self._counted: dict[str, int] = {}
        self._restored: dict[str, Any] | None = None
        self._referee: Referee | None = None

    def identity_fields(self) -> dict[str, Any]:
        """What of it decides a run (:mod:`royale_lightning.run.identity`)."""
        return {
            "share": self.share, "bucket_share": self.bucket_share, "budget": self.budget, "probes": self.probes,
            "games": self.games,
            "store": asdict(self.settings),
            "demonstrations": None if self.demonstrator is None else [self.demonstrator, self.demonstrations],
        }

    # ---- for RestartHarvest ------------------------------------------------------------------------------------
    def open(self, data: Any, stamp: Stamp, harvester: Harvester) -> TrajectoryStore:
        """The store of a run that begins; ``harvester`` mints demonstrations."""
        self._harvester = harvester
        if self.demonstrator is not None:
            try:
                self._teacher = Bot.load(self.demonstrator)
            except UserError as exc:
                raise UserError(f"RouteCurriculum.demonstrator: {exc}") from exc
        self.store = TrajectoryStore(self.settings, data.seed, stamp)
        data.demonstrations = RouteDemonstrations(data.battle, self.store)
        return self.store

    def wanted(self, data: Any, record: EpisodeRecord) -> list[tuple[int, Priority]]:
        """``(seat, priority)`` of the routes to mint of a battle."""
        assert self.store is not None
        return wanted_routes(record, self.store, data.ladder.ratings)

    # ---- a run -------------------------------------------------------------------------------------------------
    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.store is None:
            raise UserError(
                "RouteCurriculum walks the routes that RestartHarvest mints; list RestartHarvest among the callbacks "
                "too, with share: 0.0 if only the curriculum is wanted"
            )
        self._credit, self._judged, self._lucky, self._unjudged, self._counted = 0.0, 0, 0, [], {}
        self._steps = game_steps(trainer)
        state, self._restored = self._restored, None
        self._resumed = state is not None
        if state is not None:
            self._credit = float(state["credit"])
            self._judged, self._lucky = int(state["judged"]), int(state["lucky"])
            self._unjudged = list(state["unjudged"])
            self._counted = dict(state["counted"])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let the demonstrator play; from here on the ladder is open."""
        bot = self._teacher
        if bot is None or self._resumed:
            return
        assert self.store is not None
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        started = time.monotonic()
        opponents = self._opponents(data)
        for route in data.from_rank_zero(lambda: self._demonstrate(data, bot, opponents)):
            self.store.add_path(route)
        for route_id in self.store.archived_route_ids:
            if (route := self.store.repository_path(route_id)) is not None:
                self._judge(data, route_id, route, bot, demonstrated=True)
        while (unminted := self.store.curriculum_route_needing_action_restarts()) is not None:
            self._mint_decisions(data, unminted)
        walked = [r for i in self.store.archived_route_ids if (r := self.store.repository_path(i)) and r.checked]
        if not walked:
            raise UserError(
                f"RouteCurriculum.demonstrator {self.demonstrator!r} gave no route to walk: of "
                f"{self.demonstrations} battles against each of {', '.join(opponents)} none was won by more than "
                "waiting would win; give a stronger bot, or more demonstrations"
            )
        if trainer.is_global_zero:
            # Told here alone: the rows' times begin with the first iteration.
            seconds = time.monotonic() - started
            say(f"{self.demonstrator} showed {len(walked)} won battles to walk back ({seconds:.0f} s)")

    def _demonstrate(self, data: Any, bot: Bot, opponents: list[str]) -> list[Route]:
        """Battles of the demonstrator in the learner's seat, and the routes of those it won."""
        assert self._harvester is not None
        games = [
            PlannedGame(*((LEARNER, name) if k % 2 == 0 else (name, LEARNER)), seed)
            for name in opponents for k in range(self.demonstrations)
            for seed in [stream_seed(data.seed, "restarts/demonstrate", k) >> 2]
        ]
        players: dict[str, Policy] = {LEARNER: bot}
        players |= {n: data.ladder.store.load(n) for n in opponents if not is_scripted(n)}
        # In the training's own battles, whose save states the routes are made of.
        with Referee(data.battle, min(BATTLES, len(games)), tails=True) as referee:
            records = referee.play(players, games, keep_commands=True)
        found: list[Route] = []
        for record in records:
            seat = record.players.index(LEARNER)
            if record.winner == seat:
                minted, _ = self._harvester.mint(record, 0, [(seat, priority_of(record, seat))])
                found += minted.routes if minted is not None else ()
        return found

    @staticmethod
    def _opponents(data: Any) -> list[str]:
        """Whom the training meets by name when it begins."""
        shares = data.opponents
        named = [PREFIX + n.removeprefix(PREFIX) for n in shares.scripted_opponents] if shares.scripted else []
        named += data.ladder.table().snapshots if shares.pool else []
        if not named:
            raise UserError(
                "RouteCurriculum.demonstrator needs a named opponent to win against, and the learner meets itself "
                "alone; give data.opponents.scripted a share, or data.opponents.pool one with snapshots"
            )
        return named

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self.store is not None
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        row = iteration_row(trainer)
        started = time.monotonic()
        allowance, self._steps = self.budget * (data.game_steps - self._steps), data.game_steps
        self._credit = min(self._credit + allowance, max(self._credit, allowance))
        self._judge_routes(trainer, pl_module)
        while self._credit > 0.0 and (route_id := self.store.curriculum_route_needing_action_restarts()) is not None:
            self._credit -= self._mint_decisions(data, route_id)
        scheduler: StartScheduler = data.starts
        row |= curriculum_figures(scheduler, self._counted)
        row["curriculum/judged"], row["curriculum/lucky"] = self._judged, self._lucky
        self._counted = curriculum_counts(scheduler)
        add_seconds(row, "time/restarts", time.monotonic() - started)

    def _judge_routes(self, trainer: Trainer, pl_module: Any) -> None:
        assert self.store is not None
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        playable = {*(PREFIX + n.removeprefix(PREFIX) for n in data.opponents.scripted_opponents)}
        playable |= set(data.ladder.table().snapshots)
        self._unjudged = [i for i in self._unjudged if i in self.store.archived_route_ids]
        while self._credit > 0.0:
            route_id = next_to_judge(self.store, playable, self._unjudged)
            if route_id is None:
                return
            route = self.store.repository_path(route_id)
            assert route is not None
            self._credit -= self._judge(data, route_id, route, pl_module.bot())

    def _mint_decisions(self, data: Any, route_id: int) -> int:
        """The rungs of a route in a decision-granular curriculum, and the game steps they cost."""
        assert self.store is not None
        assert self._harvester is not None
        harvester, route = self._harvester, self.store.repository_path(route_id)
        assert route is not None
        points, cost = data.from_rank_zero(lambda: harvester.mint_decisions(route))
        if points is None:
            self.store.judge_route(route_id, lucky=True)  # it does not replay, so nothing can begin on it
        else:
            self.store.set_action_restarts(route_id, points)
        return int(cost)

    def _judge(self, data: Any, route_id: int, route: Route, policy: Policy, demonstrated: bool = False) -> int:
        """Judge a route and enter the verdict, and say how many game steps that took."""
        assert self.store is not None
        starts = probes(route, self.probes)
        if not starts:
            self._unjudged.append(route_id)  # too short to begin on
            return 0
        # One rank plays, or ranks could differ in a last bit and then in everything.
        found, cost = data.from_rank_zero(lambda: self._play(data, policy, route, starts, demonstrated))
        self._judged += 1
        self._lucky += found.lucky
        self.store.judge_route(route_id, found.lucky, found.reference_rates, found.contested_step)
        return int(cost)

    def _play(
        self, data: Any, policy: Policy, route: Route, starts: list[RestartPoint], demonstrated: bool
    ) -> tuple[Verdict, int]:
        """A verdict by playing a route's tails, and the game steps that took."""
        seeds = [stream_seed(data.seed, "restarts/judge", route.seed, k) >> 2 for k in range(self.games)]
        games = [
            PlannedGame(*_table(player, route), seed, Start(CURRICULUM, p.blob, p.payload, route.seat))
            for p in starts for player in (_PASSIVE, LEARNER) for seed in seeds
        ]
        players: dict[str, Policy] = {LEARNER: policy}
        if not is_scripted(route.opponent):
            players[route.opponent] = data.ladder.store.load(route.opponent)
        if self._referee is None:
            self._referee = Referee(data.battle, 2 * self.games, tails=True)
        records = self._referee.play(players, games)
        won = [int(r.winner == route.seat and not r.refused) for r in records]
        n = self.games
        wins = [sum(won[i : i + n]) for i in range(0, len(won), n)]
        steps = [p.game_step for p in starts]
        found = verdict(steps, wins[0::2], wins[1::2], n, demonstrated=demonstrated)
        return found, sum(r.game_steps for r in records)

    # ---- state -------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """The store is part of RestartHarvest's state."""
        return {
            "credit": self._credit, "judged": self._judged, "lucky": self._lucky, "unjudged": list(self._unjudged),
            "counted": dict(self._counted),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._restored = state_dict

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._close()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._close()

    def _close(self) -> None:
        if self._referee is not None:
            self._referee.close()
            self._referee = None


def _table(player: str, route: Route) -> tuple[str, str]:
    return (player, route.opponent) if route.seat == 0 else (route.opponent, player)
