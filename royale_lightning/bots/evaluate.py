"""Batched evaluation: many whole battles at once, each exactly the one that ``royalegym.evaluate`` would play.

Seeds. Game g of a match uses environment seed ``seed + g`` twice, once per seat order; each seat has its own generator
``default_rng(2 * seed + seat)``. A scripted opponent draws from it as it likes; a network's seat draws two uniforms at
each of its choices and none at a forced decision. Battles of training have seeds of 63 hashed bits
(``streams.stream_seed``), so no small number is ever one of them: evaluation seeds are battles nobody trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..battle.opponents import make_opponent
from ..battle.players import is_scripted, own_seat
from ..battle.prepare import prepare
from ..battle.round import CHOICE, TRUE_START, Assignment, Deal, EpisodeRecord, Start
from ..battle.rows.layout import RowLayout
from ..battle.spec import BattleSpec
from ..battle.steps.arena import ArenaSettings, default_threads
from ..battle.steps.sources import InlineSource, RolloutSource
from ..errors import UserError, near_matches
from .bot import full_battles, torch_threads

#: Battles in flight: enough for a batch of some 40 rows a round, beyond which a forward gets no cheaper per row.
BATTLES = 64


class Policy(Protocol):
    """Who plays a seat that is not scripted; a ``Bot`` is one.

    ``choose`` takes uint8 ``[B, row_bytes]`` and float64 ``[B, 2]`` and gives int ``[B]``; each answer may depend on
    its own row and draws alone.
    """

    layout: RowLayout

    def choose(self, rows: np.ndarray, uniforms: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class PlannedGame:
    """One battle to play.

    Args:
        blue, red: names of players, or ``scripted:NAME``.
        seed: as RoyaleGym's ``env.reset(seed)`` takes it.
        start: from where; only a true start says anything about strength.
    """

    blue: str
    red: str
    seed: int
    start: Start = TRUE_START


def paired_games(a: str, b: str, games: int, seed: int) -> list[PlannedGame]:
    """``a`` against ``b``: each seed twice with the seats swapped, ``games`` rounded up to an even number.

    Games 2k and 2k + 1 are the pair of seed ``seed + k``; ``a`` is blue in the first.
    """
    if games < 1:
        raise UserError(f"games is {games}; at least 1 must be played")
    return [g for k in range((games + 1) // 2) for g in (PlannedGame(a, b, seed + k), PlannedGame(b, a, seed + k))]


def is_decided(record: EpisodeRecord) -> bool:
    """Whether a battle was played to its end and was won, lost or drawn."""
    return record.winner >= 0 and not record.truncated


class Referee:
    """Plays planned games on battles that stay built; a context manager.

    Args:
        spec: what is played; its start states, limits and reward are left out (``bot.full_battles``).
        battles: in flight at once. Building one takes 70 ms, so give no more than there are games.
        threads: stepping threads; unset, one per core.
        forward_threads: torch's threads inside a forward. One: batches of some 40 rows gain little from more, and
            beside other work on the machine a second one made whole evaluations four times slower; and sums of one
            thread have one order, on every machine.
        tails: games begin from save states of ``spec``, which is kept as it is, for they belong to it; one that its
            limit cuts short is then an answer too, and has no winner.
        undecided: a battle that ends without a winner or a draw (:func:`is_decided`) is handed back like the others,
            for the caller to leave out. Otherwise it is an error, since a score would count it.
    """

    def __init__(
        self, spec: BattleSpec, battles: int = BATTLES, threads: int | None = None, forward_threads: int = 1,
        tails: bool = False, undecided: bool = False,
    ) -> None:
        self.spec = spec if tails else full_battles(spec)
        self.undecided = tails or undecided
        self.forward_threads = forward_threads
        self.battles = battles
        settings = ArenaSettings(
            seed=0, forced_share=0.0, threads=threads or min(battles, default_threads()), evaluation=True
        )
        self._source: RolloutSource | None = InlineSource(self.spec, 0, battles, settings)
        self._ordinals = [-1] * battles

    def __enter__(self) -> Referee:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Give back threads and battles. Idempotent."""
        if self._source is not None:
            self._source.close()
        self._source = None

    def play(
        self,
        players: Mapping[str, Policy],
        games: Sequence[PlannedGame],
        *,
        keep_commands: bool = False,
        on_end: Callable[[EpisodeRecord], None] | None = None,
    ) -> list[EpisodeRecord]:
        """Play every game to its end.

        A battle that ends takes the next game at once, so that the batch stays full; each round is one forward per
        distinct policy. Who shares a batch does not change a battle, up to the rounding of a matrix product.

        Args:
            players: policies by the names the games use; scripted opponents need no entry.
            keep_commands: so that ``replays.replay_record`` can show the battles.
            on_end: called after each battle.

        Returns:
            One record per game, in the order of ``games``.

        Raises:
            UserError: an unknown player, or a policy of another observation.
            RuntimeError: a battle ended without a winner or a draw, and nobody asked for those.
        """
        if self._source is None:
            raise RuntimeError("this Referee is closed")
        _check(players, games, self.spec)
        match = _Match(self._source, players, games, self._ordinals, keep_commands, self.undecided)
        try:
            with torch_threads(self.forward_threads):
                for record in match.run():
                    if on_end is not None:
                        on_end(record)
        except BaseException:
            # Battles are left standing in mid-game; nothing may continue them.
            self.close()
            raise
        return match.records()


