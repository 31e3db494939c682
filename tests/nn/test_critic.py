"""A critic apart: what it reads, and that nothing else reads it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from royale_lightning.battle.opponents import ACTING
from royale_lightning.battle.rows.hidden import HIDDEN_BYTES, HIDDEN_FIELDS, OPPONENTS
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.steps.arena import ArenaSettings
from royale_lightning.battle.steps.sources import InlineSource
from royale_lightning.errors import UserError
from royale_lightning.ladder.matchmaker import MixMatchmaker
from royale_lightning.nn import Asymmetric, Critic, EntityCritic, Hidden, build_critic, build_network
from royale_lightning.nn.critic import HIDDEN, hidden_fields
from royale_lightning.nn.protocol import Inputs, Observation
from royale_lightning.nn.rows import unpack
from royale_lightning.rollout.collector import Collector, Rollout
from royale_lightning.rollout.data import inputs_of

SPEC = BattleSpec(deck="random", max_ticks=600)
INPUTS = inputs_of(SPEC)


def some_hidden(rows: int, seed: int = 0) -> Tensor:
    rng = np.random.default_rng(seed)
    out = rng.integers(0, INPUTS.n_cards + 1, (rows, HIDDEN_BYTES))
    out[:, HIDDEN_FIELDS["seat"][0]] %= 2
    out[:, HIDDEN_FIELDS["opponent"][0]] %= OPPONENTS
    return torch.from_numpy(out.astype(np.uint8))


def awake(critic: Critic, seed: int = 0) -> Critic:
    """With weights that no zero hides."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in critic.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=draw))
    return critic.eval()


def asymmetric(seed: int = 1) -> Asymmetric:
    network = build_network({"class_path": "entity", "init_args": {"width": 16, "layers": 1}}, INPUTS, seed)
    critic = build_critic({"class_path": "entity", "init_args": {"width": 16}}, INPUTS, seed)
    return Asymmetric(network, awake(critic)).eval()


def collected(policy: Asymmetric, scramble: bool = False) -> Rollout:
    source = InlineSource(SPEC, 0, 4, ArenaSettings(1, 0.1, 1))
    if scramble:
        advance, observe = source.advance, source.observe

        def scrambled(call: Callable[[Any], None]) -> Callable[[Any], None]:
            def then(what: Any) -> None:
                call(what)
                source.round.hidden[:] = some_hidden(8, seed=5).numpy()
                source.round.final_hidden[:] = some_hidden(8, seed=6).numpy()

            return then

        source.advance, source.observe = scrambled(advance), scrambled(observe)  # type: ignore[method-assign]
    c = Collector(
        source, SPEC, MixMatchmaker(1, 4, 0.5, 0, 0.5, ACTING), seed=1, first=0, rows=160, max_rounds=4000,
        stagger=False, count_forced=False, device=torch.device("cpu"),
    )
    try:
        return c.collect(policy, gamma=0.99)
    finally:
        source.close()


def test_what_is_hidden_moves_values_and_no_action() -> None:
    policy = asymmetric()
    a, b = collected(policy), collected(policy, scramble=True)
    assert torch.equal(a.rows, b.rows)
    assert torch.equal(a.action, b.action)
    assert torch.equal(a.log_prob, b.log_prob)
    assert not torch.equal(a.hidden, b.hidden)
    assert (a.value != b.value).float().mean() > 0.9
    ends = a.cells.final_value != 0
    assert ends.any(), "battles were cut"
    assert (a.cells.final_value != b.cells.final_value)[ends].all()
    assert (a.cut_value != b.cut_value)[a.cut_value != 0].all()


def test_a_rollouts_values_are_the_critics_of_its_rows() -> None:
    policy = asymmetric()
    r = collected(policy)
    obs = unpack(r.rows, INPUTS.layout)
    with torch.no_grad():
        expected = policy.critic(obs, hidden_fields(r.hidden))
        seen = policy.actor(obs)[1]
    torch.testing.assert_close(r.value, expected, atol=1e-5, rtol=1e-5)
    assert (r.value - seen).abs().max() > 1e-3


@pytest.mark.parametrize("field", HIDDEN_FIELDS)
def test_the_entity_critic_reads_every_field(field: str) -> None:
    critic = awake(EntityCritic(INPUTS, width=16))
    obs = unpack(torch.zeros(1, INPUTS.layout.row_bytes, dtype=torch.uint8), INPUTS.layout)
    hidden = some_hidden(1)
    other = hidden.clone()
    at, n = HIDDEN_FIELDS[field]
    other[:, at : at + n] = 1 - other[:, at : at + n].clamp(max=1)
    with torch.no_grad():
        assert not torch.equal(critic(obs, hidden_fields(hidden)), critic(obs, hidden_fields(other)))
        blind = awake(EntityCritic(INPUTS, width=16, hidden=False))
        assert torch.equal(blind(obs, hidden_fields(hidden)), blind(obs, hidden_fields(other)))


def test_padded_and_packed_agree() -> None:
    r = collected(asymmetric())
    obs, hidden = unpack(r.rows, INPUTS.layout), hidden_fields(r.hidden)
    with torch.no_grad():
        a, b = (
            awake(build_critic({"class_path": "entity", "init_args": {"width": 16, "fixed_shape": fixed}}, INPUTS, 1))(
                obs, hidden
            )
            for fixed in (True, False)
        )
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_weights_are_a_function_of_the_seed() -> None:
    a, b, c = (build_critic("entity", INPUTS, s).state_dict() for s in (3, 3, 4))
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert not all(torch.equal(a[k], c[k]) for k in a)


def test_the_actor_never_gets_what_is_hidden() -> None:
    policy = asymmetric()
    obs = unpack(torch.zeros(2, INPUTS.layout.row_bytes, dtype=torch.uint8), INPUTS.layout)
    seen: list[set[str]] = []
    policy.actor.register_forward_pre_hook(lambda _, args: seen.append(set(args[0])))
    with torch.no_grad():
        policy({**obs, HIDDEN: some_hidden(2)})
    assert seen == [set(obs)]


class Flat(Critic):
    """A value of the wrong shape."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, obs: Observation, hidden: Hidden) -> Tensor:
        return self.scale * hidden["seat"].float()


@pytest.mark.parametrize(("part", "match"), [
    (f"{__name__}.Flat", r"model.critic: .*Flat returned \[2, 1\] for two rows; give"),
    ("conv", "model.critic is 'conv'"),
    ({"class_path": "entity", "init_args": {"widht": 3}}, "widht"),
    ("royale_lightning.nn.EntityNetwork", "Critic"),
])
def test_what_is_no_critic_is_refused_with_a_sentence(part: object, match: str) -> None:
    with pytest.raises(UserError) as refused:
        build_critic(part, INPUTS, 1)  # type: ignore[arg-type]
    assert re.search(match, str(refused.value)), refused.value
