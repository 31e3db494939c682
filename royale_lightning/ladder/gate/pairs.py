"""Pairs: one seed played from both seats. What a match is asked for, and what it came to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...metrics.intervals import score_interval
from ..ratings.elo import elo_of
from ..results import Result

Find = Callable[[str, str, int], Result | None]


@dataclass(frozen=True)
class PairRequest:
    """Battles that shall be played: every seed twice, ``player`` blue and then red.

    Args:
        player, opponent: ids.
        seeds: as RoyaleGym's ``env.reset(seed)`` takes them.
    """

    player: str
    opponent: str
    seeds: range

    @property
    def battles(self) -> Iterator[tuple[str, str, int]]:
        """``(blue, red, seed)``, pair after pair."""
        for seed in self.seeds:
            yield self.player, self.opponent, seed
            yield self.opponent, self.player, seed

    def scores(self, find: Find) -> np.ndarray:
        """``player``'s scores ``[pairs, 2]``, as blue and as red, in the order of the seeds; NaN where none is known.

        Args:
            find: such as ``ResultsLog.find``.
        """
        found = [find(*battle) for battle in self.battles]
        scores = [math.nan if r is None else r.score(self.player) for r in found]
        return np.array(scores, dtype=np.float64).reshape(-1, 2)


@dataclass(frozen=True)
class PairTable:
    """Complete pairs of one match, counted; the order of the seeds is gone.

    Attributes:
        counts: int64 ``[3, 3]``, by the player's outcome as blue (row) and as red (column): lost, drawn, won. Five
            cells would mix a split with two draws and lose the seats.
        dropped: pairs with a game missing. They count for nothing: a battle that crashed is no draw.
    """

    counts: np.ndarray
    dropped: int

    @classmethod
    def of(cls, scores: np.ndarray) -> PairTable:
        """Count scores ``[pairs, 2]`` of 0, 0.5, 1 or NaN.

        Raises:
            ValueError: another shape or score.
        """
        scores = np.asarray(scores, dtype=np.float64)
        if scores.ndim != 2 or scores.shape[1] != 2:
            raise ValueError(f"pair scores must be [pairs, 2], as blue and as red, were {list(scores.shape)}")
        whole = scores[~np.isnan(scores).any(axis=1)]
        outcome = whole * 2.0
        if not np.isin(outcome, (0.0, 1.0, 2.0)).all():
            raise ValueError("scores of games must be 0, 0.5 or 1")
        counts = np.zeros((3, 3), dtype=np.int64)
        np.add.at(counts, tuple(outcome.astype(np.int64).T), 1)
        return cls(counts, len(scores) - len(whole))

    def __add__(self, other: PairTable) -> PairTable:
        return PairTable(self.counts + other.counts, self.dropped + other.dropped)

    @property
    def pairs(self) -> int:
        return int(self.counts.sum())

    @property
    def cells(self) -> np.ndarray:
        """int64 ``[5]``, pairs by their score 0, 1/4, 1/2, 3/4, 1."""
        score = np.add.outer(np.arange(3), np.arange(3))
        return np.bincount(score.ravel(), self.counts.ravel(), 5).astype(np.int64)

    @property
    def scores(self) -> np.ndarray:
        """float64 ``[pairs]``, ascending."""
        return np.repeat(np.arange(5) / 4.0, self.cells)

    @property
    def rho(self) -> float | None:
        """Correlation of the two games of a seed, each seat's mean removed; ``None`` where a seat's games all ended
        alike, so that there is nothing to correlate."""
        moments = self._moments()
        if moments is None:
            return None
        var_blue, var_red, covariance, _ = moments
        return None if var_blue == 0.0 or var_red == 0.0 else covariance / math.sqrt(var_blue * var_red)

    @property
    def seat_effect(self) -> float | None:
        """Half the player's mean score as blue minus its mean score as red; ``None`` without pairs."""
        moments = self._moments()
        return None if moments is None else moments[3] / 2.0

    def _moments(self) -> tuple[float, float, float, float] | None:
        """Variances as blue and as red, their covariance, difference of the means."""
        if self.pairs == 0:
            return None
        p, x = self.counts / self.pairs, np.arange(3) / 2.0
        blue, red = float(p.sum(axis=1) @ x), float(p.sum(axis=0) @ x)
        a, b = x - blue, x - red
        return float(p.sum(axis=1) @ a**2), float(p.sum(axis=0) @ b**2), float(a @ p @ b), blue - red

    def as_dict(self) -> dict[str, Any]:
        """What a verdict says of a match. The interval is Wilson's at the effective size, seeds as units.

        An end of the interval at 0 or 1 has no Elo and is ``None``.
        """
        out: dict[str, Any] = {
            "pairs": self.pairs, "dropped": self.dropped, "table": self.counts.tolist(), "cells": self.cells.tolist(),
            "rho": self.rho, "seat_effect": self.seat_effect,
        }
        if self.pairs:
            score = score_interval(self.scores, method="effective")
            elo = {f"elo_{k}" if k != "score" else "elo": elo_of(v) for k, v in score._asdict().items()}
            out.update(score._asdict(), **{k: v if math.isfinite(v) else None for k, v in elo.items()})
        return out
