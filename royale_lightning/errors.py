"""The one error type whose text is meant for the person at the keyboard."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake in a setting, a file or a command line.

    Its message is one clear sentence that names the field, the value and the remedy. The command line prints
    it without a traceback and exits with 2; from Python it is an ordinary ``ValueError``.
    """


def near_matches(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'Knight' or 'DarkKnight'?"``, or an empty string when nothing is near."""
    names = sorted(known)
    lower = {n.lower(): n for n in names}
    found = difflib.get_close_matches(word.lower(), list(lower), n=3, cutoff=0.6)
    if not found:
        return ""
    return "; did you mean " + " or ".join(repr(lower[f]) for f in found) + "?"
