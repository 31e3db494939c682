"""The metric row, its log, and what a resume does to the log."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.loggers.logger import DummyLogger

from royale_lightning.callbacks import LoggedCallback, Phase, add_to_next_row, iteration_row
from royale_lightning.cli.trainer_defaults import defaults
from royale_lightning.run.jsonl import JsonLines, discard_tail, read_rows
from royale_lightning.run.ranks import Ranks

Fit = Callable[..., Any]


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_row_holds_what_was_measured_and_nothing_else(fit: Fit, tmp_path: Path) -> None:
    from tests.support import tiny_run

    module = tiny_run.TinyModule()
    module.extra = {"infinite": float("inf")}
    fit(module=module, max_epochs=2)
    first, _ = rows(tmp_path)
    assert (first["iteration"], first["game_steps"], first["loss"], first["rows"]) == (1, 100, 0.5, 12.0)
    assert not {"absent", "infinite"} & set(first)
    assert module.events.count("metrics") == 2, "the module is asked once per iteration"


def test_a_callback_may_add_to_the_row_and_see_its_nans(fit: Fit, tmp_path: Path) -> None:
    seen: list[float] = []

    class RatingUpdate(Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            iteration_row(trainer)["rating/elo"] = 1200.0

    class Alarms(Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            seen.append(iteration_row(trainer)["absent"])

    fit(callbacks=[Alarms(), RatingUpdate()], max_epochs=1)
    assert rows(tmp_path)[0]["rating/elo"] == 1200.0
    assert math.isnan(seen[0])


class Pruned(Exception):
    """As a tuner ends a trial."""


class Pruner(Callback):
    """As those of tuners do: it reads a figure of Lightning's, and knows nothing of ours."""

    def __init__(self, monitor: str, worst: float) -> None:
        self.monitor, self.worst, self.read = monitor, worst, []

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        score = trainer.callback_metrics.get(self.monitor)
        self.read.append(None if score is None else score.item())
        if score is not None and score > self.worst:
            raise Pruned


class Measured(Callback):
    """A figure of the third iteration alone, and one that grows; as late as the ladder's."""

    phase = Phase.RATING

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        iteration_row(trainer)["rating"] = float(trainer.current_epoch)
        if trainer.current_epoch == 2:
            iteration_row(trainer)["rare"] = 1.0


def test_lightnings_callbacks_find_the_row(fit: Fit, tmp_path: Path) -> None:
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

    best = ModelCheckpoint(tmp_path / "best", monitor="rating", mode="max")
    stop = EarlyStopping("loss", patience=3)
    trainer, _, _ = fit(callbacks=[best, stop, Measured()], max_epochs=9)
    assert trainer.current_epoch == 4, "the loss stays as it was for three iterations"
    assert best.best_model_score == 3.0
    assert Path(best.best_model_path).name == "epoch=3-step=16.ckpt"
    assert json.loads((tmp_path / "checkpoints/manifest.json").read_text())["files"].keys() == {"iteration-000004.ckpt"}


def test_a_pruning_callback_sees_this_iterations_figure(fit: Fit) -> None:
    steps, none = Pruner("game_steps", 250), Pruner("loss", 1.0)
    with pytest.raises(Pruned):
        fit(callbacks=[none, steps], max_epochs=9)
    assert steps.read == [100, 200, 300]
    assert none.read == [0.5] * 3


def test_a_figure_of_another_iteration_is_not_there(fit: Fit) -> None:
    class Late(Pruner):
        phase = Phase.LIMITS

    rare, infinite = Late("rare", 9.0), Late("absent", 9.0)
    trainer, _, _ = fit(callbacks=[Measured(), rare, infinite], max_epochs=4)
    assert rare.read == [None, None, 1.0, None]
    assert infinite.read == [None] * 4
    assert trainer.callback_metrics["game_steps"].dtype == torch.float64


def test_loggers_are_given_each_row_once(fit: Fit, tmp_path: Path) -> None:
    given: list[dict[str, float]] = []

    class Book(DummyLogger):
        def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
            given.append(metrics)

    fit(logger=Book(), max_epochs=2)
    assert given == rows(tmp_path)


def test_the_next_row_says_what_the_checkpoint_cost(fit: Fit, tmp_path: Path) -> None:
    from royale_lightning.callbacks import RunCheckpoint

    fit(callbacks=[RunCheckpoint(every=1)], max_epochs=2)
    assert ["time/checkpoint" in r for r in rows(tmp_path)] == [False, True]


def test_the_checkpoint_knows_the_logs_length(fit: Fit, tmp_path: Path) -> None:
    import torch

    fit(max_epochs=2)
    state = torch.load(tmp_path / "checkpoints/last.ckpt", weights_only=True)["callbacks"]["MetricLog"]
    log = (tmp_path / "metrics.jsonl").read_bytes()
    assert state == {"metrics_offset": len(log), "log_digest": hashlib.sha256(log).hexdigest()}


