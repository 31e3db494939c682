"""Scores by deck: how a bot fares with and against each named deck and each card, and deck against deck.

Where decks are drawn they decide most battles between equals, so that one mean hides decks a bot wins with nine times
in ten and others it wins with once. Whoever met whom is not balanced beyond what was drawn: a cell is a mean over the
battles that happened, its interval over their seeds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from rich.table import Table

from ..battle.dealing import Dealt
from ..battle.engine.engine import shared_engine
from ..battle.round import Deal, EpisodeRecord
from ..battle.spec import BattleSpec
from ..metrics.intervals import share_interval

#: Seeds below which a cell has no interval, and stands in no table: a spread of fewer says little of itself.
LEAST_SEEDS = 10
#: Cards a table shows, half of them the best ones and half the worst; and decks of the largest table that fits a screen
#: of 80 columns.
_CARDS, _DECKS = 12, 16


@dataclass(frozen=True)
class Cell:
    """One deck's or card's battles.

    Args:
        games, seeds: they were, and lie on so many seeds.
        score: the bot's, (wins + half the draws) / games.
        low, high: its 95 % interval, seeds as units (``intervals.share_interval``); None on fewer than
            :data:`LEAST_SEEDS`.
    """

    games: int
    seeds: int
    score: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, results: Sequence[tuple[int, float]]) -> Cell:
        """Of ``(seed, score)`` of each battle."""
        seeds = np.unique([seed for seed, _ in results], return_inverse=True)[1]
        points = np.bincount(seeds, weights=[score for _, score in results])
        games = np.bincount(seeds)
        score, low, high = share_interval(points, games)
        few = len(games) < LEAST_SEEDS
        return cls(len(results), len(games), score, None if few else low, None if few else high)

    @property
    def shown(self) -> bool:
        """Whether there are seeds enough to say something."""
        return self.low is not None

    def text(self) -> tuple[str, str, str]:
        """Score, interval and games, for a table."""
        interval = f"{self.low:.2f}–{self.high:.2f}" if self.shown else ""
        return f"{self.score:.2f}", interval, str(self.games)


@dataclass(frozen=True)
class DeckScores:
    """A bot's battles against all opponents, by what was dealt.

    Args:
        own: by the name of the deck that the bot held; decks without a name are in none of these.
        enemy: by the name of the deck that it met.
        pairs: by both, ``{own: {enemy: cell}}``.
        own_cards, enemy_cards: by each card in them.
        least_seeds: :data:`LEAST_SEEDS`.
    """

    own: dict[str, Cell]
    enemy: dict[str, Cell]
    pairs: dict[str, dict[str, Cell]]
    own_cards: dict[str, Cell]
    enemy_cards: dict[str, Cell]
    least_seeds: int = LEAST_SEEDS

    @classmethod
    def of(cls, games: Iterable[tuple[EpisodeRecord, int]], spec: BattleSpec) -> DeckScores:
        """Sort battles by their decks, which follow from their seeds.

        Args:
            games: decided, each with the bot's seat.
            spec: the whole battles that were played.
        """
        names = [c.name for c in shared_engine().cards()]

        @lru_cache(maxsize=4096)
        def dealt(seed: int, deal: Deal) -> tuple[Dealt, Dealt]:
            return spec.dealt(seed, deal)

        found: dict[str, dict[Any, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
        for record, seat in games:
            score = record.score(seat)
            assert score is not None, "only decided battles have a score"
            decks = dealt(record.seed, record.deal)
            own, enemy = decks[seat], decks[1 - seat]
            result = (record.seed, score)
            if own.name:
                found["own"][own.name].append(result)
            if enemy.name:
                found["enemy"][enemy.name].append(result)
            if own.name and enemy.name:
                found["pairs"][own.name, enemy.name].append(result)
            for kind, deck in (("own_cards", own), ("enemy_cards", enemy)):
                for card in deck.cards:
                    found[kind][names[card]].append(result)
        cells = {kind: {k: Cell.of(v) for k, v in sorted(found[kind].items())} for kind in found}
        pairs: dict[str, dict[str, Cell]] = {}
        for (mine, other), cell in cells.get("pairs", {}).items():
            pairs.setdefault(mine, {})[other] = cell
        return cls(
            own=cells.get("own", {}), enemy=cells.get("enemy", {}), pairs=pairs,
            own_cards=cells.get("own_cards", {}), enemy_cards=cells.get("enemy_cards", {}),
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    # ---- for people ------------------------------------------------------------------------------------------
    def tables(self, mode: str) -> list[Table]:
        """What fits a screen, cells on fewer than :data:`LEAST_SEEDS` seeds left out.

        Args:
            mode: how the bot acted, for the titles.
        """
        out = []
        if self.own or self.enemy:
            out.append(self._decks(mode))
        if any(cell.shown for row in self.pairs.values() for cell in row.values()):
            out.append(self._pairs(mode))
        return [*out, self._cards(mode)]

    def _decks(self, mode: str) -> Table:
        table = _table(f"by deck, {mode}", ("deck", "holding it", "95 %", "games", "against it", "95 %", "games"))
        order = sorted({**self.own, **self.enemy}, key=_weakest_last(self.own, self.enemy))[: 2 * _DECKS]
        hidden = 0
        for name in order:
            held, met = self.own.get(name), self.enemy.get(name)
            cells = [c.text() if c is not None and c.shown else ("·", "", str(c.games) if c else "")
                     for c in (held, met)]
            hidden += sum(c is not None and not c.shown for c in (held, met))
            table.add_row(name, *cells[0], *cells[1])
        table.caption = _caption(hidden, len(order) * 2)
        return table

    def _pairs(self, mode: str) -> Table:
        rows = sorted(self.pairs, key=_weakest_last(self.own))[:_DECKS]
        met = {name: cell.games for name, cell in self.enemy.items()}
        columns = sorted(sorted(met, key=lambda n: -met[n])[:_DECKS])
        numbers = map(str, range(1, len(columns) + 1))
        table = _table(f"deck against deck, {mode}: score in per cent", ("holding it", *numbers))
        hidden = 0
        for name in rows:
            cells = [self.pairs[name].get(other) for other in columns]
            hidden += sum(c is not None and not c.shown for c in cells)
            table.add_row(name, *(f"{100 * c.score:.0f}" if c is not None and c.shown else "·" for c in cells))
        against = ", ".join(f"{i} {name}" for i, name in enumerate(columns, 1))
        table.caption = f"against {against}\n{_caption(hidden, len(rows) * len(columns))}"
        return table

    def _cards(self, mode: str) -> Table:
        columns = ("score", "95 %", "games")
        table = _table(f"by card, {mode}: best and worst", ("own deck", *columns, "enemy's", *columns))
        sides = []
        for cells in (self.own_cards, self.enemy_cards):
            shown = sorted((n for n in cells if cells[n].shown), key=lambda n: (-cells[n].score, n))
            if len(shown) > _CARDS:
                shown = shown[: _CARDS // 2] + shown[-_CARDS // 2 :]
            sides.append([(n, *cells[n].text()) for n in shown])
        empty = ("", "", "", "")
        for i in range(max(map(len, sides))):
            left, right = (side[i] if i < len(side) else empty for side in sides)
            table.add_row(*left, *right)
        hidden = sum(not c.shown for cells in (self.own_cards, self.enemy_cards) for c in cells.values())
        table.caption = _caption(hidden, len(self.own_cards) + len(self.enemy_cards))
        return table


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="underline")
    for i, name in enumerate(columns):
        left = i == 0 or name == "enemy's"
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    return table


def _weakest_last(*sides: Mapping[str, Cell]) -> Callable[[str], tuple[float, str]]:
    """Sorts names by their first cell's score, best first."""

    def key(name: str) -> tuple[float, str]:
        cell = next((side[name] for side in sides if name in side), None)
        return (2.0 if cell is None or not cell.shown else -cell.score, name)

    return key


def _caption(hidden: int, of: int) -> str:
    if not hidden:
        return ""
    more = "; play more --games" if 2 * hidden > of else ""
    return f"{hidden} scores on fewer than {LEAST_SEEDS} seeds are left out{more}"
