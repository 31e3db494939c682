from .alarms import Alarm as Alarm
from .alarms import FellFromBest as FellFromBest
from .alarms import Grew as Grew
from .alarms import NonFinite as NonFinite
from .alarms import Threshold as Threshold
from .declarations import Metric as Metric
from .intervals import ScoreInterval as ScoreInterval
from .intervals import score_interval as score_interval
