"""Kernel CCA, exact and approximate, against dense solutions of the published problem."""

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics.pairwise import pairwise_kernels, rbf_kernel

import dscca
from dscca import KCCA, FourierCCA, LinearCCA, NystromCCA, krylov
from dscca.datasets import embedded_digits
from dscca.kernel import features as features_module
from dscca.kernel.functions import FourierMap, median_width
from dscca.linalg import SingularCovarianceError
from problems import paired


@pytest.fixture(scope="module")
def views():
    X, y = paired(n=90, p=6, q=5, seed=3)
    return (X[:60], y[:60]), (X[60:], y[60:])


@pytest.fixture(scope="module")
def curved():
    """Two views whose relation is not linear, 200 samples to train on and 200 others."""
    rng = np.random.default_rng(0)
    z = rng.uniform(-1, 1, size=(400, 2))
    X = z @ rng.normal(size=(2, 3)) + 0.05 * rng.normal(size=(400, 3))
    y = np.column_stack([np.cos(3 * z[:, 0]), z[:, 1] ** 2]) + 0.05 * rng.normal(size=(400, 2))
    return (X[:200], y[:200]), (X[200:], y[200:])


def same_up_to_sign(ours, reference, atol):
    signs = np.sign((ours * reference).sum(axis=0))
    np.testing.assert_allclose(ours * signs, reference, atol=atol)


def centred(K, rows=None):
    """Center a kernel matrix, or `rows` of kernels with the samples behind it, by these samples."""
    rows = K if rows is None else rows
    return rows - rows.mean(axis=1, keepdims=True) - K.mean(axis=0) + K.mean()


def dense_solution(kernels, test_kernels, reg, k):
    """Solve K1 K2 b = rho (K1² + (n-1) r K1) a and its counterpart as one symmetric eigenproblem.

    Returns unit-variance variates of the training and the test samples.
    """
    K = [centred(kernel) for kernel in kernels]
    n = len(K[0])
    bases = []
    for matrix in K:
        values, vectors = np.linalg.eigh(matrix)
        bases.append(vectors[:, values > 1e-10 * values[-1]])
    joint = bases[0].T @ K[0] @ K[1] @ bases[1]
    A = np.block([[np.zeros((len(joint),) * 2), joint], [joint.T, np.zeros((len(joint.T),) * 2)]])
    auto = [
        Q.T @ (matrix @ matrix + r * np.trace(matrix) * matrix) @ Q
        for Q, matrix, r in zip(bases, K, reg, strict=True)
    ]
    vectors = scipy.linalg.eigh(A, scipy.linalg.block_diag(*auto))[1][:, ::-1][:, :k]
    duals = bases[0] @ vectors[: len(joint)], bases[1] @ vectors[len(joint) :]
    train, test = [], []
    for matrix, raw, rows, dual in zip(K, kernels, test_kernels, duals, strict=True):
        scale = (matrix @ dual).std(axis=0, ddof=1)
        train.append(matrix @ dual / scale)
        test.append(centred(raw, rows) @ dual / scale)
    order = np.argsort(-(train[0] * train[1]).sum(axis=0))
    assert train[0].shape == (n, k)
    return [v[:, order] for v in train], [v[:, order] for v in test]


def wave(A, B):
    return np.exp(-np.abs(A[:, None, :] - B[None, :, :]).mean(axis=2)) + 0.1 * A @ B.T


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ("rbf", {"gamma": 0.05}),
        ("rbf", {"gamma": [0.2, 0.01]}),
        ("linear", {}),
        ("poly", {"gamma": 0.1, "degree": 2, "coef0": 1.5}),
        ("polynomial", {"gamma": 0.1}),
        ("laplacian", {"gamma": 0.1}),
        ("cosine", {}),
        (wave, {}),
    ],
    ids=["rbf", "rbf pair", "linear", "poly", "polynomial", "laplacian", "cosine", "callable"],
)
def test_exact_solution_is_the_published_problem_s(views, kernel, options):
    train, test = views
    reg = (0.01, 0.03)
    gammas = np.broadcast_to(options.get("gamma", np.nan), 2)

    def matrix(which, a, b):
        if callable(kernel):
            return kernel(a, b)
        rest = {"degree": 3, "coef0": 1, **options, "gamma": gammas[which]}
        return pairwise_kernels(a, b, metric=kernel, filter_params=True, **rest)

    kernels = [matrix(i, train[i], train[i]) for i in (0, 1)]
    test_kernels = [matrix(i, test[i], train[i]) for i in (0, 1)]
    expected, expected_test = dense_solution(kernels, test_kernels, reg, 3)
    model = KCCA(3, kernel=kernel, reg=reg, **options).fit(*train)
    for ours, reference in zip(model.transform(*train), expected, strict=True):
        same_up_to_sign(ours, reference, atol=1e-6)
    for ours, reference in zip(model.transform(*test), expected_test, strict=True):
        same_up_to_sign(ours, reference, atol=1e-6)
    pearson = [np.corrcoef(expected[0][:, i], expected[1][:, i])[0, 1] for i in range(3)]
    np.testing.assert_allclose(model.correlations_, pearson, atol=1e-9)


