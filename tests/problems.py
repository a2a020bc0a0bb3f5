"""Data for tests, and solutions by other means than the package's."""

import numpy as np
import scipy.linalg

# Linnerud's fitness data (SAS/STAT manual): exercises and physiology of twenty men.
LINNERUD_EXERCISE = np.array(
    [
        [5, 162, 60], [2, 110, 60], [12, 101, 101], [12, 105, 37], [13, 155, 58],
        [4, 101, 42], [8, 101, 38], [6, 125, 40], [15, 200, 40], [17, 251, 250],
        [17, 120, 38], [13, 210, 115], [14, 215, 105], [1, 50, 50], [6, 70, 31],
        [12, 210, 120], [4, 60, 25], [11, 230, 80], [15, 225, 73], [2, 110, 43],
    ],
    dtype=float,
)  # fmt: skip
LINNERUD_BODY = np.array(
    [
        [191, 36, 50], [189, 37, 52], [193, 38, 58], [162, 35, 62], [189, 35, 46],
        [182, 36, 56], [211, 38, 56], [167, 34, 60], [176, 31, 74], [154, 33, 56],
        [169, 34, 50], [166, 33, 52], [154, 34, 64], [247, 46, 50], [193, 36, 46],
        [202, 37, 62], [176, 37, 54], [157, 32, 52], [156, 33, 54], [138, 33, 68],
    ],
    dtype=float,
)  # fmt: skip


def paired(n=300, p=6, q=5, shared=3, seed=0, noise=1.0):
    """Two views that share some latent variables."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, shared))
    X = z @ rng.normal(size=(shared, p)) + noise * rng.normal(size=(n, p))
    y = z @ rng.normal(size=(shared, q)) + noise * rng.normal(size=(n, q))
    return X, y


def generalized_eigen_correlations(X, y, reg=(0.0, 0.0)):
    """Canonical correlations as eigenvalues of [[0, S12], [S21, 0]] against diag(S11, S22)."""
    p = X.shape[1]
    S = np.cov(X, y, rowvar=False)
    S11, S22 = S[:p, :p], S[p:, p:]
    A = S.copy()
    A[:p, :p] = 0
    A[p:, p:] = 0
    B = scipy.linalg.block_diag(
        S11 + reg[0] * np.trace(S11) / p * np.eye(p),
        S22 + reg[1] * np.trace(S22) / len(S22) * np.eye(len(S22)),
    )
    values = scipy.linalg.eigh(A, B, eigvals_only=True)[::-1]
    return values[: min(p, len(S22))]
