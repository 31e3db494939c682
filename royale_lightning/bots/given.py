"""What a run was given by path: known by what it held, and kept where the run goes on with it.

A path says nothing of what lies there tomorrow. So a run writes down, setting by setting, what each path held when it
was first read, and a resumed run asks that record, not the path: an original that was moved or deleted is not missed,
and one that was changed does not enter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..errors import UserError
from .bot import Bot
from .bot_files import BotRecord, Weights, read_bot
from .snapshots import SnapshotStore, snapshot_id

#: Folder of the run's own copies of bots that every start of it needs, each named as a snapshot is.
FOLDER = "given"
#: The setting whose bots become members of the pool, which are the run's own snapshots.
OPPONENTS = "data.opponents.snapshots"


def bot_digest(path: str) -> str:
    """The id of the bot at a path, as a snapshot has it: of its actor, wherever it lies."""
    return snapshot_id(*read_bot(path)[:2])


def file_digest(path: str) -> str:
    """16 hex digits over a file's bytes; the path of one that cannot be read, which whoever reads it will say."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError:
        return path


class Given:
    """See the module; held by the data module and part of its state, alike on every rank."""

    def __init__(self) -> None:
        # By setting and path. Without a record (a checkpoint from before there was one) a path stands for what it held.
        self._ids: dict[str, dict[str, str]] | None = {}
        self._known: dict[str, set[str]] = {}
        self._to_keep: dict[str, tuple[BotRecord, Weights]] = {}

    def id_of(self, setting: str, path: str, digest: Callable[[str], str] = bot_digest) -> str:
        """What the path held when the run first read it for this setting.

        Args:
            setting: dotted name, also for the error message.
            path: as it was given.
            digest: reads a path that the record does not know.

        Raises:
            UserError: it has to be read and cannot be.
        """
        if self._ids is None:
            return path
        ids = self._ids.setdefault(setting, {})
        if path not in ids:
            try:
                ids[path] = digest(path)
            except UserError as problem:
                raise UserError(f"{setting}: {problem}") from problem
        return ids[path]

    def is_new(self, setting: str, path: str) -> bool:
        """Whether the run has not had this one yet; a resumed run had all that its checkpoint tells of."""
        return self._ids is not None and self.id_of(setting, path) not in self._known.get(setting, ())

    def bot(self, setting: str, path: str, stores: Sequence[SnapshotStore]) -> Bot:
        """The bot that the path held when the run first read it: the run's copy, or else the original.

        Args:
            setting, path: as for :meth:`id_of`.
            stores: where copies may lie, the run's own first.

        Raises:
            UserError: there is no copy, and the path holds nothing, or another bot.
        """
        snapshot = self.id_of(setting, path)
        store = next((s for s in stores if self._ids is not None and snapshot in s), None)
        try:
            record, weights = store.read(snapshot) if store is not None else read_bot(path)[:2]
            if self._ids is not None and snapshot_id(record, weights) != snapshot:
                copy = stores[0].path(snapshot)
                raise UserError(
                    f"{path!r} is not the bot it was when the run began, and its copy {copy} is gone; bring back either"
                )
            if self._ids is not None and snapshot not in stores[0]:
                self._to_keep[snapshot] = record, weights
            return Bot.of_weights(record, weights, repr(path), name=path)
        except UserError as problem:
            raise UserError(f"{setting}: {problem}") from problem

    def keep(self, store: SnapshotStore) -> None:
        """Copy what :meth:`bot` found elsewhere into the run; for the rank that writes."""
        for record, weights in self._to_keep.values():
            store.add(record, weights)
        self._to_keep = {}

    # ---- state -------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, dict[str, str]] | None:
        """Setting, path, id."""
        return self._ids

    def load_state_dict(self, state: Mapping[str, Mapping[str, str]] | None) -> None:
        """Take over a checkpoint's record; None for one that has none."""
        self._ids = None if state is None else {setting: dict(ids) for setting, ids in state.items()}
        self._known = {setting: set(ids.values()) for setting, ids in (state or {}).items()}


def stores_of(folders: Sequence[Path | None]) -> list[SnapshotStore]:
    """Where copies may lie, of run folders in the order they are asked."""
    return [SnapshotStore(folder / FOLDER) for folder in folders if folder is not None]