@pytest.mark.parametrize("blocks", [5, 10])
def test_many_components_of_many_samples(blocks, monkeypatch):
    monkeypatch.setattr(krylov, "_BLOCKS", blocks)  # with restarts, many and few
    data = embedded_digits()
    X, y, test_x, test_y = (
        view[:500].astype(float) for view in (data.X_train, data.y_train, data.X_val, data.y_val)
    )
    model = KCCA(20, gamma=(0.02, 0.03), reg=1e-4).fit(X, y)
    kernels = [rbf_kernel(X, gamma=0.02), rbf_kernel(y, gamma=0.03)]
    test_kernels = [rbf_kernel(test_x, X, gamma=0.02), rbf_kernel(test_y, y, gamma=0.03)]
    expected, expected_test = dense_solution(kernels, test_kernels, (1e-4, 1e-4), 20)
    pearson = [np.corrcoef(expected[0][:, i], expected[1][:, i])[0, 1] for i in range(20)]
    np.testing.assert_allclose(model.correlations_, pearson, atol=1e-8)
    same_up_to_sign(model.transform(test_x), expected_test[0], atol=1e-5)


def test_a_linear_kernel_is_linear_cca(views):
    train, test = views
    kernel = KCCA(4, kernel="linear", reg=(0.02, 0.1)).fit(*train)
    linear = LinearCCA(4, reg=(0.02 * 6, 0.1 * 5)).fit(*train)
    np.testing.assert_allclose(kernel.correlations_, linear.correlations_, atol=1e-10)
    for ours, reference in zip(kernel.transform(*test), linear.transform(*test), strict=True):
        same_up_to_sign(ours, reference, atol=1e-7)
    np.testing.assert_allclose(abs(kernel.x_loadings_), abs(linear.x_loadings_), atol=1e-7)
    np.testing.assert_allclose(abs(kernel.y_patterns_), abs(linear.y_patterns_), atol=1e-7)


@given(
    scale=st.floats(1e-3, 1e3),
    shift=st.floats(-100, 100),
    kernel=st.sampled_from(["linear", "rbf"]),
)
def test_units_and_origin_do_not_matter(scale, shift, kernel):
    X, y = paired(n=40, p=3, q=2, seed=1)
    expected = KCCA(1, kernel=kernel, reg=0.1).fit(X, y).correlations_
    changed = KCCA(1, kernel=kernel, reg=0.1).fit(X * scale + shift, y).correlations_
    np.testing.assert_allclose(changed, expected, atol=1e-6)


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_whitened_landmarks_at_all_samples_are_exact(curved, kernel):
    train, test = curved
    exact = KCCA(3, kernel=kernel, reg=1e-3).fit(*train)
    landmarks = NystromCCA(
        3, rank=200, kernel=kernel, features="whitened", reg=1e-3, random_state=0
    ).fit(*train)
    np.testing.assert_allclose(landmarks.correlations_, exact.correlations_, atol=1e-8)
    for ours, reference in zip(landmarks.transform(*test), exact.transform(*test), strict=True):
        same_up_to_sign(ours, reference, atol=1e-5)


def test_without_ridge_both_kinds_of_landmark_features_are_one_model(curved):
    train, test = curved
    models = [
        NystromCCA(2, rank=12, features=kind, reg=0.0, random_state=0).fit(*train)
        for kind in ("columns", "whitened")
    ]
    np.testing.assert_array_equal(models[0].x_landmarks_, models[1].x_landmarks_)
    first, second = (model.transform(*test)[0] for model in models)
    same_up_to_sign(first, second, atol=1e-5)


