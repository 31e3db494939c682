"""A run's identity: everything that decides it, by value, so that a resume on something else is seen.

Three kinds of fields. *Fixed* ones make another run when they change, so a resume refuses it (``--allow_drift`` goes on
and marks every later row). *Tunable* ones are what one turns while a run goes on; a change is applied and recorded.
*Noted* ones should not matter but may move the last bit of a sum; a change is recorded too. The digest is over the
first two: two runs of one digest on one machine are the same run.

Where battles step, how many workers and threads they use, how long a run goes on and where its files lie decide
nothing and are in none of them.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ..parts import current_path, renamed
from .values import PACKAGES, digest_of, flat, plain

#: What one turns while a run goes on; a field counts with everything below it. An auxiliary loss that calls its weight
#: ``weight`` has it here too.
TUNABLE = (
    "model.ppo.learning_rate",
    "model.ppo.critic_learning_rate",
    "model.ppo.horizon_game_steps",
    "model.ppo.clip_range",
    "model.ppo.dual_clip",
    "model.ppo.kl_limit",
    "model.ppo.value_coef",
    "model.ppo.value_clip",
    "model.ppo.entropy_play",
    "model.ppo.entropy_choice",
    "model.ppo.entropy_tile",
    "model.auxiliary.*.init_args.weight",
    "trainer.gradient_clip_val",
    "callbacks",
)
#: How a run is carried out, not what it computes.
NO_PART = (
    "data.rollout.source",
    "data.rollout.workers",
    "data.rollout.threads",
    "data.rollout.max_rounds",
    "data.rollout.worker_restarts",
    "data.rollout.worker_timeout_s",
)
FIXED, TUNED, NOTED = "fixed", "tunable", "noted"
_UNSET = "unset"
#: The kind of a value and not the value, as an identity held paths, members, arrays and functions before it held all by
#: value; and the mark of one that does.
_KIND_ALONE = re.compile(r"[\w.]+\.\w+:|builtins\.\w+:[\w.<>]+")
_BY_VALUE = "by_value"


@dataclass(frozen=True)
class Change:
    """One field that differs between a checkpoint and now."""

    field: str
    before: Any
    after: Any
    kind: str

    def __str__(self) -> str:
        return f"{self.field} {self.before} -> {self.after}"


@dataclass(frozen=True)
class Identity:
    """JSON values by dotted name, as on the command line.

    Args:
        unsaid: names of fields that an old checkpoint says too little of to be compared.
    """

    fixed: dict[str, Any]
    tunable: dict[str, Any]
    noted: dict[str, Any]
    unsaid: frozenset[str] = frozenset()

    @classmethod
    def of(cls, deciding: Mapping[str, Any], noted: Mapping[str, Any]) -> Identity:
        """Sort fields into kinds.

        Args:
            deciding: nested settings and facts that decide the run.
            noted: those that should not.

        Raises:
            NoValue: a setting has no value that can be compared.
        """
        fields = {k: v for k, v in flat(plain(deciding, "")).items() if not _below(k, NO_PART)}
        tunable = {k: v for k, v in fields.items() if _below(k, TUNABLE)}
        return cls({k: v for k, v in fields.items() if k not in tunable}, tunable, flat(plain(noted, "")))

    @property
    def digest(self) -> str:
        """16 hex digits over everything that decides the run."""
        text = json.dumps([self.fixed, self.tunable], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def as_dict(self) -> dict[str, Any]:
        return {FIXED: self.fixed, TUNED: self.tunable, NOTED: self.noted, "digest": self.digest, _BY_VALUE: True}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Identity:
        fixed, tunable, noted = (_by_public_names(value[kind]) for kind in (FIXED, TUNED, NOTED))
        all_of_it = {**fixed, **tunable, **noted}
        old = () if value.get(_BY_VALUE) else (k for k, v in all_of_it.items() if _kind_alone(v))
        return cls(fixed, tunable, noted, frozenset(old))

    def changes(self, before: Identity) -> list[Change]:
        """What differs from ``before``, fixed fields first."""
        found = []
        for kind in (FIXED, TUNED, NOTED):
            old, new = getattr(before, kind), getattr(self, kind)
            for field in [*new, *(k for k in old if k not in new)]:
                same = field in old and field in new and old[field] == new[field]
                if not same and not any(field == u or field.startswith(f"{u}.") for u in before.unsaid):
                    found.append(Change(field, old.get(field, _UNSET), new.get(field, _UNSET), kind))
        return found


def _kind_alone(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_kind_alone, value))
    return isinstance(value, str) and _KIND_ALONE.fullmatch(value) is not None


def _by_public_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as a checkpoint holds them, classes by the names they have now."""
    return {
        k: current_path(v) if k.endswith("class_path") and isinstance(v, str) else renamed(v) for k, v in fields.items()
    }


def _below(field: str, names: tuple[str, ...]) -> bool:
    return any(fnmatchcase(field, n) or fnmatchcase(field, f"{n}.*") for n in names)


# ---- facts of this process -------------------------------------------------------------------------------------
def versions() -> dict[str, str]:
    """Of Python (without its patch number) and of every package that computes something."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in PACKAGES:
        found[name] = importlib.metadata.version(name)
    return found


def own_code() -> str:
    """Digest of this package's source: two checkouts of one version may differ."""
    root = Path(__file__).parents[1]
    return digest_of([p.relative_to(root).as_posix().encode() + p.read_bytes() for p in sorted(root.rglob("*.py"))])
