"""The stand-ins of ``tests/cli``, and a run in an empty folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def fit(tmp_path: Path) -> Callable[..., Any]:
    """``fit(data=..., ckpt_path=..., **trainer settings)`` -> ``(trainer, module, data)``."""
    from lightning.pytorch import Trainer

    from royale_lightning.cli.trainer_defaults import defaults
    from tests.support import tiny_run

    def run(data: Any = None, ckpt_path: Any = None, module: Any = None, **settings: Any) -> Any:
        settings.setdefault("default_root_dir", tmp_path)
        settings.setdefault("enable_model_summary", False)
        trainer = Trainer(**defaults(**settings))
        module = module or tiny_run.TinyModule()
        data = data or tiny_run.TinyData()
        trainer.fit(module, datamodule=data, ckpt_path=ckpt_path)
        return trainer, module, data

    return run
