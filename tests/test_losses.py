import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from dscca.deep import losses
from dscca.deep.baselines import L0CCAObjective
from dscca.deep.gates import StochasticGates
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


# The other methods' losses


def test_feature_correlations_are_pearsons():
    F1, F2 = features(d1=3, d2=3)
    expected = [np.corrcoef(a, b)[0, 1] for a, b in zip(F1.T, F2.T, strict=True)]
    np.testing.assert_allclose(losses.feature_correlations(F1, F2), expected)
    F1[:, 1] = 4.0  # a dead unit
    assert losses.feature_correlations(F1, F2)[1] == 0
    F1.requires_grad_()
    assert losses.feature_correlations(F1, F2).sum().isfinite()
    (gradient,) = torch.autograd.grad(losses.feature_correlations(F1, F2).sum(), F1)
    assert gradient.isfinite().all()


@pytest.mark.parametrize(
    "loss",
    [
        lambda f, g: losses.feature_correlations(f, g).sum(),
        lambda f, g: losses.soft_hgr_loss(f, g),
        lambda f, g: losses.reconstruction_error(f.view(-1, 2, 2), g),
        lambda f, g: losses.batch_normalized(f).pow(3).sum() + g.sum(),
    ],
    ids=["correlations", "soft-hgr", "reconstruction", "normalised"],
)
def test_gradients_of_the_other_losses(loss):
    views = [F.requires_grad_() for F in features(n=15)]
    assert torch.autograd.gradcheck(loss, views)


def test_normalisation_is_torchs():
    F, _ = features(n=30)
    expected = torch.nn.BatchNorm1d(4, affine=False).double()(F * 7 + 3)
    torch.testing.assert_close(losses.batch_normalized(F * 7 + 3), expected)


def soft_cca(F1, F2, past, memory=0.9, weights=(2.0, 3.0)):
    """Soft-CCA's loss of a batch after a past of two totals and normalisers."""
    views = [losses.batch_normalized(F) for F in (F1, F2)]
    covariances = [
        total / normalizer
        for total, normalizer in (
            losses.accumulated_covariance(F, *state, memory)
            for F, state in zip(views, past, strict=True)
        )
    ]
    return losses.soft_cca_loss(*views, tuple(covariances), weights)


@pytest.mark.parametrize("normalizer", [0.0, 3.7])
def test_soft_cca_gradient(normalizer):
    """The past is a constant to the gradient, whatever it is."""
    views = [F.requires_grad_() for F in features(n=15)]
    rng = np.random.default_rng(1)
    past = [
        (torch.from_numpy(rng.normal(size=(4, 4))) * normalizer, torch.tensor(normalizer).double())
        for _ in range(2)
    ]
    assert torch.autograd.gradcheck(lambda f, g: soft_cca(f, g, past), views)


def test_soft_cca_forgets_the_gradient_of_earlier_batches():
    first, second = (F.requires_grad_() for F in features())
    zero = torch.zeros(4, 4).double(), torch.zeros(()).double()
    past = losses.accumulated_covariance(first, *zero, 0.9)
    total, normalizer = losses.accumulated_covariance(second, *past, 0.9)
    gradients = torch.autograd.grad((total / normalizer).sum(), (first, second), allow_unused=True)
    assert gradients[0] is None
    own = torch.autograd.grad((second.T @ second / 39).sum() / 1.9, second)
    torch.testing.assert_close(gradients[1], own[0])


def test_accumulated_covariance_is_the_weighted_mean_over_batches():
    rng, memory = np.random.default_rng(0), 0.85
    batches = [rng.normal(size=(20, 3)) for _ in range(6)]
    total, normalizer = torch.zeros(3, 3).double(), torch.zeros(()).double()
    for batch in batches:
        batch -= batch.mean(axis=0)
        total, normalizer = losses.accumulated_covariance(
            torch.from_numpy(batch), total, normalizer, memory
        )
    covariances = [np.cov(batch, rowvar=False) for batch in batches]
    expected = np.average(covariances, axis=0, weights=memory ** np.arange(5, -1, -1.0))
    np.testing.assert_allclose(total / normalizer, expected)


def test_soft_cca_loss_by_hand():
    F1 = torch.tensor([[1.0, 0.0], [-1.0, 2.0]])
    F2 = torch.tensor([[1.0, 1.0], [0.0, 2.0]])
    S1, S2 = torch.tensor([[1.0, -0.5], [-0.5, 1.0]]), torch.tensor([[9.0, 0.25], [0.25, 9.0]])
    value = losses.soft_cca_loss(F1, F2, (S1, S2), (10.0, 100.0))
    assert value == (1 + 1) / 2 + 10 * 1.0 + 100 * 0.5


