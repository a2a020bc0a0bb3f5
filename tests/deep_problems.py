"""Small deep models, problems of known solution, and views into their training."""

import numpy as np
import torch
from scipy.linalg import inv, sqrtm

import dscca
from dscca.deep.training import Trainer

SMALL = {
    "n_components": 2,
    "hidden": (12,),
    "epochs": 5,
    "batch_size": 50,
    "head_reg": 1e-3,
    "random_state": 0,
    "device": "cpu",
    "verbose": 0,
}


def small_dcca(**parameters):
    return dscca.DCCA(**{**SMALL, **parameters})


def small_dsdcca(**parameters):
    return dscca.DSDCCA(**{**SMALL, "scale_hidden": (4,), "warmup": 2, **parameters})


def warped_gaussians(n, seed, correlations=(0.9, 0.85)):
    """Two Gaussian pairs of known correlations, seen through a smooth invertible map per view.

    No functions of the views correlate more than the Gaussians themselves do (Lancaster 1957):
    the nonlinear canonical correlations are all products of powers of theirs, and 0.9 and 0.85
    are above the third, 0.9 squared.
    """
    rng = np.random.default_rng(seed)
    rho = np.array(correlations)
    u = rng.normal(size=(n, 2))
    v = rho * u + np.sqrt(1 - rho**2) * rng.normal(size=(n, 2))
    return _warp(u @ _rotation(0.3), 1.0, 1.5), _warp(v @ _rotation(1.2), 2.0, -1.5)


def _warp(s, angle, bend):
    sheared = np.column_stack([s[:, 0], s[:, 1] + bend * np.cos(1.5 * s[:, 0])])
    turned = sheared @ _rotation(angle)
    return turned + 0.5 * np.sin(turned)


def _rotation(angle):
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def total_correlation_by_roots(f, g, reg):
    """Sum of the singular values of S11^-1/2 S12 S22^-1/2, with matrix square roots."""
    d = f.shape[1]
    S = np.cov(f, g, rowvar=False)
    roots = [inv(sqrtm(block + reg * np.eye(d)).real) for block in (S[:d, :d], S[d:, d:])]
    return np.linalg.svd(roots[0] @ S[:d, d:] @ roots[1], compute_uv=False).sum()


def features(model, X, y):
    """Outputs of both encoders of a fitted model, before the head."""
    views = [torch.as_tensor(np.asarray(view)) for view in (X, y)]
    return [model.net_.encode(view, i).double().numpy() for i, view in enumerate(views)]


def same_parameters(model, other):
    """Whether two fitted models have bit for bit the same network and head."""
    ours, theirs = model.net_.state_dict(), other.net_.state_dict()
    return (
        ours.keys() == theirs.keys()
        and all(torch.equal(ours[name], theirs[name]) for name in ours)
        and np.array_equal(model.x_rotations_, other.x_rotations_)
        and np.array_equal(model.y_rotations_, other.y_rotations_)
    )


def finite(model, X, y):
    """Return the score of a model of which every number is checked to be finite."""
    x, y_variates = model.transform(X, y)
    assert np.isfinite(x).all()
    assert np.isfinite(y_variates).all()
    assert np.isfinite(model.history_.to_numpy(dtype=float)).all()
    score = model.score(X, y)
    assert np.isfinite(score)
    return score


class RecordingTrainer(Trainer):
    """The engine, with a record of what it does, in `runs`, one entry per fit.

    `parameters` holds the trained ones before training and after each epoch, and
    `gradient_norms` the norm of the gradient that each step of the optimiser is given.
    """

    runs: list["RecordingTrainer"] = []  # noqa: RUF012

    def __init__(self, model, *args, callbacks=(), **options):
        self.parameters = [self._copy(model)]
        self.gradient_norms = []
        super().__init__(model, *args, callbacks=[self._record, *callbacks], **options)
        self._step, self.optimizer.step = self.optimizer.step, self._recorded_step
        self.runs.append(self)

    def _record(self, row):
        self.parameters.append(self._copy(self.model))

    def _recorded_step(self):
        gradients = [p.grad.flatten() for p in self.model.parameters() if p.grad is not None]
        self.gradient_norms.append(float(torch.cat(gradients).norm()))
        self._step()

    @staticmethod
    def _copy(model):
        return {name: value.detach().clone() for name, value in model.named_parameters()}
