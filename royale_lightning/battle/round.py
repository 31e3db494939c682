"""The narrow type between battles and the collector: one round of many battles, as flat arrays.

A *round* advances each battle until one of its policy-driven seats has a choice (or a forced decision was
drawn to train the critic), or the battle ends; so a cell of the rollout rectangle holds at most one end.
``slot = 2 * battle + seat``. All arrays live in one block that may be shared memory: a worker process fills
its battles' part, the trainer reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from .rows.hidden import HIDDEN_BYTES

#: What a slot holds at a round's start.
IDLE, CHOICE, FORCED = 0, 1, 2
#: How a battle stands at a round's end.
RUNNING, TERMINATED, TRUNCATED = 0, 1, 2

#: Game steps between two entries of a battle's course: 10 s.
COURSE_STEPS = 20

#: Kinds of start: a battle from its beginning, a point of the restart pool, a rung of the backward curriculum, a
#: segment of the trajectory store. Strength is measured on true starts alone.
TRUE, POOL, CURRICULUM, BUCKET = "true", "pool", "curriculum", "bucket"
START_KINDS = (TRUE, POOL, CURRICULUM, BUCKET)
#: Cards a seat holds in its hand: Clash Royale's rule, and every grid of RoyaleGym's.
HAND = 4


@dataclass(frozen=True)
class Start:
    """Where an episode begins.

    Args:
        kind: one of :data:`START_KINDS`; told on every record, metric and result of the episode.
        digest: content hash of the save state it begins from; empty for a true start.
        state: that save state's bytes. They travel with the assignment, so that no process keeps a bank; a record
            comes back from a worker without them.
        seat: the learner's seat that the result is credited to; None for a true start.
        ref: whatever the scheduler wants to find again in the record, such as a point's or a rung's name.
    """

    kind: str = TRUE
    digest: str = ""
    state: bytes = b""
    seat: int | None = None
    ref: str = ""


TRUE_START = Start()


@dataclass(frozen=True)
class Deal:
    """What a battle's decks are drawn by, beside its settings and its seed.

    Args:
        own: the seat that the setting's own decks are for (``players.own_seat``); None for either, by a coin.
        game_steps: of the run when the episode was assigned, by which pools of cards widen; None for the schedule's
            end, where every evaluation is.
    """

    own: int | None = None
    game_steps: int | None = None


DEAL = Deal()


@dataclass(frozen=True)
class Assignment:
    """Who plays a battle's next episode, on which seat, from which start.

    Args:
        battle: global battle id.
        ordinal: how many episodes this battle has begun before.
        players: a name per seat: ``learner``, ``scripted:NAME``, or any other policy's name.
        seed: seed of the episode, as RoyaleGym's ``env.reset(seed)`` takes it.
        stagger: leading game steps played random-legal and recorded by nobody (first episodes only), so that
            battles do not stay in one phase.
        keep_commands: record both seats' commands, so that the battle can be replayed exactly.
        start: from where.
        deal: what its decks are drawn by, at a true start.
    """

    battle: int
    ordinal: int
    players: tuple[str, str]
    seed: int
    stagger: int = 0
    keep_commands: bool = False
    start: Start = TRUE_START
    deal: Deal = DEAL


class SeatCounters(msgspec.Struct, array_like=True):
    """What an episode counts for each seat.

    A statistic more is a field here, one of the same name in :class:`EpisodeRecord`, and the line of the arena that
    counts it; what travels with checkpoints, processes and records follows by itself.

    Attributes:
        returns: undiscounted reward sum.
        discounted: discounted return from the first game step.
        choices: decisions with more than one legal action.
        plays: cards played.
        leak_steps: game steps begun and ended at full elixir.
    """

    returns: float = 0.0
    discounted: float = 0.0
    choices: int = 0
    plays: int = 0
    leak_steps: int = 0

    @staticmethod
    def pairs(blue: SeatCounters, red: SeatCounters) -> dict[str, Any]:
        """``{name: (blue's, red's)}``."""
        return {name: (getattr(blue, name), getattr(red, name)) for name in SeatCounters.__struct_fields__}


@dataclass
class SavedBattle:
    """A battle in flight, small enough for every checkpoint: its start and what the policies did in it.

    The battle is minted again by playing it: engine, scripted opponents and a user's own reward or observation then
    stand where they stood, and ``state_hash`` proves it. A save of the engine itself would take 4 ms and 35 KB, and
    would not hold a user's state.

    Attributes:
        assignment: as begun.
        game_step: how far it had been played, the staggered steps included.
        commands: ``(game_step, seat, action)`` of every play by a policy-driven seat.
        seats: what had been counted, per seat.
        discount: gamma to the power of the steps played, as it stood.
        state_hash: the engine's.
    """

    assignment: Assignment
    game_step: int
    commands: list[tuple[int, int, int]]
    seats: list[SeatCounters]
    discount: float
    state_hash: int


@dataclass(frozen=True)
class Situation:
    """What both players see of a battle's standing; pairs are blue, red.

    Attributes:
        tick: of the engine.
        seconds: since the battle began.
        crowns: won so far.
        tower_hp: sum of the three towers' hp fractions, 0 to 3.
    """

    tick: int
    seconds: float
    crowns: tuple[int, int]
    tower_hp: tuple[float, float]


@dataclass
class EpisodeRecord:
    """How one episode went. Counted from where it began, the staggered steps included.

    Attributes:
        battle, ordinal, players, seed: as assigned.
        winner: 0 blue, 1 red, 2 draw, -1 cut short.
        truncated: a limit ended it.
        ticks, game_steps: its length.
        crowns: per seat.
        tower_hp: mean tower hp fraction left, per seat.
        returns, discounted, choices, plays, leak_steps: per seat, as :class:`SeatCounters` counts them.
        commands: ``(game_step, seat, action)`` if asked for.
        course: with the commands, ``(game_step, situation)`` every :data:`COURSE_STEPS` game steps.
        start: from where it began, as assigned but for the bytes. A true start that names a digest was asked to begin
            from that save state and could not: it was refused.
        state_hash: the engine's at the end, by which a replay proves itself.
        deal: as assigned.
    """

    battle: int
    ordinal: int
    players: tuple[str, str]
    seed: int
    winner: int
    truncated: bool
    ticks: int
    game_steps: int
    crowns: tuple[int, int]
    tower_hp: tuple[float, float]
    returns: tuple[float, float]
    discounted: tuple[float, float]
    choices: tuple[int, int]
    plays: tuple[int, int]
    leak_steps: tuple[int, int]
    staggered: bool = False
    commands: list[tuple[int, int, int]] = field(default_factory=list)
    course: list[tuple[int, Situation]] = field(default_factory=list)
    start: Start = TRUE_START
    state_hash: int = 0
    deal: Deal = DEAL

    @property
    def from_true_start(self) -> bool:
        """Whether it began at a battle's beginning; no other episode says anything about strength."""
        return self.start.kind == TRUE

    @property
    def refused(self) -> bool:
        """Whether it had to begin at a true start, because its save state would not load."""
        return self.from_true_start and bool(self.start.digest)

    def score(self, seat: int) -> float | None:
        """1 for a win, 0.5 for a draw, 0 for a loss, ``None`` when cut short."""
        if self.winner < 0:
            return None
        return 0.5 if self.winner == 2 else float(self.winner == seat)


