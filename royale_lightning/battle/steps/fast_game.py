"""A battle on the raw engine, its state in arrays, one compiled call a game step."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from gymnasium.utils import seeding
from royalegym.protocol import MatchSetup

from ...errors import UserError
from ..actions import NOOP, ActionLayout
from ..dealing import expect
from ..decks import DECK_SIZE
from ..engine.engine import decode_state, new_battle, reset_battle, shared_engine
from ..engine.legality import bodies_hash, find, seat_slots
from ..engine.memory import MEMORY, observe, seed_memory
from ..engine.state_json import (
    G_OVER,
    G_OVERFLOW,
    G_TICK,
    G_TICK_MS,
    G_WINNER,
    P_CROWNS,
    P_DECK,
    P_ELIXIR,
    P_HAND,
    P_NEXT,
    P_TOWER_HP,
    P_TOWER_MAX,
    STATE,
    g_of,
    p_of,
    read_state,
)
from ..engine.tables import C_CARDS, C_FROZEN, C_FULL, C_LAW, C_LOCKOUT, C_PRICE, Tables
from ..jit import njit
from ..prepare import prepare
from ..rewards import COEFFICIENTS, linear_terms, pay, start_of
from ..round import HAND, Assignment, Situation
from ..rows.default_view import DefaultView
from ..rows.encoders import make_encoder
from ..rows.entities import HALF_TILE, HEIGHT, WIDTH
from ..rows.hidden import write_hidden
from ..rows.layout import Loss
from ..save_state import Refused, SaveState, check_hash, rest_of_limit
from ..spec import BattleSpec
from .game import Game, Outcome

#: int64 workspace of a game: both memories, both seats' grid keys, both seats' found grids.
_B_KEYS, _B_FOUND = 2 * MEMORY, 2 * MEMORY + 8
_INTS = _B_FOUND + 8
#: float64 workspace: state before the step, rewards, coefficients.
_F_BEFORE, _F_REWARD, _F_COEF = 0, 4, 6
_FLOATS = _F_COEF + COEFFICIENTS
#: The default action space, the only one it plays.
GRID = ActionLayout()
BLUE_CHOICE, RED_CHOICE, UNKNOWN_BLUE, UNKNOWN_RED, OVER, BLUE_FULL, RED_FULL = 1, 2, 4, 8, 16, 32, 64


@njit
def _look(row: Any, ints: Any, const: Any, table_keys: Any, table_grid: Any, grids_any: Any) -> int:
    """Which seats have a choice, from the grids; unknown grids are named."""
    n = const[C_CARDS]
    keys = ints[_B_KEYS : _B_KEYS + 8].view(np.uint64)
    classes = const[C_PRICE + n :].reshape((n, 2))
    flags = 0
    bodies = np.uint64(0)
    for team in range(2):
        k = keys[4 * team : 4 * team + 4]
        if bodies == 0:
            bodies = bodies_hash(row)
        found = ints[_B_FOUND + 4 * team : _B_FOUND + 4 * team + 4]
        found[:] = -1
        if seat_slots(row, team, const[C_LOCKOUT], const[C_FROZEN] == 1, classes, bodies, k) == 0:
            continue
        playable = find(k, table_keys, table_grid, grids_any, found)
        if playable < 0:
            flags |= UNKNOWN_BLUE << team
        elif playable > 0:
            flags |= BLUE_CHOICE << team
    return flags


@njit(nogil=True)
def _after(js: Any, row: Any, ints: Any, floats: Any, const: Any, watched: int, table_keys: Any, table_grid: Any,
           grids_any: Any) -> int:
    """Everything a game step needs once the engine has moved: state, memories, rewards, choices."""
    read_state(js, row)
    G, P = g_of(row), p_of(row)
    law = const[C_LAW : C_LAW + 8]
    price = const[C_PRICE : C_PRICE + const[C_CARDS]]
    for team in range(2):
        if (watched >> team) & 1:
            observe(ints[team * MEMORY : (team + 1) * MEMORY], team, G, P, law, price)
    coef, reward = floats[_F_COEF : _F_COEF + COEFFICIENTS], floats[_F_REWARD : _F_REWARD + 2]
    pay(P, G, floats[_F_BEFORE : _F_BEFORE + 4], coef, reward)
    most = const[C_FULL]
    full = (BLUE_FULL if P[0, P_ELIXIR] >= most else 0) | (RED_FULL if P[1, P_ELIXIR] >= most else 0)
    if G[G_OVER]:
        return OVER | full
    return full | _look(row, ints, const, table_keys, table_grid, grids_any)


@njit(nogil=True)
def _begin(js: Any, row: Any, ints: Any, const: Any) -> None:
    read_state(js, row)
    law = const[C_LAW : C_LAW + 8]
    for team in range(2):
        seed_memory(ints[team * MEMORY : (team + 1) * MEMORY], team, g_of(row), p_of(row), law)


@njit
def _offers(row: Any, seat: int, ints: Any, grids_any: Any, out: Any) -> None:
    found = ints[_B_FOUND + 4 * seat : _B_FOUND + 4 * seat + 4]
    hand = p_of(row)[seat]
    for k in range(4):
        out[k] = hand[P_HAND + k] if found[k] >= 0 and grids_any[found[k]] else -1


@njit
def _hidden(row: Any, seat: int, opponent: int, out: Any) -> None:
    P = p_of(row)
    other = P[1 - seat]
    write_hidden(
        out, seat, P[:, P_DECK : P_DECK + DECK_SIZE], other[P_HAND : P_HAND + HAND], other[P_NEXT], other[P_ELIXIR],
        opponent,
    )


def _place(action: int) -> tuple[int, int, int]:
    """Hand slot of an action that plays a card, and the middle of its tile in the own frame, in subtiles."""
    slot, tile = divmod(action - 1, GRID.tiles)
    y, x = divmod(tile, GRID.tiles_x)
    return slot, 2 * HALF_TILE * x + HALF_TILE, 2 * HALF_TILE * y + HALF_TILE


class FastGame(Game):
    """A battle of the batched arena: a compiled row encoder, linear rewards, the default action space."""

    def __init__(self, spec: BattleSpec, tables: Tables) -> None:
        self.spec = spec
        self.tables = tables
        self.encoder = make_encoder(prepare(spec).shipped_observation, tables)
        self.cards = shared_engine().cards()
        self.battle = new_battle()
        self.start = spec.make_start()
        self._reward = spec.make_reward()
        self.ticks_a_step = spec.decision_ms // 50
        self.row = np.zeros(STATE, dtype=np.int32)
        self.ints = np.zeros(_INTS, dtype=np.int64)
        self.floats = np.zeros(_FLOATS, dtype=np.float64)
        self.set_gamma(1.0)
        self.choice = [False, False]
        self.reward = [0.0, 0.0]
        self.full = [False, False]
        self.ended = self.truncated = False
        self.refused = 0

    def set_gamma(self, gamma: float) -> None:
        if hasattr(self._reward, "gamma"):
            self._reward.gamma = gamma
        coefficients = linear_terms(self._reward)
        assert coefficients is not None
        self.floats[_F_COEF : _F_COEF + COEFFICIENTS] = coefficients

    def reset(self, assignment: Assignment, watched: tuple[bool, bool]) -> None:
        # RoyaleGym's own order of draws: the mutator's, then the engine's seed (ClashParallelEnv.reset).
        rng, _ = seeding.np_random(assignment.seed)
        expect(self.start, assignment.deal)
        setup = self.start.build(rng, self.cards)
        engine_seed = int(rng.integers(0, 2**63 - 1))
        if not isinstance(setup, MatchSetup):
            raise UserError(
                "battle.start gave a Snapshot, which the batched arena does not load; set battle.arena to env"
            )
        if setup.forms is not None and any(any(f) for f in setup.forms):
            raise UserError(
                "battle.start gave decks with evolved or hero forms, which the batched arena does not play; set "
                "battle.arena to env"
            )
        reset_battle(self.battle, engine_seed, setup)
        self.limit = self.spec.max_ticks
        self._watched = int(watched[0]) | int(watched[1]) << 1
        self.row[:] = 0
        _begin(self._json(), self.row, self.ints, self.tables.const)
        self._start()

    def _start(self) -> None:
        start_of(p_of(self.row), self.floats[_F_COEF : _F_COEF + COEFFICIENTS], self.floats[_F_BEFORE : _F_BEFORE + 4])
        self.start_tick = int(g_of(self.row)[G_TICK])
        self.ended = self.truncated = False
        self.refused = 0
        self._settle(_look(self.row, self.ints, self.tables.const, *self.tables.cache.table))

    def _json(self) -> np.ndarray:
        return np.frombuffer(self.battle.state_json(), np.uint8)

    def _settle(self, flags: int) -> None:
        """Learn unknown grids until none is left, then read off the choices."""
        c = self.tables.cache
        while flags & (UNKNOWN_BLUE | UNKNOWN_RED):
            state = decode_state(self.battle)
            for team in (0, 1):
                if flags & (UNKNOWN_BLUE << team):
                    keys = self.ints[_B_KEYS + 4 * team : _B_KEYS + 4 * team + 4].view(np.uint64)
                    c.learn(self.battle, state, team, keys)
            flags = _look(self.row, self.ints, self.tables.const, *c.table)
        self.choice[0] = flags & BLUE_CHOICE != 0
        self.choice[1] = flags & RED_CHOICE != 0

    def step(self, blue: int, red: int) -> None:
        commands = []
        if blue:
            slot, x, y = _place(blue)
            commands.append((0, slot, x, y))
        if red:
            slot, x, y = _place(red)
            commands.append((1, slot, WIDTH - x, HEIGHT - y))
        for result in self.battle.step(commands, self.ticks_a_step):
            if result[1]:
                self.refused += 1
        flags = _after(self._json(), self.row, self.ints, self.floats, self.tables.const, self._watched,
                       *self.tables.cache.table)
        self.reward[0], self.reward[1] = self.floats[_F_REWARD : _F_REWARD + 2].tolist()
        self.full[0] = flags & BLUE_FULL != 0
        self.full[1] = flags & RED_FULL != 0
        if flags & OVER:
            self.ended = True
            self.choice[0] = self.choice[1] = False
            # No grid is looked up at the end: a final observation offers the no-op alone.
            self.ints[_B_FOUND : _B_FOUND + 8] = -1
            return
        self._settle(flags)
        if self.limit is not None and self.row[G_TICK] - self.start_tick >= self.limit:
            self.truncated = True

    def encode(self, seat: int, out: np.ndarray) -> None:
        memory = self.ints[seat * MEMORY : (seat + 1) * MEMORY]
        found = self.ints[_B_FOUND + 4 * seat : _B_FOUND + 4 * seat + 4]
        left_out = self.encoder.write(out, seat, self.row, memory, found, self.battle)
        if left_out:
            self.loss = self.loss.plus(Loss(left_out, 0))

    def scripted_view(self, seat: int, whole: bool = False) -> tuple[dict[str, Any], np.ndarray]:
        found = self.ints[_B_FOUND + 4 * seat : _B_FOUND + 4 * seat + 4]
        mask = np.zeros(GRID.n_actions, dtype=np.int8)
        mask[NOOP] = 1
        planes = mask[1:].reshape(GRID.slots, GRID.tiles_y, GRID.tiles_x)
        for k in range(GRID.slots):
            if found[k] >= 0:
                planes[k] = np.unpackbits(self.tables.cache.grids[found[k]]).reshape(planes[k].shape)
        obs = {"action_mask": mask, "mask_planes": planes}
        if whole:
            memory = self.ints[seat * MEMORY : (seat + 1) * MEMORY]
            obs |= self._default_view.of(seat, self.row, memory, found, self.battle)
        return obs, mask

    @cached_property
    def _default_view(self) -> DefaultView:
        return DefaultView(self.tables)

    def offers(self, seat: int, out: np.ndarray) -> None:
        _offers(self.row, seat, self.ints, self.tables.cache.table[2], out)

    def hidden(self, seat: int, opponent: int, out: np.ndarray) -> None:
        _hidden(self.row, seat, opponent, out)

    def outcome(self) -> Outcome:
        G, P = g_of(self.row), p_of(self.row)
        hp = P[:, P_TOWER_HP : P_TOWER_HP + 3] / np.maximum(1, P[:, P_TOWER_MAX : P_TOWER_MAX + 3])
        left = hp.mean(axis=1)
        return Outcome(
            int(G[G_WINNER]) if self.ended else -1,
            int(G[G_TICK]) - self.start_tick,
            (int(P[0, P_CROWNS]), int(P[1, P_CROWNS])),
            (float(left[0]), float(left[1])),
        )

    def situation(self) -> Situation:
        G, P = g_of(self.row), p_of(self.row)
        hp = (P[:, P_TOWER_HP : P_TOWER_HP + 3] / np.maximum(1, P[:, P_TOWER_MAX : P_TOWER_MAX + 3])).sum(axis=1)
        tick = int(G[G_TICK])
        return Situation(
            tick, tick * int(G[G_TICK_MS]) / 1000, (int(P[0, P_CROWNS]), int(P[1, P_CROWNS])),
            (float(hp[0]), float(hp[1])),
        )

    def save(self) -> SaveState:
        assert self._watched == 3, "an unwatched seat has no memory to save"
        assert not self.ended, "a battle that is over cannot go on"
        tick = int(g_of(self.row)[G_TICK])
        return SaveState(
            engine=bytes(self.battle.save()),
            memory=self.tables.memories.write(self.ints[: 2 * MEMORY], decode_state(self.battle)),
            history=(b"", b""),
            parts={},
            tick=tick,
            state_hash=self.state_hash(),
            max_ticks=rest_of_limit(self.limit, tick - self.start_tick),
        )

    def load(self, state: SaveState, assignment: Assignment, watched: tuple[bool, bool]) -> None:
        if state.parts:
            raise Refused(f"a save state holds the state of {sorted(state.parts)}, which no part here takes")
        try:
            self.battle.load(state.engine)
            check_hash(self.state_hash(), state)
            decoded = decode_state(self.battle)
            if decoded.game_over or any(any(p.forms) or p.pending for p in decoded.players):
                raise ValueError("the battle is over, has evolved or hero forms, or delays commands")
            self.tables.memories.read(state.memory, decoded, self.ints[: 2 * MEMORY])
        except Refused:
            raise
        except ValueError as exc:
            raise Refused(f"a save state of tick {state.tick} does not load here: {exc}") from exc
        self.limit = state.max_ticks
        self._watched = int(watched[0]) | int(watched[1]) << 1
        self.row[:] = 0
        read_state(self._json(), self.row)
        self._start()

    def state_hash(self) -> int:
        return int(self.battle.state_hash())

    @property
    def overflow(self) -> int:
        """Entities the arrays could not hold since the reset; 0 on every board seen so far."""
        return int(g_of(self.row)[G_OVERFLOW])
