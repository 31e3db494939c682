"""Every random draw of the package comes from a named stream: read from its source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "royale_lightning"
#: Where global generators are named, and why that is right.
ALLOWED = {
    # Weights: inside build.seeded, which puts the global generator at a named seed and back.
    "nn/build.py": {"torch.manual_seed", "torch.random.fork_rng"},
    "nn/entity.py": {"torch.randn", "nn.init.zeros_"},
    "nn/conv.py": {"torch.randn", "nn.init.normal_", "nn.init.zeros_"},
    "nn/entity_tokens.py": {"nn.init.normal_"},
    "nn/entity_critic.py": {"nn.init.normal_", "nn.init.zeros_"},
    # States of a user's code, saved and restored; nothing is drawn.
    "callbacks/checkpoint.py": {
        "np.random.get_state", "np.random.set_state", "random.getstate", "random.setstate",
    },
    "battle/streams.py": {"np.random.Generator", "np.random.PCG64"},
    # RoyaleGym's own seeding of an evaluated battle, so that both play the same one.
    "battle/steps/arena.py": {"np.random.default_rng"},
    "bots/evaluate.py": {"np.random.default_rng"},
    # Constants: the same interval and the same sample of states for the same data.
    "metrics/intervals.py": {"np.random.default_rng"},
    "battle/prepare.py": {"np.random.default_rng"},
    "tools/export.py": {"np.random.default_rng"},
}
_TORCH = {
    "rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson", "rand_like", "randn_like",
    "manual_seed", "seed", "dropout",
}
_IN_PLACE = {"normal_", "uniform_", "bernoulli_", "exponential_", "random_", "trunc_normal_", "geometric_", "cauchy_"}

_OTHER = {"os.urandom", "uuid.uuid4", "uuid.uuid1", "Random", "default_rng", "seed_everything"}


def draws(path: Path) -> set[str]:
    """Dotted names in a module that draw from, or seed, a generator nobody handed over."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        head, _, last = name.rpartition(".")
        keywords = {k.arg for k in node.keywords}
        if "(" in head:  # a method of what another call gave, which is looked at by itself
            continue
        by_name = ("random.", "np.random.", "numpy.random.", "secrets.", "torch.random.", "nn.init.")
        unowned = (head in ("torch", "F") and last in _TORCH) or last in _IN_PLACE
        if name.startswith(by_name) or name in _OTHER or (unowned and "generator" not in keywords):
            found.add(name)
    return found


SOURCES = sorted(p for p in PACKAGE.rglob("*.py") if "tools/bench" not in p.as_posix())


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_no_draw_but_from_named_streams(path: Path) -> None:
    name = path.relative_to(PACKAGE).as_posix()
    assert draws(path) - ALLOWED.get(name, set()) == set()


def test_the_scan_sees_draws(tmp_path: Path) -> None:
    code = tmp_path / "x.py"
    code.write_text(
        "import random, torch, numpy as np\nrandom.random()\nnp.random.rand(3)\ntorch.randperm(3)\n"
        "torch.randperm(3, generator=g)\nx.normal_()\nx.uniform_(generator=g)\nrng.random()\nF.dropout(x)\n"
    )
    assert draws(code) == {"random.random", "np.random.rand", "torch.randperm", "x.normal_", "F.dropout"}


def test_no_allowance_outlives_its_use() -> None:
    for name, allowed in ALLOWED.items():
        assert allowed <= draws(PACKAGE / name), name
