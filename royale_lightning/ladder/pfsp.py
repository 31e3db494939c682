"""Prioritized fictitious self-play: whom of the pool the learner meets, from how it fares against each.

Vinyals et al. 2019, "Prioritized fictitious self-play": the chance to meet B is proportional to
``f(P(learner beats B))``. ``P`` is measured on the live learner's own training episodes, and begins at what the ratings
predict. (They alone cannot give it: the learner is no fixed player, and a sampler that looks up a rating the learner
does not have is uniform without saying so. But a member that it has outgrown, and hardly meets, would without them be
taken for its equal as soon as the last games against it are forgotten.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..battle.players import LIVE, live_player
from ..errors import UserError, near_matches
from .ratings.elo import expected_score

#: Weight of an opponent by the learner's expected score against it.
WEIGHTINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    # Whom the learner loses to; squared as in the published pseudocode.
    "hard": lambda x: (1.0 - x) ** 2,
    # Who is near the learner's strength; for a learner too weak to gain from opponents that always win.
    "variance": lambda x: x * (1.0 - x),
    "linear": lambda x: 1.0 - x,
    "uniform": np.ones_like,
}
#: Weights that sum to no more than this say nothing about anyone.
NEGLIGIBLE = 1e-10
#: Chances that lie no further apart are one chance.
CONSTANT = 1e-9
#: Effective games from which a score counts as evidence; its error is then near 0.1.
EVIDENCE = 20.0


@dataclass
class LearnerRecord:
    """How the live learner fares against each opponent: decayed games and points.

    Args:
        per_game: what a further game leaves of the earlier ones against the same opponent; 0.99 remembers about 100.
        per_iteration: what an iteration leaves of all. Without it an opponent that is no longer met would keep the
            score it had against a learner of long ago; 0.99 halves the evidence in 69 iterations.
        games, points: by opponent.
    """

    per_game: float = 0.99
    per_iteration: float = 0.99
    games: dict[str, float] = field(default_factory=dict)
    points: dict[str, float] = field(default_factory=dict)

    def add(self, opponent: str, score: float) -> None:
        """Count one finished game; ``score`` is the learner's."""
        self.games[opponent] = self.per_game * self.games.get(opponent, 0.0) + 1.0
        self.points[opponent] = self.per_game * self.points.get(opponent, 0.0) + score

    def end_iteration(self) -> None:
        """The learner has changed: what was measured before counts less."""
        for counts in (self.games, self.points):
            for opponent in counts:
                counts[opponent] *= self.per_iteration

    def keep(self, opponents: Sequence[str]) -> None:
        """Forget everybody else."""
        for counts in (self.games, self.points):
            for gone in set(counts) - set(opponents):
                del counts[gone]

    def state_dict(self) -> dict[str, dict[str, float]]:
        """Plain numbers, for a checkpoint."""
        return {"games": dict(self.games), "points": dict(self.points)}

    def load_state_dict(self, state: Mapping[str, Mapping[str, float]]) -> None:
        self.games, self.points = dict(state["games"]), dict(state["points"])


@dataclass(frozen=True)
class PfspTable:
    """Chances of an iteration's pool opponents, and what they rest on.

    Attributes:
        opponents: ids, in the order given.
        probability, score, games: ``[m]``: chance to be drawn, the learner's expected score, effective games behind it.
        fallback: why the chances are uniform although another weighting was asked for; ``None`` when they are not.
    """

    opponents: tuple[str, ...]
    probability: np.ndarray
    score: np.ndarray
    games: np.ndarray
    fallback: str | None

    @property
    def divergence(self) -> float:
        """Kullback-Leibler divergence from the uniform draw, nats: how much the weighting does."""
        q = self.probability[self.probability > 0.0]
        return max(0.0, float((q * np.log(q * self.probability.size)).sum()))

    @property
    def effective_opponents(self) -> float:
        """``1 / sum q^2``."""
        return float(1.0 / (self.probability**2).sum()) if self.probability.size else 0.0

    @property
    def evidence_share(self) -> float:
        """Chance that the opponent drawn is one whose score rests on :data:`EVIDENCE` games or more."""
        return float(self.probability[self.games >= EVIDENCE].sum())


def pfsp(
    opponents: Sequence[str],
    record: LearnerRecord,
    weighting: str = "hard",
    uniform_share: float = 0.2,
    prior_games: float = 4.0,
    prior: Mapping[str, float] | None = None,
) -> PfspTable:
    """Chances of the opponents.

    ``q = (1 - u) f(x) / sum f + u / m`` with ``x = (points + prior_games x0) / (games + prior_games)``, the mean of a
    Beta posterior around the prior score ``x0``.

    Args:
        opponents: ids, distinct.
        record: of the live learner.
        weighting: a name of :data:`WEIGHTINGS`.
        uniform_share: of draws that look at nothing, so that everybody is measured again now and then.
        prior_games: pseudo-games at the prior score. Four keep the first two wins from emptying an opponent's weight.
        prior: scores before any game, by opponent, such as :func:`predicted`; one half for those it does not have.

    Raises:
        UserError: an unknown weighting, a share outside [0, 1], or no prior.
    """
    check_pfsp(weighting, uniform_share, prior_games)
    m = len(opponents)
    games = np.array([record.games.get(o, 0.0) for o in opponents], dtype=np.float64)
    points = np.array([record.points.get(o, 0.0) for o in opponents], dtype=np.float64)
    before = np.array([(prior or {}).get(o, 0.5) for o in opponents], dtype=np.float64)
    score = (points + prior_games * before) / (games + prior_games)
    weight = WEIGHTINGS[weighting](score)
    fallback = None
    if weighting != "uniform" and m > 1:
        if weight.sum() <= NEGLIGIBLE:
            fallback = "no opponent of the pool has any weight left"
        elif np.ptp(weight) <= CONSTANT * weight.sum():
            unmet = not games.any() and not prior
            fallback = (
                "the learner has neither results nor a rating against the pool yet" if unmet else
                "no opponent of the pool weighs more than another"
            )
    if fallback is not None:
        weight = np.ones(m)
    share = weight / weight.sum() if m else weight
    probability = (1.0 - uniform_share) * share + uniform_share / max(m, 1)
    return PfspTable(tuple(opponents), probability, score, games, fallback)


def predicted(ratings: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The learner's expected score against everybody rated, by the newest rating it has; empty before one.

    A prior for :func:`pfsp` and no measurement: the learner has moved on since, and Elo points of decisive games
    overstate a score where many are drawn.

    Args:
        ratings: player -> ``{"rating"}``, the live learner's among them under the names of
            :func:`~.results.live_player`.
    """
    ages = [int(age) for p in ratings if p.startswith(LIVE) and (age := p.removeprefix(LIVE)).isdecimal()]
    if not ages:
        return {}
    mine = ratings[live_player(max(ages))]["rating"]
    return {p: float(expected_score(mine - r["rating"])) for p, r in ratings.items() if not p.startswith(LIVE)}


def check_pfsp(weighting: str, uniform_share: float, prior_games: float) -> None:
    """Refuse settings of :func:`pfsp` that make no sense."""
    if weighting not in WEIGHTINGS:
        known = ", ".join(WEIGHTINGS)
        raise UserError(f"pfsp weighting is {weighting!r}; give one of {known}{near_matches(weighting, WEIGHTINGS)}")
    if not 0.0 <= uniform_share <= 1.0:
        raise UserError(f"pfsp uniform_share is {uniform_share}; give a share from 0 to 1, such as 0.2")
    if not prior_games > 0.0:
        raise UserError(f"pfsp prior_games is {prior_games}; give a number of games above 0, such as 4")
