from .advantage import GAE as GAE
from .advantage import AdvantageEstimator as AdvantageEstimator
from .advantage import Advantages as Advantages
from .advantage import Cells as Cells
from .data import SelfPlayData as SelfPlayData
from .minibatch import Minibatch as Minibatch
from .settings import OpponentShares as OpponentShares
from .settings import RolloutSettings as RolloutSettings
