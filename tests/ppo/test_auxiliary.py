"""Terms beside PPO's: closed forms, their share of the gradient, and a run that begins with another's actor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, kl_divergence

from royale_lightning.battle.actions import ActionLayout
from royale_lightning.battle.prepare import prepare
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.steps.arena import ArenaSettings
from royale_lightning.battle.steps.sources import InlineSource
from royale_lightning.bots.bot import Bot
from royale_lightning.errors import UserError
from royale_lightning.ladder.matchmaker import MixMatchmaker
from royale_lightning.nn import actor_state_dict, build_network
from royale_lightning.nn.distribution import MaskedCategorical
from royale_lightning.nn.protocol import ActorCritic, StagedLogits
from royale_lightning.nn.rows import unpack
from royale_lightning.parts import Part
from royale_lightning.ppo.auxiliary import AuxiliaryLoss, Step, build_terms, gradient_shares
from royale_lightning.ppo.imitation import SelfImitation, smoothed_cross_entropy
from royale_lightning.ppo.reference import KLToReference
from royale_lightning.ppo.reference import kl_divergence as ours
from royale_lightning.ppo.warm_start import load_actor
from royale_lightning.rollout.collector import Collector
from royale_lightning.rollout.data import inputs_of
from royale_lightning.rollout.minibatch import Minibatch
from royale_lightning.rollout.plan import Demonstrations, RunPlan

ACTIONS = ActionLayout(slots=2, tiles_y=2, tiles_x=2, buttons=1)
SPEC = BattleSpec(max_ticks=400)
TINY = Part("royale_lightning.nn.EntityNetwork", {"width": 16, "layers": 1})


def policies(seed: int, rows: int = 5) -> tuple[MaskedCategorical, Categorical, Tensor]:
    """The same distribution twice: ours, and torch's over the flat actions."""
    g = torch.Generator().manual_seed(seed)
    mask = torch.rand((rows, ACTIONS.n_actions), generator=torch.Generator().manual_seed(0)) < 0.6
    mask[:, 0] = True
    logits = StagedLogits(torch.randn((rows, ACTIONS.n_choices), generator=g), torch.randn((rows, 2, 4), generator=g))
    p = MaskedCategorical(logits, mask, ACTIONS)
    flat = p.flat_log_probs().exp()
    return p, Categorical(probs=flat), mask


def test_kl_is_that_of_the_flat_distributions() -> None:
    (p, flat_p, mask), (q, flat_q, _) = policies(1), policies(2)
    assert not mask.all(), "illegal actions must not count"
    assert torch.allclose(ours(p, q), kl_divergence(flat_p, flat_q), atol=1e-5)
    assert torch.allclose(ours(p, p), torch.zeros(5), atol=1e-6)


def test_smoothing_spreads_over_the_legal_actions() -> None:
    p, flat, mask = policies(3)
    action = torch.tensor([int(m.nonzero()[-1]) for m in mask])
    plain = smoothed_cross_entropy(p, action, 0.0)
    assert torch.allclose(plain, -flat.log_prob(action), atol=1e-5)
    target = torch.where(mask, 0.2 / mask.sum(-1, keepdim=True), 0.0)
    target[torch.arange(5), action] += 0.8
    expected = -(target * torch.where(mask, flat.probs.log(), 0.0)).sum(-1)
    assert torch.allclose(smoothed_cross_entropy(p, action, 0.2), expected, atol=1e-5)


def test_shares_are_norms_over_their_sum() -> None:
    w = nn.Parameter(torch.tensor([3.0, 4.0]))
    unused = nn.Parameter(torch.zeros(2))
    shares = gradient_shares([w.sum() * 2, (w**2).sum() / 2, torch.zeros(())], [w, unused])
    a, b = 2 * math.sqrt(2), 5.0
    assert torch.allclose(shares, torch.tensor([a, b, 0.0]) / (a + b))
    assert w.grad is None, "asking for the shares steps nothing"


@pytest.fixture(scope="module")
def network() -> ActorCritic:
    return build_network(TINY.as_dict(), inputs_of(SPEC), seed=1)