def test_a_trainer_that_fits_twice_keeps_one_log(fit: Fit, tmp_path: Path) -> None:
    trainer, module, data = fit(max_epochs=1)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, datamodule=data)
    assert [r["iteration"] for r in rows(tmp_path)] == [1, 2]


def test_the_row_belongs_to_the_data_module_of_its_run(fit: Fit, tmp_path: Path) -> None:
    rows_seen: list[dict[str, float]] = []

    class Keep(Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            rows_seen.append(iteration_row(trainer))
            add_to_next_row(trainer, "kept", float(len(rows_seen)))

    (_, _, one), (_, _, other) = (fit(callbacks=[Keep()], max_epochs=1, default_root_dir=tmp_path / n) for n in "ab")
    assert one.metric_row is not other.metric_row
    assert one.metric_row.of(1, dict) is rows_seen[0]
    assert "kept" not in rows_seen[1], "what one run noted for its next row is no other run's"


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_a_run_without_a_data_module_has_a_row_too(tmp_path: Path) -> None:
    from lightning.pytorch import Trainer

    from tests.support import tiny_run

    data = tiny_run.TinyData()
    trainer = Trainer(**defaults(default_root_dir=tmp_path, max_epochs=2, enable_model_summary=False))
    trainer.fit(tiny_run.TinyModule(), train_dataloaders=tiny_run.TinyDataset(data))
    assert [(r["iteration"], r["game_steps"], r["loss"]) for r in rows(tmp_path)] == [(1, 0, 0.5), (2, 0, 0.5)]


class Diary(LoggedCallback):
    log_file = "diary.jsonl"
    offset_key = "diary_offset"


def begun(folder: Path, state: dict[str, Any] | None = None, **trainer: Any) -> Diary:
    diary = Diary()
    if state is not None:
        diary.load_state_dict(state)
    told = {"fast_dev_run": False, "default_root_dir": str(folder), "world_size": 1, **trainer}
    diary.on_fit_start(SimpleNamespace(**told), SimpleNamespace())  # type: ignore[arg-type]
    return diary


def entries(path: Path) -> list[int]:
    return [row["n"] for row in read_rows(path)]


def test_a_log_goes_back_to_the_checkpoint_also_in_a_fork(tmp_path: Path) -> None:
    first = begun(tmp_path / "a")
    for n in range(3):
        first.append({"n": n})
    saved = first.state_dict()
    first.append({"n": 3})
    first.on_exception(SimpleNamespace(), SimpleNamespace(), KeyboardInterrupt())  # type: ignore[arg-type]
    again, aside = begun(tmp_path / "a", saved), tmp_path / "a/diary.jsonl.discarded-1"
    assert not aside.exists(), "a start that is refused moves nothing"
    assert again.state_dict() == saved
    assert entries(tmp_path / "a/diary.jsonl") == [0, 1, 2]
    assert entries(aside) == [3]
    again.append({"n": 4})
    again.teardown(SimpleNamespace(), SimpleNamespace(), "fit")  # type: ignore[arg-type]
    assert entries(tmp_path / "a/diary.jsonl") == [0, 1, 2, 4]
    # A fork begins its own log, and what it promises is that one's length: 0 before its first line.
    fork = begun(tmp_path / "b", saved)
    unsaid = fork.state_dict()
    assert unsaid["diary_offset"] == 0
    for n in (10, 11):
        fork.append({"n": n})
    fork.teardown(SimpleNamespace(), SimpleNamespace(), "fit")  # type: ignore[arg-type]
    rewound = begun(tmp_path / "b", unsaid)
    assert rewound.state_dict() == unsaid
    rewound.teardown(SimpleNamespace(), SimpleNamespace(), "fit")  # type: ignore[arg-type]
    assert entries(tmp_path / "b/diary.jsonl") == []


def test_other_ranks_and_trials_log_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = begun(tmp_path, fast_dev_run=True)
    monkeypatch.setattr(Ranks, "from_rank_zero", lambda self, make: None)
    for diary in (trial, begun(tmp_path)):
        diary.append({"n": 1})
    assert not list(tmp_path.iterdir())


def test_tails_are_moved_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = JsonLines(path)
    log.append({"n": 1})
    at = log.offset
    log.append({"n": 2})
    log.close()
    assert discard_tail(path, log_size := path.stat().st_size) is None
    assert discard_tail(path, at) == tmp_path / "log.jsonl.discarded-1"
    assert path.stat().st_size == at < log_size
    path.write_bytes(path.read_bytes() + b'{"torn')
    log = JsonLines(path)
    assert path.read_bytes().endswith(b"torn"), "nothing is moved before the first line"
    log.append({"n": 3})
    log.close()
    assert (tmp_path / "log.jsonl.discarded-2").read_bytes() == b'{"torn'
    assert path.read_bytes() == b'{"n": 1}\n{"n": 3}\n'
    assert discard_tail(tmp_path / "absent", 0) is None


def test_a_line_must_be_json(tmp_path: Path) -> None:
    log = JsonLines(tmp_path / "log.jsonl")
    with pytest.raises(ValueError, match="not JSON compliant"):
        log.append({"x": float("nan")})
    log.close()
