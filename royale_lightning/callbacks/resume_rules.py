"""What a run may be continued from, and the record of whatever changed on the way."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer

from ..errors import UserError
from ..run.identity import FIXED, Change, Identity, own_code, versions
from ..run.screen import say
from ..run.values import plain
from .base import LoggedCallback, Phase, callbacks_of, datamodule_of, game_steps, iteration_row
from .checkpoint import FORMAT_VERSION, STAMP

#: Field differences spelled out in a refusal; a run of another kind differs in everything.
_SHOWN = 12


def identity_of(trainer: Trainer) -> Identity:
    """The identity of a run that is set up: what module, data module and Trainer were given, and what they run on.

    A module or data module says what decides it in ``identity_fields()``; without, its hyper-parameters do. A callback
    that decides something says so in the same way.
    """
    device = trainer.strategy.root_device
    deciding: dict[str, Any] = {
        "versions": versions(),
        "trainer": {
            "precision": str(trainer.precision),
            "world_size": trainer.world_size,
            "accumulate_grad_batches": trainer.accumulate_grad_batches,
            "gradient_clip_val": trainer.gradient_clip_val,
            "gradient_clip_algorithm": plain(getattr(trainer.gradient_clip_algorithm, "value", None)),
            "device": device.type,
        },
    }
    for name, source in (("model", trainer.lightning_module), ("data", datamodule_of(trainer))):
        fields = getattr(source, "identity_fields", None)
        deciding[name] = fields() if fields is not None else dict(getattr(source, "hparams", {}))
    said: dict[str, Any] = {}
    for c in callbacks_of(trainer):
        if hasattr(c, "identity_fields"):
            name, n = type(c).__name__, 1
            while (key := name if n == 1 else f"{name}-{n}") in said:  # one class may be there twice
                n += 1
            said[key] = c.identity_fields()
    deciding["callbacks"] = said
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return Identity.of(deciding, {"torch_threads": torch.get_num_threads(), "device": kind, "code": own_code()})


class ResumeRules(LoggedCallback):
    """Refuse a checkpoint that this run could not continue as itself; apply and record what may change.

    A checkpoint's identity (:mod:`royale_lightning.run.identity`) is compared with this run's. A fixed field that
    differs is refused. A tunable or noted one is printed, written to ``drift.jsonl`` in the run folder, and counted as
    ``run/drifts`` in every later row, which is 0 in a run that never drifted.

    ``load_state_dict`` of a torch optimizer restores its settings along with its moments, so a learning rate changed
    on the command line would be lost; the settings the optimizer was built with are put back.

    Args:
        allow_drift: go on although fixed fields differ, recorded like any other change.
        allow_mid_iteration: go on from a save that an interrupt, or somebody else's callback, made inside an
            iteration. Its weights and counters are used; the iteration is collected anew, so the run is not the
            unbroken one.
    """

    phase = Phase.RULES
    log_file = "drift.jsonl"
    offset_key = "drift_offset"

    def __init__(self, allow_drift: bool = False, allow_mid_iteration: bool = False) -> None:
        super().__init__()
        self.allow_drift = allow_drift
        self.allow_mid_iteration = allow_mid_iteration
        self.identity: Identity | None = None
        self.drifts = 0
        self._fits = False
        self._changes: list[Change] = []
        self._configured: list[dict[str, Any]] = []

    # ---- judging a checkpoint ----------------------------------------------------------------------------------
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        self._fits = stage == "fit"
        if self._fits:
            self._changes, self.identity = [], None

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if not self._fits:
            return
        stamp = _stamp_of(checkpoint)
        if stamp["mid_iteration"] and not self.allow_mid_iteration:
            raise UserError(
                "the checkpoint was saved in the middle of an iteration, so training cannot continue from it exactly; "
                "use one of an iteration's end, such as checkpoints/last.ckpt of its run, or add --allow_mid_iteration"
            )
        # Not before: the data module, which has its state by now, knows what paths held when the run began.
        self.identity = identity_of(trainer)
        changes = self.identity.changes(Identity.from_dict(stamp["identity"]))
        fixed = [str(c) for c in changes if c.kind == FIXED]
        if fixed and not self.allow_drift:
            more = f" and {len(fixed) - _SHOWN} more" if len(fixed) > _SHOWN else ""
            raise UserError(
                f"the checkpoint is of another run: {'; '.join(fixed[:_SHOWN])}{more}; put back what it was trained "
                "with (the run's own config lies beside it), or add --allow_drift to go on and mark every later row"
            )
        if changes and trainer.is_global_zero:
            say(f"settings changed since the checkpoint: {', '.join(map(str, changes))}")
        if stamp["mid_iteration"]:
            changes.append(Change("checkpoint", "an iteration's end", "mid-iteration", FIXED))
            _back_to_the_iterations_start(checkpoint)
            if hasattr(data := datamodule_of(trainer), "iteration"):
                data.iteration = stamp["iteration"]  # which may have counted the interrupted one
        self._changes = changes

    # ---- what may change ---------------------------------------------------------------------------------------
    def record(self, trainer: Trainer, change: Change) -> None:
        """Note one change of the run that is going on, on every rank; rank 0 writes it down."""
        self.drifts += 1
        self.append({
            "iteration": trainer.current_epoch, "game_steps": game_steps(trainer), "field": change.field,
            "before": change.before, "after": change.after, "kind": change.kind,
        })

    @staticmethod
    def _groups(trainer: Trainer) -> list[dict[str, Any]]:
        return [group for optimizer in trainer.optimizers for group in optimizer.param_groups]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_fit_start(trainer, pl_module)
        if self.identity is None:
            self.identity = identity_of(trainer)
        # The optimizers exist by now, and their state has not been loaded yet. A Lightning scheduler computes the
        # learning rate from the one before, so there that one must stay.
        keep = {"params", "lr"} if trainer.lr_scheduler_configs else {"params"}
        self._configured = [{k: v for k, v in g.items() if k not in keep} for g in self._groups(trainer)]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for group, configured in zip(self._groups(trainer), self._configured, strict=True):
            group.update(configured)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Not earlier: until every callback has agreed to begin, nothing is written.
        changes, self._changes = self._changes, []
        for change in changes:
            self.record(trainer, change)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        iteration_row(trainer)["run/drifts"] = self.drifts

    # ---- state -------------------------------------------------------------------------------------------------
    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if self.identity is not None:
            checkpoint.setdefault(STAMP, {})["identity"] = self.identity.as_dict()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "drifts": self.drifts}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.drifts = int(state_dict["drifts"])


def _stamp_of(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """What a loaded checkpoint of a run says of itself.

    Raises:
        UserError: it is no checkpoint of a run, or of another format.
    """
    stamp = checkpoint.get(STAMP)
    if stamp is None:
        raise UserError("the checkpoint is of another program: it carries no stamp of royale_lightning")
    version = stamp.get("format_version")
    if version is None:
        raise UserError(
            "the checkpoint was saved by a Trainer without RunCheckpoint, so nothing tells at which moment; begin a "
            "run with its weights by model.init_from"
        )
    if version != FORMAT_VERSION:
        newer = isinstance(version, int) and version > FORMAT_VERSION
        remedy = "upgrade royale_lightning" if newer else "continue it with the version that wrote it"
        raise UserError(
            f"the checkpoint has format version {version} and this installation continues version {FORMAT_VERSION}; "
            f"{remedy}"
        )
    if "identity" not in stamp:
        raise UserError("the checkpoint carries no identity: its run was trained without the ResumeRules callback")
    return dict(stamp)


def _back_to_the_iterations_start(checkpoint: dict[str, Any]) -> None:
    """Make Lightning begin the interrupted epoch anew: the rest of its minibatches are gone with the rollout."""
    loop = checkpoint["loops"]["fit_loop"]
    progress = loop["epoch_progress"]
    for part in ("total", "current"):
        done = progress[part]["completed"]
        progress[part].update(ready=done, started=done, processed=done)
    batches = loop["epoch_loop.batch_progress"]
    batches["current"] = dict.fromkeys(batches["current"], 0)
    batches["is_last_batch"] = False


def resume_rules(trainer: Trainer) -> ResumeRules | None:
    """The Trainer's, for a callback that changes a setting while the run goes on."""
    return next((c for c in callbacks_of(trainer) if isinstance(c, ResumeRules)), None)
