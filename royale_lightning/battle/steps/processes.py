"""Battles in worker processes, their rounds in shared memory; a lost worker costs its battles, not the run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ...errors import UserError
from ...run.screen import say
from ..prepare import prepare
from ..round import IDLE, TRUNCATED, Assignment, Round, SavedBattle
from ..rows.layout import EXACT, Loss
from ..spec import BattleSpec
from .arena import ArenaSettings
from .shared_block import shared_block
from .sources import RolloutSource
from .worker import Advance, Command, Done, Gamma, Observe, Restore, Save, Start
from .worker_process import HUNG, KILLED, RAISED, Watchdog, Worker, WorkerLost


class ProcessSource(RolloutSource):
    """``workers`` processes over contiguous ranges of battles; the parent reads and writes one shared block.

    A worker that is killed, hangs or raises is replaced: its process ends, the battles it was playing are void, and a
    new process starts while the other workers play on. :meth:`revive` waits for it.

    Args:
        spec: what is played; its parts must be importable, so none may live in ``__main__``.
        first: global id of the first battle.
        battles: of this rank.
        settings: of every worker's arena.
        workers: processes, at most one per battle.
        restarts: how many lost workers are replaced before the run ends.
        timeout: seconds an answer may take before a worker counts as hung.

    Raises:
        UserError: a part lives in a notebook cell or the main script, a worker raised at its start, too many were
            lost, or shared memory is too small.
    """

    def __init__(
        self, spec: BattleSpec, first: int, battles: int, settings: ArenaSettings, workers: int, *,
        restarts: int = 20, timeout: float = 120.0,
    ) -> None:
        for name in ("reward", "observation", "start", "termination", "truncation", "actions"):
            part = spec.part(name)
            if part is not None and part.in_main:
                raise UserError(
                    f"battle.{name} is {part.class_path}, a class of the main script or a notebook cell, which worker "
                    "processes cannot import; set rollout.source to inline, or move the class into a module"
                )
        layout = prepare(spec).row_layout
        row_bytes = layout.row_bytes
        self._block = shared_block(Round.nbytes(battles, row_bytes))
        self.round = Round(battles, row_bytes, self._block.buf)
        self.down = np.zeros(battles, dtype=bool)
        self.faults = dict.fromkeys((KILLED, HUNG, RAISED), 0)
        self._voided: list[int] = []
        self._first = first
        self._gamma = 1.0
        self._restarts_left = self._restarts = restarts
        # What workers that are gone had counted.
        self._refused, self._loss = 0, EXACT
        self._workers: list[Worker] = []
        self._watchdog = Watchdog()
        bounds = np.linspace(0, battles, workers + 1).astype(int)
        try:
            for i, (lo, hi) in enumerate(pairwise(bounds.tolist())):
                start = Start(
                    spec.as_dict(), layout, settings, self._block.name, battles, row_bytes, first + lo, lo,
                    hi - lo, sys.path,
                )
                self._workers.append(Worker(i, start, timeout, self._watchdog))
            self._await_start()
        except BaseException:  # no more files, Ctrl-C: nobody else knows of the block and of those that run
            for w in self._workers:
                w.kill()
            self.close()
            raise
        self.down[:] = False

    def _await_start(self) -> None:
        for w in self._workers:
            while not w.ready:
                try:
                    self._reply(w)
                except WorkerLost as lost:
                    if lost.kind == RAISED:  # and would raise again
                        raise UserError(f"{w.name} {lost} before its first battle\n{lost.details}".rstrip()) from None
                    self._lose(w, lost)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers as they are now."""
        return [w.process.pid for w in self._workers]

    # ---- talking ---------------------------------------------------------------------------------------------
    def _reply(self, worker: Worker) -> Done:
        try:
            return worker.reply()
        except UserError:
            self.close()
            raise

    def _ask(self, messages: dict[int, Command]) -> dict[int, Done]:
        """Answers by worker; a worker that is lost meanwhile gives none."""
        asked = {w: messages[w.number] for w in self._workers if w.ready and w.number in messages}
        for w, message in asked.items():
            w.send(message)
        answers = {}
        for w in asked:
            try:
                answers[w.number] = self._reply(w)
            except WorkerLost as lost:
                self._lose(w, lost)
        return answers

    def _all(self, message: Command) -> dict[int, Done]:
        return self._ask({w.number: message for w in self._workers})

    def _per_worker(self, items: Sequence[Assignment]) -> dict[int, list[Assignment]]:
        return {w.number: [a for a in items if a.battle - self._first in w.battles] for w in self._workers}

    # ---- losing and replacing --------------------------------------------------------------------------------
    def _lose(self, w: Worker, lost: WorkerLost) -> None:
        """Void a worker's battles and start another process in its place."""
        name = w.name
        w.kill()
        self.faults[lost.kind] += 1
        self._refused += w.refused
        self._loss = self._loss.plus(w.loss)
        w.refused, w.loss = 0, EXACT
        r, battles = self.round, slice(w.battles.start, w.battles.stop)
        slots = slice(2 * w.battles.start, 2 * w.battles.stop)
        r.kind[slots], r.final[slots], r.reward[slots], r.action[slots] = IDLE, 0, 0.0, 0
        r.duration[battles], r.end[battles] = 0, TRUNCATED
        # A worker that is lost again before it is back has no battles to lose.
        self._voided += [b for b in w.battles if not self.down[b]]
        self.down[battles] = True
        used = self._restarts - self._restarts_left
        if not self._restarts_left:
            self.close()
            raise UserError(
                f"{name} {lost}, and rollout.worker_restarts ({self._restarts}) are used up; see why it fails, or "
                f"raise rollout.worker_restarts\n{lost.details}".rstrip()
            )
        self._restarts_left -= 1
        details = f"\n{lost.details.rstrip()}" if lost.details else ""
        say(
            f"{name} {lost}; its {len(w.battles)} battles are void and it starts anew "
            f"(restart {used + 1} of {self._restarts}){details}",
            file=sys.stderr,
        )
        w.launch()

    def revive(self) -> None:
        while self.down.any():
            for w in self._workers:
                if w.ready:
                    continue
                try:
                    self._reply(w)
                    w.send(Gamma(self._gamma))
                    self._reply(w)
                except WorkerLost as lost:
                    self._lose(w, lost)
                    continue
                self.down[w.battles.start : w.battles.stop] = False

    def take_voided(self) -> np.ndarray:
        voided, self._voided = self._voided, []
        return np.array(sorted(set(voided)), dtype=np.int64)

    # ---- a source --------------------------------------------------------------------------------------------
    def set_gamma(self, gamma: float) -> None:
        self._gamma = gamma
        self._all(Gamma(gamma))

    def advance(self, assignments: Sequence[Assignment]) -> None:
        answers = self._ask({i: Advance(mine) for i, mine in self._per_worker(assignments).items()})
        self.round.episodes = [e for done in answers.values() for e in done.episodes]

    def observe(self, slots: np.ndarray) -> None:
        self._ask({
            w.number: Observe([int(s) - 2 * w.battles.start for s in slots if int(s) // 2 in w.battles])
            for w in self._workers
        })

    def save(self) -> list[SavedBattle]:
        return [s for done in self._all(Save()).values() for s in done.saved]

    def restore(self, saved: Sequence[SavedBattle]) -> None:
        messages: dict[int, Command] = {
            w.number: Restore([s for s in saved if s.assignment.battle - self._first in w.battles])
            for w in self._workers
        }
        while len(answers := self._ask(messages)) < len(messages):
            messages = {i: m for i, m in messages.items() if i not in answers}
            self.revive()
        # Whoever was lost meanwhile has been restored again.
        self._voided = []

    def refused(self) -> int:
        return self._refused + sum(w.refused for w in self._workers)

    def loss(self) -> Loss:
        total = self._loss
        for w in self._workers:
            total = total.plus(w.loss)
        return total

    def close(self) -> None:
        workers, self._workers = self._workers, []
        self._watchdog.close()
        for w in workers:
            w.close_input()
        for w in workers:
            w.finish()
        if self._block is not None:
            block, self._block = self._block, None  # type: ignore[assignment]
            self.round = Round(0, self.round.row_bytes)
            try:
                block.close()
            except BufferError:  # somebody still holds a view; the memory goes when they do, and not with a complaint
                block.close = lambda: None  # type: ignore[method-assign]
            block.unlink()
