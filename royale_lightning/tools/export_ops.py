"""ONNX for the two torch operations of a policy that the exporter knows no translation of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxscript
import torch
from onnxscript import BOOL, DOUBLE, UINT8

#: Untyped: its declared operand types are unions that a checker cannot narrow.
op: Any = onnxscript.opset18
#: Times this a positive float64 is the next one below it: x (1 - 2^-53) lies exactly on it for a power of two, and
#: nearer to it than to x for any other.
_BELOW = onnx.numpy_helper.from_array(np.array(1.0 - 2.0**-53))


def _as_bytes(x: BOOL, dtype: int = 0) -> UINT8:
    """``mask.view(torch.uint8)``."""
    return op.Cast(x, to=onnx.TensorProto.UINT8)


def _next_below(x: DOUBLE, towards: DOUBLE) -> DOUBLE:
    """``torch.nextafter(x, 0)`` of a positive number."""
    return op.Mul(x, op.Constant(value=_BELOW))


TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.view.dtype: _as_bytes,
    torch.ops.aten.nextafter.default: _next_below,
}
