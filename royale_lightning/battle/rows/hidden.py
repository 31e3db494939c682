"""What a seat may not see, for the critic alone: bytes that lie beside a row and never in it.

A value that knows the enemy's deck, hand and elixir and who sits there has less to average over, and the policy
gradient stays unbiased, since a baseline may depend on anything but the action (Mao et al. 2019, "Variance Reduction
for Reinforcement Learning in Input-Driven Environments"; Pinto et al. 2018, "Asymmetric Actor Critic"). No bot reads
these bytes, no snapshot holds what reads them, and the arena writes them for learner seats alone.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

from ..jit import njit
from ..players import LEARNER, is_scripted, short_name

#: Where each field begins, and how many bytes it has. Cards are catalogue ids plus one, 0 for none.
HIDDEN_FIELDS = {
    "own_deck": (0, 8),  # fair, but a row shows it only once it was played through
    "enemy_deck": (8, 8),
    "enemy_hand": (16, 4),
    "enemy_next": (20, 1),
    "enemy_elixir": (21, 1),  # of 50 milli
    "seat": (22, 1),  # 0 blue, 1 red
    "opponent": (23, 1),  # who sits opposite: :func:`opponent_id`
}
HIDDEN_BYTES = 24
#: Opponents told apart; the learner itself and policies that do not learn are the first two.
OPPONENTS = 31
_ELIXIR_UNIT = 50


def opponent_id(player: str) -> int:
    """0 for the learner, 1 for a snapshot, 2 to 30 for a scripted opponent: a hash of its name, the same in every run.

    Two opponents of a user's own may share one; the shipped ones, by this prime, do not.
    """
    if player == LEARNER:
        return 0
    if not is_scripted(player):
        return 1
    return 2 + crc32(short_name(player).encode()) % (OPPONENTS - 2)


@njit
def write_hidden(out: Any, seat: int, decks: Any, hand: Any, next_card: int, elixir: int, opponent: int) -> None:
    """Fill ``out`` (uint8 ``[HIDDEN_BYTES]``).

    Args:
        seat: who must not see it.
        decks: blue's and red's catalogue ids, ``[2, 8]``.
        hand: the other seat's, ``[4]``, -1 for an empty place.
        next_card: the other seat's, -1 for none.
        elixir: the other seat's, in milli.
        opponent: as :func:`opponent_id` gives it.
    """
    for k in range(8):
        out[k] = decks[seat, k] + 1
        out[8 + k] = decks[1 - seat, k] + 1
    for k in range(4):
        out[16 + k] = hand[k] + 1
    out[20], out[21], out[22], out[23] = next_card + 1, elixir // _ELIXIR_UNIT, seat, opponent
