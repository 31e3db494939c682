"""How a battle's two decks are drawn, as a setting: from named decks, from a pool of cards, by shares of several ways.

:func:`by_value` reads what a user wrote into plain values, in which no file or list is named that may change; whatever
follows (digests, bots, workers, resumed runs) knows those alone. ``dealing`` draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from royalegym import STARTER_DECK

from ..errors import UserError, near_matches, remedy

DECK_SIZE = 8
#: Words for a whole setting; everything else that is one word names a shipped deck, all of them, or a file.
STARTER, RANDOM, MIRRORED = "starter", "random", "mirrored"
#: All decks that come with the package; and their file, ``name: eight cards``.
SHIPPED = "shipped"
_SHIPPED_FILE = Path(__file__).with_name("shipped_decks.yaml")
#: Endings by which a word is known as a file's path.
_FILES = (".yaml", ".yml", ".json")
ALL = "all"

#: What the setting accepts, and what it holds once read. The parser is told the plain kinds alone, so that it leaves
#: the reading, and the sentences about mistakes, to :func:`by_value`.
if TYPE_CHECKING:
    type DeckLike = str | dict[str, Any] | list[Any] | Decks
else:
    # In this order: a list of anything would take an option that reaches into a dictionary for an item.
    DeckLike = str | dict[str, Any] | list[Any]
Plain = str | list[Any] | dict[str, Any]


@dataclass(frozen=True)
class CardPool:
    """Random decks from some of the cards: eight different ones, at most one champion, as the ladder allows.

    Args:
        cards: names, eight or more; unset, all cards but those of the game's events.
        widen: ``[[game_steps, cards], ...]``: from so many game steps of the run on, only the first so many cards of
            the pool are drawn from; ``all`` for the whole pool. Unset, the whole pool from the start. Battles that
            belong to no run, and every evaluation, are drawn from the schedule's end.
        order: seed of the named stream that orders the pool for ``widen``, 1 if unset; a list of cards has its own.
    """

    cards: Sequence[str] | None = None
    widen: Sequence[Sequence[Any]] | None = None
    order: int | None = None

    def checked(self, where: str) -> CardPool:
        """Itself, with lists for sequences.

        Raises:
            UserError: one sentence that names the field.
        """
        cards = None if self.cards is None else _names(self.cards, f"{where}.cards")
        if cards is not None and len(cards) < DECK_SIZE:
            raise UserError(f"{where}.cards has {len(cards)} cards; a pool needs at least the {DECK_SIZE} of a deck")
        if self.order is not None and (not _whole(self.order) or cards is not None or self.widen is None):
            raise UserError(
                f"{where}.order is {self.order!r}; give a whole number beside widen, and leave it out where cards are "
                "listed, for their own order counts"
            )
        return CardPool(cards, None if self.widen is None else _schedule(self.widen, f"{where}.widen"), self.order)


@dataclass(frozen=True)
class Decks:
    """One way to draw a battle's two decks; a list of them in ``battle.deck`` is a mixture by their shares.

    Decks come from ``random`` (eight of all cards), ``starter``, ``shipped`` (every deck that comes with the package)
    or one of those by name, the path of a YAML or JSON file of named decks, such decks themselves
    (``{hog: [eight cards], giant: {cards: [eight cards], weight: 2}}``), eight cards, or a pool of cards
    (:class:`CardPool`). Each battle draws anew; named decks by their weights, 1 if unset.

    Args:
        own: where the deck of the learner's seat comes from, or of the bot's that is evaluated against a script.
            Between two policies it is either seat's, by a coin that a seed's two games share.
        enemy: where the other seat's comes from; unset, from ``own`` as well, by a draw of its own.
        mirrored: both seats hold the deck that ``own`` gives, each in an order of its own: hands differ, cards do not.
        share: of the battles, among the ways of a list.
    """

    own: Any = RANDOM
    enemy: Any = None
    mirrored: bool = False
    share: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.mirrored, bool):
            raise UserError(f"battle.deck.mirrored is {self.mirrored!r}; give true or false")
        if not _positive(self.share):
            raise UserError(f"battle.deck.share is {self.share!r}; give a number above 0")
        if self.mirrored and self.enemy is not None:
            raise UserError("battle.deck has an enemy and is mirrored; leave one of them out")
        object.__setattr__(self, "own", _source(self.own, "battle.deck.own"))
        if self.enemy is not None:
            object.__setattr__(self, "enemy", _source(self.enemy, "battle.deck.enemy"))

    @classmethod
    def of(cls, value: Any) -> Decks:
        """Read one as a user writes it."""
        if isinstance(value, Decks):
            return value
        known = [f.name for f in fields(cls)]
        if not isinstance(value, Mapping):
            raise UserError(f"battle.deck holds {value!r} in a list of ways to draw decks; write {{own: {value!r}}}")
        if unknown := [k for k in value if k not in known]:
            raise UserError(
                f"battle.deck has the unknown key {unknown[0]!r}; it takes {', '.join(known)}"
                f"{near_matches(str(unknown[0]), known) or ' (named decks and pools of cards stand below own)'}"
            )
        return cls(**value)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, what is at its default left out, but for ``own``."""
        held = {f.name: (getattr(self, f.name), f.default) for f in fields(self)}
        return {k: v for k, (v, default) in held.items() if k == "own" or v != default}


