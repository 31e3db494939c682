"""Fairness and symmetry of the entities observation."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from royalegym.action import TileActionParser
from royalegym.protocol import BattleState, mirror_state
from royalegym.rust_engine import RustEngine

from royale_lightning.battle.engine.state_json import MAX_ENTITIES
from royale_lightning.battle.rows.entities import EntitiesObsBuilder
from royale_lightning.battle.rows.entities_layout import ENTITIES, MAX_UNITS
from tests.support.battles import play_states


def builder(engine: RustEngine) -> EntitiesObsBuilder:
    parser = TileActionParser()
    parser.bind(engine)
    b = EntitiesObsBuilder()
    b.bind(engine, parser)
    return b


def look(b: EntitiesObsBuilder, state: BattleState, team: int) -> dict[str, Any]:
    mask = np.ones(2305, dtype=np.int8)
    return {k: v.copy() for k, v in b.build(state, team, mask).items()}


def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return all(np.array_equal(a[f.name], b[f.name]) for f in ENTITIES.fields)


def swap(state: BattleState, team: int, **changes: Any) -> BattleState:
    players = list(state.players)
    players[team] = msgspec.structs.replace(players[team], **changes)
    return msgspec.structs.replace(state, players=players)


def test_what_the_enemy_hides_moves_nothing(engine: RustEngine) -> None:
    b = builder(engine)
    checked = 0
    for i, (state, _) in enumerate(play_states(engine, 1, seed=11)):
        if i == 0:
            b.reset(state)
        for team in (0, 1):
            before = look(b, state, team)
            foe = state.players[1 - team]
            # The memory has seen this tick, so what follows can only come from the state itself.
            for other in (
                swap(state, 1 - team, hand=foe.hand[::-1], hand_costs=[1, 2, 3, 4], next_card=(foe.next_card + 1) % 99),
                swap(state, 1 - team, elixir_milli=(foe.elixir_milli + 3000) % 10_000),
                swap(state, 1 - team, deck=foe.deck[::-1], mirror_target=3, evo=[[5, 1, 1, 2]]),
                msgspec.structs.replace(
                    state,
                    spells=[
                        msgspec.structs.replace(s, aim_x=s.aim_x // 2, aim_y=s.aim_y // 2) if s.team != team else s
                        for s in state.spells
                    ],
                ),
            ):
                assert equal(before, look(b, other, team))
                checked += 1
    assert checked > 500


def test_hidden_enemy_units_are_absent_and_own_ones_are_not(engine: RustEngine) -> None:
    b = builder(engine)
    state = [s for s, _ in play_states(engine, 1, seed=12, limit=120)][-1]
    b.reset(state)
    units = [e for e in state.entities if e.kind == 0]
    assert units
    for bit in (1, 2, 4):
        hidden = [msgspec.structs.replace(e, status_flags=bit) if e.kind == 0 else e for e in state.entities]
        changed = msgspec.structs.replace(state, entities=hidden)
        for team in (0, 1):
            seen = look(b, changed, team)["units"]
            types = sorted(int(t) - 1 for t in seen[:, 0] if t)
            want = sorted(e.unit_type for e in changed.entities if e.kind != 0 or e.team == team)
            assert types == want


def test_the_order_of_the_engines_lists_is_not_seen(engine: RustEngine) -> None:
    b = builder(engine)
    rng = np.random.default_rng(0)
    for i, (state, _) in enumerate(play_states(engine, 1, seed=13)):
        if i == 0:
            b.reset(state)
        shuffled = msgspec.structs.replace(
            state,
            entities=[state.entities[k] for k in rng.permutation(len(state.entities))],
            spells=state.spells[::-1],
            projectiles=state.projectiles[::-1],
        )
        for team in (0, 1):
            assert equal(look(b, state, team), look(b, shuffled, team))


def test_the_seats_see_a_mirrored_battle_alike(engine: RustEngine) -> None:
    arena = engine.arena()
    b = builder(engine)
    # mirror_state does not rotate facing, destinations and projectiles, and nobody may target a mirrored unit's uid
    # differently: those are left out of the comparison.
    for i, (state, _) in enumerate(play_states(engine, 1, seed=14)):
        plain = msgspec.structs.replace(
            state, projectiles=[], entities=[msgspec.structs.replace(e, facing=(0, 0)) for e in state.entities]
        )
        if i == 0:
            b.reset(plain)
        if i % 7:
            continue
        blue = look(b, plain, 0)
        red = look(b, mirror_state(arena, plain), 1)
        for f in ("units", "unit_wide", "spells", "spell_wide"):
            assert np.array_equal(blue[f], red[f]), f


def test_too_many_units_leave_out_the_frailest(engine: RustEngine) -> None:
    b = builder(engine)
    state = [s for s, _ in play_states(engine, 1, seed=15, limit=100) if any(e.kind == 0 for e in s.entities)][-1]
    b.reset(state)
    unit = next(e for e in state.entities if e.kind == 0)
    extra = [
        msgspec.structs.replace(unit, uid=1000 + k, hp=10 + k, max_hp=500, x=9000 + 1000 * k) for k in range(60)
    ]
    crowd = msgspec.structs.replace(state, entities=[*state.entities, *extra])
    assert len(crowd.entities) < MAX_ENTITIES
    seen = look(b, crowd, 0)
    assert (seen["units"][:, 0] > 0).sum() == MAX_UNITS
    assert seen["small"][10] == len(crowd.entities) - MAX_UNITS
    kept = sorted(e.hp for e in crowd.entities if e.kind < 2)[-(MAX_UNITS - 6) :]
    shown = sorted(int(h) for h, u in zip(seen["unit_wide"][:, 2], seen["units"], strict=True) if not u[1] & 12)
    assert shown == kept
