"""Battles in worker processes, their rounds in shared memory."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from multiprocessing import shared_memory

import numpy as np

from ..battle.arena import ArenaSettings
from ..battle.layout import EXACT, Loss
from ..battle.round import Assignment, Round, SavedBattle
from ..battle.spec import BattleSpec
from ..battle.worker import Advance, Command, Done, Failed, Gamma, Observe, Reply, Restore, Save, Start, receive, send
from ..errors import UserError
from .sources import RolloutSource

#: Seconds a worker may take to exit by itself once its standard input is closed.
_GRACE = 5.0


class ProcessSource(RolloutSource):
    """``workers`` processes over contiguous ranges of battles; the parent reads and writes one shared block.

    Args:
        spec: what is played; its parts must be importable, so none may live in ``__main__``.
        first: global id of the first battle.
        battles: of this rank.
        settings: of every worker's arena.
        workers: processes, at most one per battle.

    Raises:
        UserError: a part lives in a notebook cell or the main script.
        RuntimeError: a worker died or raised.
    """

    def __init__(self, spec: BattleSpec, first: int, battles: int, settings: ArenaSettings, workers: int) -> None:
        for name in ("reward", "observation", "start", "termination", "truncation", "actions"):
            part = spec.part(name)
            if part is not None and part.in_main:
                raise UserError(
                    f"battle.{name} is {part.class_path}, a class of the main script or a notebook cell, which worker "
                    "processes cannot import; set rollout.source to inline, or move the class into a module"
                )
        row_bytes = spec.row_layout.row_bytes
        self._block = shared_memory.SharedMemory(create=True, size=Round.nbytes(battles, row_bytes))
        self.round = Round(battles, row_bytes, self._block.buf)
        bounds = np.linspace(0, battles, workers + 1).astype(int)
        self._ranges = [(int(a), int(b)) for a, b in pairwise(bounds)]
        self._first = first
        self._refused = [0] * workers
        self._loss = [EXACT] * workers
        self._workers: list[subprocess.Popen[bytes]] = []
        for lo, hi in self._ranges:
            p = subprocess.Popen(
                [sys.executable, "-m", "royale_lightning.battle.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            self._workers.append(p)
            name = self._block.name
            self._send(p, Start(
                spec.as_dict(), spec.row_layout, settings, name, battles, row_bytes, first + lo, lo, hi - lo, sys.path
            ))
        for i in range(workers):
            self._reply(i)

    @staticmethod
    def _send(p: subprocess.Popen[bytes], message: Command) -> None:
        assert p.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the reply says why
            send(p.stdin, message)

    def _reply(self, i: int) -> Done:
        p = self._workers[i]
        assert p.stdout is not None
        reply = receive(p.stdout, Reply)
        if isinstance(reply, Done):
            self._refused[i], self._loss[i] = reply.refused, reply.loss
            return reply
        self.close()
        if isinstance(reply, Failed):
            if reply.user:
                raise UserError(reply.text)
            raise RuntimeError(f"worker {i} raised:\n{reply.text}")
        raise RuntimeError(f"worker {i} (process {p.pid}) died with exit code {p.wait()}")

    def _all(self, messages: Sequence[Command]) -> list[Done]:
        for p, m in zip(self._workers, messages, strict=True):
            self._send(p, m)
        return [self._reply(i) for i in range(len(self._workers))]

    def set_gamma(self, gamma: float) -> None:
        self._all([Gamma(gamma)] * len(self._workers))

    def advance(self, assignments: Sequence[Assignment]) -> None:
        per = [
            Advance([a for a in assignments if lo <= a.battle - self._first < hi]) for lo, hi in self._ranges
        ]
        self.round.episodes = [e for done in self._all(per) for e in done.episodes]

    def observe(self, slots: np.ndarray) -> None:
        self._all([
            Observe([int(s) - 2 * lo for s in slots if 2 * lo <= s < 2 * hi]) for lo, hi in self._ranges
        ])

    def save(self) -> list[SavedBattle]:
        return [s for done in self._all([Save()] * len(self._workers)) for s in done.saved]

    def restore(self, saved: Sequence[SavedBattle]) -> None:
        self._all([
            Restore([s for s in saved if lo <= s.assignment.battle - self._first < hi]) for lo, hi in self._ranges
        ])

    def refused(self) -> int:
        return sum(self._refused)

    def loss(self) -> Loss:
        return Loss(sum(x.clipped for x in self._loss), sum(x.rounded for x in self._loss))

    def close(self) -> None:
        workers, self._workers = self._workers, []
        for p in workers:
            if p.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    p.stdin.close()
        for p in workers:
            try:
                p.wait(_GRACE)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
            if p.stdout is not None:
                p.stdout.close()
        if self._block is not None:
            block, self._block = self._block, None  # type: ignore[assignment]
            self.round = Round(0, self.round.row_bytes)
            with contextlib.suppress(BufferError):  # somebody still holds a view; the memory goes when they do
                block.close()
            block.unlink()
