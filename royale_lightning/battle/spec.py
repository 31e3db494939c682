"""What a battle is: decks, reward, start, observation, limits. Plain settings; ``prepare`` says what follows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, cast

from gymnasium.utils import seeding
from royalegym.action import ActionParser, TileActionParser
from royalegym.done_condition import DoneCondition, GameOverCondition
from royalegym.obs import ObsBuilder
from royalegym.reward import RewardFunction
from royalegym.state_mutator import StateMutator

from ..errors import UserError
from ..parts import Part, PartLike
from .dealing import Dealt, DeckMutator, drawing
from .decks import DeckLike, Plain, by_value, fixed_decks
from .engine.engine import shared_engine
from .rewards import REWARDS
from .round import DEAL, Deal
from .rows.codec import LEAST_STATES

OBSERVATIONS = {
    "entities": "royale_lightning.battle.EntitiesObsBuilder",
    "spatial": "royalegym.SpatialObsBuilder",
}
#: The settings that name a part.
PARTS = ("reward", "observation", "start", "termination", "truncation", "actions")


@dataclass(frozen=True)
class BattleSpec:
    """One kind of battle.

    Args:
        deck: ``starter`` (RoyaleGym's eight beginner cards for both seats), ``random`` (eight random cards a seat
            and battle), ``mirrored`` (eight random cards a battle, the same for both seats), eight card names, a pair
            of such lists (blue's and red's), ``shipped`` (the package's decks) or one of those by name, a YAML or JSON
            file of named decks, or a :class:`~royale_lightning.battle.decks.Decks`: lists for the learner and its
            enemy, pools of cards that widen with the run, several ways by shares. Files are read once: what is held
            from then on is their content.
        reward: ``tower_result`` (the default: tower damage and the result), ``potential``, ``royalegym``, or a
            ``RewardFunction`` of your own.
        observation: ``entities`` (tokens, 1.3 KB a row), ``spatial`` (RoyaleGym's planes and vector, 1.4 KB), or
            an ``ObsBuilder`` of your own.
        start: a ``StateMutator``; unset, a normal battle from tick 0 with ``deck``.
        decision_ms: battle time between decisions; 500 ms is RoyaleGym's and our measured default.
        max_ticks: cut an episode after this many ticks (a truncation); unset, battles are played out.
        termination, truncation: further RoyaleGym ``DoneCondition`` s.
        actions: a RoyaleGym ``ActionParser``; unset, the 2,305 actions of ``TileActionParser``.
        command_delay_ticks: ticks between a tap and its play; the live game's client shows 21 to 22.
        codec_states: states played to decide how an observation of your own is stored (``battle/rows/codec.py``); at
            least 1,000, a second or two. 0 stores every key as its space declares it.
        frame_stack: frames the network sees, the present one last. The others are the seat's latest decisions of the
            episode that had a choice, zeros before its first; every field has a leading axis of frames.
        arena: ``auto`` takes the batched arena where it plays exactly these settings and RoyaleGym's environment
            elsewhere (other observations, action spaces, done conditions and rewards, a command delay, evolved or hero
            forms); ``env`` insists on the latter.
    """

    deck: DeckLike = "starter"
    reward: PartLike = "tower_result"
    observation: PartLike = "entities"
    start: PartLike | None = None
    decision_ms: int = 500
    max_ticks: int | None = None
    termination: PartLike | None = None
    truncation: PartLike | None = None
    actions: PartLike | None = None
    command_delay_ticks: int = 0
    codec_states: int = 2000
    frame_stack: int = 1
    arena: str = "auto"

    def __post_init__(self) -> None:
        if self.decision_ms <= 0 or self.decision_ms % 50:
            raise UserError(
                f"battle.decision_ms is {self.decision_ms}; give a positive multiple of 50 ms, the engine's tick"
            )
        if self.max_ticks is not None and self.max_ticks <= 0:
            raise UserError(f"battle.max_ticks is {self.max_ticks}; give a positive number of ticks, or leave it out")
        if self.command_delay_ticks < 0:
            raise UserError(f"battle.command_delay_ticks is {self.command_delay_ticks}; give 0 or more ticks")
        if self.frame_stack < 1:
            raise UserError(f"battle.frame_stack is {self.frame_stack}; give at least 1 frame")
        if self.codec_states and self.codec_states < LEAST_STATES:
            raise UserError(
                f"battle.codec_states is {self.codec_states}; give at least {LEAST_STATES:,}, or 0 to store every key "
                "as its space declares it"
            )
        if self.arena not in ("auto", "env"):
            raise UserError(f"battle.arena is {self.arena!r}; give auto or env")
        object.__setattr__(self, "deck", by_value(self.deck))

    # ---- parts -----------------------------------------------------------------------------------------------
    def part(self, name: str) -> Part | None:
        """The setting ``name`` as a :class:`Part`."""
        value = getattr(self, name)
        shipped = {"reward": REWARDS, "observation": OBSERVATIONS}.get(name, {})
        return None if value is None else Part.of(value, f"battle.{name}", shipped)

    def _make(self, name: str, kind: type, default: Any = None) -> Any:
        part = self.part(name)
        if part is None:
            return default
        try:
            return part.build(f"battle.{name}", kind=kind)
        except UserError:
            raise
        except Exception as exc:
            raise UserError(f"battle.{name}: {part.class_path} raised {type(exc).__name__}: {exc}") from exc

    def make_reward(self) -> RewardFunction:
        return self._make("reward", RewardFunction)

    def make_observation(self) -> ObsBuilder:
        return self._make("observation", ObsBuilder)

    def make_actions(self) -> ActionParser:
        return self._make("actions", ActionParser, None) or TileActionParser()

    def make_termination(self) -> DoneCondition:
        return self._make("termination", DoneCondition, None) or GameOverCondition()

    def make_truncation(self) -> DoneCondition | None:
        return self._make("truncation", DoneCondition, None)

    def make_start(self) -> StateMutator:
        mutator = self._make("start", StateMutator, None)
        return mutator if mutator is not None else DeckMutator(self._deck)

    # ---- decks -----------------------------------------------------------------------------------------------
    @property
    def _deck(self) -> Plain:
        return cast(Plain, self.deck)  # since it was read

    @property
    def decks(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Blue's and red's card names where every battle has the same, None where they are drawn."""
        return fixed_decks(self.deck)

    def check_deck(self) -> None:
        """Look every card up in the engine that is installed, and have it accept every deck that is written down.

        Raises:
            UserError: which card or deck it does not take.
        """
        drawing(self._deck).check()

    def dealt(self, seed: int, deal: Deal = DEAL) -> tuple[Dealt, Dealt]:
        """Blue's and red's deck in the battle of a seed, from its true start and without a ``start`` of its own."""
        rng, _ = seeding.np_random(seed)
        return drawing(self._deck).draw(rng, deal)

    def cards(self, game_steps: int | None = None) -> frozenset[int]:
        """Catalogue ids of the cards that may be in a deck, all of them where a start deals.

        Args:
            game_steps: of the run, by which a pool widens; unset, its end.
        """
        if self.start is not None:
            return frozenset(int(c.card_id) for c in shared_engine().cards())
        return drawing(self._deck).cards(game_steps)

    def as_dict(self) -> dict[str, Any]:
        """By value: parts as class path and arguments, defaults filled in."""
        out = asdict(self)
        for name in PARTS:
            part = self.part(name)
            out[name] = None if part is None else part.as_dict()
        return out