class _Match:
    """One call of :meth:`Referee.play`."""

    def __init__(
        self, source: RolloutSource, players: Mapping[str, Policy], games: Sequence[PlannedGame], ordinals: list[int],
        keep_commands: bool, undecided: bool,
    ) -> None:
        self.source, self.games, self.ordinals, self.keep_commands = source, games, ordinals, keep_commands
        self.undecided = undecided
        # Two names of one policy share its forward.
        self.policies = list({id(p): p for p in players.values()}.values())
        at = {id(p): i for i, p in enumerate(self.policies)}
        self.number = {name: at[id(p)] for name, p in players.items()}
        slots = 2 * source.round.battles
        self.owner = np.full(slots, -1, dtype=np.int64)
        self.rngs: list[np.random.Generator] = [np.random.default_rng(0)] * slots
        self.game_of = [-1] * source.round.battles
        self.found: dict[int, EpisodeRecord] = {}
        self.queue = iter(range(len(games)))

    def run(self) -> Iterator[EpisodeRecord]:
        """Records as the battles end."""
        free = list(range(self.source.round.battles))
        while len(self.found) < len(self.games):
            self.source.advance(self._assign(free))
            free = []
            for record in self.source.round.episodes:
                if not self.undecided and not is_decided(record):
                    raise RuntimeError(
                        f"the battle of seed {record.seed} ended undecided after {record.ticks} ticks; "
                        "a score counts decided battles and draws only"
                    )
                free.append(record.battle)
                self.found[self.game_of[record.battle]] = record
                yield record
            self._act()

    def records(self) -> list[EpisodeRecord]:
        return [self.found[i] for i in range(len(self.games))]

    def _assign(self, free: Sequence[int]) -> list[Assignment]:
        out = []
        for b, i in zip(free, self.queue, strict=False):
            game = self.games[i]
            self.game_of[b] = i
            self.ordinals[b] += 1
            names = (game.blue, game.red)
            for seat, name in enumerate(names):
                self.owner[2 * b + seat] = self.number.get(name, -1)
                self.rngs[2 * b + seat] = np.random.default_rng(2 * game.seed + seat)
            out.append(Assignment(
                b, self.ordinals[b], names, game.seed, 0, self.keep_commands, game.start, Deal(own_seat(names))
            ))
        return out

    def _act(self) -> None:
        r = self.source.round
        todo = np.flatnonzero(r.kind == CHOICE)
        if not len(todo):
            return
        draws = np.stack([self.rngs[s].random(2) for s in todo])
        owner = self.owner[todo]
        for k, policy in enumerate(self.policies):
            mine = owner == k
            if mine.any():
                slots = todo[mine]
                r.action[slots] = policy.choose(r.rows[slots], draws[mine])


def _check(players: Mapping[str, Policy], games: Sequence[PlannedGame], spec: BattleSpec) -> None:
    for name in dict.fromkeys(n for g in games for n in (g.blue, g.red)):
        if is_scripted(name):
            make_opponent(name)
        elif name not in players:
            raise UserError(f"no player is named {name!r}{near_matches(name, players)}")
        elif players[name].layout.digest != prepare(spec).row_layout.digest:
            raise UserError(
                f"player {name!r} reads observation {players[name].layout.name}, and these battles are played with "
                f"{prepare(spec).row_layout.name}; only bots of one observation can meet"
            )


def play_games(
    players: Mapping[str, Policy],
    games: Sequence[PlannedGame],
    spec: BattleSpec,
    *,
    battles: int = BATTLES,
    threads: int | None = None,
    keep_commands: bool = False,
    on_end: Callable[[EpisodeRecord], None] | None = None,
) -> list[EpisodeRecord]:
    """:meth:`Referee.play` on battles built for this call."""
    if not games:
        return []
    with Referee(spec, min(battles, len(games)), threads) as referee:
        return referee.play(players, games, keep_commands=keep_commands, on_end=on_end)
