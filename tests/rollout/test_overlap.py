"""Collecting one rollout ahead: the same rollouts, one update old, and exact to resume."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from royale_lightning.battle.opponents import ACTING
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.steps.arena import ArenaSettings
from royale_lightning.battle.steps.sources import InlineSource
from royale_lightning.cli import console as cli
from royale_lightning.cli.trainer_defaults import defaults
from royale_lightning.errors import UserError
from royale_lightning.ladder.matchmaker import MixMatchmaker
from royale_lightning.metrics.declarations import undeclared
from royale_lightning.nn import build_network
from royale_lightning.nn.protocol import ActorCritic
from royale_lightning.ppo.module import SelfPlayModule
from royale_lightning.ppo.settings import PPOSettings
from royale_lightning.rollout.collector import Cancelled, Collector
from royale_lightning.rollout.data import SelfPlayData, data_of, inputs_of
from royale_lightning.rollout.minibatch import Staging
from royale_lightning.rollout.overlap import Ahead
from royale_lightning.rollout.proximal import MOST_WEIGHT
from royale_lightning.rollout.settings import RolloutSettings
from tests.support.rollouts import same

BATTLES = 4
SPEC = BattleSpec(max_ticks=600)
DEBUG = Path(__file__).parents[2] / "configs" / "debug.yaml"


def network(seed: int = 1) -> ActorCritic:
    part = {"class_path": "entity", "init_args": {"width": 16, "layers": 1, "heads": 2}}
    return build_network(part, inputs_of(SPEC), seed).eval()


@pytest.fixture
def collector() -> Collector:
    return Collector(
        InlineSource(SPEC, 0, BATTLES, ArenaSettings(1, 0.05, 1)), SPEC,
        MixMatchmaker(1, BATTLES, 0.5, 0, 0.5, ACTING), seed=1, first=0, rows=80, max_rounds=2000, stagger=True,
        count_forced=False, device=torch.device("cpu"),
    )


def test_what_the_learner_becomes_meanwhile_changes_nothing(collector: Collector) -> None:
    ahead, learner = Ahead(collector), network()
    got = []
    for gamma in (0.99, 0.98):
        ahead.start(learner, gamma)
        # Without gradients, as the copy: torch takes another kernel where weights ask for some, a last bit apart.
        acted = copy.deepcopy(learner).requires_grad_(False)
        with torch.no_grad():
            for p in learner.parameters():
                p.add_(0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(3)))
        got.append((*ahead.take(), acted))
    ahead.close()
    assert [gamma for _, gamma, _ in got] == [0.99, 0.98]
    collector.source.close()
    plain = Collector(
        InlineSource(SPEC, 0, BATTLES, ArenaSettings(1, 0.05, 1)), SPEC,
        MixMatchmaker(1, BATTLES, 0.5, 0, 0.5, ACTING), seed=1, first=0, rows=80, max_rounds=2000, stagger=True,
        count_forced=False, device=torch.device("cpu"),
    )
    want = []
    for _, gamma, acted in got:
        r = plain.collect(acted, gamma)
        r.rows = r.rows.clone()
        want.append(r)
    plain.source.close()
    assert same([r for r, _, _ in got], want)


def test_a_rollout_is_not_overwritten_by_the_next(collector: Collector) -> None:
    ahead, learner = Ahead(collector), network()
    ahead.start(learner, 0.99)
    first, _ = ahead.take()
    kept = first.take(torch.arange(80)).clone()
    ahead.start(learner, 0.99)
    ahead.take()
    assert torch.equal(first.take(torch.arange(80)), kept)
    ahead.close()


def test_the_rollout_in_the_making_is_played_again_from_its_state(collector: Collector) -> None:
    ahead, learner = Ahead(collector), network()
    ahead.start(learner, 0.99)
    ahead.take()
    ahead.start(network(2), 0.98)
    state, weights = json.loads(json.dumps(ahead.state_dict())), ahead.policy_state()
    want, _ = ahead.take()
    ahead.close()
    again = Collector(
        InlineSource(SPEC, 0, BATTLES, ArenaSettings(1, 0.05, 1)), SPEC,
        MixMatchmaker(1, BATTLES, 0.5, 0, 0.5, ACTING), seed=1, first=0, rows=80, max_rounds=2000, stagger=True,
        count_forced=False, device=torch.device("cpu"),
    )
    resumed = Ahead(again)
    resumed.load_state_dict(state, weights, network())
    assert resumed.started
    got, gamma = resumed.take()
    resumed.close()
    assert gamma == 0.98
    assert same([got], [want])


def test_closing_does_not_wait_for_a_rollout(collector: Collector) -> None:
    collector.rows = 10_000_000
    collector.max_rounds = 10_000_000
    collector._capacity = 20_000_000  # never reached
    ahead = Ahead(collector)
    ahead.start(network(), 0.99)
    ahead.close()
    with pytest.raises(Cancelled):
        collector.collect(network())


def test_what_stops_a_collection_reaches_the_learner(collector: Collector) -> None:
    collector.max_rounds = 1
    ahead = Ahead(collector)
    ahead.start(network(), 0.99)
    with pytest.raises(UserError, match="took 1 rounds"):
        ahead.take()
    ahead.close()


OVERLAP = ["--data.rollout.overlap", "true", "--data.rollout.rows_per_iteration", "64"]


@pytest.mark.slow
def test_a_run_with_overlap_resumes_exactly(tmp_path: Path) -> None:
    out = tmp_path / "verdict.json"
    assert cli.main(["verify-resume", "--config", str(DEBUG), "--json", str(out), *OVERLAP]) == 0
    assert json.loads(out.read_text())["result"]["equal"]


def test_a_run_with_overlap_is_one_update_behind(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert cli.main(["fit", "--config", str(DEBUG), "--run_dir", str(run), *OVERLAP]) == 0
    rows = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    assert [r["rollout/policy_lag"] for r in rows] == [0, 1]
    assert all("time/wait" in r and "time/step" not in r for r in rows)
    assert undeclared(rows[1]) == []
    assert "ppo/behaviour_weight" not in rows[0], "the first rollout is played by who learns from it"
    assert rows[1]["ppo/behaviour_weight"] == pytest.approx(1.0, abs=0.2)
    assert rows[1]["ppo/behaviour_weight"] < rows[1]["ppo/behaviour_weight_largest"]
    parts = ("wait", "collect_other", "update", "measure", "callbacks", "checkpoint", "rest")
    for r in rows:
        assert sum(r.get(f"time/{p}", 0.0) for p in parts) == pytest.approx(r["time/iteration"])


class Begins(Callback):
    """Notes how each iteration's update begins."""

    def __init__(self) -> None:
        self.ratio_errors: list[float] = []
        self.kls: list[float] = []
        self.weights: list[torch.Tensor | float] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx == 0:
            assert isinstance(pl_module, SelfPlayModule)
            assert pl_module._ratio_error is not None
            self.ratio_errors.append(float(pl_module._ratio_error))
            self.kls.append(pl_module.epoch_kl())
            self.weights.append(batch.weight)


