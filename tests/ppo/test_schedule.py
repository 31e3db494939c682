"""Schedules: pure functions of progress, read from what a YAML file holds."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.errors import UserError
from royale_lightning.ppo.schedule import (
    SCHEDULES,
    Constant,
    Cosine,
    Geometric,
    Linear,
    PiecewiseConstant,
    Schedule,
    WarmupLinear,
    progress,
    schedule_of,
)

_UNIT = st.floats(0.0, 1.0)


class Knee:
    """A user's own schedule."""

    def __init__(self, at: float = 0.5) -> None:
        self.at = at

    def __call__(self, progress: float) -> float:
        return float(progress > self.at)


def test_progress_stops_at_the_horizon() -> None:
    assert progress(0, 10) == 0.0
    assert progress(5, 10) == 0.5
    assert progress(10, 10) == progress(10**12, 10) == 1.0


def test_linear_and_constant() -> None:
    assert Linear(7e-4, 7e-5)(0.0) == 7e-4
    assert Linear(7e-4, 7e-5)(0.5) == pytest.approx(3.85e-4)
    assert Linear(7e-4, 7e-5)(1.0) == pytest.approx(7e-5)
    assert Constant(3.0)(0.7) == 3.0


def test_cosine_is_flat_at_its_ends_and_halfway_in_the_middle() -> None:
    f = Cosine(4.0, 2.0)
    assert (f(0.0), f(0.5), f(1.0)) == pytest.approx((4.0, 3.0, 2.0))
    assert f(0.01) == pytest.approx(4.0, abs=1e-3)


@given(_UNIT)
def test_geometric_moves_the_horizon_by_equal_factors(p: float) -> None:
    f = Geometric(0.99, 0.999)
    assert 1.0 / (1.0 - f(p)) == pytest.approx(100.0 * 10.0**p, rel=1e-9)


def test_geometric_refuses_one() -> None:
    with pytest.raises(UserError, match=r"gamma: geometric needs a start and an end below 1, were 0\.9"):
        schedule_of({"geometric": [0.9, 1.0]}, "gamma")


def test_piecewise_holds_each_step_until_the_next() -> None:
    f = schedule_of({"piecewise": [[0.0, 3.0], [0.5, 1.0]]}, "x")
    assert [f(p) for p in (0.0, 0.49, 0.5, 1.0)] == [3.0, 3.0, 1.0, 1.0]


def test_warmup_rises_then_falls() -> None:
    f = WarmupLinear(0.0, 1.0, 0.5, 0.25)
    assert [f(p) for p in (0.0, 0.125, 0.25, 0.625, 1.0)] == pytest.approx([0.0, 0.5, 1.0, 0.75, 0.5])


_END = st.floats(0.0, 0.999)


@given(st.sampled_from(["linear", "cosine", "geometric"]), _END, _END, _UNIT)
def test_they_meet_their_ends_and_stay_between(name: str, a: float, b: float, p: float) -> None:
    f = schedule_of({name: [a, b]}, "x")
    assert f(0.0) == pytest.approx(a)
    assert f(1.0) == pytest.approx(b)
    assert min(a, b) - 1e-12 <= f(p) <= max(a, b) + 1e-12
    assert f(p) == f(p)


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (3, Constant(3.0)),
        (0.5, Constant(0.5)),
        ({"constant": 2}, Constant(2.0)),
        ({"linear": [1, 2.0]}, Linear(1.0, 2.0)),
        ({"linear": {"end": 2, "start": 1}}, Linear(1.0, 2.0)),
        ({"cosine": (1, 2)}, Cosine(1.0, 2.0)),
        ({"warmup": [0, 1, 0.5, 0.1]}, WarmupLinear(0.0, 1.0, 0.5, 0.1)),
        ({"piecewise": {"steps": [[0, 1]]}}, PiecewiseConstant([[0, 1]])),
    ],
)
def test_what_a_setting_may_hold(value: Any, want: Schedule) -> None:
    assert schedule_of(value, "x") == want


def test_every_shipped_schedule_is_one() -> None:
    assert all(issubclass(cls, Schedule) for cls in SCHEDULES.values())


def test_a_users_own_schedule() -> None:
    f = schedule_of({"class_path": f"{__name__}.Knee", "init_args": {"at": 0.2}}, "x")
    assert (f(0.1), f(0.3)) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("7e-4", r"is '7e-4'; write a number \(in YAML with its point, 7\.0e-4\) or one schedule"),
        (True, "learning_rate is True; write a number"),
        (math.nan, "learning_rate is nan; write a number"),
        (None, "learning_rate is None; write a number"),
        ({}, "write a number"),
        ({"linear": [1, 2], "cosine": [1, 2]}, "or one schedule"),
        ({"linaer": [1, 2]}, r"unknown schedule 'linaer'; shipped are .*; did you mean 'linear'\?"),
        ({"linear": [1]}, r"learning_rate: linear takes start, end, was given \[1\]"),
        ({"linear": 1}, "linear takes start, end, was given 1"),
        ({"linear": {"start": 1, "stop": 2}}, "linear takes start, end"),
        ({"linear": [1, "x"]}, "learning_rate: linear's end must be a finite number, was 'x'"),
        ({"linear": [1, math.inf]}, "linear's end must be a finite number, was inf"),
        ({"piecewise": 3}, r"piecewise takes pairs of \[from_progress, value\], was 3"),
        ({"piecewise": []}, "piecewise takes pairs"),
        ({"piecewise": [[0.0, 1.0], [0.5]]}, "piecewise takes pairs"),
        ({"piecewise": [[0.1, 1.0]]}, "must begin at progress 0"),
        ({"piecewise": [[0.0, 1.0], [0.5, 2.0], [0.5, 3.0]]}, "ascend"),
        ({"piecewise": [[0.0, 1.0], [1.5, 2.0]]}, "at most 1"),
        ({"warmup": [0, 1, 0.5, 1.0]}, r"warmup needs a share in \(0, 1\), was 1\.0"),
        ({"class_path": "royale_lightning.rollout.returns.Moments"}, "cannot be called with the progress"),
        ({"class_path": "no.such.Thing"}, "cannot import"),
    ],
)
def test_what_it_may_not_hold(value: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        schedule_of(value, "learning_rate")
