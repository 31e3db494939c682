"""What decides a run, by value."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.parts import Part, part
from royale_lightning.run.identity import FIXED, NOTED, TUNED, Identity, flat, own_code, plain, user_code

CODE = """\
from helper import SCALE

class Mine:
    def __init__(self, scale=SCALE, name="a"):
        self.scale = scale
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``mine(scale)`` writes a user's two modules anew and gives the part by value."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(scale: int = 2, code: str = CODE, **init_args: Any) -> Any:
        (tmp_path / "helper.py").write_text(f"SCALE = {scale}\n")
        (tmp_path / "own_parts.py").write_text(code)
        for name in ("helper", "own_parts"):
            sys.modules.pop(name, None)
        sys.dont_write_bytecode = True
        return plain(Part("own_parts.Mine", init_args))

    yield write
    for name in ("helper", "own_parts"):
        sys.modules.pop(name, None)


def test_a_part_is_its_class_its_arguments_and_its_code(mine: Any) -> None:
    first = mine()
    assert first["init_args"] == {"name": "a", "scale": 2}
    assert mine() == first
    assert mine(scale=2, name="a") == first, "a default written out is the same value"
    assert mine(scale=3) != first, "a default that changed in the code"
    assert mine(code=CODE + "\n# changed\n")["code"] != first["code"]


def test_a_module_it_draws_on_counts(mine: Any, tmp_path: Path) -> None:
    code = "import helper\n\nclass Mine:\n    pass\n"
    assert mine(scale=2, code=code) != mine(scale=3, code=code)


def test_installed_code_is_named_by_its_version() -> None:
    from royalegym.reward import TowerHPReward

    from royale_lightning.battle.rewards import REWARDS

    assert user_code(TowerHPReward) == ""
    assert user_code(Part.of("potential", "", REWARDS).resolve("")) == ""
    assert "code" not in plain(part(TowerHPReward))


def test_another_process_says_the_same(mine: Any, tmp_path: Path) -> None:
    here = Identity.of({"reward": mine()}, {}).digest
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from royale_lightning.run.identity import *; "
        "print(Identity.of({'reward': plain(Part('own_parts.Mine'))}, {}).digest)"
    )
    out = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == here


@dataclass(frozen=True)
class Group:
    a: int = 1
    b: tuple[int, ...] = (1, 2)


def identity(**more: Any) -> Identity:
    ppo = {"learning_rate": {"linear": [1.0, 0.1]}, "gamma": 0.9, "kl_limit": 0.03, "entropy_play": 0.1}
    rollout = {"battles": 4, "workers": 2, "threads": None, "source": "auto"}
    deciding: dict[str, Any] = {"model": {"ppo": ppo}, "data": {"rollout": rollout, "group": Group()}}
    deciding["model"]["auxiliary"] = {"own": {"class_path": "not.there", "init_args": {"weight": 1.0, "size": 3}}}
    for key, value in more.items():
        where = deciding
        *path, last = key.split("__")
        for p in path:
            where = where[int(p)] if isinstance(where, list) else where[p]
        where[last] = value
    return Identity.of(deciding, {"torch_threads": 1})


def test_where_battles_step_is_no_part() -> None:
    other = identity(data__rollout__workers=7, data__rollout__source="processes", data__rollout__threads=3)
    assert other.digest == identity().digest
    assert other.changes(identity()) == []


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("model__ppo__gamma", 0.8, FIXED),
        ("data__rollout__battles", 5, FIXED),
        ("data__group", Group(2), FIXED),
        ("model__auxiliary__own__init_args__size", 4, FIXED),
        ("model__ppo__learning_rate", 0.5, TUNED),
        ("model__ppo__kl_limit", None, TUNED),
        ("model__auxiliary__own__init_args__weight", 0.5, TUNED),
    ],
)
def test_a_change_is_of_its_kind(key: str, value: Any, kind: str) -> None:
    now = identity(**{key: value})
    changes = now.changes(identity())
    assert {c.kind for c in changes} == {kind}
    assert now.digest != identity().digest


def test_a_noted_change_leaves_the_digest() -> None:
    now = Identity(identity().fixed, identity().tunable, {"torch_threads": 2})
    assert [(str(c), c.kind) for c in now.changes(identity())] == [("torch_threads 1 -> 2", NOTED)]
    assert now.digest == identity().digest
    assert Identity.from_dict(now.as_dict()) == now


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=2), x, max_size=3),
    max_leaves=12,
))
def test_plain_values_stay_and_flatten_once(value: Any) -> None:
    assert plain(value) == value
    fields = flat({"x": plain(value)})
    assert flat(fields) == fields


def test_our_own_code_has_a_digest() -> None:
    assert own_code() == own_code() != ""
