"""Several frames a row: a game that remembers its seats' latest decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..round import Assignment, Situation
from ..rows.layout import RowLayout
from ..save_state import Refused, SaveState
from .game import Game, Outcome


class StackedGame(Game):
    """A game whose rows hold ``layout.frames`` frames, oldest first: a seat's last decisions and the present.

    A frame becomes history when its seat leaves a decision that had a choice, whoever decided it. Forced decisions
    leave none: a bot is not asked there, so it could not have them. History begins with zeros at a reset and is made
    again when a saved battle is played up to where it stood.

    Args:
        game: plays the battle and encodes single frames.
        layout: of the stacked rows.
    """

    def __init__(self, game: Game, layout: RowLayout) -> None:
        assert layout.frame is not None
        self.game = game
        self.choice, self.reward, self.full = game.choice, game.reward, game.full
        n = layout.frame.row_bytes
        self._old = (layout.frames - 1) * n
        self._history = np.zeros((2, self._old), dtype=np.uint8)
        self._now = np.zeros((2, n), dtype=np.uint8)
        self._encoded = [False, False]
        self._watched = (False, False)
        self._note()

    def _note(self) -> None:
        g = self.game
        self.ended, self.truncated, self.refused, self.loss = g.ended, g.truncated, g.refused, g.loss

    def set_gamma(self, gamma: float) -> None:
        self.game.set_gamma(gamma)

    def reset(self, assignment: Assignment, watched: tuple[bool, bool]) -> None:
        self.game.reset(assignment, watched)
        self._history[:] = 0
        self._encoded = [False, False]
        self._watched = watched
        self._note()

    def step(self, blue: int, red: int) -> None:
        n = self._now.shape[1]
        for seat in (0, 1):
            if self._watched[seat] and self.choice[seat]:
                self._look(seat)
                history = self._history[seat]
                history[:-n] = history[n:].copy()
                history[-n:] = self._now[seat]
        self._encoded = [False, False]
        self.game.step(blue, red)
        self._note()

    def _look(self, seat: int) -> None:
        if not self._encoded[seat]:
            self.game.encode(seat, self._now[seat])
            self._encoded[seat] = True
            self.loss = self.game.loss

    def encode(self, seat: int, out: np.ndarray) -> None:
        self._look(seat)
        out[: self._old] = self._history[seat]
        out[self._old :] = self._now[seat]

    def save(self) -> SaveState:
        blue, red = self._history
        return replace(self.game.save(), history=(blue.tobytes(), red.tobytes()))

    def load(self, state: SaveState, assignment: Assignment, watched: tuple[bool, bool]) -> None:
        if any(len(h) != self._old for h in state.history):
            raise Refused(
                f"a save state holds {len(state.history[0])} bytes of earlier frames a seat and these battles stack "
                f"{self._old}; collect it again with this battle.frame_stack"
            )
        self.game.load(state, assignment, watched)
        for seat in (0, 1):
            self._history[seat] = np.frombuffer(state.history[seat], np.uint8)
        self._encoded = [False, False]
        self._watched = watched
        self._note()

    def situation(self) -> Situation:
        return self.game.situation()

    def scripted_view(self, seat: int, whole: bool = False) -> tuple[dict[str, Any], np.ndarray]:
        return self.game.scripted_view(seat, whole)

    def offers(self, seat: int, out: np.ndarray) -> None:
        self.game.offers(seat, out)

    def hidden(self, seat: int, opponent: int, out: np.ndarray) -> None:
        self.game.hidden(seat, opponent, out)

    def outcome(self) -> Outcome:
        return self.game.outcome()

    def state_hash(self) -> int:
        return self.game.state_hash()
