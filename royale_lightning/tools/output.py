"""What every tool writes with ``--json FILE``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..run.atomic import write_atomic


def write_json(file: Path | None, tool: str, inputs: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    """``{"schema": 1, "tool", "inputs", "result"}``, atomically; nothing without a file."""
    if file is None:
        return
    out = {"schema": 1, "tool": tool, "inputs": dict(inputs), "result": dict(result)}
    write_atomic(file, json.dumps(out, indent=1, allow_nan=False).encode() + b"\n")
