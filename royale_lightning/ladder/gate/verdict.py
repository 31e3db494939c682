"""What a gate is asked and what it answers: plain records."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from ..ratings.rating import Ratings

Outcome = Literal["promoted", "admitted", "cycle", "rejected", "skipped"]
OUTCOMES: tuple[str, ...] = get_args(Outcome)


@dataclass(frozen=True)
class GateContext:
    """A candidate and what it is measured against.

    Args:
        candidate: its snapshot id. Ids are digests of the weights, so equal weights have equal ids.
        champion: the best snapshot so far; ``None`` before there is one.
        anchors: players that never change and that no champion may get worse against, such as scripted opponents.
        pool: snapshots the learner trains against.
        ratings: the newest fit, by which the pool is stratified and predicted; ``None`` before there is one.
        number: of this gate in the run, from 0; no two gates share seeds.
        rejections: candidates rejected in a row before this one.
        seed: of the run's named streams.
    """

    candidate: str
    champion: str | None
    anchors: tuple[str, ...] = ()
    pool: tuple[str, ...] = ()
    ratings: Ratings | None = None
    number: int = 0
    rejections: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Condition:
    """One stage of a gate.

    Args:
        name: ``champion``, ``anchors`` or ``pool``.
        passed: ``None`` when it could not be judged: a stage without opponents is skipped, not passed.
        why: one clause.
        battles: it rests on.
        numbers: JSON-ready.
        judged: whether its battles were finished; too many that were not say nothing about the candidate.
    """

    name: str
    passed: bool | None
    why: str
    battles: int
    numbers: dict[str, Any]
    judged: bool = True


@dataclass(frozen=True)
class Verdict:
    """A gate's answer.

    Args:
        outcome: ``promoted`` (the new champion), ``admitted`` (an opponent of the pool, no champion), ``cycle`` (beats
            the champion and collapses against part of the pool: an opponent with that role), ``rejected``, or
            ``skipped`` (no battle was played to judge it).
        why: one sentence.
        candidate, champion, number: of the context.
        conditions: the stages that were reached.
        llr: of the match against the champion, where the gate tests sequentially.
    """

    outcome: Outcome
    why: str
    candidate: str
    champion: str | None
    number: int
    conditions: tuple[Condition, ...] = ()
    llr: float | None = None

    @classmethod
    def of(
        cls, context: GateContext, outcome: Outcome, why: str, conditions: tuple[Condition, ...] = ()
    ) -> Verdict:
        llr = next((c.numbers["llr"] for c in conditions if "llr" in c.numbers), None)
        return cls(outcome, why, context.candidate, context.champion, context.number, conditions, llr)

    @property
    def battles(self) -> int:
        """Battles the verdict rests on."""
        return sum(c.battles for c in self.conditions)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "conditions": [asdict(c) for c in self.conditions], "battles": self.battles}
