"""What a docstring lists as arguments or attributes is there under that name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import royale_lightning

ROOT = Path(royale_lightning.__file__).parent
_LIST = re.compile(r"^(Args|Attributes):\n((?:(?: .*)?\n)*)", re.M)


def listed(doc: str) -> Iterator[str]:
    """Names of the entries under ``Args:`` and ``Attributes:``, which are indented by four."""
    for section in _LIST.finditer(f"{doc}\n"):
        for entry in re.findall(r"^ {4}([*\w]+(?:, [*\w]+)*):", section[2], re.M):
            yield from (name.strip("*") for name in entry.split(", "))


def parameters(function: ast.FunctionDef) -> set[str]:
    a = function.args
    return {x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if x is not None}


def fields(cls: ast.ClassDef) -> set[str]:
    """Whatever an instance may be asked for, or made with: declared, assigned, or a method's own."""
    found: set[str] = set()
    for node in ast.walk(cls):
        if isinstance(node, ast.FunctionDef):
            found |= {node.name} | (parameters(node) if node.name == "__init__" else set())
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def wrong(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            have = parameters(node)
        elif isinstance(node, ast.ClassDef):
            have = fields(node)
        else:
            continue
        yield from (f"{node.name}: {name}" for name in listed(ast.get_docstring(node) or "") if name not in have)


def test_every_listed_name_exists() -> None:
    one = 'class A:\n    """B.\n\n    Args:\n        x, y: c.\n            d: e.\n    """\n    x: int\n'
    assert list(wrong(one)) == ["A: y"]
    found = {f"{p.relative_to(ROOT)} {w}" for p in ROOT.rglob("*.py") for w in wrong(p.read_text(encoding="utf-8"))}
    assert found == set()
