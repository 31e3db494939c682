"""A worker process: an arena over shared memory, driven by frames on its standard input.

Started as ``python -m royale_lightning.battle.steps.worker``; it never imports torch (850 MB a process). A frame is a
4-byte length and msgpack. It ends when its standard input closes or its parent is another, so a killed trainer leaves
no workers behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import sys
import threading
import time
import traceback
from multiprocessing import resource_tracker, shared_memory
from typing import IO, Any

import msgspec

from ...errors import UserError
from ..prepare import prepare
from ..round import Assignment, EpisodeRecord, Round, SavedBattle
from ..rows.layout import EXACT, Loss, RowLayout
from ..spec import BattleSpec
from .arena import ArenaSettings, build_arena

_LENGTH = struct.Struct("<I")
#: Seconds between two looks at whether the trainer still lives.
_WATCH_SECONDS = 1.0


class Start(msgspec.Struct, tag="start"):
    """First frame: what to play and where. ``first`` counts battles of the whole run, ``at`` those of the block."""

    spec: dict[str, Any]
    layout: RowLayout
    settings: ArenaSettings
    block: str
    block_battles: int
    row_bytes: int
    first: int
    at: int
    battles: int
    path: list[str]


class Gamma(msgspec.Struct, tag="gamma"):
    """The discount that shaped rewards of the next rounds use."""
    gamma: float


class Advance(msgspec.Struct, tag="advance"):
    """Begin these episodes and step every battle to its next decision."""
    assignments: list[Assignment]


class Observe(msgspec.Struct, tag="observe"):
    """Slots counted from the worker's own first battle."""

    slots: list[int]


class Save(msgspec.Struct, tag="save"):
    """Asks for the battles in flight."""


class Restore(msgspec.Struct, tag="restore"):
    """Mint these battles again, where a checkpoint left them."""
    saved: list[SavedBattle]


class Done(msgspec.Struct, tag="done"):
    """The answer to a request: what ended, what was refused, what the codec lost, and what was asked for."""
    episodes: list[EpisodeRecord] = []
    refused: int = 0
    loss: Loss = EXACT
    saved: list[SavedBattle] = []


class Failed(msgspec.Struct, tag="failed"):
    """``user`` marks a sentence meant for the person at the keyboard; else ``text`` is a traceback."""

    text: str
    user: bool


Command = Start | Gamma | Advance | Observe | Save | Restore
Reply = Done | Failed


def send(pipe: IO[bytes], message: Any) -> None:
    """Write one frame."""
    data = msgspec.msgpack.encode(message)
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def receive(pipe: IO[bytes], kind: Any) -> Any:
    """Read one frame, or None where the other side closed."""
    head = pipe.read(_LENGTH.size)
    if head is None or len(head) < _LENGTH.size:
        return None
    (n,) = _LENGTH.unpack(head)
    data = pipe.read(n)
    return msgspec.msgpack.decode(data, type=kind) if len(data) == n else None


def attach(name: str) -> shared_memory.SharedMemory:
    """The trainer's block. The trainer alone unlinks it."""
    block = _attached(name)
    # Its views live as long as the process; closing it under them, as its destructor would, raises.
    block.close = lambda: None  # type: ignore[method-assign]
    return block


def _attached(name: str) -> shared_memory.SharedMemory:
    if sys.version_info >= (3, 13):
        return shared_memory.SharedMemory(name, track=False)
    # Before 3.13 attaching starts a tracker process for this worker and has it unlink the block when we exit.
    register, resource_tracker.register = resource_tracker.register, lambda *_: None
    try:
        return shared_memory.SharedMemory(name)
    finally:
        resource_tracker.register = register


def serve(source: IO[bytes], sink: IO[bytes]) -> None:
    """Answer frames until the source closes."""
    start = receive(source, Command)
    if start is None:
        return
    sys.path[:] = start.path
    block = attach(start.block)
    try:
        whole = Round(start.block_battles, start.row_bytes, block.buf)
        spec = BattleSpec(**start.spec)
        prepare(spec, start.layout)
        arena = build_arena(
            spec, start.first, start.battles, whole.part(start.at, start.battles), start.settings
        )
        send(sink, Done())
        while (message := receive(source, Command)) is not None:
            saved = []
            if isinstance(message, Gamma):
                arena.set_gamma(message.gamma)
            elif isinstance(message, Observe):
                arena.observe(message.slots)
            elif isinstance(message, Save):
                saved = arena.save()
            elif isinstance(message, Restore):
                arena.restore(message.saved)
            else:
                arena.advance(message.assignments)
            send(sink, Done(arena.round.episodes, arena.refused, arena.loss, saved))
        arena.close()
        del arena, whole
    except Exception as exc:
        user = isinstance(exc, UserError)
        with contextlib.suppress(BrokenPipeError):  # the trainer is gone, and nobody needs to know why
            send(sink, Failed(str(exc) if user else traceback.format_exc(), user))


def _exit_with(parent: int) -> None:
    """End this process once the trainer is gone, whatever the battles are doing: they may hang in a user's code."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="trainer-watch", daemon=True).start()


def main() -> None:
    """A worker process: serve requests from standard input until it closes."""
    # Ctrl-C in a terminal, and a batch system's SIGTERM, reach every process of the group; the trainer decides what
    # they mean.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    # Windows never changes a parent's id; there the closing of standard input has to do.
    if os.name == "posix":
        _exit_with(os.getppid())
    # Whatever user code prints must not land between frames.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    serve(sys.stdin.buffer, sink)
    os._exit(0)


if __name__ == "__main__":
    main()
