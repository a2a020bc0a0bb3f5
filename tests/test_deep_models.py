"""Fitted deep models: their scales, encoders of one's own, and models on disk."""

import json
import pickle
import resource

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from sklearn.exceptions import NotFittedError
from torch import nn

import dscca
from deep_problems import finite, same_parameters, small_dcca, small_dsdcca
from dscca.integrity import checksum
from dscca.persistence import ModelFileError
from problems import paired

VIEWS = paired(n=300)


# The scales


def layer_output(model, which, z, S):
    """Return y of equation 2 from scales in rows, sample by sample."""
    last = model.net_.encoders[which].last
    W, b = last.weight.double().numpy(), last.bias.double().numpy()
    d_out, d_in = W.shape
    rows = []
    for z_i, s in zip(z, S.astype(float), strict=True):
        S_W, S_b = s[: d_out * d_in].reshape(d_out, d_in), s[d_out * d_in :]
        rows.append((S_W * W) @ z_i + S_b * b)
    return np.array(rows)


def variates_from_scales(model, X, which, S):
    """Return the variates of some samples from the scales that are claimed for them."""
    net = model.net_
    encoder = net.encoders[which]
    with torch.no_grad():
        z = encoder.body(net.inputs[which](torch.as_tensor(X).float())).double().numpy()
    y = layer_output(model, which, z, S)
    norm = encoder.norm
    mean, variance = norm.running_mean.double().numpy(), norm.running_var.double().numpy()
    f = (y - mean) / np.sqrt(variance + norm.eps)
    centre = (model.x_feature_mean_, model.y_feature_mean_)[which]
    return (f - centre) @ (model.x_rotations_, model.y_rotations_)[which]


@pytest.mark.parametrize("context", ["z", "x", "zx"])
@pytest.mark.parametrize("scaling", ["parameters", "outputs", "global", "hypernetwork"])
def test_scales_explain_the_variates(scaling, context):
    warmup = 0 if scaling == "hypernetwork" else 1
    X, y = VIEWS
    model = small_dsdcca(scaling=scaling, context=context, warmup=warmup, learning_rate=0.01)
    model.fit(X, y)
    assert model.net_.scaled
    scales = model.scales(X[:9]), model.scales_y(y[:9])
    assert scales[0].shape == scales[1].shape == (9, 2 * 12 + 2)
    np.testing.assert_allclose(
        variates_from_scales(model, X[:9], 0, scales[0]), model.transform(X[:9]), atol=1e-4
    )
    np.testing.assert_allclose(
        variates_from_scales(model, y[:9], 1, scales[1]), model.transform_y(y[:9]), atol=1e-4
    )
    varied = np.ptp(scales[0], axis=0).max()
    assert varied == 0 if scaling == "global" else varied > 1e-3


def test_scales_of_a_model_kept_from_the_warm_up_explain_it():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 6)), rng.normal(size=(200, 5))
    for seed in range(10):
        model = small_dsdcca(start="default", warmup=4, random_state=seed).fit(X, y)
        if model.best_epoch_ <= 4:
            break
    assert not model.net_.scaled
    expected = model.transform(X[:9])
    np.testing.assert_allclose(
        variates_from_scales(model, X[:9], 0, model.scales(X[:9])), expected, atol=1e-4
    )


def test_scales_take_whatever_transform_takes():
    model = small_dsdcca(warmup=0).fit(*VIEWS)
    X = VIEWS[0].astype(np.float32)
    expected = model.scales(X)
    locked = X.copy()
    locked.flags.writeable = False
    for view in (X[::-1].copy()[::-1], X.tolist(), torch.from_numpy(X), locked):
        np.testing.assert_allclose(model.scales(view), expected, rtol=1e-6)


@pytest.mark.parametrize("warmup", [0, 4])
def test_scales_of_values_that_are_not_finite_are_refused(warmup):
    model = small_dsdcca(warmup=warmup).fit(*VIEWS)
    broken = VIEWS[1].copy()
    broken[3, 2] = np.nan
    with pytest.raises(ValueError, match=r"Input y contains NaN.*row 3"):
        model.scales_y(broken)


def test_models_without_scales_say_so():
    with pytest.raises(ValueError, match="no scales"):
        small_dsdcca(scaling="none").fit(*VIEWS).scales(VIEWS[0])
    encoders = (nn.Linear(6, 2), nn.Linear(5, 2))
    with pytest.raises(ValueError, match="no scales"):
        small_dsdcca(encoders=encoders).fit(*VIEWS).scales(VIEWS[0])
    with pytest.raises(NotFittedError):
        small_dsdcca().scales(VIEWS[0])


# Encoders of one's own


def cnn(seed):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=2), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 2)
    )


def images(n, seed=0):
    """Pairs of images whose brightness at two shared places is shared."""
    rng = np.random.default_rng(seed)
    levels = rng.normal(size=(n, 2))
    patterns = np.random.default_rng(99).normal(size=(2, 2, 64))
    return [
        (levels @ pattern + rng.normal(size=(n, 64))).reshape(n, 1, 8, 8).astype(np.float32)
        for pattern in patterns
    ]


