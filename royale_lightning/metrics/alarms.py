"""Alarms: conditions on the metric row that somebody should know of, judged row by row.

An alarm asks only rows that have its keys; a missing key is no answer, and neither trips nor clears it. Conditions that
look back keep what they need in plain numbers, so that a resumed run goes on judging where it stopped.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ..errors import UserError, near_matches
from .declarations import declared, repeats

WARN, HALT = "warn", "halt"
Row = Mapping[str, float]


class Alarm(ABC):
    """One condition. Derive from it and name the class in ``--alarms.extra``.

    Args:
        name: its own; one of a shipped alarm replaces that.
        patience: rows in a row that must trip before it is on.
        severity: ``warn`` or ``halt``.
        reason: why the condition is drawn where it is.
        advice: what to do about it.
    """

    def __init__(self, name: str, patience: int = 1, severity: str = WARN, reason: str = "", advice: str = "") -> None:
        if patience < 1:
            raise UserError(f"alarm {name}: patience is {patience}; give at least 1 row")
        if severity not in (WARN, HALT):
            raise UserError(f"alarm {name}: severity is {severity!r}; give warn or halt")
        self.name = name
        self.patience = patience
        self.severity = severity
        self.reason = reason
        self.advice = advice

    @property
    @abstractmethod
    def condition(self) -> str:
        """What it looks for, in a phrase."""

    @property
    @abstractmethod
    def keys(self) -> tuple[str, ...]:
        """What of a row it reads."""

    @abstractmethod
    def trips(self, row: Row) -> bool | None:
        """Whether this row shows the condition; None when it lacks the keys. Called once per row."""

    def says(self, row: Row) -> str:
        """The figures behind the answer."""
        return ", ".join(f"{k} {row[k]:.4g}" for k in self.keys if k in row)

    def state(self) -> dict[str, Any]:
        """What the condition remembers of earlier rows, in plain numbers and lists."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` gave; not called where that was empty."""
        raise NotImplementedError(f"alarm {self.name} has a state and no set_state")


class Threshold(Alarm):
    """A figure above or below a bound; with ``per``, its ratio to another figure.

    Args:
        key: the row's key.
        above, below: the bound, exactly one of them.
        per: the figure it is divided by.
        least: the figure itself must be at least this, for a ratio of trifles says nothing.
    """

    def __init__(
        self, name: str, key: str, above: float | None = None, below: float | None = None, per: str | None = None,
        least: float | None = None, **settings: Any,
    ) -> None:
        super().__init__(name, **settings)
        if (above is None) == (below is None):
            raise UserError(f"alarm {name}: give either above or below")
        self.key = key
        self.above = above
        self.below = below
        self.per = per
        self.least = least

    @property
    def condition(self) -> str:
        figure = f"{self.key} / {self.per}" if self.per else self.key
        bound = f"above {self.above:g}" if self.above is not None else f"below {self.below:g}"
        return f"{figure} {bound}" + (f", from {self.least:g} on" if self.least is not None else "")

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key, self.per) if self.per else (self.key,)

    def trips(self, row: Row) -> bool | None:
        if any(k not in row for k in self.keys):
            return None
        x = row[self.key]
        if self.least is not None and x < self.least:
            return False
        if self.per:
            if row[self.per] <= 0:
                return None
            x /= row[self.per]
        return x > self.above if self.above is not None else x < self.below  # type: ignore[operator]


class NonFinite(Alarm):
    """Any declared figure that is NaN or infinite. Figures of a user's own say themselves what that means."""

    @property
    def condition(self) -> str:
        return "any figure NaN or infinite"

    @property
    def keys(self) -> tuple[str, ...]:
        return ()

    def trips(self, row: Row) -> bool | None:
        return bool(self._odd(row))

    def says(self, row: Row) -> str:
        return ", ".join(f"{k} {row[k]}" for k in self._odd(row))

    @staticmethod
    def _odd(row: Row) -> list[str]:
        return [k for k, v in row.items() if v is not None and not math.isfinite(v) and declared(k) is not None]


