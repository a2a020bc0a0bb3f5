"""The other deep methods: what each finds, and the state that each keeps."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import dscca
from deep_problems import SMALL, features, finite, same_parameters, total_correlation_by_roots
from dscca import demo
from dscca.deep.baselines import SoftCCAObjective
from dscca.methods import METHODS
from dscca.persistence import ModelFileError
from problems import generalized_eigen_correlations, paired
from test_checkpoint import STEPS, Interrupt, stop, without_time
from test_deep_models import cnn, images, rewritten
from test_training import VALIDATION, overfitted

VIEWS = paired(n=300)
NAMES = ("DCCAE", "CorrNet", "SoftCCA", "SoftHGR", "L0CCA")
EACH = pytest.mark.parametrize("name", NAMES)


def small(name, **parameters):
    return getattr(dscca, name)(**{**SMALL, **parameters})


# What they find


def test_soft_hgr_with_linear_nets_reaches_its_optimum():
    X, y = paired(n=2000)
    rho = generalized_eigen_correlations(X, y)
    model = small(
        "SoftHGR",
        n_components=3,
        hidden=(),
        batch_size=1000,
        epochs=150,
        learning_rate=1e-2,
        schedule="cosine",
        weight_decay=0.0,
    ).fit(X, y, X_val=X, y_val=y)
    optimum = -0.5 * (rho[:3] ** 2).sum()
    assert model.history_["val_loss"].min() == pytest.approx(optimum, abs=1e-3)
    assert model.history_["val_loss"].min() > optimum - 1e-6
    # Its features are the canonical variates, and so large that they carry the correlations.
    np.testing.assert_allclose(model.canonical_correlations(X, y), rho[:3], atol=1e-3)
    S1, S2 = (np.cov(F, rowvar=False) for F in features(model, X, y))
    np.testing.assert_allclose(np.sort(np.linalg.eigvals(S1 @ S2))[::-1], rho[:3] ** 2, atol=1e-2)


def test_soft_cca_makes_features_equal_and_uncorrelated():
    z = np.random.default_rng(0).normal(size=(2000, 3))
    mixed = z @ np.array([[1, 0.9, 0.8], [0, 0.5, 0.7], [0, 0, 0.4]])  # nearly collinear
    options = {"n_components": 3, "hidden": (), "batch_size": 500, "learning_rate": 1e-2}
    model = small("SoftCCA", epochs=60, decorrelation=1.0, memory=0.9, schedule="cosine", **options)
    model.fit(mixed, z)
    f, g = features(model, mixed, z)
    S = np.cov(f, g, rowvar=False)
    np.testing.assert_allclose(S[:3, :3], np.eye(3), atol=0.1)
    assert ((f - g) ** 2).sum(axis=1).mean() < 0.05
    free = small("SoftCCA", epochs=60, decorrelation=0.0, **options).fit(mixed, z)
    f, _ = features(free, mixed, z)
    assert np.abs(np.corrcoef(f, rowvar=False) - np.eye(3)).max() > 0.3


def planted(n, seed):
    """Views of twelve features each, of which the first or last three are informative."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3))
    X, y = rng.normal(size=(2, n, 12))
    X[:, :3], y[:, -3:] = z + 0.3 * X[:, :3], z + 0.3 * y[:, -3:]
    return X, y


@pytest.mark.parametrize(
    ("reduction", "sparsity"), [("sum", 0.1), ("mean", 1.2)], ids=["sum", "mean"]
)
def test_gates_open_on_informative_features_and_close_on_the_rest(reduction, sparsity):
    model = small(
        "L0CCA",
        n_components=3,
        hidden=(),
        epochs=100,
        batch_size=200,
        learning_rate=2e-3,
        sparsity=sparsity,
        noise=0.5,
        reduction=reduction,
    ).fit(*planted(2000, 0))
    np.testing.assert_array_equal(model.x_selected_, np.arange(12) < 3)
    np.testing.assert_array_equal(model.y_selected_, np.arange(12) >= 9)
    for gates in (model.x_gates_, model.y_gates_):
        assert 0 <= gates.min() < gates.max() <= 1
    X, y = planted(5000, 1)
    assert model.score(X, y) == pytest.approx(3 / 1.09, abs=0.03)
    noise = np.random.default_rng(2).normal(size=X.shape)
    replaced = np.where(model.x_selected_, X, noise)
    np.testing.assert_array_equal(model.transform(replaced), model.transform(X))


