"""Save states as bytes: compressed once, and each distinct content held once however many records share it."""

from __future__ import annotations

import zstandard

from ..errors import UserError

#: zstd's default: save states are a few tens of kilobytes, and higher levels only buy single percents.
LEVEL = 3
#: Longest save state that is unpacked, in bytes; several hundred times what a battle takes. A blob from a file is
#: untrusted, and a few kilobytes of zstd can ask for gigabytes.
LARGEST = 16 * 2**20


def compress(state: bytes) -> bytes:
    """A save state as a :class:`~royale_lightning.restarts.state.RestartPoint` carries it; a function of its bytes."""
    if len(state) > LARGEST:
        raise ValueError(f"a save state of {len(state):,} bytes is longer than the {LARGEST:,} that are read back")
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(state)


def decompress(payload: bytes) -> bytes:
    """The save state again.

    Raises:
        UserError: the bytes are damaged, or claim to be longer than :data:`LARGEST`.
    """
    try:
        size = zstandard.frame_content_size(payload)
        if not 0 <= size <= LARGEST:
            raise UserError(
                f"a save state claims {size:,} bytes and at most {LARGEST:,} are read; its bank is damaged or made up, "
                "collect a new one"
            )
        return zstandard.ZstdDecompressor().decompress(payload, max_output_size=LARGEST)
    except zstandard.ZstdError as exc:
        raise UserError(f"a save state of {len(payload):,} bytes is damaged ({exc}); collect a new bank") from exc


class BlobTable:
    """Bytes by content hash, counted by their users; a content whose last user leaves is let go."""

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
