"""Decks dealt: a setting of :mod:`.decks` bound to this process's engine, drawn from for each battle.

A draw is a function of the setting, the battle's generator and its :class:`~royale_lightning.battle.round.Deal` alone,
so every arena, process, replay and resumed run draws the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from royalegym import STARTER_DECK
from royalegym.protocol import CardInfo, MatchSetup
from royalegym.state_mutator import EVENT_CARDS, MAX_CHAMPIONS, StateMutator, random_deck

from ..errors import UserError, near_matches
from .decks import ALL, DECK_SIZE, MIRRORED, RANDOM, STARTER, CardPool, Decks, Plain, fixed_decks
from .engine.engine import new_battle, reset_battle, shared_engine
from .round import DEAL, Deal
from .streams import generator


@dataclass(frozen=True)
class Dealt:
    """One seat's deck.

    Attributes:
        name: as the setting names it; empty for one without a name.
        cards: catalogue ids.
    """

    name: str
    cards: tuple[int, ...]


class _Listed:
    """Decks drawn by weight; a single one is not drawn."""

    def __init__(self, decks: Sequence[Dealt], weights: Sequence[float]) -> None:
        self.decks = list(decks)
        self._p = np.asarray(weights, dtype=np.float64) / sum(weights)

    def cards(self, game_steps: int | None) -> frozenset[int]:
        return frozenset(card for deck in self.decks for card in deck.cards)

    def draw(self, rng: np.random.Generator, game_steps: int | None) -> Dealt:
        return self.decks[0 if len(self.decks) == 1 else int(rng.choice(len(self.decks), p=self._p))]


class _Pooled:
    """Random decks from the first cards of an order, by a schedule.

    Args:
        cards: of the engine.
        order: catalogue ids.
        widen: as :class:`CardPool` takes it.
    """

    def __init__(self, cards: Sequence[CardInfo], order: Sequence[int], widen: Sequence[Sequence[Any]]) -> None:
        self._starts = [start for start, _ in widen]
        # In the catalogue's order, so that the whole of the cards gives the very decks of ``random``.
        firsts = [sorted(order if size == ALL else order[:size]) for _, size in widen]
        self._pools = [[cards[i] for i in first] for first in firsts]

    def _pool(self, game_steps: int | None) -> Sequence[CardInfo]:
        at = -1 if game_steps is None else sum(start <= game_steps for start in self._starts) - 1
        return self._pools[at]

    def cards(self, game_steps: int | None) -> frozenset[int]:
        return frozenset(int(card.card_id) for card in self._pool(game_steps))

    def draw(self, rng: np.random.Generator, game_steps: int | None) -> Dealt:
        pool = self._pool(game_steps)
        return Dealt("", tuple(int(pool[i].card_id) for i in random_deck(rng, pool, events=True)))


@dataclass(frozen=True)
class _Way:
    own: _Listed | _Pooled
    enemy: _Listed | _Pooled | None
    mirrored: bool

    def draw(self, rng: np.random.Generator, deal: Deal) -> tuple[Dealt, Dealt]:
        first = self.own.draw(rng, deal.game_steps)
        if self.mirrored:
            return first, first
        if self.enemy is None:
            return first, self.own.draw(rng, deal.game_steps)
        second = self.enemy.draw(rng, deal.game_steps)
        own = int(rng.integers(2)) if deal.own is None else deal.own
        return (first, second) if own == 0 else (second, first)


class Drawing:
    """A setting bound to the engine's cards.

    Args:
        deck: :func:`by_value`.

    Raises:
        UserError: a name is no card, or a pool holds no legal deck.
    """

    def __init__(self, deck: Plain) -> None:
        self._cards = shared_engine().cards()
        self._ids = {c.name: int(c.card_id) for c in self._cards}
        self._fixed: tuple[Dealt, Dealt] | None = None
        self._ways: list[_Way] = []
        if (both := fixed_decks(deck)) is not None:
            name = STARTER if deck == STARTER else ""
            self._fixed = (self._dealt(name, both[0]), self._dealt(name, both[1]))
            return
        if isinstance(deck, str):
            deck = {"own": RANDOM, "mirrored": deck == MIRRORED}
        ways = [Decks(**way) for way in ([deck] if isinstance(deck, Mapping) else deck)]
        self._p = np.array([way.share for way in ways]) / sum(way.share for way in ways)
        for way in ways:
            enemy = None if way.enemy is None else self._bound(way.enemy, "battle.deck.enemy")
            self._ways.append(_Way(self._bound(way.own, "battle.deck.own"), enemy, way.mirrored))

    def draw(self, rng: np.random.Generator, deal: Deal = DEAL) -> tuple[Dealt, Dealt]:
        """Blue's and red's deck."""
        if self._fixed is not None:
            return self._fixed
        way = self._ways[0 if len(self._ways) == 1 else int(rng.choice(len(self._ways), p=self._p))]
        return way.draw(rng, deal)

    def cards(self, game_steps: int | None = None) -> frozenset[int]:
        """Catalogue ids of the cards that a deck may hold after so many game steps of a run; None for its end."""
        if self._fixed is not None:
            return frozenset(card for deck in self._fixed for card in deck.cards)
        sources = [s for way in self._ways for s in (way.own, way.enemy) if s is not None]
        return frozenset().union(*(s.cards(game_steps) for s in sources))

    def check(self) -> None:
        """Have the engine accept every deck that is written down.

        Raises:
            UserError: which one it refuses, and why.
        """
        listed = [d for w in self._ways for s in (w.own, w.enemy) if isinstance(s, _Listed) for d in s.decks]
        decks = {d.cards: d for d in (*(self._fixed or ()), *listed)}.values()
        battle = new_battle() if decks else None
        for deck in decks:
            try:
                reset_battle(battle, 0, MatchSetup(decks=[list(deck.cards)] * 2))
            except ValueError as refused:
                which = f" {deck.name!r}" if deck.name else ""
                raise UserError(
                    f"battle.deck: the engine refuses the deck{which} ({refused}); give it other cards"
                ) from refused

    def _dealt(self, name: str, cards: Sequence[str]) -> Dealt:
        return Dealt(name, tuple(self._id(card) for card in cards))

    def _id(self, name: str) -> int:
        if name not in self._ids:
            raise UserError(
                f"battle.deck names {name!r}, which is no card of this engine's {len(self._ids)}"
                f"{near_matches(name, self._ids) or '; royalegym.RustEngine().cards() lists them'}"
            )
        return self._ids[name]

    def _bound(self, source: Plain, where: str) -> _Listed | _Pooled:
        if source == STARTER:
            return _Listed([self._dealt(STARTER, STARTER_DECK)], [1.0])
        if isinstance(source, list):
            return _Listed([self._dealt("", source)], [1.0])
        if source == RANDOM:
            return self._pool(CardPool(widen=[[0, ALL]]), where)
        assert isinstance(source, Mapping)
        if set(source) <= {f.name for f in fields(CardPool)}:
            return self._pool(CardPool(**source), where)
        held = {k: v if isinstance(v, Mapping) else {"cards": v} for k, v in source.items()}
        decks = [self._dealt(name, deck["cards"]) for name, deck in held.items()]
        return _Listed(decks, [deck.get("weight", 1.0) for deck in held.values()])

    def _pool(self, pool: CardPool, where: str) -> _Pooled:
        if pool.cards is None:
            order = [i for i, c in enumerate(self._cards) if c.name not in EVENT_CARDS]
            generator(1 if pool.order is None else pool.order, "decks", "order").shuffle(order)
        else:
            order = [self._id(name) for name in pool.cards]
            if twice := sorted({c for c in pool.cards if list(pool.cards).count(c) > 1}):
                raise UserError(f"{where}.cards holds {twice[0]!r} twice; name each card once")
        widen = pool.widen or [[0, ALL]]
        for _, size in widen:
            if size != ALL and size > len(order):
                raise UserError(f"{where}.widen has {size} cards and the pool {len(order)}; give at most those, or all")
            first = order if size == ALL else order[:size]
            if (others := sum(not self._cards[i].champion for i in first)) < DECK_SIZE - MAX_CHAMPIONS:
                raise UserError(
                    f"{where} has {others} cards that are no champions among the {len(first)} to draw from; a deck has "
                    f"one champion at most, so give {DECK_SIZE - MAX_CHAMPIONS} or more"
                )
        return _Pooled(self._cards, order, widen)


@lru_cache(maxsize=32)
def _drawing(text: str) -> Drawing:
    return Drawing(json.loads(text))


def drawing(deck: Plain) -> Drawing:
    """The one of this process for equal settings: a game each would look every name up again."""
    return _drawing(json.dumps(deck))


class DeckMutator(StateMutator):
    """A normal battle from tick 0, with decks drawn as a setting says; RoyaleGym's environment takes it too.

    Args:
        deck: :func:`by_value`.

    Attributes:
        deal: of the battles that begin from now on.
    """

    def __init__(self, deck: Plain) -> None:
        self.deck = deck
        self.deal = DEAL
        self._drawing = drawing(deck)

    def config(self) -> dict[str, object]:
        return {"deck": self.deck}

    def build(self, rng: np.random.Generator, cards: Sequence[CardInfo]) -> MatchSetup:
        return MatchSetup(decks=[list(d.cards) for d in self._drawing.draw(rng, self.deal)])


def expect(start: StateMutator, deal: Deal) -> None:
    """Tell a battle's start what it is dealt by; starts of another kind have no use for it."""
    if isinstance(start, DeckMutator):
        start.deal = deal
