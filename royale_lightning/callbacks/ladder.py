"""When the ladder acts: the learner's snapshots into the pool, and its rating, every few iterations."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from ..battle.opponents import make_opponent
from ..battle.players import live_player, scripted_player
from ..errors import UserError
from ..ladder.admission import Cadence, Judges, consider
from ..ladder.eviction import EVICTIONS, EvictionPolicy
from ..ladder.gate.gate import GATES, PromotionGate
from ..ladder.ladder import Ladder
from ..ladder.ratings.rating import RATERS, Rater
from ..ladder.schedule import affordable, rating_due, rating_games
from ..ladder.seeds import rating_seeds
from ..parts import Part, PartLike
from ..rollout.data import data_of
from .base import Phase, RunCallback, add_growth, game_steps, is_dry, iteration_row, iterations_done

#: What rating games are played for, in the results log and in the ladder's accounts.
RATING = "rating"


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

    phase = Phase.PROMOTION

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
        scripted = tuple(scripted_player(a) for a in anchors)
        for anchor in scripted:
            make_opponent(anchor)
        self.gate = Part.of(gate, "SnapshotPromotion.gate", GATES)
        self.eviction = Part.of(eviction, "SnapshotPromotion.eviction", EVICTIONS)
        self._before: dict[str, float] = {}
        self.judges = Judges(
            self.gate.build("SnapshotPromotion.gate", kind=PromotionGate),
            self.eviction.build("SnapshotPromotion.eviction", kind=EvictionPolicy), scripted,
        )

    def identity_fields(self) -> dict[str, Any]:
        """What of it decides a run (:mod:`royale_lightning.run.identity`)."""
        return {**asdict(self.cadence), "anchors": self.judges.anchors, "gate": self.gate, "eviction": self.eviction}

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._before = data_of(trainer).ladder.standing()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if is_dry(trainer):
            return
        ladder = data_of(trainer).ladder
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


class RatingUpdate(RunCallback):
    """Rate the learner under its own name, ``live:<iteration>``, and everyone it has met.

    Rated when the share of the run's game steps that is set apart for it pays for the battles, and the run has grown by
    a hundredth since the last time. On two cores a run of ``configs/first_bot.yaml`` rates itself about every two
    minutes.

    Adds to the rows of the iterations it rates ``ladder/rating`` and ``ladder/rating_se``, Elo points above the
    scripted opponent ``patient``; ``ladder/rating_separable``, 1 where the learner won all or lost all, so that the
    number is the prior's choice; and ``ladder/over_champion`` with its own, smaller error: everybody's distance to the
    anchor is uncertain together, and it cancels from a difference. With a champion also its rating,
    ``ladder/champion_rating``.

    Args:
        battles: of one rating, on fresh seeds and from both seats, against the scripted opponents and snapshots that
            say most (:func:`~royale_lightning.ladder.schedule.rating_games`). 24 give a standard error of some 70
            points against equals.
        share: of the training's game steps. With the 0.06 of ``SnapshotPromotion`` the ladder stays within a tenth.
        rater: ``davidson`` or a ``Rater`` of your own.
    """

    phase = Phase.RATING

    def __init__(self, battles: int = 24, share: float = 0.04, rater: PartLike = "davidson") -> None:
        if battles < 2 or battles % 2:
            raise UserError(f"RatingUpdate.battles is {battles}; give an even number of at least 2")
        if not 0 < share <= 1:
            raise UserError(f"RatingUpdate.share is {share}; give a share of the game steps above 0 and up to 1")
        self.battles = battles
        self.share = share
        self.rater = Part.of(rater, "RatingUpdate.rater", RATERS)

    def identity_fields(self) -> dict[str, Any]:
        """What of it decides a run (:mod:`royale_lightning.run.identity`)."""
        return {"battles": self.battles, "share": self.share, "rater": self.rater}

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        made = self.rater.build("RatingUpdate.rater", kind=Rater)
        ladder = data_of(trainer).ladder
        ladder.rater, ladder.rater_setting = made, self.rater

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        ladder = data_of(trainer).ladder
        steps, iteration = game_steps(trainer), iterations_done(trainer)
        if is_dry(trainer) or not rating_due(steps, ladder.progress.rated):
            return
        paid = affordable(self.share, steps, ladder.spent[RATING], ladder.battle_steps, ladder.progress.price)
        if paid < self.battles:
            return
        live = live_player(iteration)
        before = ladder.standing()
        measured = ladder.attempt(
            lambda: self._rate(ladder, pl_module, live, iteration, steps), RATING, iteration, steps
        )
        row = iteration_row(trainer)
        row.update(measured or {})
        add_growth(row, before, ladder.standing())
        row["ladder/time_share"] = ladder.time_share

    def _rate(self, ladder: Ladder, module: Any, live: str, iteration: int, steps: int) -> dict[str, float]:
        """In the leading process."""
        turn = ladder.progress.ratings
        ladder.progress.ratings, ladder.progress.rated = turn + 1, steps
        games = rating_games(live, ladder.members, ladder.rate(), rating_seeds(turn, self.battles // 2))
        ladder.play(games, RATING, iteration, steps, live={live: module.bot()})
        ratings = ladder.rate()
        champion = ladder.pool.champion or ""
        found: dict[str, float] = {}
        if (mine := ratings.of(live)) is not None:
            found |= {
                "ladder/rating": mine.elo, "ladder/rating_se": mine.se,
                "ladder/rating_separable": float(mine.separable),
            }
        if (theirs := ratings.of(champion)) is not None:
            found["ladder/champion_rating"] = theirs.elo
        if (over := ratings.difference(live, champion)) is not None:
            found |= {"ladder/over_champion": over.elo, "ladder/over_champion_se": over.se}
        return found
