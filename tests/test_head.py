"""The linear CCA that ends every representation: sums over blocks, projections."""

import numpy as np
import pytest
import torch

from dscca.head import fit_head, project, training_sums
from problems import generalized_eigen_correlations, paired

MIXING = [
    torch.from_numpy(np.random.default_rng(i).normal(size=(d, 3))) for i, d in enumerate((6, 5))
]


def encode(view, which):
    return torch.tanh(view.double() @ MIXING[which])


def sums_of(X, y, cuts):
    blocks = (
        tuple(map(torch.from_numpy, pair))
        for pair in zip(np.split(X, cuts), np.split(y, cuts), strict=True)
    )
    return training_sums(encode, blocks, eps=1e-15)


@pytest.mark.parametrize("cuts", [[], [10, 200], [1, 2, 3, 299]])
def test_sums_over_drifting_blocks_are_those_of_all_rows(cuts):
    X, y = paired(n=300)
    X = X + np.linspace(0, 3, 300)[:, None]
    covariances, scatters = sums_of(X, y, cuts)
    features = [encode(torch.from_numpy(view), i).numpy() for i, view in enumerate((X, y))]
    S = np.cov(*features, rowvar=False)
    np.testing.assert_allclose(covariances.S11, S[:3, :3], atol=1e-12)
    np.testing.assert_allclose(covariances.S12, S[:3, 3:], atol=1e-12)
    np.testing.assert_allclose(covariances.S22, S[3:, 3:], atol=1e-12)
    np.testing.assert_allclose(covariances.mean_x, features[0].mean(axis=0), atol=1e-12)
    for scatter, view, f in zip(scatters, (X, y), features, strict=True):
        d = view.shape[1]
        np.testing.assert_allclose(scatter.deviations(), view.std(axis=0, ddof=1))
        expected = np.cov(view, f, rowvar=False)[:d, d:]
        np.testing.assert_allclose(scatter.covariance(), expected, atol=1e-12)


def test_head_is_regularised_linear_cca_of_the_features():
    X, y = paired(n=300)
    covariances, _ = sums_of(X, y, [100])
    found, reg = fit_head(covariances, covariances, 2, (0.1, 0.2))
    assert reg == (0.1, 0.2)
    F, G = (encode(torch.from_numpy(view), i).numpy() for i, view in enumerate((X, y)))
    A, B = found.A.numpy(), found.B.numpy()
    S = np.cov(F, G, rowvar=False)
    S11, S12, S22 = S[:3, :3], S[:3, 3:], S[3:, 3:]
    penalised = [
        np.diag(M.T @ (C + r * np.trace(C) / 3 * np.eye(3)) @ M)
        for M, C, r in ((A, S11, 0.1), (B, S22, 0.2))
    ]
    attained = np.diag(A.T @ S12 @ B) / np.sqrt(penalised[0] * penalised[1])
    expected = generalized_eigen_correlations(F, G, (0.1, 0.2))[:2]
    np.testing.assert_allclose(np.sort(attained)[::-1], expected, atol=1e-10)


def test_head_chooses_its_regularisers_on_the_validation_features():
    train, _ = sums_of(*paired(n=12, noise=3.0), [])
    validation, _ = sums_of(*paired(n=2000, seed=1, noise=3.0), [])
    _, reg = fit_head(train, validation, 1, "auto")
    assert fit_head(train, train, 1, "auto")[1] == (1e-8, 1e-8)  # training data want no ridge
    assert min(reg) > 1e-3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_projection_is_centred_and_blockwise(monkeypatch, dtype):
    monkeypatch.setattr("dscca.head.BLOCK_ROWS", 7)
    view = paired(n=50)[0].astype(dtype)
    features = encode(torch.from_numpy(view), 0).numpy()
    mean, A = features.mean(axis=0), np.random.default_rng(0).normal(size=(3, 2))
    device = torch.device("cpu")
    found = project(lambda block: encode(block, 0), view, mean, A, name="X", device=device)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, (features - mean) @ A, atol=1e-6)
