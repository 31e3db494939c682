"""The thin glue between a Lightning run and our parts: each says when one thing happens, and can be left out."""

from .alarms import Alarms
from .base import LoggedCallback, Phase, RunCallback, add_to_next_row, in_order, iteration_row
from .battle_replays import BattleReplays
from .checkpoint import RunCheckpoint
from .finite_guard import FiniteGuard
from .interop import Interop
from .ladder import RatingUpdate, SnapshotPromotion
from .live_control import LiveControl
from .metric_log import IterationClock, MetricLog
from .progress import Progress
from .restart_harvest import RestartHarvest
from .resume_rules import ResumeRules
from .route_curriculum import RouteCurriculum
from .run_folder import RunFolder
from .stopping import SignalStop, StopAfter

__all__ = [
    "Alarms",
    "BattleReplays",
    "FiniteGuard",
    "Interop",
    "IterationClock",
    "LiveControl",
    "LoggedCallback",
    "MetricLog",
    "Phase",
    "Progress",
    "RatingUpdate",
    "RestartHarvest",
    "ResumeRules",
    "RouteCurriculum",
    "RunCallback",
    "RunCheckpoint",
    "RunFolder",
    "SignalStop",
    "SnapshotPromotion",
    "StopAfter",
    "add_to_next_row",
    "in_order",
    "iteration_row",
]
