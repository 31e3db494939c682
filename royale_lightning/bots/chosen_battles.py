"""Which battles of many are worth watching: the best, the worst, the least expected, the latest of each opponent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import msgspec

from ..battle.players import LEARNER, is_scripted, short_name
from ..battle.round import TRUE, TRUE_START, EpisodeRecord

#: Battles with an opponent before its results can surprise anybody.
LEAST_KNOWN = 10


@dataclass
class Known:
    """Results against one opponent so far."""

    games: int = 0
    score: float = 0.0


@dataclass
class ChosenBattles:
    """The battles to keep of all that were offered; a few records, however many come.

    Attributes:
        chosen: by what for: ``best``, ``worst``, ``upset``, ``latest-<opponent>``, where all snapshots are one.
        known: results by opponent, over the whole run.
        surprise: how far the upset's score lay from the mean against that opponent.
    """

    chosen: dict[str, EpisodeRecord] = field(default_factory=dict)
    known: dict[str, Known] = field(default_factory=dict)
    surprise: float = 0.0

    def offer(self, record: EpisodeRecord) -> None:
        """Consider a finished battle: whole from a true start, with its commands."""
        if record.staggered or record.start.kind != TRUE or record.start.digest or not record.commands:
            return
        seats = [s for s in (0, 1) if record.players[s] == LEARNER]
        if not seats:
            return
        other = record.players[1 - seats[0]]
        # Snapshots come and go by the dozen; one stands for all of them.
        name = short_name(other) if is_scripted(other) else "itself" if other == LEARNER else "snapshot"
        self.chosen[f"latest-{name}"] = record
        score = record.score(seats[0])
        if len(seats) == 2 or score is None:
            return  # against itself it neither wins nor loses
        for what, sign in (("best", 1), ("worst", -1)):
            held = self.chosen.get(what)
            if held is None or sign * _mark(record) > sign * _mark(held):
                self.chosen[what] = record
        known = self.known.setdefault(other, Known())
        if known.games >= LEAST_KNOWN:
            off = abs(score - known.score / known.games)
            if off > self.surprise:
                self.surprise = off
                self.chosen["upset"] = record
        known.games += 1
        known.score += score

    def take(self) -> dict[str, EpisodeRecord]:
        """What was chosen, and begin anew. One battle chosen for several reasons is named by all of them."""
        reasons: dict[tuple[int, int], list[str]] = {}
        found: dict[tuple[int, int], EpisodeRecord] = {}
        # Best, worst and upset first: they name a battle better than "latest" does.
        for what in sorted(self.chosen, key=lambda w: (w.startswith("latest"), w)):
            record = self.chosen[what]
            key = (record.battle, record.ordinal)
            reasons.setdefault(key, []).append(what)
            found[key] = record
        self.chosen, self.surprise = {}, 0.0
        return {"+".join(reasons[k]): r for k, r in found.items()}

    def state(self) -> dict[str, Any]:
        """Plain values, for a checkpoint."""
        # A start's bytes do not load with weights_only, and only true starts are here.
        held = {k: asdict(replace(r, start=TRUE_START)) for k, r in self.chosen.items()}
        for one in held.values():
            del one["start"]
        return {"chosen": held, "known": {k: asdict(v) for k, v in self.known.items()}, "surprise": self.surprise}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> ChosenBattles:
        return msgspec.convert(state, cls)


def _mark(r: EpisodeRecord) -> float:
    """How good a battle was for the learner: the result, then crowns, then tower health."""
    seat = 0 if r.players[0] == LEARNER else 1
    score = r.score(seat)
    assert score is not None
    return 100.0 * score + (r.crowns[seat] - r.crowns[1 - seat]) + (r.tower_hp[seat] - r.tower_hp[1 - seat]) / 2
