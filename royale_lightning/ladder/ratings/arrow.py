"""Symmetric positive definite systems in which most unknowns touch only a few others, solved exactly.

Every rating of the learner is a player of its own that met a few snapshots and scripted opponents and none of its other
selves. Such unknowns are eliminated one by one without any fill among them (block elimination of an arrow matrix; Golub
and Van Loan 2013, section 4.3.6), so the cost is cubic in the few others, which a run has tens of, and linear in the
learner's selves, whose number grows with the run.

Nothing here calls BLAS: its sums depend on how many threads it may use, and the same games must give the same bits in
any process.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def independent(first: np.ndarray, second: np.ndarray, size: int, kept: np.ndarray) -> np.ndarray:
    """A large set of nodes of which no two share an edge: greedily, those with the fewest neighbours first.

    Args:
        first, second: int ``[m]``, ends of the edges, each edge once.
        size: how many nodes.
        kept: bool ``[size]``, nodes that must not be in it.

    Returns:
        bool ``[size]``.
    """
    beyond: list[list[int]] = [[] for _ in range(size)]
    for i, j in zip(first.tolist(), second.tolist(), strict=True):
        beyond[i].append(j)
        beyond[j].append(i)
    free = (~kept).tolist()
    chosen = np.zeros(size, dtype=bool)
    for i in sorted(range(size), key=lambda n: (len(beyond[n]), n)):
        if free[i]:
            chosen[i] = True
            for j in beyond[i]:
                free[j] = False
    return chosen


@dataclass(frozen=True)
class Arrow:
    """The matrix ``[[diag(own), border], [border', core]]``, factored.

    Attributes:
        own: ``[l]``, the diagonal of the unknowns that touch none of each other.
        border: ``[l, k]``.
        pull: ``[l, k]``, ``border / own``: an unknown is its right side over ``own``, less ``pull`` times the core's
            solution.
        factor: ``[k, k]``, lower Cholesky factor of the core's Schur complement.
    """

    own: np.ndarray
    border: np.ndarray
    pull: np.ndarray
    factor: np.ndarray

    @classmethod
    def of(cls, own: np.ndarray, border: np.ndarray, core: np.ndarray) -> Arrow:
        """Factor it; the matrix must be positive definite."""
        pull = border / own[:, None]
        rest = core.copy()
        for k in range(core.shape[0]):
            rest[:, k] -= (border * pull[:, k, None]).sum(axis=0)
        return cls(own, border, pull, cholesky((rest + rest.T) / 2.0))

    def solve(self, own: np.ndarray, core: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Solution for the right side ``own`` ``[l]``, ``core`` ``[k]``, in the same two parts."""
        inner = solve(self.factor, core - (self.pull * own[:, None]).sum(axis=0))
        return own / self.own - times(self.pull, inner), inner

    @property
    def core_inverse(self) -> np.ndarray:
        """``[k, k]``, the core's block of the inverse."""
        out = solve(self.factor, np.eye(self.factor.shape[0]))
        return (out + out.T) / 2.0


@dataclass(frozen=True)
class Spread:
    """A covariance ``rows core rows' + diag(own)`` over ``n`` unknowns, which is never written out whole.

    Attributes:
        rows: ``[n, k]``, what each unknown has of the ``k`` in the core.
        core: ``[k, k]``.
        own: ``[n]``, variance that an unknown shares with nobody.
    """

    rows: np.ndarray
    core: np.ndarray
    own: np.ndarray

    @property
    def variance(self) -> np.ndarray:
        """``[n]``, the diagonal."""
        return np.asarray((product(self.rows, self.core) * self.rows).sum(axis=1)) + self.own

    def block(self, at: np.ndarray) -> np.ndarray:
        """``[m, m]``, covariance of the unknowns at these distinct places."""
        rows = self.rows[at]
        out = product(product(rows, self.core), rows.T)
        return np.asarray((out + out.T) / 2.0 + np.diag(self.own[at]))

    @property
    def whole(self) -> np.ndarray:
        """``[n, n]``; for few unknowns."""
        return self.block(np.arange(self.own.size))


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a b``, its terms added in the order of ``a``'s columns."""
    out = np.zeros((a.shape[0], b.shape[1]))
    for k in range(a.shape[1]):
        out += a[:, k, None] * b[k]
    return out


def times(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return np.asarray((matrix * vector).sum(axis=1))


def cholesky(matrix: np.ndarray) -> np.ndarray:
    """Lower triangle ``L`` with ``L L' = matrix``, by columns (Golub and Van Loan 2013, algorithm 4.2.1)."""
    rest = matrix.copy()
    for k in range(rest.shape[0]):
        rest[k:, k] /= np.sqrt(rest[k, k])
        column = rest[k + 1 :, k]
        rest[k + 1 :, k + 1 :] -= column[:, None] * column
    return np.tril(rest)


def solve(factor: np.ndarray, right: np.ndarray) -> np.ndarray:
    """``x`` with ``L L' x = right``; ``right`` is ``[n]`` or ``[n, k]``."""
    x = right.astype(np.float64).copy()
    n = factor.shape[0]
    column = (slice(None),) + (None,) * (x.ndim - 1)
    for k in range(n):
        x[k] /= factor[k, k]
        x[k + 1 :] -= factor[k + 1 :, k][column] * x[k]
    for k in range(n - 1, -1, -1):
        x[k] /= factor[k, k]
        x[:k] -= factor[k, :k][column] * x[k]
    return x
