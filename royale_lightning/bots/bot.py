"""A trained bot: a RoyaleGym ``Opponent``, and a policy of batched evaluations. Needs neither Lightning nor wandb."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from royalegym.env import ClashParallelEnv

from ..battle.actions import NOOP, ActionLayout
from ..battle.environment import make_env
from ..battle.prepare import prepare
from ..battle.rows.row_codecs import pack_row
from ..battle.spec import BattleSpec
from ..errors import UserError
from ..nn import actor_state_dict, build_network
from ..nn.distribution import MaskedCategorical, widest_float
from ..nn.protocol import ActorCritic, Inputs
from ..nn.rows import rows_to_tensor, unpack
from ..parts import Part
from .bot_files import BotRecord, Weights, read_bot, write_bot

#: How a bot acts: ``sampled`` draws everything, ``sharp`` draws wait or play and then takes the best card and tile.
MODES = ("sampled", "sharp")


def full_battles(spec: BattleSpec) -> BattleSpec:
    """``spec`` as strength is measured on it: whole battles from their true start, under the engine's own end.

    Decks, observation, action space, decision length and command delay stay. Start states, limits and done
    conditions go, because they belong to training; so does the reward, which nobody reads here (a bot with a reward
    of its author's own can be scored where that class is not installed, and by the batched arena).
    """
    return replace(spec, reward="tower_result", start=None, max_ticks=None, termination=None, truncation=None)


class Bot:
    """A network that plays.

    Args:
        record: what it was trained on.
        network: its weights; moved nowhere, so that a learner can be wrapped while it trains.
        spec: the battles of ``record``; unset, read from it.
        sharp: draw wait or play, then take the best card and its best tile.
        name: under which it is reported; unset, the run's name.

    ``bot.act`` makes it a RoyaleGym ``Opponent``; :meth:`choose` is the same for many rows at once.
    """

    def __init__(
        self, record: BotRecord, network: ActorCritic, spec: BattleSpec | None = None, *, sharp: bool = False,
        name: str | None = None,
    ) -> None:
        self.record = record
        self.network = network
        self.trained_on = spec if spec is not None else record.spec("this bot")
        self.spec = full_battles(self.trained_on)
        self.layout = prepare(self.spec).row_layout
        self.actions: ActionLayout = prepare(self.spec).action_layout
        self.mode = MODES[sharp]
        self.name = name or record.run or "bot"

    @classmethod
    def of(
        cls, network: ActorCritic, part: Part, spec: BattleSpec, *, game_steps: int = 0, run: str = "",
        sharp: bool = False,
    ) -> Bot:
        """A bot around a network of this process.

        Args:
            part: how the network was built.
            spec: the battles it is trained on.
        """
        return cls(BotRecord.of(spec, part, game_steps=game_steps, run=run), network, spec, sharp=sharp)

    @classmethod
    def load(cls, path: str | Path, *, sharp: bool = False, device: str | torch.device = "cpu") -> Bot:
        """Load a bot folder, a snapshot, a checkpoint or a run folder (its ``bot/``, else its last checkpoint).

        The critic is not part of a bot: a network with a critic of its own has it at its first weights.

        Raises:
            UserError: one sentence that says what is missing or does not fit.
        """
        record, weights, file = read_bot(path)
        # A snapshot is known by its id; a run has many.
        snapshot = file.parent.name if file.parent.parent.name == "snapshots" else ""
        name = snapshot or record.run or Path(path).resolve().name
        return cls.of_weights(record, weights, repr(str(file)), sharp=sharp, device=device, name=name)

    @classmethod
    def of_weights(
        cls, record: BotRecord, weights: Weights, where: str, *, name: str, sharp: bool = False,
        device: str | torch.device = "cpu",
    ) -> Bot:
        """A bot from what was read of it.

        Args:
            where: the file, for error messages.

        Raises:
            UserError: the record does not fit this installation, or the weights not the record.
        """
        spec = record.spec(where)
        inputs = Inputs(prepare(spec).row_layout, prepare(spec).action_layout, record.n_cards, record.n_unit_types)
        network = build_network(record.network, inputs, seed=0)
        fill(network, weights, where)
        return cls(record, network.to(device).eval(), spec, sharp=sharp, name=name)

    def save(self, folder: str | Path) -> None:
        """Write the bot folder; an older one is replaced atomically."""
        write_bot(Path(folder), self.record, actor_state_dict(self.network))

    def sharp(self) -> Bot:
        """The same network, sharp."""
        return self.in_mode("sharp")

    def in_mode(self, mode: str) -> Bot:
        """The same network in one of :data:`MODES`."""
        if mode not in MODES:
            raise UserError(f"mode is {mode!r}; give {' or '.join(MODES)}")
        return Bot(self.record, self.network, self.trained_on, sharp=mode == "sharp", name=self.name)

    # ---- acting ----------------------------------------------------------------------------------------------
    # no_grad and not inference_mode: what a network caches on its first call must still serve a later training step.
    @torch.no_grad()
    def choose(self, rows: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Actions int64 ``[B]`` for choice decisions.

        Args:
            rows: uint8 ``[B, row_bytes]``.
            uniforms: float64 ``[B, 2]`` in [0, 1): wait or play or which card, and the tile. Sharp reads the first.
        """
        training = self.network.training
        if training:
            self.network.eval()
        device = next(self.network.parameters()).device
        obs = unpack(rows_to_tensor(rows, device), self.layout)
        logits, _ = self.network(obs)
        dist = MaskedCategorical(logits, obs["action_mask"], self.actions)
        u = torch.from_numpy(uniforms).to(widest_float(device)).to(device)
        action = dist.sharp(u) if self.mode == "sharp" else dist.sample(u)
        if training:
            self.network.train()
        return action.cpu().numpy()

    def act(self, obs: dict[str, Any], mask: np.ndarray, rng: np.random.Generator) -> int:
        """One decision, as RoyaleGym asks for it.

        A forced decision is 0 and draws nothing; any other draws exactly ``rng.random(2)``, so that a battle played
        here and one played by the batched evaluation spend the same draws.

        Raises:
            UserError: ``obs`` is not the observation the bot was trained on, or the bot sees several frames.
        """
        if not mask[1:].any():
            return NOOP
        if self.layout.frames > 1:
            raise UserError(
                f"this bot sees {self.layout.frames} frames (battle.frame_stack) and RoyaleGym does not say when a "
                "battle begins or which seat asks; play it through `royale-lightning evaluate`, which remembers them"
            )
        row = np.zeros((1, self.layout.row_bytes), dtype=np.uint8)
        pack_row(self.layout, obs, mask, row[0])
        # One row is too small to share: on a busy machine the threads' hand-overs took 12 times its own time.
        with torch_threads(1):
            return int(self.choose(row, rng.random(2)[None])[0])

    def make_env(self, other: Any = None, **kwargs: Any) -> ClashParallelEnv:
        """The RoyaleGym environment of the bot's battles, with the observation it reads.

        ``royalegym.evaluate(bot, opponent, bot.make_env)`` plays in it.

        Args:
            other: who sits on the other seat: another bot, or any ``Opponent`` that reads the masks.
            kwargs: passed to ``ClashParallelEnv`` (``recorder=`` for instance).

        Raises:
            UserError: ``other`` is a bot that reads another observation or answers in another action space.
        """
        if isinstance(other, Bot):
            check_same_rows(self, other)
        return make_env(self.spec, **kwargs)


@contextmanager
def torch_threads(n: int) -> Iterator[None]:
    """Torch's intra-op threads while the block runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_same_rows(bot: Bot, other: Bot) -> None:
    """Refuse two bots that cannot sit in one environment."""
    if other.layout.digest != bot.layout.digest or other.actions != bot.actions:
        raise UserError(
            f"bot {bot.name!r} reads observation {bot.layout.name} ({bot.actions.n_actions} actions) and bot "
            f"{other.name!r} reads {other.layout.name} ({other.actions.n_actions} actions); only bots of one "
            "observation and action space can meet"
        )


def fill(network: ActorCritic, weights: Weights, where: str) -> None:
    """Load the actor's weights, every one of them and no other."""
    own = actor_state_dict(network)
    for name, x in own.items():
        if name not in weights:
            raise UserError(f"{where} has no weights for {name!r}; its network is another one than its record names")
        if weights[name].shape != x.shape:
            raise UserError(
                f"{where} has {name!r} of shape {list(weights[name].shape)} where the network's is {list(x.shape)}; "
                "its network is another one than its record names"
            )
    extra = sorted(set(weights) - set(own))
    if extra:
        raise UserError(f"{where} has weights {extra[0]!r}, which the network its record names does not have")
    network.load_state_dict(weights, strict=False)
