"""``royale-lightning bench``: fair pairing, the file format, and the measures end to end on a few battles."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from royale_lightning.cli import console as cli
from royale_lightning.errors import UserError
from royale_lightning.tools.bench import MEASURES, parser
from royale_lightning.tools.bench.pairing import Ratio, Sides
from royale_lightning.tools.bench.report import Report, number, write
from royale_lightning.tools.bench.train import Trained, our_command, train_ours


class Clock:
    """A clock that stands still until it is told to move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_ratio_is_the_median_of_the_pairs_and_one_interruption_does_not_move_it() -> None:
    clock = Clock()
    sides = Sides("slow", "fast", clock=clock)
    # The machine gets slower; the third pair's slow side is interrupted.
    for speed, interruption in ((1.0, 0.0), (1.5, 0.0), (2.0, 50.0), (2.5, 0.0), (3.0, 0.0)):
        with sides.timed("slow"):
            clock.now += 2 * speed + interruption
        sides.work("slow", 10)
        clock.now += 100  # preparing the other side is nobody's time
        for _ in range(2):
            with sides.timed("fast"):
                clock.now += speed / 2
            sides.work("fast", 5)
        sides.close_slice()
    r = sides.ratio("slow", "fast")
    assert r.median == pytest.approx(2.0)
    assert (r.low, r.pairs) == (pytest.approx(2.0), 5)
    assert r.high == pytest.approx((4.0 + 50.0) / 2.0)
    assert sides.seconds("fast") == pytest.approx(10.0)
    assert sides.rate("fast") == pytest.approx(5.0)


def test_a_ratio_compares_costs_per_unit_of_work() -> None:
    sides = Sides("a", "b", clock=Clock())
    sides.add("a", 6.0)
    sides.work("a", 3)
    sides.add("b", 1.0)
    sides.work("b", 2)
    sides.close_slice()
    assert sides.ratio("a", "b") == Ratio(4.0, 4.0, 4.0, 1)
    assert sides.ratio("a", "b").figures("x") == {"x": 4.0, "x_low": 4.0, "x_high": 4.0, "x_pairs": 1}


def test_discarded_slices_leave_no_trace() -> None:
    sides = Sides("a", "b", clock=Clock())
    sides.add("a", 100.0)
    sides.work("a", 1)
    sides.discard()
    for name in sides.names:
        sides.add(name, 1.0)
        sides.work(name, 1)
    sides.close_slice()
    assert sides.seconds("a") == 1.0
    assert sides.slices == 1
    with pytest.raises(ValueError, match="no slice"):
        Ratio.of([], [])
    with pytest.raises(ValueError, match="zip"):
        Ratio.of([1.0], [])


@pytest.mark.parametrize(
    ("x", "text"),
    [(1320.0, "1,320"), (0.8244, "0.824"), (2631.7, "2,632"), (23.46, "23.5"), (0.0, "0"), (2e-7, "2e-07")],
)
def test_figures_are_short(x: float, text: str) -> None:
    assert number(x) == text


def test_the_file_has_the_documented_shape(tmp_path: Path) -> None:
    write(tmp_path / "b.json", {"measure": "arena", "seconds": 1.0}, Report({"row_bytes": 1320}, []))
    document = json.loads((tmp_path / "b.json").read_text())
    assert set(document) == {"schema", "tool", "inputs", "result"}
    assert (document["schema"], document["tool"], document["result"]) == (1, "bench", {"row_bytes": 1320})
    assert {"measure", "seconds", "cores", "royalesim"} <= set(document["inputs"])


