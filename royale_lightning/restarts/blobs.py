"""Each distinct save state held once, however many records share it."""

from __future__ import annotations


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
