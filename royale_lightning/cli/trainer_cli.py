"""``fit``, ``validate``, ``test`` and ``predict``: LightningCLI with run folders, exact resume and one-line errors."""

from __future__ import annotations

import importlib.metadata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, NoReturn, Union, get_args, get_origin

import yaml
from jsonargparse import Namespace
from jsonargparse.typing import register_type
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from ..battle.spec import BattleSpec
from ..bots.measure import DEFAULT_GAMES, DEFAULT_SEED, Measure
from ..callbacks import Alarms, ResumeRules, RunCheckpoint, RunFolder, SignalStop, StopAfter
from ..callbacks.base import (
    MAX_STEPS_REFUSED,
    MAX_TIME_REFUSED,
    OVERFIT_REFUSED,
    RELOAD_REFUSED,
    VALIDATION_REFUSED,
    callbacks_of,
    is_whole,
    limit_refused,
)
from ..callbacks.loggers import LOGGERS, named_loggers
from ..errors import UserError, own_frame
from ..parts import PartSetting
from ..run import folder as run_folder
from ..run.checkpoints import newest, whole_checkpoint
from ..run.devices import to_measure
from ..run.jobs import Job, is_rank_zero
from ..run.screen import say
from ..run.signals import StopNow
from . import arguments
from .parse_errors import ParseFailure, sentence
from .trainer_defaults import TRAINER_DEFAULTS, complete, quiet_lightning


def _read_part(value: Any) -> PartSetting:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = yaml.safe_load(value)
    return PartSetting(value)


register_type(PartSetting, serializer=lambda setting: setting.value, deserializer=_read_part)


#: Exit code of a run that an alarm ended.
HALTED = 3


class RoyaleParser(LightningArgumentParser):
    """Refuses abbreviations, and raises what jsonargparse would print."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # ``--trainer.max_epoch 3`` would pass as max_epochs, and the same key in a file be refused.
        kwargs.setdefault("allow_abbrev", False)
        kwargs["dump_header"] = [f"royale_lightning=={importlib.metadata.version('royale_lightning')}"]
        super().__init__(*args, **kwargs)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        raise ParseFailure(message, ex) from ex


class SaveRunConfig(SaveConfigCallback):
    """Writes ``config.yaml``, or ``config.<n>.yaml`` on a resume, into the run folder.

    When training starts, and not at setup as Lightning does: a start that is refused leaves no file.
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        pass

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero and not self.already_saved:
            self.save_config(trainer, pl_module, "fit")
            self.already_saved = True

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        config = yaml.safe_load(self.parser.dump(self.config, skip_none=False))
        battle = getattr(getattr(trainer, "datamodule", None), "battle", None)
        if isinstance(battle, BattleSpec):
            # What a deck file held: the run goes on with that, wherever the file is by then and whatever it holds.
            config["data"]["battle"]["deck"] = battle.deck
        ckpt_path = self.config.get("ckpt_path")
        notes = [f"continued from {ckpt_path}"] if ckpt_path else []
        run_folder.save_config(Path(trainer.default_root_dir), config, *notes)


