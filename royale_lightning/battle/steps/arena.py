"""Many battles in rounds: reset, advance to the next choice, encode. The same loop for every kind of game."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...errors import UserError
from ..opponents import make_opponent, reads_observation
from ..players import LEARNER, is_scripted, short_name
from ..prepare import prepare
from ..round import (
    CHOICE,
    COURSE_STEPS,
    FORCED,
    IDLE,
    RUNNING,
    TERMINATED,
    TRUE,
    TRUE_START,
    TRUNCATED,
    Assignment,
    EpisodeRecord,
    Round,
    SavedBattle,
    SeatCounters,
    Situation,
    Start,
)
from ..rows.hidden import opponent_id
from ..rows.layout import EXACT, Loss
from ..save_state import Refused, SaveStateCodec
from ..spec import BattleSpec
from ..stamp import stamp_of
from ..streams import generator, uniforms
from .frame_history import StackedGame
from .game import Game

#: The player whose decisions are stored. Any other name that is not scripted is a policy too, and only acts.
#: Uniform draws of a battle's episode are made in blocks of this many game steps.
_BLOCK = 64


@dataclass
class ArenaSettings:
    """How an arena plays, beside what it plays.

    Args:
        seed: of the named streams (forced rows, staggered starts).
        forced_share: share of forced decisions of learner seats that are stored as value-only rows.
        threads: stepping threads; the engine frees the interpreter while it steps.
        evaluation: scripted opponents draw as in ``royalegym.evaluate`` (from ``default_rng(2 * seed + seat)``), and
            a battle that ended rests until it is given another assignment.
    """

    seed: int = 1
    forced_share: float = 0.05
    threads: int = 1
    evaluation: bool = False


@dataclass
class _Seat:
    """One seat of a running episode."""

    player: str
    opponent: Any = None
    rng: np.random.Generator | None = None
    counted: SeatCounters = field(default_factory=SeatCounters)


@dataclass
class _Episode:
    assignment: Assignment
    seats: tuple[_Seat, _Seat]
    discount: float = 1.0
    game_step: int = 0
    start: Start = TRUE_START
    commands: list[tuple[int, int, int]] = field(default_factory=list)
    course: list[tuple[int, Situation]] = field(default_factory=list)
    forced_draws: np.ndarray | None = None


class Arena:
    """``len(games)`` battles that advance in rounds.

    Args:
        games: one per battle.
        first: global id of the first battle; battle ``first + i`` is game ``i``.
        round_: the block to fill, over exactly these battles.
        settings: see :class:`ArenaSettings`.
        codec: reads the save states that episodes begin from.

    Per round: write ``round_.action`` for every slot of kind CHOICE, call :meth:`advance` with an assignment for
    every battle that ended, read the block. Nothing depends on the number of threads.
    """

    def __init__(
        self, games: Sequence[Game], first: int, round_: Round, settings: ArenaSettings, codec: SaveStateCodec
    ) -> None:
        self.games = list(games)
        self.first = first
        self.round = round_
        self.settings = settings
        self.codec = codec
        self.gamma = 1.0
        self._refused = 0
        self._episodes: list[_Episode | None] = [None] * len(self.games)
        # A thread without a battle would cost its start in every round.
        self._threads = min(settings.threads, len(self.games))
        self._pool = ThreadPoolExecutor(self._threads, "arena") if self._threads > 1 else None

    def set_gamma(self, gamma: float) -> None:
        """Discount of the coming rounds, per game step."""
        self.gamma = gamma
        for g in self.games:
            g.set_gamma(gamma)

    def advance(self, assignments: Iterable[Assignment]) -> None:
        """Play every battle up to its next decision or end, and fill the round block."""
        fresh = {a.battle - self.first: a for a in assignments}
        self.round.episodes = []
        todo = iter(range(len(self.games)))
        records: list[EpisodeRecord] = []

        def work() -> None:
            for b in todo:  # next() on a range iterator is atomic under the interpreter lock
                record = self._play(b, fresh.get(b))
                if record is not None:
                    records.append(record)

        if self._pool is None:
            work()
        else:
            for f in [self._pool.submit(work) for _ in range(self._threads)]:
                f.result()
        records.sort(key=lambda r: r.battle)
        self.round.episodes = records

    def observe(self, slots: Iterable[int]) -> None:
        """Encode slots of running battles as they stand, choice or not, into their rows of the round block.

        Args:
            slots: ``2 * i + seat`` of game ``i``.
        """
        for slot in slots:
            b, seat = divmod(int(slot), 2)
            self.games[b].encode(seat, self.round.rows[slot])
            e = self._episodes[b]
            if e is not None:
                self._hide(b, e, seat, self.round.hidden[slot])

    @property
    def refused(self) -> int:
        """Actions the engine refused so far, in ended and running battles."""
        running = (g.refused for g, e in zip(self.games, self._episodes, strict=True) if e is not None)
        return self._refused + sum(running)

    @property
    def loss(self) -> Loss:
        """Numbers that the rows written so far could not hold exactly."""
        total = EXACT
        for g in self.games:
            total = total.plus(g.loss)
        return total

    def save(self) -> list[SavedBattle]:
        """The battles in flight, for :meth:`restore`."""
        return [
            SavedBattle(
                e.assignment, e.game_step, list(e.commands), [copy(s.counted) for s in e.seats], e.discount,
                game.state_hash(),
            )
            for e, game in zip(self._episodes, self.games, strict=True)
            if e is not None
        ]

    def restore(self, saved: Sequence[SavedBattle]) -> None:
        """Play saved battles up to where they stood and write their rows, as if they had never stopped.

        Raises:
            UserError: a battle went another way than when it was saved.
        """
        for s in saved:
            b = s.assignment.battle - self.first
            e = self._begin(b, s.assignment)
            game = self.games[b]
            played = {(step, seat): action for step, seat, action in s.commands}
            while e.game_step < s.game_step and not (game.ended or game.truncated):
                acts = [0, 0]
                for seat in (0, 1):
                    if game.choice[seat]:
                        live = e.seats[seat].opponent is not None
                        acts[seat] = self._scripted(game, e, seat) if live else played.get((e.game_step, seat), 0)
                self._note_course(game, e)
                game.step(acts[0], acts[1])
                e.game_step += 1
            if e.game_step != s.game_step or game.state_hash() != s.state_hash:
                raise UserError(
                    f"battle {s.assignment.battle} of the checkpoint does not replay to the state it was saved in: the "
                    "engine, an opponent or a component has changed since; resume with the versions that saved it"
                )
            e.commands, e.discount = list(s.commands), s.discount
            for one, counted in zip(e.seats, s.seats, strict=True):
                one.counted = copy(counted)
            r = self.round
            r.end[b], r.ordinal[b], r.game_step[b] = RUNNING, s.assignment.ordinal, e.game_step
            self._stops(b, e)

    @staticmethod
    def _note_course(game: Game, e: _Episode) -> None:
        if e.assignment.keep_commands and e.game_step % COURSE_STEPS == 0:
            e.course.append((e.game_step, game.situation()))

    @staticmethod
    def _scripted(game: Game, e: _Episode, seat: int) -> int:
        s = e.seats[seat]
        view, mask = game.scripted_view(seat, reads_observation(s.player))
        chosen = s.opponent.act(view, mask, s.rng)
        try:
            action = operator.index(chosen)
        except TypeError:
            action = -1
        if not (0 <= action < len(mask) and mask[action]):
            raise UserError(
                f"opponent {short_name(s.player)} chose {chosen!r} at game step {e.game_step}; act() must "
                "return the index of an action that its mask allows"
            )
        return action

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    # ---- one battle ------------------------------------------------------------------------------------------
    def _begin(self, b: int, a: Assignment) -> _Episode:
        seats = tuple(_Seat(p) for p in a.players)
        watched = []
        for seat, s in enumerate(seats):
            if is_scripted(s.player):
                s.opponent = make_opponent(s.player)
                if self.settings.evaluation:
                    s.rng = np.random.default_rng(2 * a.seed + seat)
                else:
                    s.rng = generator(self.settings.seed, "opponent", a.battle, a.ordinal, seat)
            watched.append(s.opponent is None or reads_observation(s.player))
        e = _Episode(a, (seats[0], seats[1]))
        game = self.games[b]
        e.start = self._load(game, a, (watched[0], watched[1]))
        self._episodes[b] = e
        if a.stagger:
            rng = generator(self.settings.seed, "stagger", a.battle, a.ordinal)
            for _ in range(a.stagger):
                acts = [self._random(game, seat, rng) for seat in (0, 1)]
                game.step(*acts)
                e.game_step += 1
                if game.ended or game.truncated:
                    break
        return e

    def _load(self, game: Game, a: Assignment, watched: tuple[bool, bool]) -> Start:
        """Begin where the assignment says, and return where that was."""
        if a.start.state:
            try:
                game.load(self.codec.unpack(a.start.state), a, watched)
                return replace(a.start, state=b"")
            except Refused as why:
                # Nothing is ever played wrongly: the battle begins at its true start, and its record tells.
                warnings.warn(f"battle {a.battle} begins at its true start: {why}", stacklevel=2)
        game.reset(a, watched)
        return replace(a.start, kind=TRUE, state=b"") if a.start.state else a.start

    @staticmethod
    def _random(game: Game, seat: int, rng: np.random.Generator) -> int:
        """Random-legal with a no-op probability of 0.9, as RoyaleGym's default random bot."""
        if not game.choice[seat] or rng.random() < 0.9:
            return 0
        legal = np.flatnonzero(game.scripted_view(seat)[1])
        return int(legal[1 + rng.integers(len(legal) - 1)])

    def _forced(self, e: _Episode, seat: int) -> bool:
        """Whether this forced decision of a learner's seat becomes a value-only row."""
        share = self.settings.forced_share
        if share <= 0.0 or e.seats[seat].player != LEARNER:
            return False
        if share >= 1.0:
            return True
        at = e.game_step % _BLOCK
        if e.forced_draws is None or at == 0 or e.forced_draws[0, 2] != e.game_step // _BLOCK:
            a = e.assignment
            block = e.game_step // _BLOCK
            steps = (block * _BLOCK + np.arange(_BLOCK))[:, None]
            draws = uniforms(self.settings.seed, "forced", a.battle, a.ordinal, steps, np.arange(2))
            e.forced_draws = np.concatenate([draws, np.full((_BLOCK, 1), block)], axis=1)
        return bool(e.forced_draws[at, seat] < share)

    def _play(self, b: int, assignment: Assignment | None) -> EpisodeRecord | None:
        r, game = self.round, self.games[b]
        steps = 0
        first = [0, 0]
        if assignment is not None:
            e = self._begin(b, assignment)
        else:
            found = self._episodes[b]
            if found is None and self.settings.evaluation:
                self._rest(b)
                return None
            assert found is not None, "a battle without an episode needs an assignment"
            e = found
            for seat in (0, 1):
                if r.kind[2 * b + seat] == CHOICE:
                    first[seat] = int(r.action[2 * b + seat])
        r.final[2 * b : 2 * b + 2] = 0
        paid = [0.0, 0.0]
        discount = 1.0
        # A battle just begun stops at once where its start already holds a decision.
        fresh = assignment is not None
        while True:
            over = game.ended or game.truncated
            if over or ((steps or fresh) and self._stops(b, e)):
                break
            acts = [0, 0]
            for seat in (0, 1):
                s = e.seats[seat]
                if game.choice[seat]:
                    s.counted.choices += 1
                    if s.opponent is not None:
                        acts[seat] = self._scripted(game, e, seat)
                    elif steps == 0:
                        acts[seat] = first[seat]
                    if acts[seat]:
                        s.counted.plays += 1
                        if s.opponent is None or e.assignment.keep_commands:
                            e.commands.append((e.game_step, seat, acts[seat]))
            self._note_course(game, e)
            full = list(game.full)
            game.step(acts[0], acts[1])
            steps += 1
            e.game_step += 1
            for seat in (0, 1):
                counted, pay = e.seats[seat].counted, game.reward[seat]
                paid[seat] += discount * pay
                counted.returns += pay
                counted.discounted += e.discount * pay
                counted.leak_steps += full[seat] and game.full[seat]
            discount *= self.gamma
            e.discount *= self.gamma
        r.reward[2 * b : 2 * b + 2] = paid
        r.duration[b] = steps
        r.ordinal[b] = e.assignment.ordinal
        r.game_step[b] = e.game_step
        if not over:
            r.end[b] = RUNNING
            return None
        r.end[b] = TERMINATED if game.ended else TRUNCATED
        r.kind[2 * b : 2 * b + 2] = IDLE
        if game.truncated:
            for seat in (0, 1):
                if e.seats[seat].player == LEARNER:
                    game.encode(seat, r.final_rows[2 * b + seat])
                    self._hide(b, e, seat, r.final_hidden[2 * b + seat])
                    r.final[2 * b + seat] = 1
        self._refused += game.refused
        self._episodes[b] = None
        return self._record(e, game)

    def _rest(self, b: int) -> None:
        """An evaluation has no game left for this battle: it stands still while the others finish."""
        r = self.round
        r.kind[2 * b : 2 * b + 2] = IDLE
        r.final[2 * b : 2 * b + 2] = 0
        r.reward[2 * b : 2 * b + 2] = 0.0
        r.duration[b] = 0
        r.end[b] = RUNNING

    def _stops(self, b: int, e: _Episode) -> bool:
        """Whether the battle stands at a decision somebody outside must see; writes the rows if so."""
        r, game = self.round, self.games[b]
        stop = False
        for seat in (0, 1):
            slot = 2 * b + seat
            r.kind[slot] = IDLE
            if e.seats[seat].opponent is not None:
                continue
            if game.choice[seat]:
                r.kind[slot] = CHOICE
                game.offers(seat, r.offers[slot])
            elif self._forced(e, seat):
                r.kind[slot] = FORCED
            else:
                continue
            stop = True
            game.encode(seat, r.rows[slot])
            self._hide(b, e, seat, r.hidden[slot])
        return stop

    def _hide(self, b: int, e: _Episode, seat: int, out: np.ndarray) -> None:
        """What the critic may know beside the row just written; for learner seats alone."""
        if e.seats[seat].player == LEARNER:
            self.games[b].hidden(seat, opponent_id(e.seats[1 - seat].player), out)

    def _record(self, e: _Episode, game: Game) -> EpisodeRecord:
        o, (s, t) = game.outcome(), e.seats
        a = e.assignment
        return EpisodeRecord(
            battle=a.battle, ordinal=a.ordinal, players=a.players, seed=a.seed, winner=o.winner,
            truncated=not game.ended, ticks=o.ticks, game_steps=e.game_step, crowns=o.crowns, tower_hp=o.tower_hp,
            staggered=a.stagger > 0, commands=e.commands if a.keep_commands else [], course=e.course,
            start=e.start, state_hash=game.state_hash(), deal=a.deal, **SeatCounters.pairs(s.counted, t.counted),
        )


def build_arena(spec: BattleSpec, first: int, battles: int, round_: Round, settings: ArenaSettings) -> Arena:
    """The fastest arena that plays ``spec`` exactly: batched games, or RoyaleGym environments."""
    return Arena(build_games(spec, battles), first, round_, settings, SaveStateCodec(stamp_of(spec, "")))


def build_games(spec: BattleSpec, battles: int) -> list[Game]:
    """The fastest games that play ``spec`` exactly."""
    games: list[Game]
    if prepare(spec).batched:
        from .fast_game import FastGame, Tables

        tables = Tables()
        games = [FastGame(spec, tables) for _ in range(battles)]
    else:
        from .env_arena import EnvGame

        games = [EnvGame(spec) for _ in range(battles)]
    if spec.frame_stack > 1:
        games = [StackedGame(g, prepare(spec).row_layout) for g in games]
    return games


def default_threads() -> int:
    """Cores this process may use, at most 8: beyond that the interpreter's lock is the limit, and processes pay."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, min(8, len(os.sched_getaffinity(0))))
    return max(1, min(8, os.cpu_count() or 1))
