"""Every command and every program of the README, run as it stands (only made small)."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from royale_lightning.cli.console import main
from royale_lightning.metrics.shipped import shipped_alarms

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, flags=re.M | re.S)
COMMANDS = [
    line.split("#")[0].strip()
    for kind, body in BLOCKS
    if not kind
    for line in body.splitlines()
    # Lines with a name in capitals are patterns, not commands.
    if line.startswith("royale-lightning") and not re.search(r"\bRUN\b", line)
]
PROGRAMS = [body for kind, body in BLOCKS if kind == "python"]

#: What makes a run of minutes one of seconds; the command itself stays as the README has it.
SMALL_FIT = [
    "--trainer.accelerator", "cpu", "--stop.iterations", "1", "--data.rollout.battles", "4",
    "--data.rollout.rows_per_iteration", "64", "--data.rollout.minibatch_rows", "64", "--model.ppo.ppo_epochs", "1",
    "--data.battle.max_ticks", "300", "--checkpoint.every", "1",
]
SMALL = {"fit": SMALL_FIT, "test": ["--games", "2"], "predict": ["--games", "1"], "ladder": [], "--help": []}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a reader's: the configurations, and the files the README says to write."""
    desk = tmp_path_factory.mktemp("desk")
    (desk / "configs").symlink_to(ROOT / "configs")
    for body in PROGRAMS:
        if m := re.match(r"# (\w+\.py)\n", body):
            (desk / m[1]).write_text(body)
    return desk


def command(line: str) -> object:
    """Run a command of the README in this process, which spares a dozen starts of torch; its exit code."""
    word = shlex.split(line)[1:]
    small = list(SMALL.get(word[0], []))
    if word[0] == "fit":
        # A second process would be this one again, with pytest's arguments; tests/ranks has them.
        small += ["--trainer.devices", "1", "--trainer.strategy", "auto"]
    if "--ckpt_path" in word and word[0] == "fit":
        # Continuing must stay possible: one iteration more than the run already has.
        small[small.index("--stop.iterations") + 1] = "2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return main([*word, *small])
        except SystemExit as end:
            return end.code or 0


def test_the_readme_has_the_commands_we_promise() -> None:
    words = [shlex.split(c)[1] for c in COMMANDS]
    assert {"fit", "test", "predict"} <= set(words)
    assert "make train" in TEXT
    assert "make test" in TEXT


def test_the_commands_run_in_the_readmes_order(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk)
    monkeypatch.syspath_prepend(desk)
    for line in COMMANDS:
        start = time.time()
        assert command(line) == 0, line
        print(f"{time.time() - start:5.1f} s  {line}")
    run = desk / "runs" / "first_bot-1"
    assert (run / "config.yaml").exists()
    assert (run / "metrics.jsonl").exists()
    assert (run / "bot" / "actor.safetensors").exists()
    assert (run / "scores.json").exists()
    assert list((run / "replays").glob("*.html")), "predict writes a page per battle"
    assert (run / "report.html").exists()
    assert (desk / "bot.onnx").exists()


def test_the_programs_run(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (desk / "runs" / "first_bot-1").exists():
        # Another process ran the commands: the programs want the bot that they made.
        monkeypatch.chdir(desk)
        monkeypatch.syspath_prepend(desk)
        assert command(next(c for c in COMMANDS if " fit --config configs/first_bot.yaml" in c)) == 0
    for body in PROGRAMS:
        if body.startswith("# "):
            continue  # a file the commands above have used
        small = body.replace("SelfPlayModule()", "SelfPlayModule(ppo=PPOSettings(ppo_epochs=1))").replace(
            "SelfPlayData()", "SelfPlayData(BattleSpec(max_ticks=300), RolloutSettings(4, 64, 64))"
        ).replace("games=4", "games=2")
        head = "from royale_lightning import BattleSpec, PPOSettings, RolloutSettings\n"
        done = subprocess.run(
            [sys.executable, "-c", head + small], cwd=desk, capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == 0, f"{small}\n{done.stdout}\n{done.stderr}"


def test_the_sentences_of_the_troubleshooting_list_are_ours() -> None:
    section = (ROOT / "README.md").read_text().split("## When something goes wrong")[1].split("\n## ")[0]
    quoted = re.findall(r"^\| `([^`]+)`", section, re.MULTILINE)
    assert len(quoted) >= 10
    # A sentence in the source may be broken over lines: join its pieces.
    source = "\n".join(p.read_text() for p in (ROOT / "royale_lightning").rglob("*.py"))
    joined = re.sub(r'"\s*\n\s*f?"', "", source)
    alarms = {f"alarm {a.name}" for a in shipped_alarms()}
    for sentence in quoted:
        assert sentence in joined or sentence in alarms, sentence
