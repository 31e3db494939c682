"""The learner's snapshots: when one is taken, and whether it comes into the pool."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from ..battle.opponents import PREFIX, make_opponent
from ..errors import UserError
from ..ladder.admission import Cadence, Judges, consider
from ..ladder.eviction import EVICTIONS, EvictionPolicy
from ..ladder.gate.gate import GATES, PromotionGate
from ..ladder.ladder import Ladder
from ..parts import Part, PartLike
from .base import RunCallback, is_dry
from .row import add_growth, game_steps, iteration_row, iterations_done


class SnapshotPromotion(RunCallback):
    """Take snapshots as the run grows, and put into the pool what belongs there.

    While the game steps set apart for it have never paid for a gate (a run under half an hour), every snapshot comes in
    on cadence, and its verdict says that the gate was skipped for its budget. After that a candidate is judged as soon
    as a gate can be paid for. Each verdict is a file ``RUN/ladder/verdict-<n>.json``.

    A full disk or a snapshot that cannot be read costs a gate and not the run: it is counted (``ladder/failures``) and
    tried again an iteration later.

    Adds ``ladder/pool`` (members), ``ladder/verdicts`` (how many so far), ``ladder/rejections`` (in a row) and the
    ladder's health to every row.

    Args:
        first_game_steps: before the first snapshot. 30,000 are half a minute of a small network on two cores, and the
            learner plays something by then.
        growth: the next snapshot is due this share of the run later: a quarter gives 16 in a run of a million game
            steps and 30 in one of twenty million.
        share: of the training's game steps, for the gate's battles. With the 0.04 of ``RatingUpdate`` the ladder stays
            within a tenth.
        gate_battles: a gate begins once its share pays for so many. A candidate that is clearly better takes some 250
            (32 to 130 against the champion, a first look at anchors and pool); when the share has paid for 240, a tenth
            of the run would pay for 400. A gate that takes more delays the next one.
        anchors: scripted opponents that no champion may get worse against; the two that play best.
        gate: ``sprt``, ``wilson`` or a ``PromotionGate`` of your own.
        eviction: who leaves a full pool: ``spread`` or an ``EvictionPolicy`` of your own.
    """

    def __init__(
        self,
        first_game_steps: int = 30_000,
        growth: float = 0.25,
        share: float = 0.06,
        gate_battles: int = 240,
        anchors: tuple[str, ...] = ("push", "patient"),
        gate: PartLike = "sprt",
        eviction: PartLike = "spread",
    ) -> None:
        if first_game_steps < 1:
            raise UserError(f"SnapshotPromotion.first_game_steps is {first_game_steps}; give at least 1")
        if not growth > 0:
            raise UserError(f"SnapshotPromotion.growth is {growth}; give a number above 0")
        if not 0 <= share <= 1:
            raise UserError(f"SnapshotPromotion.share is {share}; give a share of the game steps from 0 to 1")
        if gate_battles < 1:
            raise UserError(f"SnapshotPromotion.gate_battles is {gate_battles}; give at least 1")
        self.cadence = Cadence(first_game_steps, growth, share, gate_battles)
        scripted = tuple(PREFIX + a.removeprefix(PREFIX) for a in anchors)
        for anchor in scripted:
            make_opponent(anchor)
        self.gate = Part.of(gate, "SnapshotPromotion.gate", GATES)
        self.eviction = Part.of(eviction, "SnapshotPromotion.eviction", EVICTIONS)
        self._before: dict[str, float] = {}
        self.judges = Judges(
            _built(self.gate, "gate", PromotionGate), _built(self.eviction, "eviction", EvictionPolicy), scripted
        )

    def identity_fields(self) -> dict[str, Any]:
        """What of it decides a run (:mod:`royale_lightning.run.identity`)."""
        return {**asdict(self.cadence), "anchors": self.judges.anchors, "gate": self.gate, "eviction": self.eviction}

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._before = trainer.datamodule.ladder.standing()  # type: ignore[attr-defined]

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if is_dry(trainer):
            return
        ladder: Ladder = trainer.datamodule.ladder  # type: ignore[attr-defined]
        steps, iteration = game_steps(trainer), iterations_done(trainer)
        rule = self.cadence.rule(ladder, steps)
        if rule is not None:
            bot = pl_module.bot()  # type: ignore[operator]
            ladder.attempt(
                lambda: consider(ladder, bot, self.judges, rule, iteration, steps), "gate", iteration, steps
            )
        row = iteration_row(trainer)
        p = ladder.progress
        row["ladder/pool"], row["ladder/verdicts"] = len(ladder.pool), p.verdicts
        row["ladder/rejections"], row["ladder/unpromoted"] = p.rejections, p.unpromoted
        row["ladder/left_out"], row["ladder/price"] = len(ladder.left_out), p.price
        row["ladder/time_share"] = ladder.time_share
        add_growth(row, self._before, ladder.standing())


def _built(part: Part, name: str, kind: type) -> Any:
    made = part.build(f"SnapshotPromotion.{name}")
    if not isinstance(made, kind):
        raise UserError(
            f"SnapshotPromotion.{name}: {part.class_path} is no {kind.__name__}; derive it from "
            f"{kind.__module__}.{kind.__qualname__}"
        )
    return made
