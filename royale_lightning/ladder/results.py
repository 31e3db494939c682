"""The results log: one battle a line, append-only, and the one source of every rating and verdict.

Only battles of kind ``eval`` count for ratings, and the writer takes them from true starts alone: a battle that began
from a restart point measures the restart point as well as the players.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import msgspec

from ..errors import UserError
from ..run.jsonl import JsonLines, Mark, complete_lines

Kind = Literal["eval", "train", "probe"]
KINDS: tuple[str, ...] = get_args(Kind)
#: Start of a whole battle from tick 0; any other start kind names where the battle was entered.
TRUE_START = "true"
BLUE, RED, DRAW = 0, 1, 2


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One decided battle.

    Args:
        kind: ``eval`` (counts for ratings), ``train`` (a training episode) or ``probe`` (measured, never rated).
        blue, red: player ids: a snapshot's id, ``live:<iteration>`` or ``scripted:NAME``.
        seed: as RoyaleGym's ``env.reset(seed)`` takes it; a pair is two results of one seed with the seats swapped.
        winner: 0 blue, 1 red, 2 draw.
        ticks: its length, 50 ms each.
        crowns: per seat.
        iteration, game_step: when in the run it was played.
        start: ``true``, or the kind of start it began from.
        purpose: who asked for it, such as ``rating`` or ``gate:7``; for readers, nothing computes with it.
        context: digest of what was played (:mod:`~.context`); given by the log. Battles of two contexts are never rated
            together. Empty in lines written before there was one.
        id: given by the log, ascending from 1; 0 before.
    """

    kind: Kind
    blue: str
    red: str
    seed: int
    winner: int
    ticks: int
    crowns: tuple[int, int]
    iteration: int
    game_step: int
    start: str = TRUE_START
    purpose: str = ""
    context: str = ""
    id: int = 0

    @property
    def key(self) -> tuple[str, str, int]:
        """``(blue, red, seed)``: in its context, an evaluated battle is a function of it."""
        return self.blue, self.red, self.seed

    def score(self, player: str) -> float:
        """1 for a win of this player, 0.5 for a draw, 0 for a loss.

        Raises:
            ValueError: the player had no seat in this battle, or both.
        """
        if (self.blue == player) == (self.red == player):
            raise ValueError(f"{player!r} is not one of the two players {self.blue!r} and {self.red!r}")
        return 0.5 if self.winner == DRAW else float(self.winner == (BLUE if self.blue == player else RED))


class LogMark(NamedTuple):
    """Where a log stood at a checkpoint: plain numbers, for a ``state_dict``."""

    offset: int
    last_id: int
    digest: str = ""


