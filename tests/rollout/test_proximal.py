"""Rows that an older copy played: what the learner gives them, and how much they count."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from royale_lightning.battle.prepare import prepare
from royale_lightning.ppo.module import SelfPlayModule
from royale_lightning.rollout.data import inputs_of
from royale_lightning.rollout.proximal import MOST_WEIGHT, behaviour_weight, proximal_log_prob
from tests.support.plants import SPEC, real_rollout


def test_a_weight_is_proximal_over_behaviour_probability_up_to_its_bound() -> None:
    proximal = torch.tensor([0.5, 0.1, 0.9, 0.2]).log()
    behaviour = torch.tensor([0.25, 0.4, 0.1, 0.2]).log()
    found = behaviour_weight(proximal, behaviour, torch.tensor([True, True, True, True]))
    torch.testing.assert_close(found, torch.tensor([2.0, 0.25, MOST_WEIGHT, 1.0]))
    # A forced row has one action: whoever acted, it was this one.
    assert behaviour_weight(proximal, behaviour + math.nan, torch.tensor([False] * 4)).tolist() == [1.0] * 4


def test_of_the_network_that_acted_the_proximal_policy_is_the_behaviour_policy() -> None:
    module = SelfPlayModule("tests.support.bots.Reflex")
    module.build(inputs_of(SPEC), 1)
    r, known = real_rollout(), prepare(SPEC)
    assert r.choice.any()
    assert not r.choice.all()
    # What is stored for value-only rows is left alone, whatever it is.
    r = replace(r, log_prob=torch.where(r.choice, r.log_prob, 7.0))
    for chunk in (1000, 32, 1):
        found = proximal_log_prob(module.network, r, known.row_layout, known.action_layout, chunk)
        torch.testing.assert_close(found, r.log_prob, atol=1e-6, rtol=0)
        assert not found.requires_grad
    with torch.no_grad():
        for p in module.network.parameters():
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
    moved = proximal_log_prob(module.network, r, known.row_layout, known.action_layout, 32)
    assert (moved - r.log_prob)[r.choice].abs().max() > 1e-3
    assert (moved == 7.0)[~r.choice].all()
    empty = replace(r, choice=torch.zeros_like(r.choice))
    assert torch.equal(
        proximal_log_prob(module.network, empty, known.row_layout, known.action_layout, 32), r.log_prob
    )