class FellFromBest(Alarm):
    """The median of the last rows fell from the best such median of the run.

    Args:
        key: a figure of which more is better.
        to: share of the best below which it trips; or
        by: distance from the best beyond which it trips.
        window: rows of a median: one slow iteration is no sign, and one lucky one no measure.
        evidence: the figure that says on how many games the key's mean rests. Then what has fallen is the upper end of
            an interval, :data:`ERRORS` standard errors wide to either side, and the best is the best lower end, so that
            a first lucky game is none. Less evidence than before means that somebody else was met for the first time,
            and the best begins anew: it was another's.
    """

    #: A run shows hundreds of means, of which the luckiest and the unluckiest are compared.
    ERRORS = 2.0

    def __init__(
        self, name: str, key: str, to: float | None = None, by: float | None = None, window: int = 5,
        evidence: str | None = None, **settings: Any,
    ) -> None:
        super().__init__(name, **settings)
        if (to is None) == (by is None):
            raise UserError(f"alarm {name}: give either to or by")
        self.key = key
        self.to = to
        self.by = by
        self.window = window
        self.evidence = evidence
        self._recent: list[float] = []
        self._best: float | None = None
        self._games = 0.0

    @property
    def condition(self) -> str:
        far = f"below {self.to:g} of its best" if self.to is not None else f"{self.by:g} below its best"
        how = f", both less {self.ERRORS:g} errors" if self.evidence else ""
        return f"{self.key} {far}{how}" + (f", medians of {self.window} rows" if self.window > 1 else "")

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key, self.evidence) if self.evidence else (self.key,)

    def trips(self, row: Row) -> bool | None:
        if any(k not in row or not math.isfinite(row[k]) for k in self.keys):
            return None
        error = 0.0
        if self.evidence is not None:
            games = row[self.evidence]
            if games < self._games:
                self._best, self._recent = None, []
            self._games = games
            error = self.ERRORS * 0.5 / math.sqrt(max(games, 1.0))  # of a share, whose deviation is at most one half
        self._recent = [*self._recent, row[self.key]][-self.window :]
        if len(self._recent) < self.window:
            return None
        now = median(self._recent)
        self._best = now - error if self._best is None else max(self._best, now - error)
        highest = now + error
        return highest < self.to * self._best if self.to is not None else highest < self._best - (self.by or 0.0)

    def says(self, row: Row) -> str:
        return f"{super().says(row)}, best {math.nan if self._best is None else self._best:.4g}"

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"recent": list(self._recent), "best": self._best}
        return state if self.evidence is None else state | {"games": self._games}

    def set_state(self, state: Mapping[str, Any]) -> None:
        if self.evidence is not None and "games" not in state:
            return  # of a version whose best was a single game's
        self._recent, self._best = list(state["recent"]), state["best"]
        self._games = float(state.get("games", 0.0))


class Grew(Alarm):
    """A figure that should stay flat exceeds everything it was early in this process.

    Args:
        key: the figure.
        factor, plus: it trips above ``factor * early + plus``, where ``early`` is its largest value in the first
        warm_up: rows, in which compiled code and allocators fill up.
    """

    def __init__(
        self, name: str, key: str, factor: float = 1.0, plus: float = 0.0, warm_up: int = 30, **settings: Any
    ) -> None:
        super().__init__(name, **settings)
        self.key = key
        self.factor = factor
        self.plus = plus
        self.warm_up = warm_up
        self._seen = 0
        self._early = 0.0

    @property
    def condition(self) -> str:
        bound = [f"{self.factor:g} times" if self.factor != 1 else "", f"{self.plus:g} more than" if self.plus else ""]
        return f"{self.key} above {' and '.join(b for b in bound if b)} its most in the first {self.warm_up} rows"

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,)

    def trips(self, row: Row) -> bool | None:
        if self.key not in row:
            return None
        self._seen += 1
        if self._seen <= self.warm_up:
            self._early = max(self._early, row[self.key])
            return None
        return row[self.key] > self.factor * self._early + self.plus

    def says(self, row: Row) -> str:
        return f"{super().says(row)}, early {self._early:.4g}"


# ---- the panel -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Event:
    """An alarm that went on (``on``) or off with this row."""

    alarm: Alarm
    on: bool
    text: str


class Panel:
    """Judges rows by a set of alarms.

    Args:
        alarms: by their names, each once.
    """

    def __init__(self, alarms: Iterable[Alarm]) -> None:
        self.alarms = {a.name: a for a in alarms}
        self._streak = dict.fromkeys(self.alarms, 0)
        self.active: list[str] = []

    def judge(self, row: Row) -> list[Event]:
        """What changed with this row; :attr:`active` then holds the alarms that are on."""
        events = []
        for name, alarm in self.alarms.items():
            answer = alarm.trips(row)
            if answer is None:
                continue
            was = name in self.active
            self._streak[name] = self._streak[name] + 1 if answer else 0
            now = self._streak[name] >= alarm.patience
            if now != was:
                events.append(Event(alarm, now, alarm.says(row)))
                self.active = [*self.active, name] if now else [a for a in self.active if a != name]
        return events

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run must know.

        Alarms that read times or memory are left out: these belong to a process and its machine, and two runs of one
        seed shall have one state.
        """
        kept = [name for name, alarm in self.alarms.items() if all(map(repeats, alarm.keys))]
        return {
            "streak": {name: self._streak[name] for name in kept},
            "active": [name for name in self.active if name in kept],
            "alarms": {name: self.alarms[name].state() for name in kept},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on judging; alarms that are new or gone since are nobody's mistake.

        A severe alarm that was on counts anew: whoever continues the run that it ended gets its patience once more.
        """
        self._streak.update({k: int(v) for k, v in state["streak"].items() if k in self.alarms})
        known = [a for a in state["active"] if a in self.alarms]
        self.active = [a for a in known if self.alarms[a].severity != HALT]
        self._streak.update({a: 0 for a in known if a not in self.active})
        for name, own in state["alarms"].items():
            if name in self.alarms and own:
                self.alarms[name].set_state(own)


def assemble(shipped: Sequence[Alarm], extra: Sequence[Alarm], off: Sequence[str]) -> list[Alarm]:
    """Shipped alarms without those turned off, replaced and extended by a user's.

    Raises:
        UserError: a name in ``off`` is no alarm's.
    """
    found = {a.name: a for a in [*shipped, *extra]}
    for name in off:
        if name not in found:
            raise UserError(f"alarms.off names {name!r}, which is no alarm{near_matches(name, found)}")
    return [a for name, a in found.items() if name not in off]


#: Short name of what an alarm can be written with in a configuration.
ALARMS = {"threshold": "royale_lightning.metrics.Threshold"}