@pytest.fixture(scope="module")
def batch(network: ActorCritic) -> Minibatch:
    c = Collector(
        InlineSource(SPEC, 0, 2, ArenaSettings(1, 0.1, 1)), SPEC, MixMatchmaker(1, 2, 1.0, 0, 0, []), seed=1, first=0,
        rows=40, max_rounds=500, stagger=False, count_forced=False, device=torch.device("cpu"),
    )
    r = c.collect(network.eval())
    c.source.close()
    zero = torch.zeros(len(r.rows))
    return Minibatch(r.rows.clone(), r.action, r.log_prob, zero, zero, r.value, r.choice, 0, 0)


def step_of(network: ActorCritic, batch: Minibatch) -> Step:
    obs = unpack(batch.rows, prepare(SPEC).row_layout)
    logits, value = network(obs)
    return Step(batch, obs, MaskedCategorical(logits, obs["action_mask"], prepare(SPEC).action_layout), value, network)


@dataclass
class Shown:
    shown: Demonstrations | None

    def demonstrations(self, rng: np.random.Generator, rows: int) -> Demonstrations | None:
        return self.shown


@dataclass
class Archive:
    """A data module whose plan has an archive that holds one battle."""

    shown: Demonstrations | None
    seed: int = 1
    iteration: int = 0
    trainer: Any = None

    @property
    def plan(self) -> RunPlan:
        return RunPlan(demonstrations=Shown(self.shown))


def test_a_reference_holds_the_policy_until_it_is_the_reference(
    network: ActorCritic, batch: Minibatch, tmp_path: Path
) -> None:
    Bot.of(network, TINY, SPEC).save(tmp_path / "bot")
    term = KLToReference(inputs_of(SPEC), str(tmp_path / "bot"))
    term.take_bots({"bot": Bot.load(tmp_path / "bot")})
    loss, figures = term(step_of(network, batch))
    assert abs(loss.item()) < 1e-5
    other = build_network(TINY.as_dict(), inputs_of(SPEC), seed=2)
    with torch.no_grad():  # fresh policies are all alike: their heads begin at zero
        for x in other.parameters():
            x += 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    loss, figures = term(step_of(other, batch))
    assert loss.item() > 1e-3
    assert torch.equal(figures["kl"], loss.detach())
    loss.backward()
    assert any(p.grad is not None and p.grad.any() for p in other.parameters())
    assert not term.state_dict(), "the reference lies in its own file"
    assert not list(term.parameters())
    other_rows = KLToReference(inputs_of(BattleSpec(observation="spatial")), str(tmp_path / "bot"))
    with pytest.raises(UserError, match=r"reads observation entities/1 .* and the run spatial"):
        other_rows.take_bots({"bot": Bot.load(tmp_path / "bot")})


