"""DCCA and DS-DCCA: what they find, what they survive, and what they say about themselves."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import StandardScaler
from torch import nn

import dscca
from deep_problems import (
    finite,
    same_parameters,
    small_dcca,
    small_dsdcca,
    warped_gaussians,
)
from dscca.deep.preparation import hold_out, standardizer
from dscca.deep.sizes import matched_outputs_width, widened
from problems import paired

VIEWS = paired(n=300)
BOTH = pytest.mark.parametrize("make", [small_dcca, small_dsdcca])


# What they find


def test_known_nonlinear_correlations_are_found():
    train, validation, test = (
        warped_gaussians(n, seed) for seed, n in enumerate((5000, 1000, 20_000))
    )
    truth = np.array([0.9, 0.85])
    assert dscca.LinearCCA(2).fit(*train).score(*test) < 0.75 * truth.sum()
    options = {
        "hidden": (32, 32),
        "epochs": 15,
        "batch_size": 400,
        "learning_rate": 1e-2,
        "schedule": "cosine",
    }
    for make, more in ((small_dcca, {}), (small_dsdcca, {"warmup": 5, "scale_hidden": (16,)})):
        model = make(**options, **more).fit(*train, X_val=validation[0], y_val=validation[1])
        found = model.canonical_correlations(*test)
        np.testing.assert_allclose(found, truth, rtol=0.05)
        assert (found < truth + 0.01).all()  # nobody can do better, but for the test's sampling


@BOTH
def test_independent_views_score_about_zero_on_held_out_data(make):
    rng = np.random.default_rng(0)
    model = make(hidden=(64,), epochs=20, head_reg="auto")
    model.fit(rng.normal(size=(600, 8)), rng.normal(size=(600, 7)))
    found = model.canonical_correlations(rng.normal(size=(40_000, 8)), rng.normal(size=(40_000, 7)))
    assert np.abs(found).max() < 4 / 200  # four standard errors
    assert model.correlations_.sum() > 0.3  # though training fits the noise


def test_training_improves_on_the_untrained_net():
    trained = small_dcca(epochs=15, learning_rate=1e-2, hidden=(32, 32))
    untrained = small_dcca(epochs=1, learning_rate=1e-12, hidden=(32, 32))
    train, test = warped_gaussians(1000, 0), warped_gaussians(5000, 1)
    assert trained.fit(*train).score(*test) > untrained.fit(*train).score(*test) + 0.2


def test_progress_is_watched_on_rows_drawn_from_all():
    X, y = (view.copy() for view in VIEWS)
    X[:100], y[:100] = X[0], y[0]  # sorted data, say
    assert small_dcca().fit(X, y).history_["val_tc"].min() > 0.2


# What they survive


def relu_net(p, *, bias):
    """An encoder whose hidden units all have one bias; at -1e6 every other one is dead."""
    torch.manual_seed(p)
    net = nn.Sequential(nn.Linear(p, 8), nn.ReLU(), nn.Linear(8, 3))
    nn.init.constant_(net[0].bias, 0.1)
    net[0].bias.data[::2] = bias
    return net


def test_dead_hidden_units():
    encoders = (relu_net(6, bias=-1e6), relu_net(5, bias=-1e6))
    assert finite(small_dcca(encoders=encoders).fit(*VIEWS), *VIEWS) > 0.5


class Constant(nn.Linear):
    """A layer whose last outputs are constant, however it is trained."""

    def __init__(self, p, d, constant):
        super().__init__(p, d)
        self.constant = constant

    def forward(self, x):
        y = super().forward(x)
        return torch.cat([y[:, : -self.constant], torch.ones_like(y[:, -self.constant :])], dim=1)


def test_constant_outputs():
    model = small_dcca(encoders=(Constant(6, 4, 1), Constant(5, 4, 2)), head_reg="auto")
    assert finite(model.fit(*VIEWS), *VIEWS) > 0.5
    for encoders in ((Constant(6, 2, 2), nn.Linear(5, 2)), (nn.Linear(6, 2), Constant(5, 2, 2))):
        name = "X" if isinstance(encoders[0], Constant) else "y"
        with pytest.raises(ValueError, match=f"covariance of view {name} is singular"):
            small_dcca(encoders=encoders).fit(*VIEWS)


class Collapsing(nn.Linear):
    """A layer that gives constants at inference after so many batches, and not before or after."""

    calls = 0

    def forward(self, x):
        self.calls += self.training
        return super().forward(x) * (0.0 if self.calls == 4 * (270 // 50) else 1.0)


def test_epoch_of_constant_features_does_not_lose_the_others():
    torch.manual_seed(0)
    model = small_dcca(epochs=8, encoders=(Collapsing(6, 2), nn.Linear(5, 2))).fit(*VIEWS)
    assert model.best_epoch_ != 4
    assert model.history_["val_tc"][3] == 0
    assert finite(model, *VIEWS) > 0.5


def test_nothing_to_train_is_refused():
    with pytest.raises(ValueError, match="no parameters"):
        small_dcca(encoders=(nn.Identity(), nn.Identity())).fit(*VIEWS)


@BOTH
def test_views_of_rank_one(make):
    X, y = np.outer(VIEWS[0][:, 0], np.arange(1.0, 6)), np.outer(VIEWS[1][:, 0], [1.0, -2, 3])
    truth = abs(np.corrcoef(X[:, 0], y[:, 0])[0, 1])
    model = make(n_components=1, epochs=20, learning_rate=1e-2).fit(X, y)
    assert finite(model, X, y) == pytest.approx(truth, abs=0.1)
    finite(make(n_components=3).fit(X, y), X, y)


@BOTH
@pytest.mark.parametrize(
    ("n", "batch_size"), [(300, 77), (271 + 30, 90), (60, 750), (300, 3), (101 + 12, 100)]
)
def test_batches_that_do_not_divide_the_samples(make, n, batch_size):
    X, y = paired(n=n)
    finite(make(batch_size=batch_size, epochs=3).fit(X, y), X, y)


def test_head_regularisers_may_be_an_array():
    assert small_dcca(head_reg=np.array([0.1, 0.01])).fit(*VIEWS).head_reg_ == (0.1, 0.01)


def test_batches_too_small_for_the_features():
    wide = (nn.Linear(6, 50), nn.Linear(5, 7))
    with pytest.raises(ValueError, match=r"50 samples cannot carry 50 features.*batch_size"):
        small_dcca(encoders=wide).fit(*VIEWS)
    finite(
        small_dcca(encoders=wide, batch_size=51).fit(*VIEWS, X_val=VIEWS[0], y_val=VIEWS[1]), *VIEWS
    )


def test_batches_too_small_for_the_components():
    for batch_size in (2, 5):
        with pytest.raises(ValueError, match=rf"batches of {batch_size} .*n_components=5.*batch_s"):
            small_dcca(n_components=5, batch_size=batch_size).fit(*VIEWS)
    with pytest.raises(ValueError, match=r"too few|cannot carry"):
        small_dcca(n_components=20).fit(*(view[:21] for view in VIEWS))
    with pytest.raises(ValueError, match=r"2 validation samples cannot carry n_components=2"):
        small_dcca().fit(*VIEWS, X_val=VIEWS[0][:2], y_val=VIEWS[1][:2])


@BOTH
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_units_of_the_data_do_not_matter(make, dtype):
    X, y = (view.astype(dtype) for view in VIEWS)
    score = make().fit(X, y).score(X, y)
    for a, b in ((1e-6, 1.0), (1e6, 1e-6), (1e6, 1e6)):
        model = make().fit(dtype(a) * X, dtype(b) * y)
        assert model.score(dtype(a) * X, dtype(b) * y) == pytest.approx(score, abs=1e-3)


def test_offsets_of_the_data_do_not_matter_as_long_as_float32_resolves_them():
    X, y = VIEWS
    score = small_dcca().fit(X, y).score(X, y)
    assert small_dcca().fit(X + 1e3, y).score(X + 1e3, y) == pytest.approx(score, abs=0.02)


def test_standardisation_is_that_of_the_training_rows(monkeypatch):
    monkeypatch.setattr("dscca.head.BLOCK_ROWS", 17)  # several blocks, drifting apart
    X = VIEWS[0] * [1, 2, 3, 4, 5, 6] + np.linspace(0, 20, 300)[:, None]
    X = np.column_stack([X, np.full(300, 7.0)])
    rows = np.sort(np.random.default_rng(0).permutation(300)[:200])
    part = X[rows]
    by_view = standardizer(X, rows, "view", torch.device("cpu"), "X")
    np.testing.assert_allclose(by_view.mean, part.mean(), rtol=1e-6)
    np.testing.assert_allclose(by_view.scale, np.sqrt(part.var(axis=0).mean()), rtol=1e-6)
    by_feature = standardizer(X, rows, "features", torch.device("cpu"), "X")
    expected = StandardScaler().fit(part)
    np.testing.assert_allclose(by_feature.mean, expected.mean_, rtol=1e-6)
    np.testing.assert_allclose(by_feature.scale, expected.scale_, rtol=1e-6)
    none = standardizer(X, rows, None, torch.device("cpu"), "X")
    view = torch.from_numpy(X).float()
    assert torch.equal(none(view), view)


def test_offsets_that_float32_does_not_resolve_are_refused():
    X, y = VIEWS
    with pytest.raises(ValueError, match=r"view X .*float32.*centre"):
        small_dcca().fit(X + 1e8, y)
    with pytest.raises(ValueError, match=r"view X is constant, at least in float32"):
        small_dcca().fit(X + 1e12, y)


@BOTH
def test_one_feature(make):
    X, y = VIEWS[0][:, :1], VIEWS[1][:, 0]
    finite(make(n_components=1).fit(X, y), X, y)


@BOTH
def test_more_components_than_features(make):
    X, y = VIEWS[0][:, :3], VIEWS[1][:, :3]
    model = make(n_components=10, hidden=(16,)).fit(X, y)
    assert model.transform(X).shape == (300, 10)
    finite(model, X, y)


def test_too_few_samples():
    with pytest.raises(ValueError, match="minimum of 2"):
        small_dcca().fit(*(view[:1] for view in VIEWS))
    for n in (2, 3):
        with pytest.raises(ValueError, match=r"too few|cannot carry"):
            small_dcca().fit(*(view[:n] for view in VIEWS))
    model = small_dcca().fit(*VIEWS)
    one = model.transform(VIEWS[0][:1])
    np.testing.assert_allclose(one, model.transform(VIEWS[0])[:1], rtol=1e-6)


def test_bound_on_components_is_known_before_training():
    epochs = []
    for options in (
        {"hidden": (4,), "n_components": 5},
        {"encoders": (nn.Linear(6, 4), nn.Linear(5, 4)), "n_components": 5},
    ):
        with pytest.raises(ValueError, match="n_components=5"):
            small_dcca(**options, callbacks=[epochs.append]).fit(*VIEWS)
    assert epochs == []


@pytest.mark.parametrize("hidden", [8, None, "88", "(8, 8)", [8.5], [[8], [8.0]], [[8]], [None]])
def test_widths_must_be_whole(hidden):
    with pytest.raises(ValueError, match="hidden must be a sequence of whole widths or a pair"):
        small_dcca(hidden=hidden).fit(*VIEWS)


@pytest.mark.parametrize("reg", [[], (0.1, 0.1, 0.1), [[0.1, 0.2]], (0.1, 0.0)])
def test_regularisers_are_one_or_a_pair(reg):
    with pytest.raises(ValueError, match="reg must be"):
        small_dcca(reg=reg).fit(*VIEWS)


def test_half_precision_and_frames():
    X, y = (view.astype(np.float16) for view in VIEWS)
    exact = small_dsdcca().fit(X.astype(np.float32), y.astype(np.float32))
    model = small_dsdcca().fit(X, y)
    assert same_parameters(model, exact)
    np.testing.assert_array_equal(model.transform(X), exact.transform(X.astype(np.float32)))
    frames = [pd.DataFrame(view, columns=list("abcdef"[: view.shape[1]])) for view in VIEWS]
    framed = small_dsdcca().fit(*frames, X_val=frames[0][:50], y_val=frames[1][:50])
    arrays = small_dsdcca().fit(*VIEWS, X_val=VIEWS[0][:50], y_val=VIEWS[1][:50])
    assert same_parameters(framed, arrays)
    assert list(framed.feature_names_in_) == list("abcdef")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_in_validation_are_named(bad):
    broken = [view[:40].copy() for view in VIEWS]
    broken[1][7, 0] = bad
    with pytest.raises(ValueError, match=r"y_val contains .*1 of 40 rows.*row 7"):
        small_dcca().fit(*VIEWS, X_val=broken[0], y_val=broken[1])


def test_values_that_are_not_finite_are_named_where_the_user_knows_them():
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    row = int(hold_out(300, 0.1, 2, seed, None)[1][3])  # a row that is held out
    X = VIEWS[0].copy()
    X[row, 1] = np.nan
    with pytest.raises(ValueError, match=rf"X contains NaN: 1 of 300 rows.*row {row}\b"):
        small_dcca().fit(X, VIEWS[1])


def test_failed_fit_leaves_no_fitted_model():
    model = small_dcca(learning_rate=1e30)
    with pytest.raises(ArithmeticError):
        model.fit(*VIEWS)
    with pytest.raises(NotFittedError):
        model.transform(VIEWS[0])


# The ablations


def test_unscaled_ablation_is_dcca_bit_for_bit():
    plain = small_dcca(dropout=0.2).fit(*VIEWS)
    none = small_dsdcca(scaling="none", dropout=0.2).fit(*VIEWS)
    assert same_parameters(plain, none)
    for column in ("loss", "val_loss", "val_tc"):
        np.testing.assert_array_equal(plain.history_[column], none.history_[column])


@pytest.mark.parametrize(
    "options",
    [
        {"scaling": "hypernetwork", "warmup": 0},
        {"scaling": "outputs", "scale_hidden": (matched_outputs_width(12, 2, (4,)),)},
        {"scaling": "global"},
        {"warmup": 0, "start": "one"},
        {"warmup": 0, "start": "default"},
        {"hidden": widened(6, (12, 12), 2, 600)},
        {"hidden": ((12, 8), ()), "scale_hidden": ((5, 4), (3,)), "context": "zx"},
    ],
    ids=["hypernetwork", "outputs", "global", "one", "default", "wide", "differing views"],
)
def test_ablations_train(options):
    model = small_dsdcca(**{"epochs": 30, "learning_rate": 5e-3, **options}).fit(*VIEWS)
    assert model.history_["loss"].iloc[-1] < model.history_["loss"].iloc[0] - 0.1
    assert finite(model, *VIEWS) > 1.0


def test_ablations_differ():
    fits = [
        small_dsdcca(**{"warmup": 0, **options}).fit(*VIEWS).transform(VIEWS[0])
        for options in (
            {},
            {"start": "default"},
            {"context": "x"},
            {"context": "zx"},
            {"scaling": "global"},
            {"scaling": "outputs"},
            {"scaling": "hypernetwork"},
            {"scaling": "none"},
            {"scale_hidden": (5,)},
        )
    ]
    for i, ours in enumerate(fits):
        assert all(not np.allclose(ours, theirs, atol=1e-3) for theirs in fits[:i])


def test_hypernetwork_has_nothing_to_warm_up():
    with pytest.raises(ValueError, match=r"warmup=1: use warmup=0"):
        small_dsdcca(scaling="hypernetwork", warmup=1).fit(*VIEWS)
