"""Names of players: who sits on a seat of a battle, in assignments, episode records and the results log.

The learner, ``scripted:NAME``, a snapshot's id; a rated learner is ``live:<iteration>``, since it never stands still.
"""

from __future__ import annotations

#: The policy that is being trained.
LEARNER = "learner"
#: Before the name of a scripted opponent.
SCRIPTED = "scripted:"
#: Before the iteration of a learner that is a player of its own.
LIVE = "live:"


def scripted_player(name: str) -> str:
    """``scripted:NAME``, of a scripted opponent's name with or without the prefix."""
    return SCRIPTED + name.removeprefix(SCRIPTED)


def is_scripted(player: str) -> bool:
    """Whether a player's name means a scripted opponent."""
    return player.startswith(SCRIPTED)


def live_player(iteration: int) -> str:
    """The learner as it stood after this many iterations."""
    return f"{LIVE}{iteration}"


def is_live(player: str) -> bool:
    """Whether a player's name means the learner as it stood after some iteration."""
    return player.startswith(LIVE)


def is_snapshot(player: str) -> bool:
    """Whether a player's name means a policy that does not learn: neither the learner, a script, nor an empty seat."""
    return player not in ("", LEARNER) and not is_scripted(player)


def short_name(player: str) -> str:
    """A player's name for people to read: a scripted opponent's without its prefix."""
    return player.removeprefix(SCRIPTED)


def own_seat(players: tuple[str, str]) -> int | None:
    """The seat whose decks are a setting's *own* ones: the learner's, else a policy's against a scripted opponent.

    None where neither seat is more the own than the other: two learners, two snapshots, two scripts.
    """
    for is_own in (lambda p: p == LEARNER, lambda p: not is_scripted(p)):
        mine = [seat for seat in (0, 1) if is_own(players[seat])]
        if len(mine) == 1:
            return mine[0]
        if mine:
            return None
    return None