def test_imitation_makes_what_was_shown_likelier(batch: Minibatch) -> None:
    learner = build_network(TINY.as_dict(), inputs_of(SPEC), seed=3)
    choice = batch.choice.numpy()
    shown = Demonstrations(batch.rows.numpy()[choice], batch.action.numpy()[choice])
    term = SelfImitation(inputs_of(SPEC), smoothing=0.0)
    term.begin(Archive(shown))
    optimizer = torch.optim.Adam(learner.parameters(), 1e-2)
    said = []
    for _ in range(8):
        loss, figures = term(step_of(learner, batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        said.append(float(figures["log_prob"]))
        assert figures["rows_shown"] == len(shown.action)
        assert loss.item() == pytest.approx(-said[-1], abs=1e-4)
    assert said[-1] > said[0] + 0.5
    term.begin(Archive(None))
    loss, figures = term(step_of(learner, batch))
    assert (loss.item(), float(figures["rows_shown"])) == (0.0, 0.0)


def test_each_rank_is_shown_rows_of_its_own(network: ActorCritic, batch: Minibatch) -> None:
    draws: list[float] = []

    term = SelfImitation(inputs_of(SPEC))
    for rank in (None, 0, 1, 2):
        trainer = None if rank is None else SimpleNamespace(global_rank=rank)
        term.begin(SimpleNamespace(
            plan=SimpleNamespace(
                demonstrations=SimpleNamespace(demonstrations=lambda rng, rows: draws.append(rng.random()))
            ),
            seed=1, iteration=3, trainer=trainer,
        ))
        term(step_of(network, batch))
    assert draws[0] == draws[1], "one rank draws as a run without ranks"
    assert len(set(draws)) == 3


def test_a_reference_counts_by_the_ranks_choice_rows(network: ActorCritic, batch: Minibatch, tmp_path: Path) -> None:
    """Two ranks with different numbers of choice rows: the mean of their terms is the term of all rows."""
    Bot.of(network, TINY, SPEC).save(tmp_path / "bot")
    term = KLToReference(inputs_of(SPEC), str(tmp_path / "bot"))
    term.take_bots({"bot": Bot.load(tmp_path / "bot")})
    other = build_network(TINY.as_dict(), inputs_of(SPEC), seed=2)
    with torch.no_grad():
        for x in other.parameters():
            x += 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    order = torch.argsort(batch.choice.int(), stable=True)[: len(batch) // 2 * 2]

    def rows(at: Tensor) -> Minibatch:
        return Minibatch(*(getattr(batch, n)[at] for n in (
            "rows", "action", "log_prob", "advantage", "target", "value", "choice")), 0, 0)

    halves = [rows(at) for at in order.chunk(2)]
    counts = [int(h.choice.sum()) for h in halves]
    assert counts[0] < counts[1]
    for half, n in zip(halves, counts, strict=True):
        half.actor_weight = torch.tensor(2 * n / sum(counts))
    ranks = torch.stack([term(step_of(other, half))[0] for half in halves]).mean()
    torch.testing.assert_close(ranks, term(step_of(other, rows(order)))[0])


def test_imitation_without_an_archive_is_one_sentence() -> None:
    class Bare:
        plan = RunPlan()

    with pytest.raises(UserError, match="without the callback RouteCurriculum none are archived"):
        SelfImitation(inputs_of(SPEC)).begin(Bare())


class Half(AuxiliaryLoss):
    def forward(self, step: Step) -> tuple[Tensor, dict[str, Tensor]]:
        return step.value.mean(), {}


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"a b": Part(f"{__name__}.Half")}, r"model\.auxiliary\.a b: a term is named by letters"),
        ({"keys": Part(f"{__name__}.Half")}, "not like a method"),
        ({"own": Part(f"{__name__}.Archive", {"shown": None})}, "does not take|is no AuxiliaryLoss"),
    ],
)
def test_what_is_no_term_is_one_sentence(parts: dict[str, Part], text: str) -> None:
    with pytest.raises(UserError, match=text):
        build_terms(parts, inputs_of(SPEC))


def test_terms_keep_their_names_and_schedules() -> None:
    part = Part(f"{__name__}.Half", {"weight": {"linear": [1.0, 0.0]}})
    terms: Any = build_terms({"one": part, "two": Part(f"{__name__}.Half")}, inputs_of(SPEC))
    assert list(terms) == ["one", "two"]
    assert (terms["one"].schedule(0.25), terms["two"].schedule(0.25)) == (0.75, 1.0)


def test_a_warm_start_takes_the_actor_alone(network: ActorCritic, tmp_path: Path) -> None:
    Bot.of(network, TINY, SPEC).save(tmp_path / "bot")
    other = build_network(TINY.as_dict(), inputs_of(SPEC), seed=9)
    critic = {k: x.clone() for k, x in other.state_dict().items() if k not in actor_state_dict(other)}
    assert critic, "the network has a critic of its own"
    load_actor(other, str(tmp_path / "bot"), inputs_of(SPEC))
    assert all(torch.equal(x, actor_state_dict(network)[k]) for k, x in actor_state_dict(other).items())
    assert all(torch.equal(x, other.state_dict()[k]) for k, x in critic.items())
    wide = build_network({**TINY.as_dict(), "init_args": {"width": 32, "layers": 1}}, inputs_of(SPEC), seed=1)
    with pytest.raises(UserError, match=r"model\.init_from: .* of shape"):
        load_actor(wide, str(tmp_path / "bot"), inputs_of(SPEC))
    with pytest.raises(UserError, match=r"model\.init_from: .* rows of layout"):
        load_actor(other, str(tmp_path / "bot"), inputs_of(BattleSpec(observation="spatial")))
