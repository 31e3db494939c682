"""What an arena runs many of: one battle, from reset to end, one game step at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..round import Assignment, Situation
from ..rows.layout import EXACT, Loss
from ..save_state import SaveState


@dataclass
class Outcome:
    """How a finished battle stands: see :class:`~royale_lightning.battle.round.EpisodeRecord`."""

    winner: int
    ticks: int
    crowns: tuple[int, int]
    tower_hp: tuple[float, float]


class Game(ABC):
    """One battle behind an arena.

    After ``reset`` and every ``step``: ``choice[seat]`` says whether a seat has more than one legal action,
    ``reward[seat]`` what the step paid, ``ended`` and ``truncated`` how the battle stands, ``full[seat]`` whether
    the seat's elixir bar is full. Seats named in ``watched`` keep a memory and can be encoded or viewed whole; the
    others can only be asked for their mask. ``loss`` counts what the rows written so far could not hold.
    """

    choice: list[bool]
    reward: list[float]
    full: list[bool]
    ended: bool
    truncated: bool
    refused: int
    loss: Loss = EXACT

    @abstractmethod
    def reset(self, assignment: Assignment, watched: tuple[bool, bool]) -> None: ...

    @abstractmethod
    def step(self, blue: int, red: int) -> None:
        """Play both seats' actions (flat indices, 0 waits) and advance one game step."""

    @abstractmethod
    def encode(self, seat: int, out: np.ndarray) -> None:
        """Write a watched seat's observation, mask included, into ``out`` (uint8 ``[row_bytes]``)."""

    @abstractmethod
    def scripted_view(self, seat: int, whole: bool = False) -> tuple[dict[str, Any], np.ndarray]:
        """What a scripted opponent reads: an observation with ``mask_planes``, and the flat mask.

        Args:
            whole: of a watched seat; the observation holds RoyaleGym's default keys ``spatial`` and ``vector`` too.
        """

    @abstractmethod
    def offers(self, seat: int, out: np.ndarray) -> None:
        """Write the hand's catalogue ids into ``out`` (int16 ``[HAND]``), -1 for a card without a legal tile."""

    @abstractmethod
    def hidden(self, seat: int, opponent: int, out: np.ndarray) -> None:
        """Write what a seat may not see into ``out``, as :func:`~royale_lightning.battle.rows.hidden.write_hidden`."""

    @abstractmethod
    def outcome(self) -> Outcome: ...

    @abstractmethod
    def save(self) -> SaveState:
        """The battle as it stands, without its :class:`~royale_lightning.battle.save_state.Origin`.

        Only of a running battle whose seats are both watched: an unwatched seat has no memory to save.
        """

    @abstractmethod
    def load(self, state: SaveState, assignment: Assignment, watched: tuple[bool, bool]) -> None:
        """Begin at a save state, as :meth:`reset` begins at a battle's start.

        Raises:
            Refused: the engine, a memory or a part does not take it, or it is another battle than was saved.
        """

    @abstractmethod
    def situation(self) -> Situation:
        """What the scoreboard says."""

    @abstractmethod
    def state_hash(self) -> int:
        """The engine's hash of the battle as it stands."""

    def set_gamma(self, gamma: float) -> None:
        """The learner's discount, for rewards that are potentials."""
        del gamma
