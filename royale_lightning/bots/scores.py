"""The scored table: a bot against opponents on paired seeds, sampled and sharp, with intervals.

``run_test``, ``run_validate`` and ``run_predict`` are what the command line's ``test``, ``validate`` and ``predict``
do. They take a bot or a path and need no Trainer.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from ..battle.opponents import ACTING, LADDER
from ..battle.players import scripted_player, short_name
from ..battle.round import EpisodeRecord
from ..errors import UserError
from ..metrics.intervals import mean_interval, score_interval
from ..run.atomic import write_atomic
from ..run.screen import Screen
from .bot import MODES, Bot, check_same_rows
from .bot_files import run_folder_of
from .by_deck import DeckScores
from .evaluate import BATTLES, PlannedGame, Policy, Referee, paired_games
from .measure import DEFAULT_GAMES, DEFAULT_SEED, Measure

#: The scored bot's name among the players.
_SELF = "bot"

OnEnd = Callable[[EpisodeRecord], None]


@dataclass(frozen=True)
class OpponentScore:
    """Results against one opponent.

    Args:
        games, wins, draws, losses: counted over both seats.
        score: (wins + half the draws) / games.
        low, high: its 95 % interval, seeds as units: bootstrap, or Wilson's when all seeds went the same way.
        mean_ticks: mean length of a battle, 50 ms each.
        seconds_per_battle: wall time of the whole mode, shared among its battles by their length. Battles of all
            opponents are in flight together, so none has a wall time of its own.
    """

    games: int
    wins: int
    draws: int
    losses: int
    score: float
    low: float
    high: float
    mean_ticks: float
    seconds_per_battle: float


@dataclass(frozen=True)
class ModeScores:
    """One way of acting against every opponent; ``mean_score`` weighs the opponents equally.

    ``mean_low`` and ``mean_high`` are its 95 % interval with whole seeds as units (``intervals.mean_interval``): all
    opponents are met on the same ones, so their errors do not average out as independent ones would.
    """

    opponents: dict[str, OpponentScore]
    mean_score: float
    mean_low: float
    mean_high: float


@dataclass(frozen=True)
class Scores:
    """What ``scores.json`` holds.

    Args:
        checkpoint: the file or folder that was scored, or the bot's name.
        game_steps: how long it was trained.
        deck: as the battles' settings name it; deck files, and the package's decks, by what they hold.
        seed: of the first pair.
        modes: by name, ``sampled`` and ``sharp``.
        by_deck: by mode, scores by deck and card, where they were asked for; absent from the file otherwise.
    """

    checkpoint: str
    game_steps: int
    deck: str | list[Any] | dict[str, Any]
    seed: int
    modes: dict[str, ModeScores]
    by_deck: dict[str, DeckScores] | None = None

    def as_dict(self) -> dict[str, Any]:
        held = {"schema": 1, **asdict(self)}
        return held if self.by_deck is not None else {k: v for k, v in held.items() if k != "by_deck"}

    def save(self, path: Path) -> Path:
        """Write the JSON, atomically."""
        write_atomic(path, json.dumps(self.as_dict(), indent=1, allow_nan=False).encode() + b"\n")
        return path

    def table(self) -> Table:
        """For people: one block of rows per mode."""
        steps = f"{self.game_steps:,} game steps" if self.game_steps else "untrained"
        table = Table(title=f"{self.checkpoint} · {steps} · seeds from {self.seed}")
        table.add_column("acting", no_wrap=True)
        table.add_column("opponent", no_wrap=True)
        for name in ("games", "W-D-L", "score", "95 %", "ticks"):
            table.add_column(name, justify="right", no_wrap=True)
        for mode, scores in self.modes.items():
            for name, s in scores.opponents.items():
                table.add_row(
                    mode, name, str(s.games), f"{s.wins}-{s.draws}-{s.losses}", f"{s.score:.3f}",
                    f"{s.low:.3f}–{s.high:.3f}", f"{s.mean_ticks:.0f}",
                )
            table.add_row(
                mode, "mean", "", "", f"{scores.mean_score:.3f}", f"{scores.mean_low:.3f}–{scores.mean_high:.3f}", "",
                style="bold", end_section=True,
            )
        return table


def pair_scores(records: Sequence[EpisodeRecord]) -> np.ndarray:
    """Mean result of each seed's two games, ``[pairs]``, for the player that is blue in the even games.

    Args:
        records: in the order of :func:`~royale_lightning.bots.evaluate.paired_games`.
    """
    seats = [r.score(i % 2) for i, r in enumerate(records)]
    return np.array(seats, dtype=np.float64).reshape(-1, 2).mean(axis=1)


def summarise(records: Sequence[EpisodeRecord], seconds_per_tick: float) -> OpponentScore:
    """One match's figures; ``records`` as :func:`pair_scores` takes them."""
    results = [r.score(i % 2) for i, r in enumerate(records)]
    score, low, high = score_interval(pair_scores(records))
    ticks = float(np.mean([r.ticks for r in records]))
    return OpponentScore(
        games=len(results), wins=results.count(1.0), draws=results.count(0.5), losses=results.count(0.0), score=score,
        low=low, high=high, mean_ticks=ticks, seconds_per_battle=ticks * seconds_per_tick,
    )


