"""Episodes that begin in the middle of a battle: the same bytes wherever they step, and after a resume."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from royale_lightning.battle.round import BUCKET, POOL, TRUE, TRUE_START, EpisodeRecord, Start
from royale_lightning.battle.save_state import SaveStateCodec
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.stamp import stamp_of
from royale_lightning.battle.steps.arena import ArenaSettings, build_games
from royale_lightning.battle.steps.processes import ProcessSource
from royale_lightning.battle.steps.replay import Replay
from royale_lightning.battle.steps.sources import InlineSource, RolloutSource
from royale_lightning.ladder.matchmaker import MixMatchmaker
from royale_lightning.nn import build_network
from royale_lightning.nn.protocol import ActorCritic
from royale_lightning.rollout.collector import Collector, Rollout
from royale_lightning.rollout.data import inputs_of
from tests.support.rollouts import stacked_network

BATTLES = 4
SPEC = BattleSpec(max_ticks=500)
STACKED = replace(SPEC, frame_stack=3)


class Every:
    """Every second episode of a battle begins from one of these starts."""

    def __init__(self, starts: list[Start]) -> None:
        self.starts = starts

    def begin(self, battle: int, ordinal: int, players: tuple[str, str]) -> tuple[tuple[str, str], Start]:
        if not self.starts or ordinal % 2 == 0:
            return players, TRUE_START
        start = self.starts[(battle + ordinal) % len(self.starts)]
        return ("learner", "scripted:patient") if start.seat == 0 else ("scripted:patient", "learner"), start


def network_of(spec: BattleSpec) -> ActorCritic:
    if spec.frame_stack > 1:
        return stacked_network(spec)
    tiny = {"class_path": "entity", "init_args": {"width": 16, "layers": 1}}
    return build_network(tiny, inputs_of(spec), seed=1).eval()


def collector(source: RolloutSource, spec: BattleSpec, starts: list[Start]) -> Collector:
    return Collector(
        source, spec, MixMatchmaker(1, BATTLES, 0.5, 0, 0.5, ["push"]), seed=1, first=0, rows=110, max_rounds=2000,
        stagger=False, count_forced=False, device=torch.device("cpu"), starts=Every(starts),
    )


def inline(spec: BattleSpec, threads: int = 1) -> InlineSource:
    return InlineSource(spec, 0, BATTLES, ArenaSettings(1, 0.05, threads))


def mint(spec: BattleSpec, records: list[EpisodeRecord]) -> list[Start]:
    """A start for each seat in the middle of each recorded battle."""
    (game,), codec, out = build_games(spec, 1), SaveStateCodec(stamp_of(spec, "")), []
    for i, record in enumerate(records):
        replay = Replay(game, codec, record)
        for m in replay.moments():
            if m.game_step == record.game_steps // 2 + i:
                data = replay.save()[1]
        out.append(Start((POOL, BUCKET)[i % 2], f"digest {i}", data, i % 2, f"point {i}"))
    return out


@pytest.fixture(scope="module")
def played() -> dict[BattleSpec, tuple[ActorCritic, list[Start]]]:
    out = {}
    for spec in (SPEC, STACKED):
        network = network_of(spec)
        c = collector(inline(spec), spec, [])
        first = c.collect(network, gamma=0.998)
        c.source.close()
        out[spec] = (network, mint(spec, first.episodes[:3]))
    return out


def tensors(r: Rollout) -> list[torch.Tensor]:
    rows = r.take(torch.arange(len(r.rows)))
    return [rows, r.action, r.log_prob, r.value, r.choice, r.cut_value, *vars(r.cells).values()]


def same(a: list[Rollout], b: list[Rollout]) -> bool:
    return all(
        torch.equal(x, y) for p, q in zip(a, b, strict=True) for x, y in zip(tensors(p), tensors(q), strict=True)
    ) and [(r.episodes, r.start_steps) for r in a] == [(r.episodes, r.start_steps) for r in b]


@pytest.mark.parametrize("spec", [SPEC, STACKED])
def test_restarted_episodes_are_the_same_wherever_they_step(spec: BattleSpec, played: dict) -> None:
    network, starts = played[spec]

    def collect(source: RolloutSource) -> list[Rollout]:
        c = collector(source, spec, starts)
        rollouts = [c.collect(network, gamma=0.998) for _ in range(2)]
        rollouts = [replace(r, rows=r.rows.clone(), heap=r.heap.clone()) for r in rollouts[-1:]]
        source.close()
        return rollouts

    reference = collect(inline(spec))
    kinds = {e.start.kind for e in reference[0].episodes}
    assert {TRUE, POOL, BUCKET} <= kinds
    restarted = [e for e in reference[0].episodes if not e.from_true_start]
    assert all(e.start in starts for e in restarted), "a record names its start, bytes included"
    assert all(e.players[e.start.seat] == "learner" and e.ticks < 500 for e in restarted)
    assert sum(reference[0].start_steps.values()) == reference[0].game_steps
    assert same(reference, collect(inline(spec, 3)))
    if spec is SPEC:
        assert same(reference, collect(ProcessSource(spec, 0, BATTLES, ArenaSettings(1, 0.05, 1), 2)))


def test_a_restarted_battle_in_flight_is_resumed(played: dict) -> None:
    network, starts = played[SPEC]
    straight = collector(inline(SPEC), SPEC, starts)
    straight.collect(network, gamma=0.998)
    state = straight.state_dict()
    assert any(b["assignment"]["start"]["kind"] != TRUE for b in state["battles"])
    reference = straight.collect(network, gamma=0.998)
    resumed = collector(inline(SPEC), SPEC, starts)
    resumed.load_state_dict(state)
    assert same([reference], [resumed.collect(network, gamma=0.998)])
