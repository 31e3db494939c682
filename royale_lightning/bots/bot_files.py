"""Bots on disk: ``actor.safetensors`` and ``bot.json``, and what a checkpoint holds of them.

The record is written twice, into the header of the weights file and, for people and other tools, into ``bot.json``.
Only the header is read back: one rename replaces weights and record together, so a reader never finds the weights of
one bot with the record of another.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ..battle.engine.engine import engine_identity, shared_engine
from ..battle.prepare import prepare
from ..battle.spec import BattleSpec
from ..errors import UserError
from ..parts import Part, renamed
from ..run.atomic import write_atomic
from ..run.checkpoints import damage

SCHEMA = 1
WEIGHTS, RECORD = "actor.safetensors", "bot.json"
#: The header's key in the weights file, and the record's key in a checkpoint.
_HEADER, CHECKPOINT_KEY = "royale_lightning", "bot"
#: The header's key for the digest of everything else in the file: the format itself notices no flipped bit.
_SUM = "sha256"
#: The module's attributes that hold the network and, in runs that keep one, the mean of its weights; hence the prefixes
#: of their names in a checkpoint. The mean is what plays.
_PREFIX, _AVERAGE = "network.", "average."

Weights = dict[str, Tensor]


class DamagedBot(UserError):
    """A file that can be read, and whose bytes are not those that were written."""


#: Bots that come with the package, by the name that stands for their folder wherever a bot is asked for.
SHIPPED = {"first_bot": Path(__file__).with_name("first_bot")}


@dataclass(frozen=True)
class BotRecord:
    """What must be known of a bot beside its weights. JSON values only.

    Args:
        network: class path and arguments of the network.
        battle: ``BattleSpec.as_dict()`` of what it was trained on.
        battle_digest: ``PreparedBattle.digest``, engine build included.
        row_layout: digest of the row it reads.
        actions: ``ActionLayout`` of its action space.
        n_cards, n_unit_types: sizes of the engine's catalogues.
        catalogue: digest of both catalogues' names in order: an id means a position in them.
        engine: the engine it was trained on.
        deck: blue's and red's card names; where decks are drawn, the setting that draws them (``random``).
        game_steps: how long it was trained.
        run: name of the run it comes from.
        schema: of this record.
    """

    network: dict[str, Any]
    battle: dict[str, Any]
    battle_digest: str
    row_layout: str
    actions: dict[str, int]
    n_cards: int
    n_unit_types: int
    catalogue: str
    engine: dict[str, str]
    deck: str | list[Any] | dict[str, Any]
    game_steps: int = 0
    run: str = ""
    schema: int = SCHEMA

    @classmethod
    def of(cls, spec: BattleSpec, network: Part, *, game_steps: int = 0, run: str = "") -> BotRecord:
        """The record of a network trained on ``spec`` with the engine of this process."""
        cards, types = catalogues()
        decks = spec.decks
        drawn: Any = spec.deck
        return cls(
            network=network.as_dict(), battle=spec.as_dict(), battle_digest=prepare(spec).digest,
            row_layout=prepare(spec).row_layout.digest, actions=asdict(prepare(spec).action_layout), n_cards=len(cards),
            n_unit_types=len(types), catalogue=_digest(cards, types), engine=engine_identity(),
            deck=drawn if decks is None else [list(d) for d in decks], game_steps=game_steps, run=run,
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Any, where: str) -> BotRecord:
        """Read a record back.

        Args:
            value: what :meth:`as_dict` gave.
            where: the file, for the error message.

        Raises:
            UserError: it is of a newer schema, or lacks a field.
        """
        if not isinstance(value, Mapping):
            raise UserError(f"{where} holds no bot record; give a bot folder, a checkpoint or a run folder")
        if int(value.get("schema", 0)) > SCHEMA:
            raise UserError(
                f"{where} is of schema {value['schema']} and this installation reads up to {SCHEMA}; "
                "upgrade royale_lightning"
            )
        names = [f.name for f in fields(cls)]
        missing = [n for n in names if n not in value]
        if missing:
            raise UserError(f"{where} has a bot record without {missing[0]!r}; it was not written by royale_lightning")
        return cls(**{n: renamed(value[n]) for n in names})

    def spec(self, where: str) -> BattleSpec:
        """The battles it was trained on, checked against this installation.

        Raises:
            UserError: the settings, the observation's layout or the engine's catalogue are not those of the bot.
        """
        try:
            spec = BattleSpec(**self.battle)
        except TypeError as exc:
            raise UserError(f"{where} has battle settings this version does not know ({exc})") from exc
        if prepare(spec).row_layout.digest != self.row_layout:
            raise UserError(
                f"{where} reads observation rows of layout {self.row_layout} and battle.observation gives layout "
                f"{prepare(spec).row_layout.digest} here; use the version of the observation it was trained with"
            )
        cards, types = catalogues()
        if _digest(cards, types) != self.catalogue:
            raise UserError(
                f"{where} was trained on an engine with {self.n_cards} cards and {self.n_unit_types} unit types "
                f"(royalesim {self.engine.get('royalesim')}) and this engine's {len(cards)} and {len(types)} are not "
                "the same ones in the same order; install that release"
            )
        return spec


def catalogues() -> tuple[list[str], list[str]]:
    """Names of the engine's cards and unit types, in the order of their ids."""
    engine = shared_engine()
    return [c.name for c in engine.cards()], list(engine.unit_types() or ())


