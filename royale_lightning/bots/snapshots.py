"""Snapshots: frozen actors of a run, each a bot folder ``RUN/snapshots/<id>/`` named after what it holds.

The id is a digest of the weights and of what they answer to, not of who made them: the same actor has one id in every
run, a resumed run gives its snapshots the ids they had, and a file that is not what its name says is found out.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path

import torch

from ..battle.prepare import prepare
from ..battle.spec import BattleSpec
from ..errors import UserError
from ..parts import digest_path
from .bot import Bot
from .bot_files import WEIGHTS, BotRecord, DamagedBot, Weights, read_bot, write_bot

FOLDER = "snapshots"


class UnreadableSnapshot(UserError):
    """A snapshot that cannot be had here and now; its file may be whole."""


class LostSnapshot(UnreadableSnapshot):
    """A snapshot that is gone, or damaged."""


class DamagedSnapshot(LostSnapshot):
    """A snapshot whose file is no bot any more, or not the one its id stands for; its own run has moved it aside."""


def snapshot_id(record: BotRecord, weights: Weights) -> str:
    """16 hexadecimal digits: SHA-256 over network, observation, actions, catalogue, and every weight by name.

    Game steps and the run's name stay out: two runs that reach the same actor have the same snapshot.
    """
    network = {**record.network, "class_path": digest_path(record.network["class_path"])}
    head = [network, record.row_layout, record.actions, record.catalogue]
    digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for name in sorted(weights):
        x = weights[name].detach().cpu().contiguous()
        digest.update(json.dumps([name, str(x.dtype), list(x.shape)]).encode())
        digest.update(x.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def differences(record: BotRecord, spec: BattleSpec) -> list[str]:
    """What keeps a bot from the battles of ``spec``, field by field; empty for one that can play them.

    Decks, rewards and limits may differ: they change what is wise, not what an observation or an action means.
    """
    here = asdict(prepare(spec).action_layout)
    theirs = {k: record.battle.get(k) for k in ("decision_ms", "command_delay_ticks") if k in record.battle}
    pairs: list[tuple[str, object, object]] = [("observation", record.row_layout, prepare(spec).row_layout.digest)]
    pairs += [(f"actions.{k}", record.actions.get(k), v) for k, v in here.items()]
    pairs += [(f"battle.{k}", v, getattr(spec, k)) for k, v in theirs.items()]
    return [f"{name} {was} there and {now} here" for name, was, now in pairs if was != now]


def check_fits(record: BotRecord, spec: BattleSpec, where: str) -> None:
    """Refuse a bot that cannot play the battles of ``spec``.

    Raises:
        UserError: with every field that differs.
    """
    record.spec(where)  # the engine's catalogue and this version's observation
    found = differences(record, spec)
    if found:
        raise UserError(f"{where} cannot play these battles: {'; '.join(found)}; give a bot trained on the same ones")


class SnapshotStore:
    """The snapshots of one run.

    Args:
        folder: ``RUN/snapshots``; made when the first is added. Nothing in it is ever deleted.
        sets_aside: whether damaged ones are renamed, which is for the run that wrote them alone: a tool, or a run that
            forks from it, leaves the folder as it is.
    """

    def __init__(self, folder: Path, sets_aside: bool = False) -> None:
        self.folder = folder
        self.sets_aside = sets_aside

    def path(self, snapshot: str) -> Path:
        return self.folder / snapshot

    def __contains__(self, snapshot: str) -> bool:
        return (self.path(snapshot) / WEIGHTS).is_file()

    def ids(self) -> list[str]:
        """All of them, sorted."""
        if not self.folder.is_dir():
            return []
        return sorted(p.name for p in self.folder.iterdir() if "." not in p.name and p.name in self)

    def add(self, record: BotRecord, weights: Weights) -> str:
        """Keep an actor; one that is there already stays as it is.

        Returns:
            Its id.
        """
        snapshot = snapshot_id(record, weights)
        if snapshot not in self:
            write_bot(self.path(snapshot), record, weights)
        return snapshot

    def add_bot(self, path: str | Path, spec: BattleSpec) -> str:
        """Take over a bot of another run: a bot folder, snapshot, checkpoint or run folder.

        Args:
            spec: the battles it is wanted for.

        Raises:
            UserError: there is no bot, or it cannot play these battles.
        """
        record, weights, file = read_bot(path)
        check_fits(record, spec, repr(str(file)))
        return self.add(record, weights)

    def read(self, snapshot: str) -> tuple[BotRecord, Weights]:
        """Record and weights, on the CPU, checked against the id.

        Raises:
            DamagedSnapshot: the file holds something else; its folder was renamed if this is the run's own store.
            LostSnapshot: there is none.
            UnreadableSnapshot: it cannot be read here and now: no permission, no more open files, a record of a newer
                version. That is no fault of the file's, which stays where it is.
        """
        try:
            if snapshot not in self:
                known = ", ".join(self.ids()) or "none"
                raise LostSnapshot(f"there is no snapshot {snapshot} in {self.folder}; it holds {known}")
            record, weights, _ = read_bot(self.path(snapshot))
            why = "" if snapshot_id(record, weights) == snapshot else "its weights are not those its name stands for"
        except UnreadableSnapshot:
            raise
        except DamagedBot as problem:
            why = str(problem)
        except (OSError, UserError) as problem:
            raise UnreadableSnapshot(f"snapshot {snapshot} cannot be read: {problem}") from problem
        if why:
            aside = self._set_aside(snapshot) if self.sets_aside else None
            then = "bring it back from a copy" if aside is None else f"it was moved to {aside}"
            raise DamagedSnapshot(f"snapshot {snapshot} is damaged ({why}); {then}")
        return record, weights

    def load(self, snapshot: str, *, device: str | torch.device = "cpu") -> Bot:
        """A snapshot that plays, under its id. Raises as :meth:`read` does."""
        record, weights = self.read(snapshot)
        try:
            return Bot.of_weights(record, weights, repr(str(self.path(snapshot))), device=device, name=snapshot)
        except UserError as problem:  # of another engine, or a network that is not installed
            raise UnreadableSnapshot(f"snapshot {snapshot} cannot play here: {problem}") from problem

    def _set_aside(self, snapshot: str) -> Path | None:
        """Where the folder was moved to; None where the file system does not let it be moved."""
        number = 1
        while (aside := self.folder / f"{snapshot}.damaged-{number}").exists():
            number += 1
        try:
            os.replace(self.path(snapshot), aside)
        except OSError:
            return None
        return aside
