"""The LightningDataModule: owns the battles, the collector and the buffer."""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch.utils.data import IterableDataset

from ..battle.engine.engine import engine_identity, shared_engine
from ..battle.opponents import make_opponent
from ..battle.prepare import prepare, validate
from ..battle.round import EpisodeRecord
from ..battle.spec import BattleSpec
from ..battle.steps.make_source import make_source
from ..battle.steps.sources import InlineSource, RolloutSource
from ..bots.bot import Bot
from ..bots.frozen import FrozenActors
from ..bots.given import OPPONENTS, Given, stores_of
from ..bots.measure import DEFAULT_GAMES, DEFAULT_SEED, Measure
from ..errors import UserError
from ..ladder.ladder import Ladder
from ..metrics.process import process_figures
from ..metrics.row import MetricRow
from ..nn.protocol import Inputs
from ..parts import Part
from ..run import folder as run_folder
from ..run.ranks import Ranks
from ..run.screen import say
from .advantage import estimator_of
from .collector import Collector, Rollout
from .dataset import Learner, SelfPlayDataset
from .measures import (
    TrainingScores,
    battle_figures,
    by_start,
    full_battles,
    play_figures,
    rollout_figures,
    source_counts,
    source_figures,
    training_results,
)
from .over_ranks import Played, together
from .overlap import Ahead
from .plan import DemonstrationSource, RunPlan, StartAuthority
from .returns import ReturnScaler
from .settings import OpponentShares, RolloutSettings

#: Iterations between two calls of :func:`_give_back_memory`.
_TRIM_EVERY = 16
#: What a run's state must hold to go on.
_STATE = ("scaler", "ladder", "scores", "ranks", "ahead", "table_metrics")
#: What belongs to one fit of this process, and no copy can have.
_OF_A_FIT = ("trainer", "_source", "_dataset", "_ahead")


