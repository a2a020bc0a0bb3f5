"""The training engine: warm-up, selection, stopping, schedules, averaging, divergence."""

import numpy as np
import pytest
import torch
from torch import nn

from deep_problems import (
    features,
    same_parameters,
    small_dcca,
    small_dsdcca,
    total_correlation_by_roots,
)
from dscca.deep import sources
from dscca.deep.training import DivergedError
from problems import paired

VIEWS = paired(n=300)
FEW = paired(n=150, noise=3.0)
MORE = paired(n=450, noise=3.0)
VALIDATION = {"X_val": MORE[0][150:], "y_val": MORE[1][150:]}


def overfitted(make=small_dcca, **parameters):
    """Fit a net that soon overfits: its validation loss has its best epoch early."""
    options = {"hidden": (64,), "batch_size": 70, "learning_rate": 1e-2, **parameters}
    return make(**options).fit(*FEW, **VALIDATION)


# Warm-up


@pytest.mark.parametrize("averaging", [0.0, 0.8])
@pytest.mark.parametrize("context", ["z", "x", "zx"])
@pytest.mark.parametrize("scaling", ["parameters", "outputs", "global"])
def test_warm_up_is_dcca_bit_for_bit(scaling, context, averaging, recorded):
    T, options = 3, {"dropout": 0.3, "averaging": averaging, "weight_decay": 1e-2}
    plain = small_dcca(**options).fit(*VIEWS)
    scaled = small_dsdcca(scaling=scaling, context=context, warmup=T, **options).fit(*VIEWS)
    for column in ("loss", "val_loss", "val_tc"):
        np.testing.assert_array_equal(plain.history_[column][:T], scaled.history_[column][:T])
        assert plain.history_[column][T] != scaled.history_[column][T]
    ours, theirs = (run.parameters for run in recorded)
    added = theirs[0].keys() - ours[0].keys()
    assert added
    assert ours[0].keys() <= theirs[0].keys()
    for epoch in range(T + 1):  # entry 0 is before training
        for name, value in ours[epoch].items():
            assert torch.equal(value, theirs[epoch][name]), (epoch, name)
        for name in added:
            assert torch.equal(theirs[epoch][name], theirs[0][name]), (epoch, name)
    for name in added:
        assert not torch.equal(theirs[T + 1][name], theirs[T][name]), name


def test_no_warm_up_moves_the_scales_at_once(recorded):
    small_dsdcca(warmup=0, epochs=1).fit(*VIEWS)
    before, after = recorded[0].parameters
    assert all(not torch.equal(before[name], after[name]) for name in before)


def test_warm_up_must_leave_an_epoch():
    with pytest.raises(ValueError, match=r"warmup=5 leaves none of epochs=5"):
        small_dsdcca(warmup=5).fit(*VIEWS)


# Randomness


@pytest.mark.parametrize("make", [small_dcca, small_dsdcca])
def test_only_the_seed_decides(make):
    first = make(dropout=0.2).fit(*VIEWS)
    torch.manual_seed(123)
    np.random.seed(123)  # noqa: NPY002
    again, other = make(dropout=0.2).fit(*VIEWS), make(dropout=0.2, random_state=1).fit(*VIEWS)
    assert same_parameters(first, again)
    assert np.array_equal(first.transform(VIEWS[0]), again.transform(VIEWS[0]))
    assert not np.allclose(first.transform(VIEWS[0]), other.transform(VIEWS[0]), atol=1e-3)


def test_global_generators_are_left_alone():
    before = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    small_dsdcca(dropout=0.2, averaging=0.5).fit(*VIEWS).transform(*VIEWS)
    assert torch.equal(torch.get_rng_state(), before[0])
    after = np.random.get_state()  # noqa: NPY002
    assert all(np.array_equal(a, b) for a, b in zip(after, before[1], strict=True))


# Which parameters are kept


def test_parameters_of_the_best_validation_epoch_are_kept():
    rows = []
    model = overfitted(epochs=20, reg=1e-2, callbacks=[rows.append])
    losses = [row["val_loss"] for row in rows]
    assert list(model.history_["val_loss"]) == losses
    assert model.best_epoch_ == 1 + int(np.argmin(losses))
    assert 1 < model.best_epoch_ < model.n_iter_ == 20
    f, g = features(model, VALIDATION["X_val"], VALIDATION["y_val"])
    assert -total_correlation_by_roots(f, g, 1e-2) == pytest.approx(min(losses), abs=1e-5)
    assert max(losses) - min(losses) > 1e-2


