"""How the learner's snapshots come into the pool: on cadence while gates cannot be paid for, after that through one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..bots.bot import Bot
from ..bots.evaluate import PlannedGame
from ..nn import actor_state_dict
from .eviction import EvictionPolicy
from .gate.gate import PromotionGate, run_gate
from .gate.pairs import PairRequest
from .gate.verdict import GateContext, Verdict
from .ladder import Ladder
from .pool import Member
from .schedule import affordable, snapshot_due

PURPOSE = "gate"
FIRST, CADENCE, GATE, STARVED = "first", "cadence", "gate", "starved"
#: A pool that nothing came into while the run grew by this factor takes the next candidate unjudged.
STARVED_GROWTH = 2.0
#: The pool's role of a candidate by its verdict; whoever is rejected or skipped by a gate has none.
_ROLES = {"promoted": "gated", "cycle": "cycle", "admitted": "starved"}


@dataclass(frozen=True)
class Cadence:
    """When a candidate is taken.

    Args:
        first_game_steps: before the first one.
        growth: the next one is due this share of the run later.
        share: of the training's game steps, for the battles of gates.
        gate_battles: that must be paid for before a gate begins.
    """

    first_game_steps: int
    growth: float
    share: float
    gate_battles: int

    def rule(self, ladder: Ladder, game_steps: int) -> str | None:
        """By which rule a candidate is to be taken now; None while it is not time."""
        p, each = ladder.progress, ladder.battle_steps
        if not snapshot_due(game_steps, p.newest, self.first_game_steps, self.growth):
            return None
        if not len(ladder.pool):
            return FIRST
        if affordable(self.share, game_steps, 0, each, p.price) < self.gate_battles:
            return CADENCE
        if affordable(self.share, game_steps, ladder.spent[PURPOSE], each, p.price) >= self.gate_battles:
            return GATE
        return STARVED if game_steps >= STARVED_GROWTH * (p.admitted or 0) else None


@dataclass(frozen=True)
class Judges:
    """Who decides about a candidate.

    Args:
        gate: whether it comes in.
        eviction: who leaves for it.
        anchors: players that no champion may get worse against.
    """

    gate: PromotionGate
    eviction: EvictionPolicy
    anchors: tuple[str, ...]


def consider(
    ladder: Ladder, bot: Bot, judges: Judges, rule: str, iteration: int, game_steps: int
) -> dict[str, Any]:
    """Take the learner as a candidate and let it in, or not; only inside :meth:`Ladder.act`.

    Args:
        bot: the learner as it stands.
        judges: the gate is asked under the rule ``gate`` alone.
        rule: of :meth:`Cadence.rule`.

    Returns:
        The verdict as it was written.
    """
    candidate = ladder.store.add(bot.record, actor_state_dict(bot.network))
    known = candidate in ladder.pool
    p = ladder.progress
    p.newest = game_steps
    if rule == GATE and not known:
        verdict = judge(ladder, candidate, judges.gate, judges.anchors, iteration, game_steps)
        role = _ROLES.get(verdict.outcome)
    else:
        verdict, role = _unjudged(ladder, candidate, rule), rule
    admitted = role is not None and ladder.pool.admit(Member(candidate, role, iteration, game_steps))
    judged = rule == GATE and all(c.judged for c in verdict.conditions)
    if verdict.outcome in ("promoted", "cycle"):
        p.unpromoted = 0
    elif verdict.outcome in ("rejected", "admitted") and judged:
        p.unpromoted += 1
    if admitted:
        p.admitted, p.rejections = game_steps, 0
        if verdict.outcome == "promoted":
            ladder.pool.promote(candidate)
    elif verdict.outcome == "rejected" and judged:
        p.rejections += 1
    strength = {player: r["rating"] for player, r in ladder.ratings.items()}
    evicted = judges.eviction.evict(ladder.pool.members, ladder.pool.champion, strength)
    ladder.let_go(evicted)
    out = {
        **verdict.as_dict(), "admitted": admitted, "evicted": evicted, "rule": rule, "iteration": iteration,
        "game_steps": game_steps,
    }
    ladder.write_verdict(out)
    return out


def judge(
    ladder: Ladder, candidate: str, gate: PromotionGate, anchors: Sequence[str], iteration: int, game_steps: int,
    number: int | None = None,
) -> Verdict:
    """Run a gate on the ladder's battles; only inside :meth:`Ladder.act`.

    Args:
        number: of the gate, which names its seeds; unset, the ladder's next.
    """
    if number is None:
        number = ladder.progress.gates
        ladder.progress.gates += 1
    context = GateContext(
        candidate=candidate, champion=ladder.pool.champion, anchors=tuple(anchors), pool=ladder.members,
        ratings=ladder.rate(), number=number, rejections=ladder.progress.rejections, seed=ladder.seed,
    )

    def play(requests: Sequence[PairRequest]) -> list[np.ndarray]:
        games = [PlannedGame(*battle) for request in requests for battle in request.battles]
        ladder.play(games, f"{PURPOSE}:{number}", iteration, game_steps)
        return [request.scores(ladder.find) for request in requests]

    verdict = run_gate(gate, context, play)
    ladder.rate()
    return verdict


def _unjudged(ladder: Ladder, candidate: str, rule: str) -> Verdict:
    champion, number = ladder.pool.champion, ladder.progress.gates
    if candidate in ladder.pool:
        return Verdict("skipped", "these very weights are in the pool", candidate, champion, number)
    if rule == FIRST:
        why = "the first snapshot: there is nobody to compare it with"
        return Verdict("promoted", why, candidate, champion, number)
    if rule == STARVED:
        why = "nothing came into the pool for as long as the run had lasted before; taken in unjudged"
        return Verdict("admitted", why, candidate, champion, number)
    why = "budget: the game steps set apart for gates have not paid for one yet; taken in on cadence"
    return Verdict("skipped", why, candidate, champion, number)
