"""Exported bots answer as the bot does, in another runtime."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from royale_lightning.battle.rows.row_codecs import pack_row
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.bots.bot import Bot
from royale_lightning.cli import console as cli
from royale_lightning.errors import UserError
from royale_lightning.nn import ActorCritic, Inputs, Observation
from royale_lightning.nn.rows import unpack
from royale_lightning.parts import Part
from royale_lightning.tools.export import TOLERANCE, decisions_of, export_bot
from tests.support.bots import make_bot

ENTITY = Part("royale_lightning.nn.EntityNetwork", {"width": 16, "layers": 1})
CONV = Part("royale_lightning.nn.ConvNetwork", {"channels": 8, "blocks": 1})
REFLEX = Part("tests.support.bots.Reflex")
# torch's own exporter, on its own internals.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    import logging

    level = logging.getLogger("torch.onnx").level
    yield
    logging.getLogger("torch.onnx").setLevel(level)


@pytest.mark.parametrize("network", [REFLEX, pytest.param(ENTITY, marks=pytest.mark.slow)])
def test_onnx_runtime_plays_the_bots_battle(tmp_path: Path, network: Part) -> None:
    ort = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    make_bot(network=network).save(tmp_path / "bot")
    code = cli.main([
        "export", str(tmp_path / "bot"), "--to", "onnx", "--out", str(tmp_path / "bot.onnx"), "--json",
        str(tmp_path / "r.json"),
    ])
    assert code == 0
    result = json.loads((tmp_path / "r.json").read_text())["result"]
    assert result["actions_equal"]
    assert result["largest_difference"] <= TOLERANCE
    session = ort.InferenceSession(str(tmp_path / "bot.onnx"))
    meta = session.get_modelmeta().custom_metadata_map
    assert json.loads(meta["bot"])["game_steps"] == 1234
    described = {i["name"]: i for i in json.loads(meta["inputs"])}
    assert described["action_mask"]["shape"] == [2305]
    # Straight from RoyaleGym, one seat and one decision at a time: what a user of the file does.
    bot = Bot.load(tmp_path / "bot")
    env = bot.make_env()
    obs, _ = env.reset(seed=3)
    rng, asked = np.random.default_rng(0), 0
    while asked < 12:
        actions = {}
        for seat in env.agents:
            mask = obs[seat]["action_mask"]
            u = rng.random((1, 2))
            feed = {
                n: np.asarray(obs[seat][n]).astype(i["dtype"])[None] for n, i in described.items() if n != "uniforms"
            }
            action, log_probs = session.run(None, {**feed, "uniforms": u})
            assert mask[action[0]] == 1
            assert np.exp(log_probs[0][mask == 1].astype(np.float64)).sum() == pytest.approx(1.0, abs=1e-4)
            if mask[1:].any():
                row = np.zeros((1, bot.layout.row_bytes), np.uint8)
                pack_row(bot.layout, obs[seat], mask, row[0])
                assert action[0] == bot.choose(row, u)[0]
                asked += 1
            actions[seat] = int(action[0])
        obs, *_ = env.step(actions)


@pytest.mark.parametrize(
    ("observation", "network"),
    [
        ("entities", REFLEX),
        pytest.param("entities", ENTITY, marks=pytest.mark.slow),
        pytest.param("spatial", CONV, marks=pytest.mark.slow),
    ],
)
def test_torch_file_sharp_and_any_batch(tmp_path: Path, observation: str, network: Part) -> None:
    bot = make_bot(spec=BattleSpec(observation=observation), network=network).sharp()
    result = export_bot(bot, "torch", tmp_path / "bot.pt2")
    assert result["actions_equal"]
    extra = {"bot": "", "inputs": ""}
    policy = torch.export.load(str(tmp_path / "bot.pt2"), extra_files=extra).module()
    assert json.loads(extra["bot"])["run"] == "tiny"
    rows, uniforms = decisions_of(bot)
    for n in (1, 7):
        obs = unpack(torch.from_numpy(rows[:n]), bot.layout)
        inputs = [obs[i["name"]] for i in json.loads(extra["inputs"]) if i["name"] != "uniforms"]
        action, _ = policy(*inputs, torch.from_numpy(uniforms[:n]))
        assert (action.numpy() == bot.choose(rows[:n], uniforms[:n])).all()


class Branching(ActorCritic):
    """Looks at its numbers to decide what to do, which no graph can hold."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.n = inputs.actions.n_actions
        self.w = torch.nn.Linear(12, 1)

    def forward(self, obs: Observation) -> tuple[Tensor, Tensor]:
        x = self.w(obs["wide"].float())
        sign = 1.0 if float(x.sum()) > 0 else -1.0
        return x.expand(-1, self.n) * sign, x[:, 0]


def test_what_cannot_be_exported_is_one_sentence(tmp_path: Path) -> None:
    bot = make_bot(network=Part("tests.tools.test_export.Branching"))
    with pytest.raises(UserError, match=r"Branching has no graph for every batch size"):
        export_bot(bot, "torch", tmp_path / "x.pt2")
    assert not list(tmp_path.iterdir()), "nothing half-written stays"


def test_a_file_that_answers_otherwise_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from royale_lightning.tools import export

    real = export._write_torch

    def off(*args: object) -> tuple[np.ndarray, np.ndarray]:
        action, log_probs = real(*args)  # type: ignore[arg-type]
        return action, log_probs + 1e-3

    monkeypatch.setattr(export, "_write_torch", off)
    with pytest.raises(UserError, match="would answer otherwise than the bot"):
        export_bot(make_bot(), "torch", tmp_path / "x.pt2")
    assert not list(tmp_path.iterdir())
