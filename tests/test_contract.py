"""What every public estimator promises, whichever method it implements."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import dscca
from dscca.persistence import ModelFileError
from estimators import SMALL
from problems import paired

ALL = sorted(dscca.all_estimators())


@pytest.fixture(params=ALL)
def make(request):
    return SMALL[request.param]


@pytest.fixture
def views():
    return paired(n=160, p=6, q=5)


@pytest.fixture
def fitted(make, views):
    # All samples train, so that what holds on training data can be checked on them.
    return make(n_components=2).fit(*views, X_val=views[0], y_val=views[1])


def test_every_estimator_has_a_small_setting():
    assert sorted(SMALL) == ALL


@pytest.mark.filterwarnings("ignore:Skipping check check_array_api_input")
@parametrize_with_checks([SMALL[name]() for name in ALL])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_variates_have_unit_variance_and_ordered_correlations(fitted, views):
    x, y = fitted.transform(*views)
    assert x.shape == y.shape == (160, 2)
    np.testing.assert_allclose(x.var(axis=0, ddof=1), 1, rtol=1e-4)
    np.testing.assert_allclose(y.var(axis=0, ddof=1), 1, rtol=1e-4)
    expected = [np.corrcoef(x[:, i], y[:, i])[0, 1] for i in range(2)]
    np.testing.assert_allclose(fitted.correlations_, expected, atol=1e-5)
    np.testing.assert_allclose(fitted.canonical_correlations(*views), expected, atol=1e-5)
    assert fitted.score(*views) == pytest.approx(sum(expected), abs=1e-5)
    assert fitted.correlations_[0] >= fitted.correlations_[1]


def test_views_can_be_transformed_alone(fitted, views):
    X, y = views
    both = fitted.transform(X, y)
    np.testing.assert_array_equal(fitted.transform(X), both[0])
    np.testing.assert_array_equal(fitted.transform_y(y), both[1])


def test_fit_transform_returns_view_one(make, views):
    model = make(n_components=2)
    np.testing.assert_allclose(model.fit_transform(*views), model.transform(views[0]))


def test_signs_and_results_are_reproducible(make, views):
    first = make(n_components=2).fit(*views).transform(views[0])
    np.testing.assert_array_equal(first, make(n_components=2).fit(*views).transform(views[0]))


def test_loadings_are_correlations_of_features_with_variates(fitted, views):
    for view, variates, loadings in zip(
        views, fitted.transform(*views), (fitted.x_loadings_, fitted.y_loadings_), strict=True
    ):
        p = view.shape[1]
        expected = np.corrcoef(view, variates, rowvar=False)[:p, p:]
        np.testing.assert_allclose(loadings, expected, atol=1e-4)


def test_patterns_are_least_squares_coefficients(fitted, views):
    for view, variates, patterns in zip(
        views, fitted.transform(*views), (fitted.x_patterns_, fitted.y_patterns_), strict=True
    ):
        design = np.column_stack([np.ones(len(view)), variates])
        expected = np.linalg.lstsq(design, view)[0][1:].T
        np.testing.assert_allclose(patterns, expected, atol=1e-3 * np.abs(expected).max())


def test_explained_covariance_agrees_with_reconstruction(fitted, views):
    x, y = fitted.transform(*views)
    p = views[0].shape[1]
    S12 = np.cov(*views, rowvar=False)[:p, p:]
    for k, share in enumerate(fitted.explained_covariance(*views), start=1):
        x_hat = x[:, :k] @ fitted.x_patterns_[:, :k].T
        y_hat = y[:, :k] @ fitted.y_patterns_[:, :k].T
        rest = S12 - np.cov(x_hat, y_hat, rowvar=False)[:p, p:]
        assert share == pytest.approx(1 - (rest**2).sum() / (S12**2).sum(), abs=1e-4)


def test_independent_noise_scores_about_zero_on_held_out_data(make):
    rng = np.random.default_rng(1)
    model = make(n_components=2).fit(rng.normal(size=(500, 6)), rng.normal(size=(500, 5)))
    held_out = model.score(rng.normal(size=(4000, 6)), rng.normal(size=(4000, 5)))
    assert abs(held_out) < 0.1


@pytest.mark.parametrize(
    "convert",
    [
        np.asfortranarray,
        lambda a: np.repeat(a, 2, axis=1)[:, ::2],
        lambda a: a[::-1][::-1],
        lambda a: a.tolist(),
        pd.DataFrame,
        lambda a: pd.DataFrame(a).convert_dtypes(),
        lambda a: pytest.importorskip("polars").DataFrame(
            a, schema=[f"c{i}" for i in range(a.shape[1])]
        ),
        torch.from_numpy,
        lambda a: torch.from_numpy(a).requires_grad_(),
    ],
    ids=["fortran", "strided", "reversed", "list", "pandas", "nullable", "polars", "torch", "grad"],
)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_containers_give_the_same_result(make, views, convert):
    expected = make(n_components=2).fit(*views).transform(*views)
    X, y = (convert(view.copy()) for view in views)
    model = make(n_components=2).fit(X, y)
    for ours, reference in zip(model.transform(X, y), expected, strict=True):
        np.testing.assert_allclose(ours, reference, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int16", "uint8"])
def test_dtypes(make, views, dtype):
    scaled = [(view * 10 + 100).astype(dtype) for view in views]
    model = make(n_components=2).fit(*scaled)
    reference = make(n_components=2).fit(*(view.astype(np.float64) for view in scaled))
    np.testing.assert_allclose(model.correlations_, reference.correlations_, atol=2e-3)
    expected = np.float32 if dtype.startswith("float") else np.float64
    assert model.transform(scaled[0]).dtype == expected


def test_bfloat16_tensors(make, views):
    X, y = (torch.from_numpy(view).bfloat16() for view in views)
    reference = make(n_components=2).fit(X.float().numpy(), y.float().numpy())
    np.testing.assert_allclose(
        make(n_components=2).fit(X, y).correlations_, reference.correlations_, atol=1e-5
    )


@pytest.mark.gpu
def test_cuda_tensors_and_device(make, views):
    on_cpu = make(n_components=2, device="cpu").fit(*views)
    X, y = (torch.from_numpy(view).cuda() for view in views)
    on_gpu = make(n_components=2, device="cuda").fit(X, y)
    np.testing.assert_allclose(on_gpu.correlations_, on_cpu.correlations_, atol=1e-2)
    assert isinstance(on_gpu.transform(X), np.ndarray)


def test_memory_mapped(make, views, tmp_path):
    paths = [tmp_path / "x.npy", tmp_path / "y.npy"]
    for path, view in zip(paths, views, strict=True):
        np.save(path, view)
    X, y = (np.load(path, mmap_mode="r") for path in paths)
    model = make(n_components=2).fit(X, y)
    reference = make(n_components=2).fit(*views)
    np.testing.assert_array_equal(model.correlations_, reference.correlations_)


def test_pipeline_grid_search_and_cross_validation(make, views):
    X, y = views
    pipeline = make_pipeline(StandardScaler(), make(n_components=1))
    assert pipeline.fit(X, y).transform(X).shape == (160, 1)
    assert len(cross_val_score(make(n_components=1), X, y, cv=3)) == 3
    search = GridSearchCV(make(), {"n_components": [1, 2]}, cv=2).fit(X, y)
    assert search.best_params_ == {"n_components": 2}


def test_clone_and_pickle(fitted, views):
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.transform(views[0]), fitted.transform(views[0]))
    assert clone(fitted).get_params() == fitted.get_params()


def test_save_and_load(fitted, views, tmp_path):
    fitted.save(tmp_path / "model")
    loaded = dscca.load(tmp_path / "model")
    assert type(loaded) is type(fitted)
    assert loaded.get_params() == fitted.get_params()
    for ours, reference in zip(loaded.transform(*views), fitted.transform(*views), strict=True):
        np.testing.assert_array_equal(ours, reference)
    for name in fitted._persistent:
        np.testing.assert_array_equal(getattr(loaded, name), getattr(fitted, name))


def test_any_damage_to_a_saved_model_is_noticed(fitted, tmp_path):
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    whole = path.read_bytes()
    for position in np.random.default_rng(0).integers(len(whole), size=100):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        with pytest.raises(ModelFileError):
            dscca.load(path)


def test_feature_names_of_either_view_are_checked_and_saved(make, views, tmp_path):
    X = pd.DataFrame(views[0], columns=list("abcdef"))
    y = pd.DataFrame(views[1], columns=list("vwxyz"))
    model = make().fit(X, y)
    model.save(tmp_path / "m.safetensors")
    for fitted in (model, dscca.load(tmp_path / "m.safetensors")):
        with pytest.raises(ValueError, match="feature names should match"):
            fitted.transform(X.rename(columns={"a": "z"}))
        for call in (fitted.transform_y, lambda y, fitted=fitted: fitted.score(X, y)):
            with pytest.raises(ValueError, match=r"feature names of y should match.*'z', 'y', 'x'"):
                call(y[list("zyxwv")])
        np.testing.assert_allclose(fitted.transform_y(y), fitted.transform_y(views[1]))
    model.fit(X, views[1]).transform_y(y[list("zyxwv")])  # no names were given to keep
    with pytest.raises(ValueError, match="feature names of y"):
        make().fit(X, y, X_val=X, y_val=y[list("zyxwv")])


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_set_output_wraps_both_views(make, views, container):
    model = make(n_components=2).set_output(transform=container).fit(*views)
    x, y = model.transform(*views)
    names = list(model.get_feature_names_out())
    assert list(x.columns) == list(y.columns) == names
    assert list(model.transform_y(views[1]).columns) == names


def test_one_dimensional_y_is_one_column(make, views):
    X, y = views
    model = make().fit(X, y[:, 0])
    np.testing.assert_array_equal(model.transform_y(y[:, 0]), model.transform_y(y[:, :1]))


def test_unfitted_use_is_refused(make, views):
    for use in ("transform", "transform_y", "save"):
        with pytest.raises(NotFittedError):
            getattr(make(), use)(views[0])
    with pytest.raises(NotFittedError):
        make().score(*views)


def test_a_fit_that_fails_leaves_no_fitted_model(make, views):
    X, y = views
    model = make().fit(X, y)
    with pytest.raises(ValueError, match="view y is constant"):
        model.fit(X, 0 * y)
    with pytest.raises(NotFittedError):
        model.transform(X)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_named(make, views, bad):
    X, y = (view.copy() for view in views)
    y[7, 2] = y[9, 0] = bad
    with pytest.raises(ValueError, match=r"y contains (NaN|inf).*2 of 160 rows.*row 7"):
        make().fit(X, y)
    model = make().fit(*views)
    with pytest.raises(ValueError, match="Input y contains"):
        model.transform_y(y)
    with pytest.raises(ValueError, match="Input y contains"):
        model.score(X, y)
    X[3, 0] = bad
    with pytest.raises(ValueError, match="Input X contains"):
        model.transform(X)


def test_masks_and_dates_are_no_numbers(make, views):
    X, y = views
    hidden = np.ma.masked_greater(y, 2.0)
    with pytest.raises(ValueError, match=rf"y is a masked array .*{(y > 2).sum()} values"):
        make().fit(X, hidden)
    with pytest.raises(ValueError, match="X is a masked array"):
        make().fit(X, y).transform(np.ma.masked_less(X, 0.0))
    nothing_hidden = make().fit(np.ma.masked_array(X), y)
    np.testing.assert_array_equal(nothing_hidden.transform(X), make().fit(X, y).transform(X))
    with pytest.raises(ValueError, match=r"X holds datetime64\[s\] values"):
        make().fit((X * 1e6).astype("datetime64[s]"), y)
    with pytest.raises(ValueError, match="y holds timedelta64"):
        make().fit(X, (y * 1e6).astype("timedelta64[s]"))


def test_impossible_calls_say_so(make, views):
    X, y = views
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        make().fit(X, y[:-1])
    with pytest.raises(ValueError, match="minimum of 2"):
        make().fit(X[:1], y[:1])
    with pytest.raises(ValueError, match="view y is constant"):
        make().fit(X, np.full_like(y, 3.0))
    with pytest.raises(ValueError, match="y_val came without X_val"):
        make().fit(X, y, y_val=y)
    with pytest.raises(ValueError, match="expecting 5"):
        make().fit(X, y).transform(X, y[:, :3])
    for device in ("nonsense", "meta", "xpu", "mps"):
        with pytest.raises(ValueError, match=f"device='{device}'"):
            make(device=device).fit(X, y)
