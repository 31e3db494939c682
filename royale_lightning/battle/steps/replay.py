"""A recorded battle, played again: that is how save states are minted and past decisions looked at.

A battle costs nothing to record (its start, its seed, both seats' plays), where saving it every ten seconds would cost
a tenth of its wall time. Whoever wants a moment of it plays it again up to there; the engine's hash at the end proves
that it was the same battle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..round import Assignment, EpisodeRecord, Situation
from ..save_state import Origin, SaveStateCodec
from .game import Game

#: What a save costs, in game steps replayed: 4 ms against 0.25 ms on one core of the machine this was measured on.
SAVE_STEPS = 16


class ReplayMismatch(RuntimeError):
    """The battle went another way than it was recorded: engine, a part or the record changed."""


@dataclass(frozen=True)
class Moment:
    """A replayed battle before one of its game steps.

    Attributes:
        game_step: counted from where the episode began.
        situation: the scoreboard.
        choice: per seat, whether it had more than one legal action.
        action: per seat, what it did there.
    """

    game_step: int
    situation: Situation
    choice: tuple[bool, bool]
    action: tuple[int, int]


class Replay:
    """One recorded battle on a game of its own.

    Args:
        game: plays; it is left wherever the replay stops.
        codec: of these battles.
        record: played with ``keep_commands``, and, if it began from a save state, with the state's bytes.

    Raises:
        ValueError: the record does not hold what a replay needs.
    """

    def __init__(self, game: Game, codec: SaveStateCodec, record: EpisodeRecord) -> None:
        if record.staggered:
            raise ValueError("the first steps of a staggered episode are not recorded")
        if not record.commands and any(record.plays):
            raise ValueError("the battle was played without keep_commands")
        if record.start.digest and not record.from_true_start and not record.start.state:
            raise ValueError("the record lacks the bytes of the save state it began from")
        self.game, self.codec, self.record = game, codec, record
        #: Game steps of the battle before the episode began.
        self.before = 0
        self.steps = self._saves = self._step = 0

    def moments(self) -> Iterator[Moment]:
        """Every game step in turn, before it is played; between two of them :meth:`save` and :meth:`encode` answer.

        Raises:
            ReplayMismatch: at the end, when the battle did not end as recorded. What was saved on the way is then
                no moment of that battle.
        """
        r, game = self.record, self.game
        plays = {(step, seat): action for step, seat, action in r.commands}
        # Nobody has to be asked: every play is on record.
        assignment = Assignment(r.battle, r.ordinal, ("recorded", "recorded"), r.seed, deal=r.deal)
        if r.from_true_start:
            game.reset(assignment, (True, True))
        else:
            state = self.codec.unpack(r.start.state)
            self.before = state.origin.game_step if state.origin is not None else 0
            game.load(state, assignment, (True, True))
        for step in range(r.game_steps):
            if game.ended or game.truncated:
                break
            acts = (plays.get((step, 0), 0), plays.get((step, 1), 0))
            self._step = step
            yield Moment(step, game.situation(), (game.choice[0], game.choice[1]), acts)
            game.step(*acts)
            self.steps += 1
        if self.steps != r.game_steps or game.state_hash() != r.state_hash:
            raise ReplayMismatch(
                f"battle {r.battle}, episode {r.ordinal} does not replay to the state it ended in: the engine or a "
                "part of battle does not do the same twice"
            )

    def save(self, tag: str = "") -> tuple[int, bytes]:
        """The engine's hash of the moment that was yielded last, and its packed save state."""
        r = self.record
        self._saves += 1
        state = self.game.save()
        start = "" if r.from_true_start else r.start.digest
        origin = Origin(r.players, r.seed, start, self.before + self._step)
        return state.state_hash, self.codec.pack(replace(state, tag=tag, origin=origin))

    def encode(self, seat: int, out: np.ndarray) -> None:
        """Write into ``out``, uint8 ``[row_bytes]``, what a seat saw at the moment that was yielded last."""
        self.game.encode(seat, out)

    def state_hash(self) -> int:
        """The engine's, of the moment that was yielded last, or of the end."""
        return self.game.state_hash()

    @property
    def cost(self) -> int:
        """Game steps replayed, a save counted as :data:`SAVE_STEPS`: the same on every machine, unlike seconds."""
        return self.steps + SAVE_STEPS * self._saves
