"""The engine's ceiling: recorded battles stepped on raw engine battles, their state read and decoded, nothing else.

The decode is the leanest msgspec gives while still reading what an observation needs (``royalegym.md`` 7.1): the
columns of an entity as an array up to its status bits, those no observation reads kept as raw bytes, keys that are not
named skipped. Python front ends that keep the engine's one-call-per-step interface cannot be faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from gymnasium.utils import seeding
from msgspec import Raw
from royalegym.protocol import MatchSetup

from ...battle.engine.engine import new_battle, reset_battle, shared_engine
from ...battle.round import Assignment
from ...battle.spec import BattleSpec
from .battles import Turn


class Entity(msgspec.Struct, array_like=True):
    """Columns of a unit or building that an observation reads; the rest raw or cut off."""

    uid: Raw
    team: int
    kind: int
    card_id: int
    tower_slot: int
    x: int
    y: int
    hp: int
    max_hp: int
    radius: int
    flying: bool
    deploy_ticks: int
    stun_ticks: int
    knockback_ticks: Raw
    footprint: Raw
    target_uid: Raw
    attack_phase: Raw
    facing: Raw
    shield: int
    buffs: Raw
    status_flags: int


class Player(msgspec.Struct):
    team: int
    elixir_milli: int
    hand: list[int]
    hand_costs: list[int]
    mirror_target: int
    next_card: int
    crowns: int
    tower_hp: list[int]
    king_active: bool


class State(msgspec.Struct):
    tick: int
    elixir_rate: int
    overtime: bool
    game_over: bool
    winner: int
    players: list[Player]
    entities: list[Entity]
    spells: Raw
    projectiles: Raw


class Start(msgspec.Struct):
    """How a battle begins: the arguments of the engine's reset."""

    seed: int
    setup: MatchSetup


#: Battle, start or None, commands of the first game step, game steps.
Order = tuple[Any, Start | None, list[tuple[int, int, int, int]], int]


class BareBattles:
    """Raw battles that repeat what an arena's battles did.

    Args:
        spec: what they play.
        battles: how many.
    """

    def __init__(self, spec: BattleSpec, battles: int) -> None:
        self.battles = [new_battle() for _ in range(battles)]
        self.cards = shared_engine().cards()
        self.ticks = spec.decision_ms // 50
        self._start = spec.make_start()
        self._parser = spec.make_actions()
        self._parser.bind(shared_engine())
        self._decode = msgspec.json.Decoder(State).decode

    def _begin(self, a: Assignment) -> Start:
        # RoyaleGym's own order of draws (ClashParallelEnv.reset).
        rng, _ = seeding.np_random(a.seed)
        setup = self._start.build(rng, self.cards)
        assert isinstance(setup, MatchSetup)
        return Start(int(rng.integers(0, 2**63 - 1)), setup)

    def _command(self, seat: int, action: int) -> list[tuple[int, int, int, int]]:
        unread: Any = None
        c = self._parser.parse(action, unread, seat)
        return [] if c is None else [(c.team, c.hand_slot, c.x, c.y)]

    def orders(self, turns: Sequence[Turn]) -> list[Order]:
        """Recorded rounds as orders, battle by battle in the arena's order. Not for timing."""
        out: list[Order] = []
        for t in turns:
            starts = {a.battle: self._begin(a) for a in t.assignments}
            for b, battle in enumerate(self.battles):
                commands = [c for seat in (0, 1) for c in self._command(seat, int(t.action[2 * b + seat]))]
                out.append((battle, starts.get(b), commands, int(t.duration[b])))
        return out

    def run(self, orders: Sequence[Order]) -> None:
        """Play them."""
        decode, ticks = self._decode, self.ticks
        for battle, start, commands, steps in orders:
            if start is not None:
                reset_battle(battle, start.seed, start.setup)
            for _ in range(steps):
                battle.step(commands, ticks)
                decode(battle.state_json())
                commands = []

    def run_threads(self, orders: Sequence[Order], pool: ThreadPoolExecutor, threads: int) -> None:
        """Play them on ``threads`` threads, each with battles of its own and no barrier between rounds.

        What this brings over :meth:`run` is what the machine has to give: no arena can scale better.
        """
        number = {id(b): i for i, b in enumerate(self.battles)}
        parts: list[list[Order]] = [[] for _ in range(threads)]
        for order in orders:
            parts[number[id(order[0])] % threads].append(order)
        for f in [pool.submit(self.run, part) for part in parts]:
            f.result()

    def hashes(self) -> list[int]:
        """Where every battle stands."""
        return [int(b.state_hash()) for b in self.battles]