# ---- reading what was written ----------------------------------------------------------------------------------
def by_value(deck: Any) -> Plain:
    """A setting as plain values: files and the shipped decks by what they hold, everything else as it was written.

    Raises:
        UserError: one sentence that names the field, the value and the remedy.
    """
    if isinstance(deck, str):
        return deck if deck in (STARTER, RANDOM, MIRRORED) else {"own": _source(deck, "battle.deck")}
    if isinstance(deck, Decks | Mapping):
        one = Decks.of(deck).as_dict()
        return {k: v for k, v in one.items() if k != "share"}  # of one way there is no other
    if isinstance(deck, Sequence) and any(isinstance(d, Decks | Mapping) for d in deck):
        return [Decks.of(d).as_dict() for d in deck]
    for cards in fixed_decks(deck) or ():
        _check_deck(cards, "battle.deck")
    return deck if isinstance(deck, list) else list(deck)


def fixed_decks(deck: Any) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Blue's and red's card names where every battle has the same, None where they are drawn.

    Raises:
        UserError: ``deck`` is neither.
    """
    if isinstance(deck, str):
        return (tuple(STARTER_DECK), tuple(STARTER_DECK)) if deck == STARTER else None
    if isinstance(deck, Mapping):
        return None
    if isinstance(deck, Sequence) and deck:
        if all(isinstance(c, str) for c in deck):
            return (tuple(deck), tuple(deck))
        if all(isinstance(d, Mapping) for d in deck):
            return None
        if len(deck) == 2 and all(isinstance(d, Sequence) and not isinstance(d, str) for d in deck):
            return (tuple(deck[0]), tuple(deck[1]))
    raise UserError(
        "battle.deck takes starter, random, mirrored, shipped, the name of a shipped deck, a deck file, eight card "
        "names, a pair of lists of eight, {own: ..., enemy: ..., mirrored: ...}, or a list of those with shares"
    )


def shipped_decks() -> dict[str, list[str]]:
    """The decks that come with the package, by name."""
    return {name: list(cards) for name, cards in _shipped().items()}


@lru_cache(maxsize=1)
def _shipped() -> dict[str, list[str]]:
    held: dict[str, list[str]] = yaml.safe_load(_SHIPPED_FILE.read_text(encoding="utf-8"))
    return held


def _source(value: Any, where: str) -> Plain:
    """Where decks come from, as plain values."""
    if isinstance(value, str):
        return _of_word(value, where)
    if isinstance(value, CardPool):
        return _plain_pool(value, where)
    if isinstance(value, Mapping):
        pool_keys = {f.name for f in fields(CardPool)}
        if value and set(value) <= pool_keys:
            return _plain_pool(CardPool(**value), where)
        return _named_decks(value, where)
    if isinstance(value, Sequence):
        deck = _names(value, where)
        _check_deck(deck, where)
        return deck
    raise UserError(
        f"{where} is {value!r}; give random, starter, shipped, a shipped deck's name, a deck file, named decks, eight "
        "card names or a pool of cards"
    )


def _of_word(word: str, where: str) -> Plain:
    if word in (RANDOM, STARTER):
        return word
    if word == MIRRORED:
        raise UserError(f"{where} is 'mirrored', which says nothing of the cards; write mirrored: true beside own")
    if word == SHIPPED:
        return dict(shipped_decks())
    if Path(word).suffix.lower() in _FILES:
        return _of_file(word, where)
    if word in (known := shipped_decks()):
        return {word: known[word]}
    words = (STARTER, RANDOM, MIRRORED, SHIPPED, *known)
    raise UserError(
        f"{where} is {word!r}; give starter, random, mirrored, shipped, a shipped deck's name, a deck file (.yaml, "
        f".json), eight card names or a pair of decks{near_matches(word, words)}"
    )


def _of_file(path: str, where: str) -> Plain:
    try:
        held = yaml.safe_load(Path(path).expanduser().read_text(encoding="utf-8"))
    except OSError as failed:
        raise UserError(
            f"{where} is {path!r}, and that deck file cannot be read ({failed.strerror}); {remedy(failed)}"
        ) from failed
    except (yaml.YAMLError, UnicodeDecodeError) as torn:
        raise UserError(
            f"{where} is {path!r}, which is neither YAML nor JSON ({' '.join(str(torn).split())})"
        ) from torn
    if not isinstance(held, Mapping):
        raise UserError(f"{where} is {path!r}, which holds no named decks; write `name: [eight cards]` lines into it")
    return _source(held, f"{where} {path!r}")


def _named_decks(decks: Mapping[Any, Any], where: str) -> dict[str, Any]:
    if not decks:
        raise UserError(f"{where} holds no deck; write {{name: [eight cards]}}")
    out: dict[str, Any] = {}
    for name, value in decks.items():
        at = f"{where}: {name}"
        if not isinstance(name, str):
            raise UserError(f"{where} names a deck {name!r}; give it a name of letters, in quotes if need be")
        cards, weight = (value.get("cards"), value.get("weight", 1.0)) if isinstance(value, Mapping) else (value, 1.0)
        if isinstance(value, Mapping) and (extra := set(value) - {"cards", "weight"}):
            raise UserError(f"{at} has the unknown key {min(map(str, extra))!r}; a deck takes cards and weight")
        if not _positive(weight):
            raise UserError(f"{at} has weight {weight!r}; give a number above 0, or leave the deck out")
        names = _names(cards, at)
        _check_deck(names, at)
        out[name] = names if weight == 1.0 else {"cards": names, "weight": float(weight)}
    return out


def _plain_pool(pool: CardPool, where: str) -> dict[str, Any]:
    held = pool.checked(where)
    out = {f.name: getattr(held, f.name) for f in fields(held) if getattr(held, f.name) is not None}
    if not out:
        raise UserError(f"{where} is a pool without cards and widen; write random for all cards")
    return out


def _names(value: Any, where: str) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(c, str) for c in value):
        raise UserError(f"{where} is {value!r}; give a list of card names")
    return list(value)


def _schedule(value: Any, where: str) -> list[list[Any]]:
    def fits(entry: Any) -> bool:
        if not isinstance(entry, Sequence) or isinstance(entry, str) or len(entry) != 2:
            return False
        return _whole(entry[0]) and (entry[1] == ALL or (_whole(entry[1]) and entry[1] >= DECK_SIZE))

    rows = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []
    if not rows or not all(map(fits, rows)):
        raise UserError(
            f"{where} is {value!r}; give pairs of [game_steps, cards], such as "
            f"[[0, 16], [1000000, 64], [2000000, all]], with at least {DECK_SIZE} cards in each"
        )
    starts, sizes = [r[0] for r in rows], [math.inf if r[1] == ALL else r[1] for r in rows]
    rising = all(a < b for a, b in pairwise(starts)) and all(a < b for a, b in pairwise(sizes))
    if starts[0] != 0 or not rising:
        raise UserError(f"{where} is {[list(r) for r in rows]}; begin at game step 0 and let both numbers rise")
    return [list(r) for r in rows]


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0.0 < value < math.inf


def _check_deck(deck: Sequence[str], where: str) -> None:
    if len(deck) != DECK_SIZE:
        raise UserError(f"{where} has {len(deck)} cards ({', '.join(map(str, deck))}); a deck has {DECK_SIZE}")
    twice = sorted({c for c in deck if list(deck).count(c) > 1})
    if twice:
        raise UserError(f"{where} holds {twice[0]!r} twice; the eight cards of a deck are different")