def test_gates_without_a_penalty_stay_open():
    model = small("L0CCA", sparsity=0.0, noise=0.5, epochs=10).fit(*VIEWS)
    assert model.x_selected_.all()
    assert model.y_selected_.all()
    options = {"epochs": 10, "learning_rate": 5e-3, "reduction": "sum", "noise": 0.5}
    one_sided = small("L0CCA", sparsity=(0.0, 0.5), **options).fit(*VIEWS)
    free = small("L0CCA", sparsity=0.0, **options).fit(*VIEWS)
    np.testing.assert_allclose(one_sided.x_gates_, free.x_gates_, atol=0.15)
    assert (one_sided.y_gates_ < free.y_gates_ - 0.2).all()


@pytest.mark.parametrize("options", [{}, {"averaging": 0.7, "dropout": 0.2, "hidden": ((8,), ())}])
def test_unweighted_dccae_is_dcca_bit_for_bit(options):
    plain = small("DCCA", **options).fit(*VIEWS)
    model = small("DCCAE", reconstruction=0.0, **options).fit(*VIEWS)
    assert same_parameters(plain, model)
    for column in ("loss", "val_loss", "val_tc"):
        np.testing.assert_array_equal(plain.history_[column], model.history_[column])


def low_rank(n, seed, noise=0.1):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 2))
    maps = np.random.default_rng(99).normal(size=(2, 2, 6))
    return [5 + 10 * (z @ map + noise * rng.normal(size=(n, 6))) for map in maps]


@pytest.mark.parametrize("scale", ["view", "features"])
def test_corrnet_reconstructs_either_view_from_either(scale):
    """Codes of either view are the latent z, those of both are 2 z: the one linear map that makes
    the best of all three makes 2/3 z of the former and 4/3 z of the latter."""
    options = {"epochs": 60, "learning_rate": 1e-2, "schedule": "cosine", "correlation": 1.0}
    model = small("CorrNet", hidden=(), scale=scale, **options).fit(*low_rank(2000, 0))
    X, y = low_rank(1000, 1)
    for given in ((X, None), (None, y), (X, y)):
        for view, reconstruction in zip((X, y), model.reconstruct(*given), strict=True):
            assert reconstruction.shape == view.shape
            assert reconstruction.dtype == view.dtype
            unexplained = ((view - reconstruction) ** 2).mean() / view.var()
            assert unexplained == pytest.approx(1 / 9, abs=0.02)


def test_dccae_reconstructs_each_view_from_its_own():
    options = {"epochs": 60, "learning_rate": 1e-2, "schedule": "cosine"}
    model = small("DCCAE", hidden=(16,), reconstruction=1.0, **options).fit(*low_rank(2000, 0))
    X, y = low_rank(1000, 1)
    both = model.reconstruct(X, y)
    for view, reconstruction in zip((X, y), both, strict=True):
        assert ((view - reconstruction) ** 2).mean() < 0.05 * view.var()
    first, nothing = model.reconstruct(X)
    np.testing.assert_array_equal(first, both[0])
    assert nothing is None
    with pytest.raises(ValueError, match="needs X, y or both"):
        model.reconstruct()
    with pytest.raises(ValueError, match="inconsistent"):
        model.reconstruct(X, y[:-1])
    X[3, 2] = np.nan
    with pytest.raises(ValueError, match=r"X contains NaN.*row 3"):
        model.reconstruct(X)


# The state that they keep


@pytest.mark.parametrize("averaging", [0.0, 0.7])
def test_best_epoch_of_dccae_is_its_networks_and_decoders_together(averaging):
    """The validation loss, again from what the fitted model returns."""
    model = overfitted(partial(small, "DCCAE", reconstruction=0.02), epochs=20, averaging=averaging)
    validation = tuple(VALIDATION.values())
    loss = -total_correlation_by_roots(*features(model, *validation), 1e-4)
    for view, reconstruction, units in zip(
        validation, model.reconstruct(*validation), model.net_.inputs, strict=True
    ):
        error = (view - reconstruction) / float(units.scale)
        loss += 0.02 * (error**2).sum(axis=1).mean()
    assert 1 < model.best_epoch_ < 20
    assert model.history_["val_loss"].min() == pytest.approx(loss, rel=1e-4)


def test_running_covariances_move_in_training_only():
    objective = SoftCCAObjective(2, (1.0, 1.0), (0.5, 0.9))
    f, g = (torch.from_numpy(view[:, :2]) for view in VIEWS)
    objective.double()
    first = objective(f, g, f, g)
    assert [float(c.normalizer) for c in objective.covariances] == [1.0, 1.0]
    before = {name: value.clone() for name, value in objective.state_dict().items()}
    objective.eval()
    assert objective(f, g, f, g) == first  # the same samples alone
    objective(g, f, f, g)
    assert all(torch.equal(value, before[name]) for name, value in objective.state_dict().items())
    objective.train()
    objective(g, f, f, g)
    assert [float(c.normalizer) for c in objective.covariances] == [1.5, 1.9]


@pytest.fixture
def every_epoch_is_written(monkeypatch):
    monkeypatch.setattr("dscca.deep.checkpoint._SHARE", 0)


