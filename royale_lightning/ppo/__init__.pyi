from .auxiliary import AuxiliaryLoss as AuxiliaryLoss
from .auxiliary import Step as Step
from .imitation import SelfImitation as SelfImitation
from .loss import ppo_loss as ppo_loss
from .module import SelfPlayModule as SelfPlayModule
from .reference import KLToReference as KLToReference
from .schedule import Schedule as Schedule
from .settings import PPOSettings as PPOSettings