def _digest(cards: list[str], types: list[str]) -> str:
    return hashlib.sha256(json.dumps([cards, types]).encode()).hexdigest()[:16]


def _content(text: str, weights: Weights) -> str:
    """SHA-256 over a record's text and every weight by name, on the CPU."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(weights):
        x = weights[name].contiguous()
        digest.update(json.dumps([name, str(x.dtype), list(x.shape)]).encode())
        digest.update(x.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


# ---- writing ---------------------------------------------------------------------------------------------------
def write_bot(folder: Path, record: BotRecord, weights: Weights) -> None:
    """Write or replace a bot folder.

    Args:
        weights: the actor's, by name, on any device.
    """
    text = json.dumps(record.as_dict(), indent=1, allow_nan=False)
    # Copies: safetensors refuses tensors that share memory, and tied weights do.
    tensors = {k: v.detach().cpu().contiguous().clone() for k, v in weights.items()}
    write_atomic(folder / WEIGHTS, save(tensors, {_HEADER: text, _SUM: _content(text, tensors)}))
    write_atomic(folder / RECORD, text.encode() + b"\n")


def update_bot(checkpoint: Path, folder: Path) -> None:
    """Make ``folder`` the bot of a checkpoint, as a run does with each of its own."""
    record, weights = _read_checkpoint(checkpoint)
    write_bot(folder, record, weights)


# ---- reading ---------------------------------------------------------------------------------------------------
def find(path: str | Path) -> Path:
    """The file a user means: weights (of a bot folder, a snapshot, a run's bot) or a checkpoint.

    Args:
        path: of any of these, or the name of a shipped bot where nothing of the user's has it.

    Raises:
        UserError: there is neither.
    """
    p = Path(path).expanduser()
    if not p.exists():
        p = SHIPPED.get(str(path), p)
    if p.is_file():
        return p.with_name(WEIGHTS) if p.name == RECORD else p
    for inside in (WEIGHTS, f"bot/{WEIGHTS}", "checkpoints/last.ckpt"):
        if (p / inside).is_file():
            return p / inside
    if not p.exists():
        raise UserError(f"there is no bot at {str(path)!r}; give a bot folder, a checkpoint or a run folder")
    raise UserError(
        f"{str(path)!r} holds neither {WEIGHTS} nor bot/ nor checkpoints/last.ckpt; give a bot folder, a checkpoint "
        "or a run folder"
    )


def run_folder_of(path: str | Path) -> Path | None:
    """The run folder that a bot's path lies in, or None for one that is kept elsewhere."""
    parent = find(path).resolve().parent
    if parent.parent.name == "snapshots":
        return parent.parent.parent
    return parent.parent if parent.name in ("bot", "checkpoints") else None


def read_bot(path: str | Path) -> tuple[BotRecord, Weights, Path]:
    """Record and actor weights (on the CPU) of whatever ``path`` names, and the file they come from.

    Raises:
        UserError: there is no bot, or the file is damaged or another program's.
    """
    file = find(path)
    if file.suffix == ".safetensors":
        return (*_read_weights(file), file)
    return (*_read_checkpoint(file), file)


def _read_weights(file: Path) -> tuple[BotRecord, Weights]:
    try:
        with safe_open(file, "pt") as opened:
            metadata = opened.metadata() or {}
            header = metadata.get(_HEADER)
            weights = {k: opened.get_tensor(k) for k in opened.keys()}  # noqa: SIM118 - not a mapping
        value = json.loads(header) if header else None
    except (SafetensorError, OSError, ValueError, RuntimeError) as exc:
        # No permission, no more open files, no memory: that says nothing of the file.
        kind = DamagedBot if isinstance(exc, SafetensorError | ValueError) else UserError
        raise kind(f"{str(file)!r} cannot be read as a bot's weights ({exc})") from exc
    # A bot that another program wrote, or this one before it wrote sums, has none to compare.
    if header and _SUM in metadata and metadata[_SUM] != _content(header, weights):
        raise DamagedBot(f"{str(file)!r} is damaged: its content is not what its digest says; use another copy")
    return BotRecord.from_dict(value, repr(str(file))), weights


def _read_checkpoint(file: Path) -> tuple[BotRecord, Weights]:
    # Mapped, a file is not held against the checksums of its entries.
    if (wrong := damage(file)) is not None:
        raise UserError(f"{str(file)!r} cannot be read as a checkpoint ({wrong}); use another one of its run")
    try:
        loaded = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as exc:  # zip, pickle and torch each have their own for a file that is something else
        raise UserError(f"{str(file)!r} cannot be read as a checkpoint ({type(exc).__name__}: {exc})") from exc
    held = isinstance(loaded, Mapping) and "state_dict" in loaded and CHECKPOINT_KEY in loaded
    if not held:
        raise UserError(f"{str(file)!r} is a file of torch, but no checkpoint of a royale_lightning run")
    state = loaded["state_dict"]
    prefix = _AVERAGE if any(k.startswith(_AVERAGE) for k in state) else _PREFIX
    weights = {
        k.removeprefix(prefix): v
        for k, v in state.items()
        if k.startswith(prefix) and not k.startswith(f"{prefix}critic")
    }
    return BotRecord.from_dict(loaded[CHECKPOINT_KEY], repr(str(file))), weights