def test_raw_columns_are_cca_of_the_kernel_columns(curved):
    train, test = curved
    model = NystromCCA(2, rank=(15, 10), reg=(1e-3, 1e-2), random_state=0).fit(*train)
    sets = [
        [rbf_kernel(v, marks, gamma) for v in (train[i], test[i])]
        for i, (marks, gamma) in enumerate(
            zip((model.x_landmarks_, model.y_landmarks_), model.gamma_, strict=True)
        )
    ]
    linear = LinearCCA(2, reg=(1e-3 * 15, 1e-2 * 10)).fit(sets[0][0], sets[1][0])
    np.testing.assert_allclose(model.correlations_, linear.correlations_, atol=1e-9)
    expected = linear.transform(sets[0][1], sets[1][1])
    for ours, reference in zip(model.transform(*test), expected, strict=True):
        same_up_to_sign(ours, reference, atol=1e-7)


def test_fourier_features_approach_exact_kernel_cca_with_the_root_of_the_rank(curved):
    train, test = curved
    options = {"gamma": (0.5, 1.0), "reg": 0.01}
    exact = KCCA(1, **options).fit(*train).transform(test[0])[:, 0]
    ranks, errors = [50, 200, 800], []
    for rank in ranks:
        squares = []
        for seed in range(25):
            model = FourierCCA(1, rank=rank, random_state=seed, **options).fit(*train)
            variates = model.transform(test[0])[:, 0]
            squares.append(((variates * np.sign(variates @ exact) - exact) ** 2).mean())
        errors.append(np.sqrt(np.mean(squares)))
    slope = np.polyfit(np.log(ranks), np.log(errors), 1)[0]
    assert -0.6 < slope < -0.4
    assert errors[-1] < 0.1


def test_fourier_features_have_the_kernel_as_expectation():
    X, y = paired(n=30, p=4, q=3)
    model = FourierCCA(1, rank=40_000, gamma=0.1, random_state=0)
    model._draw_maps((X, y), (40_000, 10), "cpu")
    z = np.cos(X @ model.x_weights_ + model.x_phases_)
    np.testing.assert_allclose(2 / 40_000 * z @ z.T, rbf_kernel(X, gamma=0.1), atol=0.03)


def test_high_ranks_agree_with_a_dense_decomposition(monkeypatch):
    monkeypatch.setattr(krylov, "_DENSE", 100)  # as if the rank were some thousands
    data = embedded_digits()
    X, y = data.X_train[:3000], data.y_train[:3000]
    model = FourierCCA(20, rank=(800, 900), reg=1e-6, random_state=0).fit(X, y)
    F, G = (
        np.cos(X @ model.x_weights_ + model.x_phases_),
        np.cos(y @ model.y_weights_ + model.y_phases_),
    )
    S = np.cov(F, G, rowvar=False)
    S11, S12, S22 = S[:800, :800], S[:800, 800:], S[800:, 800:]
    roots = []
    for block in (S11, S22):
        values, vectors = np.linalg.eigh(block)
        roots.append(vectors / np.sqrt(values + 1e-6 * values.sum()))
    U, _, Vh = np.linalg.svd(roots[0].T @ S12 @ roots[1])
    A, B = roots[0] @ U[:, :20], roots[1] @ Vh[:20].T
    variances = np.sum(A * (S11 @ A), axis=0) * np.sum(B * (S22 @ B), axis=0)
    expected = np.sort(np.sum(A * (S12 @ B), axis=0) / np.sqrt(variances))[::-1]
    np.testing.assert_allclose(model.correlations_, expected, atol=1e-8)


def test_features_are_made_in_blocks_that_do_not_matter(curved, monkeypatch):
    train, _ = curved
    whole = FourierCCA(2, rank=30, reg=1e-3, random_state=0).fit(*train)
    sizes = []
    original = FourierMap.__call__

    def spy(self, x):
        sizes.append(len(x))
        return original(self, x)

    monkeypatch.setattr(FourierMap, "__call__", spy)
    monkeypatch.setattr(features_module, "_SMALLEST_BLOCK", 16)
    monkeypatch.setattr(features_module, "FEATURE_ENTRIES", 60 * 16)
    parts = FourierCCA(2, rank=30, reg=1e-3, random_state=0).fit(*train)
    assert max(sizes) == 16
    np.testing.assert_allclose(parts.correlations_, whole.correlations_, atol=1e-10)
    np.testing.assert_allclose(parts.x_rotations_, whole.x_rotations_, atol=1e-7)


