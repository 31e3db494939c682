"""``bench evaluate``: network against network, whole battles a second."""

from __future__ import annotations

from typing import Any

from ...battle.spec import BattleSpec
from ...parts import Part
from .pairing import Sides
from .report import Report

#: Where this measure's battles start; any seed does.
_SEED = 1_000_000
#: Games of the match before the clock runs, for compiled code and placement grids.
WARM_GAMES = 2


def measure(seconds: float, bot: str | None, battles: int | None, seed: int) -> Report:
    """Run it.

    Matches of two games per battle in flight are played to their ends until the time is over, so that the thin batches
    of a match's last battles are in the figure as they are in an evaluation.

    Args:
        seconds: at least; the match under way is finished.
        bot: what plays both seats, or None for two untrained networks.
        battles: in flight.
        seed: of the battles, and of untrained weights.
    """
    from ...bots.evaluate import BATTLES, Referee, paired_games

    n = battles or BATTLES
    players: dict[str, Any] = dict(zip(("a", "b"), _bots(bot, seed), strict=True))
    sides = Sides("evaluation")
    at = _SEED * seed
    lengths: list[int] = []
    with Referee(players["a"].spec, n) as referee:
        referee.play(players, paired_games("a", "b", WARM_GAMES, at))
        while sides.slices == 0 or sides.seconds("evaluation") < seconds:
            at += n
            games = paired_games("a", "b", 2 * n, at)
            with sides.timed("evaluation"):
                records = referee.play(players, games)
            sides.work("evaluation", len(records))
            sides.close_slice()
            lengths += [r.game_steps for r in records]
    rate = sides.rate("evaluation")
    mean = sum(lengths) / len(lengths)
    return Report(
        {
            "evaluation_battles_per_second": rate,
            "evaluation_game_steps_per_second": rate * mean,
            "game_steps_per_battle": mean,
            "battles_played": len(lengths),
        },
        [
            ("whole battles per second, network against network", "evaluation_battles_per_second"),
            ("game steps per second", "evaluation_game_steps_per_second"),
            ("game steps of a battle", "game_steps_per_battle"),
            ("battles played", "battles_played"),
        ],
        inputs={"battles": n, "bot": bot or "untrained"},
    )


def _bots(path: str | None, seed: int) -> list[Any]:
    """Two bots, apart from each other so that each seat has a forward of its own."""
    from ...bots.bot import Bot

    if path is not None:
        return [Bot.load(path), Bot.load(path)]
    from ...nn import NETWORKS, build_network
    from ...rollout.data import inputs_of

    spec, part = BattleSpec(), Part.of("entity", "model.network", NETWORKS)
    return [Bot.of(build_network(part, inputs_of(spec), seed + i).eval(), part, spec) for i in range(2)]
