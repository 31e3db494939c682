"""The shipped networks: shapes, invariances, the two paths of the entity network, seeds, and plain errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from royale_lightning.battle.actions import ActionLayout
from royale_lightning.errors import UserError
from royale_lightning.nn import (
    ActorCritic,
    ConvNetwork,
    EntityNetwork,
    Inputs,
    MaskedCategorical,
    StagedLogits,
    actor_state_dict,
    build_network,
    parameter_groups,
)
from royale_lightning.parts import part
from tests.support.boards import ACTIONS, INPUTS, SPATIAL_INPUTS, entity_obs, spatial_obs


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def trained(network: nn.Module, seed: int = 0) -> nn.Module:
    """All weights moved off their zeros, so that every part of the network speaks."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in network.parameters():
            p.add_(torch.randn(p.shape, generator=g) * 0.1)
    return network


def outputs(network: nn.Module, obs: dict[str, Tensor]) -> list[Tensor]:
    logits, value = network(obs)
    return [logits.choice, logits.all_tiles(), value]


def entity(**settings: object) -> EntityNetwork:
    torch.manual_seed(0)
    return EntityNetwork(INPUTS, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "inputs", "obs"), [("entity", INPUTS, entity_obs), ("conv", SPATIAL_INPUTS, spatial_obs)]
)
@pytest.mark.parametrize("n", [1, 33])
def test_an_untrained_network_waits_and_learns(
    name: str, inputs: Inputs, obs: Callable[..., dict[str, Tensor]], n: int
) -> None:
    network, batch = build_network(name, inputs, seed=1), obs(n)
    logits, value = network(batch)
    assert isinstance(logits, StagedLogits)
    assert logits.choice.shape == (n, 5)
    assert logits.all_tiles().shape == (n, 4, 576)
    torch.testing.assert_close(logits.choice, torch.tensor([1.5, 0, 0, 0, 0]).expand(n, -1))
    assert (logits.all_tiles() == 0).all()
    assert (value == 0).all()
    torch.testing.assert_close(network.value(batch), value)
    trained(network)
    logits, value = network(batch)
    torch.testing.assert_close(network.value(batch), value)
    d = MaskedCategorical(logits, batch["action_mask"], ACTIONS)
    action = d.sample(torch.rand(n, 2, dtype=torch.float64))
    (d.log_prob(action).sum() + d.entropy().sum() + value.square().sum()).backward()
    for key, p in network.named_parameters():
        assert p.grad is not None, key
        assert torch.isfinite(p.grad).all(), key
    # One legal action in every row: still finite.
    network.zero_grad()
    only = torch.zeros_like(batch["action_mask"])
    only[:, 0] = True
    logits, value = network(batch)
    d = MaskedCategorical(logits, only, ACTIONS)
    (d.log_prob(torch.zeros(n, dtype=torch.long)).sum() + d.entropy().sum() + value.sum()).backward()
    assert all(torch.isfinite(p.grad).all() for p in network.parameters() if p.grad is not None)


