"""The backward curriculum in a run: wins are archived, and training walks back from their ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from ..battle.players import LEARNER, is_scripted, scripted_player
from ..battle.round import EpisodeRecord
from ..battle.spec import BattleSpec
from ..bots.bot import Bot
from ..bots.evaluate import PlannedGame, Policy, Referee
from ..bots.given import Given
from ..errors import UserError
from ..ppo.schedule import Schedule, Scheduled, progress, schedule_of
from ..restarts.route_work import Game, RouteSettings, RouteWork
from ..restarts.routes.curriculum import CurriculumSettings
from ..restarts.routes.store import StoreSettings
from ..restarts.session import RestartSession
from ..restarts.shares import TRUE_RESERVE
from ..rollout.data import data_of
from ..run.screen import say
from .base import Phase, RunCallback, add_seconds, game_steps, iteration_row

_DEMONSTRATOR = "RouteCurriculum.demonstrator"
#: Points of a schedule that are looked at for a share nobody can have.
_LOOKS = 20


def share_schedule(share: Scheduled, where: str) -> Schedule:
    """A scheduled share of the game steps.

    Raises:
        UserError: it is no share, or leaves true starts too little.
    """
    schedule = schedule_of(share, where)
    most = 1.0 - TRUE_RESERVE
    for i in range(_LOOKS + 1):
        if not 0.0 <= (value := schedule(i / _LOOKS)) <= most:
            raise UserError(
                f"{where} becomes {value:g}; give a share of the game steps from 0 to {most:g}, for the rest belongs "
                "to true starts"
            )
    return schedule


def progress_of(trainer: Trainer, module: Any) -> float:
    """How far the run is on the horizon that all its schedules share."""
    return progress(game_steps(trainer), module.ppo.horizon_game_steps)


def scripted_names(trainer: Trainer) -> list[str]:
    """The scripted opponents that the run names, as players are named."""
    return [scripted_player(n) for n in data_of(trainer).opponents.scripted_opponents]


def met_by_name(trainer: Trainer) -> set[str]:
    """Whom the training can meet by name now: its scripted opponents and the pool's snapshots."""
    return {*scripted_names(trainer), *data_of(trainer).ladder.table().snapshots}


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

    phase = Phase.CURRICULUM

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
        self.settings = RouteSettings(
            StoreSettings(archive_size=archive_size, curriculum=curriculum), budget, probes, games, demonstrations
        )
        self.demonstrator = demonstrator
        self._work: RouteWork | None = None
        self._table: _Table | None = None
        self._teacher: Bot | None = None
        self._known: Given | None = None
        self._steps = 0
        self._restored: dict[str, Any] | None = None
        self._resumed = False

    def identity_fields(self) -> dict[str, Any]:
        """What of it decides a run (:mod:`royale_lightning.run.identity`)."""
        s = self.settings
        return {
            "share": self.share, "bucket_share": self.bucket_share, "budget": s.budget, "probes": s.probes,
            "games": s.games,
            "store": asdict(s.store),
            "demonstrations": None if self.demonstrator is None else [self._given(self.demonstrator), s.demonstrations],
        }

    def _given(self, demonstrator: str) -> str:
        """What the demonstrator was when the run began."""
        return demonstrator if self._known is None else self._known.id_of(_DEMONSTRATOR, demonstrator)

    def join(self, session: RestartSession, given: Given) -> None:
        """Called by ``RestartHarvest`` when a run begins: its routes are this callback's.

        Args:
            given: what the run was given by path.
        """
        self._work, self._known = session.routes, given

    # ---- a run -------------------------------------------------------------------------------------------------
    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._work is None:
            raise UserError(
                "RouteCurriculum walks the routes that RestartHarvest mints; list RestartHarvest among the callbacks "
                "too, with share: 0.0 if only the curriculum is wanted"
            )
        data = data_of(trainer)
        # The ladder is opened with the battles, after this.
        self._table = _Table(data.battle, lambda name: data.ladder.store.load(name))
        self._steps = game_steps(trainer)
        state, self._restored = self._restored, None
        self._resumed = state is not None
        if state is not None:
            self._work.load(state)
        elif self.demonstrator is not None:  # which a resumed run has no use for
            try:
                self._teacher = Bot.load(self.demonstrator)
            except UserError as exc:
                raise UserError(f"{_DEMONSTRATOR}: {exc}") from exc

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let the demonstrator play; from here on the ladder is open."""
        if self._teacher is None or self._resumed:
            return
        assert self._work is not None
        assert self._table is not None
        started = time.monotonic()
        opponents = self._opponents(trainer)
        walked = self._work.demonstrate(self._teacher, opponents, self._table.play)
        if not walked:
            raise UserError(
                f"RouteCurriculum.demonstrator {self.demonstrator!r} gave no route to walk: of "
                f"{self.settings.demonstrations} battles against each of {', '.join(opponents)} none was won by more "
                "than waiting would win; give a stronger bot, or more demonstrations"
            )
        if trainer.is_global_zero:
            # Told here alone: the rows' times begin with the first iteration.
            seconds = time.monotonic() - started
            say(f"{self.demonstrator} showed {walked} won battles to walk back ({seconds:.0f} s)")

    @staticmethod
    def _opponents(trainer: Trainer) -> list[str]:
        """Whom the training meets by name when it begins."""
        data = data_of(trainer)
        shares = data.opponents
        named = scripted_names(trainer) if shares.scripted else []
        named += data.ladder.table().snapshots if shares.pool else []
        if not named:
            raise UserError(
                "RouteCurriculum.demonstrator needs a named opponent to win against, and the learner meets itself "
                "alone; give data.opponents.scripted a share, or data.opponents.pool one with snapshots"
            )
        return named

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self._work is not None
        assert self._table is not None
        learner: Any = pl_module
        row = iteration_row(trainer)
        started = time.monotonic()
        played, self._steps = game_steps(trainer) - self._steps, game_steps(trainer)
        row |= self._work.act(played, learner.bot, met_by_name(trainer), self._table.play)
        add_seconds(row, "time/restarts", time.monotonic() - started)

    # ---- state -------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """The store is part of RestartHarvest's state."""
        return {} if self._work is None else self._work.state()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._restored = state_dict or None

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._close()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._close()

    def _close(self) -> None:
        if self._table is not None:
            self._table.close()


class _Table:
    """Plays what the route work wants to see, on battles that stay built while it wants as many.

    Args:
        spec: the training's own battles, whose save states the starts are.
        frozen: a frozen opponent by name.
    """

    def __init__(self, spec: BattleSpec, frozen: Callable[[str], Policy]) -> None:
        self._spec = spec
        self._frozen = frozen
        self._referee: Referee | None = None
        self._battles = 0

    def play(
        self, policy: Policy, games: Sequence[Game], battles: int, keep_commands: bool
    ) -> list[EpisodeRecord]:
        """See :class:`~royale_lightning.restarts.route_work.Play`."""
        names = {name for game in games for name in game.players if name != LEARNER and not is_scripted(name)}
        players: dict[str, Policy] = {LEARNER: policy} | {name: self._frozen(name) for name in sorted(names)}
        if self._battles != battles:
            self.close()
        if self._referee is None:
            self._referee, self._battles = Referee(self._spec, battles, tails=True), battles
        planned = [PlannedGame(*game.players, game.seed, game.start) for game in games]
        return self._referee.play(players, planned, keep_commands=keep_commands)

    def close(self) -> None:
        """Give back threads and battles. Idempotent."""
        if self._referee is not None:
            self._referee.close()
            self._referee = None
