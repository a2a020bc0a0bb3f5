import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cross_decomposition import CCA as SklearnCCA  # noqa: N811
from sklearn.datasets import load_iris
from sklearn.linear_model import LinearRegression
from statsmodels.multivariate.cancorr import CanCorr

from dscca import LinearCCA, views
from dscca.regularization import GRID
from problems import LINNERUD_BODY, LINNERUD_EXERCISE, generalized_eigen_correlations, paired


def test_linnerud_published_values():
    model = LinearCCA(3).fit(LINNERUD_BODY, LINNERUD_EXERCISE)
    expected = [0.7956081544, 0.2005560411, 0.0725702862]
    np.testing.assert_allclose(model.correlations_, expected, atol=5e-10)


def test_iris_published_values():
    X = load_iris().data
    model = LinearCCA(2).fit(X[:, :2], X[:, 2:])
    np.testing.assert_allclose(model.correlations_, [0.9409689970, 0.1239368812], atol=5e-10)


def test_stacked_identities_published_values():
    eye = np.eye(3)
    X, y = np.vstack([eye, 2 * eye]), np.vstack([eye[::-1], 0.1 * eye])
    model = LinearCCA(3).fit(X, y)
    np.testing.assert_allclose(model.correlations_, [1, 0.533992991, 0.355995328], atol=5e-9)


@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_statsmodels_and_scikit_learn(seed):
    X, y = paired(n=200, p=5, q=4, seed=seed)
    model = LinearCCA(4).fit(X, y)
    np.testing.assert_allclose(model.correlations_, CanCorr(y, X).cancorr, atol=1e-10)
    reference = SklearnCCA(4, max_iter=5000, tol=1e-12).fit(X, y)
    for ours, theirs in zip(model.transform(X, y), reference.transform(X, y), strict=True):
        for k in range(2):  # the weak pairs converge slowly there
            assert abs(np.corrcoef(ours[:, k], theirs[:, k])[0, 1]) == pytest.approx(1, abs=1e-6)


@given(
    seed=st.integers(0, 2**16),
    p=st.integers(1, 8),
    q=st.integers(1, 8),
    reg=st.tuples(st.sampled_from([0.0, 1e-3, 0.5]), st.sampled_from([0.0, 1e-3, 0.5])),
)
def test_regularised_objective_equals_dense_eigenproblem(seed, p, q, reg):
    X, y = paired(n=60, p=p, q=q, seed=seed)
    k = min(p, q)
    model = LinearCCA(k, reg=reg).fit(X, y)
    x_dir, y_dir = model.x_rotations_, model.y_rotations_
    S = np.cov(X, y, rowvar=False)
    S11, S12, S22 = S[:p, :p], S[:p, p:], S[p:, p:]
    norms = [
        np.einsum("ik,ij,jk->k", a, s + r * np.trace(s) / len(s) * np.eye(len(s)), a)
        for a, s, r in ((x_dir, S11, reg[0]), (y_dir, S22, reg[1]))
    ]
    attained = np.einsum("ik,ij,jk->k", x_dir, S12, y_dir) / np.sqrt(norms[0] * norms[1])
    expected = generalized_eigen_correlations(X, y, reg)
    np.testing.assert_allclose(np.sort(attained)[::-1], expected, atol=1e-8)


def test_pairs_are_ordered_by_correlation_where_the_ridge_orders_them_otherwise():
    rng = np.random.default_rng(0)
    strong, weak = rng.normal(size=(2, 2000))
    noise = rng.normal(size=(2, 2000))
    X = np.column_stack([10 * weak, 0.1 * strong])
    y = np.column_stack([10 * (weak + noise[0]), 0.1 * (strong + 0.1 * noise[1])])
    model = LinearCCA(2, reg=1.0).fit(X, y)
    assert model.correlations_[0] > 0.99 > 0.8 > model.correlations_[1]
    assert abs(np.corrcoef(model.transform(X)[:, 0], strong)[0, 1]) > 0.99
    np.testing.assert_allclose(model.canonical_correlations(X, y), model.correlations_)


@given(seed=st.integers(0, 2**16), reg=st.sampled_from([0.0, 1e-2]))
def test_invariance_of_views(seed, reg):
    """Any invertible affine map without a regulariser, scaling and rotation with one."""
    rng = np.random.default_rng(seed)
    X, y = paired(n=80, p=5, q=4, seed=seed)
    before = LinearCCA(4, reg=reg).fit(X, y).correlations_
    Q1, Q2 = (np.linalg.qr(rng.normal(size=(d, d)))[0] for d in (5, 4))
    stretch = [np.exp(rng.uniform(-2, 2, size=d if reg == 0 else 1)) for d in (5, 4)]
    X_map, y_map = X @ (Q1 * stretch[0]) + rng.normal(size=5), y @ (Q2 * stretch[1]) + 7
    after = LinearCCA(4, reg=reg).fit(X_map, y_map).correlations_
    np.testing.assert_allclose(after, before, atol=1e-9)


