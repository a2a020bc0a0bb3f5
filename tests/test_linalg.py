import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st

from dscca.linalg import (
    Covariances,
    SingularCovarianceError,
    canonical_directions,
    fix_signs,
    whitening,
)
from dscca.moments import Moments, RunningMoments
from dscca.polar import newton_schulz, nuclear_norm, polar_factor
from problems import paired

METHODS = ["svd", "newton-schulz"]
EPS = torch.finfo(torch.float64).eps


def matrix(p, q, seed=0, values=None):
    """A random p x q matrix, with given singular values if any."""
    rng = np.random.default_rng(seed)
    k = min(p, q)
    U, V = (np.linalg.qr(rng.normal(size=(d, k)))[0] for d in (p, q))
    spectrum = rng.uniform(0.1, 1, size=k) if values is None else np.asarray(values, dtype=float)
    return torch.from_numpy((U * spectrum) @ V.T)


@given(
    n=st.integers(2, 60),
    d=st.integers(1, 6),
    seed=st.integers(0, 2**16),
    cuts=st.lists(st.integers(1, 59), max_size=4),
)
def test_moments_merge_to_numpy_covariance(n, d, seed, cuts):
    rows = np.random.default_rng(seed).normal(size=(n, d)) * 3 + 100
    parts = [part for part in np.split(rows, sorted({c for c in cuts if c < n})) if len(part)]
    moments = Moments.of(torch.from_numpy(parts[0].copy()))
    for part in parts[1:]:
        moments.merge(Moments.of(torch.from_numpy(part.copy())))
    assert moments.n_samples == n
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0))
    expected = np.cov(rows, rowvar=False).reshape(d, d)
    np.testing.assert_allclose(moments.covariance(), expected, atol=1e-9)
    last = Moments.of(torch.from_numpy(parts[-1].copy()))
    rest = rows[: n - len(parts[-1])]
    if len(rest) > 1:
        expected = np.cov(rest, rowvar=False).reshape(d, d)
        np.testing.assert_allclose(moments.without(last).covariance(), expected, atol=1e-8)


@given(
    n=st.integers(2, 200),
    d=st.integers(1, 150),
    seed=st.integers(0, 2**16),
    shift=st.sampled_from([0.0, 1e4]),
)
def test_running_moments_are_those_of_all_rows(n, d, seed, shift):
    rows = np.random.default_rng(seed).normal(size=(n, d)) + shift
    sums = RunningMoments()
    for part in np.array_split(rows, 3):
        if len(part):
            sums.add(torch.from_numpy(part.copy()))
    moments = sums.finish()
    assert moments.n_samples == n
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0))
    expected = np.cov(rows, rowvar=False).reshape(d, d)
    np.testing.assert_allclose(moments.covariance(), expected, atol=1e-8)


def test_moments_of_float32_are_summed_in_float64():
    rows = np.random.default_rng(0).normal(size=(100_000, 3)).astype(np.float32) + np.float32(1e4)
    moments = Moments.of(torch.from_numpy(rows[:2].copy()))
    for part in np.array_split(rows[2:], 100):
        moments.merge(Moments.of(torch.from_numpy(part.copy())))
    exact = np.cov(rows.astype(np.float64), rowvar=False)
    np.testing.assert_allclose(moments.covariance(), exact, rtol=1e-6, atol=1e-6)


@given(p=st.integers(1, 8), seed=st.integers(0, 2**16), reg=st.sampled_from([0.0, 0.1]))
def test_whitening_whitens(p, seed, reg):
    G = np.random.default_rng(seed).normal(size=(3 * p, p))
    S = torch.from_numpy(G.T @ G)
    W = whitening(S, reg, eps=EPS, view="X")
    S_reg = S + reg * S.trace() / p * torch.eye(p)
    np.testing.assert_allclose(W.T @ S_reg @ W, np.eye(p), atol=1e-7)


def test_whitening_keeps_the_directions_that_carry_variance():
    G = np.random.default_rng(0).normal(size=(30, 3))
    S = torch.from_numpy(np.cov(np.column_stack([G, G[:, :2] @ [[1.0], [2.0]]]), rowvar=False))
    W = whitening(S, 0.0, eps=EPS, view="X")
    assert W.shape == (4, 3)
    np.testing.assert_allclose(W.T @ S @ W, np.eye(3), atol=1e-8)
    with pytest.raises(SingularCovarianceError, match=r"view left .*rank 3 of 4"):
        whitening(S, 1e-18, eps=EPS, view="left")


