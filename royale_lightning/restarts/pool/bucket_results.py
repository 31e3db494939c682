"""What has come of starting in a bucket lately, and how much practice that earns it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..records.points import Bucket

UNIFORM, FAILURE_RATE, LEARNABILITY, VALUE_ERROR = "uniform", "failure_rate", "learnability", "value_error"
SELECTIONS = (UNIFORM, FAILURE_RATE, LEARNABILITY, VALUE_ERROR)


class AdvanceRate(NamedTuple):
    """``rate`` is the share of ``results`` that advanced; ``score`` the mean score that steers, None without one."""

    bucket: Bucket
    rate: float
    results: int
    score: float | None


class SelectionWeight(NamedTuple):
    """``share`` is the chance that a start comes from this bucket."""

    bucket: Bucket
    weight: float
    share: float


@dataclass
class BucketResults:
    """The latest results of one bucket's starts, newest last.

    Scores against the very opponent a point was recorded against steer the selection. A mirror battle says how good the
    position is and not how good the policy (both seats' scores sum to 1), and another opponent asks another question;
    their scores are kept beside it.

    Attributes:
        size: most entries of each.
        advances: whether an episode got to a better rank, or won.
        scores: 1, 0.5 or 0 against the recorded opponent.
        other_scores: the same in mirror battles and against others.
        errors: mean absolute advantages of episodes.
    """

    size: int
    advances: deque[bool] = field(init=False)
    scores: deque[float] = field(init=False)
    other_scores: deque[float] = field(init=False)
    errors: deque[float] = field(init=False)

    def __post_init__(self) -> None:
        for name in _FIELDS:
            setattr(self, name, deque(maxlen=self.size))

    @property
    def advance_rate(self) -> float:
        """Mean of the advances, 0 without any."""
        return sum(self.advances) / len(self.advances) if self.advances else 0.0

    def weight(self, selection: str, floor: float, largest_error: float) -> float:
        """How much practice the bucket earns, in (0, 1]; 1 while nothing is known of it.

        ``uniform`` 1. ``failure_rate`` ``1 - s`` of the mean score ``s``. ``learnability`` ``4 p (1 - p)`` with
        ``p = (sum + 1) / (n + 2)`` (Laplace), so that one win does not send a bucket to the floor: hopeless positions
        and won ones both fade (Florensa et al. 2018, section 4, keeps goals of intermediate success).
        ``value_error`` the mean error as a share of the largest bucket's. Never below ``floor``: a bucket that is not
        drawn could not change its own weight.
        """
        if selection == FAILURE_RATE and self.scores:
            return max(floor, 1.0 - sum(self.scores) / len(self.scores))
        if selection == LEARNABILITY:
            p = (sum(self.scores) + 1.0) / (len(self.scores) + 2.0)
            return max(floor, 4.0 * p * (1.0 - p))
        if selection == VALUE_ERROR and self.errors and largest_error > 0.0:
            return max(floor, self.mean_error / largest_error)
        return 1.0

    @property
    def mean_error(self) -> float:
        return sum(self.errors) / len(self.errors) if self.errors else 0.0

    def state(self) -> dict[str, Any]:
        return {name: list(getattr(self, name)) for name in _FIELDS}

    def load(self, state: Mapping[str, Any]) -> None:
        for name in _FIELDS:
            setattr(self, name, deque(state[name], maxlen=self.size))


_FIELDS = ("advances", "scores", "other_scores", "errors")
