"""Made-up rows with the statistics of real battles: 6 towers and Poisson(6) units, at most 31."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from royale_lightning.battle.actions import ActionLayout
from royale_lightning.battle.rows.entities_layout import ENTITIES
from royale_lightning.battle.rows.layout import MASK, Field, RowLayout
from royale_lightning.nn import Inputs
from royale_lightning.nn.rows import unpack

ACTIONS = ActionLayout()
N_CARDS, N_TYPES = 145, 237
INPUTS = Inputs(ENTITIES, ACTIONS, N_CARDS, N_TYPES)
SPATIAL = RowLayout(
    "spatial/test",
    (Field("spatial", "float32", (20, 32, 18)), Field("vector", "float32", (1783,))),
    ACTIONS.n_actions,
)
SPATIAL_INPUTS = Inputs(SPATIAL, ACTIONS, N_CARDS, N_TYPES)


def random_mask(n: int, rng: np.random.Generator) -> np.ndarray:
    """bool ``[n, n_actions]``: half the slots legal, of those a fifth everywhere, the rest on the own half."""
    mask = np.ones((n, ACTIONS.n_actions), dtype=bool)
    grid = mask[:, 1:].reshape(n, ACTIONS.slots, ACTIONS.tiles_y, ACTIONS.tiles_x)
    grid[:, :, 15:] = rng.random((n, ACTIONS.slots, 1, 1)) < 0.2
    grid &= rng.random((n, ACTIONS.slots, 1, 1)) < 0.5
    return mask


def entity_rows(n: int, seed: int = 0) -> Tensor:
    """uint8 ``[n, row_bytes]``."""
    rng = np.random.default_rng(seed)
    rows = np.zeros((n, ENTITIES.row_bytes), np.uint8)
    v = ENTITIES.views(rows)
    for name, x in v.items():
        x[...] = rng.integers(0, 256 if x.dtype == np.uint8 else 4000, x.shape)
        if name in ("cycle", "enemy_recent", "enemy_seen"):
            x[...] = rng.integers(0, N_CARDS + 1, x.shape)
    v["units"][..., 0] = rng.integers(1, N_TYPES + 1, v["units"].shape[:2])
    v["units"][..., 15] = rng.integers(0, N_CARDS + 1, v["units"].shape[:2])
    v["spells"][..., 0] = rng.integers(1, N_CARDS + 1, v["spells"].shape[:2])
    v["projectiles"][..., 0] = rng.integers(1, N_CARDS + 2, v["projectiles"].shape[:2])
    v["small"][:, 8:10] = rng.integers(0, N_CARDS + 1, (n, 2))
    v["hand"][..., 0] = rng.integers(1, N_CARDS + 1, (n, 4))
    v["hand"][..., 1] = rng.integers(1, 10, (n, 4))
    used = {
        "unit": np.minimum(6 + rng.poisson(6, n), 31),
        "spell": np.minimum(rng.poisson(0.5, n), 8),
        "projectile": np.minimum(rng.poisson(2, n), 8),
    }
    for name, count in used.items():
        wide, narrow = v[f"{name}_wide"], v[f"{name}s"]
        wide[..., 0] = rng.integers(0, 18 * 1125 + 1, wide.shape[:2])
        wide[..., 1] = rng.integers(0, 32 * 1125 + 1, wide.shape[:2])
        on = (np.arange(narrow.shape[1]) < count[:, None])[..., None]
        wide *= on
        narrow *= on
    v[MASK][...] = np.packbits(random_mask(n, rng)[:, 1:], axis=-1)
    return torch.from_numpy(rows)


def entity_obs(n: int, seed: int = 0) -> dict[str, Tensor]:
    return unpack(entity_rows(n, seed), ENTITIES)


def spatial_obs(n: int, seed: int = 0) -> dict[str, Tensor]:
    rng = np.random.default_rng(seed)
    vector = rng.random((n, 1783), dtype=np.float32) * (rng.random((n, 1783)) < 0.05)
    for slot in range(4):
        at = 2 + slot * (N_CARDS + 1)
        vector[:, at : at + N_CARDS + 1] = np.eye(N_CARDS + 1)[rng.integers(0, N_CARDS + 1, n)]
    return {
        "spatial": torch.from_numpy(rng.poisson(0.05, (n, 20, 32, 18)).astype(np.float32)),
        "vector": torch.from_numpy(vector),
        MASK: torch.from_numpy(random_mask(n, rng)),
    }