def _give_back_memory() -> None:
    """Return freed memory to the system, where the C library is glibc.

    A batch of tokens has another size every time, and glibc keeps what such blocks leave: a run grew from 1.5 to 3.0 GB
    in 65 iterations and fell back to 1.5 at one call. It takes some 20 ms.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # musl has no malloc_trim
            ctypes.CDLL(None).malloc_trim(0)


def inputs_of(battle: BattleSpec) -> Inputs:
    """What a network for these battles must know, from the spec alone: no battle is started."""
    types = shared_engine().unit_types()
    known = prepare(battle)
    return Inputs(known.row_layout, known.action_layout, len(shared_engine().cards()), len(types or ()))


class _Once(IterableDataset):
    """A data set of one item."""

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[int]:
        yield 0


class SelfPlayData(pl.LightningDataModule):
    """Battles, collector, buffer and ladder of a run.

    Args:
        battle: what is played.
        rollout: how it is collected.
        opponents: who the learner plays.
        seed: of every named stream: battles, opponents, actions, permutations, initial weights.
    """

    def __init__(
        self,
        battle: BattleSpec = BattleSpec(),  # noqa: B008 - frozen
        rollout: RolloutSettings = RolloutSettings(),  # noqa: B008 - frozen
        opponents: OpponentShares = OpponentShares(),  # noqa: B008 - frozen
        seed: int = 1,
    ) -> None:
        super().__init__()
        self.battle = battle
        self.rollout = rollout
        self.opponents = opponents
        self.seed = seed
        self.game_steps = 0
        self.iteration = 0
        #: Finished in the latest iteration, ascending by round and battle; their rounds; per seat, how wrong the critic
        #: was in each. And this rank's game steps in it by kind of start.
        self.episodes: list[EpisodeRecord] = []
        self.ended_in: list[int] = []
        self.value_errors: list[tuple[float | None, float | None]] = []
        self.start_steps: dict[str, int] = {}
        self.scaler = ReturnScaler()
        #: Open while a run goes on; callbacks put snapshots into its pool and rate the learner.
        self.ladder = Ladder(battle, seed, opponents.pfsp)
        #: What ``test``, ``validate`` or ``predict`` shall play; set by the command line.
        self.measure: Measure | None = None
        #: What the run was given by path, such as bots.
        self.given = Given()
        #: What callbacks registered for this run.
        self.plan = RunPlan()
        #: The metric row; see :func:`royale_lightning.callbacks.iteration_row`.
        self.metric_row = MetricRow()
        self._source: RolloutSource | None = None
        self._dataset: SelfPlayDataset | None = None
        self._ahead: Ahead | None = None
        self._restored: dict[str, Any] | None = None
        #: Where this rank's battles stood when the fit ended, for a checkpoint that is saved after it.
        self._left: dict[str, Any] | None = None
        self._metrics: dict[str, float] = {}
        self._table_metrics: dict[str, float] = {}
        self._counted: dict[str, int] = {}
        self._scores = TrainingScores()

    @property
    def inputs(self) -> Inputs:
        return inputs_of(self.battle)

    @property
    def ranks(self) -> Ranks:
        """The processes of the run this belongs to."""
        return Ranks.of(self.trainer)

    def register(
        self, *, keep_commands: bool = False, starts: StartAuthority | None = None,
        demonstrations: DemonstrationSource | None = None,
    ) -> None:
        """Say what a run's battles shall be made with; for a callback's ``setup``, while there are none yet.

        Args: as the attributes of :class:`~royale_lightning.rollout.plan.RunPlan`; what is left out stays as it is.

        Raises:
            UserError: two callbacks say where episodes begin, or two show demonstrations.
        """
        assert self._dataset is None, "the battles exist already; register in setup"
        plan = self.plan
        for what, one, other in (
            ("starts", plan.starts, starts), ("demonstrations", plan.demonstrations, demonstrations)
        ):
            if one is not None and other is not None:
                raise UserError(
                    f"a {type(one).__name__} and a {type(other).__name__} both give the run its {what}; leave out one "
                    "of the callbacks that make them"
                )
        self.plan = RunPlan(
            keep_commands=plan.keep_commands or keep_commands,
            starts=plan.starts if starts is None else starts,
            demonstrations=plan.demonstrations if demonstrations is None else demonstrations,
        )

    # ---- Lightning -------------------------------------------------------------------------------------------
    def setup(self, stage: str) -> None:
        if stage == "fit":
            self.plan = RunPlan()  # Lightning sets up the callbacks after this
            self._left = None
            self.given = Given()
            validate(self.battle)
            self._check_accumulation()
            for name in self.opponents.scripted_opponents if self.opponents.scripted else ():
                make_opponent(name)

    def _check_accumulation(self) -> None:
        trainer = self.trainer
        every = trainer.accumulate_grad_batches if trainer is not None else 1
        if self.rollout.minibatches % every:
            raise UserError(
                f"trainer.accumulate_grad_batches is {every} and a PPO epoch has {self.rollout.minibatches} "
                "minibatches (rollout.rows_per_iteration over rollout.minibatch_rows); give a divisor, or a step "
                "would mix two PPO epochs"
            )

    def train_dataloader(self) -> SelfPlayDataset:
        """The dataset itself, unwrapped: one object for the whole fit."""
        if self._dataset is None:
            self._dataset = self._build()
        return self._dataset

    def on_exception(self, exception: BaseException) -> None:
        # Lightning calls no teardown after an exception, and workers and shared memory must not outlive the run.
        self._close()

    def test_dataloader(self) -> _Once:
        """One item: the module's step plays the whole measurement."""
        return _Once()

    val_dataloader = predict_dataloader = test_dataloader

    def asked(self) -> Measure:
        """What a measuring stage plays: :attr:`measure`, or as the command without options does, into the run folder of
        the checkpoint that is measured, or else the Trainer's."""
        if self.measure is not None:
            return self.measure
        trainer = self.trainer
        assert trainer is not None, "the data module is used through a Trainer"
        assert trainer.state.fn is not None
        stage = trainer.state.fn.value
        out = self._source_run() or Path(trainer.default_root_dir)
        return Measure(stage, DEFAULT_GAMES[stage], DEFAULT_SEED, out)

    def teardown(self, stage: str) -> None:
        if self._dataset is not None:
            self._left = self._battles()
        self._close()

    def _close(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
        if self._source is not None:
            self._source.close()
        self._source = self._dataset = self._ahead = None
        self._counted = {}
        self.ladder.close()

    def minibatch(self, number: int) -> dict[str, torch.Tensor]:
        """The tensors of this iteration's minibatch of this number, for a bundle."""
        if self._dataset is None:
            return {}
        return {k: v for k, v in vars(self._dataset.minibatch(number)).items() if isinstance(v, torch.Tensor)}

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """The buffer lies on the device already."""
        return batch

    def _build(self) -> SelfPlayDataset:
        trainer = self.trainer
        assert trainer is not None, "the data module is used through a Trainer"
        learner = cast(Learner, trainer.lightning_module)
        ranks = self.ranks
        n = self.rollout.battles
        first = ranks.rank * n
        if self.rollout.overlap and self.plan.starts is not None:
            raise UserError(
                "rollout.overlap is true and a callback has episodes begin in the middle of a battle, from a pool that "
                "changes while the next rollout is collected; set rollout.overlap to false, or leave that callback out"
            )
        self._check_memory(learner.device)
        self._source = make_source(
            self.battle, first, n, self.seed, self.rollout.forced_share, self.rollout.source,
            self.rollout.workers, self.rollout.threads, restarts=self.rollout.worker_restarts,
            timeout=self.rollout.worker_timeout_s,
        )
        matchmaker = self.opponents.build(self.seed, ranks.world_size * n)
        self._open_ladder(trainer, ranks)
        self.collector = Collector(
            self._source, self.battle, matchmaker, seed=self.seed, first=first, rows=self.rollout.rows_per_iteration,
            max_rounds=self.rollout.max_rounds, stagger=self.rollout.stagger,
            count_forced=self.rollout.forced_rows == "all", device=learner.device,
            frozen=FrozenActors(self.ladder.store, self.battle, learner.device), starts=self.plan.starts,
            keep_commands=self.plan.keep_commands, precision=trainer.precision_plugin.forward_context,
        )
        self.scaler.clip = learner.ppo.reward_clip
        ahead = self._ahead = Ahead(self.collector) if self.rollout.overlap else None
        if self._restored is not None:
            self._go_on(self._restored, ranks, learner)
            self._restored = None
        return SelfPlayDataset(
            self.collector, learner, self, rollout=self.rollout, estimator=estimator_of(learner.ppo.advantage),
            scaler=self.scaler, seed=self.seed, ranks=ranks, ahead=ahead,
        )

    def _go_on(self, state: dict[str, Any], ranks: Ranks, learner: Learner) -> None:
        """Put this rank's battles where they stood; those of a rank that was not there begin as a fresh run's do."""
        before, now, policy = state["ranks"], ranks.world_size, state["ahead"]
        if len(before) != now and ranks.leads:
            n = self.rollout.battles
            less = f"the {(len(before) - now) * n} battles in flight of the others are dropped"
            more = f"{(now - len(before)) * n} battles begin anew on the ranks that are new"
            say(f"the run had {len(before)} ranks and has {now}: {less if len(before) > now else more}")
        if ranks.rank >= len(before):
            return
        mine = before[ranks.rank]
        # Who has nothing ahead would wait for the ladder's table in a collective that the others are past.
        if self._ahead is not None and policy is not None and len(before) == now:
            self._ahead.load_state_dict(mine, policy, learner.policy)
        else:
            self.collector.load_state_dict(mine if policy is None else mine["collector"])

    def _check_memory(self, device: torch.device) -> None:
        """Refuse sizes whose buffers alone the memory cannot hold, before anything is allocated."""
        row, r = prepare(self.battle).row_layout.row_bytes, self.rollout
        need = (r.rows_per_iteration + 8 * r.battles) * row * (2 if r.overlap else 1)
        try:
            # Pages nobody writes to take no memory, so asking for them only asks whether they could be had.
            torch.empty(need, dtype=torch.uint8, device=device)
        except (RuntimeError, MemoryError) as exc:
            raise UserError(
                f"there is no memory on {device} for rollout.rows_per_iteration {r.rows_per_iteration} and "
                f"rollout.battles {r.battles}: their rows of {row} bytes take {need / 1e9:.0f} GB"
                f"{', twice as much as without rollout.overlap' if r.overlap else ''}; lower them"
            ) from exc

    def _open_ladder(self, trainer: pl.Trainer, ranks: Ranks) -> None:
        folder = Path(trainer.default_root_dir)
        source = self._source_run()
        dry = bool(trainer.fast_dev_run)  # type: ignore[attr-defined]
        self.ladder.open(
            None if dry else folder, leads=ranks.leads, share=ranks.from_rank_zero, source=source,
            given=[p for p in self.opponents.snapshots if self.given.is_new(OPPONENTS, p)], game_steps=self.game_steps,
        )
        if not dry:
            (own,) = stores_of([folder])
            ranks.from_rank_zero(lambda: self.given.keep(own))

    def _source_run(self) -> Path | None:
        """The run folder of the checkpoint that is gone on from."""
        trainer = self.trainer
        return run_folder.of_checkpoint(Path(trainer.ckpt_path)) if trainer is not None and trainer.ckpt_path else None

    def given_bot(self, setting: str, path: str) -> Bot:
        """The bot that a setting names by path, as it was when the run began; see :mod:`royale_lightning.bots.given`.

        Raises:
            UserError: it cannot be had.
        """
        assert self.trainer is not None, "the data module is used through a Trainer"
        return self.given.bot(setting, path, stores_of([Path(self.trainer.default_root_dir), self._source_run()]))

    # ---- an iteration ----------------------------------------------------------------------------------------
    def before_rollout(self) -> None:
        """Freeze whom the coming iteration's episodes may meet."""
        self.collector.table = self.ladder.table()
        self.collector.game_steps = self.game_steps
        self._table_metrics = self.ladder.table_metrics()

    def after_rollout(self, r: Rollout, scale: float, clipped: int) -> None:
        """Count the iteration, and measure what it played."""
        ranks = self.ranks
        self.game_steps += ranks.total(r.game_steps)
        self.iteration += 1
        self.episodes, self.ended_in, self.value_errors = r.episodes, r.ended_in, r.value_errors
        self.start_steps = r.start_steps
        self.ladder.note_training(ranks.joined(training_results(r.episodes, self.iteration, self.game_steps)))
        if self.iteration % _TRIM_EVERY == 0:
            _give_back_memory()
        self._metrics = self._measure(r, scale, clipped)

    def _measure(self, r: Rollout, scale: float, clipped: int) -> dict[str, float]:
        counts: dict[str, float] = {"rollout/rewards_clipped": clipped}
        most: dict[str, float] = {}
        if self._source is not None:
            processes = not isinstance(self._source, InlineSource)
            now = source_counts(self._source)
            counts |= source_figures(r, now, self._counted, processes)
            most = process_figures(children=processes)
            self._counted = now
        choice = r.choice.cpu().numpy() & (r.offers >= 0).any(axis=1)
        mine = Played(
            r.episodes, r.value_errors, r.start_steps, r.action.cpu().numpy()[choice], r.offers[choice], counts, most
        )
        ranks = self.ranks
        played = together(ranks.gather(mine if ranks.alone else mine.small()))
        battles = full_battles(played.episodes)
        self._scores.add(battles)
        used = self.rollout.minibatches * self.rollout.minibatch_rows
        m = {**rollout_figures(r, used, scale, clipped), **played.counts, **played.most}
        names = [c.name for c in shared_engine().cards()]
        choices = np.ones(len(played.action), dtype=bool)
        m.update(play_figures(played.action, played.offers, choices, prepare(self.battle).action_layout, names))
        m |= self._table_metrics
        m |= by_start(played.episodes, played.start_steps, played.value_errors)
        return m | battle_figures(battles) | self._scores.figures()

    def iteration_metrics(self) -> dict[str, float]:
        """Figures of the iteration that was just collected. A figure nobody measured is absent."""
        return dict(self._metrics)

    # ---- state -----------------------------------------------------------------------------------------------
    def __getstate__(self) -> dict[str, Any]:
        """Of a copy (``copy.deepcopy``, ``pickle``), as tuners make: settings and where the run stands, for a fit of
        its own; battles, processes and the Trainer stay here."""
        kept = {k: v for k, v in vars(self).items() if k != "collector"}
        return kept | dict.fromkeys(_OF_A_FIT) | {"plan": RunPlan()}

    def identity_fields(self) -> dict[str, Any]:
        """What of this module decides a run (:mod:`royale_lightning.run.identity`): settings, engine, bots."""
        names = [n for n in inspect.signature(type(self)).parameters if n != "battle"]
        bots = [Part(n) for n in self.opponents.scripted_opponents if "." in n]
        # A bot by what it holds: neither where it lies nor what lies there by now decides anything.
        opponents = replace(
            self.opponents, snapshots=[self.given.id_of(OPPONENTS, p) for p in self.opponents.snapshots]
        )
        return {
            "battle": {**self.battle.as_dict(), "row_layout": prepare(self.battle).row_layout.digest},
            "engine": engine_identity(),
            "opponent_code": bots,
            **{n: getattr(self, n) for n in names},
            "opponents": opponents,
        }

    def state_dict(self) -> dict[str, Any]:
        mine = self._battles() if self._dataset is not None else self._left or {"state": {}, "ahead": None}
        return {
            "game_steps": self.game_steps,
            "iteration": self.iteration,
            "scaler": dict(self.scaler.state_dict()),
            "ladder": self.ladder.state_dict(),
            "scores": self._scores.state_dict(),
            "ranks": self.ranks.gather(mine["state"]),
            # The ranks' weights are the same.
            "ahead": mine["ahead"],
            "table_metrics": self._table_metrics,
            "given": self.given.state_dict(),
        }

    def _battles(self) -> dict[str, Any]:
        """Where this rank's battles stand, and the policy that is playing them ahead."""
        if self._ahead is not None and self._ahead.started:
            return {"state": self._ahead.state_dict(), "ahead": self._ahead.policy_state()}
        return {"state": self.collector.state_dict(), "ahead": None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Runs before the device and the battles exist; what concerns them is applied when they are built.

        Raises:
            UserError: a run is to be continued from the state of another version.
        """
        counted = int(state["game_steps"]), int(state["iteration"])
        if counted != (self.game_steps, self.iteration):
            self._left = None  # of another moment than this one
        self.game_steps, self.iteration = counted
        if self.trainer is not None and self.trainer.state.fn != TrainerFn.FITTING:
            return  # measured is the network, whatever version trained it
        # Lightning asks here before the callback that knows the format's version.
        if missing := [k for k in _STATE if k not in state]:
            raise UserError(
                "the checkpoint is of another version of royale_lightning: its state of the battles lacks "
                f"{missing[0]!r}; continue it with the version that wrote it, or start from its weights with "
                "model.init_from"
            )
        if self.trainer is None:
            raise UserError(
                "a checkpoint does not hold the settings of its battles; make a SelfPlayData with those of the run "
                "(its config.yaml), and go on by trainer.fit(..., ckpt_path=...)"
            )
        if not all(state["ranks"]):
            raise UserError(
                "the checkpoint holds no battles to go on with: it was saved by a Trainer that had not trained, or had "
                "measured another checkpoint since; begin a run with its weights by model.init_from"
            )
        self.scaler.load_state_dict(state["scaler"])
        self.ladder.load_state_dict(state["ladder"])
        self._scores.load_state_dict(state["scores"])
        self._table_metrics = dict(state["table_metrics"])
        self.given.load_state_dict(state.get("given"))
        self._restored = state


def data_of(trainer: pl.Trainer) -> SelfPlayData:
    """The run's data module, for whoever needs one of ours.

    Raises:
        UserError: it has another, or none.
    """
    data = getattr(trainer, "datamodule", None)  # which Lightning declares nowhere
    if not isinstance(data, SelfPlayData):
        given = "no data module" if data is None else f"a {type(data).__name__}"
        raise UserError(f"the run has {given}, and what it is to do needs a SelfPlayData, or a class derived from it")
    return data
