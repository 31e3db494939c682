"""RoyaleLearn's side of ``bench train``, in a process of its own."""

from __future__ import annotations

from typing import Any


def build_env() -> Any:
    """The environment RoyaleLearn trains in: RoyaleGym's own defaults, so the real engine and the starter deck."""
    from royalegym import make_env

    return make_env()


def run(folder: str, seed: int) -> None:
    """Train RoyaleLearn's ``Learner`` with its defaults, until the process is ended."""
    from royalelearn import Learner

    Learner(build_env, save_dir=folder, seed=seed).learn(total_steps=10**12)
