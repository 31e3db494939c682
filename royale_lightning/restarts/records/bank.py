"""Banks: restart points in one verified file, or as plain data inside a checkpoint.

A file is 8 bytes that name the format, a 32-byte BLAKE2b of all that follows, and msgpack: the schema, one stamp, each
distinct save state once, and the points. It is refused as a whole when anything does not fit, for a bank that is half
believed would play battles nobody recorded. In memory too each distinct save state is held once (:class:`BlobTable`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from ...battle.stamp import Stamp
from ...errors import UserError
from ...run.atomic import write_atomic
from .points import RestartPoint, content_hash

MAGIC = b"RLBANK\x00\x01"
SCHEMA = 1
_DIGEST = 32


class BlobTable:
    """Each distinct save state held once, however many records share it: bytes by content hash, counted by their users.

    A content whose last user leaves is let go.
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[bytes, int]] = {}

    def retain(self, digest: str, data: bytes) -> bytes:
        """Count one more user of ``data``, and return the one object all of them share."""
        held, users = self._held.get(digest, (data, 0))
        self._held[digest] = (held, users + 1)
        return held

    def release(self, digest: str) -> None:
        """Count one user less.

        Raises:
            KeyError: nobody uses ``digest``.
        """
        data, users = self._held[digest]
        if users == 1:
            del self._held[digest]
        else:
            self._held[digest] = (data, users - 1)

    def __len__(self) -> int:
        return len(self._held)

    @property
    def unique_bytes(self) -> int:
        """What memory holds."""
        return sum(len(data) for data, _ in self._held.values())

    @property
    def referenced_bytes(self) -> int:
        """What it would hold without sharing."""
        return sum(len(data) * users for data, users in self._held.values())


class PackedPoint(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A point without what its bank holds for all points."""

    blob: str
    state_hash: int
    seat: int
    players: tuple[str, str]
    key: tuple[int, ...]
    rank: tuple[int, ...]
    partition: str
    game_step: int
    tick: int
    tick_limit: int | None
    tag: str
    source: tuple[int, int]
    policy_version: int
    remembered: tuple[bool, bool]


class PackedBank(msgspec.Struct, forbid_unknown_fields=True):
    """Points of one stamp, as written."""

    schema: int
    stamp: Stamp | None
    blobs: dict[str, bytes]
    points: list[PackedPoint]


def pack_points(points: Sequence[RestartPoint]) -> dict[str, Any]:
    """Points as plain data (dicts, lists, numbers, strings, bytes), each distinct save state once.

    Raises:
        ValueError: the points are of more than one stamp.
    """
    stamps = {p.stamp for p in points}
    if len(stamps) > 1:
        raise ValueError("a bank holds the points of one game; these are of several")
    names = PackedPoint.__struct_fields__
    return {
        "schema": SCHEMA,
        "stamp": asdict(stamps.pop()) if stamps else None,
        "blobs": {p.blob: p.payload for p in points},
        "points": [[_plain(getattr(p, n)) for n in names] for p in points],
    }


def unpack_points(data: Any, stamp: Stamp, where: str) -> list[RestartPoint]:
    """Points again, in order, sharing their save states' bytes and ``stamp``.

    Args:
        data: what :func:`pack_points` gave, or the msgpack of it decoded.
        stamp: of the game that is played here.
        where: the file, for the error message.

    Raises:
        UserError: ``data`` is no bank, of another schema or another game, or a save state is not what its hash says.
    """
    if isinstance(data, dict) and data.get("schema") != SCHEMA:
        raise UserError(
            f"{where} is a restart bank of schema {data.get('schema')!r} and this version reads schema {SCHEMA}; "
            "collect a new one, or use the version of royale_lightning that wrote it"
        )
    try:
        bank = msgspec.convert(data, PackedBank)
    except msgspec.ValidationError as exc:
        raise UserError(f"{where} is no restart bank ({exc}); give a file that a run or export wrote") from exc
    if not bank.points:
        return []
    differs = "it names none" if bank.stamp is None else bank.stamp.difference(stamp)
    if differs:
        raise UserError(
            f"{where} holds {len(bank.points):,} restart points of another game ({differs}); its "
            "battles would not continue as they were, so none is read: collect a bank with these settings"
        )
    for name, blob in bank.blobs.items():
        if content_hash(blob) != name:
            raise UserError(f"{where} holds a save state that is not what its hash says; get the file again")
    points = []
    for p in bank.points:
        if p.blob not in bank.blobs or p.seat not in (0, 1):
            raise UserError(f"{where} lists a point without its save state or seat; get the file again")
        rest = {name: getattr(p, name) for name in PackedPoint.__struct_fields__}
        points.append(RestartPoint(payload=bank.blobs[p.blob], stamp=stamp, **rest))
    return points


def write_bank(path: Path, points: Sequence[RestartPoint]) -> None:
    """Write a bank; the file appears whole or not at all."""
    body = msgspec.msgpack.encode(pack_points(points))
    write_atomic(path, MAGIC + _digest(body) + body)


def read_bank(path: Path, stamp: Stamp) -> list[RestartPoint]:
    """Read a bank of the game that is played here.

    Raises:
        UserError: the file cannot be read, is damaged or cut short, or is of another game.
    """
    where = repr(str(path))
    try:
        data = memoryview(path.read_bytes())
    except OSError as exc:
        raise UserError(f"{where} cannot be read as a restart bank ({exc.strerror}); check the path") from exc
    if data[: len(MAGIC)] != MAGIC:
        raise UserError(f"{where} is no restart bank of this version; give a file that a run or export wrote")
    body = data[len(MAGIC) + _DIGEST :]
    if data[len(MAGIC) : len(MAGIC) + _DIGEST] != _digest(body):
        raise UserError(f"{where} is damaged or cut short: its bytes do not match their hash; get the file again")
    try:
        decoded = msgspec.msgpack.decode(body)
    except msgspec.DecodeError as exc:
        raise UserError(f"{where} is no restart bank ({exc}); give a file that a run or export wrote") from exc
    return unpack_points(decoded, stamp, where)


def _digest(body: bytes | memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST).digest()


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
