"""NCCA against closed forms, dense references and other searches."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.preprocessing import OneHotEncoder

import dscca
from dscca import NCCA, LinearCCA
from dscca.datasets import embedded_digits
from dscca.density import gaussian_weights, row_stochastic, singular_functions
from dscca.neighbors import nearest
from dscca.persistence import ModelFileError
from problems import paired


def fit(X, y, **parameters):
    return NCCA(**{"head_reg": 1e-6, "random_state": 0, **parameters}).fit(X, y)


def weight_matrices(X, y, k, width):
    matrices = []
    for view in (X, y):
        points = torch.from_numpy(np.atleast_2d(view.T).T.astype(float))
        points = points - points.mean(dim=0)
        points /= points.square().sum(dim=1).mean().sqrt().clamp_min(1e-12)
        indices, offsets = nearest(points, points, k, first=0)
        matrices.append(row_stochastic(indices, gaussian_weights(offsets, width), len(points)))
    return matrices


def categories(n, rows, columns, seed=0):
    """Pairs of categories drawn from a random joint table, and the table of their counts."""
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.full(rows * columns, 0.6))
    cells = np.concatenate([np.arange(rows * columns), rng.choice(rows * columns, n, p=table)])
    i, j = cells // columns, cells % columns
    counts = np.zeros((rows, columns))
    np.add.at(counts, (i, j), 1)
    return i, j, counts


def one_hot(*labels):
    return [OneHotEncoder(sparse_output=False).fit_transform(i[:, None]) for i in labels]


@pytest.mark.parametrize("balancing", [0, 15])
def test_a_discrete_joint_table_has_its_exact_singular_values(balancing):
    i, j, counts = categories(400, 5, 7)
    r, c = counts.sum(axis=1), counts.sum(axis=0)
    expected = np.linalg.svd(counts / np.sqrt(np.outer(r, c)), compute_uv=False)
    assert expected[0] == pytest.approx(1)  # the constant pair
    model = fit(*one_hot(i, j), n_components=4, n_neighbors=len(i), width=0.01, balancing=balancing)
    np.testing.assert_allclose(model.singular_values_, expected[1:5], atol=1e-9)
    # Functions of categories need no smoothing: the variates correlate as much.
    np.testing.assert_allclose(model.correlations_, expected[1:5], atol=1e-6)


def test_more_components_than_the_table_has_are_refused_with_the_bound():
    X, y = one_hot(*categories(300, 3, 5)[:2])
    with pytest.raises(ValueError, match="n_components=3 is above 2, the number of pairs"):
        fit(X, y, n_components=3, n_neighbors=len(X), width=0.01)


def test_correlations_of_a_gaussian_pair_approach_the_powers_of_rho():
    # Lancaster: the singular functions are Hermite polynomials, the singular values rho^m. Equal
    # weights on k = n^(2/3) / 2 neighbours; smoothing takes most from the wavier functions.
    rho = 0.8
    expected, held_out, estimated = rho ** np.arange(1, 4), [], []
    for n in (250, 1000, 4000):
        runs, values = [], []
        for seed in range(3):
            rng = np.random.default_rng(seed)
            x = rng.normal(size=n + 10_000)
            y = rho * x + np.sqrt(1 - rho**2) * rng.normal(size=len(x))
            k = round(n ** (2 / 3) / 2)
            model = fit(x[:n, None], y[:n], n_components=3, n_neighbors=k, width=10.0)
            runs.append(model.canonical_correlations(x[n:, None], y[n:]))
            values.append(model.singular_values_)
        held_out.append(np.mean(runs, axis=0))
        estimated.append(np.mean(values, axis=0))
    gaps = np.abs(np.array(held_out) - expected).sum(axis=1)
    assert (np.diff(gaps) < 0).all()
    assert (np.abs(held_out[-1] - expected) < [0.015, 0.05, 0.12]).all()
    assert np.abs(estimated[-1] - expected).sum() < np.abs(estimated[0] - expected).sum()


def test_few_neighbours_in_a_small_sample_overstate_the_correlations():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2, 200, 1))
    assert fit(X, y, n_neighbors=3).singular_values_[0] > 0.7
    assert fit(X, y, n_neighbors=100, width=1.0).singular_values_[0] < 0.3


@given(
    data=st.integers(0, 2**32 - 1),
    n=st.integers(4, 60),
    levels=st.sampled_from([2, 5, 10**6]),
    share=st.floats(0, 1),
    width=st.sampled_from([1e-3, 0.1, 0.5, 10.0]),
    balancing=st.sampled_from([0, 1, 15]),
)
@settings(max_examples=60)
def test_singular_values_never_exceed_one(data, n, levels, share, width, balancing):
    rng = np.random.default_rng(data)
    X, y = rng.integers(levels, size=(2, n, 2)).astype(float)
    k = max(1, round(share * n))
    W_x, W_y = weight_matrices(X, y, k, width)
    # The bound is the operator's own, not the clipping of its rounding.
    S = (W_x @ W_y.T).toarray()
    values = np.linalg.svd(S / np.sqrt(np.outer(S.sum(axis=1), S.sum(axis=0))), compute_uv=False)
    assert values[0] <= 1 + 1e-12
    if values[1] < 1e-9:  # every neighbourhood is the same
        with pytest.raises(ValueError, match="n_components=1 is above 0"):
            singular_functions(W_x, W_y, 1, balancing=balancing, seed=0)
    elif values[1] > 1e-5:
        found = singular_functions(W_x, W_y, 1, balancing=balancing, seed=0)
        assert 0 < found.correlations[0] <= 1
        assert np.isfinite(found.x).all()
        assert np.isfinite(found.y).all()


@pytest.mark.parametrize("n", [300, 1500])
def test_unconnected_parts_correlate_perfectly(n):
    # Five clusters far apart: besides the constant, four functions that tell them apart.
    rng = np.random.default_rng(0)
    cluster = rng.integers(5, size=n)
    X, y = (50 * cluster[:, None] + rng.normal(size=(n, 2)) for _ in range(2))
    values = fit(X, y, n_components=6, n_neighbors=20, width=0.05).singular_values_
    np.testing.assert_allclose(values[:4], 1, atol=1e-6)
    assert (values <= 1).all()
    assert values[4] < 0.99


def test_iterative_and_dense_decompositions_agree():
    X, y = paired(n=1200, p=3, q=2)
    W_x, W_y = weight_matrices(X, y, 15, 0.4)
    found = singular_functions(W_x, W_y, 8, balancing=15, seed=0)
    again = singular_functions(W_x, W_y, 8, balancing=15, seed=1)
    a, b = np.ones(1200), np.ones(1200)
    S = (W_x @ W_y.T).toarray()
    for _ in range(15):
        b = 1 / (S.T @ a)
        a = 1 / (S @ b)
    S = a[:, None] * S * b
    M = S / np.sqrt(np.outer(S.sum(axis=1), S.sum(axis=0)))
    values = np.linalg.svd(M, compute_uv=False)
    np.testing.assert_allclose(found.correlations, values[1:9], atol=1e-7)
    np.testing.assert_allclose(found.x, again.x, atol=1e-4)


def test_balanced_functions_are_centred_and_orthonormal():
    X, y = paired(n=200)
    found = singular_functions(*weight_matrices(X, y, 10, 0.5), 5, balancing=3000, seed=0)
    for f in (found.x, found.y):
        np.testing.assert_allclose(f.mean(axis=0), 0, atol=1e-3)
        np.testing.assert_allclose(f.T @ f / len(f), np.eye(5), atol=1e-3)


def test_new_points_follow_the_papers_extension():
    # f(x) = (1/sigma) sum_j S(x, y_j) g_j, with all n neighbours, summed term by term.
    X, y = paired(n=120, p=3, q=2)
    model = fit(X[:100], y[:100], n_components=2, n_neighbors=100, width=0.6, balancing=0)

    def weights(points, view, fitted):
        centred = view - view[:100].mean(axis=0)
        centred = centred / np.sqrt((centred[:100] ** 2).sum(axis=1).mean())
        distances = ((centred[:, None] - centred[None, :100]) ** 2).sum(axis=2)
        w = np.exp(-distances / (2 * 0.6**2))
        return w / w.sum(axis=1, keepdims=True)

    W_x, W_y = weights(X, X, model), weights(y, y, model)
    S = W_x @ W_y[:100].T  # rows: all points, columns: training points
    r, c = S.sum(axis=1), S[:100].sum(axis=0)
    _, s, Vt = np.linalg.svd(S[:100] / np.sqrt(np.outer(r[:100], c)))
    g = Vt[1:3].T / np.sqrt(c)[:, None]
    f = (S @ g) / r[:, None] / s[1:3]
    np.testing.assert_allclose(model.singular_values_, s[1:3], atol=1e-10)
    ours = model.transform(X)
    # Variates are affine in the functions, on training points and new ones alike.
    design = np.column_stack([np.ones(120), f])
    coefficients = np.linalg.lstsq(design[:100], ours[:100])[0]
    np.testing.assert_allclose(design @ coefficients, ours, atol=1e-8)


def test_functions_at_training_points_extend_themselves():
    X, y = paired(n=150)
    W_x, W_y = weight_matrices(X, y, 7, 0.5)
    found = singular_functions(W_x, W_y, 3, balancing=2, seed=0)
    for W, f, e in ((W_x, found.x, found.x_extension), (W_y, found.y, found.y_extension)):
        masses, values = e.masses.numpy(), e.values.numpy()
        extended = W @ (masses[:, None] * values) / (W @ masses)[:, None]
        np.testing.assert_allclose(extended, f, atol=1e-10)


def test_rotated_scaled_and_shifted_views_give_the_same_result():
    X, y = paired(n=200, p=4, q=3)
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    expected = fit(X, y, n_neighbors=10)
    moved = fit(1000 * X @ Q + 7, y / 50, n_neighbors=10)
    np.testing.assert_allclose(moved.singular_values_, expected.singular_values_, atol=1e-9)
    np.testing.assert_allclose(
        np.abs(moved.transform(1000 * X @ Q + 7)), np.abs(expected.transform(X)), atol=1e-6
    )


@pytest.mark.parametrize("share", [0.5, 0.8, 0.99])
def test_reduction_by_variance_keeps_as_many_components_as_scikit_learn(share):
    X, y = paired(n=200, p=12, q=9, noise=0.5)
    model = fit(X, y, variance=(share, None), n_neighbors=10)
    pca = PCA(n_components=share, svd_solver="full").fit(X)
    assert model.x_axes_.shape == (12, pca.n_components_)
    assert model.y_axes_.shape == (9, 9)
    projected = pca.transform(X)
    scale = np.sqrt((projected**2).sum(axis=1).mean())
    np.testing.assert_allclose(np.abs(model.x_points_), np.abs(projected / scale), atol=1e-10)
    np.testing.assert_allclose((model.y_points_**2).sum(axis=1).mean(), 1)


@pytest.mark.parametrize(("dimensions", "kept"), [(0.2, (2, 2)), (3, (3, 3)), ((4, 0.5), (4, 4))])
def test_reduction_by_dimensions(dimensions, kept):
    X, y = paired(n=100, p=12, q=9)
    model = fit(X, y, dimensions=dimensions, n_neighbors=10)
    assert (model.x_points_.shape[1], model.y_points_.shape[1]) == kept


def test_directions_without_variance_are_left_out():
    X, y = paired(n=100, p=4, q=3)
    wide = np.hstack([X, X[:, :2], np.full((100, 1), 0.1)])
    model = fit(wide, y, n_neighbors=10)
    assert model.x_axes_.shape[1] == 4


def test_duplicated_points():
    # More copies of each point than neighbours: every point still counts itself.
    X, y = paired(n=20)
    X, y = np.repeat(X, 12, axis=0), np.repeat(y, 12, axis=0)
    model = fit(X, y, n_neighbors=5)
    assert (model.singular_values_ <= 1).all()
    assert np.isfinite(model.transform(X)).all()
    assert model.score(X, y) > 1.9


def test_views_may_differ_in_neighbours_and_width():
    X, y = paired(n=100)
    model = fit(X, y, n_neighbors=(5, 8), width=(0.3, 0.7))
    assert model.n_neighbors_ == (5, 8)
    assert model.width_ == (0.3, 0.7)
    single = fit(X, y, n_components=1, n_neighbors=5)
    assert single.transform(X).shape == (100, 1)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_neighbors": 51}, "n_neighbors=51 is above 50, the number of training samples"),
        ({"n_components": 50}, "n_components=50 is above 49"),
        ({"n_neighbors": (3, 2.5)}, "n_neighbors must be a whole number >= 1, or a pair"),
        ({"n_neighbors": (3, 4, 5)}, "or a pair of such"),
        ({"width": (0.5, 0.0)}, "width must be a number > 0"),
        ({"variance": (0.5, 1.5)}, "variance must be a share"),
        ({"dimensions": 7}, "dimensions=7 is above 6, the number of features of view X"),
        ({"dimensions": 1.5}, "dimensions must be a count, a share"),
        ({"dimensions": 2, "variance": 0.8}, "pass one of them"),
    ],
)
def test_impossible_requests_name_bound_and_remedy(parameters, message):
    X, y = paired(n=50)
    with pytest.raises(ValueError, match=message):
        fit(X, y, **{"n_neighbors": 5, **parameters})


def test_validation_samples_that_are_not_finite_are_named():
    X, y = paired(n=100)
    broken = y.copy()
    broken[3, 1] = np.nan
    with pytest.raises(ValueError, match="y_val contains NaN: 1 of 100 rows"):
        NCCA(n_neighbors=5).fit(X, y, X_val=X, y_val=broken)


def test_held_out_rows_choose_the_regulariser():
    X, y = paired(n=200)
    model = NCCA(n_neighbors=10, random_state=0).fit(X, y)
    assert len(model.x_points_) == 180
    given = NCCA(n_neighbors=10, random_state=0).fit(X, y, X_val=X, y_val=y)
    assert len(given.x_points_) == 200


def test_a_stored_model_that_cannot_search_is_refused(tmp_path):
    X, y = paired(n=50)
    model = fit(X, y, n_neighbors=5)
    model.n_neighbors_ = (5, 80)
    model.save(tmp_path)
    with pytest.raises(ModelFileError, match="n_neighbors=80"):
        dscca.load(tmp_path)


def test_functions_of_digit_halves_correlate_more_than_linear_ones():
    data = embedded_digits()
    X, y = data.X_train[:4000], data.y_train[:4000]
    held_out = data.X_test, data.y_test
    model = NCCA(20, variance=0.8, random_state=0).fit(X, y, X_val=data.X_val, y_val=data.y_val)
    linear = LinearCCA(20, reg="auto").fit(X, y, X_val=data.X_val, y_val=data.y_val)
    assert model.score(*held_out) > linear.score(*held_out)