@given(seed=st.integers(0, 2**16), reg=st.sampled_from([0.0, 1e-2]))
def test_order_of_samples_and_of_views(seed, reg):
    X, y = paired(n=70, p=5, q=3, seed=seed)
    model = LinearCCA(3, reg=reg).fit(X, y)
    shuffled = np.random.default_rng(seed).permutation(70)
    again = LinearCCA(3, reg=reg).fit(X[shuffled], y[shuffled])
    np.testing.assert_allclose(again.correlations_, model.correlations_, atol=1e-10)
    swapped = LinearCCA(3, reg=reg).fit(y, X)
    np.testing.assert_allclose(swapped.correlations_, model.correlations_, atol=1e-10)


@given(seed=st.integers(0, 2**16), n=st.integers(20, 200), p=st.integers(1, 8), q=st.integers(1, 8))
def test_training_variates_are_orthonormal_and_correlations_bounded(seed, n, p, q):
    X, y = paired(n=n, p=p, q=q, seed=seed)
    k = min(p, q)
    model = LinearCCA(k).fit(X, y)
    joint = np.cov(*model.transform(X, y), rowvar=False)
    np.testing.assert_allclose(joint[:k, :k], np.eye(k), atol=1e-8)
    np.testing.assert_allclose(joint[k:, k:], np.eye(k), atol=1e-8)
    np.testing.assert_allclose(joint[:k, k:], np.diag(model.correlations_), atol=1e-8)
    assert ((model.correlations_ >= 0) & (model.correlations_ <= 1)).all()
    assert (np.diff(model.correlations_) <= 0).all()


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("reg", [0.0, 1e-3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scale_of_the_data_does_not_matter(scale, reg, dtype):
    X, y = paired()
    reference = LinearCCA(3, reg=reg).fit(X, y).correlations_
    scaled = LinearCCA(3, reg=reg).fit((X * scale).astype(dtype), (y / scale).astype(dtype))
    np.testing.assert_allclose(scaled.correlations_, reference, atol=1e-6)


@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1e-18), (np.float64, 1e-150)])
def test_views_too_small_for_their_squares_are_refused(dtype, scale):
    X, y = paired()
    reference = LinearCCA(3).fit(X, y).correlations_
    small = LinearCCA(3).fit((X * scale).astype(dtype), y.astype(dtype))
    np.testing.assert_allclose(small.correlations_, reference, atol=1e-6)
    for factor in (1e-5, 1e-7, 1e-20):  # digits are lost, before all of them are
        with pytest.raises(ValueError, match=r"view X is constant, or .*Rescale the view"):
            LinearCCA(3).fit((X * scale * factor).astype(dtype), y.astype(dtype))


def test_columns_of_very_different_scale():
    X, y = paired()
    reference = LinearCCA(3).fit(X, y).correlations_
    scaled = LinearCCA(3).fit(X * np.logspace(-6, 6, X.shape[1]), y)
    np.testing.assert_allclose(scaled.correlations_, reference, atol=1e-9)


