"""``python -m royale_lightning.metrics.readme`` writes this folder's ``README.md`` from the declarations."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from .declarations import METRICS
from .shipped import shipped_alarms

PATH = Path(__file__).with_name("README.md")
_HEAD = """\
# Metrics and alarms

One row per iteration goes to `metrics.jsonl` in the run folder and to every logger. A key that is absent was not
measured; it is never a 0. With several ranks the update's figures are reduced over them, the others are rank 0's own.

Made from `declarations.py` and `shipped.py` by `python -m royale_lightning.metrics.readme`; do not edit. Nothing here
knows torch.

`declarations.py` declares every key, `alarms.py` judges rows, `shipped.py` lists the alarms, `process.py` reads memory
and open files, `intervals.py` holds the intervals of scores. What a rollout says is computed in
`rollout/measures.py`, the update's figures in `ppo/loss.py`, times where they are spent.
"""
_ALARMS = """\

## Alarms

Each is a condition on the row, held for some rows in a row (patience). One that is on puts `alarm/<name>` into the row
and a line into `alarms.jsonl`; a `halt` ends the run with a checkpoint and a bundle of its last rows and battles. A row
that lacks a key says nothing about it: the count goes on with the next row that has it.

Leave some out with `--alarms.off '[draws]'`, add or replace some with `--alarms.extra`, each `{class_path: ...,
init_args: {...}}`: `threshold` (below), or an `Alarm` of your own. `--alarms.halt false` makes every alarm a warning.

| alarm | when | patience | severity | why this bound |
|---|---|---|---|---|
"""


def _line(*cells: str) -> str:
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |\n"


def page() -> str:
    """The whole text."""
    out = [_HEAD]
    for group, metrics in groupby(METRICS, key=lambda m: m.group):
        out.append(f"\n## {group}\n\n| key | unit | meaning | over | healthy | appears |\n|---|---|---|---|---|---|\n")
        for m in metrics:
            out.append(_line(f"`{m.name}`", m.unit, m.meaning, m.population, m.healthy, m.when or "always"))
    out.append(_ALARMS)
    for a in shipped_alarms():
        out.append(_line(a.name, a.condition, str(a.patience), a.severity, a.reason))
    return "".join(out)


if __name__ == "__main__":
    PATH.write_text(page(), encoding="utf-8")