class ResultsLog:
    """``results.jsonl``, open for writing.

    An evaluated battle is logged once: playing ``(blue, red, seed)`` again gives the same battle and no information,
    so look it up with :meth:`find` first. Ids ascend and no id stands twice in a log. A resumed run plays the battles
    after its checkpoint again, and they get the ids they had in the part that was set aside.

    Args:
        path: the log; made, with its folder, at its first line. A torn last line is set aside then.
        context: of the battles that will be logged; written into each line. Evaluated battles of another one stay in
            the file and are neither found nor rated.
        unmarked: the context of lines without one.
        mark: of the checkpoint a run continues from: what the log holds beyond it is not read, and moved to
            ``<log>.discarded-<n>`` before the first new line. A fork finds no log in its new folder and starts one
            there, its ids following the mark's.

    Raises:
        UserError: a line is not a result, or the log is not the one that the mark is of.
    """

    def __init__(self, path: Path, mark: LogMark | None = None, context: str = "", unmarked: str = "") -> None:
        self.path = path
        self.context = context
        self._lines = JsonLines(path, None if mark is None else Mark(mark.offset, mark.digest))
        self._rated: dict[tuple[str, str, int], Result] = {}
        self._last_id = 0 if mark is None else mark.last_id
        for result in read_results(path, end=self._lines.offset):
            self._last_id = max(self._last_id, result.id)
            if result.kind == "eval" and (result.context or unmarked) == context:
                self._rated[result.key] = msgspec.structs.replace(result, context=context)

    @property
    def last_id(self) -> int:
        return self._last_id

    def append(self, results: Iterable[Result]) -> list[Result]:
        """Write these results in their order: all of them, or none if one is refused.

        They are on disk within ``jsonl.SYNC_SECONDS``, or after :meth:`sync`.

        Args:
            results: without ids.

        Returns:
            The same results with their ids and the log's context.

        Raises:
            UserError: a kind or winner that does not exist, an id given, or a rated result that did not begin from a
                true start, was logged before, or has one player on both seats.
        """
        batch: list[Result] = []
        fresh: dict[tuple[str, str, int], Result] = {}
        for number, result in enumerate(results, self._last_id + 1):
            self._check(result)
            named = msgspec.structs.replace(result, id=number, context=self.context)
            if result.kind == "eval":
                if result.key in self._rated or result.key in fresh:
                    before = (self._rated.get(result.key) or fresh[result.key]).id
                    raise UserError(
                        f"{result.blue!r} against {result.red!r} on seed {result.seed} is in the results log already, "
                        f"as result {before}; take that one or play another seed"
                    )
                fresh[result.key] = named
            batch.append(named)
        for result in batch:
            line = msgspec.to_builtins(result)
            self._lines.append({**line, _CHECK: _checksum(json.dumps(line).encode())})
            self._last_id = result.id
        self._rated.update(fresh)
        return batch

    def find(self, blue: str, red: str, seed: int) -> Result | None:
        """The evaluated battle of these seats and this seed, if it was played in this context."""
        return self._rated.get((blue, red, seed))

    def rated(self) -> list[Result]:
        """All ``eval`` results of this context, ascending by id."""
        return list(self._rated.values())

    def mark(self) -> LogMark:
        """Where the log stands, for a checkpoint; what it promises is on disk."""
        offset, digest = self._lines.mark()
        return LogMark(offset, self._last_id, digest)

    def sync(self) -> None:
        """Return when every result is on disk."""
        self._lines.sync()

    def close(self) -> None:
        """Sync and close. Idempotent."""
        self._lines.close()

    @staticmethod
    def _check(result: Result) -> None:
        if result.kind not in KINDS:
            raise UserError(f"result kind is {result.kind!r}; give one of {', '.join(KINDS)}")
        if result.winner not in (BLUE, RED, DRAW):
            raise UserError(
                f"result winner is {result.winner}; 0 is blue, 1 red, 2 a draw, and only decided battles count"
            )
        if result.id:
            raise UserError(f"result id is {result.id}; the log numbers results itself, so leave it out")
        if result.kind != "eval":
            return
        if result.start != TRUE_START:
            raise UserError(
                f"a rated result began from {result.start!r}; ratings count whole battles, so log it as kind 'train' "
                "or 'probe'"
            )
        if result.blue == result.red:
            raise UserError(f"a rated result has {result.blue!r} on both seats; a player says nothing about itself")


_decoder = msgspec.json.Decoder(Result)
#: The last key of a line: a checksum of the line without it. JSON alone notices no digit that became another.
_CHECK = "crc32"
_TAIL = f', "{_CHECK}": "'.encode()


def _checksum(line: bytes) -> str:
    return f"{zlib.crc32(line):08x}"


def _is_damaged(line: bytes) -> bool:
    """Whether a line is not what its checksum says; a line without one, such as one written by hand, is believed."""
    body, tail, rest = line.rpartition(_TAIL)
    return bool(tail) and rest != f'{_checksum(body + b"}")}"}}\n'.encode()


def read_results(path: Path, kind: Kind | None = None, end: int | None = None) -> Iterator[Result]:
    """Results of a log, in its order; nothing for a missing file.

    A last line without its newline is still being written, or was torn by a crash, and is left out.

    Args:
        path: a ``results.jsonl``, which another process may be writing.
        kind: only these.
        end: bytes of the log to read; all by default.

    Raises:
        UserError: another line is not a result.
    """
    for number, line in enumerate(complete_lines(path, end), 1):
        try:
            if _is_damaged(line):
                raise msgspec.ValidationError("its checksum does not fit")
            result = _decoder.decode(line)
        except msgspec.MsgspecError as problem:
            raise UserError(
                f"{path}, line {number} is not a result ({problem}); remove the line, or bring the log back from a copy"
            ) from problem
        if kind is None or result.kind == kind:
            yield result