def score_table(
    bot: Bot,
    opponents: Sequence[str | Bot] = LADDER,
    games: int = DEFAULT_GAMES["test"],
    seed: int = DEFAULT_SEED,
    modes: Sequence[str] = MODES,
    *,
    checkpoint: str = "",
    battles: int = BATTLES,
    threads: int | None = None,
    on_end: OnEnd | None = None,
    by_deck: bool = False,
) -> Scores:
    """Play ``bot`` against every opponent and say how it did.

    Args:
        opponents: names of scripted opponents (or class paths), and bots, who act as they were made.
        games: per opponent and mode, rounded up to an even number.
        seed: of the first pair; every opponent and mode is met on the same seeds.
        modes: of the scored bot.
        checkpoint: what to call it in the result; unset, its name.
        battles: in flight at once.
        threads: stepping threads; unset, one per core.
        on_end: called after each battle.
        by_deck: score by deck and card as well (:mod:`.by_deck`).
    """
    players: dict[str, Policy] = {}
    names: dict[str, str] = {}
    for other in opponents:
        if isinstance(other, Bot):
            check_same_rows(bot, other)
            label = _free_name(other.name, names)
            names[label] = f"bot:{label}"
            players[names[label]] = other
        else:
            names[short_name(other)] = scripted_player(other)
    if not names:
        raise UserError("no opponents are named; give at least one")
    matches = {label: paired_games(_SELF, name, games, seed) for label, name in names.items()}
    # All opponents of a seed in turn, so that long and short battles mix and the batch stays full.
    order = [(label, i) for i in range(games + games % 2) for label in matches]
    plan = [matches[label][i] for label, i in order]
    found: dict[str, ModeScores] = {}
    dealt: dict[str, DeckScores] = {}
    with Referee(bot.spec, min(battles, len(plan)), threads) as referee:
        for mode in modes:
            start = time.perf_counter()
            records = referee.play({**players, _SELF: bot.in_mode(mode)}, plan, on_end=on_end)
            rate = (time.perf_counter() - start) / max(1, sum(r.ticks for r in records))
            of: dict[str, list[EpisodeRecord]] = {label: [] for label in matches}
            for (label, _), record in zip(order, records, strict=True):
                of[label].append(record)
            if by_deck:
                seats = [(r, i % 2) for rs in of.values() for i, r in enumerate(rs)]
                dealt[mode] = DeckScores.of(seats, referee.spec)
            scores = {label: summarise(rs, rate) for label, rs in of.items()}
            found[mode] = ModeScores(scores, *mean_interval(np.stack([pair_scores(rs) for rs in of.values()])))
    deck = bot.trained_on.as_dict()["deck"]
    return Scores(checkpoint or bot.name, bot.record.game_steps, deck, seed, found, dealt if by_deck else None)


def _free_name(name: str, taken: Mapping[str, str]) -> str:
    """``name``, or ``name-2`` and so on: two runs may have made bots of one name."""
    n, free = 1, name
    while free in taken:
        n += 1
        free = f"{name}-{n}"
    return free


