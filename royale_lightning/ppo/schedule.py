"""Numbers that change over a run, as pure functions of progress.

A schedule knows nothing but the run's progress in [0, 1], so a resumed run reads what the uninterrupted one
would have read. In YAML a scheduled setting is a number, or a mapping from a schedule's name to its
arguments::

    learning_rate: {linear: [7.0e-4, 7.0e-5]}        # or {linear: {start: 7.0e-4, end: 7.0e-5}}
    gamma: {geometric: [0.997, 0.999]}
    entropy_play: {piecewise: [[0.0, 0.01], [0.5, 0.003]]}
    clip_range: {class_path: my_package.MySchedule, init_args: {knee: 0.3}}
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

from ..errors import UserError, near_matches
from ..parts import Part

#: What a scheduled setting accepts; :func:`schedule_of` reads it.
Scheduled = float | dict[str, Any]


@runtime_checkable
class Schedule(Protocol):
    """A pure function of progress, and of nothing else."""

    def __call__(self, progress: float) -> float:
        """The number at ``progress`` in [0, 1]."""


def progress(game_steps: int, horizon_game_steps: int) -> float:
    """Share of the horizon done, ``min(1, game_steps / horizon)``. Past the horizon every schedule stays at
    its end.

    Args:
        game_steps: engine advances so far, counted once per battle and summed over ranks.
        horizon_game_steps: the run's horizon, at least 1.
    """
    return min(1.0, game_steps / horizon_game_steps)


@dataclass(frozen=True)
class Constant:
    """The same number throughout."""

    value: float

    def __call__(self, progress: float) -> float:
        return self.value


@dataclass(frozen=True)
class Linear:
    """A straight line from ``start`` to ``end``."""

    start: float
    end: float

    def __call__(self, progress: float) -> float:
        return self.start + (self.end - self.start) * progress


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from ``start`` to ``end``: flat at both ends (Loshchilov and Hutter 2017, eq. 5)."""

    start: float
    end: float

    def __call__(self, progress: float) -> float:
        return self.end + (self.start - self.end) * 0.5 * (1.0 + math.cos(math.pi * progress))


@dataclass(frozen=True)
class Geometric:
    """``1 - value`` moves geometrically from ``1 - start`` to ``1 - end``.

    Made for gamma: the horizon ``1 / (1 - gamma)`` then grows by the same factor in each part of the run, as
    OpenAI Five lengthened its own while it learned (Berner et al. 2019).
    """

    start: float
    end: float

    def __post_init__(self) -> None:
        if not (self.start < 1.0 and self.end < 1.0):
            raise UserError(f"geometric needs a start and an end below 1, were {self.start} and {self.end}")

    def __call__(self, progress: float) -> float:
        return 1.0 - (1.0 - self.start) ** (1.0 - progress) * (1.0 - self.end) ** progress


@dataclass(frozen=True)
class PiecewiseConstant:
    """Steps: each ``(from_progress, value)`` holds from its progress to the next one's."""

    steps: Sequence[Sequence[float]]

    def __post_init__(self) -> None:
        if not _pairs(self.steps):
            raise UserError(f"piecewise takes pairs of [from_progress, value], was {self.steps!r}")
        starts = [s[0] for s in self.steps]
        if starts[0] != 0 or any(b <= a for a, b in pairwise(starts)) or starts[-1] > 1:
            raise UserError(f"piecewise must begin at progress 0 and ascend to at most 1, was {starts}")

    def __call__(self, progress: float) -> float:
        return float([value for start, value in self.steps if start <= progress][-1])


@dataclass(frozen=True)
class WarmupLinear:
    """A straight line from ``start`` up to ``peak`` over the first ``share`` of the run, then to ``end``."""

    start: float
    peak: float
    end: float
    share: float

    def __post_init__(self) -> None:
        if not 0.0 < self.share < 1.0:
            raise UserError(f"warmup needs a share in (0, 1), was {self.share}")

    def __call__(self, progress: float) -> float:
        if progress < self.share:
            return self.start + (self.peak - self.start) * progress / self.share
        return self.peak + (self.end - self.peak) * (progress - self.share) / (1.0 - self.share)


SCHEDULES: dict[str, type] = {
    "constant": Constant,
    "linear": Linear,
    "cosine": Cosine,
    "geometric": Geometric,
    "piecewise": PiecewiseConstant,
    "warmup": WarmupLinear,
}


def schedule_of(value: Any, where: str) -> Schedule:
    """Read a scheduled setting.

    Args:
        value: a number; ``{name: [arguments]}`` or ``{name: {argument: number}}`` of a shipped schedule; or a
            part, ``{class_path: ..., init_args: ...}``, whose instances are called with the progress.
        where: the setting's name, for error messages.

    Raises:
        UserError: ``value`` is none of these, or the schedule refuses its arguments.
    """
    if _is_number(value):
        return Constant(float(value))
    if isinstance(value, Mapping) and "class_path" in value:
        built = Part.of(dict(value), where, {}).build(where)
        if not isinstance(built, Schedule):
            raise UserError(f"{where}: {value['class_path']!r} cannot be called with the progress")
        return built
    if not isinstance(value, Mapping) or len(value) != 1:
        raise UserError(
            f"{where} is {value!r}; write a number (in YAML with its point, 7.0e-4) or one schedule such as "
            "{linear: [7.0e-4, 7.0e-5]}"
        )
    ((name, arguments),) = value.items()
    if name not in SCHEDULES:
        known, near = ", ".join(sorted(SCHEDULES)), near_matches(str(name), SCHEDULES)
        raise UserError(f"{where} names the unknown schedule {name!r}; shipped are {known}{near}")
    return _build(name, arguments, where)


def _build(name: str, arguments: Any, where: str) -> Schedule:
    cls = SCHEDULES[name]
    fields: tuple[str, ...] = tuple(cls.__dataclass_fields__)  # type: ignore[attr-defined]
    if isinstance(arguments, Mapping):
        named = dict(arguments)
    elif cls is PiecewiseConstant:
        named = {"steps": arguments}
    else:
        given = list(arguments) if _is_list(arguments) else [arguments]
        named = dict(zip(fields, given, strict=False)) if len(given) == len(fields) else {}
    if set(named) != set(fields):
        raise UserError(f"{where}: {name} takes {', '.join(fields)}, was given {arguments!r}")
    if cls is not PiecewiseConstant:
        named = {key: _finite(number, f"{where}: {name}'s {key}") for key, number in named.items()}
    try:
        return cls(**named)
    except UserError as exc:
        raise UserError(f"{where}: {exc}") from None


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _pairs(steps: Any) -> bool:
    if not _is_list(steps) or not steps:
        return False
    return all(_is_list(s) and len(s) == 2 and all(map(_is_number, s)) for s in steps)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _finite(value: Any, where: str) -> float:
    if not _is_number(value):
        raise UserError(f"{where} must be a finite number, was {value!r}")
    return float(value)
