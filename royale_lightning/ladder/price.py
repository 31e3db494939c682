"""What a game step of the ladder costs beside one of training: measured, rounded to powers of two, and written down.

The ladder's means are a share of the game steps of training. Where its battles take longer than those that are trained
on (a GPU learns, and they are played on its host), that share would be more of the time, so each of its game steps is
charged as several. The charge is measured, and so it is a decision of its own: it stands in the checkpoint, and a
change of it in ``RUN/ladder/prices.jsonl`` before anything depends on it. A resumed run that plays those iterations
again reads what was decided there. As long as the ladder keeps to a tenth of the time, the price is 1 and no clock
decides anything.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from ..run.jsonl import JsonLines

PRICES = "ladder/prices.jsonl"
#: Ladder time in a process before its price is judged: by then its battles are built and its code is compiled.
LEAST_SECONDS = 60.0
#: Share of a process's wall time that the ladder may take before a price is raised, the slack included.
SHARE = 0.1
#: A price stands until what was measured exceeds it by this factor: two measurements of one machine differ by less.
SLACK = 1.25


def next_price(price: int, measured: float) -> int:
    """The price after a measurement: a power of two, at least 1.

    It doubles while a measurement lies more than :data:`SLACK` above it, and halves where one lies so far below that
    the half would hold with room to spare; in between it stays, so that noise decides nothing.

    Args:
        price: in force.
        measured: wall time of a game step of the ladder over that of one of training.
    """
    while measured > SLACK * price:
        price *= 2
    while price > 1 and SLACK * measured < price / 4:
        price //= 2
    return price


class Prices:
    """Decides the price in a process, and knows what an earlier one decided for iterations that are played again.

    Args:
        path: ``RUN/ladder/prices.jsonl``; made at the first change. A last line without its newline is a torn one:
            nothing depended on it yet.
        opened: ``time.monotonic()`` when this process began.
        spent, game_steps: of the ladder and of training then.
    """

    def __init__(self, path: Path, opened: float, spent: int, game_steps: int) -> None:
        self.path = path
        self.opened, self.spent, self.game_steps = opened, spent, game_steps
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        changes = [json.loads(line) for line in lines if line.endswith("\n")]
        self._decided: dict[tuple[int, str], int] = {(c["iteration"], c["after"]): c["price"] for c in changes}
        self._until = max((c["iteration"] for c in changes), default=0)

    def decide(self, price: int, seconds: float, spent: int, game_steps: int, iteration: int, after: str) -> int:
        """The price from now on.

        Args:
            price: until now.
            seconds: the ladder took in this process.
            spent, game_steps: of the ladder and of training, as far as the run has come.
            iteration: this one.
            after: who acted in it: ``gate`` or ``rating``.
        """
        if iteration <= self._until:
            return self._decided.get((iteration, after), price)
        others = time.monotonic() - self.opened - seconds
        trained, played = game_steps - self.game_steps, spent - self.spent
        if seconds < LEAST_SECONDS or min(others, trained, played) <= 0:
            return price
        measured = (seconds / played) / (others / trained)
        found = next_price(price, measured)
        if found > price and seconds <= SLACK * SHARE * (seconds + others):
            return price
        if found != price:
            log = JsonLines(self.path)
            log.append({"iteration": iteration, "after": after, "price": found, "measured": measured})
            log.close()  # which syncs
        return found
