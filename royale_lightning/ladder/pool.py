"""The pool: the snapshots a run trains against, and who among them is champion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

#: How a snapshot came into the pool. ``first`` had nobody to be compared with; ``gated`` beat the champion, and
#: ``cycle`` did too but lost its hold on the rest of the pool; ``cadence`` and ``starved`` came in without a verdict;
#: ``given`` is a bot of the configuration.
ROLES = ("first", "gated", "cycle", "cadence", "starved", "given")


@dataclass(frozen=True)
class Member:
    """One snapshot of the pool.

    Args:
        snapshot: its id.
        role: one of :data:`ROLES`.
        iteration, game_steps: of the learner when it was taken; of a given bot, its own.
        champion: whether it is or was champion.
    """

    snapshot: str
    role: str
    iteration: int
    game_steps: int
    champion: bool = False


class Pool:
    """Members in the order of their admission. A champion stays a member.

    Attributes:
        champion: id of the snapshot that candidates must beat; None in an empty pool.
    """

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self.champion: str | None = None

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, snapshot: str) -> bool:
        return snapshot in self._members

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(self._members.values())

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._members)

    def admit(self, member: Member) -> bool:
        """Take a snapshot in; False for one that is in already. The first to come is champion until one is proven."""
        if member.snapshot in self._members:
            return False
        self._members[member.snapshot] = member
        if self.champion is None:
            self.promote(member.snapshot)
        return True

    def promote(self, snapshot: str) -> None:
        """Make a member champion."""
        self._members[snapshot] = replace(self._members[snapshot], champion=True)
        self.champion = snapshot

    def drop(self, snapshots: Iterable[str]) -> None:
        """Let members go: evicted, or damaged on disk. Without its champion the newest former one steps in."""
        for snapshot in snapshots:
            self._members.pop(snapshot, None)
        if self.champion not in self._members:
            heirs = [m.snapshot for m in self.members if m.champion] or list(self.ids)
            self.champion = None
            if heirs:
                self.promote(heirs[-1])

    def state_dict(self) -> dict[str, Any]:
        return {"members": [asdict(m) for m in self.members], "champion": self.champion}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._members = {m["snapshot"]: Member(**m) for m in state["members"]}
        self.champion = state["champion"]