class RoyaleCLI(LightningCLI):
    """The command line over one module and one data module.

    Differs from LightningCLI in this: a run's own configuration is read with its checkpoint, instead of the
    checkpoint's hyper-parameters overriding what the user typed; ``fit`` has ``--run_dir``, ``--checkpoint.*``,
    ``--stop.*`` and ``--alarms.*``; the others have ``--games``, ``--seed`` and ``--out``; ``--seed_everything`` seeds
    the battles too; an option wins over a file wherever it stands, and reaches into a part
    (``--model.network.init_args.width 32``, in short ``--model.network.width 32``).
    """

    def __init__(
        self,
        args: Sequence[str],
        model_class: type[LightningModule],
        datamodule_class: type[LightningDataModule],
    ) -> None:
        self.folder: Path | None = None
        self._job = Job.of(args)
        #: Whether an earlier start of the job began the run in ``run_dir``.
        self._own = False
        self._typed: set[str] = set()
        try:
            super().__init__(
                model_class,
                datamodule_class,
                save_config_callback=SaveRunConfig,
                trainer_defaults=TRAINER_DEFAULTS,
                seed_everything_default=1,
                parser_class=RoyaleParser,
                args=list(args),
                # The module has the one optimizer it needs.
                auto_configure_optimizers=False,
            )
        finally:
            # A mistake found after the folder was claimed must not leave an empty run behind.
            if self.folder is not None and is_rank_zero():
                run_folder.drop_if_empty(self.folder)

    # -- the parser ------------------------------------------------------------------------------------------------

    def add_default_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument("--seed_everything", type=int, default=1, help="Seed of networks and battles alike.")

    def add_core_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        super().add_core_arguments_to_parser(parser)
        if any(a.dest == "data.seed" for a in parser._actions):
            parser.link_arguments("seed_everything", "data.seed")

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument(
            "--loggers",
            nargs="*",
            type=_logger_name,
            default=[],
            help="Loggers that show the metric rows as well, written into the run folder.",
        )

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **kwargs: Any) -> LightningArgumentParser:
        parser = super()._prepare_subcommand_parser(klass, subcommand, **kwargs)
        if subcommand == "fit":
            parser.add_argument(
                "--run_dir",
                type=str | None,
                default=None,
                help="The run's folder; default: the next free runs/<config name>-<n>.",
            )
            parser.add_argument(
                "--allow_drift",
                action="store_true",
                help="Continue although settings that decide the run differ from the checkpoint's; marks later rows.",
            )
            parser.add_argument(
                "--allow_mid_iteration",
                action="store_true",
                help="Continue from a checkpoint that an interrupt saved in the middle of an iteration.",
            )
            parser.add_lightning_class_args(RunCheckpoint, "checkpoint")
            parser.add_lightning_class_args(StopAfter, "stop")
            parser.add_lightning_class_args(Alarms, "alarms")
        else:
            games = DEFAULT_GAMES[subcommand]
            parser.add_argument("--games", type=int, default=games, help="Games per opponent.")
            parser.add_argument(
                "--seed", type=int, default=DEFAULT_SEED, help="Where the paired seeds of the games start."
            )
            parser.add_argument(
                "--out", type=str | None, default=None, help="Folder for the results; default: the run's own."
            )
        if subcommand == "test":
            parser.add_argument(
                "--by_deck", action="store_true",
                help="Also score by deck, by card in either deck, and deck against deck, where decks are drawn.",
            )
        return parser

    def known_keys(self, subcommand: str) -> list[str]:
        """Every dotted key the subcommand accepts."""
        actions = self._subcommand_parsers[subcommand]._actions
        return [a.dest for a in actions if a.dest not in ("help", "print_config")]

    # -- parsing ---------------------------------------------------------------------------------------------------

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        subcommand, words = args[0], list(args[1:])
        known = self.known_keys(subcommand)
        # What was typed, to tell from it what came with a run's folder.
        self._typed = {group[0].split("=")[0] for group in arguments.options(words)}
        words = arguments.in_order([*self._run_config(words, known), *words], known)
        words = self._with_nested(parser, subcommand, words, known)
        self.config = self._parsed(parser, subcommand, words, known)
        config = self.config[subcommand]
        _check_filled(config, self._subcommand_parsers[subcommand]._actions)
        if subcommand == "fit" and self._job is not None and self._job.restarted:
            self._go_on(config, self._job)
        if config.get("ckpt_path"):
            config["ckpt_path"] = str(whole_checkpoint(run_folder.find_checkpoint(str(config["ckpt_path"]))))
        if not 0 <= config["seed_everything"] < 2**32:
            raise UserError(f"seed_everything is {config['seed_everything']}; give a number from 0 to {2**32 - 1}")
        refuse_settings(subcommand, config["trainer"])

    @staticmethod
    def _parsed(parser: LightningArgumentParser, subcommand: str, words: list[str], known: Sequence[str]) -> Namespace:
        try:
            return parser.parse_args([subcommand, *words])
        except ParseFailure as exc:
            raise UserError(sentence(str(exc), known, exc.cause)) from exc

    def _with_nested(
        self, parser: LightningArgumentParser, subcommand: str, words: list[str], known: Sequence[str]
    ) -> list[str]:
        """The words with every part whole whose arguments they set one by one."""
        actions = self._subcommand_parsers[subcommand]._actions
        kinds = {a.dest: kind for a in actions if (kind := _holds_parts(getattr(a, "_typehint", None)))}
        words, found = arguments.nested(words, kinds)
        if not found:
            return words
        config = self._parsed(parser, subcommand, arguments.without_printing(words), known)[subcommand]
        whole: dict[str, Any] = {}
        for key, path, text in found:
            value = whole[key] if key in whole else config.get(key)
            whole[key] = arguments.with_setting(value, key, path, text, kinds[key] == "many")
        return [*words, *(arguments.as_option(key, value) for key, value in whole.items())]

    def _run_config(self, args: Sequence[str], known: Sequence[str]) -> list[str]:
        """``--config`` with the run's own configuration, for a checkpoint given without one."""
        ckpt_path = arguments.value_of(args, "--ckpt_path")
        if ckpt_path is None or arguments.value_of(args, *arguments.CONFIG) is not None:
            return []
        path = run_folder.find_checkpoint(ckpt_path)
        folder = run_folder.of_checkpoint(path)
        config = run_folder.saved_config(folder) if folder else None
        if config is None:
            raise UserError(f"there is no config.yaml in a run folder around {str(path)!r}; give one with --config")
        # A run is saved by fit; the other subcommands take less.
        tops = {k.split(".")[0] for k in known}
        return ["--config", yaml.safe_dump({k: v for k, v in config.items() if k in tops})]

    def _go_on(self, config: Namespace, job: Job) -> None:
        """Have a job that was put back into the queue go on with its run, from wherever that stands by now."""
        if config["run_dir"]:
            folders = [run_folder.resolved(config["run_dir"])]
        elif config.get("ckpt_path"):
            beside = run_folder.of_checkpoint(run_folder.find_checkpoint(str(config["ckpt_path"])))
            folders = [beside] if beside is not None else []
        else:
            folders = [*run_folder.numbered(_config_name(config)).values()][::-1]
        folder = next((f for f in folders if job.began(f)), None)
        if folder is None:
            return
        config["run_dir"], self._own = str(folder), True
        ckpt_path = newest(folder / run_folder.CHECKPOINTS)
        if ckpt_path is not None:
            config["ckpt_path"] = str(ckpt_path)
        if is_rank_zero():
            say(f"job {job.number} was started again: it goes on from {ckpt_path or 'the start'}")

    def _parse_ckpt_path(self) -> None:
        """Off: Lightning's version lets the checkpoint's hyper-parameters override the command line."""

    # -- building --------------------------------------------------------------------------------------------------

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        subcommand = str(self.subcommand)
        config = self.config_init[subcommand]
        settings = {**config["trainer"], **kwargs}
        given = settings.get("callbacks") or []
        given = list(given) if isinstance(given, list) else [given]
        # The settings under --stop, --checkpoint and --alarms make a callback each, unless the configuration lists one.
        extra = [config[key] for key in self._parser(subcommand).callback_keys]
        wanted = settings.get("enable_checkpointing") is not False and not settings.get("barebones")
        extra = [c for c in extra if wanted or not isinstance(c, RunCheckpoint)]
        given += [c for c in extra if not any(isinstance(g, type(c)) for g in given)]
        settings["callbacks"] = given
        if subcommand == "fit":
            given.append(ResumeRules(config["allow_drift"], config["allow_mid_iteration"]))
            given.append(RunFolder(self._job))
            self.folder = folder = self._choose_folder(config)
            if not settings.get("fast_dev_run"):
                parser = self._parser(subcommand)
                given.append(SaveRunConfig(parser, self.config[subcommand], save_to_log_dir=False))
        else:
            folder = self._measure(subcommand, config)
            settings, missing = to_measure(settings, {w.removeprefix("--trainer.") for w in self._typed})
            if missing:
                say(missing)
        if config["loggers"]:
            settings["logger"] = [*_as_list(settings.get("logger")), *named_loggers(config["loggers"], folder)]
        settings = complete(settings, folder)
        try:
            return Trainer(**settings)
        except (TypeError, ValueError) as exc:
            # Lightning checks some settings as it uses them; what a user's own callback raises has a line to point to.
            if isinstance(exc, UserError) or own_frame(exc) is not None:
                raise
            raise UserError(f"trainer: {' '.join(str(exc).split())}") from exc

    def _choose_folder(self, config: Namespace) -> Path:
        ckpt_path = Path(config["ckpt_path"]) if config.get("ckpt_path") else None
        return run_folder.choose(config["run_dir"], ckpt_path, _config_name(config), own=self._own)

    def _measure(self, subcommand: str, config: Namespace) -> Path:
        """Tell the data module what to play, and return where the results go."""
        ckpt_path = config.get("ckpt_path")
        own = run_folder.of_checkpoint(Path(ckpt_path)) if ckpt_path else None
        if config["out"] is None and own is None:
            raise UserError(
                f"{subcommand} needs --ckpt_path RUN/checkpoints/last.ckpt, whose run folder takes the results, "
                "or --out FOLDER"
            )
        out = run_folder.resolved(config["out"]) if config["out"] is not None else own
        assert out is not None
        self.datamodule.measure = Measure(subcommand, config["games"], config["seed"], out, bool(config.get("by_deck")))
        return out


