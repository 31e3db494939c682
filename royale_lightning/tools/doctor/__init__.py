"""``royale-lightning doctor``: whether this machine and this installation will carry a configuration's run."""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...errors import UserError
from ...run.atomic import write_atomic
from . import forecasts, installation
from .patient import Patient

_HELP = """\
check this machine and this installation for a configuration's run

One line a check: ok, or what to do. Nothing is trained and nothing is left behind. The exit code is 0 when every
check is ok, else 1.
"""
_EPILOG = """\
--json FILE writes {"schema": 1, "tool": "doctor", "inputs": {"config"}, "result": {"checks": [{"name", "ok",
"detail"}]}}: every check in the order it was made, its detail as printed.
"""
@dataclass(frozen=True)
class Check:
    """One line: ``detail`` says what was found, and what to do where it is not ``ok``."""

    name: str
    ok: bool
    detail: str


#: In the order of the printed lines; a later one uses what an earlier one made.
CHECKS: tuple[Callable[[Patient], str], ...] = (
    installation.versions, installation.engine, installation.cards, installation.configuration, installation.mask,
    installation.ratio, forecasts.speed, forecasts.memory, forecasts.shared_memory, forecasts.disk, forecasts.gpu,
)


def examine(settings: Mapping[str, Any]) -> Iterator[Check]:
    """Every check of a configuration, as it is made."""
    patient = Patient(settings)
    for check in CHECKS:
        name = check.__name__
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they are for a run; a check says what matters
                detail = check(patient)
            yield Check(name, True, detail)
        except UserError as exc:
            yield Check(name, False, str(exc))
        except Exception as exc:  # a sick installation raises anything, and the other checks still say something
            yield Check(name, False, f"{type(exc).__name__}: {' '.join(str(exc).split())}")


def main(argv: Sequence[str]) -> int:
    """Run the tool and return its exit code."""
    parser = argparse.ArgumentParser(
        "royale-lightning doctor", description=_HELP, epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )
    parser.add_argument(
        "--config", default=None, metavar="FILE",
        help="configuration of fit (default: configs/first_bot.yaml where there is one, else the built-in defaults)",
    )
    parser.add_argument("--json", default=None, metavar="FILE", help="write the result here as well")
    args = parser.parse_args(list(argv))

    import yaml

    from ..bench import find_config
    from ..bench.report import check_target

    target = check_target(args.json)
    path = find_config(args.config)
    settings = yaml.safe_load(path.read_text(encoding="utf-8")) if path else {}
    if not isinstance(settings or {}, dict):
        raise UserError(f"--config {path} holds no settings; give a configuration of fit")
    checks = []
    for check in examine(settings or {}):
        checks.append(check)
        print(f"{'ok ' if check.ok else 'NO '} {check.name:<14} {check.detail}", flush=True)
    failed = sum(not c.ok for c in checks)
    wanting = f", {failed} want something done" if failed else ""
    print(f"{len(checks) - failed} of {len(checks)} checks are ok{wanting}")
    if target is not None:
        inputs = {"config": str(path) if path else None}
        out = {"schema": 1, "tool": "doctor", "inputs": inputs, "result": {"checks": [asdict(c) for c in checks]}}
        write_atomic(target, json.dumps(out, indent=1).encode() + b"\n")
    return 1 if failed else 0
