"""The losses against numbers worked out by hand, and against what must hold for any numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from royale_lightning.ppo.loss import (
    Stages,
    approx_kl,
    clip_fraction,
    clipped_surrogate,
    critic_sums,
    explained_variance,
    masked_mean,
    ppo_loss,
    value_loss,
)
from royale_lightning.rollout.minibatch import Minibatch

NAN = math.nan
_SEEDS = st.integers(0, 2**32 - 1)
SETTINGS: dict[str, Any] = {
    "clip_range": 0.2,
    "dual_clip": 3.0,
    "value_coef": 0.5,
    "value_clip": None,
    "entropy_coef": Stages(0.01, 0.02, 0.0005),
}


def t(*values: float, grad: bool = False) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, requires_grad=grad)


@pytest.mark.parametrize(
    ("ratio", "advantage", "want", "slope"),
    [
        # The six cases of the paper's figure 1: (objective, gradient in the ratio).
        (1.0, 2.0, 2.0, 2.0),
        (1.1, 2.0, 2.2, 2.0),
        (1.5, 2.0, 2.4, 0.0),
        (0.5, 2.0, 1.0, 2.0),
        (0.5, -2.0, -1.6, 0.0),
        (1.5, -2.0, -3.0, -2.0),
        # The dual clip takes over at ratio 3, for negative advantages only.
        (2.9, -2.0, -5.8, -2.0),
        (5.0, -2.0, -6.0, 0.0),
        (5.0, 2.0, 2.4, 0.0),
    ],
)
def test_clipped_surrogate(ratio: float, advantage: float, want: float, slope: float) -> None:
    r = t(ratio, grad=True)
    objective = clipped_surrogate(r, t(advantage), 0.2, 3.0)
    assert objective.item() == pytest.approx(want)
    objective.sum().backward()
    assert r.grad is not None
    assert r.grad.item() == pytest.approx(slope)


def test_without_the_dual_clip_there_is_no_floor() -> None:
    assert clipped_surrogate(t(50.0), t(-2.0), 0.2, None).item() == -100.0


@given(st.floats(0.0, 20.0), st.floats(-5.0, 5.0), st.floats(0.01, 0.9), st.floats(1.0, 5.0))
def test_the_surrogate_is_a_pessimistic_bound_with_a_floor(r: float, a: float, eps: float, c: float) -> None:
    plain, dual = (clipped_surrogate(t(r), t(a), eps, d).item() for d in (None, c))
    assert plain <= r * a + 1e-4
    assert dual >= plain - 1e-4
    if a < 0:
        assert dual >= c * a - 1e-4
    else:
        assert dual == plain


def test_value_loss_is_half_the_squared_error() -> None:
    assert value_loss(t(1.0, 3.0), t(2.0, 1.0), t(9.0, 9.0), None).tolist() == [0.5, 2.0]


def test_the_value_clip_takes_the_larger_error() -> None:
    # From 0 towards 1, clipped to 0.2: the far answer 0.9 is charged as if it had stopped at 0.2.
    v = t(0.9, 0.1, -0.5, grad=True)
    loss = value_loss(v, t(1.0, 1.0, 1.0), t(0.0, 0.0, 0.0), 0.2)
    assert loss.tolist() == pytest.approx([0.5 * 0.8**2, 0.5 * 0.9**2, 0.5 * 1.5**2])
    loss.sum().backward()
    assert v.grad is not None
    assert v.grad.tolist() == pytest.approx([0.0, -0.9, -1.5])


def test_k3_is_exact_in_expectation_and_never_negative() -> None:
    g = torch.Generator().manual_seed(0)
    old, new = (torch.log_softmax(torch.randn(7, generator=g, dtype=torch.float64), 0) for _ in range(2))
    kl = (old.exp() * (old - new)).sum()
    per_action = approx_kl(new - old)
    assert (per_action >= 0).all()
    assert (old.exp() * per_action).sum().item() == pytest.approx(kl.item())
    assert approx_kl(t(0.0)).item() == 0.0
    # expm1: with exp(x) - 1 - x in float32 a small step would read 0 or noise.
    assert approx_kl(t(1e-3)).item() == pytest.approx(5e-7, rel=0.2)


def test_clip_fraction_counts_both_sides() -> None:
    assert clip_fraction(t(0.7, 0.85, 1.0, 1.15, 1.3), 0.2).tolist() == [1.0, 0.0, 0.0, 0.0, 1.0]


def test_masked_mean_of_nothing_is_zero_with_zero_gradient() -> None:
    x = t(1.0, 2.0, NAN, grad=True)
    assert masked_mean(x, torch.tensor([True, True, False])).item() == 1.5
    mean = masked_mean(x, torch.tensor([False] * 3))
    mean.backward()
    assert mean.item() == 0.0
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.0, 0.0]


def explained(value: Tensor, target: Tensor, where: Tensor) -> Tensor:
    return explained_variance(critic_sums(value.double(), target.double(), where))


def test_explained_variance() -> None:
    target, all_rows = t(1.0, 2.0, 3.0, NAN), torch.tensor([True, True, True, False])
    assert explained(target, target, all_rows).item() == 1.0
    assert explained(t(2.0, 2.0, 2.0, 2.0), target, all_rows).item() == pytest.approx(0.0, abs=1e-6)
    assert explained(target + 5.0, target, all_rows).item() == pytest.approx(1.0)
    assert explained(-target, target, all_rows).item() == pytest.approx(-3.0)


@settings(deadline=None)
@given(_SEEDS, st.integers(3, 50))
def test_explained_variance_equals_numpys(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    value, target = rng.normal(size=(2, n)).astype(np.float32)
    where = rng.random(n) < 0.7
    where[:3] = True
    want = 1 - np.var((target - value)[where]) / np.var(target[where])
    got = explained(torch.tensor(value), torch.tensor(target), torch.tensor(where)).item()
    assert got == pytest.approx(want, rel=1e-3, abs=1e-3)


@settings(deadline=None)
@given(_SEEDS, st.integers(1, 5))
def test_explained_variance_is_of_all_minibatches_and_ranks_together(seed: int, parts: int) -> None:
    """Of targets far from 0 too, whose squares nearly cancel."""
    rng = np.random.default_rng(seed)
    value, target = (torch.tensor(x.astype(np.float32)) for x in rng.normal(1000.0, 1.0, (2, 64)))
    where = torch.tensor(rng.random(64) < 0.7)
    cuts = np.sort(rng.integers(0, 65, parts)).tolist()
    each = [
        critic_sums(v.double(), x.double(), w)
        for v, x, w in zip(*(z.tensor_split(cuts) for z in (value, target, where)), strict=True)
    ]
    assert len(each) == parts + 1
    together = explained_variance(torch.stack(each).sum(0)).item()
    error = (target.double() - value.double())[where]
    assert together == pytest.approx(1 - error.var().item() / target.double()[where].var().item(), abs=1e-6)


@pytest.mark.parametrize("target", [(0.0, 0.0, 0.0), (0.1, 0.1, 0.1), (1e6, 1e6, 1e6)])
def test_targets_that_do_not_vary_have_no_explained_variance(target: tuple[float, ...]) -> None:
    for where in ([True, True, True], [True, False, False], [False, False, False]):
        assert math.isnan(explained(t(1.0, 2.0, 3.0), t(*target), torch.tensor(where)).item())


def batch(
    log_prob: Tensor, advantage: Tensor, target: Tensor, value: Tensor, choice: list[bool]
) -> Minibatch:
    n = len(choice)
    return Minibatch(
        rows=torch.zeros((n, 1), dtype=torch.uint8),
        action=torch.zeros(n, dtype=torch.int64),
        log_prob=log_prob,
        advantage=advantage,
        target=target,
        value=value,
        choice=torch.tensor(choice),
        epoch=0,
        index=0,
    )


def test_the_whole_loss_by_hand() -> None:
    b = batch(t(-1.0, -2.0, 0.0), t(2.0, -1.0, 0.0), t(1.0, 0.0, 3.0), t(0.0, 0.0, 0.0), [True, True, False])
    ratios = (1.5, 5.0)
    new = t(-1.0 + math.log(1.5), -2.0 + math.log(5.0), NAN)
    entropy = Stages(t(0.6, 0.4, NAN), t(1.0, 0.0, NAN), t(6.0, 4.0, NAN))
    value = t(0.0, 2.0, 1.0)
    loss, figures = ppo_loss(b, new, entropy, value, **SETTINGS)
    f = {k: v.item() for k, v in figures.items()}
    policy = -(1.2 * 2.0 + 3.0 * -1.0) / 2
    critic = 0.5 * (1.0 + 4.0 + 4.0) / 3
    bonus = 0.01 * 0.5 + 0.02 * 0.5 + 0.0005 * 5.0
    assert loss.item() == f["loss"] == pytest.approx(policy + 0.5 * critic - bonus)
    assert f["policy_loss"] == pytest.approx(policy)
    assert f["value_loss"] == pytest.approx(critic)
    assert f["value_loss_choice"] == pytest.approx(0.5 * (1.0 + 4.0) / 2)
    assert f["value_loss_forced"] == pytest.approx(2.0)
    assert (f["entropy_play"], f["entropy_choice"], f["entropy_tile"]) == pytest.approx((0.5, 0.5, 5.0))
    assert f["entropy"] == pytest.approx(6.0)
    assert f["approx_kl"] == pytest.approx(sum(r - 1 - math.log(r) for r in ratios) / 2, rel=1e-5)
    assert (f["clip_fraction"], f["dual_clip_fraction"]) == (1.0, 0.5)
    assert f["ratio_error"] == pytest.approx(4.0, rel=1e-5)
    assert (f["choice_rows"], f["forced_rows"]) == (2, 1)


def test_figures_are_detached_scalars() -> None:
    new = t(-1.0, grad=True)
    b = batch(t(-1.0), t(1.0), t(0.0), t(0.0), [True])
    loss, figures = ppo_loss(b, new, Stages(t(1.0), t(1.0), t(1.0)), t(0.0), **SETTINGS)
    assert loss.requires_grad
    assert all(v.shape == () and not v.requires_grad for v in figures.values())


@settings(deadline=None, max_examples=50)
@given(_SEEDS, st.integers(1, 12), st.integers(0, 12))
def test_forced_rows_train_the_critic_alone(seed: int, choices: int, forced: int) -> None:
    """The actor's gradient is the one of the choice rows by themselves; the critic's is a mean over all."""
    g = torch.Generator().manual_seed(seed)
    n = choices + forced
    old, advantage, target, at = torch.randn((4, n), generator=g).unbind()
    new = old + 0.3 * torch.randn(n, generator=g)
    entropy = torch.rand((3, n), generator=g)
    choice = [i < choices for i in range(n)]

    def gradients(keep: int) -> list[Tensor]:
        lp, e, v = (x.clone().requires_grad_() for x in (new[:keep], entropy[:, :keep], at[:keep]))
        b = batch(old[:keep], advantage[:keep], target[:keep], torch.zeros(keep), choice[:keep])
        loss, _ = ppo_loss(b, lp, Stages(*e), v, **SETTINGS)
        return list(torch.autograd.grad(loss, (lp, e, v)))

    whole, alone = gradients(n), gradients(choices)
    torch.testing.assert_close(whole[0][:choices], alone[0])
    torch.testing.assert_close(whole[1][:, :choices], alone[1])
    assert (whole[0][choices:] == 0).all()
    assert (whole[1][:, choices:] == 0).all()
    torch.testing.assert_close(whole[2], 0.5 * (at - target) / n)


def test_a_minibatch_without_a_choice_row_is_finite_and_keeps_every_output_in_the_graph() -> None:
    # DDP needs a gradient, if a zero one, for every parameter.
    lp, v = t(NAN, NAN, grad=True), t(1.0, 2.0, grad=True)
    e = Stages(*(t(NAN, NAN, grad=True) for _ in range(3)))
    b = batch(t(0.0, 0.0), t(0.0, 0.0), t(0.0, 0.0), t(0.0, 0.0), [False, False])
    loss, figures = ppo_loss(b, lp, e, v, **SETTINGS)
    loss.backward()
    assert loss.item() == pytest.approx(0.5 * 0.5 * 2.5)
    assert lp.grad is not None
    assert lp.grad.tolist() == [0.0, 0.0]
    assert all(x.grad is not None and x.grad.tolist() == [0.0, 0.0] for x in e)
    assert all(torch.isfinite(x) for x in figures.values())


def test_before_any_step_every_ratio_is_one_and_the_policy_gradient_is_the_plain_one() -> None:
    old, advantage = t(-1.0, -2.0), t(1.5, -0.5)
    lp = old.clone().requires_grad_()
    b = batch(old, advantage, t(0.0, 0.0), t(0.0, 0.0), [True, True])
    zero = t(0.0, 0.0)
    loss, figures = ppo_loss(b, lp, Stages(zero, zero, zero), zero, **SETTINGS)
    assert all(figures[name].item() == 0.0 for name in ("ratio_error", "approx_kl", "clip_fraction"))
    loss.backward()
    torch.testing.assert_close(lp.grad, -advantage / 2)


def test_before_any_step_weights_make_the_plain_policy_gradient_the_importance_weighted_one() -> None:
    old, advantage, weight = t(-1.0, -2.0, -0.5), t(1.5, -0.5, 7.0), t(0.25, 3.0, 1.0)
    lp = old.clone().requires_grad_()
    b = batch(old, advantage, t(0.0, 0.0, 0.0), t(0.0, 0.0, 0.0), [True, True, False])
    b.weight = weight
    zero = t(0.0, 0.0, 0.0)
    loss, figures = ppo_loss(b, lp, Stages(zero, zero, zero), zero, **SETTINGS)
    # However far from 1 the weights are: they say who acted, not how far the update has come.
    assert all(figures[name].item() == 0.0 for name in ("ratio_error", "approx_kl", "clip_fraction"))
    assert figures["behaviour_weight"].item() == pytest.approx(1.625)
    assert figures["behaviour_weight_largest"].item() == 3.0
    loss.backward()
    torch.testing.assert_close(lp.grad, -weight * advantage * t(1.0, 1.0, 0.0) / 2)


def test_weighted_rows_of_the_policy_that_acted_are_rows_of_the_proximal_one() -> None:
    """Loss, KL and gradient of a policy over three actions, each drawn as often as the one or the other draws it."""
    behaviour, proximal = t(0.25, 0.5, 0.25), t(0.5, 0.25, 0.25)
    advantage = t(1.0, -2.0, 0.5)

    def update(drawn: list[int], weight: Tensor | float) -> tuple[float, float, Tensor]:
        at = torch.tensor(drawn)
        logits = (proximal.log() + t(0.5, -0.1, -0.3)).requires_grad_()
        zero = torch.zeros(len(at))
        b = batch(proximal.log()[at], advantage[at], zero, zero, [True] * len(at))
        b.weight = weight
        loss, figures = ppo_loss(b, logits.log_softmax(0)[at], Stages(zero, zero, zero), zero, **SETTINGS)
        loss.backward()
        assert logits.grad is not None
        return figures["policy_loss"].item(), figures["approx_kl"].item(), logits.grad

    acted = [0, 1, 1, 2]
    one = update(acted, (proximal / behaviour)[torch.tensor(acted)])
    other = update([0, 0, 1, 2], 1.0)
    assert one[:2] == pytest.approx(other[:2])
    torch.testing.assert_close(one[2], other[2])


def test_nothing_waits_for_the_device() -> None:
    # Tensors without data raise on whatever needs it: .item(), a boolean index, Python's own if.
    x = torch.zeros(4, device="meta")
    b = batch(x, x, x, x, [True] * 4)
    b.choice = torch.zeros(4, dtype=torch.bool, device="meta")
    settings_ = {**SETTINGS, "value_clip": 0.2}
    loss, _ = ppo_loss(b, x, Stages(x, x, x), x, **settings_)
    assert loss.shape == explained_variance(critic_sums(x, x, b.choice)).shape == ()
