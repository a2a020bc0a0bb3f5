"""The engine on a GPU against the engine on a CPU; skipped where there is no GPU."""

import numpy as np
import pytest
import torch

import dscca
from dscca.deep import sources, steps
from dscca.deep.cca_layer import CCALayer
from dscca.deep.losses import cca_loss, ranking_loss
from problems import paired

pytestmark = pytest.mark.gpu

SETTINGS = {
    "n_components": 3,
    "hidden": (32, 16),
    "epochs": 5,
    "batch_size": 100,
    "precision": "fp32",
    "random_state": 0,
    "verbose": 0,
    "head_reg": 1e-3,
    "device": "cuda",
}


def models(**changes):
    yield dscca.DCCA(**{**SETTINGS, **changes})
    yield dscca.DSDCCA(**{**SETTINGS, "scale_hidden": (8,), "warmup": 2, **changes})
    yield dscca.DCCAE(**{**SETTINGS, **changes})
    yield dscca.CorrNet(**{**SETTINGS, **changes})
    yield dscca.SoftCCA(**{**SETTINGS, **changes})
    yield dscca.SoftHGR(**{**SETTINGS, **changes})
    yield dscca.L0CCA(**{**SETTINGS, **changes})
    yield dscca.RankingCCA(**{**SETTINGS, **changes})
    yield dscca.DSRankingCCA(**{**SETTINGS, "scale_hidden": (8,), "warmup": 2, **changes})


@pytest.fixture
def views():
    return [view.astype(np.float32) for view in paired(n=1050, p=20, q=15)]


@pytest.mark.parametrize(
    "options",
    [{}, {"clip": 0.5}, {"dropout": 0.2}, {"optimizer": "adamw"}, {"schedule": "cosine"}],
    ids=str,
)
def test_captured_steps_equal_eager_ones(views, options, monkeypatch):
    for model, twin in zip(models(**options), models(**options), strict=True):
        model.fit(*views)
        monkeypatch.setattr(steps, "_EAGER_STEPS", 10**9)
        twin.fit(*views)
        monkeypatch.undo()
        columns = ["loss", "val_loss"]
        np.testing.assert_allclose(model.history_[columns], twin.history_[columns], rtol=2e-3)
        assert model.score(*views) == pytest.approx(twin.score(*views), abs=2e-2)


def test_gpu_trains_as_the_cpu_does(views):
    for model, twin in zip(models(), models(device="cpu"), strict=True):
        if isinstance(model, dscca.L0CCA):  # its noise is another on each kind of device
            continue
        ours, theirs = model.fit(*views).history_, twin.fit(*views).history_
        np.testing.assert_allclose(ours["loss"][:2], theirs["loss"][:2], rtol=1e-3)
        assert model.score(*views) == pytest.approx(twin.score(*views), abs=3e-2)


def test_streamed_data_trains_as_resident_data(views, monkeypatch):
    for model, twin in zip(models(), models(), strict=True):
        model.fit(*views)
        monkeypatch.setattr(sources, "RESIDENT_SHARE", 0.0)
        twin.fit(*views)
        monkeypatch.undo()
        np.testing.assert_allclose(model.history_["loss"], twin.history_["loss"], rtol=2e-3)


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_lower_precision_trains_about_as_well(views, precision):
    for model, twin in zip(models(precision=precision), models(), strict=True):
        assert model.fit(*views).score(*views) == pytest.approx(
            twin.fit(*views).score(*views), abs=0.1
        )


def test_resumed_run_goes_on_from_the_checkpoint(views, tmp_path):
    class StopError(Exception):
        pass

    def stop(row):
        if row["epoch"] == 4:
            raise StopError

    for i, (model, twin) in enumerate(zip(models(), models(), strict=True)):
        twin.set_params(checkpoint_dir=tmp_path / str(i), callbacks=(stop,))
        with pytest.raises(StopError):
            twin.fit(*views)
        twin.set_params(callbacks=()).fit(*views)
        model.fit(*views)
        np.testing.assert_allclose(model.history_["val_loss"], twin.history_["val_loss"], rtol=2e-3)


def test_loss_on_the_gpu_equals_the_cpus():
    F1, F2 = (torch.from_numpy(view).float() for view in paired(n=750, p=50, q=50, shared=40))
    results = []
    for device in ("cpu", "cuda"):
        f, g = (F.to(device).requires_grad_() for F in (F1, F2))
        loss = cca_loss(f, g)
        results.append([t.cpu() for t in (loss, *torch.autograd.grad(loss, (f, g)))])
    for a, b in zip(*results, strict=True):
        assert (a - b).norm() < 1e-4 * a.norm()


def test_cca_layer_on_the_gpu_equals_the_cpus():
    F1, F2 = (torch.from_numpy(view).float() for view in paired(n=750, p=50, q=50, shared=40))
    results = []
    for device in ("cpu", "cuda"):
        f, g = (F.to(device).requires_grad_() for F in (F1, F2))
        loss = ranking_loss(*CCALayer(50, 50).to(device)(f, g))
        results.append([t.cpu() for t in (loss, *torch.autograd.grad(loss, (f, g)))])
    for a, b in zip(*results, strict=True):
        assert (a - b).norm() < 1e-3 * a.norm()