@given(seed=st.integers(0, 2**16), d=st.integers(1, 4))
def test_soft_hgr_is_least_at_the_scaled_canonical_variates(seed, d):
    """Its minimum over linear features is minus half the sum of the d largest squared correlations:
    nobody gets below, and variates scaled by the roots of their correlations attain it."""
    X, y = (view.numpy() for view in features(n=60, d1=4, d2=5, seed=seed))
    X, y = X - X.mean(axis=0), y - y.mean(axis=0)
    rho = generalized_eigen_correlations(X, y)
    optimum = -0.5 * (rho[:d] ** 2).sum()
    rng = np.random.default_rng(seed)
    for scale in (0.1, 0.5, 1.0):
        A, B = rng.normal(size=(4, d)) * scale, rng.normal(size=(5, d)) * scale
        value = losses.soft_hgr_loss(torch.from_numpy(X @ A), torch.from_numpy(y @ B))
        assert value > optimum - 1e-9
    roots = [np.linalg.inv(scipy.linalg.sqrtm(np.cov(v, rowvar=False)).real) for v in (X, y)]
    U, s, Vt = np.linalg.svd(roots[0] @ (X.T @ y / 59) @ roots[1])
    f, g = X @ roots[0] @ U[:, :d] * s[:d] ** 0.5, y @ roots[1] @ Vt[:d].T * s[:d] ** 0.5
    f, g = torch.from_numpy(f + 3).requires_grad_(), torch.from_numpy(g - 2).requires_grad_()
    assert losses.soft_hgr_loss(f, g).item() == pytest.approx(optimum, rel=1e-6)


def test_open_gates_are_counted_as_often_as_they_open():
    mu, noise = torch.tensor([-0.7, 0.0, 0.2, 1.5], dtype=torch.float64), 0.6
    expected = scipy.stats.norm.cdf(mu / noise)
    assert losses.open_gates(mu, noise, "sum").item() == pytest.approx(expected.sum())
    assert losses.open_gates(mu, noise, "mean").item() == pytest.approx(expected.mean())
    gates = StochasticGates((4,), noise)
    with torch.no_grad():
        gates.mu.copy_(mu)
    torch.manual_seed(0)
    drawn = torch.stack([gates.gates() > 0 for _ in range(10_000)]).double().mean(dim=0)
    np.testing.assert_allclose(drawn, expected, atol=0.02)
    assert torch.equal(gates.eval().gates(), torch.tensor([0, 0, 0.2, 1.0]))


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_gradients_of_gates(reduction):
    """Through the loss of a batch, with the noise that the seed draws."""
    X, F2 = features(n=15)
    weights = torch.from_numpy(np.random.default_rng(1).normal(size=(4, 3)))
    gates = StochasticGates((4,), 0.3).double()
    objective = L0CCAObjective((0.1, 0.2), (gates, gates), (0.5, 0.7), reduction)

    def loss(mu):
        torch.manual_seed(3)
        noisy = (mu + 0.3 * torch.randn_like(mu)).clamp(0, 1)
        gates.mu = mu
        assert torch.equal(noisy, seeded(gates))
        return objective(noisy * X @ weights, F2, X, X)

    def seeded(gates):
        torch.manual_seed(3)
        return gates.gates()

    del gates.mu
    mu = torch.tensor([0.2, 0.45, 0.5, 0.8], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, mu)


@pytest.mark.parametrize(
    "loss",
    [
        lambda f, g: losses.cca_loss(f, g),
        lambda f, g: losses.soft_hgr_loss(f, g),
        lambda f, g: soft_cca(f, g, 2 * [(torch.zeros(4, 4), torch.zeros(()))]),
        lambda f, g: losses.feature_correlations(f, g).sum(),
        lambda f, g: losses.reconstruction_error(f, g),
    ],
    ids=["cca", "soft-hgr", "soft-cca", "correlations", "reconstruction"],
)
def test_losses_keep_their_precision_under_autocast(loss):
    results = []
    for enabled in (False, True):
        views = [F.float().requires_grad_() for F in features()]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            value = loss(*views)
        results.append((value, *torch.autograd.grad(value, views)))
    for ours, reference in zip(*results, strict=True):
        torch.testing.assert_close(ours, reference)
