"""Puts the outside package where a user's own lies: on the import path, beside nothing of ours."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)
