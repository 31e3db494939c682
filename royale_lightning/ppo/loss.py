"""PPO's losses, as pure functions of tensors.

Nothing here reads a setting object, keeps state or waits for the device: empty selections give 0 by
arithmetic, and figures come back as detached scalars on the device.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..rollout.minibatch import Minibatch


class Stages[T](NamedTuple):
    """One thing per stage of an action: wait or play, which card or button, which tile.

    As entropies (nats, ``[B]``) they are the terms of the chain rule, so their sum is the entropy of the
    whole action: ``play`` = H(wait or play), ``choice`` = P(play) H(which | play), ``tile`` = sum over cards of
    P(card) H(tile | card).
    """

    play: T
    choice: T
    tile: T


def masked_mean(x: Tensor, where: Tensor) -> Tensor:
    """Mean of ``x`` ``[B]`` over the rows ``where`` (bool ``[B]``); 0, with gradient 0, where there are none.

    By a selection and a sum: indexing with a mask would wait for the device, and a product would let the NaN of an
    unused row through.
    """
    return torch.where(where, x, 0.0).sum() / where.sum().clamp(min=1)


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip_range: float, dual_clip: float | None) -> Tensor:
    """PPO's clipped objective per row (Schulman et al. 2017, eq. 7), to be maximised.

    Args:
        ratio: ``[B]``, new over proximal probability of the action.
        advantage: ``[B]``.
        clip_range: epsilon.
        dual_clip: c >= 1; for a negative advantage the objective is at least ``c * advantage`` (Ye et al.
            2020, "Mastering Complex Control in MOBA Games with Deep Reinforcement Learning", eq. 5), so that
            a ratio far above 1 has no gradient. ``None`` for none.
    """
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range)
    objective = torch.minimum(ratio * advantage, clipped * advantage)
    if dual_clip is None:
        return objective
    return torch.where(advantage < 0, torch.maximum(objective, dual_clip * advantage), objective)


def value_loss(value: Tensor, target: Tensor, old_value: Tensor, clip_range: float | None) -> Tensor:
    """Half the squared error per row (Schulman et al. 2017, eq. 9, with the half in the loss).

    Args:
        value: ``[B]``, the critic's answer now.
        target: ``[B]``, lambda return.
        old_value: ``[B]``, the critic's answer at collection.
        clip_range: the larger of two errors counts, with and without the value held within this distance of
            ``old_value`` (OpenAI Baselines ``ppo2``; Engstrom et al. 2020, section 3); ``None`` for the plain
            error.
    """
    loss = (value - target).square()
    if clip_range is not None:
        near = old_value + (value - old_value).clamp(-clip_range, clip_range)
        loss = torch.maximum(loss, (near - target).square())
    return 0.5 * loss


def approx_kl(log_ratio: Tensor) -> Tensor:
    """k3 estimate of KL(proximal || new) per row: ``(ratio - 1) - log ratio``, unbiased and never negative.

    Schulman 2020, "Approximating KL Divergence" (joschu.net/blog/kl-approx.html). ``log_ratio`` is ``[B]``,
    new minus proximal log-probability of actions drawn from the proximal policy, or weighted as if they were.
    """
    return torch.expm1(log_ratio) - log_ratio


def clip_fraction(ratio: Tensor, clip_range: float) -> Tensor:
    """1 per row whose ratio left ``[1 - clip_range, 1 + clip_range]``, else 0; ``[B]``, to be averaged."""
    return ((ratio - 1.0).abs() > clip_range).to(ratio.dtype)


def critic_sums(value: Tensor, target: Tensor, where: Tensor) -> Tensor:
    """What :func:`explained_variance` needs of the rows ``where``; sums of several minibatches, or of ranks, add up.

    Args:
        value, target: float ``[B]``; float64, where the device has it, keeps what is left of two large sums exact.
        where: bool ``[B]``.

    Returns:
        ``[5]``: the count, the sums of target and squared target, of error (target - value) and squared error.
    """
    t, e = torch.where(where, target, 0.0), torch.where(where, target - value, 0.0)
    return torch.stack([where.sum().to(t.dtype), t.sum(), t.square().sum(), e.sum(), e.square().sum()])


def explained_variance(sums: Tensor) -> Tensor:
    """``1 - Var(target - value) / Var(target)`` of :func:`critic_sums`, a scalar.

    1 is a perfect critic, 0 no better than a constant, negative worse. NaN, to be left out of the metrics,
    where the targets do not vary (within rounding) or there are fewer than two.
    """
    _, t, t2, e, e2 = sums / sums[0].clamp(min=1)
    target_var, error_var = t2 - t.square(), e2 - e.square()
    return torch.where(target_var > 1.0e-12 * t2, 1.0 - error_var / target_var, torch.nan)


def ppo_loss(
    batch: Minibatch,
    log_prob: Tensor,
    entropy: Stages[Tensor],
    value: Tensor,
    *,
    clip_range: float,
    dual_clip: float | None,
    value_coef: float,
    value_clip: float | None,
    entropy_coef: Stages[float],
) -> tuple[Tensor, dict[str, Tensor]]:
    """The whole loss of one minibatch (Schulman et al. 2017, eq. 9).

    Policy and entropy terms are means over choice rows: a forced row has ratio 1 whatever the weights, and
    counting it would shrink the step by the share of forced rows. The value term is a mean over all rows. With several
    ranks the former count by ``batch.actor_weight``, so that the average of the ranks' gradients is the gradient on all
    their rows.

    Where an older policy acted, the objective is decoupled (Hilton, Cobbe and Schulman 2022, "Batch size-invariance for
    policy optimization"): ratio, clips and KL are against the proximal policy, and each row's objective and KL are
    multiplied by ``batch.weight``, proximal over behaviour probability, as means over the proximal policy's actions.

    Args:
        batch: rows with their proximal log-probabilities, weights, advantages, targets and values.
        log_prob: ``[B]``, of the stored actions now; anything on value-only rows.
        entropy: ``[B]`` per stage; anything on value-only rows.
        value: ``[B]``.
        clip_range, dual_clip: as :func:`clipped_surrogate` takes them.
        value_coef: weight of the value term.
        value_clip: as :func:`value_loss` takes it.
        entropy_coef: bonus per nat and stage.

    Returns:
        The loss, a scalar with gradient, and figures by name, detached scalars on the device: ``loss``,
        ``policy_loss``, ``value_loss``, ``value_loss_choice``, ``value_loss_forced``, ``entropy`` and
        ``entropy_{play,choice,tile}`` (nats), ``approx_kl`` (nats), ``clip_fraction``,
        ``dual_clip_fraction``, ``ratio_error`` (largest ``|ratio - 1|``) and ``choice_rows``, ``forced_rows``
        (counts, the weights with which the figures of several minibatches average). A figure of no rows is 0:
        weigh it by its count. Where rows have weights, also ``behaviour_weight`` and ``behaviour_weight_largest``.
    """
    choice = batch.choice
    log_ratio = torch.where(choice, log_prob.float() - batch.log_prob, 0.0)
    ratio = log_ratio.exp()
    objective = clipped_surrogate(ratio, batch.advantage, clip_range, dual_clip)
    policy = -masked_mean(batch.weight * objective, choice)
    squared = value_loss(value.float(), batch.target, batch.value, value_clip)
    critic = squared.mean()
    stages = Stages(*(masked_mean(e.float(), choice) for e in entropy))
    bonus = sum(c * e for c, e in zip(entropy_coef, stages, strict=True))
    w = batch.actor_weight
    loss = w * policy + value_coef * critic - w * bonus

    with torch.no_grad():
        floored = torch.zeros_like(choice)
        if dual_clip is not None:
            floored = (batch.advantage < 0) & (ratio > dual_clip)
        figures = {
            "loss": loss,
            "policy_loss": policy,
            "value_loss": critic,
            "value_loss_choice": masked_mean(squared, choice),
            "value_loss_forced": masked_mean(squared, ~choice),
            "entropy": stages.play + stages.choice + stages.tile,
            "entropy_play": stages.play,
            "entropy_choice": stages.choice,
            "entropy_tile": stages.tile,
            "approx_kl": masked_mean(batch.weight * approx_kl(log_ratio), choice),
            "clip_fraction": masked_mean(clip_fraction(ratio, clip_range), choice),
            "dual_clip_fraction": masked_mean(floored.float(), choice),
            "ratio_error": (ratio - 1.0).abs().amax(),
            "choice_rows": choice.sum(),
            "forced_rows": (~choice).sum(),
        }
        if isinstance(batch.weight, Tensor):
            figures["behaviour_weight"] = masked_mean(batch.weight, choice)
            figures["behaviour_weight_largest"] = torch.where(choice, batch.weight, 0.0).amax()
    return loss, {name: figure.detach() for name, figure in figures.items()}
