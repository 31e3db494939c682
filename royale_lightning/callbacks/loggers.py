"""Lightning's loggers over the metric rows: one x-axis, the run's settings, and its battles as media.

A logger is a view: what it shows is in the run folder too. Rows go to all of them alike (``callbacks.MetricLog``), and
so do the settings; replays and placements go to W&B, which can show a page, and to TensorBoard as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Trainer
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger

from ..errors import UserError
from ..rollout.data import data_of

if TYPE_CHECKING:
    from wandb.sdk.wandb_run import Run

#: What ``--loggers`` takes.
LOGGERS = ("csv", "tensorboard", "wandb")
#: The x-axis of every chart.
CLOCK = "game_steps"
#: Battles of a set of replays that W&B shows, by what they were chosen for.
_SHOWN = ("best", "worst", "upset")


class RunWandbLogger(WandbLogger):
    """A ``WandbLogger`` whose charts have game steps as their x-axis, and whose summaries say how a run ended.

    The environment decides where it goes, as W&B documents it: ``WANDB_MODE=offline`` needs no account.
    """

    _defined = False

    @property
    def experiment(self) -> Run:
        """The W&B run, begun when first asked for.

        Raises:
            UserError: W&B does not begin it: there is no key and nobody to ask for one, no network, or a setting of its
                own (``WANDB_...``) that it does not take.
        """
        from wandb.errors import Error

        try:
            run: Any = super().experiment
        except (Error, ValueError) as exc:  # a ValueError is of a setting
            raise UserError(
                f"--loggers wandb: W&B does not begin a run ({' '.join(str(exc).split())}); log in with `wandb login`, "
                "or set WANDB_MODE=offline to have its files written here and upload them later with `wandb sync`"
            ) from exc
        if not self._defined and hasattr(run, "define_metric"):
            self._defined = True
            run.define_metric(CLOCK, hidden=True)
            # Lightning has told it that everything is over the optimizer's steps.
            run.define_metric("*", step_metric=CLOCK)
            for pattern, summary in (("score/*", "last"), ("ladder/rating", "last"), ("time/*", "mean")):
                run.define_metric(pattern, step_metric=CLOCK, summary=summary)
        return run


def named_loggers(names: Sequence[str], folder: Path) -> list[Logger]:
    """The loggers of ``--loggers``, writing into the run folder.

    Raises:
        UserError: a logger's package is not installed.
    """
    made: list[Logger] = []
    for name in names:
        if name == "csv":
            made.append(CSVLogger(save_dir=folder, name="csv"))
        elif name == "tensorboard":
            made.append(_tensorboard(folder))
        else:
            # A resume starts a W&B run of its own; the group shows them together.
            name, project = folder.name, "royale_lightning"
            made.append(RunWandbLogger(save_dir=folder, project=project, name=name, group=name))
    return made


def _tensorboard(folder: Path) -> Logger:
    try:
        return TensorBoardLogger(save_dir=folder, name="tensorboard", default_hp_metric=False)
    except ModuleNotFoundError as exc:
        raise UserError("--loggers tensorboard needs the package tensorboard: pip install tensorboard") from exc


def log_settings(loggers: Sequence[Logger], settings: Mapping[str, Any]) -> None:
    """The run's settings, by dotted name, as every logger's hyper-parameters."""
    for logger in loggers:
        logger.log_hyperparams(dict(settings))


def log_replays(trainer: Trainer, folder: Path) -> None:
    """A set of replays, where its cards were placed, and the ladder as it stands, to the loggers that can show them.

    Args:
        folder: of the set, pages and traces.
    """
    pages = {p.stem: p for p in sorted(folder.glob("*.html"))}
    for logger in trainer.loggers:
        if isinstance(logger, WandbLogger):
            _to_wandb(logger.experiment, trainer, pages)
        elif isinstance(logger, TensorBoardLogger):
            lines = "\n".join(f"* {name}: `{p}`" for name, p in pages.items())
            logger.experiment.add_text("replays", lines, _steps(trainer))


def _steps(trainer: Trainer) -> int:
    return data_of(trainer).game_steps


def _to_wandb(run: Any, trainer: Trainer, pages: Mapping[str, Path]) -> None:
    import wandb

    from ..bots.plays import read_plays
    from ..report.behaviour import count_plays
    from ..report.svg import heat

    shown: dict[str, Any] = {}
    for what in _SHOWN:
        for name, page in pages.items():
            if what in name.split("+"):
                shown[f"replays/{what}"] = wandb.Html(page.read_text(encoding="utf-8"), inject=False)
    found = count_plays(plays for p in pages.values() if (plays := read_plays(p)) is not None)
    if found is not None:
        style = "<style>svg{width:320px}.ground{fill:#e6ecd9}.water{fill:#a9cdea}.heat{fill:#c2255c}"
        style += ".tower0{fill:none;stroke:#2563eb}.tower1{fill:none;stroke:#d9480f}</style>"
        shown["behaviour/placements"] = wandb.Html(f"{style}{heat(found.board, dict(found.tiles), 'placements')}")
    ladder = data_of(trainer).ladder
    if ladder.ratings:
        rows: list[list[Any]] = [
            [name, r["rating"], r["se"], r["games"], bool(r.get("separable"))] for name, r in ladder.ratings.items()
        ]
        rows.sort(key=lambda r: -r[1])
        shown["ladder/ratings"] = wandb.Table(["player", "rating", "se", "games", "separable"], data=rows)
    if shown:
        run.log({**shown, CLOCK: _steps(trainer)})
