"""An iteration's figures and results, as functions of what was played; what nobody measured is absent, never 0.

Every figure has one population, which its declaration (:mod:`royale_lightning.metrics.declarations`) names: episodes
that began at a true start and were not staggered, the learner's own seats of them, or the choice rows of the rollout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..battle.actions import ActionLayout
from ..battle.players import LEARNER, is_scripted, live_player, short_name
from ..battle.round import START_KINDS, EpisodeRecord
from ..ladder.results import TRUE_START, Result
from ..metrics.intervals import Z95, wilson

if TYPE_CHECKING:
    from ..battle.steps.sources import RolloutSource
    from .collector import Rollout

#: Episodes per opponent over which the training score is averaged; an iteration alone has too few.
SCORE_WINDOW = 60
#: Mirror battles over which the seats are compared: 95 % then is 5 points either way.
SEAT_WINDOW = 400
#: Fewer mirror battles say nothing about the seats: five blue wins in a row happen every week.
SEAT_LEAST = 50
#: Fewer plays say nothing about where: twenty on 576 tiles always have a favourite.
TILES_LEAST = 100
#: Tiles a card's favourites are counted on.
TOP_TILES = 10
_TICKS_A_MINUTE = 1200
#: Start kind of a first episode whose leading steps were random: a true start, but not the players' own battle.
STAGGERED = "staggered"


def rollout_figures(r: Rollout, used: int, scale: float, clipped: int) -> dict[str, float]:
    """``rollout/...`` and the parts of collection in ``time/...``.

    Args:
        r: an iteration's experience, its clock stopped.
        used: rows of one PPO epoch; a rollout ends after a whole round, so some are left over.
        scale: what rewards were divided by.
        clipped: rewards cut by ``ppo.reward_clip``.
    """
    times = {"time/step": r.seconds["step"], "time/inference": r.seconds["inference"]}
    return {
        "rollout/rows": len(r.rows),
        "rollout/choice_rows": float(r.choice.sum().item()),
        "rollout/rows_unused": 1.0 - used / len(r.rows),
        "rollout/rounds": r.rounds,
        "rollout/game_steps": r.game_steps,
        "rollout/forced_share": r.forced_share,
        "rollout/return_scale": scale,
        "rollout/rewards_clipped": clipped,
        "rollout/policy_lag": r.lag,
        # Another thread's seconds are no part of this one's iteration; what it waited is.
        **(times if r.waited is None else {"time/wait": r.waited}),
        "time/collect_other": r.seconds["advantages"] + (r.seconds["other"] if r.waited is None else 0.0),
        "speed/collect_game_steps_per_s": r.game_steps / max(1e-9, sum(r.seconds.values())),
    }


def source_counts(source: RolloutSource) -> dict[str, int]:
    """What a source counts from its own start."""
    loss = source.loss()
    return {"actions_refused": source.refused(), "codec_clipped": loss.clipped, "codec_rounded": loss.rounded}


def source_figures(
    r: Rollout, counts: Mapping[str, int], before: Mapping[str, int], processes: bool
) -> dict[str, float]:
    """``health/...`` of where battles step.

    Args:
        r: an iteration's experience.
        counts, before: :func:`source_counts` now and an iteration ago; the figures are of the iteration, since a
            source of a resumed run counts anew.
        processes: whether there are workers that can be lost.
    """
    m: dict[str, float] = {f"health/{k}": n - before.get(k, 0) for k, n in counts.items()}
    if processes:
        for how, times in r.faults.items():
            m[f"health/workers_{how}"] = times
        m["health/workers_lost"] = sum(r.faults.values())
        m["health/battles_voided"], m["health/rows_voided"] = r.battles_voided, r.rows_voided
    return m


def full_battles(episodes: Sequence[EpisodeRecord]) -> list[EpisodeRecord]:
    """Those from a true start whose first steps nobody played at random: what the learner does in a battle."""
    return [e for e in episodes if e.from_true_start and not e.staggered]


def battle_figures(episodes: Sequence[EpisodeRecord]) -> dict[str, float]:
    """``battle/...`` and the learner's ``policy/...`` per battle, of :func:`full_battles`."""
    m: dict[str, float] = {"battle/episodes": len(episodes)}
    mine = [(e, s) for e in episodes for s in (0, 1) if e.players[s] == LEARNER]
    if not mine:
        return m

    def mean(values: Sequence[float]) -> float:
        return float(np.mean(values))

    m["battle/ticks"] = mean([e.ticks for e in episodes])
    m["battle/truncated"] = mean([e.truncated for e in episodes])
    m["battle/draws"] = mean([e.winner == 2 for e in episodes])
    m["battle/return"] = mean([e.returns[s] for e, s in mine])
    m["battle/crowns_for"] = mean([e.crowns[s] for e, s in mine])
    m["battle/crowns_against"] = mean([e.crowns[1 - s] for e, s in mine])
    m["battle/tower_hp_own"] = mean([e.tower_hp[s] for e, s in mine])
    m["battle/tower_hp_enemy"] = mean([e.tower_hp[1 - s] for e, s in mine])
    m["policy/plays_per_battle"] = mean([e.plays[s] for e, s in mine])
    m["policy/choices_per_battle"] = mean([e.choices[s] for e, s in mine])
    minutes = sum(e.ticks for e, _ in mine) / _TICKS_A_MINUTE
    if minutes:
        m["policy/plays_per_minute"] = sum(e.plays[s] for e, s in mine) / minutes
    m["policy/leak_share"] = mean([e.leak_steps[s] / max(1, e.game_steps) for e, s in mine])
    agreement = return_agreement(
        np.array([e.returns[s] for e, s in mine if e.score(s) == 1.0]),
        np.array([e.returns[s] for e, s in mine if e.score(s) == 0.0]),
    )
    if agreement is not None:
        m["battle/return_agreement"] = agreement
    return m