def test_directions_satisfy_both_constraints_and_attain_the_maximum():
    X, y = paired(n=200, p=5, q=4)
    S = np.cov(X, y, rowvar=False)
    S11, S12, S22 = (torch.from_numpy(b) for b in (S[:5, :5], S[:5, 5:], S[5:, 5:]))
    cov = Covariances(200, torch.zeros(5), torch.zeros(4), S11, S12, S22)
    found = canonical_directions(cov, 4)
    np.testing.assert_allclose(found.A.T @ S11 @ found.A, np.eye(4), atol=1e-10)
    joint = found.A.T @ S12 @ found.B
    np.testing.assert_allclose(joint, np.diag(found.correlations), atol=1e-10)
    assert (found.A.gather(0, found.A.abs().argmax(0, keepdim=True)) > 0).all()


def test_signs_do_not_depend_on_the_solver():
    A, B = matrix(5, 3, seed=1), matrix(4, 3, seed=2)
    turned = torch.tensor([1.0, -1.0, -1.0], dtype=torch.float64)
    for ours, other in zip(fix_signs(A, B), fix_signs(A * turned, B * turned), strict=True):
        torch.testing.assert_close(ours, other)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (6, 3), (3, 6)])
def test_nuclear_norm_and_polar_factor_values(method, shape):
    M = matrix(*shape)
    assert nuclear_norm(M, method).item() == pytest.approx(np.linalg.norm(M, "nuc"), rel=1e-9)
    U, _, Vh = np.linalg.svd(M, full_matrices=False)
    np.testing.assert_allclose(polar_factor(M, method), U @ Vh, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("function", [nuclear_norm, polar_factor])
def test_gradients(function, method, shape):
    M = matrix(*shape).requires_grad_()
    assert torch.autograd.gradcheck(lambda m: function(m, method), (M,))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("values", [[1, 1, 1, 1], [0.9, 0.9, 0.5, 0.5], [0.7, 0.7, 0.7, 0.01]])
def test_gradients_at_repeated_singular_values(method, values):
    M = matrix(4, 4, values=values).requires_grad_()
    for function in (nuclear_norm, polar_factor):
        assert torch.autograd.gradcheck(lambda m, f=function: f(m, method), (M,))


@pytest.mark.parametrize("method", METHODS)
def test_small_singular_values_are_not_mistaken_for_zero(method):
    values = [1.0, 3e-3, 1e-3, 2e-4]
    M = matrix(4, 4, values=values)
    U, _, Vh = torch.linalg.svd(M)
    Q = U @ Vh
    np.testing.assert_allclose(polar_factor(M, method), Q, atol=1e-6)
    assert nuclear_norm(M, method).item() == pytest.approx(sum(values), rel=1e-9)
    G = matrix(4, 4, seed=1)
    leaf = M.clone().requires_grad_()
    (found,) = torch.autograd.grad((polar_factor(leaf, method) * G).sum(), leaf)
    # With S = QᵀM, the polar factor Q of M moves by Q A, where A S + S A = QᵀdM - dMᵀQ.
    S = (Q.T @ M).numpy()
    for dM in (matrix(4, 4, seed=2), matrix(4, 4, seed=3)):
        turn = (Q.T @ dM - dM.T @ Q).numpy()
        A = scipy.linalg.solve_sylvester(S, S, turn)
        expected = (G * (Q @ torch.from_numpy(A))).sum().item()
        assert (found * dM).sum().item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_singular_matrices_give_finite_gradients(method):
    for values in ([0, 0, 0], [1, 0, 0], [1, 1e-9, 1e-12]):
        for function in (nuclear_norm, polar_factor):
            M = matrix(3, 3, values=values).requires_grad_()
            (function(M, method) * torch.arange(1.0, 10).reshape(3, 3)).sum().backward()
            assert M.grad.isfinite().all()


@given(
    d=st.integers(1, 12),
    seed=st.integers(0, 2**16),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_newton_schulz_agrees_with_svd(d, seed, dtype):
    M = matrix(d, d, seed).to(dtype)
    G = matrix(d, d, seed + 1).to(dtype)
    tolerance = 2e-4 if dtype == torch.float32 else 1e-8
    Q, E = newton_schulz(M, G)
    U, s, Vh = np.linalg.svd(M.double().numpy())
    np.testing.assert_allclose(Q, U @ Vh, atol=tolerance)
    K = U.T @ G.double().numpy() @ Vh.T
    expected = U @ ((K - K.T) / (s[:, None] + s)) @ Vh
    np.testing.assert_allclose(E, expected, atol=10 * tolerance)
