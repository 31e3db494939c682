"""The backward curriculum: on each route a front that moves from the end of a won battle towards its beginning.

Episodes begin at the front against the frozen loser; once the learner wins from there about as often as the policy that
played the route, the front moves back. After Salimans and Chen 2018 ("Learning Montezuma's Revenge from a Single
Demonstration"), with a front per route and starts on the easier side as in Tao et al. 2024 (RFCL).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...errors import UserError
from ...metrics.intervals import wilson
from ..records.route import Rung
from ..selection.selection import draw, pick

PLATEAU, SALIMANS_CHEN = "plateau", "salimans_chen"
MODES = (PLATEAU, SALIMANS_CHEN)
#: One-sided 95 %.
_Z = 1.6449


@dataclass(frozen=True)
class CurriculumSettings:
    """Settings of the backward curriculum.

    Args:
        mode: ``plateau`` (votes of the exact front, advance on a lower confidence bound or at a plateau) or
            ``salimans_chen`` (votes of a band on the harder side, advance when a share of them ties the route).
        decision_granular: a rung a game step, minted by replay; else a rung a stored segment.
        window: votes before any judgement; fewer say nothing.
        minimum_rate: lowest win rate that counts as mastery, and in ``salimans_chen`` the share that must tie; Salimans
            and Chen used 0.2.
        reference_share: of the route's own policy's win rate from the rung, where measured, that must be surpassed;
            the opponent is stochastic, so nobody wins every time.
        grace: votes at a new front before it is judged (``plateau``): a depth never seen reads 0 at first. Two windows:
            a battle has some 18 rungs, and of a million game steps 0.3 give about 1500 votes.
        patience: votes without a better rate after which the plateau is reached.
        delta: the smallest better rate that counts.
        retreat_rate: win rates up to this return the front to the easier side.
        most_retreats: retreats from one place that end in a stall.
        step: game steps a front moves at least, to the next rung; 10 are 5 s.
        first_steps: game steps left at the first front where nobody measured a contested rung. Near the end of a won
            battle doing nothing usually still wins; 40 are 20 s.
        band: game steps on the harder side that also start and vote (``salimans_chen``).
        front_share: of starts at the front itself (with its band in ``salimans_chen``, where the rest is rehearsal).
        rehearsal_share: of starts spread over all easier rungs, against forgetting; the rest falls off geometrically on
            the easier side.
    """

    mode: str = PLATEAU
    decision_granular: bool = False
    window: int = 50
    minimum_rate: float = 0.2
    reference_share: float = 0.8
    grace: int = 100
    patience: int = 200
    delta: float = 0.02
    retreat_rate: float = 0.0
    most_retreats: int = 3
    step: int = 10
    first_steps: int = 40
    band: int = 20
    front_share: float = 0.5
    rehearsal_share: float = 0.15

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UserError(f"restarts.curriculum.mode is {self.mode!r}; give one of {', '.join(MODES)}")
        for name, least in (
            ("window", 1), ("grace", 0), ("patience", 1), ("most_retreats", 1), ("step", 1), ("first_steps", 1),
            ("band", 0),
        ):
            if getattr(self, name) < least:
                raise UserError(f"restarts.curriculum.{name} is {getattr(self, name)}; give at least {least}")
        for name in ("minimum_rate", "reference_share", "delta", "retreat_rate", "front_share", "rehearsal_share"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UserError(f"restarts.curriculum.{name} is {getattr(self, name)}; give a share from 0 to 1")
        if self.front_share <= 0.0 or self.front_share + self.rehearsal_share > 1.0:
            raise UserError(
                f"restarts.curriculum.front_share {self.front_share} must be above 0, and not above 1 together with "
                f"rehearsal_share {self.rehearsal_share}"
            )


class Vote(NamedTuple):
    """Where an episode began, as its result must say again to be counted."""

    route: int
    generation: int
    rung: int


@dataclass
class Front:
    """One route's front and what has been seen there.

    Attributes:
        rungs: by time; the last is the end and is never served.
        group: of the route.
        opponent: who must be playable for it.
        margin: crown margin of the route's win, which ``salimans_chen`` ties.
        index: the front's rung; -1 when the route is retired, its battle mastered from the start.
        generation: raised whenever front or rungs change, so that votes from before do not count.
        votes: latest successes, newest last.
        seen: votes at this place.
        best, since_best: best rate at this place, and votes since.
        retreats_from: rung -> retreats.
        stalled: it does not advance any more; starts go on, and it may still retreat.
        asleep: the opponent is gone.
    """

    rungs: tuple[Rung, ...]
    group: str
    opponent: str
    margin: int
    index: int
    generation: int = 0
    votes: deque[bool] = field(default_factory=deque)
    seen: int = 0
    best: float = 0.0
    since_best: int = 0
    retreats_from: Counter[int] = field(default_factory=Counter)
    stalled: bool = False
    asleep: bool = False

    @property
    def last(self) -> int:
        """The easiest rung that is ever served."""
        return len(self.rungs) - 2

    @property
    def remaining(self) -> int:
        """Game steps of the battle that lie before the front; 0 when retired."""
        return self.rungs[self.index].game_step if self.index >= 0 else 0

    def move(self, index: int) -> None:
        """Stand at another rung, and forget what was seen at the old one."""
        self.index = max(-1, min(index, self.last))
        self.generation += 1
        self.votes.clear()
        self.seen, self.best, self.since_best = 0, 0.0, 0


def rung_at(rungs: Sequence[Rung], steps_left: int) -> int:
    """The latest rung with at least ``steps_left`` game steps to play, the first if none has; never the end."""
    return max((i for i in range(len(rungs) - 1) if rungs[i].steps_left >= steps_left), default=0)


class _Frozen(NamedTuple):
    """What starts on one route are drawn from during an iteration."""

    route: int
    generation: int
    remaining: int
    weights: list[float]


class BackwardCurriculum:
    """Fronts by route number.

    Args:
        settings: of the curriculum.
        seed: of its named stream.
    """

    def __init__(self, settings: CurriculumSettings, seed: int) -> None:
        self.settings = settings
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self.starved_streak = 0
        self._fronts: dict[int, Front] = {}
        self._frozen: tuple[_Frozen, ...] = ()

    # ---- routes ------------------------------------------------------------------------------------------------
    def register(
        self, route_id: int, rungs: Sequence[Rung], group: str, opponent: str, margin: int, *,
        steps_left: int | None = None,
    ) -> bool:
        """Put a front on a route, or on its new rungs.

        A known route keeps its front's distance to the end. A new one begins at the rung with at least
        ``steps_left`` game steps to play (of a route it takes over from, or measured as contested), by default
        ``first_steps``.

        Returns:
            Whether the route has a front: one of fewer than two rungs before its end has nothing to walk.
        """
        rungs = tuple(rungs)
        front = self._fronts.get(route_id)
        if front is not None:
            if rungs != front.rungs:
                left = front.rungs[front.index].steps_left if front.index >= 0 else None
                front.rungs = rungs
                front.retreats_from.clear()
                front.stalled = False
                front.move(-1 if left is None else rung_at(rungs, left))
                self.counts["reanchored"] += 1
            return True
        if len(rungs) < 3:
            self.counts["too_short"] += 1
            return False
        index = rung_at(rungs, self.settings.first_steps if steps_left is None else steps_left)
        self._fronts[route_id] = Front(
            rungs, group, opponent, margin, index, votes=deque(maxlen=self.settings.window)
        )
        return True

    def withdraw(self, route_id: int) -> int | None:
        """Take a route's front away, because the route was displaced.

        Returns:
            Game steps left at its front, for its successor; None where it had no front or had retired.
        """
        front = self._fronts.pop(route_id, None)
        return front.rungs[front.index].steps_left if front is not None and front.index >= 0 else None

    def front(self, route_id: int) -> Front | None:
        """Live, to be read."""
        return self._fronts.get(route_id)

    @property
    def route_ids(self) -> list[int]:
        """Routes with a front, ascending."""
        return sorted(self._fronts)

    # ---- starts ------------------------------------------------------------------------------------------------
    def freeze(self, playable: Callable[[str], bool]) -> None:
        """Fix what :meth:`choose` draws from until the next call; routes whose opponent left the pool sleep."""
        frozen = []
        for route_id, front in sorted(self._fronts.items()):
            front.asleep = not playable(front.opponent)
            if front.index >= 0 and not front.asleep:
                frozen.append(_Frozen(route_id, front.generation, front.remaining, self.rung_weights(front)))
        self._frozen = tuple(frozen)

    def choose(self, battle: int, ordinal: int) -> Vote | None:
        """The rung this episode would begin from; None when no route is left. Changes nothing.

        A route is drawn in proportion to what remains before its front, a rung of it by :meth:`rung_weights`.
        """
        if not self._frozen:
            return None
        first, second = draw(self.seed, "start/curriculum", battle, ordinal, 2)
        at = self._frozen[pick([float(f.remaining) for f in self._frozen], first)]
        return Vote(at.route, at.generation, pick(at.weights, second))

    def rung_weights(self, front: Front) -> list[float]:
        """Chance of each rung to be drawn, summing to 1; the end has none.

        ``plateau``: ``front_share`` at the front, ``rehearsal_share`` evenly over all easier rungs, the rest halving
        from rung to rung on the easier side. ``salimans_chen``: ``1 - rehearsal_share`` evenly over the front and its
        band on the harder side, the rest evenly over the easier ones.
        """
        s = self.settings
        weights = [0.0] * len(front.rungs)
        easier = range(front.index + 1, front.last + 1)
        for i in easier:
            weights[i] = s.rehearsal_share / len(easier)
        rest = 1.0 - (s.rehearsal_share if len(easier) else 0.0)
        if s.mode == SALIMANS_CHEN:
            band = self.credit_band(front)
            for i in band:
                weights[i] += rest / len(band)
            return weights
        if easier:
            halves = [0.5**k for k in range(1, len(easier) + 1)]
            spread = rest - s.front_share
            for i, half in zip(easier, halves, strict=True):
                weights[i] += spread * half / sum(halves)
            rest = s.front_share
        weights[front.index] += rest
        return weights

    def credit_band(self, front: Front) -> list[int]:
        """Rungs whose episodes vote: the front, and in ``salimans_chen`` those up to ``band`` game steps before it."""
        if front.index < 0:
            return []
        at = front.rungs[front.index].game_step
        reach = self.settings.band if self.settings.mode == SALIMANS_CHEN else 0
        return [i for i in range(front.index + 1) if at - front.rungs[i].game_step <= reach]

    def record_attempt(self, served: bool) -> None:
        """A start was wanted; starved when none could be given."""
        self.counts["attempts"] += 1
        self.counts["served" if served else "starved"] += 1
        self.starved_streak = 0 if served else self.starved_streak + 1

    # ---- votes -------------------------------------------------------------------------------------------------
    def vote(self, vote: Vote, won: bool, crown_margin: int, by_learner: bool = True) -> bool:
        """Count an episode's result for the front it began at, and move the front if that decides it.

        Args:
            vote: where it began.
            won: by the credited seat.
            crown_margin: at the end, own minus enemy.
            by_learner: whether the learner played the credited seat; nobody else has a vote.

        Returns:
            Whether it counted.
        """
        front = self._fronts.get(vote.route)
        if front is None or vote.generation != front.generation:
            self.counts["stale"] += 1
            return False
        if not by_learner or vote.rung not in self.credit_band(front):
            self.counts["uncredited"] += 1
            return False
        tied = won and crown_margin >= front.margin
        front.votes.append(tied if self.settings.mode == SALIMANS_CHEN else won)
        front.seen += 1
        front.since_best += 1
        if len(front.votes) == self.settings.window:
            self._judge(front)
        return True

    def bar(self, front: Front) -> float:
        """The win rate that must be surpassed at the front."""
        reference = front.rungs[front.index].reference_rate
        measured = 0.0 if reference is None else self.settings.reference_share * reference
        return max(self.settings.minimum_rate, measured)

    def _judge(self, front: Front) -> None:
        s = self.settings
        rate = sum(front.votes) / len(front.votes)
        if s.mode == SALIMANS_CHEN:
            if rate >= s.minimum_rate and not front.stalled:
                self._advance(front)
            elif rate <= s.retreat_rate:
                self._retreat(front)
            return
        graced = front.seen >= s.grace
        if graced and rate <= s.retreat_rate:
            self._retreat(front)
            return
        if rate > front.best + s.delta:
            front.best, front.since_best = rate, 0
        if not graced or front.stalled:
            return
        if wilson(rate, len(front.votes), _Z)[0] > self.bar(front):
            self._advance(front)
        elif front.since_best >= s.patience:
            if front.best >= self.bar(front):
                self._advance(front)
            else:
                front.stalled = True
                self.counts["stalls"] += 1

    def _advance(self, front: Front) -> None:
        at = front.rungs[front.index].game_step
        far = [i for i in range(front.index) if at - front.rungs[i].game_step >= self.settings.step]
        front.move(max(far, default=-1))
        self.counts["advances"] += 1
        self.counts["retired"] += front.index < 0

    def _retreat(self, front: Front) -> None:
        left = front.index
        front.retreats_from[left] += 1
        at = front.rungs[left].game_step
        easier = range(left + 1, front.last + 1)
        front.move(min((i for i in easier if front.rungs[i].game_step - at >= self.settings.step), default=front.last))
        self.counts["retreats"] += 1
        if front.retreats_from[left] >= self.settings.most_retreats and not front.stalled:
            front.stalled = True
            self.counts["stalls"] += 1

    # ---- read-outs ---------------------------------------------------------------------------------------------
    def diagnostics(self) -> dict[str, float]:
        """Counters, and over the routes: how many walk, stall, sleep and have retired, and how far the fronts stand.

        ``front_steps_left`` is the mean number of game steps left at the fronts; ``rate`` the mean win rate of fronts
        whose window is full, absent without one.
        """
        fronts = list(self._fronts.values())
        walking = [f for f in fronts if f.index >= 0]
        names = ("attempts", "served", "starved", "stale", "uncredited", "advances", "retreats", "retired", "stalls",
                 "reanchored", "too_short")
        out: dict[str, float] = {n: self.counts[n] for n in names}
        out |= {
            "routes": len(fronts), "walking": len(walking), "stalled": sum(f.stalled for f in walking),
            "asleep": sum(f.asleep for f in walking), "starved_streak": self.starved_streak,
        }
        if walking:
            out["front_steps_left"] = sum(f.rungs[f.index].steps_left for f in walking) / len(walking)
        full = [f.votes for f in walking if len(f.votes) == self.settings.window]
        if full:
            out["rate"] = sum(sum(v) / len(v) for v in full) / len(full)
        return out

    # ---- state -------------------------------------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        """Plain data; between two iterations."""
        return {
            "counts": dict(sorted(self.counts.items())),
            "starved_streak": self.starved_streak,
            "fronts": [
                {
                    "route": i, "rungs": [list(r) for r in f.rungs], "group": f.group, "opponent": f.opponent,
                    "margin": f.margin, "index": f.index, "generation": f.generation, "votes": list(f.votes),
                    "seen": f.seen, "best": f.best, "since_best": f.since_best,
                    "retreats_from": [list(item) for item in sorted(f.retreats_from.items())], "stalled": f.stalled,
                }
                for i, f in sorted(self._fronts.items())
            ],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.counts, self.starved_streak = Counter(state["counts"]), state["starved_streak"]
        self._frozen, self._fronts = (), {}
        for packed in state["fronts"]:
            values = dict(packed)
            route_id = values.pop("route")
            values["rungs"] = tuple(Rung(*r) for r in values["rungs"])
            values["votes"] = deque(values["votes"], maxlen=self.settings.window)
            values["retreats_from"] = Counter(dict(values["retreats_from"]))
            self._fronts[route_id] = Front(**values)
