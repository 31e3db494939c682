"""Settings of the trajectory store."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import UserError
from .buckets import FIFO, PRIORITY, RETENTIONS
from .curriculum import CurriculumSettings
from .selection import SelectionSettings


@dataclass(frozen=True)
class StoreSettings:
    """Settings of the trajectory store.

    Args:
        max_per_key: segments of one bucket.
        retention: ``fifo`` keeps the newest segments, ``priority`` those of highest ``retention_metric``.
        retention_metric: metric of the segments that ``priority`` compares.
        archive_size: best routes of one group (match-up and seat); several, for one fits one shuffle and one opponent.
        replay: how segments to imitate are drawn while nothing is archived.
        start: how segments to start from are drawn.
        curriculum: the backward curriculum; unset, there is none.
    """

    max_per_key: int = 10
    retention: str = FIFO
    retention_metric: str | None = None
    archive_size: int = 4
    replay: SelectionSettings = field(default_factory=SelectionSettings)
    start: SelectionSettings = field(default_factory=SelectionSettings)
    curriculum: CurriculumSettings | None = None

    def __post_init__(self) -> None:
        if self.max_per_key < 1 or self.archive_size < 0:
            raise UserError(
                f"restarts.store: max_per_key {self.max_per_key} must be at least 1, archive_size {self.archive_size} 0"
            )
        if self.retention not in RETENTIONS:
            raise UserError(f"restarts.store.retention is {self.retention!r}; give one of {', '.join(RETENTIONS)}")
        if (self.retention == PRIORITY) != (self.retention_metric is not None):
            raise UserError(
                f"restarts.store.retention is {self.retention!r} and retention_metric {self.retention_metric!r}; "
                "name the metric with priority and only then"
            )
        if self.curriculum is not None and self.archive_size == 0:
            raise UserError("restarts.store.archive_size is 0 and the curriculum walks archived routes; raise it")
