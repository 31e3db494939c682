"""The thin glue between a Lightning run and our parts: each says when one thing happens, and can be left out."""

from .alarms import Alarms
from .base import RunCallback, in_order
from .battle_replays import BattleReplays
from .checkpoint import RunCheckpoint
from .clock import IterationClock
from .finite_guard import FiniteGuard
from .live_control import LiveControl
from .metric_log import MetricLog
from .progress import Progress
from .rating_update import RatingUpdate
from .restart_harvest import RestartHarvest
from .resume_rules import ResumeRules
from .route_curriculum import RouteCurriculum
from .row import add_to_next_row, iteration_row
from .signal_stop import SignalStop
from .snapshot_promotion import SnapshotPromotion
from .stop_after import StopAfter

__all__ = [
    "Alarms",
    "BattleReplays",
    "FiniteGuard",
    "IterationClock",
    "LiveControl",
    "MetricLog",
    "Progress",
    "RatingUpdate",
    "RestartHarvest",
    "ResumeRules",
    "RouteCurriculum",
    "RunCallback",
    "RunCheckpoint",
    "SignalStop",
    "SnapshotPromotion",
    "StopAfter",
    "add_to_next_row",
    "in_order",
    "iteration_row",
]
