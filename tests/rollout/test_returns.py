"""The return scaler's statistics against numpy, and its manners at the edges."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from royale_lightning.rollout.returns import BATTLE_STEPS, GUESS_RETURNS, Moments, Payments, ReturnScaler

_FLOATS = st.floats(-1e3, 1e3, allow_subnormal=False)
_BATCHES = st.lists(hnp.arrays(np.float64, st.integers(0, 8), elements=_FLOATS), max_size=6)


@given(_BATCHES)
def test_moments_equal_numpys_however_they_arrive(batches: list[np.ndarray]) -> None:
    scaler = ReturnScaler()
    for batch in batches:
        scaler.update(batch)
    everything = np.concatenate([np.zeros(0), *batches])
    m = scaler.moments
    assert m.count == everything.size
    if m.count:
        assert m.mean == pytest.approx(everything.mean(), abs=1e-9)
    if m.count > 1:
        assert m.variance == pytest.approx(everything.var(ddof=1), rel=1e-9, abs=1e-9)
    else:
        assert math.isnan(m.variance)


@given(_BATCHES, st.randoms(use_true_random=False))
def test_ranks_merge_in_any_order(batches: list[np.ndarray], shuffle: object) -> None:
    parts = [Moments.of(b) for b in batches]
    mixed = list(parts)
    shuffle.shuffle(mixed)  # type: ignore[attr-defined]
    one, other = ReturnScaler(), ReturnScaler()
    one.merge(parts)
    other.merge(mixed)
    assert one.moments.count == other.moments.count
    assert one.moments.mean == pytest.approx(other.moments.mean, abs=1e-9)
    assert one.moments.m2 == pytest.approx(other.moments.m2, rel=1e-9, abs=1e-6)


def test_far_from_zero_the_variance_survives() -> None:
    # The textbook failure of sum-of-squares: variance 1 on a mean of a billion.
    scaler = ReturnScaler()
    for x in 1e9 + np.tile([-1.0, 1.0], 500):
        scaler.update(np.array([x]))
    assert scaler.moments.variance == pytest.approx(1000 / 999, rel=1e-6)


def test_rewards_are_divided_and_never_shifted() -> None:
    scaler = ReturnScaler()
    scaler.update(np.array([-1.0, 3.0]))
    reward = np.array([[0.0, 1.0], [-2.0, 8.0]], dtype=np.float32)
    out, clipped = scaler.scaled(reward)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, reward / math.sqrt(8.0), rtol=1e-6)
    assert clipped == 0
    assert out[0, 0] == 0.0


def test_returns_that_hardly_differ_do_not_blow_rewards_up() -> None:
    # A task at which every battle is lost: -1, discounted over battles of different lengths.
    lost = -(0.998 ** np.arange(150.0, 600.0, 10.0))
    scaler = ReturnScaler(clip=10.0)
    scaler.update(lost)
    rms = math.sqrt(np.square(lost).mean())
    assert lost.std() < 0.4 * rms, "the deviation alone would be smaller"
    assert scaler.scale == pytest.approx(0.5 * rms, rel=0.01)
    # Wins among them, and the deviation rules again.
    scaler.update(np.ones(30))
    assert scaler.scale == pytest.approx(np.concatenate([lost, np.ones(30)]).std(ddof=1))


def test_clipped_rewards_are_cut_and_counted() -> None:
    scaler = ReturnScaler(clip=2.0)
    scaler.update(np.array([0.0, math.sqrt(2.0)]))
    assert scaler.scale == pytest.approx(1.0)
    out, clipped = scaler.scaled(np.array([-3.0, -2.0, 0.5, 2.5]))
    assert out.tolist() == pytest.approx([-2.0, -2.0, 0.5, 2.0])
    assert clipped == 2


@pytest.mark.parametrize("returns", [[], [5.0], [0.0, 0.0], [0.1] * 7, [1e9, 1e9 + 1e-6]])
def test_without_two_differing_returns_rewards_stay_as_they_are(returns: list[float]) -> None:
    scaler = ReturnScaler(clip=10.0)
    scaler.update(np.array(returns))
    assert scaler.scale == 1.0
    assert scaler.scaled(np.array([3.0]))[0].tolist() == [3.0]


def test_small_rewards_have_a_scale_too() -> None:
    scaler = ReturnScaler()
    scaler.update(np.array([1e-5, -1e-5]))
    assert scaler.scale == pytest.approx(math.sqrt(2.0) * 1e-5)


def test_state_is_plain_and_continues_exactly() -> None:
    rng = np.random.default_rng(0)
    first, rest = rng.normal(size=7).astype(np.float32), rng.normal(size=5)
    whole, half = ReturnScaler(), ReturnScaler()
    whole.update(first)
    state = json.loads(json.dumps(whole.state_dict()))
    assert [type(v) for v in state.values()] == [int, float, float]
    half.load_state_dict(state)
    whole.update(rest)
    half.update(rest)
    assert whole.state_dict() == half.state_dict()


@pytest.mark.parametrize("gamma", [1.0, 0.997])
def test_a_guess_of_the_scale_is_that_of_independent_rewards(gamma: float) -> None:
    """Whole battles of independent rewards and a result: the guess from their cells is their returns' deviation."""
    rng = np.random.default_rng(1)
    reward = rng.normal(0.0, 0.03, (3000, BATTLE_STEPS))
    reward[:, -1] += rng.choice([-1.0, 1.0], 3000)
    ended = np.zeros(reward.shape, bool)
    ended[:, -1] = True
    paid = Payments.of(reward, np.ones(reward.shape, int), ended)
    halves = [Payments.of(reward[k::2], np.ones((1500, BATTLE_STEPS), int), ended[k::2]) for k in (0, 1)]
    assert paid.return_variance(gamma) == pytest.approx((halves[0] + halves[1]).return_variance(gamma))
    # An end may lie anywhere in the sum, and here lies at its last and most discounted step.
    spread = np.stack([np.roll(r, k) for r, k in zip(reward, rng.integers(0, BATTLE_STEPS, 3000), strict=True)])
    truth = (spread * gamma ** np.arange(BATTLE_STEPS)).sum(1).var(ddof=1)
    assert paid.return_variance(gamma) == pytest.approx(truth, rel=0.08)


def test_a_guess_gives_way_to_returns_and_never_comes_late() -> None:
    scaler = ReturnScaler()
    scaler.guess(math.nan)
    assert scaler.scale == 1.0
    assert math.isnan(Payments(ends=3, game_steps=1000, at_ends=3.0).return_variance(1.0))
    scaler.guess(0.25)
    assert scaler.scale == pytest.approx(0.5)
    restored = ReturnScaler()
    restored.load_state_dict(json.loads(json.dumps(scaler.state_dict())))
    assert restored.scale == scaler.scale
    scaler.guess(9.0)
    assert scaler.scale == pytest.approx(0.5)
    returns = np.random.default_rng(2).normal(0.0, 2.0, 100 * GUESS_RETURNS)
    scaler.update(returns)
    assert scaler.scale == pytest.approx(returns.std(ddof=1), rel=0.02)
