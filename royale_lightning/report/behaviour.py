"""How a policy plays, counted over the plays beside a run's replays: which cards, where, at how much elixir."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..bots.plays import BattlePlays, Board


@dataclass
class Behaviour:
    """Counts over the policy's seats.

    Args:
        battles: seats counted.
        cards: plays by card name; 0 for one that was in the hand and never played.
        tiles: plays by ``(x, y)``, the seat's own frame: its king at the bottom.
        card_tiles: the same of each card.
        elixir: plays by whole elixir before the play.
        minutes: battle time of these seats together.
        board: of the first battle.
    """

    board: Board
    battles: int = 0
    cards: Counter[str] = field(default_factory=Counter)
    tiles: Counter[tuple[int, int]] = field(default_factory=Counter)
    card_tiles: dict[str, Counter[tuple[int, int]]] = field(default_factory=dict)
    elixir: Counter[int] = field(default_factory=Counter)
    minutes: float = 0.0


def count_plays(battles: Iterable[BattlePlays]) -> Behaviour | None:
    """Count over battles; None where no policy played in any."""
    found: Behaviour | None = None
    for battle in battles:
        if not battle.seats:
            continue
        found = found or Behaviour(battle.board)
        found.battles += len(battle.seats)
        found.minutes += len(battle.seats) * battle.seconds / 60
        for held in battle.held:
            # A card that was held and never played is what a reader looks for first.
            found.cards.update(dict.fromkeys(held, 0))
        for play in battle.plays:
            x, y = play.x, play.y
            if play.seat == 1:
                x, y = battle.board.width - 1 - x, battle.board.height - 1 - y
            found.cards[play.card] += 1
            found.tiles[x, y] += 1
            found.card_tiles.setdefault(play.card, Counter())[x, y] += 1
            found.elixir[int(play.elixir)] += 1
    return found
