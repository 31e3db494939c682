"""``royale-lightning bench``: the speed of battles, updates, training and evaluation, each beside what it is judged by.

Every comparison is made inside one run: the two sides take turns in short slices, so that a busy machine slows both,
and the figure is the median of the slices' ratios with the smallest and the largest beside it.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...errors import UserError
from .report import Report, check_target, show, write

HELP = """\
measure the speed of battles, networks and training

  bench arena     batched battles against the engine's own ceiling, and what two cores bring
  bench scale     what a game step costs with many battles, and what a battle weighs in a worker
  bench update    the Trainer's update against a bare loop doing the same
  bench train     training against RoyaleLearn's Learner, in turn, in fresh processes
  bench evaluate  network against network, whole battles a second

Each prints a table. Sides that are compared take turns in short slices, warm-up excluded; a ratio is the median of the
slices' ratios and stands with the smallest (_low) and largest (_high) of them.
"""

JSON_HELP = """\
--json FILE writes {"schema": 1, "tool": "bench", "inputs": {...}, "result": {...}}: inputs are the arguments by value,
"measure" (which of the five) and the machine; result holds flat figures by name. Names that end in _per_second are
rates, in _low and _high the extremes of a ratio's slices, in _pairs their number. The figures of this measure:

"""

#: Arguments of one measure: adds them to a parser.
_Arguments = Callable[[argparse.ArgumentParser], None]


def _arena(p: argparse.ArgumentParser) -> None:
    _seconds(p, 3.0)
    p.add_argument("--battles", type=_positive, default=32, help="battles in flight (default: 32)")
    p.add_argument("--workers", type=_positive, default=2, help="threads or processes set against one (default: 2)")


def _scale(p: argparse.ArgumentParser) -> None:
    _seconds(p, 8.0)
    p.add_argument("--many", type=_positive, default=256, help="battles of the large arena (default: 256)")
    p.add_argument("--few", type=_positive, default=16, help="battles of the small ones, a divisor (default: 16)")


def _update(p: argparse.ArgumentParser) -> None:
    _seconds(p, 30.0)
    _config(p)


def _train(p: argparse.ArgumentParser) -> None:
    _seconds(p, 90.0)
    _config(p)
    p.add_argument(
        "--network", choices=("config", "conv"), default="config",
        help="conv trains the Learner's own network family and size on spatial planes (default: the configuration's)",
    )
    p.add_argument("--pairs", type=_positive, default=1, help="how often the two take turns (default: 1)")


def _evaluate(p: argparse.ArgumentParser) -> None:
    _seconds(p, 20.0)
    p.add_argument("--bot", default=None, help="bot, run folder or checkpoint for both seats (default: two untrained)")
    p.add_argument("--battles", type=_positive, default=None, help="battles in flight (default: evaluation's own)")


#: name -> (its arguments, one line of help, the figures it gives).
MEASURES: dict[str, tuple[_Arguments, str, str]] = {
    "arena": (
        _arena,
        "batched battles against the engine's own ceiling, and what two cores bring",
        """\
  arena_over_engine         arena game steps/s over the engine's: the same battles and commands stepped bare, plus
                            state_json and a lean decode. One thread, random decks, both seats policy-driven and
                            random-legal with no-op probability 0.9, entities rows and masks for every choosing seat.
  two_over_one              the default source of this machine with two threads or processes, over one thread
  engine_two_over_one       the bare engine with two threads and no barrier, over one: what the cores have to give
  threads_over_one, processes_over_one   both of these
  row_bytes                 bytes of a row, mask included
  arena_steps_per_second, engine_steps_per_second, threads_steps_per_second, processes_steps_per_second
  arena_rows_per_second     rows written""",
    ),
    "scale": (
        _scale,
        "what a game step costs with many battles, and what a battle weighs in a worker",
        """\
  cost_256_over_16          seconds per game step with 256 battles in one arena, over the same battles in groups of
                            16 (the name follows --many and --few)
  battle_megabytes          memory of a battle in a worker process, in 10^6 bytes: resident memory with 40 battles
                            less that with 8, over 32; each has played for a while
  many_steps_per_second, few_steps_per_second""",
    ),
    "update": (
        _update,
        "the Trainer's update against a bare loop doing the same",
        """\
  lightning_over_bare       seconds of an iteration without its collection (advantages, minibatches, every optimizer
                            step, epoch hooks and metric row; no checkpoint, no progress display) over those of a plain
                            loop: same rollout, minibatches, first weights and gradient clip
  largest_weight_difference between the two networks afterwards; 0 proves that both did the same update
  rows_per_second           rows learned from per second of the Trainer's update
  row_passes_per_second     the same, counting every PPO epoch; bare_row_passes_per_second is the plain loop's""",
    ),
    "train": (
        _train,
        "training against RoyaleLearn's Learner, in turn, in fresh processes",
        """\
  train_over_royalelearn    game steps learned from per second of training, over RoyaleLearn's Learner with its
                            defaults: same engine, starter deck for both, same cores. Whole iterations; start-up,
                            building and each side's first iteration are left out.
  same_network_over_royalelearn   instead of it with --network conv: our convolutional network, 32 channels and
                            2 blocks, on the spatial observation
  game_steps_per_second, rows_per_second, row_passes_per_second   ours
  royalelearn_game_steps_per_second, royalelearn_rows_per_second   the Learner's""",
    ),
    "evaluate": (
        _evaluate,
        "network against network, whole battles a second",
        """\
  evaluation_battles_per_second   whole battles, a network on each seat with a forward of its own, starter deck
  evaluation_game_steps_per_second
  game_steps_per_battle     their mean length""",
    ),
}


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def _seconds(p: argparse.ArgumentParser, default: float) -> None:
    def seconds(text: str) -> float:
        value = float(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{value} is no length of time")
        return value

    p.add_argument(
        "--seconds", type=seconds, default=default, metavar="S", help=f"time for each side (default: {default:g})"
    )


def _config(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--config", default=None, metavar="FILE",
        help="configuration of fit (default: configs/first_bot.yaml where there is one, else the built-in defaults)",
    )


def parser() -> argparse.ArgumentParser:
    """The command line of all measures."""
    raw = argparse.RawDescriptionHelpFormatter
    figures = "\n".join(f"bench {name}\n{text}\n" for name, (_, _, text) in MEASURES.items())
    top = argparse.ArgumentParser("royale-lightning bench", description=HELP, epilog=JSON_HELP.replace(
        " of this measure", "") + figures, formatter_class=raw, allow_abbrev=False)
    commands = top.add_subparsers(dest="measure", required=True, metavar="arena|scale|update|train|evaluate")
    for name, (arguments, line, text) in MEASURES.items():
        p = commands.add_parser(
            name, help=line, description=line, epilog=JSON_HELP + text, formatter_class=raw, allow_abbrev=False
        )
        arguments(p)
        p.add_argument("--seed", type=int, default=1, help="of battles, decks and actions (default: 1)")
        p.add_argument("--json", default=None, metavar="FILE", help="write the figures to this file as well")
    return top


def main(argv: Sequence[str]) -> int:
    """Run one measure, print its table, write its JSON.

    Raises:
        UserError: a mistake in an argument or a file, or a missing package, in one sentence.
    """
    args = parser().parse_args(list(argv))
    target = check_target(args.json)
    inputs: dict[str, Any] = {k: v for k, v in vars(args).items() if k != "json"}
    # Each measure imports what it needs: the battles' need no torch.
    module = importlib.import_module(f"{__name__}.{args.measure}")
    report: Report = module.measure(**{k: v for k, v in inputs.items() if k != "measure"})
    show(args.measure, report)
    if target is not None:
        write(target, {**inputs, **report.inputs}, report)
    return 0


def find_config(config: str | None) -> Path | None:
    """The configuration to measure, or None for the built-in defaults.

    Raises:
        UserError: the file named does not exist.
    """
    if config is None:
        path = Path("configs/first_bot.yaml")
        return path if path.is_file() else None
    path = Path(config)
    if not path.is_file():
        raise UserError(f"--config is {config!r}, and there is no such file")
    return path
