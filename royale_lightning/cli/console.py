"""The console entry: our own tools and Lightning's subcommands behind one command.

Nothing here imports torch or Lightning: ``royale-lightning --help`` and the tools that need neither start in a
tenth of a second.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from ..errors import OUT_OF_FILES, UserError, near_matches, own_frame, remedy
from ..run.screen import guarded, was_lost

#: Lightning's subcommands, run by :mod:`royale_lightning.cli.trainer_cli`.
TRAINER_COMMANDS = {
    "fit": "train a bot (continue one with --ckpt_path)",
    "validate": "play the quick yardstick against the scripted opponents",
    "test": "play the full scored table, with intervals",
    "predict": "play battles and write their replays",
}

#: Our own tools: name -> (module with ``main(argv) -> int | None``, one line of help).
TOOLS = {
    "bench": ("royale_lightning.tools.bench", "measure the speed of battles, networks and training"),
    "doctor": ("royale_lightning.tools.doctor", "check this machine and this installation"),
    "rate": ("royale_lightning.tools.rate", "fit ratings to a results log"),
    "gate": ("royale_lightning.tools.gate", "decide whether a candidate beats a champion"),
    "evaluate": ("royale_lightning.tools.evaluate", "play two bots against each other on paired seeds"),
    "play": ("royale_lightning.tools.play", "play one battle and write its replay"),
    "ladder": ("royale_lightning.tools.ladder", "list a run's snapshots, ratings and results"),
    "exploit": ("royale_lightning.tools.exploit", "train a best response to a frozen bot and score it"),
    "report": ("royale_lightning.report", "write a run's report as one HTML page"),
    "export": ("royale_lightning.tools.export", "export a bot to other formats"),
    "verify-resume": ("royale_lightning.tools.verify_resume", "prove that a resumed run equals an unbroken one"),
}

#: Commands that play no battle.
_WITHOUT_BATTLES = ("rate", "ladder", "report", "export")
#: Tools that leave a file whatever they are asked; the others have the screen alone, unless ``--json`` is given.
_LEAVE_FILES = ("exploit", "play", "report", "export")
#: Exit code of a mistake in a setting, a file or a command line.
USER_ERROR = 2


def available_tools() -> dict[str, tuple[str, str]]:
    """The tools whose module is installed, found without importing it."""
    return {name: tool for name, tool in TOOLS.items() if importlib.util.find_spec(tool[0]) is not None}


def help_text() -> str:
    """What ``royale-lightning --help`` prints."""
    groups = [("train and measure (Lightning; each has its own --help)", TRAINER_COMMANDS)]
    tools = {name: line for name, (_, line) in available_tools().items()}
    if tools:
        groups.append(("tools (each has its own --help)", tools))
    lines = ["usage: royale-lightning COMMAND [arguments]", ""]
    for title, commands in groups:
        lines.append(f"{title}:")
        lines += [f"  {name:<14} {line}" for name, line in commands.items()]
        lines.append("")
    lines += [
        "  royale-lightning fit --config configs/first_bot.yaml",
        "  royale-lightning test --ckpt_path runs/NAME/checkpoints/last.ckpt",
    ]
    return "\n".join(lines)


def _version() -> str:
    from importlib.metadata import version

    return f"royale-lightning {version('royale_lightning')}"


def _announce_compilation() -> None:
    """Say why the first battle after an install is a while in coming: numba compiles, and keeps what it made here.

    Where it keeps it elsewhere (``NUMBA_CACHE_DIR``, an installation that cannot be written to) nothing is said.
    """
    kept = Path(__file__).parents[1] / "battle" / "engine" / "__pycache__"
    elsewhere = os.environ.get("NUMBA_CACHE_DIR") or not os.access(kept if kept.is_dir() else kept.parent, os.W_OK)
    if not elsewhere and next(kept.glob("*.nbi"), None) is None:
        print("first use: the battle code is compiled now, which takes about half a minute", flush=True)


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0 if argv else USER_ERROR
    word, rest = argv[0], argv[1:]
    if word == "--version":
        print(_version())
        return 0
    plays = word in TRAINER_COMMANDS or (word in TOOLS and word not in _WITHOUT_BATTLES)
    asks = any(a in ("-h", "--help") or a.startswith("--print_config") for a in rest)
    if plays and not asks and os.environ.get("LOCAL_RANK", "0") == "0":
        _announce_compilation()
    if word in TRAINER_COMMANDS:
        from .trainer_cli import run

        return run(argv)
    tools = available_tools()
    if word in tools:
        return int(importlib.import_module(tools[word][0]).main(rest) or 0)
    known = [*TRAINER_COMMANDS, *tools]
    raise UserError(f"{word!r} is none of the commands {', '.join(known)}{near_matches(word, known)}")


def _sentence(exc: Exception) -> str | None:
    """What to print for an exception; None for one of our own making, whose traceback is the better report."""
    if isinstance(exc, UserError):
        return str(exc)
    if (where := own_frame(exc)) is not None:
        return f"{type(exc).__name__}: {exc} ({where}; JSONARGPARSE_DEBUG=true shows the traceback)"
    if isinstance(exc, OSError) and exc.filename is not None:
        return f"cannot use {str(exc.filename)!r}: {exc.strerror}; {remedy(exc)}"
    if isinstance(exc, OSError) and exc.errno in OUT_OF_FILES:  # pipes and blocks of memory have no name
        return f"{exc.strerror}; {remedy(exc)}"
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    A :class:`UserError` is printed as one sentence and gives 2, as is what a user's own part raised, or a file that
    cannot be used; ``JSONARGPARSE_DEBUG=true`` adds the traceback that the sentence hides. A run stopped by a signal
    gives 130 (SIGINT) or 143 (SIGTERM), one ended by an alarm 3. No failure of the screen ends a command; it is an
    error of one that had nothing but the screen.
    """
    # A console script does not see the folder it is called in, where a user's own reward or network lies.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    words = list(sys.argv[1:] if argv is None else argv)
    with guarded() as screen:
        code = _run(words)
        screen.flush()
        if (why := was_lost(screen)) is not None:
            kept = {*words[:1]} & {*TRAINER_COMMANDS, *_LEAVE_FILES} or any(w.split("=")[0] == "--json" for w in words)
            print(f"{'' if kept else 'error: '}not all that was printed could be shown: {why}", file=sys.stderr)
            code = code if kept else code or USER_ERROR
    return code


def _run(words: list[str]) -> int:
    try:
        return _dispatch(words)
    except Exception as exc:
        sentence = _sentence(exc)
        if sentence is None:
            raise
        if os.environ.get("JSONARGPARSE_DEBUG"):
            traceback.print_exc()
        print(f"error: {sentence}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        # Before training starts there is nothing to save, and a traceback of an import helps nobody.
        return 130
