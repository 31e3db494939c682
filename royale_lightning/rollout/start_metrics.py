"""An iteration's figures by where its episodes began; a figure without a kind of start counts true starts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..battle.arena import LEARNER
from ..battle.round import START_KINDS, EpisodeRecord


def learner_scores(record: EpisodeRecord) -> list[tuple[int, float]]:
    """``(seat, score)`` of an episode's learner seats whose result says something: played to an end, not a mirror.

    In a restarted mirror battle that is the credited seat's, for a start belongs to one seat; in a mirror battle from
    its true start it is none, since both seats' scores sum to 1 whatever the learner does.
    """
    seats = [s for s in (0, 1) if record.players[s] == LEARNER]
    if len(seats) == 2:
        seats = [] if record.start.seat is None else [record.start.seat]
    return [(s, score) for s in seats if (score := record.score(s)) is not None]


def by_start(episodes: Sequence[EpisodeRecord], game_steps: Mapping[str, int]) -> dict[str, float]:
    """Metrics ``start/KIND/...`` of every kind that was played.

    Args:
        episodes: finished in this iteration; staggered ones count nowhere.
        game_steps: played in this iteration, by kind of start, of finished and running episodes alike.

    Returns:
        ``episodes``, ``step_share`` (of all game steps), and where an episode ended: ``ticks``, ``truncated``,
        ``return`` (undiscounted, of learner seats) and ``score`` (:func:`learner_scores`).
    """
    total = sum(game_steps.values())
    out: dict[str, float] = {}
    for kind in START_KINDS:
        mine = [e for e in episodes if e.start.kind == kind and not e.staggered]
        if not mine and not game_steps.get(kind):
            continue
        name = f"start/{kind}"
        out[f"{name}/episodes"] = len(mine)
        out[f"{name}/step_share"] = game_steps.get(kind, 0) / max(1, total)
        if mine:
            out[f"{name}/ticks"] = float(np.mean([e.ticks for e in mine]))
            out[f"{name}/truncated"] = float(np.mean([e.truncated for e in mine]))
            out[f"{name}/return"] = float(
                np.mean([e.returns[s] for e in mine for s in (0, 1) if e.players[s] == LEARNER])
            )
        scores = [score for e in mine for _, score in learner_scores(e)]
        if scores:
            out[f"{name}/score"] = float(np.mean(scores))
    return out
