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
import inspect
import json
import platform
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import UserError
from ..parts import Part, PartSetting, current_path, renamed

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
_PACKAGES = ("royale_lightning", "royalegym", "torch", "lightning", "numpy", "numba")
_UNSET = "unset"


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
    """JSON values by dotted name, as on the command line."""

    fixed: dict[str, Any]
    tunable: dict[str, Any]
    noted: dict[str, Any]

    @classmethod
    def of(cls, deciding: Mapping[str, Any], noted: Mapping[str, Any]) -> Identity:
        """Sort fields into kinds.

        Args:
            deciding: nested settings and facts that decide the run.
            noted: those that should not.
        """
        fields = {k: v for k, v in flat(plain(deciding)).items() if not _below(k, NO_PART)}
        tunable = {k: v for k, v in fields.items() if _below(k, TUNABLE)}
        return cls({k: v for k, v in fields.items() if k not in tunable}, tunable, flat(plain(noted)))

    @property
    def digest(self) -> str:
        """16 hex digits over everything that decides the run."""
        text = json.dumps([self.fixed, self.tunable], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "digest": self.digest}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Identity:
        return cls(*(_by_public_names(value[kind]) for kind in (FIXED, TUNED, NOTED)))

    def changes(self, before: Identity) -> list[Change]:
        """What differs from ``before``, fixed fields first."""
        found = []
        for kind in (FIXED, TUNED, NOTED):
            old, new = getattr(before, kind), getattr(self, kind)
            for field in [*new, *(k for k in old if k not in new)]:
                a, b = old.get(field, _UNSET), new.get(field, _UNSET)
                if a != b:
                    found.append(Change(field, a, b, kind))
        return found


def _by_public_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as a checkpoint holds them, classes by the names they have now."""
    return {
        k: current_path(v) if k.endswith("class_path") and isinstance(v, str) else renamed(v) for k, v in fields.items()
    }


def _below(field: str, names: tuple[str, ...]) -> bool:
    return any(fnmatchcase(field, n) or fnmatchcase(field, f"{n}.*") for n in names)


# ---- values ----------------------------------------------------------------------------------------------------
def plain(value: Any) -> Any:
    """A value as JSON would hold it, the same in every process; parts by class, every argument and their code."""
    if isinstance(value, PartSetting):
        value = value.value
    if isinstance(value, Part):
        value = value.as_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return {k: plain(getattr(value, k)) for k in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        if isinstance(value.get("class_path"), str):
            return _part(Part(current_path(value["class_path"]), dict(value.get("init_args") or {})))
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in (sorted(value, key=repr) if isinstance(value, set | frozenset) else value)]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return plain(value.item())
    # Anything else has no value that two processes would write alike; its class and name must do.
    return f"{type(value).__module__}.{type(value).__qualname__}:{getattr(value, '__qualname__', '')}"


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings, also those in lists, as dotted keys; an empty one as itself."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, list) and any(isinstance(v, Mapping) for v in value):
            value = {str(i): v for i, v in enumerate(value)}
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _part(part: Part) -> dict[str, Any]:
    """A part by value: a default that changes in the class's code is a change, as is the code of a user's own."""
    try:
        cls = part.resolve(part.class_path)
    except UserError:  # whoever builds the part says so, and names the setting
        return part.as_dict()
    arguments = {**_defaults(cls), **part.init_args}
    out = {"class_path": part.class_path, "init_args": {k: plain(arguments[k]) for k in sorted(arguments)}}
    code = user_code(cls)
    return {**out, "code": code} if code else out


def _defaults(cls: Callable[..., Any]) -> dict[str, Any]:
    try:
        parameters = inspect.signature(cls).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


# ---- code ------------------------------------------------------------------------------------------------------
def user_code(cls: Any) -> str:
    """Digest of the source of a user's class and of the user's own modules it draws on; empty for an installed one."""
    if cls.__module__ == "__main__":
        try:
            return _hash([inspect.getsource(cls).encode()])
        except (OSError, TypeError):  # a class typed into an interpreter keeps no source
            return ""
    module = sys.modules.get(cls.__module__)
    files = sorted({Path(m.__file__) for m in _reached(module) if m.__file__}) if module else []
    return _hash([f.read_bytes() for f in files if f.is_file()]) if files else ""


def _reached(module: ModuleType | None, seen: set[str] | None = None) -> Iterator[ModuleType]:
    """A user's module and the user's modules its names come from."""
    seen = set() if seen is None else seen
    if module is None or module.__name__ in seen or not _is_users(module):
        return
    seen.add(module.__name__)
    yield module
    for value in list(vars(module).values()):
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(name, str):
            yield from _reached(sys.modules.get(name), seen)


def _is_users(module: ModuleType) -> bool:
    """Whether a module is neither Python's, nor ours, nor of an installed package, whose version speaks for it."""
    file = getattr(module, "__file__", None)
    if not file or module.__name__.split(".")[0] in _PACKAGES:
        return False
    paths = sysconfig.get_paths()
    installed = [Path(paths[k]).resolve() for k in ("stdlib", "platstdlib", "purelib", "platlib")]
    return not any(Path(file).resolve().is_relative_to(p) for p in installed)


def _hash(parts: list[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:16]


# ---- facts of this process -------------------------------------------------------------------------------------
def versions() -> dict[str, str]:
    """Of Python (without its patch number) and of every package that computes something."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in _PACKAGES:
        found[name] = importlib.metadata.version(name)
    return found


def own_code() -> str:
    """Digest of this package's source: two checkouts of one version may differ."""
    root = Path(__file__).parents[1]
    return _hash([p.relative_to(root).as_posix().encode() + p.read_bytes() for p in sorted(root.rglob("*.py"))])
