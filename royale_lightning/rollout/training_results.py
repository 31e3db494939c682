"""An iteration's training battles as lines of the results log."""

from __future__ import annotations

from collections.abc import Sequence

from ..battle.round import EpisodeRecord
from ..battle.steps.arena import LEARNER
from ..ladder.results import TRUE_START, Result, live_player

#: Start kind of a first episode whose leading steps were random: a true start, but not the players' own battle.
STAGGERED = "staggered"


def training_results(episodes: Sequence[EpisodeRecord], iteration: int, game_steps: int) -> list[Result]:
    """One result of kind ``train`` per decided episode; one that was cut short decided nothing.

    Args:
        episodes: finished in this iteration.
        iteration: counted from 1; the learner of iteration n has had n - 1 updates, ``live:<n - 1>``.
        game_steps: of the run so far.
    """
    learner = live_player(iteration - 1)
    return [
        Result(
            kind="train", blue=blue, red=red, seed=e.seed, winner=e.winner, ticks=e.ticks, crowns=e.crowns,
            iteration=iteration, game_step=game_steps, start=_start(e),
        )
        for e in episodes if e.winner >= 0
        for blue, red in [[learner if p == LEARNER else p for p in e.players]]
    ]


def _start(e: EpisodeRecord) -> str:
    if e.staggered:
        return STAGGERED
    # The constant itself: the log leaves a default out by identity, and a resumed battle's kind is another object.
    return TRUE_START if e.from_true_start else e.start.kind
