"""The search for leading singular pairs, against dense decompositions."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dscca import krylov
from dscca.krylov import MatrixOperator, NotConvergedError, leading_pairs, leading_svd


def spectrum_matrix(p, q, values, seed=0):
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.normal(size=(d, len(values))))[0] for d in (p, q))
    return torch.from_numpy((U * values) @ V.T)


SLOW = np.concatenate([np.linspace(0.98, 0.75, 30), 0.747 * np.linspace(1, 0, 370) ** 2])
"""No gap after the pairs asked for, as in kernel CCA."""


def check(M, k, found, atol=1e-7):
    W, sigma, Z = found
    expected = np.linalg.svd(M.numpy(), compute_uv=False)[:k]
    np.testing.assert_allclose(sigma, expected, atol=1e-12)
    np.testing.assert_allclose(M @ Z, W * sigma, atol=atol)
    np.testing.assert_allclose(M.T @ W, Z * sigma, atol=atol)
    np.testing.assert_allclose(W.T @ W, np.eye(k), atol=1e-10)
    np.testing.assert_allclose(Z.T @ Z, np.eye(k), atol=1e-10)


@pytest.mark.parametrize("shape", [(400, 400), (700, 400), (400, 900)])
@pytest.mark.parametrize("blocks", [4, 16])
def test_a_slow_spectrum_with_and_without_restarts(shape, blocks, monkeypatch):
    monkeypatch.setattr(krylov, "_BLOCKS", blocks)
    M = spectrum_matrix(*shape, SLOW)
    check(M, 30, leading_pairs(MatrixOperator(M), 30))


@given(p=st.integers(1, 40), q=st.integers(1, 40), seed=st.integers(0, 999), data=st.data())
def test_any_shape(p, q, seed, data):
    k = data.draw(st.integers(1, min(p, q)))
    M = torch.from_numpy(np.random.default_rng(seed).normal(size=(p, q)))
    check(M, k, leading_pairs(MatrixOperator(M), k), atol=1e-6)


def test_repeated_singular_values():
    M = spectrum_matrix(300, 300, np.repeat([3.0, 2.0, 1.0], 60))
    check(M, 50, leading_pairs(MatrixOperator(M), 50))


def test_an_operator_of_low_rank_gives_what_it_has():
    M = spectrum_matrix(200, 100, np.array([2.0, 1.0, 0.5]))
    W, sigma, Z = leading_pairs(MatrixOperator(M), 10)
    np.testing.assert_allclose(sigma[:3], [2, 1, 0.5], atol=1e-12)
    np.testing.assert_allclose(sigma[3:], 0, atol=1e-10)
    assert W.shape[1] == Z.shape[1] == len(sigma) <= 10


def test_not_to_converge_is_an_error():
    M = spectrum_matrix(400, 400, SLOW)
    with pytest.raises(NotConvergedError, match="30 leading pairs were not found"):
        leading_pairs(MatrixOperator(M), 30, max_steps=3)


def test_large_matrices_take_the_iteration_and_agree():
    M = spectrum_matrix(1700, 1600, np.linspace(1, 0.01, 1600))
    check(M, 5, leading_svd(M, 5))
    assert leading_svd(M[:10], 3)[0].shape == (10, 3)
