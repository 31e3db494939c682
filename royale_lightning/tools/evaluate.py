"""``royale-lightning evaluate``: two bots against each other on paired seeds."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..bots.measure import DEFAULT_SEED
from ..errors import UserError, near_matches
from .output import write_json

#: How a player is written on the command line.
PLAYER = (
    "a snapshot (RUN/snapshots/ID), bot folder, checkpoint or run folder, first_bot (which comes with the package), or "
    "a scripted opponent's name (push, ...) or the class path of one of your own (my_bots.Rusher)"
)
_CLASS_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_EPILOG = """\
--json writes {"schema": 1, "tool": "evaluate", "inputs": {"a", "b", "games", "seed", "sharp", "deck"},
"result": {"score", "low", "high", "games", "pairs"}}: A's score, wins and half the draws per game, with its 95 %
interval (seeds as units), the games played and the seeds they were played on.
"""


def main(argv: Sequence[str]) -> int:
    """Run the tool and return its exit code."""
    parser = argparse.ArgumentParser(
        "royale-lightning evaluate", description=__doc__, epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )
    parser.add_argument("a", help=PLAYER)
    parser.add_argument("b", help=PLAYER)
    parser.add_argument("--games", type=int, default=60, help="rounded up to an even number (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, help="first paired seed (default: %(default)s)")
    parser.add_argument("--sharp", action="store_true", help="bots draw wait or play, then take the best card and tile")
    add_deck_option(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here as well")
    args = parser.parse_args(list(argv))

    from rich.console import Console

    from ..bots.evaluate import paired_games, play_games
    from ..bots.scores import summarise

    (a, b), players, spec = load_pair(args.a, args.b, args.sharp, args.deck)
    games = paired_games(a, b, args.games, args.seed)
    s = summarise(play_games(players, games, spec), 0.0)
    if args.json:
        inputs = {
            "a": args.a, "b": args.b, "games": args.games, "seed": args.seed, "sharp": args.sharp, "deck": spec.deck
        }
        result = {"score": s.score, "low": s.low, "high": s.high, "games": s.games, "pairs": s.games // 2}
        write_json(args.json, "evaluate", inputs, result)
    Console().print(
        f"{args.a} against {args.b}: {s.wins}-{s.draws}-{s.losses} (won, drawn, lost), score {s.score:.3f}, "
        f"95 % interval {s.low:.3f} to {s.high:.3f} over {s.games // 2} seeds, {s.mean_ticks:.0f} ticks a battle",
        soft_wrap=True, highlight=False,
    )
    return 0


def add_deck_option(parser: argparse.ArgumentParser) -> None:
    """``--data.battle.deck``, called as in the configuration."""
    parser.add_argument(
        "--data.battle.deck", dest="deck", metavar="DECK",
        help="what is played with, as in the configuration: mirrored, hog_cycle, a deck file, ... (default: the bot's)",
    )


def load_pair(
    a: str, b: str, sharp: bool, deck: str | None = None
) -> tuple[tuple[str, str], dict[str, Any], Any]:
    """Both players' names in a game, the bots among them by name, and the battles they play.

    The battles are the first bot's; two scripted opponents play RoyaleGym's default battle with the starter deck.

    Args:
        deck: ``battle.deck`` of the battles instead, as YAML.

    Raises:
        UserError: a player is neither a bot nor a scripted opponent, two bots cannot meet, or there is no such deck.
    """
    from dataclasses import replace

    import yaml

    from ..battle.opponents import EXTRA, LADDER, make_opponent
    from ..battle.players import scripted_player, short_name
    from ..battle.spec import BattleSpec
    from ..bots.bot import Bot, check_same_rows
    from ..bots.bot_files import SHIPPED

    names: list[str] = []
    bots: dict[str, Any] = {}
    for label, text in zip("ab", (a, b), strict=True):
        if short_name(text) in (*LADDER, *EXTRA):
            names.append(scripted_player(text))
            continue
        if not Path(text).exists() and _CLASS_PATH.fullmatch(text):
            try:
                make_opponent(text)  # before anything is played
            except UserError as exc:
                raise UserError(f"player {text!r} is no path, and as an opponent of your own: {exc}") from exc
            names.append(scripted_player(text))
            continue
        if not Path(text).exists() and text not in SHIPPED:
            known = (*LADDER, *EXTRA, *SHIPPED)
            raise UserError(
                f"player {text!r} is neither a path nor one of {', '.join(known)}{near_matches(text, known)}"
            )
        bot = Bot.load(text, sharp=sharp)
        name = bot.name if bot.name not in bots else f"{bot.name}-{label}"
        bots[name] = bot
        names.append(name)
    found = list(bots.values())
    if len(found) == 2:
        check_same_rows(*found)
    spec = found[0].spec if found else BattleSpec()
    if deck is not None:
        try:
            spec = replace(spec, deck=yaml.safe_load(deck))
        except yaml.YAMLError as exc:
            raise UserError(f"data.battle.deck: {deck!r} is not valid YAML") from exc
        spec.check_deck()
    return (names[0], names[1]), bots, spec
