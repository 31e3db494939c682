"""Battles between players of known strength, without a battle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from royale_lightning.ladder.gate.pairs import PairRequest
from royale_lightning.ladder.gate.sprt import CONTINUE, Sprt
from royale_lightning.ladder.ratings.elo import expected_score


def pair_table(elo: float, draws: float = 0.0, rho: float = 0.0) -> np.ndarray:
    """Chances ``[3, 3]`` of the player's outcomes (lost, drawn, won) as blue and as red.

    Args:
        elo: the player's advantage, Elo of the score.
        draws: share of drawn games.
        rho: correlation of a seed's two games: above 0 the seed favours a player, below 0 a seat.
    """
    score = float(expected_score(elo))
    p = np.array([1.0 - score - draws / 2.0, draws, score - draws / 2.0])
    both = np.outer(p, p) * (1.0 - abs(rho))
    same = np.diag(p)
    if rho < 0.0:
        split = min(p[0], p[2])
        same = np.diag(p - split * np.array([1.0, 0.0, 1.0]))
        same[0, 2] = same[2, 0] = split
    return both + abs(rho) * same


def pair_cells(elo: float, draws: float = 0.0, rho: float = 0.0) -> np.ndarray:
    """Chances ``[5]`` of the pair scores 0, 1/4, 1/2, 3/4, 1."""
    table = pair_table(elo, draws, rho)
    return np.bincount(np.add.outer(np.arange(3), np.arange(3)).ravel(), table.ravel(), 5)


def simulate_sprt(
    test: Sprt, cells: np.ndarray, candidates: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Verdicts and pairs of many candidates, each judged after every batch as ``SprtGate`` judges one."""
    counts = np.zeros((candidates, 5), dtype=np.int64)
    verdict = np.full(candidates, CONTINUE)
    open_ = np.arange(candidates)
    played = 0
    while open_.size:
        batch = min(test.batch_pairs, test.max_pairs - played)
        played += batch
        counts[open_] += rng.multinomial(batch, cells, open_.size)
        verdict[open_] = test.decide(counts[open_])
        open_ = open_[verdict[open_] == CONTINUE]
    return verdict, counts.sum(axis=1)


def play_by(
    advantage: Callable[[str, str], float], rng: np.random.Generator, draws: float = 0.0, rho: float = 0.0
) -> Callable[[Sequence[PairRequest]], list[np.ndarray]]:
    """Plays requests between players whose Elo advantage over each other is given."""
    tables: dict[float, np.ndarray] = {}

    def play(requests: Sequence[PairRequest]) -> list[np.ndarray]:
        out = []
        for r in requests:
            elo = advantage(r.player, r.opponent)
            table = tables.setdefault(elo, pair_table(elo, draws, rho).ravel())
            drawn = rng.choice(9, len(r.seeds), p=table)
            out.append(np.stack([drawn // 3, drawn % 3], axis=1) / 2.0)
        return out

    return play


def play_by_strength(
    strength: Mapping[str, float], rng: np.random.Generator, draws: float = 0.0, rho: float = 0.0
) -> Callable[[Sequence[PairRequest]], list[np.ndarray]]:
    """:func:`play_by` for players on one scale."""
    return play_by(lambda a, b: strength[a] - strength[b], rng, draws, rho)