@pytest.mark.parametrize("averaging", [0.0, 0.5])
@pytest.mark.parametrize("make", [small_dcca, small_dsdcca])
def test_image_encoders(make, averaging, tmp_path):
    encoders = (cnn(0), cnn(1))
    before = [{k: v.clone() for k, v in e.state_dict().items()} for e in encoders]
    X, y = images(300)
    model = make(encoders=encoders, epochs=15, averaging=averaging).fit(X, y)
    for encoder, state in zip(encoders, before, strict=True):
        assert all(torch.equal(value, state[name]) for name, value in encoder.state_dict().items())
        assert all(p.requires_grad and p.grad is None for p in encoder.parameters())
        assert encoder.training
    assert finite(model, *images(2000, seed=1)) > 1.0
    model.save(tmp_path)
    with pytest.raises(ModelFileError, match="fitted with encoders"):
        dscca.load(tmp_path)
    loaded = dscca.load(tmp_path, encoders=(cnn(2), cnn(3)))
    for ours, theirs in zip(loaded.transform(X, y), model.transform(X, y), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(ModelFileError):
        dscca.load(tmp_path, encoders=(cnn(2), nn.Linear(64, 2)))


# On disk


@pytest.mark.parametrize("warmup", [1, 4])
def test_save_and_load(warmup, tmp_path):
    rng = np.random.default_rng(0)
    views = VIEWS if warmup == 1 else (rng.normal(size=(200, 6)), rng.normal(size=(200, 5)))
    for seed in range(10):
        model = small_dsdcca(warmup=warmup, random_state=seed, context="zx").fit(*views)
        if model.net_.scaled is (warmup == 1):
            break
    assert model.net_.scaled is (warmup == 1)
    model.save(tmp_path)
    for copy in (dscca.load(tmp_path), pickle.loads(pickle.dumps(model))):
        assert copy.net_.scaled is model.net_.scaled
        theirs = copy.net_.state_dict()
        for name, value in model.net_.state_dict().items():
            np.testing.assert_array_equal(theirs[name].reshape(value.shape), value)
        for name in ("n_iter_", "best_epoch_", "head_reg_", "input_shapes_"):
            assert getattr(copy, name) == getattr(model, name)
        pd.testing.assert_frame_equal(copy.history_, model.history_)
        for ours, theirs in zip(copy.transform(*views), model.transform(*views), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(copy.scales(views[0]), model.scales(views[0]))
        copy.fit(*views)  # it can be trained again


def test_loaded_network_has_the_same_shapes(tmp_path):
    model = small_dsdcca(epochs=3).fit(*VIEWS)
    model.save(tmp_path)
    assert same_parameters(dscca.load(tmp_path), model)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model.safetensors"
    small_dsdcca(epochs=3).fit(*VIEWS).save(path)
    return path


def rewritten(saved, path, *, deep=None, parameters=None, arrays=None):
    """Write a copy of the model file with some of its content exchanged."""
    with safe_open(saved, framework="numpy") as source:
        header = source.metadata()
    document = json.loads(header["model"])
    document["fitted"]["deep"]["__dict__"].update(deep or {})
    document["parameters"].update(parameters or {})
    content = {**load_file(saved), **(arrays or {})}
    kept = {name: value for name, value in content.items() if value is not None}
    text = json.dumps(document)
    save_file(kept, path, metadata={**header, "model": text, "crc32": checksum([text], kept)})
    return path


def shapes(*pair):
    return {"__tuple__": [{"__tuple__": list(shape)} for shape in pair]}


@pytest.mark.parametrize(
    "change",
    [
        {"deep": {"n_iter": float("inf")}},
        {"deep": {"n_iter": None}},
        {"deep": {"input_shapes": shapes([], [5])}},
        {"deep": {"input_shapes": shapes([6])}},
        {"deep": {"input_shapes": shapes([-6], [5])}},
        {"deep": {"input_shapes": shapes([10**15], [5])}},
        {"deep": {"input_shapes": shapes([7], [5])}},
        {"deep": {"history": 3}},
        {"deep": {"head_reg": "none"}},
        {"parameters": {"epochs": None}},
        {"parameters": {"precision": 3}},
        {"parameters": {"hidden": "abc"}},
        {"parameters": {"hidden": {"__tuple__": [17]}}},
        {"parameters": {"scaling": "none"}},
        {"parameters": {"scaling": "anything"}},
        {"parameters": {"context": "x"}},
        {"parameters": {"dropout": 7}},
        {"parameters": {"n_components": 3}},
        {"arrays": {"net/encoders.0.last.weight": None}},
        {"arrays": {"net/inputs.0.mean": None}},
        {"arrays": {"net/encoders.0.last.weight": np.full((2, 12), np.nan, np.float32)}},
        {"arrays": {"net/encoders.0.other": np.zeros(2)}},
        {"arrays": {"net/inputs.0.mean": np.zeros(7, np.float32)}},
        {"arrays": {"x_rotations_": np.zeros((7, 2)), "x_feature_mean_": np.zeros(7)}},
    ],
    ids=lambda change: "-".join(map(str, *change.values())) + str(*change.values())[-28:],
)
def test_hostile_model_files_are_refused(saved, tmp_path, change):
    path = rewritten(saved, tmp_path / "m.safetensors", **change)
    with pytest.raises(ModelFileError):
        dscca.load(path)


def test_a_file_cannot_ask_for_more_memory_than_it_fills(saved, tmp_path):
    wide = {"hidden": {"__tuple__": [20_000, 20_000]}}
    path = rewritten(saved, tmp_path / "m.safetensors", parameters=wide)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ModelFileError, match=r"would have .* of shape \(20000, 6\)"):
        dscca.load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


@pytest.mark.parametrize("kept", [0, 7, 200, 5000, -1])
def test_truncated_model_files_are_refused(saved, tmp_path, kept):
    path = tmp_path / "m.safetensors"
    path.write_bytes(saved.read_bytes()[:kept])
    with pytest.raises(ModelFileError, match="not a whole model file"):
        dscca.load(path)