def test_packed_equals_fixed_shape() -> None:
    # Several buckets, boards of very different length, rows with no unit at all.
    batch = entity_obs(70)
    batch["units"][3:9] = 0
    batch["projectiles"][11] = 0
    results = []
    for fixed in (False, True):
        network = trained(entity(fixed_shape=fixed, bucket_rows=16))
        out = outputs(network, batch)
        sum(x.square().mean() for x in out).backward()
        results.append((out, dict(network.named_parameters())))
    for x, y in zip(results[0][0], results[1][0], strict=True):
        torch.testing.assert_close(x, y, atol=1e-5, rtol=1e-5)
    for name, p in results[0][1].items():
        torch.testing.assert_close(p.grad, results[1][1][name].grad, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize("plays", ["some", "none", "all"])
def test_tiles_on_demand_are_those_of_all_tiles(plays: str) -> None:
    """Actions, log-probabilities, entropies and every weight's gradient, whoever plays a card; and the values alone."""
    network, batch, g = trained(entity()), entity_obs(64), torch.Generator().manual_seed(3)
    uniforms = torch.rand(64, 2, generator=g, dtype=torch.float64)
    if plays == "none":
        batch = {**batch, "action_mask": batch["action_mask"].clone()}
        batch["action_mask"][:, 1:] = False
    elif plays == "all":
        with torch.no_grad():
            network.wait.bias[0] = -1e4
    weigh = torch.randn(2, 64, generator=g)
    found = []
    for dense in (False, True):
        network.zero_grad()
        logits, value = network(batch)
        assert not isinstance(logits.tile, Tensor)
        if dense:
            logits = StagedLogits(logits.choice, logits.all_tiles())
        d = MaskedCategorical(logits, batch["action_mask"], ACTIONS)
        action, log_prob = d.sample_with_log_prob(uniforms)
        played = (action > 0).sum()
        assert {"none": played == 0, "all": played > 50, "some": 0 < played < 60}[plays]
        again, entropy = d.log_prob_and_tile_entropy(action)
        torch.testing.assert_close(log_prob, again)
        torch.testing.assert_close(network.value(batch), value)
        (weigh * torch.stack([again, entropy])).sum().backward()
        actor = parameter_groups(network)[0]
        assert not [k for k, p in actor.items() if p.grad is None], "ranks wait for every gradient"
        found.append([action, log_prob, entropy, d.mode(), d.sharp(uniforms), *(p.grad for p in actor.values())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fixed", [False, True])
def test_unit_order_and_padding_do_not_matter(fixed: bool) -> None:
    network, batch = trained(entity(fixed_shape=fixed)), entity_obs(24)
    with torch.no_grad():
        whole = outputs(network, batch)
        moved = dict(batch)
        for narrow, wide in (("units", "unit_wide"), ("spells", "spell_wide"), ("projectiles", "projectile_wide")):
            # Holes too: empty rows land between full ones.
            order = torch.argsort(torch.rand(batch[narrow].shape[:2]), 1).unsqueeze(-1)
            moved[narrow] = batch[narrow].gather(1, order.expand_as(batch[narrow]))
            moved[wide] = batch[wide].gather(1, order.expand_as(batch[wide]))
        # Garbage in the position of an empty row is not read.
        moved["unit_wide"] = torch.where(moved["units"][..., :1] > 0, moved["unit_wide"], 777)
        for x, y in zip(whole, outputs(network, moved), strict=True):
            torch.testing.assert_close(x, y, atol=1e-5, rtol=1e-5)
        for i in (0, 7, 23):
            alone = outputs(network, {k: x[i : i + 1] for k, x in batch.items()})
            for x, y in zip(whole, alone, strict=True):
                torch.testing.assert_close(x[i : i + 1], y, atol=1e-5, rtol=1e-5)


def test_every_field_is_read() -> None:
    """Changing any one field of a row changes the output: no column group was forgotten."""
    network, batch = trained(entity()), entity_obs(16)
    with torch.no_grad():
        before = torch.cat([x.flatten() for x in outputs(network, batch)])
        for name, x in batch.items():
            if name == "action_mask":
                continue
            other = dict(batch)
            other[name] = torch.where(x > 0, (x.int() - 1).clamp(min=1), 0).to(x.dtype)
            after = torch.cat([y.flatten() for y in outputs(network, other)])
            assert not torch.allclose(before, after, atol=1e-6), name


def test_fixed_shape_traces_without_a_graph_break() -> None:
    network, batch = trained(entity(fixed_shape=True)), entity_obs(4)
    with torch.no_grad():
        whole = torch.compile(network, backend="eager", fullgraph=True)
        for x, y in zip(outputs(network, batch), outputs(whole, batch), strict=True):
            torch.testing.assert_close(x, y)


@pytest.mark.parametrize("fixed", [False, True])
def test_autocast_keeps_logits_and_value_float32(fixed: bool) -> None:
    network, batch = trained(entity(fixed_shape=fixed)), entity_obs(8)
    plain = outputs(network, batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = outputs(network, batch)
        sum(x.square().mean() for x in half).backward()
    for x, y in zip(plain, half, strict=True):
        assert y.dtype == torch.float32
        assert (x - y).abs().max() < 0.2 * x.abs().max()
    assert all(torch.isfinite(p.grad).all() for p in network.parameters())


def test_autocast_keeps_the_conv_network_float32() -> None:
    network = trained(ConvNetwork(SPATIAL_INPUTS))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert all(x.dtype == torch.float32 for x in outputs(network, spatial_obs(2)))


def test_weights_are_a_function_of_the_seed_alone() -> None:
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    a = build_network("entity", INPUTS, seed=3).state_dict()
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.rand(7)
    b = build_network("entity", INPUTS, seed=3).state_dict()
    c = build_network("entity", INPUTS, seed=4).state_dict()
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert not all(torch.equal(a[k], c[k]) for k in a)


def test_a_snapshot_leaves_the_critic_out() -> None:
    network = build_network("entity", INPUTS, seed=0)
    actor, critic = parameter_groups(network)
    assert set(critic) == {f"critic_{x}.{y}" for x in ("hidden", "out") for y in ("weight", "bias")}
    kept = actor_state_dict(network)
    assert set(kept) == set(network.state_dict()) - set(critic)
    assert set(actor) | set(critic) == set(dict(network.named_parameters()))
    other = build_network("entity", INPUTS, seed=9)
    other.load_state_dict(kept, strict=False)
    batch = entity_obs(3)
    with torch.no_grad():
        torch.testing.assert_close(other(batch)[0].all_tiles(), network(batch)[0].all_tiles())


@pytest.mark.parametrize("stride", [1, 2])
def test_conv_strides_and_buttons(stride: int) -> None:
    buttons = ActionLayout(buttons=2)
    inputs = Inputs(SPATIAL_INPUTS.layout, buttons, 145, 237)
    network = trained(ConvNetwork(inputs, channels=16, stride=stride))
    logits, value = network(spatial_obs(3))
    assert logits.choice.shape == (3, 7)
    assert logits.all_tiles().shape == (3, 4, 576)
    assert value.shape == (3,)
    assert EntityNetwork(Inputs(INPUTS.layout, buttons, 145, 237))(entity_obs(2))[0].choice.shape == (2, 7)


class Shaped(ActorCritic):
    """Returns zeros of the given shapes."""

    def __init__(self, inputs: Inputs, logits: tuple[int, ...], value: tuple[int, ...], kind: str = "float32") -> None:
        super().__init__()
        self.shapes, self.kind = (logits, value), kind

    def forward(self, obs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        logits, value = (torch.zeros(s, dtype=getattr(torch, self.kind)) for s in self.shapes)
        return logits, value


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"logits": (2, 7), "value": (2,)}, r"flat logits of shape \[batch, 7\], expected \[batch, 2305\]"),
        ({"logits": (2, 2305), "value": (2, 1)}, r"value of shape \[batch, 1\], expected \[batch\]"),
        ({"logits": (2305,), "value": (2,)}, r"flat logits of shape \[2305\], expected \[batch, 2305\]"),
        ({"logits": (2, 2305), "value": (2,), "kind": "int64"}, r"flat logits of dtype torch.int64"),
    ],
)
def test_a_wrong_shape_is_one_sentence(settings: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words) as error:
        build_network(part(Shaped, **settings), INPUTS, seed=0)
    assert "\n" not in str(error.value)


def test_a_part_that_does_not_fit_is_one_sentence() -> None:
    with pytest.raises(UserError, match="EntityNetwork reads the 'entities' row"):
        build_network("entity", SPATIAL_INPUTS, seed=0)
    with pytest.raises(UserError, match="ConvNetwork reads rows with 'spatial' planes"):
        build_network("conv", INPUTS, seed=0)
    with pytest.raises(UserError, match="needs a grid of even sides"):
        build_network("entity", Inputs(INPUTS.layout, ActionLayout(4, 31, 18), 145, 237), seed=0)
    with pytest.raises(UserError, match="did you mean 'width'"):
        build_network({"class_path": "entity", "init_args": {"widht": 32}}, INPUTS, seed=0)
    with pytest.raises(UserError, match="is no ActorCritic"):
        build_network("torch.nn.Identity", INPUTS, seed=0)
