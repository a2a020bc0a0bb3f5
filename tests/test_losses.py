import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dscca.deep.losses import cca_loss
from problems import generalized_eigen_correlations, paired

METHODS = ["svd", "newton-schulz"]


def features(n=40, d1=4, d2=4, seed=0):
    return [torch.from_numpy(view) for view in paired(n=n, p=d1, q=d2, shared=2, seed=seed)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("d1", "d2"), [(4, 4), (3, 5), (5, 3), (1, 1)])
def test_loss_is_minus_the_sum_of_correlations(method, d1, d2):
    F1, F2 = features(d1=d1, d2=d2)
    expected = generalized_eigen_correlations(F1.numpy(), F2.numpy()).sum()
    assert -cca_loss(F1, F2, (1e-10, 1e-10), method).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("d1", "d2"), [(4, 4), (3, 5), (5, 3), (1, 1)])
def test_gradients(method, d1, d2):
    views = [F.requires_grad_() for F in features(n=15, d1=d1, d2=d2)]
    assert torch.autograd.gradcheck(lambda f, g: cca_loss(f, g, (0.1, 0.3), method), views)


@given(seed=st.integers(0, 2**16), d=st.integers(1, 6), n=st.integers(8, 60))
def test_gradient_equals_autograd_through_the_textbook_computation(seed, d, n):
    """S^-1/2 by eigen-decomposition and a singular value decomposition, differentiated by torch."""

    def textbook(f, g, r):
        f, g = f - f.mean(0), g - g.mean(0)
        roots = []
        for a in (f, g):
            values, vectors = torch.linalg.eigh(a.T @ a / (n - 1) + r * torch.eye(d))
            roots.append(vectors @ torch.diag(values**-0.5) @ vectors.T)
        return -torch.linalg.svdvals(roots[0] @ (f.T @ g / (n - 1)) @ roots[1]).sum()

    gradients = []
    for loss in (lambda f, g: textbook(f, g, 0.01), lambda f, g: cca_loss(f, g, (0.01, 0.01))):
        views = [F.clone().requires_grad_() for F in features(n, d, d, seed)]
        gradients.append(torch.autograd.grad(loss(*views), views))
    for ours, reference in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(ours, reference, atol=1e-8, rtol=1e-6)


def test_newton_schulz_and_svd_agree_in_single_precision():
    F1, F2 = (F.float() for F in features(n=750, d1=50, d2=50))
    results = []
    for method in METHODS:
        views = [F.clone().requires_grad_() for F in (F1, F2)]
        loss = cca_loss(*views, (1e-4, 1e-4), method)
        results.append((loss, *torch.autograd.grad(loss, views)))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-6, atol=0)
    for a, b in zip(results[0][1:], results[1][1:], strict=True):
        assert (a - b).norm() < 1e-3 * a.norm()


@pytest.mark.parametrize("method", METHODS)
def test_dead_units_and_rank_one_batches_give_finite_gradients(method):
    rng = np.random.default_rng(0)
    dead = torch.from_numpy(rng.normal(size=(30, 5)) * [1, 1, 0, 0, 1])
    flat = torch.from_numpy(np.outer(rng.normal(size=30), np.ones(5)))
    for f, g in ((dead, dead), (flat, dead), (flat, flat), (torch.ones(30, 5).double(), dead)):
        views = [F.clone().requires_grad_() for F in (f, g)]
        loss = cca_loss(*views, (1e-4, 1e-4), method)
        gradients = torch.autograd.grad(loss, views)
        assert loss.isfinite()
        assert all(G.isfinite().all() for G in gradients)
