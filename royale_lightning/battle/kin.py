"""Which cards are alike, and which unit a card makes: by the catalogue alone.

A network that learned with eight cards knows nothing of the others, and their embeddings are the noise they were
initialised with. Yet a starter deck holds one of each trade: a tank, a fighter, shooters, a swarm, a tower, a large and
a small spell. To begin every other card as the one that it is most like is worth more than an hour of training with
random decks (``ppo/README.md``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import log2

import numpy as np
from royalegym.protocol import CardInfo, card_is_spell

#: Weights of what cards differ in. A spell is like no troop and a flyer like nothing on the ground; a doubling of hit
#: points or of the number of units weighs as much as three points of elixir.
_KIND, _FLYING, _DOUBLING, _ELIXIR = 20.0, 6.0, 1.0, 1.0 / 3.0


def _place(card: CardInfo) -> np.ndarray:
    """A card as a point; near points are alike."""
    spell = card_is_spell(card)
    building = not spell and card.footprint_tiles is not None
    return np.array([
        _KIND * spell,
        _KIND * building,
        _FLYING * card.flying,
        _DOUBLING * log2(max(1, card.hitpoints)),
        _DOUBLING * log2(max(1, card.count)),
        _ELIXIR * card.elixir,
    ])


def kin(cards: Sequence[CardInfo], known: Collection[int]) -> dict[int, int]:
    """The most similar known card of each that is not.

    Args:
        cards: the catalogue.
        known: ids of the cards that something was learned of; at least one.

    Returns:
        Known id by unknown id; of two equally near the lower one.
    """
    old = sorted(known)
    places = {c.card_id: _place(c) for c in cards}
    return {
        new: min(old, key=lambda k: float(np.abs(places[new] - places[k]).sum()))
        for new in sorted(places)
        if new not in known
    }


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def _apart(one: str, other: str) -> int | None:
    """By how many letters one name goes on where the other ends; None where neither begins the other."""
    a, b = _plain(one), _plain(other)
    return abs(len(a) - len(b)) if a.startswith(b) or b.startswith(a) else None


def card_of_type(name: str, cards: Sequence[CardInfo]) -> CardInfo | None:
    """The card of units whose name is most like a unit type's (Minions of Minion, ElixirGolem of ElixirGolem2)."""
    apart = [(d, c.card_id, c) for c in cards if c.count and (d := _apart(c.name, name)) is not None]
    return min(apart)[2] if apart else None


def type_kin(types: Sequence[str], cards: Sequence[CardInfo], card_kin: Mapping[int, int]) -> dict[int, int]:
    """The same for unit types: the type of the known card's unit by the type of the unknown card's; by index.

    Types like no card's name, such as what a champion summons, and those whose card is known are left out.
    """
    makers = [card_of_type(name, cards) for name in types]
    own: dict[int, tuple[int, int]] = {}
    for i, (name, card) in enumerate(zip(types, makers, strict=True)):
        if card is not None:
            here = (_apart(name, card.name) or 0, i)
            own[card.card_id] = min(own.get(card.card_id, here), here)
    return {
        i: own[card_kin[card.card_id]][1]
        for i, card in enumerate(makers)
        if card is not None and card_kin.get(card.card_id) in own
    }
