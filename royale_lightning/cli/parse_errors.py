"""jsonargparse's error reports, shortened to the one sentence that says what to change."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..errors import UserError, near_matches

#: Longer values and reasons are cut: a sentence, not a dump of the configuration.
_LONGEST = 160


class ParseFailure(Exception):
    """Carries jsonargparse's message out of the parser; not a ``ValueError``, which jsonargparse would catch."""

    def __init__(self, message: str, cause: BaseException | None) -> None:
        super().__init__(message)
        self.cause = cause


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def unknown_setting(key: str, known: Iterable[str]) -> str:
    """Names the first part of a dotted key that is wrong, and what is near it at that level."""
    known = list(known)
    parts = key.split(".")
    good = 0
    while good < len(parts) and any(_starts_with(k, parts[: good + 1]) for k in known):
        good += 1
    if good == len(parts):
        return f"{key!r} is not a setting by itself"
    level = [k.split(".") for k in known if _starts_with(k, parts[:good])]
    siblings = {".".join(k[: good + 1]) for k in level if len(k) > good}
    wrong = ".".join(parts[: good + 1])
    # The shared prefix would make everything at this level look near.
    prefix = "".join(f"{p}." for p in parts[:good])
    hint = near_matches(parts[good], [s.removeprefix(prefix) for s in siblings])
    return f"there is no setting {wrong!r}{hint}"


def _starts_with(key: str, parts: list[str]) -> bool:
    return key.split(".")[: len(parts)] == parts


def _user_error_in(cause: BaseException | None) -> UserError | None:
    while cause is not None:
        if isinstance(cause, UserError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def _reason(message: str) -> str:
    """The most telling line of a type error: a nested problem, else what was expected."""
    bullets = [_cut(b) for b in re.split(r"\n\s*- ", message)[1:]]
    bullets = [re.split(r" (?:Given value|Subclass types expect)", b)[0] for b in bullets]
    problems = [b for b in bullets if not b.startswith(("Expected", "Not a valid subclass"))]
    if problems:
        return problems[0]
    expected = re.findall(r"[Ee]xpected an? <class '([\w.]+)'>", message)
    kinds = list(dict.fromkeys("null" if k == "NoneType" else k for k in expected))
    return f"expected {' or '.join(kinds)}" if kinds else _cut(message.split("Given value")[0])


def _inside(key: str, path: str, message: str) -> str:
    """For an option that reaches into a value which has no settings, or none that can be given one by one."""
    if "PartSetting" not in message:
        return f"there is no setting {f'{key}.{path}'!r}: {key} is a single value"
    part = "{class_path: ..., init_args: {...}}"
    if inner := re.search(r'Parser key "([^"]*)"', message):  # a part of a class in the configuration
        return f"{key}: {path} cannot be set by itself; write --{key}.init_args.{inner[1]} '{part}'"
    return f"{key} is a list of parts, so {path!r} could be any one's; write --{key} '[{part}]'"


def sentence(message: str, known: Iterable[str], cause: BaseException | None = None) -> str:
    """One sentence for a message of jsonargparse.

    Args:
        message: as jsonargparse would print it.
        known: the dotted keys the parser accepts, for near matches.
        cause: the exception behind the message; a :class:`UserError` in its chain speaks for itself.
    """
    if (own := _user_error_in(cause)) is not None:
        return str(own)
    if match := re.search(r"unrecognized arguments: (.*)", message):
        words = match[1].split()
        first = next((w for w in words if w.startswith("-")), words[0])
        if not first.startswith("--"):
            return f"the argument {first!r} belongs to no setting"
        return unknown_setting(first.lstrip("-").split("=")[0], known)
    if match := re.search(r"(?:Subcommand '[^']*'|Group '([^']*)') does not accept option '([^']*)'", message):
        return unknown_setting(".".join(p for p in (match[1], match[2]) if p), known)
    if match := re.search(r"Option '([^']*)' is not accepted", message):
        return f"a class in the configuration takes no {match[1]!r} in its init_args"
    if match := re.search(r"File does not exist: '([^']*)'", message):
        return f"there is no configuration file {match[1]!r}"
    if match := re.search(r"while (?:parsing|scanning) .*", message, re.DOTALL):
        return f"the configuration is not valid YAML: {_cut(match[0])}"
    if match := re.match(r'Parser key "([^"]*)":\s*(.*)', message, re.DOTALL):
        key, rest = match[1], match[2]
        if inside := re.search(r"NestedArg\(key='([^']*)'", rest):
            return _inside(key, inside[1], rest)
        value = re.search(r"(?:Given value|Got value): (.*)", rest, re.DOTALL)
        # Nested values are named by the reason itself.
        said = f" is {_cut(value[1])!r}" if value and value[1][:1] not in "[{" else ""
        return f"{key}{said}: {_reason(rest)}"
    return _cut(message)
