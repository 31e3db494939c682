"""What decides a run, by value."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, StrEnum
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.errors import UserError
from royale_lightning.parts import Part, part
from royale_lightning.run.identity import FIXED, NOTED, TUNED, Identity, own_code
from royale_lightning.run.values import flat, plain, user_code

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
        "from royale_lightning.parts import Part; from royale_lightning.run.values import plain; "
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


class Lane(Enum):
    LEFT = "left"
    RIGHT = "right"


class Tempo(StrEnum):
    SLOW = "slow"


@dataclass(frozen=True)
class Other:
    a: int = 1
    b: tuple[int, ...] = (1, 2)


#: Pairs of values that differ, and that a name of their class alone would make equal.
PAIRS = [
    (Path("a/x"), Path("a/y")),
    (Lane.LEFT, Lane.RIGHT),
    (Tempo.SLOW, "slow"),
    (np.array([1.0, 2.0]), np.array([1.0, 3.0])),
    (np.array([1.0, 2.0]), np.array([[1.0, 2.0]])),
    (np.array([1, 0], np.int32), np.array([1], np.int64)),
    (np.float32(0.1), np.float32(0.2)),
    (np.datetime64("2026-01-01"), np.datetime64("2026-01-02")),
    (torch.tensor([1.0]), torch.tensor([2.0])),
    (torch.tensor([1.0]).bfloat16(), torch.tensor([1.0])),
    (torch.float32, torch.float64),
    ({1, 2}, {1, 3}),
    ({Lane.LEFT}, {Lane.RIGHT}),
    (Group(), Other()),
    (Group(b=(1,)), Group(b=(2,))),
    ({"deep": [{"in": Group(2)}]}, {"deep": [{"in": Group(3)}]}),
    ([Path("x"), {"k": {Lane.LEFT}}], [Path("x"), {"k": {Lane.RIGHT}}]),
    (b"a", b"b"),
    (timedelta(1), timedelta(2)),
    (Fraction(1, 3), Fraction(1, 2)),
    (range(2), range(3)),
    (json.dumps, json.loads),
    (np.mean, np.sum),
    (Group, Other),
    (partial(round, ndigits=1), partial(round, ndigits=2)),
    ({Lane.LEFT: 1}, {Lane.RIGHT: 1}),
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: type(pair[0]).__name__)
def test_values_of_every_kind_count(pair: tuple[Any, Any]) -> None:
    for give in (lambda x: {"x": x}, lambda x: {"x": part("not.there.Part", y=1), "y": [x]}, lambda x: {"x": {"y": x}}):
        one, other = (Identity.of(give(x), {}) for x in pair)
        again = Identity.of(give(copy.deepcopy(pair[0])), {})
        assert one == again
        assert one.digest != other.digest
        assert one.changes(other)
        assert json.loads(json.dumps(one.as_dict())) == one.as_dict(), "a checkpoint and a log hold it as it is"
    assert type(plain(np.float64(0.5))) is float, "torch loads no other number safely"


def test_equal_sets_are_written_alike_in_every_process() -> None:
    code = (
        "from pathlib import Path; from royale_lightning.run.values import plain; "
        "print(plain({'b', 'a', 'c', 1, None, (2, 'x')}), plain({Path('p'), Path('q')}), plain(len), plain(Path))"
    )
    env = os.environ
    said = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                       env={**env, "PYTHONHASHSEED": str(seed)}).stdout
        for seed in range(3)
    }
    assert len(said) == 1


def local() -> Any:
    scale = 2

    def scaled(x: int) -> int:
        return scale * x

    return scaled


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (object(), "a builtins.object"), (lambda x: x, "a function without a name of its own"),
        (local(), "a function without a name of its own"), (np.random.default_rng(1), "a numpy.random._generator.Gen"),
        (iter([]), "a builtins.list_iterator"), (np.array([object()]), "a numpy.ndarray"),
    ],
)
def test_what_has_no_value_is_refused_by_name(value: Any, what: str) -> None:
    with pytest.raises(UserError, match=rf"^data\.own\.1\.it is {re.escape(what)}.*; give plain values"):
        Identity.of({"data": {"own": [1, {"it": value}]}}, {})


def test_two_names_for_one_setting_are_refused() -> None:
    with pytest.raises(UserError, match="written alike"):
        plain({1: "a", "1": "b"})
    with pytest.raises(UserError, match=r"^a\.b names two settings"):
        Identity.of({"a.b": 1, "a": {"b": 2}}, {})


def test_an_odd_default_is_no_reason_to_refuse_a_part(mine: Any) -> None:
    code = "NOTHING = object()\n\nclass Mine:\n    def __init__(self, x=NOTHING, y=lambda: 1):\n        pass\n"
    assert mine(code=code)["init_args"] == {"x": "builtins.object:", "y": "builtins.function:"}


def test_a_nan_is_itself_and_an_unset_field_is_not_the_word() -> None:
    one = Identity.of({"x": float("nan")}, {})
    assert one.changes(Identity.of({"x": float("nan")}, {})) == []
    assert Identity.of({"x": "unset"}, {}).changes(Identity.of({}, {}))


def test_an_identity_from_before_values_is_not_held_against_a_run() -> None:
    now = Identity.of({"data": {"bank": Path("a"), "lanes": [Lane.LEFT], "seed": 1, "f": json.dumps}}, {})
    old = {"data.bank": "pathlib.PosixPath:", "data.lanes": ["tests.run.test_identity.Lane:"], "data.seed": 2}
    before = Identity.from_dict({"fixed": {**old, "data.f": "builtins.function:dumps"}, "tunable": {}, "noted": {}})
    assert [c.field for c in now.changes(before)] == ["data.seed"]
    assert Identity.from_dict(now.as_dict()).changes(now) == []


def test_our_own_code_has_a_digest() -> None:
    assert own_code() == own_code() != ""
