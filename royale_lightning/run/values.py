"""Settings by value: as JSON would hold them, the same in every process, and nothing dropped on the way."""

from __future__ import annotations

import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from pathlib import Path, PurePath
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from ..errors import UserError
from ..parts import Part, PartSetting, current_path

#: Packages whose version speaks for their code.
PACKAGES = ("royale_lightning", "royalegym", "torch", "lightning", "numpy", "numba")
#: Whose text is their value.
_BY_TEXT = (complex, Decimal, Fraction, date, time, timedelta, range, slice, np.dtype)
_TORCH_BY_TEXT = ("dtype", "device", "layout", "memory_format")


class NoValue(UserError):
    """A setting that no two processes would write alike."""


def plain(value: Any, where: str = "a setting") -> Any:
    """A value as JSON would hold it, the same in every process; parts by class, every argument and their code.

    Arrays, tensors and bytes are their digest; classes and functions their import path and the user's code of them.

    Args:
        where: dotted name of the setting, for the error message.

    Raises:
        NoValue: something in it is of none of the kinds known here. It is never left out: two runs that differ in it
            alone would look like one.
    """
    if isinstance(value, PartSetting):
        value = value.value
    if isinstance(value, Part):
        value = value.as_dict()
    if isinstance(value, Mapping):
        return _mapping(value, where)
    fields = getattr(type(value), "__dataclass_fields__", None) or getattr(type(value), "__struct_fields__", None)
    if fields is not None and not isinstance(value, type):
        held = {k: plain(getattr(value, k), _below(where, k)) for k in fields}
        # Another program's class may stand where one of the same fields did.
        return held if type(value).__module__.split(".")[0] in PACKAGES else {"class": _name(type(value)), **held}
    if isinstance(value, Enum):
        return f"{_name(type(value))}.{value.name}"
    if isinstance(value, list | tuple):
        return [plain(v, _below(where, str(i))) for i, v in enumerate(value)]
    if isinstance(value, set | frozenset):
        return sorted((plain(v, where) for v in value), key=repr)
    return _scalar(value, where)


def _mapping(value: Mapping[Any, Any], where: str) -> dict[str, Any]:
    if isinstance(value.get("class_path"), str):
        return _part(Part(current_path(value["class_path"]), dict(value.get("init_args") or {})), where)
    out = {str(plain(k, where)): plain(v, _below(where, str(k))) for k, v in value.items()}
    if len(out) != len(value):
        raise NoValue(f"{where} has keys that are written alike ({', '.join(map(repr, value))}); rename some")
    return out


def _scalar(value: Any, where: str) -> Any:
    if isinstance(value, np.generic | np.ndarray) and value.ndim == 0 and not value.dtype.hasobject:
        # As a number of Python's where it is one: a checkpoint holds no others safely.
        value = value.item() if value.dtype.kind in "biufcU" else f"{value.dtype}:{value}"
    if value is None or isinstance(value, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            # A NaN equals nothing, itself included, so a run would differ from its own checkpoint.
            return kind(value) if value == value else "nan"
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"bytes {digest_of([bytes(value)])}"
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return f"array {value.dtype} {list(value.shape)} {digest_of([np.ascontiguousarray(value).tobytes()])}"
    if (torch := sys.modules.get("torch")) is not None:  # nobody holds a tensor without it
        if isinstance(value, torch.Tensor):
            raw = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
            return f"tensor {value.dtype} {list(value.shape)} {digest_of([raw.tobytes()])}"
        if isinstance(value, tuple(getattr(torch, name) for name in _TORCH_BY_TEXT)):
            return str(value)
    if isinstance(value, _BY_TEXT):
        return f"{_name(type(value))}:{value}"
    if isinstance(value, partial):
        called = plain(value.func, where)
        return {"partial": called, "args": plain(value.args, where), "keywords": plain(value.keywords, where)}
    if _importable(value):
        code = user_code(value)
        return [_name(value), code] if code else _name(value)
    what = "a function without a name of its own" if isinstance(value, FunctionType) else f"a {_name(type(value))}"
    raise NoValue(
        f"{where} is {what}, which has no value that a resumed run could be compared by; give plain values, or a part "
        "(class_path and init_args)"
    )


def _importable(value: Any) -> bool:
    """Whether it is the class or function that its own name stands for; one made inside a function is not."""
    found: Any = sys.modules.get(getattr(value, "__module__", None) or "builtins")
    for word in str(getattr(value, "__qualname__", "")).split("."):
        found = getattr(found, word, None)
    return callable(value) and found is value


def _name(cls: Any) -> str:
    return f"{getattr(cls, '__module__', None) or 'builtins'}.{cls.__qualname__}"


def _below(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings, also those in lists, as dotted keys; an empty one as itself.

    Raises:
        NoValue: two of them give one name, such as ``{"a.b": 1, "a": {"b": 2}}``.
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, list) and any(isinstance(v, Mapping) for v in value):
            value = {str(i): v for i, v in enumerate(value)}
        more = flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {f"{prefix}{key}": value}
        if twice := found.keys() & more.keys():
            raise NoValue(f"{min(twice)} names two settings; rename one")
        found |= more
    return found


def _part(part: Part, where: str) -> dict[str, Any]:
    """A part by value: a default that changes in the class's code is a change, as is the code of a user's own."""
    try:
        cls = part.resolve(part.class_path)
    except UserError:  # whoever builds the part says so, and names the setting
        return part.as_dict()
    defaults = _defaults(cls)
    given = {k: plain(v, _below(where, f"init_args.{k}")) for k, v in part.init_args.items()}
    arguments = {**{k: _default(v) for k, v in defaults.items() if k not in given}, **given}
    out = {"class_path": part.class_path, "init_args": {k: arguments[k] for k in sorted(arguments)}}
    code = user_code(cls)
    return {**out, "code": code} if code else out


def _defaults(cls: Callable[..., Any]) -> dict[str, Any]:
    try:
        parameters = inspect.signature(cls).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def _default(value: Any) -> Any:
    """A default by value; one that has none is what the class's code says, and that counts by itself."""
    try:
        return plain(value)
    except NoValue:
        return f"{_name(type(value))}:"


# ---- code ------------------------------------------------------------------------------------------------------
def user_code(cls: Any) -> str:
    """Digest of the source of a user's class and of the user's own modules it draws on; empty for an installed one."""
    if cls.__module__ == "__main__":
        try:
            return digest_of([inspect.getsource(cls).encode()])
        except (OSError, TypeError):  # a class typed into an interpreter keeps no source
            return ""
    module = sys.modules.get(cls.__module__)
    files = sorted({Path(m.__file__) for m in _reached(module) if m.__file__}) if module else []
    return digest_of([f.read_bytes() for f in files if f.is_file()]) if files else ""


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
    if not file or module.__name__.split(".")[0] in PACKAGES:
        return False
    paths = sysconfig.get_paths()
    installed = [Path(paths[k]).resolve() for k in ("stdlib", "platstdlib", "purelib", "platlib")]
    return not any(Path(file).resolve().is_relative_to(p) for p in installed)


def digest_of(parts: list[bytes]) -> str:
    """16 hex digits over the parts, each with its length."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:16]
