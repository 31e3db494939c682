"""Replaceable parts: a class named by its import path, with its arguments.

A part is written in YAML as ``{class_path: package.module.Class, init_args: {...}}``, as the bare path, or as a
short name of a shipped class; in Python also as ``part(MyClass, scale=2)``. It travels to worker processes and
into checkpoints as plain text, never as a pickle.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import UserError, near_matches, own_frame

#: Shipped classes by the name that runs, bots and configurations store: ``package.Class``, wherever its module lies.
#: Each with the path it had before packages had public names. Digests name a class by that path for good, so that a
#: snapshot, a restart bank or a bot keeps its digest through a move; a class that is younger has none.
_EARLIER = {
    "royale_lightning.battle.EntitiesObsBuilder": "royale_lightning.battle.entities.EntitiesObsBuilder",
    "royale_lightning.battle.PotentialTower": "royale_lightning.battle.rewards.PotentialTower",
    "royale_lightning.battle.TowerResult": "royale_lightning.battle.rewards.TowerResult",
    "royale_lightning.ladder.DavidsonRater": "royale_lightning.ladder.rating.DavidsonRater",
    "royale_lightning.ladder.MixMatchmaker": "royale_lightning.ladder.matchmaker.MixMatchmaker",
    "royale_lightning.ladder.SpreadEviction": "royale_lightning.ladder.eviction.SpreadEviction",
    "royale_lightning.ladder.SprtGate": "royale_lightning.ladder.gate.SprtGate",
    "royale_lightning.ladder.WilsonGate": "royale_lightning.ladder.gate.WilsonGate",
    "royale_lightning.metrics.Threshold": "royale_lightning.metrics.alarms.Threshold",
    "royale_lightning.nn.ConvNetwork": "royale_lightning.nn.conv.ConvNetwork",
    "royale_lightning.nn.EntityNetwork": "royale_lightning.nn.entity.EntityNetwork",
    "royale_lightning.ppo.KLToReference": "royale_lightning.ppo.reference.KLToReference",
    "royale_lightning.ppo.SelfImitation": "royale_lightning.ppo.imitation.SelfImitation",
    "royale_lightning.rollout.GAE": "royale_lightning.rollout.advantage.GAE",
    "royale_lightning.testing.LeftLane": "royale_lightning.testing.toy.LeftLane",
}
_PUBLIC = {earlier: public for public, earlier in _EARLIER.items()}
#: Every callback of ours is named by this package.
_CALLBACKS = "royale_lightning.callbacks."


def current_path(class_path: str) -> str:
    """The public name of a class that has one, whichever name it was stored by; any other path as it is."""
    if class_path.startswith(_CALLBACKS):
        return _CALLBACKS + class_path.rpartition(".")[2]
    return _PUBLIC.get(class_path, class_path)


def digest_path(class_path: str) -> str:
    """The name that digests know a class by: the same for good, however often its module moves."""
    public = current_path(class_path)
    return _EARLIER.get(public, public)


def public_path(cls: type) -> str:
    """``royale_lightning.nn.EntityNetwork`` for one of our public classes; for any other where it is defined."""
    package = ".".join(cls.__module__.split(".")[:2])
    if package.startswith("royale_lightning."):
        module = importlib.import_module(package)
        if cls.__name__ in getattr(module, "__all__", ()) and getattr(module, cls.__name__) is cls:
            return f"{package}.{cls.__name__}"
    return f"{cls.__module__}.{cls.__qualname__}"


def renamed(value: Any) -> Any:
    """Settings as they were stored, with every ``class_path`` in them as it is now."""
    if isinstance(value, Mapping):
        return {
            k: current_path(v) if k == "class_path" and isinstance(v, str) else renamed(v) for k, v in value.items()
        }
    return [renamed(v) for v in value] if isinstance(value, list) else value


class PartSetting:
    """A part as the command line reads it: opaque to the parser, which would take a mapping with ``class_path`` apart
    and merge it with the one before, so that two configurations could not name two networks.

    Args:
        value: what the user wrote; :meth:`Part.of` reads it where the setting's short names are known.
    """

    def __init__(self, value: str | dict[str, Any]) -> None:
        if not isinstance(value, str | dict):
            raise ValueError("write a short name, a class path, or a mapping with class_path and init_args")
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartSetting) and self.value == other.value

    def __hash__(self) -> int:
        return hash(repr(self.value))

    def __repr__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True)
class Part:
    """``class_path`` and ``init_args`` of one replaceable class."""

    class_path: str
    init_args: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, value: PartLike, where: str, shipped: Mapping[str, str]) -> Part:
        """Read a part as a user writes it.

        Args:
            value: a short name, a class path, a mapping with ``class_path`` and ``init_args``, or a part.
            where: the setting's name, for error messages.
            shipped: short name -> class path of what we ship.
        """
        if isinstance(value, Part):
            return value
        if isinstance(value, PartSetting):
            value = value.value
        if isinstance(value, str):
            if value in shipped:
                return cls(shipped[value])
            if "." not in value:
                raise UserError(
                    f"{where} is {value!r}, which is neither a class path nor one of "
                    f"{', '.join(sorted(shipped))}{near_matches(value, shipped)}"
                )
            return cls(current_path(value))
        if isinstance(value, Mapping) and isinstance(value.get("class_path"), str):
            extra = set(value) - {"class_path", "init_args"}
            if extra:
                raise UserError(f"{where} has the unknown key {sorted(extra)[0]!r}; it takes class_path and init_args")
            path, init_args = value["class_path"], value.get("init_args") or {}
            if not isinstance(init_args, Mapping):
                raise UserError(f"{where}: init_args is {init_args!r}; write a mapping from names to values")
            return cls(shipped.get(path) or current_path(path), dict(init_args))
        raise UserError(
            f"{where} is {value!r}; write a short name ({', '.join(sorted(shipped))}), a class path, or "
            "a mapping with class_path and init_args"
        )

    def as_dict(self) -> dict[str, Any]:
        return {"class_path": current_path(self.class_path), "init_args": dict(self.init_args)}

    def resolve(self, where: str) -> type:
        """The class itself, or a :class:`UserError` that says what could not be found."""
        module, _, name = current_path(self.class_path).rpartition(".")
        if not module or not all(word.isidentifier() for word in self.class_path.split(".")):
            raise UserError(f"{where} is {self.class_path!r}, which is no class path; write package.module.Class")
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, SyntaxError) as exc:
            raise UserError(f"{where}: cannot import {self.class_path!r} ({exc})") from exc
        except AttributeError as exc:
            raise UserError(f"{where}: module {module!r} has no class {name!r}") from exc
        if not callable(found):
            raise UserError(f"{where}: {self.class_path!r} is not a class")
        return found

    def build(self, where: str, *args: Any, kind: type = object) -> Any:
        """An instance: ``cls(*args, **init_args)``, its arguments checked by name first.

        Args:
            where: the setting's name, for error messages.
            args: what we give the class, before what the user's ``init_args`` give it.
            kind: the class of such parts, which an instance must be of.

        Raises:
            UserError: there is no such class, it does not take the arguments, or what it makes is of another kind.
        """
        made = self._make(where, *args)
        if not isinstance(made, kind):
            base = f"{public_path(kind)}"
            raise UserError(f"{where}: {self.class_path} is no {kind.__name__}; derive it from {base}")
        return made

    def _make(self, where: str, *args: Any) -> Any:
        found = self.resolve(where)
        try:
            signature = inspect.signature(found)
        except (TypeError, ValueError):  # a class of C code states none; it will say itself what it takes
            return found(*args, **self.init_args)
        try:
            signature.bind(*args, **self.init_args)
        except TypeError as exc:
            known = list(signature.parameters)[len(args) :]
            bad = [k for k in self.init_args if k not in known]
            hint = near_matches(bad[0], known) if bad else ""
            raise UserError(f"{where}: {self.class_path} does not take these init_args ({exc}){hint}") from exc
        try:
            return found(*args, **self.init_args)
        except Exception as exc:
            # A user's own class has a line to point to; one that is installed was given what it cannot be made of.
            if isinstance(exc, UserError) or own_frame(exc) is not None:
                raise
            raise UserError(
                f"{where}: {self.class_path} cannot be made with the init_args {self.init_args} "
                f"({type(exc).__name__}: {' '.join(str(exc).split())})"
            ) from exc

    @property
    def in_main(self) -> bool:
        """Whether the class lives in a notebook cell or script, where no other process can import it."""
        return self.class_path.startswith("__main__.")


#: What a setting for a part accepts. At run time the parser's own view of it, see :class:`PartSetting`.
if TYPE_CHECKING:
    PartLike = str | dict[str, Any] | Part | PartSetting
else:
    PartLike = PartSetting


def part(cls: type | str, **init_args: Any) -> dict[str, Any]:
    """A part from Python: ``part(MyReward, scale=2.0)``, or a shipped one by name: ``part("entity", width=32)``."""
    path = cls if isinstance(cls, str) else public_path(cls)
    return {"class_path": path, "init_args": init_args}
