"""An iteration's figures by where its episodes began; a figure without a kind of start counts true starts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..battle.round import START_KINDS, EpisodeRecord
from ..battle.steps.arena import LEARNER


def learner_scores(record: EpisodeRecord) -> list[tuple[int, float]]:
    """``(seat, score)`` of an episode's learner seats whose result says something: played to an end, not a mirror.

    In a restarted mirror battle that is the credited seat's, for a start belongs to one seat; in a mirror battle from
    its true start it is none, since both seats' scores sum to 1 whatever the learner does.
    """
    seats = [s for s in (0, 1) if record.players[s] == LEARNER]
    if len(seats) == 2:
        seats = [] if record.start.seat is None else [record.start.seat]
    return [(s, score) for s in seats if (score := record.score(s)) is not None]


def value_errors(
    row: np.ndarray, advantage: np.ndarray, episodes: Sequence[EpisodeRecord], ended_in: Sequence[int], first: int
) -> list[tuple[float | None, float | None]]:
    """How wrong the critic was in each episode: mean absolute advantage of a seat's rows.

    Jiang, Grefenstette and Rocktaeschel 2021, "Prioritized level replay", section 3, "L1 value loss".

    Args:
        row: int64 ``[rounds, slots]``, -1 for a hole.
        advantage: float32 ``[rows]``, not normalised.
        episodes: ascending by round and battle.
        ended_in: their rounds.
        first: global id of the first battle.

    Returns:
        Per episode ``(blue, red)``, over the rows of this iteration; None for a seat without one.
    """
    held = row >= 0
    size = np.where(held, np.abs(advantage.astype(np.float64))[row], 0.0)
    until = (np.concatenate([np.zeros_like(size[:1]), size.cumsum(0)]), np.pad(held.cumsum(0), ((1, 0), (0, 0))))
    begun = np.zeros(row.shape[1], dtype=np.int64)
    out: list[tuple[float | None, float | None]] = []
    for episode, end in zip(episodes, ended_in, strict=True):
        seats: list[float | None] = []
        for slot in (2 * (episode.battle - first), 2 * (episode.battle - first) + 1):
            total, count = (float(x[end + 1, slot] - x[begun[slot], slot]) for x in until)
            seats.append(total / count if count else None)
            begun[slot] = end + 1
        out.append((seats[0], seats[1]))
    return out


def by_start(
    episodes: Sequence[EpisodeRecord], game_steps: Mapping[str, int],
    errors: Sequence[tuple[float | None, float | None]],
) -> dict[str, float]:
    """Metrics ``start/KIND/...`` of every kind that was played.

    Args:
        episodes: finished in this iteration; staggered ones count nowhere.
        game_steps: played in this iteration, by kind of start, of finished and running episodes alike.
        errors: :func:`value_errors` of the episodes.

    Returns:
        ``episodes``, ``step_share`` (of all game steps), and where an episode ended: ``ticks``, ``truncated``,
        ``return`` (undiscounted), ``value_error`` (both of learner seats) and ``score`` (:func:`learner_scores`).
    """
    total = sum(game_steps.values())
    out: dict[str, float] = {}
    for kind in START_KINDS:
        at = [i for i, e in enumerate(episodes) if e.start.kind == kind and not e.staggered]
        mine = [episodes[i] for i in at]
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
        wrong = [w for i in at for s in (0, 1) if episodes[i].players[s] == LEARNER and (w := errors[i][s]) is not None]
        if wrong:
            out[f"{name}/value_error"] = float(np.mean(wrong))
        scores = [score for e in mine for _, score in learner_scores(e)]
        if scores:
            out[f"{name}/score"] = float(np.mean(scores))
    return out