def test_float32_with_a_large_mean():
    X, y = (view.astype(np.float32) for view in paired(n=20_000, p=30, q=20, seed=3))
    X, y = X + np.float32(1e4), y - np.float32(1e4)
    single = LinearCCA(10).fit(X, y)
    double = LinearCCA(10).fit(X.astype(np.float64), y.astype(np.float64))
    np.testing.assert_allclose(single.correlations_, double.correlations_, atol=1e-4)
    ours, reference = single.transform(X), double.transform(X.astype(np.float64))
    np.testing.assert_allclose(ours[:, :3], reference[:, :3], atol=1e-3)
    np.testing.assert_allclose(single.x_mean_, X.mean(axis=0, dtype=np.float64), atol=5e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blocks_do_not_change_the_result(monkeypatch, dtype):
    X, y = (view.astype(dtype) for view in paired(n=1001, noise=5.0))
    whole = LinearCCA(2, reg="auto").fit(X, y)
    variates = whole.transform(X, y)
    monkeypatch.setattr(views, "_BLOCK_ENTRIES", 1)  # blocks of 256 rows, the least
    assert views.block_rows(X, y) == 256
    blockwise = LinearCCA(2, reg="auto").fit(X, y)
    assert blockwise.reg_choice_.tried == pytest.approx(whole.reg_choice_.tried, abs=1e-5)
    np.testing.assert_allclose(blockwise.correlations_, whole.correlations_, atol=1e-5)
    for ours, theirs in zip(blockwise.transform(X, y), variates, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert blockwise.score(X, y) == pytest.approx(whole.correlations_.sum(), abs=1e-4)


@pytest.mark.parametrize("widths", [(1, 1), (200, 200), (5000, 3000)])
def test_a_block_takes_little_memory_however_long_the_views(widths):
    long = [np.broadcast_to(np.float64(0), (10**9, width)) for width in widths]
    assert views.block_rows(*long) * sum(widths) * 8 <= 2**26


def test_a_stream_is_as_precise_as_its_coarsest_part():
    X, y = paired(n=600)
    X[:, 5] = X[:, 0] + X[:, 1]  # in float32 only up to rounding
    single = X.astype(np.float32), y.astype(np.float32)
    assert LinearCCA(3).fit(*single).ranks_ == (5, 5)
    for first, second in (((X, y), single), (single, (X, y))):
        model = LinearCCA(3).fit(*(view[:300] for view in first))
        assert model.partial_fit(*(view[300:] for view in second)).ranks_ == (5, 5)


def test_duplicated_and_constant_columns_are_left_out():
    X, y = paired()
    reference = LinearCCA(3).fit(X, y)
    padded = np.column_stack([X, X[:, 0], np.full(len(X), 5.0), X[:, 1] - 2 * X[:, 2]])
    model = LinearCCA(3).fit(padded, y)
    assert model.ranks_ == (6, 5)
    np.testing.assert_allclose(model.correlations_, reference.correlations_, atol=1e-10)
    np.testing.assert_allclose(model.transform(padded), reference.transform(X), atol=1e-8)
    assert np.isfinite(model.x_loadings_).all()
    single = LinearCCA(3).fit(padded.astype(np.float32), y.astype(np.float32))
    assert single.ranks_ == (6, 5)
    np.testing.assert_allclose(single.correlations_, reference.correlations_, atol=1e-5)


def test_rank_bounds_n_components():
    X, y = paired(p=6, q=6)
    X[:, 3:] = X[:, :3]
    with pytest.raises(ValueError, match=r"n_components=4 is above 3"):
        LinearCCA(4).fit(X, y)
    with pytest.raises(ValueError, match=r"n_components=4 is above 3"):
        LinearCCA(4, reg=0.1).fit(X, y)
    with pytest.raises(ValueError, match=r"n_components=7 is above 6.*6 features in X, 6 in y"):
        LinearCCA(7).fit(X, y)


def test_fewer_samples_than_features():
    X, y = paired(n=10, p=20, q=15)
    with pytest.raises(ValueError, match=r"view X has rank 9.*more than 10 samples"):
        LinearCCA(2).fit(X, y)
    model = LinearCCA(9, reg=0.1).fit(X, y)
    assert model.correlations_[0] > 0.5
    with pytest.raises(ValueError, match=r"n_components=10 is above 9.*10 samples"):
        LinearCCA(10, reg=0.1).fit(X, y)


def test_regulariser_below_rounding_names_the_view():
    X, y = (view.astype(np.float32) for view in paired())
    y[:, 1] = y[:, 0]
    with pytest.raises(ValueError, match=r"view y is singular.*reg >="):
        LinearCCA(2, reg=1e-12).fit(X, y)


@pytest.mark.parametrize(
    "reg",
    [-1.0, "always", (0.1, 0.2, 0.3), (0.1, -0.2), float("nan"), [], [[0.1, 0.2]], ["a", 1], {}],
)
def test_bad_regularisers(reg):
    with pytest.raises(ValueError, match="reg"):
        LinearCCA(reg=reg).fit(*paired())


def test_partial_fit_equals_fit_and_survives_drift():
    X, y = paired(n=1000)
    X = X + np.linspace(0, 1e3, 1000)[:, None]
    stream = LinearCCA(3)
    for part in np.array_split(np.arange(1000), [3, 5, 400, 401]):
        stream.partial_fit(X[part], y[part])
    batch = LinearCCA(3).fit(X, y)
    np.testing.assert_allclose(stream.correlations_, batch.correlations_, atol=1e-10)
    np.testing.assert_allclose(stream.x_rotations_, batch.x_rotations_, atol=1e-8)


@pytest.mark.parametrize("width", [5, 3])
def test_a_fit_that_fails_leaves_no_sums_to_go_on_from(width):
    X, y = paired()
    model = LinearCCA(2).fit(X, y)
    with pytest.raises(ValueError, match="view y is constant"):
        model.fit(X[:, :width], 0 * y)
    model.partial_fit(X[:100, :width], y[:100])
    np.testing.assert_allclose(
        model.correlations_, LinearCCA(2).fit(X[:100, :width], y[:100]).correlations_
    )


def test_regularisers_may_be_an_array():
    X, y = paired()
    expected = LinearCCA(2, reg=(0.1, 0.01)).fit(X, y).correlations_
    for reg in (np.array([0.1, 0.01]), [0.1, 0.01]):
        np.testing.assert_array_equal(LinearCCA(2, reg=reg).fit(X, y).correlations_, expected)
        model = LinearCCA(2, reg=reg).partial_fit(X, y)
        np.testing.assert_array_equal(model.correlations_, expected)


def test_partial_fit_continues_a_saved_model(tmp_path):
    from dscca import load

    X, y = paired(n=400)
    LinearCCA(3).fit(X[:250], y[:250]).save(tmp_path)
    model = load(tmp_path).partial_fit(X[250:], y[250:])
    np.testing.assert_allclose(
        model.correlations_, LinearCCA(3).fit(X, y).correlations_, atol=1e-10
    )


def test_auto_tries_every_regulariser_that_a_fit_takes():
    """Of features of very different variances, as pixels have, the largest hides none."""
    X, y = (view * 10.0 ** -np.linspace(0, 3, view.shape[1]) for view in paired(n=600, p=30, q=20))
    data = [view.astype(np.float32) for view in (X[:300], y[:300], X[300:], y[300:])]
    model = LinearCCA(3, reg="auto").fit(*data[:2], X_val=data[2], y_val=data[3])
    for reg in GRID[:6]:
        single = LinearCCA(3, reg=reg).fit(*data[:2])
        tried = model.reg_choice_.tried[reg, reg]
        assert tried == pytest.approx(single.score(*data[2:]), abs=1e-4)


def test_partial_fit_waits_for_enough_samples():
    X, y = paired(n=50)
    model = LinearCCA(2).partial_fit(X[:4], y[:4]).partial_fit(X[4:7], y[4:7])
    assert not hasattr(model, "correlations_")  # 7 samples correlate perfectly with 6 features
    model.partial_fit(X[7:8], y[7:8])
    whole = LinearCCA(2).fit(X[:8], y[:8])
    np.testing.assert_allclose(model.correlations_, whole.correlations_, atol=1e-10)
    model = LinearCCA(2, reg=0.1).partial_fit(X[:2], y[:2])
    assert not hasattr(model, "correlations_")
    assert model.partial_fit(X[2:3], y[2:3]).correlations_.shape == (2,)
    with pytest.raises(ValueError, match='reg="auto" needs fit'):
        LinearCCA(2, reg="auto").partial_fit(X, y)


def test_inverse_transform_with_all_components_restores_the_view():
    X, y = paired(p=4, q=6)
    model = LinearCCA(4).fit(X, y)
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X, atol=1e-8)
    x_hat, y_hat = model.inverse_transform(*model.transform(X, y))
    np.testing.assert_allclose(x_hat, X, atol=1e-8)
    assert y_hat.shape == y.shape
    with pytest.raises(ValueError, match=r"shape \(n_samples, 4\)"):
        model.inverse_transform(X[:, :2])


def test_predict_with_all_components_is_multivariate_regression():
    X, y = paired(p=4, q=6)
    ours = LinearCCA(4).fit(X, y).predict(X)
    np.testing.assert_allclose(ours, LinearRegression().fit(X, y).predict(X), atol=1e-8)


def test_predict_with_few_components_is_regression_on_variates():
    X, y = paired(p=6, q=5)
    model = LinearCCA(2, reg=0.3).fit(X, y)
    variates = model.transform(X)
    reference = LinearRegression().fit(variates, y).predict(variates)
    np.testing.assert_allclose(model.predict(X), reference, atol=1e-8)


def noisy(seed, n, p=40, q=30):
    """View one needs a strong regulariser: few of its many directions carry the shared signal."""
    rng = np.random.default_rng(seed)
    z = np.random.default_rng(99).normal(size=(2, p + q))
    latent = rng.normal(size=(n, 2))
    joint = latent @ z * np.r_[np.full(p, 2.0), np.full(q, 0.7)] + rng.normal(size=(n, p + q))
    return joint[:, :p], joint[:, p:]


def test_auto_regulariser_matches_the_best_fit_per_view():
    X, y = noisy(0, 60)
    X_val, y_val = noisy(1, 500)
    model = LinearCCA(2, reg="auto").fit(X, y, X_val=X_val, y_val=y_val)
    choice = model.reg_choice_
    assert choice.reg == model.reg_
    for reg, score in choice.tried.items():
        refitted = LinearCCA(2, reg=reg).fit(X, y)
        assert refitted.score(X_val, y_val) == pytest.approx(score, abs=1e-5)
    assert choice.score == max(choice.tried.values())
    X_test, y_test = noisy(2, 2000)
    assert model.score(X_test, y_test) > LinearCCA(2, reg=1e-8).fit(X, y).score(X_test, y_test)


@pytest.mark.parametrize("swapped", [False, True])
def test_auto_regulariser_is_each_view_s_own(swapped):
    train, validation = (noisy(seed, n)[:: -1 if swapped else 1] for seed, n in ((0, 60), (1, 500)))
    model = LinearCCA(2, reg="auto").fit(*train, X_val=validation[0], y_val=validation[1])
    best = model.reg_choice_.score
    for r in GRID:  # neither view alone could do better
        for reg in ((r, model.reg_[1]), (model.reg_[0], r)):
            assert LinearCCA(2, reg=reg).fit(*train).score(*validation) <= best + 1e-6
    shared = [LinearCCA(2, reg=r).fit(*train).score(*validation) for r in GRID]
    assert best > max(shared) + 1e-4
    assert model.reg_[0] != model.reg_[1]


def test_auto_regulariser_gives_negative_correlations_their_sign():
    rng = np.random.default_rng(0)
    X, y, X_val, y_val = (rng.normal(size=(n, 6)) for n in (80, 80, 90, 90))
    choice = LinearCCA(6, reg="auto").fit(X, y, X_val=X_val, y_val=y_val).reg_choice_
    for reg, score in choice.tried.items():
        model = LinearCCA(6, reg=reg).fit(X, y)
        assert (model.canonical_correlations(X_val, y_val) < 0).any()
        assert model.score(X_val, y_val) == pytest.approx(score, abs=1e-5)


def test_auto_regulariser_by_cross_validation_agrees_with_literal_folds():
    X, y = noisy(0, 103)
    model = LinearCCA(2, reg="auto").fit(X, y)
    fold = np.arange(103) % 5
    reg, score = model.reg_, model.reg_choice_.score
    literal = [
        LinearCCA(2, reg=reg).fit(X[fold != f], y[fold != f]).score(X[fold == f], y[fold == f])
        for f in range(5)
    ]
    assert np.mean(literal) == pytest.approx(score, abs=1e-6)
    np.testing.assert_allclose(
        model.correlations_, LinearCCA(2, reg=reg).fit(X, y).correlations_, atol=1e-10
    )


def test_validation_values_that_are_not_finite_are_named():
    X, y = noisy(0, 100)
    y_val = y.copy()
    y_val[7, 2] = np.nan
    with pytest.raises(ValueError, match=r"y_val contains NaN: 1 of 100 rows.*row 7"):
        LinearCCA(2, reg="auto").fit(X, y, X_val=X, y_val=y_val)


def test_auto_regulariser_skips_values_under_the_rounding_of_the_data():
    X, y = (view.astype(np.float32) for view in noisy(0, 200))
    X[:, 1] = X[:, 0]
    model = LinearCCA(2, reg="auto").fit(X, y)
    assert min(r for r, _ in model.reg_choice_.tried) > 1e-6
    with pytest.raises(ValueError, match="needs 10 samples, got 9"):
        LinearCCA(2, reg="auto").fit(X[:9], y[:9])


def test_flickr8k_gains_from_a_regulariser_per_view(real_data):
    folder = real_data / "flickr8k"
    image, text = np.load(folder / "resnet50.npz"), np.load(folder / "text300.npz")
    row = {name: i for i, name in enumerate(image["files"])}
    train, val, test = (
        [row[name] for name in (folder / f"Flickr_8k.{part}Images.txt").read_text().split()]
        for part in ("train", "dev", "test")
    )
    X, y = image["features"], text["features"]
    model = LinearCCA(128, reg="auto").fit(X[train], y[train], X_val=X[val], y_val=y[val])
    assert model.reg_[0] != model.reg_[1]
    assert model.score(X[test], y[test]) > 42.0  # 41.6 in the paper, with other word vectors