def test_an_update_begins_at_the_policy_it_finds_and_not_at_the_older_one_that_acted(tmp_path: Path) -> None:
    begins = Begins()
    trainer = Trainer(**defaults(
        default_root_dir=str(tmp_path), max_epochs=4, accelerator="cpu", enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, callbacks=[begins],
    ))
    part = {"class_path": "entity", "init_args": {"width": 16, "layers": 1, "heads": 2}}
    rollout = RolloutSettings(BATTLES, 128, 64, threads=1, source="inline", overlap=True)
    # Large steps: against the copy that acted, rows would be beyond the clip at once.
    learner = SelfPlayModule(part, PPOSettings(learning_rate=5e-3, kl_limit=None))
    trainer.fit(learner, SelfPlayData(SPEC, rollout))
    assert begins.weights[0] == 1.0
    for weight in begins.weights[1:]:
        assert isinstance(weight, torch.Tensor)
        assert 0.2 < float((weight - 1.0).abs().max()) <= MOST_WEIGHT - 1.0
    assert max(begins.ratio_errors) < 1e-4
    assert max(begins.kls) < 1e-6
    assert learner.ratio_tolerance == 1e-3


def test_starts_in_the_middle_of_battles_and_overlap_refuse_each_other(tmp_path: Path) -> None:
    class Starts:
        def begin(self, battle: int, ordinal: int, players: tuple[str, str]) -> None:
            raise AssertionError

    data = SelfPlayData(SPEC, RolloutSettings(battles=2, rows_per_iteration=64, minibatch_rows=64, overlap=True))

    class Elsewhere(Callback):
        def setup(self, trainer: Trainer, pl_module: object, stage: str) -> None:
            data_of(trainer).register(starts=Starts())  # type: ignore[arg-type]

    trainer = Trainer(**defaults(
        default_root_dir=str(tmp_path), enable_progress_bar=False, accelerator="cpu", callbacks=[Elsewhere()]
    ))
    with pytest.raises(UserError, match=r"rollout\.overlap is true"):
        trainer.fit(SelfPlayModule(), data)


@pytest.mark.parametrize("pinned", [False, True])
def test_staged_rows_are_the_rows(pinned: bool) -> None:
    rows = np.random.default_rng(1).integers(0, 256, (6, 40), dtype=np.uint8)
    staging = Staging(6, 40, torch.device("cpu"), pinned)
    for at in ([0, 3, 5], [1], [5, 4, 3, 2, 1, 0]):
        assert np.array_equal(staging.put(rows, np.array(at)).numpy(), rows[at])
