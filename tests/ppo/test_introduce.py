"""Cards a network never met begin as those it knows: after a warm start, and where a pool widens in the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from royalegym import STARTER_DECK

from royale_lightning.battle.decks import CardPool, Decks
from royale_lightning.battle.engine.engine import shared_engine
from royale_lightning.battle.kin import kin
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.bots.bot import Bot
from royale_lightning.bots.measure import Measure
from royale_lightning.cli import console as cli
from royale_lightning.cli.trainer_defaults import defaults
from royale_lightning.nn import EntityNetwork, build_network
from royale_lightning.parts import Part, part
from royale_lightning.ppo.module import SelfPlayModule
from royale_lightning.ppo.settings import PPOSettings
from royale_lightning.rollout.data import SelfPlayData, inputs_of
from royale_lightning.rollout.settings import RolloutSettings

DEBUG = Path(__file__).parents[2] / "configs" / "debug.yaml"
CARDS = {c.name: c.card_id for c in shared_engine().cards()}
STARTER = [CARDS[n] for n in STARTER_DECK]
TINY = Part("royale_lightning.nn.EntityNetwork", {"width": 16, "layers": 1, "heads": 2})
#: No step is seen in float32.
STILL = PPOSettings(ppo_epochs=1, learning_rate=1e-20, weight_average=0.5)


def table(module: Any, name: str = "card_table") -> torch.Tensor:
    found: torch.Tensor = getattr(module.tokens, name).weight.detach().clone()
    return found


def fit(tmp_path: Path, module: SelfPlayModule, deck: Any, iterations: int, *callbacks: Callback) -> None:
    trainer = Trainer(**defaults(
        run_dir=str(tmp_path / "run"), max_epochs=iterations, accelerator="cpu", enable_progress_bar=False,
        enable_model_summary=False, callbacks=list(callbacks),
    ))
    rollout = RolloutSettings(battles=4, rows_per_iteration=96, minibatch_rows=32, threads=1, source="inline")
    trainer.fit(module, SelfPlayData(BattleSpec(max_ticks=400, deck=deck), rollout))


def test_a_warm_start_with_more_cards_introduces_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bot = build_network(TINY.as_dict(), inputs_of(BattleSpec()), seed=4)
    Bot.of(bot, TINY, BattleSpec()).save(tmp_path / "bot")
    module = SelfPlayModule(TINY.as_dict(), STILL, init_from=str(tmp_path / "bot"))
    fit(tmp_path, module, "random", 1)
    old = table(bot)
    dealt = BattleSpec(deck="random").cards()
    likes = {new: known for new, known in kin(list(shared_engine().cards()), STARTER).items() if new in dealt}
    for now in (table(module.network), table(module.average)):
        assert torch.equal(now[[c + 1 for c in STARTER]], old[[c + 1 for c in STARTER]])
        assert all(torch.equal(now[new + 1], old[known + 1]) for new, known in likes.items())
    types = [str(t) for t in shared_engine().unit_types() or ()]
    units, before = table(module.network, "type_table"), table(bot, "type_table")
    assert torch.equal(units[types.index("Wizard") + 1], before[types.index("Musketeer") + 1])
    assert f"never met {len(likes)} of the cards" in capsys.readouterr().out


@pytest.mark.parametrize("deck", ["starter", list(reversed(STARTER_DECK))])
def test_a_warm_start_with_the_same_cards_changes_nothing(deck: Any, tmp_path: Path) -> None:
    bot = build_network(TINY.as_dict(), inputs_of(BattleSpec()), seed=4)
    Bot.of(bot, TINY, BattleSpec()).save(tmp_path / "bot")
    module = SelfPlayModule(TINY.as_dict(), STILL, init_from=str(tmp_path / "bot"))
    fit(tmp_path, module, deck, 1)
    assert torch.equal(table(module.network), table(bot))


def test_what_is_only_measured_is_introduced_too(tmp_path: Path) -> None:
    bot = build_network(TINY.as_dict(), inputs_of(BattleSpec()), seed=4)
    Bot.of(bot, TINY, BattleSpec()).save(tmp_path / "bot")
    module = SelfPlayModule(TINY.as_dict(), STILL, init_from=str(tmp_path / "bot"))
    pool = CardPool(cards=[*STARTER_DECK, "Wizard"], widen=[[0, 8], [300, 9]])
    data = SelfPlayData(BattleSpec(deck=Decks(own=pool)), RolloutSettings(battles=4))
    data.measure = Measure("validate", 2, 1, tmp_path)
    Trainer(**defaults(run_dir=str(tmp_path / "run"), accelerator="cpu", enable_progress_bar=False)).validate(
        module, data, verbose=False
    )
    assert torch.equal(table(module.network)[CARDS["Wizard"] + 1], table(bot)[CARDS["Musketeer"] + 1])


def test_a_pool_that_widens_introduces_the_newcomers_once(tmp_path: Path) -> None:
    class Tables(Callback):
        def __init__(self) -> None:
            self.seen: list[tuple[int, torch.Tensor]] = []

        def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
            self.seen.append((trainer.datamodule.game_steps, table(pl_module.network)))  # type: ignore[attr-defined]

    pool = [*STARTER_DECK, "Wizard", "Rocket"]
    seen = Tables()
    module = SelfPlayModule(part(EntityNetwork, **TINY.init_args), STILL)
    fit(tmp_path, module, Decks(own=CardPool(cards=pool, widen=[[0, 8], [300, 10]])), 5, seen)
    wide = next(i for i, (steps, _) in enumerate(seen.seen) if steps >= 300) + 1
    assert 0 < wide < 5, seen.seen
    first, then = seen.seen[0][1], seen.seen[-1][1]
    assert torch.equal(seen.seen[wide - 1][1], first)
    for new, known in (("Wizard", "Musketeer"), ("Rocket", "Fireball")):
        assert not torch.equal(first[CARDS[new] + 1], first[CARDS[known] + 1])
        assert torch.equal(then[CARDS[new] + 1], first[CARDS[known] + 1])
    others = [c + 1 for n, c in CARDS.items() if n not in ("Wizard", "Rocket")]
    assert torch.equal(first[others], then[others])


def test_resume_is_exact_around_a_widening(capsys: pytest.CaptureFixture[str]) -> None:
    deck = {"own": {"cards": [*STARTER_DECK, "Wizard", "Rocket"], "widen": [[0, 8], [1000, 10]]}}
    where = ("--config", str(DEBUG), "--iterations", "2+2", "--data.battle.deck", json.dumps(deck))
    assert cli.main(["verify-resume", *where]) == 0, capsys.readouterr()