def _config_name(config: Namespace) -> str:
    return run_folder.config_name([str(p) for p in config.get("config") or [] if p is not None])


def _logger_name(value: str) -> str:
    if value not in LOGGERS:
        raise ValueError(f"{value!r} is none of the loggers {', '.join(LOGGERS)}")
    return value


def _check_filled(config: Namespace, actions: Iterable[Any]) -> None:
    """Refuse what jsonargparse lets through: a section that holds no settings, and null where nothing may be null."""
    settings = [a for a in actions if getattr(a, "_typehint", None) is not None and not a.dest.endswith(".help")]
    sections = {a.dest.rpartition(".")[0] for a in settings} - {""}
    for name in sorted(sections):  # an outer one before those in it
        if not isinstance(value := config.get(name), Namespace | Mapping):
            raise UserError(f"{name} is {value!r}; it is a section: indent its settings below it, or leave it out")
    for a in settings:
        # Nothing else tells an absent value from null: what has a default is never absent.
        may_be_null = a.default is None or a._typehint is Any or type(None) in get_args(a._typehint)
        if not may_be_null and a.dest in config and config[a.dest] is None:
            raise UserError(f"{a.dest} is null; give a value, or leave it out for the default")


def _as_list(logger: Any) -> list[Any]:
    if not logger or logger is True:
        return []
    return list(logger) if isinstance(logger, (list, tuple)) else [logger]


