"""The words of a Trainer subcommand, put into an order and a form in which single settings win.

jsonargparse applies options as they come, so that ``--stop.iterations 5 --config x.yaml`` would lose its 5 to the file,
and it knows nothing of the arguments of a part (:class:`~royale_lightning.parts.PartSetting`), which is opaque to it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml
from jsonargparse import get_loader

from ..errors import UserError
from ..parts import PartSetting

#: Names of the option that reads a file of settings.
CONFIG = ("--config", "-c")
#: Options at which the parser prints and ends.
_PRINTS = ("-h", "--help", "--print_config")


def options(args: Sequence[str]) -> list[list[str]]:
    """Each option with its values; what comes before the first option is a group of its own."""
    groups: list[list[str]] = []
    for arg in args:
        if not groups or arg.startswith("--") or arg.split("=")[0] == "-c":
            groups.append([])
        groups[-1].append(arg)
    return groups


def value_of(args: Sequence[str], *names: str) -> str | None:
    """The value of an option on a command line that is not parsed yet; the last one counts."""
    value = None
    for i, arg in enumerate(args):
        name, equals, rest = arg.partition("=")
        if name in names:
            value = rest if equals else (args[i + 1] if i + 1 < len(args) else None)
    return value


def in_order(args: Sequence[str], known: Iterable[str]) -> list[str]:
    """Files of settings first, then whole sections, then single settings; each kind in the order it was given.

    Args:
        args: the words after the subcommand.
        known: the dotted keys that the parser accepts.
    """
    known = set(known)
    sections = {k for k in known if any(other.startswith(f"{k}.") for other in known)}

    def place(group: list[str]) -> int:
        name = group[0].split("=")[0]
        if name in CONFIG:
            return 1
        key = name.removeprefix("--")
        # An outer section would overwrite those in it.
        return 2 + key.count(".") if key in sections else 100 if name.startswith("-") else 0

    return [word for group in sorted(options(args), key=place) for word in group]


def nested(args: Sequence[str], parts: Iterable[str]) -> tuple[list[str], list[tuple[str, list[str], str]]]:
    """Take out the options that set something inside a part, ``--model.network.init_args.width 32``.

    Args:
        args: the words after the subcommand.
        parts: keys of settings that are a part, or a dictionary of parts.

    Returns:
        The other words, and of each such option the part's key, the path inside it and the value as text.

    Raises:
        UserError: an option has no value, or more than one.
    """
    keys = sorted(parts, key=len, reverse=True)
    rest: list[str] = []
    found: list[tuple[str, list[str], str]] = []
    for group in options(args):
        name, equals, value = group[0].partition("=")
        key = next((k for k in keys if name.startswith(f"--{k}.")), None)
        if key is None:
            rest += group
            continue
        values = [value, *group[1:]] if equals else group[1:]
        if len(values) != 1:
            raise UserError(f"{name} has {len(values)} values; give it one")
        found.append((key, name.removeprefix(f"--{key}.").split("."), values[0]))
    return rest, found


def without_printing(args: Sequence[str]) -> list[str]:
    """The words without those at which the parser prints and ends."""
    return [w for group in options(args) if not group[0].startswith(_PRINTS) for w in group]


def with_setting(value: Any, key: str, path: Sequence[str], text: str, many: bool) -> Any:
    """A part with one of its arguments changed, as plain data.

    Args:
        value: the part as it stands: a :class:`PartSetting`, plain data, or None.
        key: the setting's name, for error messages.
        path: inside it: ``["init_args", "width"]``, ``["class_path"]``, or ``["width"]`` for short.
        text: the new value, as YAML.
        many: whether the setting is a dictionary of parts; the path then begins with a name.

    Raises:
        UserError: there is no part to change, or the path leads nowhere.
    """
    if many:
        name, *inside = path
        of = dict(value or {})
        if not inside:
            return {**of, name: _load(key, text)}
        return {**of, name: with_setting(of.get(name), f"{key}.{name}", inside, text, False)}
    value = value.value if isinstance(value, PartSetting) else value
    if list(path) == ["class_path"]:
        return {"class_path": text, "init_args": {}}  # another class has other arguments
    inside = list(path[1:] if path[0] == "init_args" else path)
    whole = f"--{key} '{{class_path: ..., init_args: {{...}}}}'"
    if value is None:
        raise UserError(f"{key} names no class that could take {'.'.join(path)!r}; write {whole}")
    if not inside:
        raise UserError(f"--{key}.init_args sets nothing by itself; name one argument, or write {whole}")
    made = copy.deepcopy(value) if isinstance(value, dict) else {"class_path": value, "init_args": {}}
    at = made["init_args"] = made.get("init_args") or {}
    for step in inside[:-1]:
        at = at.setdefault(step, {}) if isinstance(at, dict) else None
    if not isinstance(at, dict):
        raise UserError(f"{key} has no settings below {'.'.join(path[:-1])!r}; write {whole}")
    at[inside[-1]] = _load(key, text)
    return made


def as_option(key: str, value: Any) -> str:
    """``--key=value`` with the value as JSON, which is YAML."""
    return f"--{key}={json.dumps(value, default=_plain)}"


def _plain(value: Any) -> Any:
    if isinstance(value, PartSetting):
        return value.value
    return dict(value) if isinstance(value, Mapping) else str(value)


def _load(key: str, text: str) -> Any:
    try:
        # The parser's own reading, to which 1e-3 is a number.
        return get_loader("yaml")(text)
    except yaml.YAMLError as exc:
        raise UserError(f"{key}: {text!r} is not valid YAML") from exc
