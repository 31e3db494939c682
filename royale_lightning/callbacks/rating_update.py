"""The live learner's rating, every few iterations."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import LightningModule, Trainer

from ..errors import UserError
from ..ladder.ladder import Ladder
from ..ladder.ratings.rating import RATERS, Rater
from ..ladder.results import live_player
from ..ladder.schedule import affordable, rating_games
from ..ladder.seeds import rating_seeds
from ..parts import Part, PartLike
from .base import RunCallback, is_dry
from .row import add_growth, game_steps, iteration_row, iterations_done

PURPOSE = "rating"


class RatingUpdate(RunCallback):
    """Rate the learner under its own name, ``live:<iteration>``, and everyone it has met.

    Rated when the share of the run's game steps that is set apart for it pays for the battles. On two cores a run of
    ``configs/first_bot.yaml`` rates itself about every two minutes.

    Adds to the rows of the iterations it rates ``ladder/rating`` and ``ladder/rating_se``, Elo points above the
    opponent that never acts, and ``ladder/over_champion`` with its own, much smaller error: everybody's distance to
    that opponent is uncertain, since nobody plays it closely, and it cancels from a difference. With a champion also
    its rating, ``ladder/champion_rating``.

    Args:
        battles: of one rating; half against scripted opponents, half against snapshots, all of them on fresh seeds and
            from both seats. 24 give a standard error of some 70 points, and the next ones share their errors through
            the opponents they have in common.
        share: of the training's game steps. With the 0.06 of ``SnapshotPromotion`` the ladder stays within a tenth.
        rater: ``davidson`` or a ``Rater`` of your own.
    """

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
        made = self.rater.build("RatingUpdate.rater")
        if not isinstance(made, Rater):
            raise UserError(
                f"RatingUpdate.rater: {self.rater.class_path} is no Rater; derive it from "
                "royale_lightning.ladder.ratings.rating.Rater"
            )
        trainer.datamodule.ladder.rater = made  # type: ignore[attr-defined]

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        ladder: Ladder = trainer.datamodule.ladder  # type: ignore[attr-defined]
        steps, iteration = game_steps(trainer), iterations_done(trainer)
        price = ladder.progress.price
        paid = affordable(self.share, steps, ladder.spent[PURPOSE], ladder.battle_steps, price)
        if is_dry(trainer) or paid < self.battles:
            return
        live = live_player(iteration)
        before = ladder.standing()
        measured = ladder.attempt(
            lambda: self._rate(ladder, pl_module, live, iteration, steps), PURPOSE, iteration, steps
        )
        row = iteration_row(trainer)
        row.update(measured or {})
        add_growth(row, before, ladder.standing())
        row["ladder/time_share"] = ladder.time_share

    def _rate(self, ladder: Ladder, module: Any, live: str, iteration: int, steps: int) -> dict[str, float]:
        """In the leading process."""
        played = {p: int(r["games"]) for p, r in ladder.ratings.items()}
        turn = ladder.progress.ratings
        ladder.progress.ratings += 1
        games = rating_games(live, ladder.members, played, turn, rating_seeds(turn, self.battles // 2))
        ladder.play(games, PURPOSE, iteration, steps, live={live: module.bot()})
        ratings = ladder.rate()
        champion = ladder.pool.champion or ""
        found: dict[str, float] = {}
        if (mine := ratings.of(live)) is not None:
            found |= {"ladder/rating": mine.elo, "ladder/rating_se": mine.se}
        if (theirs := ratings.of(champion)) is not None:
            found["ladder/champion_rating"] = theirs.elo
        if (over := ratings.difference(live, champion)) is not None:
            found |= {"ladder/over_champion": over.elo, "ladder/over_champion_se": over.se}
        return found
