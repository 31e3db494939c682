"""Where the collector asks how an episode begins: one authority, and everything else reads the record it leaves."""

from __future__ import annotations

from typing import Protocol

from ..battle.round import Start


class StartAuthority(Protocol):
    """Decides each episode's start.

    Between two rollouts it may change its mind; inside one, the same arguments give the same answer, so that what an
    episode begins from does not depend on which battle ended first.
    """

    def begin(self, battle: int, ordinal: int, players: tuple[str, str]) -> tuple[tuple[str, str], Start]:
        """Who plays this episode, and from where.

        Args:
            battle, ordinal: global battle id, and how many episodes it began before.
            players: whom the matchmaker names; they play a true start.
        """
