"""Stacked frames: a seat's latest decisions, zeros before the first; the same from the heap and after a resume."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
import torch

from royale_lightning.battle.opponents import ACTING
from royale_lightning.battle.prepare import prepare
from royale_lightning.battle.round import CHOICE, RUNNING, Assignment, Round
from royale_lightning.battle.rows.layout import RowLayout
from royale_lightning.battle.rows.row_codecs import decode, pack_row
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.steps.arena import ArenaSettings, build_arena
from royale_lightning.battle.steps.sources import InlineSource
from royale_lightning.errors import UserError
from royale_lightning.ladder.matchmaker import MixMatchmaker
from royale_lightning.nn import build_network
from royale_lightning.nn.protocol import ActorCritic
from royale_lightning.nn.rows import unpack
from royale_lightning.rollout.collector import Collector, Rollout
from royale_lightning.rollout.data import inputs_of
from tests.support.rollouts import stacked_network as network_of

FRAMES, BATTLES = 3, 3


def spec_of(**settings: Any) -> BattleSpec:
    return BattleSpec(**{"frame_stack": FRAMES, "max_ticks": 500, **settings})


def frames_of(row: np.ndarray, layout: RowLayout) -> list[bytes]:
    return [f.tobytes() for f in row.reshape(layout.frames, -1)]


@pytest.mark.parametrize("observation", ["entities", "spatial"])
@pytest.mark.parametrize("arena", ["auto", "env"])
def test_a_row_holds_the_seats_last_decisions(observation: str, arena: str) -> None:
    spec = spec_of(observation=observation, arena=arena, max_ticks=320)
    layout = prepare(spec).row_layout
    assert layout.row_bytes == FRAMES * layout.single.row_bytes
    zero = bytes(layout.single.row_bytes)
    r = Round(2, layout.row_bytes)
    game = build_arena(spec, 0, 2, r, ArenaSettings(1, 0.3, 1))
    rng = np.random.default_rng(0)
    past = [deque([zero] * (FRAMES - 1), FRAMES - 1) for _ in range(4)]
    fresh = [Assignment(b, 0, ("learner", "scripted:push" if b else "learner"), b) for b in range(2)]
    checked = finals = 0
    for k in range(1, 90):
        game.advance(fresh)
        fresh = []
        for b in np.flatnonzero(r.end != RUNNING):
            for slot in (2 * b, 2 * b + 1):
                if r.final[slot]:
                    assert frames_of(r.final_rows[slot], layout)[:-1] == list(past[slot])
                    finals += 1
                past[slot].extend([zero] * (FRAMES - 1))
            fresh.append(Assignment(int(b), k, ("learner", "scripted:push" if b else "learner"), int(b) + 10 * k))
        for slot in np.flatnonzero(r.kind):
            seen = frames_of(r.rows[slot], layout)
            assert seen[:-1] == list(past[slot])
            assert seen[-1] != zero
            checked += 1
            if r.kind[slot] == CHOICE:
                past[slot].append(seen[-1])
                mask = np.flatnonzero(layout.unpack_mask(layout.views(r.rows[slot][None])["action_mask"][0]))
                r.action[slot] = rng.choice(mask[1:]) if rng.random() < 0.3 else 0
    game.close()
    assert checked > 60
    assert finals >= 3


def collector(spec: BattleSpec) -> Collector:
    source = InlineSource(spec, 0, BATTLES, ArenaSettings(1, 0.2, 1))
    return Collector(
        source, spec, MixMatchmaker(1, BATTLES, 0.5, 0, 0.5, ACTING), seed=1, first=0, rows=120, max_rounds=4000,
        stagger=True, count_forced=False, device=torch.device("cpu"),
    )


def whole(r: Rollout) -> torch.Tensor:
    return r.take(torch.arange(len(r.rows)))


def test_the_heap_gives_back_what_the_policy_saw() -> None:
    spec = spec_of()
    network, c = network_of(spec), collector(spec)
    seen: list[torch.Tensor] = []
    act = c._act

    def spy(policy: ActorCritic, rows: torch.Tensor, slots: np.ndarray) -> Any:
        seen.append(rows.clone())
        return act(policy, rows, slots)

    c._act = spy  # type: ignore[method-assign]
    for _ in range(3):
        seen.clear()
        r = c.collect(network, gamma=0.99)
        assert r.heap.shape[1] == prepare(spec).row_layout.single.row_bytes, "a frame is stored once"
        assert torch.equal(whole(r), torch.cat(seen))
        with torch.no_grad():
            _, value = network(unpack(whole(r), prepare(spec).row_layout))
        assert torch.allclose(value, r.value)
        assert r.episodes
    c.source.close()


def test_frames_go_on_after_a_resume() -> None:
    spec = spec_of()
    network, c = network_of(spec), collector(spec)
    c.collect(network, gamma=0.99)
    state = c.state_dict()
    on = c.collect(network, gamma=0.99)
    rows, values = whole(on).clone(), on.cut_value.clone()
    c.source.close()
    again = collector(spec)
    again.load_state_dict(state)
    other = again.collect(network, gamma=0.99)
    assert torch.equal(rows, whole(other))
    assert torch.equal(values, other.cut_value)
    again.source.close()


def test_both_decoders_stack_alike() -> None:
    layout = prepare(spec_of(observation="spatial")).row_layout
    assert [f.shape for f in layout.fields] == [(FRAMES, 20, 32, 18), (FRAMES, 1783)]
    assert layout.digest not in (layout.single.digest, layout.single.stacked(2).digest)
    rows = np.zeros((4, layout.row_bytes), dtype=np.uint8)
    mask = np.ones(layout.n_actions)
    obs = {"spatial": np.ones((20, 32, 18), np.float32), "vector": np.ones(1783, np.float32)}
    pack_row(layout, obs, mask, rows[2])
    ours, theirs = decode(rows, layout), unpack(torch.from_numpy(rows), layout)
    for key, value in ours.items():
        assert theirs[key].numpy().tobytes() == value.tobytes(), key
    assert ours["action_mask"][2].all()
    assert not ours["action_mask"][1][1:].any()


def test_one_frame_is_the_row_itself_and_mistakes_are_named() -> None:
    one = BattleSpec()
    assert prepare(one).row_layout.stacked(1) is prepare(one).row_layout
    with pytest.raises(UserError, match="frame_stack is 0"):
        BattleSpec(frame_stack=0)
    with pytest.raises(UserError, match="frame_stack is 3"):
        build_network({"class_path": "entity", "init_args": {}}, inputs_of(spec_of()), seed=1)
