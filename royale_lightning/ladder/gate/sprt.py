"""The pentanomial sequential probability ratio test, as chess engine testing does it: pure functions of pair counts.

A pair is one seed played from both seats; its score is 0, 1/4, 1/2, 3/4 or 1, so a match is five counts. The two
hypotheses fix the mean score; the cell probabilities are nuisance parameters, so each hypothesis gets those that fit
the counts best (generalized likelihood ratio: Li, Liu and Ying 2014; Van den Bergh's notes on the GSPRT). Everything
takes leading axes, so that ten thousand simulated matches run the very code that judges one real match.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...errors import UserError
from ..ratings.elo import expected_score
from ..seeds import SEEDS_PER_STAGE

#: Score of a pair per cell.
CELLS = np.arange(5) / 4.0
#: Stands for an empty cell, so that no hypothesis is excluded by a result that merely has not happened yet.
EMPTY = 1e-3
#: Normalized Elo per unit of ``(score - 1/2) / sigma`` of one game.
NELO = 800.0 / math.log(10.0)
#: No verdict on fewer pairs. With the exact ratio the bounds are never reached earlier at the default settings; with
#: other settings a handful of lucky pairs shall not decide.
MIN_PAIRS = 16

#: Variance of a pair score below which the step's size is no longer believed: some 0.88 of the points, no draws.
LEAST_VARIANCE = 0.05
SCALES = ("logistic", "normalized")

CONTINUE, ACCEPT, REJECT, UNDECIDED = 0, 1, 2, 3


def log_likelihood_ratio(counts: np.ndarray, score0: float, score1: float) -> np.ndarray:
    """Exact generalized log likelihood ratio of mean ``score1`` over ``score0``.

    The best cells with mean ``s`` are ``p_i / (1 + x (a_i - s))``, with ``x`` the one root of
    ``sum p_i (a_i - s) / (1 + x (a_i - s))``, ``p_i`` the observed shares and ``a_i`` the cells' scores.

    Args:
        counts: ``[..., 5]``, pairs per cell.
        score0, score1: in (0, 1).

    Returns:
        float64 ``[...]``, in nats.
    """
    counts = _filled(counts)
    logs = []
    for score in (score0, score1):
        phi = np.broadcast_to(CELLS - score, counts.shape)
        logs.append(np.log1p(_tilt(counts, phi)[..., None] * phi))
    return np.asarray((counts * (logs[0] - logs[1])).sum(axis=-1))


def normalized_log_likelihood_ratio(counts: np.ndarray, nelo0: float, nelo1: float) -> np.ndarray:
    """The same for hypotheses in normalized Elo, strength in units of the games' own noise.

    Its bounds fix what a test costs, whatever the draws and the seats' correlation; logistic bounds fix the strength.
    Mean ``1/2 + t sigma`` with the cells' own ``sigma`` is no linear constraint, so it is linearised around the last
    cells until they stop moving (Van den Bergh, "Normalized Elo").
    """
    counts = _filled(counts)
    share = counts / counts.sum(axis=-1, keepdims=True)
    logs = []
    for nelo in (nelo0, nelo1):
        # sigma of a pair is that of a game over sqrt 2.
        t = nelo / NELO * math.sqrt(2.0)
        p = np.full_like(share, 0.2)
        for _ in range(50):
            mean = (p * CELLS).sum(axis=-1, keepdims=True)
            sd = np.sqrt((p * (CELLS - mean) ** 2).sum(axis=-1, keepdims=True))
            phi = CELLS - 0.5 - 0.5 * t * sd * (1.0 + ((CELLS - mean) / sd) ** 2)
            before, p = p, share / (1.0 + _tilt(share, phi)[..., None] * phi)
            if np.abs(p - before).max() < 1e-9:
                break
        logs.append(np.log(p))
    return np.asarray((counts * (logs[1] - logs[0])).sum(axis=-1))


def normalized_elo(counts: np.ndarray) -> np.ndarray:
    """Observed strength in normalized Elo, ``[...]``; ``counts`` is ``[..., 5]``."""
    counts = _filled(counts)
    mean = (counts * CELLS).sum(axis=-1) / counts.sum(axis=-1)
    return np.asarray((mean - 0.5) / np.sqrt(2.0 * _variance(counts)) * NELO)


def _variance(counts: np.ndarray) -> np.ndarray:
    """Variance of the pair score, ``[...]``."""
    share = counts / counts.sum(axis=-1, keepdims=True)
    mean = (share * CELLS).sum(axis=-1, keepdims=True)
    return np.asarray((share * (CELLS - mean) ** 2).sum(axis=-1))


def _filled(counts: np.ndarray) -> np.ndarray:
    counts = np.asarray(counts, dtype=np.float64)
    return np.where(counts == 0.0, EMPTY, counts)


def _tilt(weight: np.ndarray, phi: np.ndarray) -> np.ndarray:
    """The root ``x`` of ``f(x) = sum w phi / (1 + x phi)`` between the poles ``-1 / max phi`` and ``-1 / min phi``.

    ``f`` falls from plus to minus infinity between them. Newton's steps, replaced by bisection where they would leave
    the bracket.

    Args:
        weight, phi: ``[..., 5]``; weights above 0, ``phi`` of both signs.
    """
    low, high = -1.0 / phi.max(axis=-1), -1.0 / phi.min(axis=-1)
    x = np.zeros_like(low)
    total = weight.sum(axis=-1)
    for _ in range(200):
        term = phi / (1.0 + x[..., None] * phi)
        f = (weight * term).sum(axis=-1)
        high = np.where(f <= 0.0, x, high)
        low = np.where(f >= 0.0, x, low)
        step = f / (weight * term**2).sum(axis=-1)
        # What the step would still change in the ratio's logarithm is f * step, in nats.
        if np.abs(f * step).max(initial=0.0) < 1e-20 * total.max(initial=1.0):
            break
        moved = x + step
        x = np.where((moved > low) & (moved < high), moved, (low + high) / 2.0)
    return x


@dataclass(frozen=True)
class Sprt:
    """A truncated sequential test of "no better" against "better by ``elo1``".

    Wald's bounds are moved inwards by the mean overshoot of a look (Siegmund 1985, section 10.2: ``0.583`` standard
    deviations of the ratio's step), less that of a single pair, which the fitted nuisance cells already cost. Plain
    bounds turn the promised 5 % into 3.5 % at 16 pairs a look and take a tenth more battles.

    Args:
        elo0, elo1: the hypotheses, Elo of the mean score. 0 against 40: a gain worth a promotion, decided in some 200
            pairs; halving the gap takes four times as many.
        alpha: accepted chance to promote a candidate of ``elo0``.
        beta: accepted chance to turn down one of ``elo1``, were there no cap.
        max_pairs: the cap. Reaching it is ``UNDECIDED``, which is no promotion; a lower cap costs power, not errors.
            560 leave some 3 % undecided at either hypothesis.
        batch_pairs: pairs between two looks. 16 are 32 battles, enough to batch forwards well; the waiting for a whole
            batch costs some 20 battles a verdict.
        scale: ``logistic`` bounds fix the strength that is asked for, ``normalized`` ones (normalized Elo) the battles
            it takes, whatever the draws and the seats' correlation.
    """

    elo0: float = 0.0
    elo1: float = 40.0
    alpha: float = 0.05
    beta: float = 0.05
    max_pairs: int = 560
    batch_pairs: int = 16
    scale: str = "logistic"

    def __post_init__(self) -> None:
        if not -1000.0 < self.elo0 < self.elo1 < 1000.0:
            raise UserError(
                f"gate elo0 is {self.elo0} and elo1 {self.elo1}; give two strengths in Elo, the first below the second"
            )
        for name in ("alpha", "beta"):
            if not 0.0 < getattr(self, name) < 0.5:
                raise UserError(f"gate {name} is {getattr(self, name)}; give an error rate above 0 and below 0.5")
        if self.batch_pairs < 1:
            raise UserError(f"gate batch_pairs is {self.batch_pairs}; give at least 1")
        if not MIN_PAIRS <= self.max_pairs <= SEEDS_PER_STAGE:
            raise UserError(f"gate max_pairs is {self.max_pairs}; give a number from {MIN_PAIRS} to {SEEDS_PER_STAGE}")
        if self.scale not in SCALES:
            raise UserError(f"gate scale is {self.scale!r}; give one of {', '.join(SCALES)}")

    @property
    def lower(self) -> float:
        """Wald's bound below which the candidate is turned down (Wald 1947, section 3.2), before the correction."""
        return math.log(self.beta / (1.0 - self.alpha))

    @property
    def upper(self) -> float:
        """Wald's bound above which it is accepted, before the correction."""
        return math.log((1.0 - self.beta) / self.alpha)

    def llr(self, counts: np.ndarray) -> np.ndarray:
        """``[...]`` from counts ``[..., 5]``."""
        if self.scale == "normalized":
            return normalized_log_likelihood_ratio(counts, self.elo0, self.elo1)
        return log_likelihood_ratio(counts, float(expected_score(self.elo0)), float(expected_score(self.elo1)))

    def overshoot(self, counts: np.ndarray) -> np.ndarray:
        """How far the bounds move inwards, ``[...]`` nats from counts ``[..., 5]``."""
        if self.scale == "normalized":
            per_pair: float | np.ndarray = (self.elo1 - self.elo0) / NELO * math.sqrt(2.0)
        else:
            gap = float(expected_score(self.elo1) - expected_score(self.elo0))
            per_pair = gap / np.sqrt(np.maximum(_variance(_filled(counts)), LEAST_VARIANCE))
        return np.asarray(0.583 * per_pair * (math.sqrt(self.batch_pairs) - 1.0))

    def decide(self, counts: np.ndarray) -> np.ndarray:
        """``CONTINUE``, ``ACCEPT``, ``REJECT`` or ``UNDECIDED`` per match, ``[...]`` from counts ``[..., 5]``."""
        llr, pairs, inwards = self.llr(counts), np.asarray(counts).sum(axis=-1), self.overshoot(counts)
        out = np.where(pairs >= self.max_pairs, UNDECIDED, CONTINUE)
        out = np.where(llr >= self.upper - inwards, ACCEPT, out)
        out = np.where(llr <= self.lower + inwards, REJECT, out)
        return np.where(pairs < MIN_PAIRS, CONTINUE, out)