@pytest.mark.parametrize("name", MEASURES)
def test_help_documents_the_file_and_its_figures(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    keys = {
        "arena": ("arena_over_engine", "two_over_one", "row_bytes"),
        "scale": ("cost_256_over_16", "battle_megabytes"),
        "update": ("lightning_over_bare",),
        "train": ("train_over_royalelearn", "same_network_over_royalelearn"),
        "evaluate": ("evaluation_battles_per_second",),
    }
    for words in (["--help"], [name, "--help"]):
        with pytest.raises(SystemExit) as end:
            parser().parse_args(words)
        assert end.value.code == 0
        text = capsys.readouterr().out
        for key in (*keys[name], '"schema": 1', '"tool": "bench"'):
            assert key in text, f"bench {' '.join(words)} does not explain {key}"


# ---- the measures --------------------------------------------------------------------------------------------------


def figures(argv: list[str], tmp_path: Path) -> dict[str, Any]:
    target = tmp_path / "figures.json"
    assert cli.main(["bench", *argv, "--json", str(target)]) == 0
    document = json.loads(target.read_text())
    assert document["inputs"]["measure"] == argv[0]
    result: dict[str, Any] = document["result"]
    assert all(isinstance(v, int | float) and np.isfinite(v) for v in result.values()), result
    return result


def test_the_arena_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from royale_lightning.tools.bench import arena

    monkeypatch.setattr(arena, "WARM_ROUNDS", 16)
    f = figures(["arena", "--seconds", "0.5", "--battles", "3"], tmp_path)
    # A busy machine spoils single slices, the median survives it.
    assert 0 < f["arena_over_engine"] < 1.2
    assert f["arena_over_engine_low"] <= f["arena_over_engine"] <= f["arena_over_engine_high"]
    assert 0 < f["two_over_one"] < 3
    assert f["two_over_one"] in (f["threads_over_one"], f["processes_over_one"])
    assert 0 < f["row_bytes"] <= 2560
    assert f["arena_steps_per_second"] > 0
    assert 0 < f["arena_rows_per_second"] < 2.5 * f["arena_steps_per_second"]
    assert "arena_over_engine" in capsys.readouterr().out


def test_the_large_arena_and_its_parts_play_on_from_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from royale_lightning.tools.bench import scale

    monkeypatch.setattr(scale, "LIGHT", 1)
    monkeypatch.setattr(scale, "HEAVY", 3)
    monkeypatch.setattr(scale, "PLAYED", 20)
    f = figures(["scale", "--seconds", "0.2", "--many", "4", "--few", "2"], tmp_path)
    assert 0.2 < f["cost_4_over_2"] < 5
    assert 0 < f["battle_megabytes"] < 20


def test_lightning_and_the_bare_loop_make_the_same_update(tmp_path: Path, one_thread: None) -> None:
    config = tmp_path / "small.yaml"
    config.write_text(
        "trainer: {gradient_clip_val: 0.5}\n"
        "model: {network: {class_path: entity, init_args: {width: 16, layers: 1, heads: 2}}}\n"
        "data: {battle: {max_ticks: 600}, rollout: {battles: 2, rows_per_iteration: 64, minibatch_rows: 32}}\n"
    )
    f = figures(["update", "--seconds", "0.1", "--config", str(config)], tmp_path)
    assert f["largest_weight_difference"] == 0
    assert f["lightning_over_bare_pairs"] >= 3
    assert 0.2 < f["lightning_over_bare"] < 20
    assert f["row_passes_per_second"] == pytest.approx(3 * f["rows_per_second"])


def test_whole_battles_are_counted(tmp_path: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from royale_lightning.tools.bench import evaluate

    monkeypatch.setattr(evaluate, "WARM_GAMES", 1)
    f = figures(["evaluate", "--seconds", "0.1", "--battles", "1"], tmp_path)
    assert f["battles_played"] == 2
    assert 0 < f["evaluation_battles_per_second"] < 100
    assert f["game_steps_per_battle"] > 100


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Small products cost more to share among threads than to compute."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# ---- the peer ------------------------------------------------------------------------------------------------------


def test_without_royalelearn_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "royalelearn", None)
    assert cli.main(["bench", "train", "--seconds", "1"]) == cli.USER_ERROR
    err = capsys.readouterr().err
    assert 'pip install "royale_lightning[peers]"' in err
    assert err.count("\n") == 1


def test_game_steps_learned_from_are_read_off_both_logs() -> None:
    first = {"game_steps": 900, "rollout/rows": 100.0, "ppo/ppo_epochs_done": 3.0, "time/iteration": 1.0}
    second = {"game_steps": 2000, "rollout/rows": 110.0, "ppo/ppo_epochs_done": 1.0, "time/iteration": 2.0}
    ours = [first, second]
    assert Trained.ours(ours) == Trained(2.0, 1100, 110.0, 110.0), "the first iteration is warm-up"
    assert Trained.ours(ours[:1]) == Trained(1.0, 900, 100.0, 300.0), "unless there is no other"
    theirs = [
        {"run/cumulative_timesteps": 1024, "run/cumulative_env_steps": 1024, "time/iteration": 20.0},
        {"run/cumulative_timesteps": 2048, "run/cumulative_env_steps": 2048, "time/iteration": 22.0},
    ]
    assert Trained.theirs(theirs) == Trained(22.0, 1024.0, 1024.0, 3072.0)


def test_the_same_network_is_asked_for_by_settings() -> None:
    command = our_command(Path("run"), 90.0, Path("c.yaml"), "conv", 3)
    assert command[command.index("--data.battle.observation") + 1] == "spatial"
    assert json.loads(command[command.index("--model.network") + 1])["class_path"] == "conv"
    assert command[command.index("--stop.minutes") + 1] == "1.5"
    assert "--model.network" not in our_command(Path("run"), 90.0, None, "config", 3)


def test_a_training_that_fails_says_why(tmp_path: Path) -> None:
    config = tmp_path / "bad.yaml"
    config.write_text("data: {rollout: {battles: 0}}\n")
    with pytest.raises(UserError, match=r"exit code 2: .*rollout\.battles is 0"):
        train_ours(tmp_path / "run", 1.0, config, "config", 1)


# ---- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["arena", "--json", "no/such/folder/f.json"], "its folder does not exist"),
        (["update", "--config", "nowhere.yaml"], "'nowhere.yaml', and there is no such file"),
        (["scale", "--many", "10", "--few", "4"], "--few is 4"),
    ],
)
def test_mistakes_are_found_before_anything_is_measured(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", *argv]) == cli.USER_ERROR
    assert words in capsys.readouterr().err