def _holds_parts(hint: Any) -> str | None:
    """``"one"`` for a setting that is a part, ``"many"`` for a dictionary of them."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if PartSetting in kinds:
        return "one"
    return "many" if any(get_origin(k) is dict and get_args(k)[1] is PartSetting for k in kinds) else None


def refuse_settings(subcommand: str, trainer: Mapping[str, Any]) -> None:
    """Refuse Trainer settings that break an iteration or leave nothing to do, before anything is built.

    Raises:
        UserError: which setting, and what to set instead.
    """
    if trainer.get("default_root_dir") is not None:
        option = "--run_dir" if subcommand == "fit" else "--out"
        raise UserError(f"trainer.default_root_dir is {trainer['default_root_dir']!r}; give {option} instead")
    if subcommand != "fit":
        for key in ("limit_test_batches", "limit_predict_batches"):
            if trainer.get(key) == 0 and key.split("_")[1] == subcommand:
                raise UserError(f"trainer.{key} is 0, so nothing would be played; leave it out (--games says how much)")
        return
    # In this order: overfitting sets both limits.
    for key, harmless, why in (
        ("max_time", (None,), MAX_TIME_REFUSED),
        ("max_steps", (-1, None), MAX_STEPS_REFUSED),
        ("reload_dataloaders_every_n_epochs", (0, None), RELOAD_REFUSED),
        ("overfit_batches", (0, None), OVERFIT_REFUSED),
        ("limit_val_batches", (0,), VALIDATION_REFUSED),
    ):
        if trainer.get(key) not in harmless:
            raise UserError(why)
    if not is_whole(limit := trainer.get("limit_train_batches")):
        raise UserError(limit_refused(limit))
    if trainer.get("max_epochs") == 0:
        raise UserError("trainer.max_epochs is 0, so nothing would be trained; leave it out (--stop.* is for that)")
    clip = trainer.get("gradient_clip_val")
    if clip is not None and not 0 < clip < float("inf"):
        raise UserError(f"trainer.gradient_clip_val is {clip}; give a number above 0, or null for no clipping")


def run(
    argv: Sequence[str],
    model_class: type[LightningModule] | None = None,
    datamodule_class: type[LightningDataModule] | None = None,
) -> int:
    """Run a Trainer subcommand and return its exit code.

    Args:
        argv: the subcommand and its arguments.
        model_class, datamodule_class: :class:`SelfPlayModule` and :class:`SelfPlayData` if left out.
    """
    if model_class is None:
        from ..ppo.module import SelfPlayModule

        model_class = SelfPlayModule
    if datamodule_class is None:
        from ..rollout.data import SelfPlayData

        datamodule_class = SelfPlayData
    quiet_lightning()
    # Lightning's own business with torch 2.14; the user can do nothing about it.
    warnings.filterwarnings("ignore", message=".*LeafSpec.*")
    try:
        cli = RoyaleCLI(argv, model_class, datamodule_class)
    except MisconfigurationException as exc:
        raise UserError(" ".join(str(exc).split())) from exc
    except StopNow as exc:
        return exc.exit_code
    # A child rank that ends with another code makes Lightning kill the launching process.
    if not cli.trainer.is_global_zero:
        return 0
    if any(isinstance(c, Alarms) and c.halted for c in callbacks_of(cli.trainer)):
        return HALTED
    stopped = [c.received for c in callbacks_of(cli.trainer) if isinstance(c, SignalStop) and c.received]
    return 128 + stopped[0] if stopped else 0
