"""The masked two-stage distribution against brute force over its flat probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from royale_lightning.battle.actions import ActionLayout
from royale_lightning.nn import MaskedCategorical, StagedLogits, distribution

SMALL = ActionLayout(slots=3, tiles_y=2, tiles_x=4, buttons=2)
LAYOUTS = [SMALL, ActionLayout(), ActionLayout(slots=0, buttons=3), ActionLayout(slots=0), ActionLayout(1, 1, 1, 0)]
JUST_BELOW_1 = math.nextafter(1.0, 0.0)


def make(
    a: ActionLayout, n: int = 32, seed: int = 0, scale: float = 2.0, legal: float = 0.5
) -> tuple[StagedLogits, Tensor]:
    g = torch.Generator().manual_seed(seed)
    choice = torch.randn(n, a.n_choices, generator=g) * scale
    tile = torch.randn(n, a.slots, a.tiles, generator=g) * scale
    mask = torch.rand(n, a.n_actions, generator=g) < legal
    # Whole slots illegal, and rows where only the no-op is left.
    if a.slots:
        grid = mask[:, 1 : 1 + a.slots * a.tiles].view(n, a.slots, a.tiles)
        grid &= torch.rand(n, a.slots, 1, generator=g) < 0.6
    mask[: n // 8, 1:] = False
    mask[:, 0] = True
    return StagedLogits(choice, tile), mask


def brute(logits: StagedLogits, mask: Tensor, a: ActionLayout) -> Tensor:
    """Flat probabilities float64 ``[B, n_actions]``, written as loops over rows."""
    out = torch.zeros(mask.shape, dtype=torch.float64)
    for b in range(mask.shape[0]):
        grid = mask[b, 1 : 1 + a.slots * a.tiles].view(a.slots, a.tiles)
        legal = [True, *grid.any(-1).tolist(), *mask[b, 1 + a.slots * a.tiles :].tolist()]
        p = [math.exp(x) if ok else 0.0 for x, ok in zip(logits.choice[b].tolist(), legal, strict=True)]
        p = [x / sum(p) for x in p]
        out[b, 0] = p[0]
        for s in range(a.slots):
            if legal[1 + s]:
                w = logits.tile[b, s].double().exp() * grid[s]
                out[b, 1 + s * a.tiles : 1 + (s + 1) * a.tiles] = p[1 + s] * w / w.sum()
        out[b, 1 + a.slots * a.tiles :] = torch.tensor(p[1 + a.slots :], dtype=torch.float64)
    return out


def plogp(p: Tensor) -> Tensor:
    return -torch.where(p > 0, p * torch.where(p > 0, p, 1.0).log(), 0.0).sum(-1)


@pytest.mark.parametrize("a", LAYOUTS)
def test_probabilities_are_those_of_the_tree(a: ActionLayout) -> None:
    logits, mask = make(a)
    d, p = MaskedCategorical(logits, mask, a), brute(logits, mask, a)
    flat = d.flat_log_probs()
    assert flat.dtype == torch.float32
    torch.testing.assert_close(flat.double().exp(), p, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(flat.double().exp().sum(-1), torch.ones(len(p), dtype=torch.float64))
    torch.testing.assert_close(d.p_wait.double(), p[:, 0], atol=1e-6, rtol=1e-5)
    for action in range(0, a.n_actions, 1 if a.n_actions < 100 else 97):
        taken = torch.full((len(p),), action)
        legal = mask[:, action]
        torch.testing.assert_close(d.log_prob(taken)[legal], flat[:, action][legal])
        assert (d.log_prob(taken)[~legal] < -1e30).all()


@pytest.mark.parametrize("a", LAYOUTS)
def test_entropy_splits_by_the_chain_rule(a: ActionLayout) -> None:
    logits, mask = make(a)
    d, p = MaskedCategorical(logits, mask, a), brute(logits, mask, a)
    close = {"atol": 2e-5, "rtol": 1e-4}
    torch.testing.assert_close(d.entropy().double(), plogp(p), **close)
    play = p[:, 1:].sum(-1)
    torch.testing.assert_close(d.entropy_play.double(), plogp(torch.stack([p[:, 0], play], -1)), **close)
    grid = p[:, 1 : 1 + a.slots * a.tiles].view(len(p), a.slots, a.tiles)
    which = torch.cat([grid.sum(-1), p[:, 1 + a.slots * a.tiles :]], -1)
    which = which / play.clamp(min=1e-300).unsqueeze(-1)
    torch.testing.assert_close(d.entropy_choice.double(), play * plogp(which), **close)
    slot = grid.sum(-1)
    within = plogp(grid / slot.clamp(min=1e-300).unsqueeze(-1))
    torch.testing.assert_close(d.entropy_tile.double(), (slot * within).sum(-1), **close)
    # The cheap estimate has the right mean: weigh each slot's by its probability.
    mean = torch.zeros(len(p))
    for s in range(a.slots):
        first = mask[:, 1 + s * a.tiles : 1 + (s + 1) * a.tiles].to(torch.uint8).argmax(-1) + 1 + s * a.tiles
        mean += slot[:, s].float() * d.entropy_tile_of(first)
    torch.testing.assert_close(mean, d.entropy_tile, **close)
    assert (d.entropy_tile_of(torch.zeros(len(p), dtype=torch.long)) == 0).all()


def test_a_flat_tensor_is_the_flat_softmax() -> None:
    a = SMALL
    _, mask = make(a)
    flat = torch.randn(len(mask), a.n_actions, requires_grad=True)
    d = MaskedCategorical(flat, mask, a)
    expected = flat.masked_fill(~mask, -1e9).log_softmax(-1)
    torch.testing.assert_close(d.flat_log_probs()[mask], expected[mask])
    torch.testing.assert_close(d.entropy(), plogp(expected.exp()), atol=1e-5, rtol=1e-5)
    # The same gradient too, and the same staged distribution when the choice logits are written out.
    action = d.sample(torch.rand(len(mask), 2, dtype=torch.float64))
    (got,) = torch.autograd.grad(d.log_prob(action).sum() + d.entropy().sum(), flat, retain_graph=True)
    logp = expected.gather(-1, action.unsqueeze(-1)).sum() + plogp(expected.exp()).sum()
    (want,) = torch.autograd.grad(logp, flat)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
    grid = slice(1, 1 + a.slots * a.tiles)
    tile = flat[:, grid].view(len(flat), a.slots, a.tiles)
    slot = tile.masked_fill(~mask[:, grid].view_as(tile), -math.inf).logsumexp(-1)
    choice = torch.cat([flat[:, :1], slot, flat[:, grid.stop :]], -1)
    staged = MaskedCategorical(StagedLogits(choice, tile), mask, a)
    torch.testing.assert_close(staged.flat_log_probs()[mask], d.flat_log_probs()[mask])


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 1000),
    scale=st.sampled_from([0.0, 1.0, 30.0, 1e4]),
    legal=st.sampled_from([0.02, 0.3, 1.0]),
    edge=st.sampled_from([0.0, 5e-324, 0.5, JUST_BELOW_1]),
    which=st.integers(0, len(LAYOUTS) - 1),
)
def test_never_an_illegal_action(seed: int, scale: float, legal: float, edge: float, which: int) -> None:
    a = LAYOUTS[which]
    logits, mask = make(a, 16, seed, scale, legal)
    d = MaskedCategorical(logits, mask, a)
    u = torch.rand(16, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    for uniforms in (u, torch.full_like(u, edge), torch.stack([u[:, 0], torch.full_like(u[:, 0], edge)], -1)):
        for action in (d.sample(uniforms), d.sharp(uniforms), d.mode()):
            assert mask.gather(-1, action.unsqueeze(-1)).all()
            assert torch.isfinite(d.log_prob(action)).all()


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 1000), scale=st.sampled_from([1.0, 1e4]), staged=st.booleans())
def test_gradients_are_finite_and_one_legal_action_is_certain(seed: int, scale: float, staged: bool) -> None:
    a = SMALL
    logits, mask = make(a, 16, seed, scale)
    if staged:
        leaves = [logits.choice.requires_grad_(), logits.tile.requires_grad_()]
        d = MaskedCategorical(logits, mask, a)
    else:
        leaves = [(torch.randn(16, a.n_actions) * scale).requires_grad_()]
        d = MaskedCategorical(leaves[0], mask, a)
    action = d.sample(torch.rand(16, 2, dtype=torch.float64))
    log_prob, tile = d.log_prob_and_tile_entropy(action)
    assert torch.equal(log_prob, d.log_prob(action))
    assert torch.equal(tile, d.entropy_tile_of(action))
    single = mask.sum(-1) == 1
    assert single.any()
    assert (log_prob[single] == 0).all()
    assert (d.entropy()[single] == 0).all()
    assert (d.entropy() >= -1e-6).all()
    total = log_prob + tile + d.entropy() + d.p_wait + d.entropy_play * d.entropy_choice
    assert torch.isfinite(total).all()
    # A loss weight or a loss scale above 1 must not overflow either.
    for grad in torch.autograd.grad(1e4 * total.sum(), leaves):
        assert torch.isfinite(grad).all()


def test_frequencies_of_the_inverse_cdf() -> None:
    a, n = SMALL, 64
    logits, mask = make(a, 8, seed=3, scale=1.0)
    # A grid of uniforms rather than random ones: each interval is hit to within one part of the grid.
    steps = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    u = torch.cartesian_prod(steps, steps)
    for row in range(8):
        one = StagedLogits(*(x[row : row + 1].expand(n * n, *x.shape[1:]) for x in logits))
        d = MaskedCategorical(one, mask[row : row + 1].expand(n * n, -1), a)
        counts = torch.bincount(d.sample(u), minlength=a.n_actions) / n**2
        p = d.flat_log_probs()[0].exp()
        assert (counts - p).abs().max() < 2.5 / n
        sharp = d.sharp(u)
        assert abs(float((sharp == 0).float().mean() - p[0])) < 1.5 / n
        assert len(sharp.unique()) <= 2


def test_sharp_and_mode_take_the_best_card_then_its_best_tile() -> None:
    a = ActionLayout(slots=2, tiles_y=1, tiles_x=2, buttons=1)
    choice = torch.tensor([[3.0, 1.0, 2.0, 0.0]])
    tile = torch.tensor([[[0.0, 1.0], [5.0, 4.0]]])
    mask = torch.ones(1, a.n_actions, dtype=torch.bool)
    d = MaskedCategorical(StagedLogits(choice, tile), mask, a)
    assert d.mode().item() == 0
    assert d.sharp(torch.tensor([[0.0, 0.5]], dtype=torch.float64)).item() == 0
    assert d.sharp(torch.tensor([[0.99, 0.5]], dtype=torch.float64)).item() == 3
    mask[0, 3] = False
    d = MaskedCategorical(StagedLogits(choice, tile), mask, a)
    assert d.sharp(torch.tensor([[0.99, 0.5]], dtype=torch.float64)).item() == 4


def test_bfloat16_logits_become_float32_under_autocast() -> None:
    logits, mask = make(ActionLayout(), 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = StagedLogits(logits.choice.bfloat16(), logits.tile.bfloat16())
        d = MaskedCategorical(half, mask, ActionLayout())
        action = d.sample(torch.rand(8, 2, dtype=torch.float64))
        for x in (d.log_prob(action), d.entropy(), d.flat_log_probs(), d.entropy_tile_of(action), d.p_wait):
            assert x.dtype == torch.float32


def test_sampling_ignores_the_rest_of_the_batch() -> None:
    a = ActionLayout()
    logits, mask = make(a, 64)
    u = torch.from_numpy(np.random.default_rng(0).random((64, 2)))
    whole = MaskedCategorical(logits, mask, a).sample(u)
    for part in (slice(0, 1), slice(5, 40)):
        some = StagedLogits(logits.choice[part], logits.tile[part])
        assert torch.equal(MaskedCategorical(some, mask[part], a).sample(u[part]), whole[part])


@pytest.mark.parametrize("a", LAYOUTS)
def test_draws_in_float32_are_legal_and_hardly_others(a: ActionLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Apple's GPU. The uniforms next to 1 become 1 there."""
    logits, mask = make(a, n=4096)
    u = torch.rand(4096, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    u[:64], u[64:128] = JUST_BELOW_1, 0.0
    wide = MaskedCategorical(logits, mask, a).sample(u)
    monkeypatch.setattr(distribution, "widest_float", lambda _: torch.float32)
    narrow = MaskedCategorical(logits, mask, a).sample(u.float())
    assert mask.gather(-1, narrow[:, None]).all()
    assert (narrow == wide).float().mean() > 0.998
