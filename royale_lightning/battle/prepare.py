"""What follows from a battle's settings: how rows and actions are laid out, which arena plays it, its digest.

Some of it costs seconds (an observation of a user's own is played to see how it is stored), so it is worked out once a
process for equal settings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from gymnasium import spaces
from royalegym.env import AGENTS

from ..errors import UserError
from ..parts import digest_path
from .actions import ActionLayout
from .engine.engine import engine_identity, shared_engine
from .environment import make_env
from .rewards import linear_terms
from .rows.codec import Seen, decide
from .rows.entities_layout import ENTITIES
from .rows.layout import MASK, Field, RowLayout
from .rows.spatial_row import spatial_layout
from .spec import PARTS, BattleSpec

#: Observations with a compiled row encoder, by the class that RoyaleGym's environment builds them with.
COMPILED = {
    "royale_lightning.battle.rows.entities.EntitiesObsBuilder": "entities",
    "royalegym.obs.SpatialObsBuilder": "spatial",
}
#: Keys of an observation that repeat the mask; a row stores the mask once, packed.
MASK_KEYS = (MASK, "mask_planes", "ability_ready")


class PreparedBattle:
    """One kind of battle, bound to this process's engine; :func:`prepare` gives it.

    Args:
        spec: its settings.
        row_layout: another process's, used instead of working it out here.
    """

    def __init__(self, spec: BattleSpec, row_layout: RowLayout | None = None) -> None:
        self.spec = spec
        self._row_layout = row_layout

    @cached_property
    def shipped_observation(self) -> str:
        """``entities`` or ``spatial`` where the observation is exactly that one, by whatever name; else empty."""
        part = self.spec.part("observation")
        if part is None or part.init_args:
            return ""
        cls = part.resolve("battle.observation")
        return COMPILED.get(f"{cls.__module__}.{cls.__qualname__}", "")

    @cached_property
    def batched(self) -> bool:
        """Whether the batched arena plays exactly these settings."""
        s = self.spec
        return (
            s.arena == "auto"
            and bool(self.shipped_observation)
            and s.termination is None
            and s.truncation is None
            and s.actions is None
            and s.command_delay_ticks == 0
            and not (s.start is not None and _has_forms(s.make_start().config()))
            and linear_terms(s.make_reward()) is not None
        )

    @cached_property
    def action_layout(self) -> ActionLayout:
        """The action space's shape, from the parser bound to the engine."""
        if self.spec.actions is None:
            return ActionLayout()
        parser = self.spec.make_actions()
        parser.bind(shared_engine())
        planes = parser.mask_plane_shape()
        n = int(parser.space.n)
        if planes is None:
            # One tile of no slot: a grid without cells divides by nothing.
            return ActionLayout(slots=0, tiles_y=1, tiles_x=1, buttons=n - 1)
        slots, ny, nx = planes
        return ActionLayout(slots, ny, nx, n - 1 - slots * ny * nx)

    @cached_property
    def row_layout(self) -> RowLayout:
        """How this observation is stored."""
        return self._row_layout or self._frame_layout().stacked(self.spec.frame_stack)

    def _frame_layout(self) -> RowLayout:
        if self.shipped_observation == "entities":
            return ENTITIES
        n_actions = self.action_layout.n_actions
        if self.shipped_observation == "spatial":
            return spatial_layout(n_actions)
        part = self.spec.part("observation")
        assert part is not None
        if self.spec.codec_states:
            return _played_layout(_observed(self.spec))
        fields = [Field(k, str(s.dtype), s.shape) for k, s in observation_boxes(self.spec).items()]
        fields.sort(key=lambda f: (-np.dtype(f.dtype).itemsize, f.name))
        return RowLayout(part.class_path, tuple(fields), n_actions)

    @cached_property
    def digest(self) -> str:
        """16 hex digits over the settings by value and the engine that plays them."""
        settings = digested(self.spec.as_dict())
        text = json.dumps([settings, engine_identity(), self.row_layout.digest], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def digested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A battle's settings by value, its parts named as digests name them for good (``parts.digest_path``)."""
    named = {k: {**v, "class_path": digest_path(v["class_path"])} for k, v in settings.items() if k in PARTS and v}
    return {**settings, **named}


class _Same:
    """Settings that are equal by value, classes of a notebook's cell included: one run again is another class."""

    def __init__(self, spec: BattleSpec) -> None:
        self.spec = spec
        self.key = (json.dumps(spec.as_dict(), sort_keys=True, default=repr), *(_class(spec, n) for n in PARTS))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def _class(spec: BattleSpec, name: str) -> type | None:
    part = spec.part(name)
    try:
        return None if part is None else part.resolve(f"battle.{name}")
    except UserError:  # of a reward that is gone, say: whoever needs the class says so
        return None


_PREPARED: dict[_Same, PreparedBattle] = {}


def prepare(spec: BattleSpec, row_layout: RowLayout | None = None) -> PreparedBattle:
    """What follows from ``spec``; the same object for equal settings.

    Args:
        row_layout: another process's, used in this one from here on: every process must write the same bytes.

    """
    same = _Same(spec)
    if row_layout is not None or same not in _PREPARED:
        _PREPARED[same] = PreparedBattle(spec, row_layout)
    return _PREPARED[same]


def validate(spec: BattleSpec) -> None:
    """Build every part once and bind it to the engine, so that a mistake shows before training starts.

    Raises:
        UserError: one sentence that names the setting.
    """
    spec.check_deck()
    try:
        env = make_env(spec)
        env.reset(seed=0)
    except UserError:
        raise
    except Exception as exc:
        raise UserError(
            f"these battle settings do not start a battle: {type(exc).__name__}: {exc} "
            f"({culprit(exc, spec) or 'see battle in the configuration'})"
        ) from exc


def culprit(exc: BaseException, spec: BattleSpec) -> str | None:
    """``"battle.reward, my_parts.Mine"``: the part an exception is to be blamed on.

    That is the part whose code stands in the traceback; else, where RoyaleGym raised, whatever part is a user's own:
    a reward that returns a string is found out there.
    """
    files = []
    tb = exc.__traceback__
    while tb is not None:
        files.append(tb.tb_frame.f_code.co_filename.replace("\\", "/"))
        tb = tb.tb_next
    own = []
    for name in PARTS:
        part = spec.part(name)
        if part is None:
            continue
        module = part.resolve(f"battle.{name}").__module__
        if any(module.replace(".", "/") in f for f in files) or (part.in_main and any("<" in f for f in files)):
            return f"battle.{name}, {part.class_path}"
        if module.split(".")[0] not in ("royalegym", "royale_lightning"):
            own.append(f"battle.{name}, {part.class_path}")
    return " or ".join(own) if own and files and "/royalegym/" in files[-1] else None


def observation_boxes(spec: BattleSpec) -> dict[str, spaces.Box]:
    """The declared space of every key but the mask's, from the builder bound to the engine.

    Raises:
        UserError: a key is no ``Box``.
    """
    parser = spec.make_actions()
    builder = spec.make_observation()
    parser.bind(shared_engine())
    builder.bind(shared_engine(), parser)
    found = {}
    for key, space in builder.observation_space().spaces.items():
        if key in MASK_KEYS:
            continue
        if not isinstance(space, spaces.Box):
            raise UserError(
                f"battle.observation: key {key!r} is a {type(space).__name__}, and rows hold arrays; make it a Box"
            )
        found[key] = space
    return found


def _has_forms(config: Any) -> bool:
    """Whether a start's settings name evolved or hero forms, however deep."""
    if isinstance(config, dict):
        return bool(config.get("forms")) or any(_has_forms(v) for v in config.values())
    return isinstance(config, list | tuple) and any(_has_forms(v) for v in config)


# ---- an observation of a user's own ----------------------------------------------------------------------------
def _observed(spec: BattleSpec) -> _Same:
    """The battles whose states decide how an observation is stored: all that decides what it shows, and no more."""
    observation, actions = spec.part("observation"), spec.part("actions")
    assert observation is not None
    return _Same(BattleSpec(
        deck="random", observation=observation.as_dict(), actions=None if actions is None else actions.as_dict(),
        decision_ms=spec.decision_ms, command_delay_ticks=spec.command_delay_ticks, arena="env",
        codec_states=spec.codec_states,
    ))


@lru_cache(maxsize=4)
def _played_layout(same: _Same) -> RowLayout:
    """The layout of an observation, from ``codec_states`` played states.

    Raises:
        UserError: the observation is no ``Dict`` of boxes, or holds a number that is not finite.
    """
    spec = same.spec
    validate(spec)
    boxes = observation_boxes(spec)
    part = spec.part("observation")
    assert part is not None
    seen = {k: Seen(box.shape[0] if len(box.shape) > 2 else 1) for k, box in boxes.items()}
    for obs in _states(make_env(spec), spec.codec_states):
        for key, box in boxes.items():
            value = np.asarray(obs[key])
            if value.shape != box.shape:
                raise UserError(f"observation key {key!r} has shape {value.shape}; its space declares {box.shape}")
            try:
                seen[key].see(value)
            except ValueError as exc:
                raise UserError(f"battle.observation: {part.class_path}: key {key!r} {exc}") from exc
    return decide(boxes, seen, part.class_path, PreparedBattle(spec).action_layout.n_actions)


def _states(env: Any, count: int) -> Iterator[Mapping[str, Any]]:
    """Observations of both seats in battles that random-legal bots play, eager and lazy ones in turn."""
    rng = np.random.default_rng(0)
    played = battle = 0
    while True:
        noop = (0.5, 0.9)[battle % 2]
        obs, _ = env.reset(seed=battle)
        battle += 1
        while True:
            for agent in AGENTS:
                yield obs[agent]
            played += 2
            if played >= count:
                return
            if not env.agents:
                break
            acts = {}
            for agent in AGENTS:
                legal = np.flatnonzero(obs[agent][MASK])
                acts[agent] = int(rng.choice(legal)) if len(legal) > 1 and rng.random() > noop else 0
            obs, *_ = env.step(acts)
