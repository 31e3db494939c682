"""A save state: a moment of a battle that an episode can begin from, with the proof that it plays as it did.

It holds the engine's bytes, both seats' match memories and frame histories, the state of rewards and done conditions,
and what of the tick limit is left. It belongs to one build of the engine and one set of battle settings: its *stamp*,
checked before anything is loaded, because the engine itself accepts a state of another card table and quietly plays
another battle.

On disk and in memory it is compressed against a dictionary: a battle's first moment on this engine, which holds the
25 KB of calibration that every state repeats. 50 KB of engine bytes become 2.2 KB (11.7 KB without the dictionary).
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import msgspec
import zstandard
from royalegym import STARTER_DECK
from royalegym.protocol import MatchSetup

from ..errors import UserError
from .engine.engine import decode_state, new_battle, reset_battle, shared_engine
from .engine.saved_memory import MemoryBytes
from .stamp import Stamp

_KIND = "royale_lightning.save_state"
#: A new number when the layout of :class:`SaveState` or of its envelope changes.
FORMAT = 1
#: zstd's level: 9 takes 0.4 ms a state and saves 15 % over 3; 19 takes 6 ms for another 9 %.
_LEVEL = 9
#: Longest state that is unpacked; a damaged or made-up one may claim gigabytes.
_LARGEST = 16 * 2**20


class Refused(UserError):
    """A save state that must not be played here; one sentence says why."""


def rest_of_limit(limit: int | None, played: int) -> int | None:
    """What a tick limit leaves after ``played`` ticks."""
    return None if limit is None else limit - played


def check_hash(found: int, state: SaveState) -> None:
    """Refuse what the engine loaded without complaint and is another battle all the same."""
    if found != state.state_hash:
        raise Refused(
            f"a save state of tick {state.tick} loads as another battle (hash {found:016x}, saved "
            f"{state.state_hash:016x}); collect it again on this engine"
        )


@dataclass(frozen=True)
class Origin:
    """Where a save state was taken.

    Attributes:
        players, seed: of the battle.
        start: digest of the save state that battle began from; empty for a true start.
        game_step: how many game steps of the battle lie before, those before a restart included.
    """

    players: tuple[str, str]
    seed: int
    start: str
    game_step: int


@dataclass(frozen=True)
class SaveState:
    """A moment of a battle.

    Attributes:
        engine: the engine's own save.
        memory: both seats' match memories, RoyaleGym's ``save_memory``.
        history: per seat the stacked frames before the present one; empty without frame stacks.
        parts: ``state()`` of reward, termination and truncation, by those names; parts that offer none are absent.
        tick: of the engine.
        state_hash: the engine's; what is loaded must have it.
        max_ticks: how many ticks an episode from here may last; None for no limit.
        seat: the seat it was made for; None for either.
        tag: a label for people.
        origin: None for a state that came without, such as RoyaleGym's banks.
    """

    engine: bytes
    memory: bytes
    history: tuple[bytes, bytes]
    parts: dict[str, Any]
    tick: int
    state_hash: int
    max_ticks: int | None = None
    seat: int | None = None
    tag: str = ""
    origin: Origin | None = None


class _Envelope(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    kind: str
    format: int
    stamp: str
    digest: str
    body: bytes


@lru_cache(maxsize=1)
def _dictionary() -> zstandard.ZstdCompressionDict:
    """A battle's first moment on this process's engine."""
    ids = {c.name: c.card_id for c in shared_engine().cards()}
    deck = [ids[n] for n in STARTER_DECK]
    battle = new_battle()
    reset_battle(battle, 0, MatchSetup(decks=[deck, deck]))
    first = MemoryBytes().first(decode_state(battle)) + bytes(battle.save())
    return zstandard.ZstdCompressionDict(first, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


class SaveStateCodec:
    """Packs and unpacks the save states of one stamp; any thread may ask.

    Args:
        stamp: :func:`~royale_lightning.battle.stamp.stamp_of` these battles.
    """

    def __init__(self, stamp: Stamp) -> None:
        # How a moment is keyed decides what it is drawn for, not how it plays.
        self._name = replace(stamp, key_function="").digest
        self._lock = threading.Lock()  # zstandard's objects serve one thread at a time

    @cached_property
    def _compressor(self) -> zstandard.ZstdCompressor:
        return zstandard.ZstdCompressor(level=_LEVEL, dict_data=_dictionary())

    @cached_property
    def _decompressor(self) -> zstandard.ZstdDecompressor:
        return zstandard.ZstdDecompressor(dict_data=_dictionary())

    def pack(self, state: SaveState) -> bytes:
        """Compress. Equal moments give equal bytes."""
        body = msgspec.msgpack.encode(state)
        with self._lock:
            packed = self._compressor.compress(body)
        return msgspec.msgpack.encode(_Envelope(_KIND, FORMAT, self._name, _hash(body), packed))

    def unpack(self, data: bytes) -> SaveState:
        """Check and decompress.

        Raises:
            Refused: it is torn or changed, of another format, or of other battles than these.
        """
        try:
            e = msgspec.msgpack.decode(data, type=_Envelope)
        except msgspec.DecodeError as exc:
            raise Refused(f"this is no save state, or a torn one ({exc}); collect it again") from exc
        if (e.kind, e.format) != (_KIND, FORMAT):
            raise Refused(
                f"a save state is of format {e.kind} {e.format} and this version reads {_KIND} {FORMAT}; "
                "collect it again"
            )
        if e.stamp != self._name:
            raise Refused(
                f"the save state belongs to other battles (stamp {e.stamp}, here {self._name}): another engine build, "
                "card table, calibration, decision length, command delay, observation or battle setting; collect it "
                "with these"
            )
        try:
            if not 0 <= zstandard.frame_content_size(e.body) <= _LARGEST:
                raise zstandard.ZstdError("it claims an impossible length")
            with self._lock:
                body = self._decompressor.decompress(e.body)
            if _hash(body) != e.digest:
                raise zstandard.ZstdError("its content has another hash")
            return msgspec.msgpack.decode(body, type=SaveState)
        except (zstandard.ZstdError, msgspec.DecodeError) as exc:
            raise Refused(f"a save state is damaged ({exc}); collect it again") from exc


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
