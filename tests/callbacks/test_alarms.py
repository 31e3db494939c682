"""What an alarm does to a run: the row, the log, the console, the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from royale_lightning.callbacks import Alarms
from royale_lightning.errors import UserError

Fit = Callable[..., Any]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(x) for x in path.read_text().splitlines()]


def ill(**figures: float) -> Any:
    from tests.support import tiny_run

    module = tiny_run.TinyModule()
    module.extra = figures
    return module


def test_a_warning_is_in_the_row_the_log_and_the_console_and_ends(
    fit: Fit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.support import tiny_run

    class Module(tiny_run.TinyModule):
        def iteration_metrics(self) -> dict[str, float]:
            return {"ppo/approx_kl": 0.9 if 2 <= self.current_epoch < 6 else 0.01}

    trainer, _, _ = fit(module=Module(), max_epochs=8)
    assert trainer.current_epoch == 8
    rows = lines(tmp_path / "metrics.jsonl")
    assert [r.get("alarm/kl_high", 0) for r in rows] == [0, 0, 0, 0, 1, 1, 0, 0]
    assert [r["alarms/active"] for r in rows] == [0, 0, 0, 0, 1, 1, 0, 0]
    log = lines(tmp_path / "alarms.jsonl")
    assert [(e["iteration"], e["alarm"], e["on"]) for e in log] == [(5, "kl_high", True), (7, "kl_high", False)]
    assert log[0]["game_steps"] == 500
    out = capsys.readouterr().out
    assert "alarm kl_high: ppo/approx_kl above 0.05 for 3 rows (ppo/approx_kl 0.9); lower ppo.learning_rate" in out
    assert "alarm kl_high is over" in out


def test_a_severe_one_ends_the_run_with_a_checkpoint_and_a_bundle(
    fit: Fit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer, _, _ = fit(module=ill(**{"ppo/loss": float("nan")}), max_epochs=9)
    assert trainer.current_epoch == 1
    assert (tmp_path / "checkpoints/iteration-000001.ckpt").is_file()
    bundle = tmp_path / "bundles" / "nonfinite-000001"
    assert lines(bundle / "rows.jsonl")[0]["ppo/loss"] == "nan"
    assert lines(bundle / "episodes.jsonl")[0]["players"] == ["learner", "scripted:push"]
    out = capsys.readouterr().out
    assert "the run ends at alarm nonfinite" in out
    assert "--alarms.off '[\"nonfinite\"]'" in out
    assert [r["alarm"] for r in lines(tmp_path / "alarms.jsonl")] == ["nonfinite"]
    assert lines(tmp_path / "metrics.jsonl")[0]["alarm/nonfinite"] == 1


def test_severe_ones_only_warn_on_request(fit: Fit, tmp_path: Path) -> None:
    callback = Alarms(halt=False)
    trainer, _, _ = fit(module=ill(**{"ppo/loss": float("nan")}), callbacks=[callback], max_epochs=3)
    assert (trainer.current_epoch, callback.halted) == (3, [])
    assert lines(tmp_path / "alarms.jsonl")[0]["severity"] == "warn"


def test_a_resume_goes_on_counting_and_forgets_what_the_checkpoint_did_not_see(fit: Fit, tmp_path: Path) -> None:
    from royale_lightning.callbacks import RunCheckpoint

    def callbacks() -> list[Any]:
        return [RunCheckpoint(every=2, keep=-1), Alarms(halt=False)]

    fit(module=ill(**{"ppo/clip_fraction": 0.9}), callbacks=callbacks(), max_epochs=4)
    assert [e["iteration"] for e in lines(tmp_path / "alarms.jsonl")] == [3]
    checkpoint = tmp_path / "checkpoints/iteration-000002.ckpt"
    fit(module=ill(**{"ppo/clip_fraction": 0.9}), callbacks=callbacks(), ckpt_path=checkpoint, max_epochs=3)
    assert [e["iteration"] for e in lines(tmp_path / "alarms.jsonl")] == [3], "two rows before it, one after"
    assert (tmp_path / "alarms.jsonl.discarded-1").is_file()


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ("thresholds", "neither a class path nor one of threshold"),
        ({"class_path": "threshold", "init_args": {"name": "x", "key": "y", "above": 1, "below": 2}}, "below"),
        ({"class_path": "pathlib.Path"}, "is no Alarm"),
    ],
)
def test_an_alarm_of_ones_own_is_checked_when_it_is_made(extra: Any, told: str) -> None:
    with pytest.raises(UserError, match=told):
        Alarms(extra=[extra])


def test_a_run_leaves_no_alarm_log_in_a_trial(fit: Fit, tmp_path: Path) -> None:
    fit(module=ill(), fast_dev_run=True)
    assert not (tmp_path / "alarms.jsonl").exists()
