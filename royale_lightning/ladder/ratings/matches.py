"""Rated results counted into matches: integers over sorted players, hence blind to the order of the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...errors import UserError
from ..results import DRAW, TRUE_START, Result

#: A game's outcome for the player that is asked about, and its score.
LOSS, DRAWN, WIN = 0, 1, 2
SCORES = np.array([0.0, 0.5, 1.0])


def _no_counts(*shape: int) -> np.ndarray:
    return np.zeros(shape, dtype=np.int64)


@dataclass(frozen=True)
class SharedSeeds:
    """Seeds on which one player met several others, such as the frozen ones of a gate's anchors: their games depend on
    each other, since most of a scripted opponent's result hangs on the seed.

    One entry per match and seed of it.

    Attributes:
        match: int64 ``[k]``, index of the match.
        seed: int64 ``[k]``, equal for equal seeds.
        games: int64 ``[k, 3]``, the seed's games by the first player's outcome: lost, drawn, won.
    """

    match: np.ndarray = field(default_factory=lambda: _no_counts(0))
    seed: np.ndarray = field(default_factory=lambda: _no_counts(0))
    games: np.ndarray = field(default_factory=lambda: _no_counts(0, 3))


@dataclass(frozen=True)
class Matches:
    """Every pairing that was played, first player before second in the order of ``players``.

    Attributes:
        players: ids, sorted; only those with a game.
        first, second: int64 ``[m]``, indices into ``players``, sorted by (first, second).
        games: int64 ``[m, 3]``, all games by the first player's outcome: lost, drawn, won.
        pairs: int64 ``[m, 3, 3]``, seeds played from both seats, by the first player's outcome as blue (row) and as
            red (column).
        shared: seeds on which a player met several others.
    """

    players: tuple[str, ...]
    first: np.ndarray
    second: np.ndarray
    games: np.ndarray
    pairs: np.ndarray
    shared: SharedSeeds = SharedSeeds()

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
        UserError: one battle with two winners, so two different games were logged as one; or battles of two contexts,
            such as two decks or engines, in which a player is not one player.
    """
    outcomes: dict[tuple[str, str], dict[int, list[int]]] = {}
    context: str | None = None
    for r in results:
        if r.kind != "eval" or r.start != TRUE_START:
            continue
        context = r.context if context is None else context
        if r.context != context:
            raise UserError(
                f"these results are of two contexts, {context or 'none'} and {r.context or 'none'}: their battles had "
                "other decks or another engine; rate each context apart (ladder.context.of_context)"
            )
        seat = int(r.blue > r.red)  # of the first player of the match
        match = (r.red, r.blue) if seat else (r.blue, r.red)
        outcome = DRAWN if r.winner == DRAW else WIN if r.winner == seat else LOSS
        seats = outcomes.setdefault(match, {}).setdefault(r.seed, [-1, -1])
        if seats[seat] not in (-1, outcome):
            raise UserError(
                f"{r.blue!r} against {r.red!r} on seed {r.seed} is logged with two different winners; the log mixes "
                "two engines or two ways of acting, so rate them apart"
            )
        seats[seat] = outcome
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
    return Matches(players, first, second, games, pairs, _shared([outcomes[key] for key in keys], first, second))


def _shared(outcomes: Sequence[Mapping[int, Sequence[int]]], first: np.ndarray, second: np.ndarray) -> SharedSeeds:
    """Of each match's outcomes by seed, those on a seed that one of its players used in another match too."""
    met: dict[int, list[int]] = {}
    for m, seeds in enumerate(outcomes):
        for seed in seeds:
            met.setdefault(seed, []).append(m)
    match, at, games = [], [], []
    for seed in sorted(s for s, where in met.items() if len(where) > 1):
        used = Counter(int(ends[m]) for m in met[seed] for ends in (first, second))
        for m in met[seed]:
            if used[int(first[m])] > 1 or used[int(second[m])] > 1:
                match.append(m)
                at.append(seed)
                games.append([outcomes[m][seed].count(o) for o in (LOSS, DRAWN, WIN)])
    if not match:
        return SharedSeeds()
    # Seeds are of any size, their places are not.
    place = {seed: k for k, seed in enumerate(sorted(set(at)))}
    return SharedSeeds(
        np.array(match, dtype=np.int64), np.array([place[s] for s in at], dtype=np.int64),
        np.array(games, dtype=np.int64),
    )
