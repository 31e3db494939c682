"""The compiled scanner against RoyaleGym's own decoder."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
import royalesim
from royalegym.rust_engine import RustEngine

from royale_lightning.battle.engine import state_json as w
from royale_lightning.errors import UserError
from tests.support.battles import play_states


def check(state, js: bytes) -> None:
    row = np.zeros(w.STATE, dtype=np.int32)
    w.read_state(np.frombuffer(js, np.uint8), row)
    G, P, E, S, J = w.g_of(row), w.p_of(row), w.e_of(row), w.s_of(row), w.j_of(row)
    assert G[: w.G_ENTITIES].tolist() == [
        state.tick, state.tick_ms, state.regular_ticks, state.overtime_ticks, state.elixir_rate, state.overtime,
        state.game_over, state.winner,
    ]
    assert G[w.G_ENTITIES] == len(state.entities)
    assert G[w.G_OVERFLOW] == 0
    for got, e in zip(E, state.entities, strict=False):
        members = {m for name, _ in e.buffs for m in name.split("|")}
        want = [
            e.uid, e.team, e.kind, e.card_id, e.tower_slot, e.x, e.y, e.hp, e.max_hp, e.radius, e.flying,
            e.deploy_ticks, e.stun_ticks, e.knockback_ticks, *(e.footprint or (-1,) * 4), e.target_uid,
            e.attack_phase, *e.facing, e.shield, ("Rage" in members) + 2 * ("IceWizardSlowDown" in members),
            e.status_flags, e.level, e.mount_uid, e.charge, e.dest_x, e.dest_y, e.ability_ticks, e.unit_type,
        ]
        assert got.tolist() == want
    for got, s in zip(S, state.spells, strict=False):
        assert tuple(got.tolist()) == msgspec.structs.astuple(s)
    for got, j in zip(J, state.projectiles, strict=False):
        assert tuple(got.tolist()) == msgspec.structs.astuple(j)
    for got, p in zip(P, state.players, strict=True):
        assert got[: w.P_ABILITIES].tolist() == [
            p.elixir_milli, p.mirror_target, p.pending_cost, p.next_card, p.crowns, p.king_active
        ]
        assert got[w.P_HAND : w.P_HAND + 4].tolist() == p.hand
        assert got[w.P_COSTS : w.P_COSTS + 4].tolist() == p.hand_costs
        assert got[w.P_TOWER_HP : w.P_TOWER_HP + 3].tolist() == p.tower_hp
        assert got[w.P_TOWER_MAX : w.P_TOWER_MAX + 3].tolist() == p.tower_max_hp
        assert got[w.P_DECK : w.P_DECK + 8].tolist() == p.deck
        assert got[w.P_ABILITIES] == len(p.abilities)
        for k, a in enumerate(p.abilities):
            assert got[w.P_ABILITY + 5 * k : w.P_ABILITY + 5 * k + 5].tolist() == a


def test_every_field_of_played_states(engine: RustEngine) -> None:
    seen = 0
    for state, battle in play_states(engine, 3, seed=1):
        check(state, battle.state_json())
        seen += 1
    assert seen > 500


def test_unknown_keys_are_stepped_over(engine: RustEngine) -> None:
    state, battle = next(play_states(engine, 1, seed=2))
    raw = msgspec.json.decode(battle.state_json())
    raw = {"new": {"a": [1, {"b": "],}"}], "c": None}, **raw, "last": "x\\\"y"}
    raw["players"][0]["extra"] = [[1, 2], {"deep": []}]
    raw["entities"][0].append([1, [2]])
    check(state, msgspec.json.encode(raw))


def test_a_column_order_we_do_not_know_is_refused() -> None:
    w.check_engine_columns(royalesim)

    class Other:
        ENTITY_FIELDS = ("uid", "kind", "team")

    with pytest.raises(UserError, match="ENTITY_FIELDS"):
        w.check_engine_columns(Other)
