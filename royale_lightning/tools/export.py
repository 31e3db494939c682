"""``royale-lightning export``: a bot as one file for other programs, checked against the bot itself."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..bots.measure import DEFAULT_SEED
from ..errors import UserError
from ..run.atomic import partial_of, publish, write_atomic

if TYPE_CHECKING:
    import torch

    from ..bots.bot import Bot
    from ..nn.policy_graph import PolicyGraph

FORMATS = ("onnx", "torch")
#: Largest difference of a legal action's log-probability between the file and the bot, in units of 1 + its size: the
#: rarest actions have log-probabilities of -20, where one step of a float32 is 2e-6 already.
TOLERANCE = 1e-5
#: Decisions the file is checked on: those of one battle.
_LEAST_DECISIONS = 16
_EPILOG = """\
The file is a pure function. Inputs: every field of the bot's observation [batch, ...], as its RoyaleGym observation
builder gives it (unsigned 16-bit fields as int32), action_mask bool [batch, actions], and uniforms float64 [batch, 2]
in [0, 1). Outputs: action int64 [batch], never an illegal one, and log_probs float32 [batch, actions]. The bot's record
(bot.json) and the inputs' names, types and shapes are in the file: metadata_props of onnx, extra_files of torch.
--json writes {"schema": 1, "tool": "export", "inputs": {"bot", "to", "sharp"}, "result": {"file", "bytes",
"decisions", "largest_difference", "actions_equal"}}.
"""


def main(argv: Sequence[str]) -> int:
    """Run the tool and return its exit code."""
    parser = argparse.ArgumentParser(
        "royale-lightning export", description=__doc__, epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )
    parser.add_argument("bot", help="a bot folder, a checkpoint or a run folder, or first_bot")
    parser.add_argument("--to", choices=FORMATS, required=True, help="onnx, or torch for torch.export's .pt2")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--sharp", action="store_true", help="draw wait or play, then take the best card and tile")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here as well")
    args = parser.parse_args(list(argv))

    from rich.console import Console

    from ..bots.bot import Bot

    bot = Bot.load(args.bot, sharp=args.sharp)
    result = export_bot(bot, args.to, args.out)
    Console().print(
        f"{args.out}: {result['bytes'] / 1e6:.2f} MB; the bot's own actions on {result['decisions']} decisions, and "
        f"its log-probabilities within {result['largest_difference']:.1g}",
        soft_wrap=True, highlight=False,
    )
    if args.json:
        inputs = {"bot": args.bot, "to": args.to, "sharp": args.sharp}
        out = {"schema": 1, "tool": "export", "inputs": inputs, "result": result}
        write_atomic(args.json, json.dumps(out, indent=1).encode() + b"\n")
    return 0


def export_bot(bot: Bot, to: str, out: Path) -> dict[str, Any]:
    """Write ``bot`` as ``to`` and check the file on the decisions of a battle.

    Args:
        to: ``onnx`` or ``torch``.
        out: the file; its folder is made.

    Returns:
        What ``--json`` writes as the result.

    Raises:
        UserError: packages are missing, the network has no such graph, or the file answers otherwise than the bot.
    """
    import torch

    from ..nn.policy_graph import PolicyGraph, batch_is_free

    if to == "onnx":
        _need_onnx()
    rows, uniforms = decisions_of(bot)
    # The bot's own answers first: the graph switches the network to shapes that do not depend on the battle.
    from ..nn.rows import rows_to_tensor, unpack

    live_action = bot.choose(rows, uniforms)
    obs = unpack(rows_to_tensor(rows, torch.device("cpu")), bot.layout)
    live = _log_probs(bot, obs)
    graph = PolicyGraph(bot.network, bot.layout, bot.actions, bot.mode == "sharp").eval()
    arguments = graph.arguments(obs, torch.from_numpy(uniforms))
    try:
        program = torch.export.export(graph, arguments, dynamic_shapes=(batch_is_free(arguments),), strict=False)
    except Exception as exc:  # a user's network may do anything
        name = bot.record.network["class_path"]
        reason = str(exc).strip().split("\n")[0]
        raise UserError(
            f"network {name} has no graph for every batch size ({type(exc).__name__}: {reason}); in its forward, "
            "avoid branches on values and shapes that depend on them"
        ) from exc
    meta = {"bot": json.dumps(bot.record.as_dict()), "inputs": json.dumps(_described(graph, arguments))}
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_of(out)
    if to == "onnx":
        action, found = _write_onnx(program, graph, arguments, partial, meta)
    else:
        action, found = _write_torch(program, arguments, partial, meta)
    legal = obs["action_mask"].numpy()
    off = float((np.abs(found - live) / (1.0 + np.abs(live)))[legal].max())
    equal = bool((action == live_action).all())
    if off > TOLERANCE or not equal:
        partial.unlink()
        raise UserError(
            f"the {to} file would answer otherwise than the bot: log-probabilities differ by {off:.2g} (tolerance "
            f"{TOLERANCE:g}) and {int((action != live_action).sum())} of {len(action)} actions; it was not kept"
        )
    publish(partial, out)
    return {
        "file": str(out), "bytes": out.stat().st_size, "decisions": len(rows), "largest_difference": off,
        "actions_equal": equal,
    }


def decisions_of(bot: Bot) -> tuple[np.ndarray, np.ndarray]:
    """Rows uint8 ``[n, row_bytes]`` that ``bot`` meets in a battle against itself, and draws float64 ``[n, 2]``."""
    from ..bots.evaluate import PlannedGame, play_games

    class Watched:
        layout = bot.layout
        rows: list[np.ndarray] = []  # noqa: RUF012 - one object, one battle

        def choose(self, rows: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
            self.rows.append(rows.copy())
            return bot.choose(rows, uniforms)

    watched = Watched()
    seed = DEFAULT_SEED
    while sum(len(r) for r in watched.rows) < _LEAST_DECISIONS:
        play_games({"bot": watched}, [PlannedGame("bot", "bot", seed)], bot.spec)
        seed += 1
    rows = np.concatenate(watched.rows)
    uniforms = np.random.default_rng(DEFAULT_SEED).random((len(rows), 2))
    # The ends of the range are where a sampler goes wrong.
    uniforms[0], uniforms[1] = 0.0, np.nextafter(1.0, 0.0)
    return rows, uniforms


def _log_probs(bot: Bot, obs: dict[str, torch.Tensor]) -> np.ndarray:
    import torch

    from ..nn.distribution import MaskedCategorical

    with torch.no_grad():
        logits, _ = bot.network(obs)
        return MaskedCategorical(logits, obs["action_mask"], bot.actions).flat_log_probs().numpy()


def _described(graph: PolicyGraph, arguments: Sequence[torch.Tensor]) -> list[dict[str, Any]]:
    """Name, type and shape of every input, the batch left out of the shape."""
    return [
        {"name": n, "dtype": str(x.dtype).removeprefix("torch."), "shape": list(x.shape[1:])}
        for n, x in zip(graph.input_names, arguments, strict=True)
    ]


def _need_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as exc:
        raise UserError(f"--to onnx needs the package {exc.name}: pip install 'royale_lightning[export]'") from exc


def _write_torch(
    program: torch.export.ExportedProgram, arguments: Sequence[torch.Tensor], path: Path, meta: dict[str, str]
) -> tuple[np.ndarray, np.ndarray]:
    import torch

    # torch wants the ending .pt2 of a path, and takes any file object.
    with path.open("wb") as file:
        torch.export.save(program, file, extra_files=meta)
    with path.open("rb") as file:
        loaded = torch.export.load(file).module()
    action, log_probs = loaded(*arguments)
    return action.numpy(), log_probs.detach().numpy()


def _write_onnx(
    program: torch.export.ExportedProgram, graph: PolicyGraph, arguments: Sequence[torch.Tensor], path: Path,
    meta: dict[str, str],
) -> tuple[np.ndarray, np.ndarray]:
    import onnx
    import onnxruntime
    import torch

    from ..nn.policy_graph import ACTION, LOG_PROBS
    from .export_ops import TRANSLATIONS

    # It tells of every torchvision operator that nobody asked for.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    made = torch.onnx.export(
        program, (), None, input_names=graph.input_names, output_names=[ACTION, LOG_PROBS], dynamo=True,
        verbose=False, custom_translation_table=TRANSLATIONS,
    )
    assert made is not None
    model = made.model_proto
    onnx.helper.set_model_props(model, meta)
    # The notes of every node on its Python lines are a third of the file, and name this machine's folders.
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feed = {n: x.numpy() for n, x in zip(graph.input_names, arguments, strict=True)}
    action, log_probs = session.run([ACTION, LOG_PROBS], feed)
    return action, log_probs
