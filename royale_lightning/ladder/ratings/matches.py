"""Rated results counted into matches: integers over sorted players, hence blind to the order of the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ...errors import UserError
from ..results import DRAW, TRUE_START, Result

#: A game's outcome for the player that is asked about, and its score.
LOSS, DRAWN, WIN = 0, 1, 2
SCORES = np.array([0.0, 0.5, 1.0])


@dataclass(frozen=True)
class Matches:
    """Every pairing that was played, first player before second in the order of ``players``.

    Attributes:
        players: ids, sorted; only those with a game.
        first, second: int64 ``[m]``, indices into ``players``, sorted by (first, second).
        games: int64 ``[m, 3]``, all games by the first player's outcome: lost, drawn, won.
        pairs: int64 ``[m, 3, 3]``, seeds played from both seats, by the first player's outcome as blue (row) and as
            red (column).
    """

    players: tuple[str, ...]
    first: np.ndarray
    second: np.ndarray
    games: np.ndarray
    pairs: np.ndarray

    @property
    def n(self) -> np.ndarray:
        """int64 ``[m]``, games of each match."""
        return self.games.sum(axis=1)

    @property
    def scores(self) -> np.ndarray:
        """float64 ``[m]``, mean score of the first player."""
        return self.games @ SCORES / self.n

    def per_player(self, of_match: np.ndarray) -> np.ndarray:
        """A number per match summed over each player's matches, ``[players]``."""
        size = len(self.players)
        return np.bincount(self.first, of_match, size) + np.bincount(self.second, of_match, size)

    @property
    def payoff(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean score of the row's player against the column's, and games; both ``[players, players]``.

        A pairing nobody played is NaN with 0 games, never one half.
        """
        size = len(self.players)
        score = np.full((size, size), np.nan)
        count = np.zeros((size, size), dtype=np.int64)
        score[self.first, self.second] = self.scores
        score[self.second, self.first] = 1.0 - self.scores
        count[self.first, self.second] = count[self.second, self.first] = self.n
        return score, count


def count_matches(results: Iterable[Result]) -> Matches:
    """Count what enters ratings: results of kind ``eval`` from true starts.

    Args:
        results: in any order; a battle that stands there twice counts once.

    Raises:
        UserError: one battle with two winners, so two different games were logged as one.
    """
    winners: dict[tuple[str, str, int], int] = {}
    for r in results:
        if r.kind != "eval" or r.start != TRUE_START:
            continue
        if winners.setdefault(r.key, r.winner) != r.winner:
            raise UserError(
                f"{r.blue!r} against {r.red!r} on seed {r.seed} is logged with two different winners; the log mixes "
                "two engines or two ways of acting, so rate them apart"
            )
    outcomes: dict[tuple[str, str], dict[int, list[int]]] = defaultdict(lambda: defaultdict(lambda: [-1, -1]))
    for (blue, red, seed), winner in winners.items():
        seat = int(blue > red)  # of the first player of the match
        outcome = DRAWN if winner == DRAW else WIN if winner == seat else LOSS
        outcomes[min(blue, red), max(blue, red)][seed][seat] = outcome
    players = tuple(sorted({p for match in outcomes for p in match}))
    at = {p: i for i, p in enumerate(players)}
    keys = sorted(outcomes)
    games = np.zeros((len(keys), 3), dtype=np.int64)
    pairs = np.zeros((len(keys), 3, 3), dtype=np.int64)
    for m, key in enumerate(keys):
        for as_blue, as_red in outcomes[key].values():
            for outcome in (as_blue, as_red):
                if outcome >= 0:
                    games[m, outcome] += 1
            if min(as_blue, as_red) >= 0:
                pairs[m, as_blue, as_red] += 1
    first, second = (np.array([at[key[k]] for key in keys], dtype=np.int64) for k in (0, 1))
    return Matches(players, first, second, games, pairs)
