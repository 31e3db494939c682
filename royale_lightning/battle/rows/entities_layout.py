"""The ``entities`` row: what a seat may fairly see, as tokens. Bytes and meanings, no code.

Positions are in the seat's own frame (its own king at low y), in steps of 16 subtiles (one tile is 1,125).
Ids are the engine's own plus one, so that 0 means empty. Numbers that can pass their byte are clipped.
"""

from __future__ import annotations

from ..actions import ActionLayout
from .layout import Field, RowLayout

#: Most units a row holds, crown towers included. 12 stand on the board on average and 31 were the most in
#: 12 eager random-deck battles; beyond the cap the units with the least hp are left out.
MAX_UNITS = 36
MAX_SPELLS = 8
MAX_PROJECTILES = 8

#: ``units``: one row per unit, the seat's own towers and units and the visible enemy ones.
UNIT_COLUMNS = (
    "type",  # unit type + 1; 0: no unit in this row
    "flags",  # bits: 0 own, 1 building, 2 king tower, 3 princess tower, 4 in the air, 5 deploying, 6 stunned, 7 pushed
    "status",  # bits: underground, invisible, hidden, evolved, hero, clone, ability windup, ability active
    "state",  # bits: 0 charged, 1 grounded, 2 raged, 3 slowed, 4 has a target, 5 targets a tower, 6 windup, 7 cooldown
    "deploy_ticks",
    "stun_ticks",
    "hp_fraction",  # of 255
    "radius",  # of 128 subtiles
    "shield",  # of 8 hp
    "facing_x",  # 128 + component / 2, own frame
    "facing_y",
    "target_dx",  # 128 + half tiles towards its target, own frame; 128 without a target
    "target_dy",
    "charge",  # of 4 permille
    "ability_ticks",
    "card",  # producing card + 1; 0 for a crown tower
)
#: ``unit_wide``: uint16 columns of the same rows.
UNIT_WIDE_COLUMNS = ("x", "y", "hp")

SPELL_COLUMNS = (
    "card",  # + 1; 0: no spell in this row
    "flags",  # bits: 0 own, 1-3 motion
    "delay_ticks",
    "progress",  # travelled / length of 255 (rolling), else ticks flown
)
#: The aim of an enemy spell is hidden: its columns repeat the spell's own place.
SPELL_WIDE_COLUMNS = ("x", "y", "aim_x", "aim_y")

PROJECTILE_COLUMNS = (
    "firer",  # card + 2; 1 a crown tower or unknown; 0: no projectile in this row
    "flags",  # bits: 0 own, 1 splash
    "target_dx",  # 128 + half tiles towards its aim, own frame
    "target_dy",
)
PROJECTILE_WIDE_COLUMNS = ("x", "y")

#: ``wide``: uint16 scalars.
WIDE = (
    "tick",
    "own_elixir",  # milli
    "enemy_elixir",  # milli, counted from what was seen (RoyaleGym's MatchMemory), never read
    "leaked",  # own elixir lost to a full bar, of 1/100
    "ticks_since_play",  # own
    "own_king_hp",
    "own_left_hp",
    "own_right_hp",
    "enemy_king_hp",
    "enemy_left_hp",
    "enemy_right_hp",
    "battle_ticks_left",  # of regulation, or of overtime once it runs
)
#: ``small``: uint8 scalars.
SMALL = (
    "overtime",
    "elixir_rate",
    "own_crowns",
    "enemy_crowns",
    "own_king_active",
    "enemy_king_active",
    "enemy_plays",
    "counts_exact",
    "next_card",  # card + 1
    "mirror_target",  # card + 1
    "units_left_out",
    "button_0",  # bits: 0 available, 1 spent; 255: no such button
    "button_1",
    "button_2",
)
#: ``hand``: uint8 ``[4, 4]``: card + 1, cost, bits (0 playable now, 1 evolved next), 0.
HAND_COLUMNS = ("card", "cost", "flags", "spare")
#: ``cycle``: uint8 ``[4]``, own cards behind the hand, next first, + 1; 0 not deduced yet.
#: ``enemy_recent``: uint8 ``[8]``, the enemy's last plays, newest first, + 1.
#: ``enemy_seen``: uint8 ``[8]``, the enemy's cards seen so far in ascending order, + 1.

ENTITIES = RowLayout(
    "entities/1",
    (
        Field("unit_wide", "uint16", (MAX_UNITS, len(UNIT_WIDE_COLUMNS))),
        Field("spell_wide", "uint16", (MAX_SPELLS, len(SPELL_WIDE_COLUMNS))),
        Field("projectile_wide", "uint16", (MAX_PROJECTILES, len(PROJECTILE_WIDE_COLUMNS))),
        Field("wide", "uint16", (len(WIDE),)),
        Field("units", "uint8", (MAX_UNITS, len(UNIT_COLUMNS))),
        Field("spells", "uint8", (MAX_SPELLS, len(SPELL_COLUMNS))),
        Field("projectiles", "uint8", (MAX_PROJECTILES, len(PROJECTILE_COLUMNS))),
        Field("small", "uint8", (len(SMALL),)),
        Field("hand", "uint8", (4, len(HAND_COLUMNS))),
        Field("cycle", "uint8", (4,)),
        Field("enemy_recent", "uint8", (8,)),
        Field("enemy_seen", "uint8", (8,)),
    ),
    ActionLayout().n_actions,
)
