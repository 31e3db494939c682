"""Classes by their public names, and everything that was stored under an earlier one."""

from __future__ import annotations

import ast
import importlib
import json
from pathlib import Path

import pytest

from royale_lightning.battle import BattleSpec, prepare
from royale_lightning.battle.stamp import stamp_of
from royale_lightning.bots.bot_files import SHIPPED
from royale_lightning.nn import NETWORKS, EntityNetwork
from royale_lightning.parts import _EARLIER, Part, current_path, digest_path, part, public_path, renamed
from royale_lightning.run.identity import Identity

PACKAGE = Path(__file__).parents[1] / "royale_lightning"
STUBS = sorted(PACKAGE.rglob("__init__.pyi"))


@pytest.mark.parametrize(("public", "earlier"), _EARLIER.items())
def test_an_earlier_path_is_the_public_class(public: str, earlier: str) -> None:
    package, _, name = public.rpartition(".")
    found = getattr(importlib.import_module(package), name)
    assert public_path(found) == public == current_path(earlier) == current_path(public)
    assert digest_path(public) == digest_path(earlier) == earlier
    assert Part(earlier).resolve("here") is found


@pytest.mark.parametrize("stub", STUBS, ids=lambda p: p.parent.name)
def test_every_public_name_is_there_and_typed(stub: Path) -> None:
    package = importlib.import_module(".".join(stub.parent.relative_to(PACKAGE.parent).parts))
    names = [a.asname for node in ast.parse(stub.read_text()).body for a in node.names]  # type: ignore[attr-defined]
    assert sorted(package.__all__) == sorted(names) == sorted(set(names))
    for name in names:
        assert getattr(package, name) is not None


def test_parts_store_public_names() -> None:
    assert part(EntityNetwork, width=8)["class_path"] == NETWORKS["entity"] == "royale_lightning.nn.EntityNetwork"
    earlier = Part.of("royale_lightning.nn.entity.EntityNetwork", "model.network", NETWORKS)
    assert earlier.class_path == NETWORKS["entity"]
    spec = BattleSpec(reward="royale_lightning.battle.rewards.TowerResult")
    assert spec.as_dict() == BattleSpec().as_dict()
    assert spec.as_dict()["reward"]["class_path"] == "royale_lightning.battle.TowerResult"


def test_digests_outlive_a_move() -> None:
    """The bot in the package was written before its classes moved."""
    record = json.loads((SHIPPED["first_bot"] / "bot.json").read_text())
    earlier = "royale_lightning.battle.rewards.TowerResult"
    assert record["battle"]["reward"]["class_path"] == earlier
    spec = BattleSpec(**record["battle"])
    assert prepare(spec) is prepare(BattleSpec())
    assert prepare(spec).row_layout.digest == record["row_layout"]
    assert stamp_of(spec, "k") == stamp_of(BattleSpec(), "k")


def test_an_identity_of_earlier_names_is_the_same_run() -> None:
    now = Identity.of({"model": {"network": part(EntityNetwork)}}, {})
    then = {k: "royale_lightning.nn.entity.EntityNetwork" if k.endswith("class_path") else v
            for k, v in now.fixed.items()}
    assert then != now.fixed
    assert now.changes(Identity.from_dict({"fixed": then, "tunable": {}, "noted": {}})) == []


def test_configurations_of_earlier_names() -> None:
    then = {"trainer": {"callbacks": [{"class_path": "royale_lightning.callbacks.stop_after.StopAfter"}]}}
    assert renamed(then)["trainer"]["callbacks"][0]["class_path"] == "royale_lightning.callbacks.StopAfter"