def test_median_rule():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 4))
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)[np.triu_indices(50, 1)]
    assert median_width(X) == pytest.approx(1 / np.median(squares), rel=0.01)
    doubled = np.repeat(X, 40, axis=0)
    assert median_width(doubled) == pytest.approx(median_width(X), rel=0.05)
    large = rng.normal(size=(20_000, 4))
    assert median_width(large) == pytest.approx(1 / 6.71, rel=0.1)  # 2 x the median of chi² with 4


def test_chosen_regularisers_are_the_best_on_validation_data(curved):
    train, (X, y) = curved
    options = {"n_components": 2, "rank": 100, "random_state": 0}
    validation = {"X_val": X[:100], "y_val": y[:100]}
    chosen = FourierCCA(**options, reg="auto").fit(*train, **validation)
    assert all(r in features_module.GRID for r in chosen.reg_)
    best = chosen.score(X[:100], y[:100])
    for reg in (1e-12, 1e-8, 1e-5, 1e-3, 1e-2):
        assert FourierCCA(**options, reg=reg).fit(*train).score(X[:100], y[:100]) < best + 1e-6
    with pytest.raises(ValueError, match="pass X_val, y_val or a number"):
        FourierCCA(**options, reg="auto").fit(*train)


def test_draws_differ_by_seed_and_by_view(curved):
    (X, _), _ = curved
    first = NystromCCA(1, rank=20, reg=0.1, random_state=0).fit(X, X)
    assert not np.array_equal(first.x_landmarks_, first.y_landmarks_)
    second = NystromCCA(1, rank=20, reg=0.1, random_state=1).fit(X, X)
    assert not np.array_equal(first.x_landmarks_, second.x_landmarks_)


def test_a_callable_kernel_is_asked_for_on_loading(views, tmp_path):
    train, test = views
    for model in (KCCA(2, kernel=wave, reg=0.1), NystromCCA(2, kernel=wave, rank=10, reg=0.1)):
        model.fit(*train).save(tmp_path / "model")
        with pytest.raises(dscca.persistence.ModelFileError, match="kernel"):
            dscca.load(tmp_path / "model")
        loaded = dscca.load(tmp_path / "model", kernel=wave)
        np.testing.assert_array_equal(loaded.transform(test[0]), model.transform(test[0]))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (KCCA(60, kernel="linear"), "n_components=60 is above 59"),
        (KCCA(6, kernel="linear"), "n_components=6 is above 5, the number of pairs"),
        (KCCA(reg=(0.1, 0)), "reg must be above 0"),
        (KCCA(reg=(0.1, 0.2, 0.3)), "reg must be a number >= 0"),
        (KCCA(kernel="laplacian"), 'gamma="median" does not suit'),
        (KCCA(gamma=(1.0, -1.0)), "gamma must be"),
        (KCCA(kernel=lambda a, b: a[:, 0]), r"the kernel returned shape \(60,\)"),
        (NystromCCA(rank=61), "rank=61 landmarks of 60 samples"),
        (FourierCCA(3, rank=2), "n_components=3 is above 2"),
        (FourierCCA(rank=(10, 10, 10)), "rank must be"),
        (FourierCCA(rank=2.5), "rank"),
    ],
)
def test_impossible_requests_say_so(views, model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(*views[0])


def test_an_indefinite_kernel_is_refused(views):
    def negative(a, b):
        return -rbf_kernel(a, b)

    with pytest.raises(SingularCovarianceError, match="view X is not positive definite"):
        KCCA(1, kernel=negative).fit(*views[0])
    with pytest.raises(SingularCovarianceError, match="landmarks of view X"):
        NystromCCA(1, kernel=negative, rank=10, features="whitened").fit(*views[0])


@pytest.mark.parametrize(("estimator", "published"), [(FourierCCA, 36.31), (NystromCCA, 41.68)])
def test_published_total_correlation_on_mnist(real_data, estimator, published):
    from dscca.datasets.mnist import halves, read_idx

    train = halves(read_idx(real_data / "mnist" / "train-images-idx3-ubyte.gz"))
    test = halves(read_idx(real_data / "mnist" / "t10k-images-idx3-ubyte.gz"))
    model = estimator(50, rank=1000, random_state=0).fit(train[0][:54_000], train[1][:54_000])
    # Lopez-Paz et al. 2014, table 1: 54,000 digits, another split.
    assert model.score(*test) == pytest.approx(published, abs=0.6)