def return_agreement(won: np.ndarray, lost: np.ndarray) -> float | None:
    """How often a won episode's return exceeds a lost one's (equal counts half): the reward's sense of winning.

    The area under the ROC curve of the return as a predictor of the result (Mann and Whitney 1947).

    Args:
        won, lost: returns, each ``[n]``.

    Returns:
        A share in [0, 1], 0.5 for a reward that knows nothing of winning; None without a win or without a loss.
    """
    if not len(won) or not len(lost):
        return None
    ordered = np.sort(lost)
    below, up_to = np.searchsorted(ordered, won, "left"), np.searchsorted(ordered, won, "right")
    return float((below + up_to).mean() / 2 / len(lost))


def play_figures(
    action: np.ndarray, offers: np.ndarray, choice: np.ndarray, layout: ActionLayout, names: Sequence[str]
) -> dict[str, float]:
    """``policy/...`` and ``card/...`` of the learner's choice rows: which cards are played, and where.

    Args:
        action: int ``[n]``, flat action indices.
        offers: int16 ``[n, hand]``, as in ``Round``: ids of the cards that could be played, else -1.
        choice: bool ``[n]``, rows with more than one legal action.
        layout: of the action indices.
        names: of the cards, by id.
    """
    action, offers = action[choice], offers[choice]
    m: dict[str, float] = {}
    if not len(action):
        return m
    m["policy/play_rate"] = float((action > 0).mean())
    at = np.flatnonzero((action > 0) & (action <= layout.slots * layout.tiles))
    if not layout.slots or not len(at):
        return m
    slot, tile = np.divmod(action[at] - 1, layout.tiles)
    card = offers[at, slot].astype(np.int64)
    tiles = np.bincount(tile, minlength=layout.tiles) / len(tile)
    used = tiles[tiles > 0]
    by_card = np.bincount(card * layout.tiles + tile, minlength=len(names) * layout.tiles)
    favourites = np.sort(by_card.reshape(-1, layout.tiles), axis=1)[:, -TOP_TILES:].sum(axis=1)
    if len(at) >= TILES_LEAST:
        m["policy/tile_entropy"] = float(-(used * np.log(used)).sum())
        m["policy/tile_top_share"] = float(tiles.max())
        m["policy/card_tile_top_share"] = float(favourites.max() / len(card))
    played = np.bincount(card, minlength=len(names))
    offered = np.bincount(offers[offers >= 0].astype(np.int64), minlength=len(names))
    for i in np.flatnonzero(offered).tolist():
        m[f"card/{names[i]}/play_share"] = float(played[i] / len(card))
        m[f"card/{names[i]}/play_rate"] = float(played[i] / offered[i])
    return m


# ---- by where an episode began; a figure without a kind of start counts true starts alone ----------------------------
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


# ---- over many iterations, and as results ----------------------------------------------------------------------------
class TrainingScores:
    """The learner's results over its last battles: per opponent, per kind of opponent, per seat of mirror battles."""

    def __init__(self) -> None:
        self._scores: dict[str, list[float]] = {}
        self._blue: list[float] = []

    def add(self, episodes: Sequence[EpisodeRecord]) -> None:
        """Count :func:`full_battles`; others say nothing about strength."""
        for e in episodes:
            if e.players == (LEARNER, LEARNER):
                if (blue := e.score(0)) is not None:
                    self._blue.append(blue)
                continue
            for seat, score in learner_scores(e):
                other = e.players[1 - seat]
                name = short_name(other) if is_scripted(other) else "pool"
                self._scores.setdefault(name, []).append(score)
        for window in self._scores.values():
            del window[:-SCORE_WINDOW]
        del self._blue[:-SEAT_WINDOW]

    def figures(self) -> dict[str, float]:
        """``score/...`` of every opponent met so far, and ``battle/blue_...`` once there are enough mirror battles."""
        means = {name: float(np.mean(window)) for name, window in self._scores.items()}
        m = {f"score/{name}": mean for name, mean in means.items()}
        scripted = [mean for name, mean in means.items() if name != "pool"]
        if scripted:
            m["score/scripted"] = float(np.mean(scripted))
            # A mean of means of n_i battles has the error of one mean of k^2 / sum(1 / n_i).
            rests = sum(1.0 / len(window) for name, window in self._scores.items() if name != "pool")
            m["battle/score_evidence"] = len(scripted) ** 2 / rests
        if len(self._blue) >= SEAT_LEAST:
            blue = float(np.mean(self._blue))
            m["battle/blue_score"] = blue
            m["battle/blue_low"], m["battle/blue_high"] = wilson(blue, len(self._blue), Z95)
        return m

    def state_dict(self) -> dict[str, Any]:
        return {"scores": {k: list(v) for k, v in self._scores.items()}, "blue": list(self._blue)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._scores = {k: list(v) for k, v in state["scores"].items()}
        self._blue = list(state["blue"])


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