def test_best_epoch_before_the_scales_joined_gives_the_conventional_model():
    plain = overfitted(epochs=12)
    T = plain.best_epoch_ + 2
    scaled = overfitted(small_dsdcca, epochs=T + 2, warmup=T)
    assert scaled.best_epoch_ == plain.best_epoch_
    for ours, theirs in zip(scaled.transform(*FEW), plain.transform(*FEW), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_patience():
    model = overfitted(epochs=200, patience=4)
    assert model.n_iter_ == model.best_epoch_ + 4 < 200
    whole = overfitted(epochs=model.n_iter_)
    assert same_parameters(model, whole)


def test_patience_waits_for_the_scales():
    model = overfitted(small_dsdcca, epochs=30, warmup=15, patience=1)
    assert model.history_["val_loss"][:15].argmin() < 12  # it would have stopped
    assert 15 < model.n_iter_ < 30


def test_callbacks_see_rows_and_stop_training():
    seen = []

    def stop(row):
        seen.append(dict(row))
        row["loss"] = -1.0  # theirs to change
        return row["epoch"] == 3

    model = small_dcca(callbacks=[lambda row: False, stop]).fit(*VIEWS)
    assert [row["epoch"] for row in seen] == [1, 2, 3] == list(model.history_["epoch"])
    assert model.history_.to_dict("records") == seen
    assert model.n_iter_ == 3
    assert same_parameters(model, small_dcca(epochs=3).fit(*VIEWS))


def test_only_a_truth_value_stops_training():
    for answer, epochs in ((np.True_, 1), (True, 1), (np.False_, 5), (1, 5), ("stop", 5), ({}, 5)):
        assert small_dcca(callbacks=[lambda row, a=answer: a]).fit(*VIEWS).n_iter_ == epochs


# Schedules, clipping, averaging


def rates(schedule, epochs):
    model = small_dcca(epochs=epochs, schedule=schedule, learning_rate=0.02).fit(*VIEWS)
    return model.history_["learning_rate"].to_numpy() / 0.02, model.history_["loss"].to_numpy()


def test_schedules():
    constant, losses = rates("constant", 8)
    step, step_losses = rates("step", 8)
    cosine, _ = rates("cosine", 8)
    np.testing.assert_array_equal(constant, 1)
    np.testing.assert_allclose(step, [1, 1, 1, 1, 0.1, 0.1, 0.01, 0.01])
    assert (cosine[0], cosine[4]) == pytest.approx((1, 0.5))
    assert (np.diff(cosine) < 0).all()
    np.testing.assert_allclose(cosine[1:] + cosine[:0:-1], 1)  # a half turn about its middle
    # The optimiser does use it: the losses part where the rates do.
    np.testing.assert_array_equal(step_losses[:4], losses[:4])
    assert (step_losses[4:] != losses[4:]).all()


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam", "adamw"])
def test_rate_of_almost_nothing_moves_almost_nothing(optimizer, recorded):
    small_dcca(optimizer=optimizer, learning_rate=1e-12).fit(*VIEWS)
    first, *_, last = recorded[0].parameters
    assert all(torch.allclose(first[name], last[name], atol=1e-8) for name in first)


def test_clip_bounds_the_gradient(recorded):
    free = small_dcca().fit(*VIEWS)
    bound = float(np.quantile(recorded[0].gradient_norms, 0.3))
    small_dcca(clip=bound).fit(*VIEWS)
    assert max(recorded[0].gradient_norms) > 1.2 * bound
    assert max(recorded[1].gradient_norms) <= bound * (1 + 1e-5)
    assert same_parameters(free, small_dcca(clip=1e6).fit(*VIEWS))


@pytest.mark.parametrize("make", [small_dcca, small_dsdcca])
def test_averaged_weights_are_the_running_average_of_those_of_each_epoch(make, recorded):
    decay = 0.7
    make().fit(*VIEWS)
    model = make(averaging=decay).fit(*VIEWS)
    plain, averaged = (run.parameters for run in recorded)
    for ours, theirs in zip(plain, averaged, strict=True):  # training itself does not change
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    k = model.best_epoch_
    assert k > 1
    weights = (1 - decay) * decay ** np.arange(k - 1, -1, -1.0)
    weights[0] /= 1 - decay
    assert weights.sum() == pytest.approx(1)
    kept = model.net_.state_dict()
    for name in plain[0]:
        values = np.stack([state[name].double().numpy() for state in plain[1 : k + 1]])
        expected = np.tensordot(weights, values, axes=1)
        np.testing.assert_allclose(kept[name.removeprefix("net.")], expected, atol=1e-6)


def test_averaged_weights_have_statistics_of_their_own():
    X, y = VIEWS
    net = small_dcca(averaging=0.7).fit(X, y, X_val=X, y_val=y).net_
    for i, view in enumerate((X, y)):
        first, norm = net.encoders[i].body[:2]
        z = first(net.inputs[i](torch.from_numpy(view).float())).numpy()
        np.testing.assert_allclose(norm.running_mean, z.mean(axis=0), atol=1e-5)
        np.testing.assert_allclose(norm.running_var, z.var(axis=0, ddof=1), rtol=1e-4)


# Divergence


class Exploding(nn.Linear):
    """A linear layer that overflows once, in a mode, after so many batches of training."""

    def __init__(self, in_features, out_features, *, training, batches):
        super().__init__(in_features, out_features)
        self.when, self.left = training, batches

    def forward(self, x):
        explodes = self.training is self.when and self.left == 0
        self.left -= self.training or explodes
        return super().forward(x) * (float("inf") if explodes else 1.0)


@pytest.mark.parametrize(("training", "where"), [(True, "a batch|loss"), (False, "validation")])
def test_diverged_training_keeps_the_best_parameters_before(training, where):
    torch.manual_seed(0)
    good, per_epoch = 3, 270 // 50
    batches = good * per_epoch + 2 if training else (good + 1) * per_epoch
    encoders = (Exploding(6, 2, training=training, batches=batches), nn.Linear(5, 2))
    model = small_dcca(epochs=8, encoders=encoders)
    with pytest.raises(DivergedError, match=rf"({where}).* of epoch {good + 1}\b.*learning_rate"):
        model.fit(*VIEWS)
    sound = nn.Linear(6, 2)
    sound.load_state_dict(encoders[0].state_dict())
    whole = small_dcca(epochs=good, encoders=(sound, encoders[1])).fit(*VIEWS)
    assert same_parameters(model, whole)
    assert model.n_iter_ == len(model.history_) == good
    assert model.best_epoch_ == whole.best_epoch_
    assert np.isfinite(model.transform(VIEWS[0])).all()
    assert np.isfinite(model.score(*VIEWS))


@pytest.mark.parametrize("make", [small_dcca, small_dsdcca])
def test_learning_rate_that_diverges_is_named(make):
    with pytest.raises(DivergedError, match=r"epoch 1\b.*learning_rate=1e\+30.*none are worth"):
        make(learning_rate=1e30).fit(*VIEWS)


# Batches


@pytest.mark.parametrize("batch_size", [1, 7, 20])
def test_streamed_batches_are_the_resident_ones(batch_size):
    rng = np.random.default_rng(0)
    X = rng.permutation(120).astype(np.float32)[:, None] * [1, 1000]
    y = -X[:, :1]
    rows = rng.permutation(120)[:47]
    kinds = [
        kind(X, y, rows, batch_size, torch.device("cpu"))
        for kind in (sources.ResidentBatches, sources.StreamedBatches)
    ]
    assert kinds[0].n_batches == kinds[1].n_batches == 47 // batch_size
    epochs = []
    for epoch in range(3):
        resident, streamed = (
            [batches.current()[:] for _ in batches.start_epoch(generator(epoch))]
            for batches in map(copied, kinds)
        )
        for (x1, y1), (x2, y2) in zip(resident, streamed, strict=True):
            assert x1.shape == x2.shape == (batch_size, 2)
            order1, order2 = x1[:, 0].argsort(), x2[:, 0].argsort()
            torch.testing.assert_close(x1[order1], x2[order2], rtol=0, atol=0)
            torch.testing.assert_close(y1[order1], y2[order2], rtol=0, atol=0)
            torch.testing.assert_close(y1, -x1[:, :1], rtol=0, atol=0)
        seen = torch.cat([x[:, 0] for x, _ in resident]).tolist()
        assert len(set(seen)) == len(seen) == 47 // batch_size * batch_size
        assert set(seen) <= set(X[rows, 0].tolist())
        epochs.append(seen)
    assert epochs[0] != epochs[1] != epochs[2]


def generator(epoch):
    return torch.Generator().manual_seed(epoch)


class copied:  # noqa: N801
    """Batches whose current one is copied: a streamed batch is overwritten by the next."""

    def __init__(self, batches):
        self.batches = batches

    def start_epoch(self, generator):
        return self.batches.start_epoch(generator)

    def current(self):
        return tuple(view.clone() for view in self.batches.current())


def test_streaming_from_disk_trains_alike(tmp_path, monkeypatch):
    views = []
    for name, view in zip("xy", VIEWS, strict=True):
        np.save(tmp_path / f"{name}.npy", view.astype(np.float32))
        views.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    resident = small_dsdcca().fit(*views)
    monkeypatch.setattr(sources, "RESIDENT_SHARE", 0)
    monkeypatch.delattr(sources.ResidentBatches, "start_epoch")
    streamed = small_dsdcca().fit(*views)
    # The same rows in each batch, in another order: only rounding differs.
    for column in ("loss", "val_loss", "val_tc"):
        np.testing.assert_allclose(streamed.history_[column], resident.history_[column], atol=5e-3)
    assert streamed.score(*VIEWS) == pytest.approx(resident.score(*VIEWS), abs=5e-3)


def test_bf16_trains_nearly_as_well():
    for make in (small_dcca, small_dsdcca):
        full, lowered = (
            make(epochs=15, precision=precision).fit(*VIEWS) for precision in ("fp32", "bf16")
        )
        assert not same_parameters(full, lowered)
        assert {p.dtype for p in lowered.net_.parameters()} == {torch.float32}
        assert full.history_["loss"].iloc[-1] < full.history_["loss"].iloc[0] - 0.1
        np.testing.assert_allclose(lowered.history_["loss"], full.history_["loss"], atol=0.05)
        assert lowered.score(*VIEWS) == pytest.approx(full.score(*VIEWS), abs=0.05)