@EACH
@pytest.mark.usefixtures("every_epoch_is_written")
@pytest.mark.parametrize("options", [{}, {"averaging": 0.8, "optimizer": "adam", "dropout": 0.2}])
def test_interrupted_runs_resume_to_the_same_bits(name, options, tmp_path):
    resumed = small(name, checkpoint_dir=tmp_path, **options)
    with pytest.raises(KeyboardInterrupt), Interrupt(3 * STEPS + 2, stop):
        resumed.fit(*VIEWS)
    whole = small(name, **options).fit(*VIEWS)
    assert same_parameters(resumed.fit(*VIEWS), whole)
    assert without_time(resumed.history_).equals(without_time(whole.history_))
    if hasattr(whole, "reconstruct"):
        for ours, theirs in zip(
            resumed.reconstruct(*VIEWS), whole.reconstruct(*VIEWS), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)


@EACH
def test_image_encoders(name, tmp_path):
    X, y = images(300)
    options = {"encoders": (cnn(0), cnn(1)), "epochs": 20, "learning_rate": 3e-3}
    model = small(name, hidden=(8,), **options).fit(X, y)
    assert finite(model, *images(1000, seed=1)) > 0.9
    model.save(tmp_path)
    loaded = dscca.load(tmp_path, encoders=(cnn(2), cnn(3)))
    for ours, theirs in zip(loaded.transform(X, y), model.transform(X, y), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    if name == "L0CCA":
        assert loaded.x_gates_.shape == (1, 8, 8)
        np.testing.assert_array_equal(loaded.x_gates_, model.x_gates_)
    if hasattr(model, "reconstruct"):
        for ours, theirs in zip(loaded.reconstruct(X, y), model.reconstruct(X, y), strict=True):
            assert ours.shape == X.shape
            np.testing.assert_array_equal(ours, theirs)


def test_models_whose_decoders_are_damaged_are_refused(tmp_path):
    small("DCCAE").fit(*VIEWS).save(tmp_path / "model.safetensors")
    name = "decoders/decoders.0.last.weight"
    for value in (None, np.zeros((6, 3), np.float32)):
        path = rewritten(
            tmp_path / "model.safetensors", tmp_path / "m.safetensors", arrays={name: value}
        )
        with pytest.raises(ModelFileError, match="incomplete or damaged"):
            dscca.load(path)


def test_demonstration_takes_them_all(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "_DEEP", {"hidden": (40,), "epochs": 1, "random_state": 0})
    names = [method.name for method in METHODS if method.estimator in NAMES]
    assert len(names) == len(NAMES)
    scores = demo.run(tmp_path, names)
    assert list(scores) == names
    assert np.isfinite(list(scores.values())).all()


# What they refuse


def test_gates_that_all_close_are_reported():
    options = {"epochs": 60, "learning_rate": 1e-2, "reduction": "sum", "noise": 0.5}
    with pytest.raises(ValueError, match=r"all gates of view y.*sparsity=\(0.0, 5.0\).*smaller"):
        small("L0CCA", sparsity=(0.0, 5.0), **options).fit(*VIEWS)


@pytest.mark.parametrize("name", ["CorrNet", "SoftCCA", "SoftHGR"])
def test_features_to_compare_must_be_equally_many(name):
    with pytest.raises(ValueError, match=r"return 3 and 2 features.*same number"):
        small(name, encoders=(nn.Linear(6, 3), nn.Linear(5, 2))).fit(*VIEWS)
    for other in ("DCCAE", "L0CCA"):
        finite(small(other, encoders=(nn.Linear(6, 3), nn.Linear(5, 2))).fit(*VIEWS), *VIEWS)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("DCCAE", {"reconstruction": -1.0}, "'reconstruction' parameter"),
        ("DCCAE", {"reg": (0.1, 0.0)}, "reg must be a number > 0"),
        ("CorrNet", {"correlation": -1.0}, "'correlation' parameter"),
        ("SoftCCA", {"memory": 1.0}, "'memory' parameter"),
        ("SoftCCA", {"memory": (0.9, 1.0)}, r"memory must be below 1.*\(0.9, 1.0\)"),
        ("SoftCCA", {"decorrelation": (1, -2)}, "decorrelation must be .*>= 0"),
        ("L0CCA", {"noise": 0.0}, "'noise' parameter"),
        ("L0CCA", {"noise": (0.1, 0.0)}, "noise must be a number > 0"),
        ("L0CCA", {"sparsity": (1, 2, 3)}, "sparsity must be .*pair"),
        ("L0CCA", {"reduction": "max"}, "'reduction' parameter"),
    ],
)
def test_impossible_parameters_say_so(name, options, message):
    with pytest.raises(ValueError, match=message):
        small(name, **options).fit(*VIEWS)
