"""The promotion gate: is a candidate better than the champion, and not worse against anybody else?

A gate is a generator: it yields the pairs it wants played, is sent their scores, and returns a verdict. So simulated
and real battles run the same code, and whoever plays them batches them as it likes. The decisive stage comes first and
the first failure ends it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from ...errors import UserError
from ...metrics.intervals import score_interval
from ..seeds import SEEDS_PER_STAGE, gate_seeds
from .field_checks import Stage, against_anchors, against_pool, too_many_dropped
from .pairs import PairRequest, PairTable
from .sprt import ACCEPT, CONTINUE, REJECT, Sprt, normalized_elo
from .verdict import Condition, GateContext, Verdict

#: Short names of the gates we ship.
GATES = {
    "sprt": "royale_lightning.ladder.SprtGate",
    "wilson": "royale_lightning.ladder.WilsonGate",
}

Judging = Generator[tuple[PairRequest, ...], Sequence[np.ndarray], Verdict]
Play = Callable[[Sequence[PairRequest]], Sequence[np.ndarray]]


class PromotionGate(ABC):
    """Judges a candidate."""

    @abstractmethod
    def judge(self, context: GateContext) -> Judging:
        """Yield requests, be sent one float array ``[pairs, 2]`` per request (the player's scores as blue and as red,
        NaN for a battle that was not finished), return the verdict.

        The verdict is a function of the context and the scores alone.
        """


def run_gate(gate: PromotionGate, context: GateContext, play: Play) -> Verdict:
    """Judge a candidate to the end.

    Args:
        play: plays what is asked, all requests of a call together if it can; known battles need not be played again.
    """
    judging = gate.judge(context)
    try:
        wanted = next(judging)
        while True:
            wanted = judging.send(play(wanted))
    except StopIteration as end:
        verdict: Verdict = end.value
        return verdict


class StagedGate(PromotionGate):
    """Champion, then anchors, then pool; a subclass says how the champion is to be beaten.

    Args:
        anchor_pairs: seeds against each anchor, for candidate and champion; the champion's half is played once. 50 find
            a fall from 0.9 to 0.7 nine times in ten against one anchor.
        pool_members: how many strata of the pool are met.
        pool_pairs: seeds against each; 8 x 25 give the mean score an error of 2.5 points.
        starved_after: so many rejections in a row admit the candidate, unpromoted: gains add up until one passes, but
            the pool should not stop changing meanwhile. Five equal candidates in a row are rejected four times in five,
            five that gained 20 Elo one time in thirteen.
    """

    def __init__(
        self, anchor_pairs: int = 50, pool_members: int = 8, pool_pairs: int = 25, starved_after: int = 5
    ) -> None:
        for name, value in (
            ("anchor_pairs", anchor_pairs), ("pool_members", pool_members), ("pool_pairs", pool_pairs),
            ("starved_after", starved_after),
        ):
            if value < 1:
                raise UserError(f"gate {name} is {value}; give at least 1")
        if pool_members * pool_pairs > SEEDS_PER_STAGE:
            raise UserError(
                f"gate pool_members x pool_pairs is {pool_members * pool_pairs}; give at most {SEEDS_PER_STAGE}"
            )
        self.anchor_pairs, self.starved_after = anchor_pairs, starved_after
        self.pool_members, self.pool_pairs = pool_members, pool_pairs

    @abstractmethod
    def against_champion(self, candidate: str, champion: str, number: int) -> Stage:
        """The first stage, on the fresh seeds ``seeds.gate_seeds(number, 0, ...)``."""

    def judge(self, context: GateContext) -> Judging:
        if context.champion is None:
            return Verdict.of(context, "promoted", "the first snapshot: there is nobody to compare it with")
        if context.candidate == context.champion:
            return Verdict.of(context, "skipped", "the candidate's weights are the champion's")
        beats = yield from self.against_champion(context.candidate, context.champion, context.number)
        if not beats.passed:
            return self._rejected(context, (beats,))
        anchors = yield from against_anchors(context, self.anchor_pairs)
        if anchors.passed is False:
            return self._rejected(context, (beats, anchors))
        pool = yield from against_pool(context, self.pool_members, self.pool_pairs)
        conditions = (beats, anchors, pool)
        if not pool.judged:
            return self._rejected(context, conditions)
        if pool.passed is False:
            return Verdict.of(context, "cycle", f"beats the champion, but {pool.why}", conditions)
        return Verdict.of(context, "promoted", f"{beats.why}; {anchors.why}; {pool.why}", conditions)

    def _rejected(self, context: GateContext, conditions: tuple[Condition, ...]) -> Verdict:
        why = conditions[-1].why
        if conditions[-1].judged and context.rejections + 1 >= self.starved_after:
            why = f"{why}; taken in as an opponent after {context.rejections} rejections in a row"
            return Verdict.of(context, "admitted", why, conditions)
        return Verdict.of(context, "rejected", why, conditions)


class SprtGate(StagedGate):
    """The champion is to be beaten in a sequential test, so that a clear case takes tens of pairs; see :class:`Sprt`.

    Args:
        elo0, elo1, alpha, beta, max_pairs, batch_pairs, scale: of the test.
        stages: arguments of :class:`StagedGate`.
    """

    def __init__(
        self,
        elo0: float = 0.0,
        elo1: float = 40.0,
        alpha: float = 0.05,
        beta: float = 0.05,
        max_pairs: int = 560,
        batch_pairs: int = 16,
        scale: str = "logistic",
        **stages: Any,
    ) -> None:
        super().__init__(**stages)
        self.sprt = Sprt(elo0, elo1, alpha, beta, max_pairs, batch_pairs, scale)

    def against_champion(self, candidate: str, champion: str, number: int) -> Stage:
        test, asked = self.sprt, 0
        table = PairTable(np.zeros((3, 3), dtype=np.int64), 0)
        decision = CONTINUE
        while decision == CONTINUE and asked < test.max_pairs:
            pairs = min(test.batch_pairs, test.max_pairs - asked)
            (scores,) = yield (PairRequest(candidate, champion, gate_seeds(number, 0, asked, pairs)),)
            asked += pairs
            table += PairTable.of(scores)
            decision = int(test.decide(table.cells))
        inwards = float(test.overshoot(table.cells))
        numbers = {
            **table.as_dict(), "llr": float(test.llr(table.cells)), "lower": test.lower + inwards,
            "upper": test.upper - inwards, "elo0": test.elo0, "elo1": test.elo1,
            "nelo": float(normalized_elo(table.cells)),
        }
        if (lost := too_many_dropped([table])) is not None:
            return Condition("champion", False, lost, 2 * asked, numbers, judged=False)
        why = {ACCEPT: "beats the champion", REJECT: "no better than the champion"}.get(
            decision, f"undecided against the champion after {asked} pairs"
        )
        return Condition("champion", decision == ACCEPT, why, 2 * asked, numbers)


class WilsonGate(StagedGate):
    """The champion is to be beaten over a fixed number of pairs: the interval's lower end must reach a score.

    The interval is Wilson's at the effective size, with the seed as its unit (``intervals.score_interval``).

    Args:
        pairs: always played. 500, so 1,000 battles, put the lower end within 3.1 points of the score.
        least: the lower end to reach. One half is "better, with 97.5 % confidence"; the 0.52 of older gates passes a
            candidate of +40 Elo only two times in three.
        confidence: two-sided.
        stages: arguments of :class:`StagedGate`.
    """

    def __init__(self, pairs: int = 500, least: float = 0.5, confidence: float = 0.95, **stages: Any) -> None:
        super().__init__(**stages)
        if not 1 <= pairs <= SEEDS_PER_STAGE:
            raise UserError(f"gate pairs is {pairs}; give a number from 1 to {SEEDS_PER_STAGE}")
        if not 0.0 < least < 1.0:
            raise UserError(f"gate least is {least}; give a score above 0 and below 1, such as 0.5")
        if not 0.0 < confidence < 1.0:
            raise UserError(f"gate confidence is {confidence}; give a share above 0 and below 1, such as 0.95")
        self.pairs, self.least, self.confidence = pairs, least, confidence

    def against_champion(self, candidate: str, champion: str, number: int) -> Stage:
        (scores,) = yield (PairRequest(candidate, champion, gate_seeds(number, 0, 0, self.pairs)),)
        table = PairTable.of(scores)
        numbers = {**table.as_dict(), "least": self.least}
        if (lost := too_many_dropped([table])) is not None:
            return Condition("champion", False, lost, 2 * self.pairs, numbers, judged=False)
        low = score_interval(table.scores, self.confidence, "effective").low
        numbers["low"] = low
        passed = low >= self.least
        why = f"its score is {'at least' if passed else 'not shown to be'} {self.least:g} against the champion"
        return Condition("champion", passed, why, 2 * self.pairs, numbers)