# ---- what the command line calls -------------------------------------------------------------------------------
def run_test(
    source: str | Path | Bot, games: int = DEFAULT_GAMES["test"], seed: int = DEFAULT_SEED,
    out: str | Path | None = None, *, checkpoint: str = "", console: Console | None = None, battles: int = BATTLES,
    by_deck: bool = False,
) -> Path:
    """The full scored table: RoyaleGym's six opponents, sampled and sharp. Prints it and writes ``scores.json``.

    Args:
        source: a bot, or anything ``Bot.load`` takes.
        games: per opponent.
        seed: of the first pair.
        out: folder for the file; unset, the run folder that ``source`` lies in.
        checkpoint: what to call the bot in the result; unset, the path or the bot's name.
        console: where the table is printed.
        battles: in flight at once.
        by_deck: score by deck, by card and deck against deck as well; the first mode's are printed.

    Returns:
        The file.
    """
    bot, label, folder = _resolve(source, out, checkpoint)
    return _score(bot, LADDER, games, seed, MODES, label, folder / "scores.json", console, battles, by_deck)


def run_validate(
    source: str | Path | Bot, games: int = DEFAULT_GAMES["validate"], seed: int = DEFAULT_SEED,
    out: str | Path | None = None, *, checkpoint: str = "", console: Console | None = None, battles: int = BATTLES,
) -> Path:
    """The quick yardstick: the five opponents that play cards, sampled. As :func:`run_test`, ``validation.json``."""
    bot, label, folder = _resolve(source, out, checkpoint)
    return _score(bot, ACTING, games, seed, MODES[:1], label, folder / "validation.json", console, battles)


def run_predict(
    source: str | Path | Bot, games: int = DEFAULT_GAMES["predict"], seed: int = DEFAULT_SEED,
    out: str | Path | None = None, *, checkpoint: str = "", console: Console | None = None, battles: int = BATTLES,
) -> Path:
    """Play battles and write each as a replay and a page: against the five acting opponents and against itself.

    Args:
        games: per opponent; every second one with the bot on the red seat.
        out: the folder that takes ``replays/``; unset, the run folder.

    Returns:
        The folder of the replays. The other arguments are :func:`run_test`'s.
    """
    from .replays import write_replays

    bot, _, folder = _resolve(source, out, checkpoint)
    plan: list[PlannedGame] = []
    for other in (*(scripted_player(n) for n in ACTING), bot.name):
        plan += paired_games(bot.name, other, games, seed)[:games]
    written = write_replays({bot.name: bot}, plan, bot.spec, folder / "replays", battles=battles)
    console = console or _screen()
    for replay in written:
        console.print(replay.title, str(replay.page), sep="\n  ", soft_wrap=True, highlight=False)
    return folder / "replays"


def measure(bot: Bot, asked: Measure, *, checkpoint: str = "") -> Path:
    """What a measuring stage of the command line asked for, on a bot that is loaded already."""
    if asked.stage == "test":
        return run_test(bot, asked.games, asked.seed, asked.out, checkpoint=checkpoint, by_deck=asked.by_deck)
    run = {"validate": run_validate, "predict": run_predict}[asked.stage]
    return run(bot, asked.games, asked.seed, asked.out, checkpoint=checkpoint)


def _resolve(source: str | Path | Bot, out: str | Path | None, label: str) -> tuple[Bot, str, Path]:
    """The bot, what to call it, and the folder that takes the results."""
    if isinstance(source, Bot):
        bot, name, own = source, source.name, None
    else:
        bot, name, own = Bot.load(source), str(source), run_folder_of(source)
    folder = Path(out) if out is not None else own
    if folder is None:
        raise UserError(f"{name} lies in no run folder that could take the results; say where with --out FOLDER")
    return bot, label or name, folder


def _score(
    bot: Bot, opponents: Sequence[str], games: int, seed: int, modes: Sequence[str], label: str, file: Path,
    console: Console | None, battles: int, by_deck: bool = False,
) -> Path:
    scores = score_table(bot, opponents, games, seed, modes, checkpoint=label, battles=battles, by_deck=by_deck)
    saved = scores.save(file)
    screen = console or _screen()
    screen.print(scores.table())
    for mode, dealt in list((scores.by_deck or {}).items())[:1]:
        for table in dealt.tables(mode):
            screen.print(table)
    return saved


def _screen() -> Console:
    return Console(file=Screen.of(sys.stdout))
