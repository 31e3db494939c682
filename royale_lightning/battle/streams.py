"""Named random streams as pure functions: who draws next never depends on who drew before.

Nothing in the package touches a global generator. A stream is named by a path (``seed, "opponent",
battle, ordinal``); its draws depend on that path alone, so a rollout is the same bytes inline, threaded or
spread over processes, and a resumed run draws what the uninterrupted one would have drawn.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np

#: SplitMix64's increment (2^64 / golden ratio, odd) and the two multipliers of its finaliser (variant 13 of
#: Stafford's mixers): Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_ONE = np.uint64(1)


def stream_seed(seed: int, *names: str | int | np.integer) -> int:
    """A 64-bit seed for the stream at this path.

    The path is hashed as JSON, so ``(1, "a", 2)``, ``(1, "a2")`` and ``(1, "a", "2")`` are three streams.
    Python's own ``hash`` would differ from process to process.

    Args:
        seed: the run's seed, any integer.
        *names: strings and integers (numpy integers too).

    Returns:
        An integer in [0, 2^64).
    """
    path = [_name(seed), *map(_name, names)]
    digest = hashlib.blake2b(json.dumps(path).encode(), digest_size=8, person=b"royale-streams").digest()
    return int.from_bytes(digest, "little")


def generator(seed: int, *path: str | int | np.integer) -> np.random.Generator:
    """A fresh numpy generator (PCG64) at the start of the stream at this path."""
    return np.random.Generator(np.random.PCG64(stream_seed(seed, *path)))


def uniforms(seed: int, stream: str, *counters: np.ndarray | np.integer | int) -> np.ndarray:
    """Uniform draws in [0, 1) addressed by counters: one hash each, no state.

    Each element depends on ``(seed, stream)`` and on its own counters only, so any split or order of the
    arrays gives the same numbers. Method: SplitMix64's finaliser (Steele et al. 2014) chained over the
    counters; for one counter ``c`` it is exactly that generator's ``c``-th output, counted from 0.

    Args:
        seed: the run's seed.
        stream: the stream's name; draws of different streams are unrelated, also for equal counters.
        *counters: integer arrays or integers that broadcast together, for example battle, ordinal, game step
            and seat. Their order matters.

    Returns:
        float64 of the broadcast shape, multiples of 2^-53.

    Raises:
        TypeError: a counter is not of an integer type.
    """
    arrays = [_words(c) for c in counters]
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    # At least one axis throughout: numpy warns about overflow on scalars, and wrapping is what we want.
    h = np.array([stream_seed(seed, stream)], dtype=np.uint64)
    for a in arrays:
        h = _mix(h + _GAMMA * (np.atleast_1d(a) + _ONE))
    if not arrays:
        h = _mix(h + _GAMMA)
    return ((h >> _S11) * 2.0**-53).reshape(shape)


def _mix(z: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser: a bijection of 64-bit words in which every input bit moves every output bit."""
    z = (z ^ (z >> _S30)) * _MIX1
    z = (z ^ (z >> _S27)) * _MIX2
    return z ^ (z >> _S31)


def _words(counter: np.ndarray | np.integer | int) -> np.ndarray:
    a = np.asarray(counter)
    if a.dtype.kind not in "iu":
        raise TypeError(f"a counter must be of an integer type, was {a.dtype}")
    # Through int64, so that the value counts and not the width it is stored in (-1 as int32 = -1 as int64).
    return a if a.dtype == np.uint64 else a.astype(np.int64).view(np.uint64)


def _name(part: str | int | np.integer) -> str | int:
    if isinstance(part, str):
        return part
    if isinstance(part, int | np.integer) and not isinstance(part, bool):
        return int(part)
    raise TypeError(f"a stream's path is made of strings and integers, not {part!r}")