class Round:
    """One round of ``battles`` battles. The arrays are reused from round to round: copy what you keep.

    Closing the last cell (written by ``advance``):
        reward: float32 ``[slots]``, discounted inside the round by gamma per game step.
        duration: int32 ``[battles]``, game steps the round took.
        end: uint8 ``[battles]``, RUNNING, TERMINATED or TRUNCATED.
        final: uint8 ``[slots]``, 1 where ``final_rows`` holds the observation at a truncation.
        final_rows: uint8 ``[slots, row_bytes]``.
        final_hidden: uint8 ``[slots, HIDDEN_BYTES]``, of the same observations.
        episodes: one :class:`EpisodeRecord` per battle that ended, ascending by battle.
    What comes next:
        kind: uint8 ``[slots]``, IDLE, CHOICE or FORCED (a value-only row).
        rows: uint8 ``[slots, row_bytes]``, valid where ``kind`` is not IDLE.
        offers: int16 ``[slots, HAND]``, valid where ``kind`` is CHOICE: the catalogue id of each card in hand that has
            a legal tile, -1 for the others. What a decision is measured by; no policy sees it.
        hidden: uint8 ``[slots, HIDDEN_BYTES]``, valid where ``rows`` is and the seat is the learner's: what the critic
            may know beside the row (:mod:`~royale_lightning.battle.rows.hidden`). No policy sees it.
        ordinal, game_step: int32 ``[battles]``, address of the decision for its random draws.
    """

    _ARRAYS = (
        # Name, dtype, how many a battle, how wide each is (None: a row).
        ("rows", "uint8", 2, None),
        ("final_rows", "uint8", 2, None),
        ("hidden", "uint8", 2, HIDDEN_BYTES),
        ("final_hidden", "uint8", 2, HIDDEN_BYTES),
        ("reward", "float32", 2, 1),
        ("duration", "int32", 1, 1),
        ("ordinal", "int32", 1, 1),
        ("game_step", "int32", 1, 1),
        ("action", "int32", 2, 1),
        ("offers", "int16", 2, HAND),
        ("end", "uint8", 1, 1),
        ("final", "uint8", 2, 1),
        ("kind", "uint8", 2, 1),
    )

    rows: np.ndarray
    final_rows: np.ndarray
    hidden: np.ndarray
    final_hidden: np.ndarray
    reward: np.ndarray
    duration: np.ndarray
    ordinal: np.ndarray
    game_step: np.ndarray
    action: np.ndarray
    end: np.ndarray
    offers: np.ndarray
    final: np.ndarray
    kind: np.ndarray

    def __init__(self, battles: int, row_bytes: int, buffer: Any = None) -> None:
        self.battles = battles
        self.row_bytes = row_bytes
        self.episodes: list[EpisodeRecord] = []
        size = self.nbytes(battles, row_bytes)
        raw = np.zeros(size, dtype=np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8, size)
        at = 0
        for name, dtype, n, shape in self._shapes(battles, row_bytes):
            setattr(self, name, raw[at : at + n].view(dtype).reshape(shape))
            at += _aligned(n)

    @classmethod
    def _shapes(cls, battles: int, row_bytes: int) -> Iterator[tuple[str, str, int, tuple[int, ...]]]:
        for name, dtype, per, wide in cls._ARRAYS:
            shape = (per * battles,) if wide == 1 else (per * battles, wide or row_bytes)
            yield name, dtype, int(np.dtype(dtype).itemsize * np.prod(shape)), shape

    @classmethod
    def nbytes(cls, battles: int, row_bytes: int) -> int:
        """Bytes of the block that holds one round."""
        return sum(_aligned(n) for _, _, n, _ in cls._shapes(battles, row_bytes))

    def part(self, first: int, battles: int) -> Round:
        """Battles ``first`` to ``first + battles`` of this block as a round of their own, sharing its memory."""
        out = object.__new__(Round)
        out.battles, out.row_bytes, out.episodes = battles, self.row_bytes, []
        for name, _, per, _ in self._ARRAYS:
            setattr(out, name, getattr(self, name)[per * first : per * (first + battles)])
        return out


def _aligned(n: int) -> int:
    # A cache line, so that two workers never write to one.
    return -(-n // 64) * 64
