"""The projections that retrieval compares: the problem's own, before scaling to unit variance."""

import numpy as np
import pytest
from scipy import linalg

import dscca
from dscca import DCCA, KCCA, NCCA, FourierCCA, LinearCCA
from problems import paired


def inverse_root(S):
    values, vectors = linalg.eigh(S)
    return vectors / np.sqrt(values) @ vectors.T


@pytest.fixture(scope="module")
def data():
    x, y = paired(300, 8, 6, seed=3)
    return np.asarray(x, float), np.asarray(y, float)


@pytest.mark.parametrize("reg", [(0.0, 0.0), (0.5, 0.02), (3.0, 3.0)])
def test_linear_cca_is_the_textbook_projection(data, reg):
    """Σ1^-1/2 U and Σ2^-1/2 V, with ridges that are relative to the mean variance."""
    x, y = data
    S = np.cov(x.T, y.T)
    S11, S22, S12 = S[:8, :8], S[8:, 8:], S[:8, 8:]
    S11 = S11 + reg[0] * np.trace(S11) / 8 * np.eye(8)
    S22 = S22 + reg[1] * np.trace(S22) / 6 * np.eye(6)
    W1, W2 = inverse_root(S11), inverse_root(S22)
    U, _, Vt = linalg.svd(W1 @ S12 @ W2)
    P1, P2 = (x - x.mean(0)) @ W1 @ U[:, :6], (y - y.mean(0)) @ W2 @ Vt.T
    E1, E2 = LinearCCA(6, reg=reg).fit(x, y).embed(x, y)
    # Scores say it all: signs and order of the pairs are free.
    np.testing.assert_allclose(E1 @ E2.T, P1 @ P2.T, atol=1e-10)
    np.testing.assert_allclose(E1 @ E1.T, P1 @ P1.T, atol=1e-10)


def test_exact_kernel_cca_with_linear_kernel_is_linear_cca(data):
    """The dual's ridge c on K² + c K is the primal's ridge c / (n - 1) on the covariance."""
    x, y = data
    n = len(x)
    reg = 0.01
    kernel = KCCA(3, kernel="linear", reg=reg).fit(x, y)
    c = [reg * ((v - v.mean(0)) ** 2).sum() for v in (x, y)]
    relative = [ci / (n - 1) / v.var(0, ddof=1).mean() for ci, v in zip(c, (x, y), strict=True)]
    linear = LinearCCA(3, reg=relative).fit(x, y)
    (k1, k2), (l1, l2) = kernel.embed(x, y), linear.embed(x, y)
    np.testing.assert_allclose(k1 @ k2.T, l1 @ l2.T, atol=1e-6)
    assert (kernel.x_deviations_ < 0.999).all()


@pytest.mark.parametrize(
    "model",
    [
        LinearCCA(3, reg=0.3),
        FourierCCA(3, rank=40, reg=1e-3, random_state=0),
        NCCA(3, head_reg=0.1),
        DCCA(3, (8,), head_reg=1.0, epochs=2, batch_size=100, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_embedding_differs_from_variates_by_a_factor_per_pair(data, model, tmp_path):
    x, y = data
    model.fit(x, y)
    E, T = model.embed(x, y), model.transform(x, y)
    for e, t, deviations in zip(E, T, (model.x_deviations_, model.y_deviations_), strict=True):
        np.testing.assert_allclose(e, t * deviations, rtol=1e-6)
        assert ((deviations > 0) & (deviations < 1)).all()
    np.testing.assert_array_equal(model.embed(x), E[0])
    np.testing.assert_array_equal(model.embed_y(y), E[1])
    model.save(tmp_path / "model")
    again = dscca.load(tmp_path / "model").embed(x)
    np.testing.assert_allclose(again, E[0], rtol=1e-9, atol=1e-9)  # arrays may lie otherwise


def test_embedding_keeps_precision_and_needs_a_fitted_model(data):
    x, y = data
    with pytest.raises(ValueError, match="not fitted"):
        LinearCCA(2).embed(x)
    model = LinearCCA(2, reg=0.1).fit(x.astype("f4"), y.astype("f4"))
    assert model.embed(x.astype("f4")).dtype == np.float32
    assert model.set_output(transform="pandas").embed_y(y).shape == (300, 2)
