from .toy import LeftLane as LeftLane
