"""Inline, threads and worker processes give the same rollout, byte for byte."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from royale_lightning.battle.opponents import ACTING
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.steps.arena import ArenaSettings
from royale_lightning.battle.steps.processes import ProcessSource
from royale_lightning.battle.steps.sources import InlineSource, RolloutSource
from royale_lightning.errors import UserError
from royale_lightning.ladder.matchmaker import MixMatchmaker
from royale_lightning.nn import build_network
from royale_lightning.nn.protocol import ActorCritic
from royale_lightning.parts import part
from royale_lightning.rollout.collector import Collector, Rollout
from royale_lightning.rollout.data import inputs_of
from tests.support.rollouts import same

BATTLES = 6


@pytest.fixture(scope="module")
def network() -> ActorCritic:
    net = build_network(
        {"class_path": "entity", "init_args": {"width": 16, "layers": 1}}, inputs_of(BattleSpec()), seed=1
    )
    return net.eval()


def collect(source: RolloutSource, network: ActorCritic, spec: BattleSpec, rollouts: int = 2) -> list[Rollout]:
    collector = Collector(
        source, spec, MixMatchmaker(1, BATTLES, 0.5, 0, 0.5, ACTING), seed=1, first=0, rows=150, max_rounds=2000,
        stagger=True, count_forced=False, device=torch.device("cpu"),
    )
    out = []
    for _ in range(rollouts):
        r = collector.collect(network, gamma=0.998)
        r.rows = r.rows.clone()
        out.append(r)
    source.close()
    return out


def test_threads_and_processes_change_nothing(network: ActorCritic) -> None:
    spec = BattleSpec(deck="random", max_ticks=900)
    reference = collect(InlineSource(spec, 0, BATTLES, ArenaSettings(1, 0.05, 1)), network, spec)
    assert sum(len(r.episodes) for r in reference) > 0
    threads = collect(InlineSource(spec, 0, BATTLES, ArenaSettings(1, 0.05, 3)), network, spec)
    assert same(reference, threads)
    for workers in (1, 2):
        source = ProcessSource(spec, 0, BATTLES, ArenaSettings(1, 0.05, 1), workers)
        assert same(reference, collect(source, network, spec)), f"{workers} workers"


def test_a_worker_does_not_import_torch() -> None:
    script = (
        "import sys, royale_lightning.battle.steps.worker\n"
        "from royale_lightning.battle.prepare import validate\n"
        "from royale_lightning.battle.spec import BattleSpec\n"
        "validate(BattleSpec())\n"
        "import royale_lightning.battle.steps.fast_game, royale_lightning.battle.steps.env_arena\n"
        "bad = [m for m in ('torch', 'lightning', 'wandb') if m in sys.modules]\n"
        "sys.exit(f'imported {bad}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Here:
    pass


def test_a_class_of_the_main_script_cannot_go_to_a_process() -> None:
    made = part(Here)
    made["class_path"] = "__main__.Here"
    with pytest.raises(UserError, match=r"battle\.reward is __main__\.Here.*rollout\.source to inline"):
        ProcessSource(BattleSpec(reward=made), 0, 2, ArenaSettings(), 1)


@pytest.mark.parametrize(
    ("settings", "kind", "text"),
    [
        ({"deck": [*"ABCDEFGH"]}, UserError, "which is no card"),
        ({"start": "royalegym.StateMutator"}, Exception, "StateMutator"),
    ],
)
def test_an_error_in_a_worker_arrives(settings: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        ProcessSource(BattleSpec(**settings), 0, 2, ArenaSettings(), 1)


@pytest.mark.parametrize("arena", ["auto", "env"])
def test_saved_battles_go_on_byte_for_byte(network: ActorCritic, arena: str) -> None:
    spec = BattleSpec(deck="random", arena=arena, reward="potential")

    def make(source: RolloutSource) -> Collector:
        return Collector(
            source, spec, MixMatchmaker(1, 4, 0.5, 0, 0.5, ["random", "patient"]), seed=1, first=0, rows=80,
            max_rounds=2000, stagger=True, count_forced=False, device=torch.device("cpu"),
        )

    straight = make(InlineSource(spec, 0, 4, ArenaSettings(1, 0.05, 1)))
    straight.collect(network, gamma=0.998)
    state = straight.state_dict()
    reference = straight.collect(network, gamma=0.998)
    sources: list[RolloutSource] = [InlineSource(spec, 0, 4, ArenaSettings(1, 0.05, 1))]
    if arena == "auto":
        sources.append(ProcessSource(spec, 0, 4, ArenaSettings(1, 0.05, 1), 2))
    for source in sources:
        resumed = make(source)
        resumed.load_state_dict(state)
        assert same([reference], [resumed.collect(network, gamma=0.998)])
        source.close()
    state["battles"][0]["state_hash"] ^= 1
    other = make(InlineSource(spec, 0, 4, ArenaSettings(1, 0.05, 1)))
    with pytest.raises(UserError, match="does not replay"):
        other.load_state_dict(state)
