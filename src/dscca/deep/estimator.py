"""What all deep estimators share: fitting, the head, inference, and models on disk."""

import copy
import inspect
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from numbers import Integral, Real
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn

from dscca.base import TwoViewEstimator, Variates
from dscca.deep.checkpoint import Checkpoint
from dscca.deep.head import (
    CrossScatter,
    encode_both,
    feature_covariances,
    fit_head,
    monitor_total_correlation,
    training_sums,
)
from dscca.deep.network import BLOCK_ROWS, Objective, Standardize, TwoViewModel, TwoViewNet
from dscca.deep.optimizers import OPTIMIZERS
from dscca.deep.preparation import fingerprint, hold_out, standardizer
from dscca.deep.sources import batches_of, take
from dscca.deep.training import Callback, DivergedError, Options, State, Trainer
from dscca.regularization import per_view
from dscca.views import View, not_finite_error, resolve_device, working_dtype

_CALIBRATION_ROWS = 2**16
_MONITOR_ROWS_PER_COMPONENT = 20


class DeepEstimator(TwoViewEstimator):
    """Base of the deep estimators: two encoders, an objective, and a linear CCA as head.

    A subclass says what the encoders are (``_encoder``) and what they are trained for
    (``_objective``). Its ``__init__`` takes its own parameters and passes the rest on.

    Parameters
    ----------
    n_components : int
        Number of pairs of variates, and of outputs of either encoder.
    hidden : sequence of int, or a pair of them
        Widths of the encoders' hidden layers, for both views or for each.
    head_reg : "auto", float or pair of floats
        Regularisers of the head, relative to the mean variance; "auto" chooses each view's by
        total correlation on the validation data.
    encoders : pair of torch.nn.Module, optional
        Networks of your own in place of the paper's; copied, never changed. They take a batch of
        a view, which may then have more than two dimensions, and return features.
    scale : "view", "features" or None
        Standardisation inside the model: one factor per view, which only makes its units
        irrelevant; one per feature; or none, as in the paper.
    dropout : float
        Dropout probability after hidden layers.
    epochs, batch_size, optimizer, learning_rate, weight_decay
        The training recipe; optimizer is "rmsprop", "adam" or "adamw". Rows that do not fill an
        epoch's last batch wait for another epoch's shuffle.
    schedule : "constant", "cosine" or "step"
        Learning rate over epochs; "step" divides it by ten after 1/2 and 3/4 of them.
    clip : float, optional
        Bound on the norm of the gradient.
    averaging : float
        If positive, the model is a running average of the weights over epochs with this decay,
        its BatchNorm statistics recomputed on training samples.
    patience : int, optional
        Stop after so many epochs without a better validation loss.
    precision : "auto", "fp32", "tf32" or "bf16"
        Precision of large matrix products; "auto" is TF32 on GPUs and fp32 elsewhere. Whitening
        always runs in float64.
    validation_fraction : float
        Share of the samples held out if ``fit`` is not given ``X_val, y_val``.
    checkpoint_dir : path, optional
        Where the run is saved while it trains; fitting again with the same data and parameters
        goes on from there and ends with the same result. Needs an integer random_state.
    callbacks : sequence of callables
        Called after each epoch with its history row; training stops if one returns True.
    verbose : int
        1 shows a progress bar on terminals, 0 nothing.
    random_state : int, RandomState or None
    device : "auto", "cpu" or "cuda"

    Attributes
    ----------
    history_ : DataFrame with a row per epoch: loss, val_loss, val_tc (the validation TC of a head
        on a sample of training rows), learning_rate, seconds
    n_iter_, best_epoch_ : epochs trained, and the one whose parameters are kept
    net_ : the encoders, on the CPU
    head_reg_ : the regularisers of the head
    """

    _persistent: ClassVar[dict[str, str]] = {
        **TwoViewEstimator._persistent,
        "x_feature_mean_": "d",
        "y_feature_mean_": "e",
        "x_rotations_": "d k",
        "y_rotations_": "e k",
    }
    _training_only: ClassVar[tuple[str, ...]] = ("callbacks", "checkpoint_dir", "random_state")

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "head_reg": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left"), "array-like"],
        "scale": [StrOptions({"view", "features"}), None],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 2, None, closed="left")],
        "optimizer": [StrOptions(set(OPTIMIZERS))],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "schedule": [StrOptions({"constant", "cosine", "step"})],
        "clip": [Interval(Real, 0, None, closed="neither"), None],
        "averaging": [Interval(Real, 0, 1, closed="left")],
        "patience": [Interval(Integral, 1, None, closed="left"), None],
        "precision": [StrOptions({"auto", "fp32", "tf32", "bf16"})],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
        "device": [str],
    }

    net_: TwoViewNet
    n_iter_: int
    best_epoch_: int
    warmup: int = 0

    def __init__(
        self,
        n_components: int = 50,
        hidden: Sequence[Any] = (800, 800),
        *,
        head_reg: str | float | Sequence[float] = "auto",
        encoders: Sequence[nn.Module] | None = None,
        scale: str | None = "view",
        dropout: float = 0.0,
        epochs: int = 100,
        batch_size: int = 750,
        optimizer: str = "rmsprop",
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-5,
        schedule: str = "constant",
        clip: float | None = None,
        averaging: float = 0.0,
        patience: int | None = None,
        precision: str = "auto",
        validation_fraction: float = 0.1,
        checkpoint_dir: str | PathLike[str] | None = None,
        callbacks: Sequence[Callback] = (),
        verbose: int = 1,
        random_state: Any = None,
        device: str = "auto",
    ) -> None:
        self.n_components = n_components
        self.hidden = hidden
        self.head_reg = head_reg
        self.encoders = encoders
        self.scale = scale
        self.dropout = dropout
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.clip = clip
        self.averaging = averaging
        self.patience = patience
        self.precision = precision
        self.validation_fraction = validation_fraction
        self.checkpoint_dir = checkpoint_dir
        self.callbacks = callbacks
        self.verbose = verbose
        self.random_state = random_state
        self.device = device

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give ``__init__`` a signature that shows the parameters it passes on, in place of **."""
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            own = inspect.signature(cls.__init__).parameters
            passed_on = inspect.signature(super(cls, cls).__init__).parameters
            merged = {**own, **{k: v for k, v in passed_on.items() if k not in own}}
            merged = {k: v for k, v in merged.items() if v.kind != v.VAR_KEYWORD}
            cls.__init__.__signature__ = inspect.Signature(list(merged.values()))  # type: ignore

    @abstractmethod
    def _encoder(self, which: int, in_features: int) -> nn.Module:
        """Return a new encoder for a view of `in_features` features."""

    @abstractmethod
    def _objective(self) -> Objective:
        """Return what the encoders are trained for."""

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Self:
        """Train the encoders and fit the head.

        Validation samples choose the epoch whose parameters are kept, and the head's regularisers;
        without ``X_val, y_val`` a share of the samples is held out for that.
        """
        views = self._check_training(X, y, reset=True)
        given = self._check_validation(X_val, y_val)
        device = resolve_device(self.device)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        rows, validation_rows = hold_out(
            len(views[0]), self.validation_fraction, self.n_components, seed, given
        )
        size = min(self.batch_size, len(rows))
        if size <= self.n_components:
            raise ValueError(
                f"batches of {size} samples cannot carry n_components={self.n_components}, any "
                f"{self.n_components + 1} samples correlate perfectly: use a batch_size and at "
                f"least as many training samples well above that."
            )
        held_out = given if given is not None else views
        validation = tuple(take(view, validation_rows, device) for view in held_out)
        shapes = tuple(tuple(view.shape[1:]) for view in views)
        inputs = tuple(
            standardizer(view, rows, self.scale, device, name)
            for view, name in zip(views, "Xy", strict=True)
        )
        names = ("X", "y") if given is None else ("X_val", "y_val")
        for name, part, whole in zip(names, validation, held_out, strict=True):
            if not part.isfinite().all():
                raise not_finite_error({name: whole})
        model = self._build(shapes, inputs, seed).to(device)
        self._check_features(model.net, validation)
        trainer = self._trainer(model, views, rows, validation, size, seed, device)
        if self.checkpoint_dir is not None:
            facts = self._facts(model, (*views, *held_out))
            trainer.checkpoint = Checkpoint(
                self.checkpoint_dir, {**facts, **asdict(trainer.options)}
            )
        try:
            state = trainer.run()
        except DivergedError:
            if trainer.state.best_epoch >= 0:
                self._finish(model, trainer.state, views, rows, validation, device)
            raise
        return self._finish(model, state, views, rows, validation, device)

    def _build(
        self, shapes: Sequence[tuple[int, ...]], inputs: tuple[Standardize, ...], seed: int
    ) -> TwoViewModel:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            if self.encoders is not None:
                if len(self.encoders) != 2:
                    raise ValueError(f"encoders must be a pair, got {len(self.encoders)} of them.")
                encoders = tuple(copy.deepcopy(encoder) for encoder in self.encoders)
            else:
                encoders = tuple(self._encoder(i, shape[0]) for i, shape in enumerate(shapes))
            model = TwoViewModel(TwoViewNet(inputs, encoders), self._objective())
        self.input_shapes_ = tuple(shapes)
        return model

    def _trainer(
        self,
        model: TwoViewModel,
        views: tuple[View, View],
        rows: NDArray[np.int64],
        validation: tuple[Tensor, ...],
        size: int,
        seed: int,
        device: torch.device,
    ) -> Trainer:
        if self.warmup >= self.epochs and self.warmup:
            raise ValueError(
                f"warmup={self.warmup} leaves none of epochs={self.epochs} to the scaling "
                f"networks: use a smaller warmup or more epochs."
            )
        x_val, y_val = validation
        # Drawn at random: neighbours may be alike, and any stride may meet a period of the data.
        shuffled = np.random.default_rng(seed).permutation(rows)
        sample = np.sort(shuffled[:_CALIBRATION_ROWS])
        watched = np.sort(shuffled[: _MONITOR_ROWS_PER_COMPONENT * self.n_components])
        x_watched, y_watched = (take(view, watched, device) for view in views)

        def monitor(validation: tuple[Tensor, Tensor]) -> float:
            train = encode_both(model.net, (x_watched, y_watched))
            return monitor_total_correlation(
                feature_covariances(train), feature_covariances(validation), self.n_components
            )

        names = Options.__dataclass_fields__
        options = Options(**{k: getattr(self, k) for k in names if k != "seed"}, seed=seed)
        return Trainer(
            model,
            batches_of(*views, rows, size, device),
            (x_val, y_val),
            options,
            calibration=(take(views[0], sample, device), take(views[1], sample, device))
            if self.averaging
            else (x_watched, y_watched),
            monitor=monitor,
            callbacks=self.callbacks,
            verbose=self.verbose,
        )

    def _check_features(self, net: TwoViewNet, validation: Sequence[Tensor]) -> None:
        if not any(p.requires_grad for p in net.parameters()):
            raise ValueError("the encoders have no parameters to train.")
        for name, features in zip("Xy", encode_both(net, [v[:2] for v in validation]), strict=True):
            if features.ndim != 2 or features.shape[1] < self.n_components:
                raise ValueError(
                    f"the encoder of view {name} returns features of shape "
                    f"{tuple(features.shape[1:])} per sample, too few for "
                    f"n_components={self.n_components}: it must return at least as many numbers."
                )

    def _facts(self, model: TwoViewModel, views: Sequence[View]) -> dict[str, Any]:
        """Return what a run must share with a checkpoint to go on from it."""
        if not isinstance(self.random_state, Integral):
            raise ValueError(
                f"checkpoint_dir needs an integer random_state to come back to the same run, got "
                f"{self.random_state!r}."
            )
        facts: dict[str, Any] = {
            name: repr(value)
            for name, value in self.get_params(deep=False).items()
            if name not in (*self._training_only, "verbose", "encoders")
        }
        facts["method"] = type(self).__name__
        facts["data"] = [fingerprint(view) for view in views]
        if self.encoders is not None:
            values = [
                value.flatten().double() for value in model.net.encoders.state_dict().values()
            ]
            facts["encoders"] = fingerprint(torch.cat(values))
        return facts

    def _finish(
        self,
        model: TwoViewModel,
        state: State,
        views: tuple[View, View],
        rows: NDArray[np.int64],
        validation: tuple[Tensor, ...],
        device: torch.device,
    ) -> Self:
        """Fit the head on the training features and set the fitted attributes."""
        net = model.net
        train, scatters = training_sums(net, views, rows, device)
        held_out = feature_covariances(encode_both(net, validation))
        reg: Any = "auto" if self.head_reg == "auto" else per_view("head_reg", self.head_reg)
        found, self.head_reg_ = fit_head(train, held_out, self.n_components, reg)
        self.net_ = net.cpu().requires_grad_(False).eval()
        self.correlations_ = found.correlations.numpy()
        self.x_feature_mean_, self.y_feature_mean_ = train.mean_x.numpy(), train.mean_y.numpy()
        self.x_rotations_, self.y_rotations_ = found.A.numpy(), found.B.numpy()
        interpreted = [
            _interpret(scatter, A.to(device), S.to(device))
            for scatter, A, S in zip(
                scatters, (found.A, found.B), (train.S11, train.S22), strict=True
            )
        ]
        (self.x_loadings_, self.x_patterns_), (self.y_loadings_, self.y_patterns_) = interpreted
        self.history_ = pd.DataFrame(state.history)
        self.n_iter_, self.best_epoch_ = len(state.history), state.best_epoch + 1
        return self

    def _project(self, view: View, which: int) -> Variates:
        dtype = working_dtype(view)
        name = "float32" if dtype == torch.float32 else "float64"
        device = resolve_device(self.device)
        net = copy.deepcopy(self.net_).to(device, dtype)
        mean = (self.x_feature_mean_, self.y_feature_mean_)[which]
        A = torch.as_tensor((self.x_rotations_, self.y_rotations_)[which], device=device)
        out = np.empty((len(view), A.shape[1]), dtype=name)
        for start in range(0, len(view), BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            rows = view[part]
            block = rows if isinstance(rows, Tensor) else torch.from_numpy(np.array(rows, name))
            features = net.encode(block.to(device, dtype), which).double()
            variates = (features - torch.as_tensor(mean, device=device)) @ A
            if not variates.isfinite().all():
                raise not_finite_error({"Xy"[which]: view})
            out[part] = variates.numpy(force=True)
        return out

    def _allow_nd(self) -> bool:
        return self.encoders is not None

    def fitted_state(self) -> dict[str, Any]:
        """Return what a saved model consists of."""
        facts = {
            "input_shapes": self.input_shapes_,
            "scaled": self.net_.scaled,
            "head_reg": self.head_reg_,
            "n_iter": self.n_iter_,
            "best_epoch": self.best_epoch_,
            "history": self.history_.to_dict("list"),
        }
        net = {f"net/{name}": value.numpy() for name, value in self.net_.state_dict().items()}
        return {**super().fitted_state(), "deep": facts, **net}

    def restore_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`fitted_state` returned."""
        facts = state.pop("deep")
        net = {k.removeprefix("net/"): state.pop(k) for k in list(state) if k.startswith("net/")}
        super().restore_state(state)
        shapes = [tuple(int(n) for n in shape) for shape in facts["input_shapes"]]
        for i, shape in enumerate(shapes):
            if net[f"inputs.{i}.mean"].shape not in ((), shape):
                raise ValueError(f"the standardisation of view {'Xy'[i]} does not fit its shape")
        inputs = tuple(
            Standardize(
                *(torch.empty(net[f"inputs.{i}.{part}"].shape) for part in ("mean", "scale"))
            )
            for i in range(2)
        )
        self.net_ = self._build(shapes, inputs, seed=0).net.requires_grad_(False).eval()
        self.net_.load_state_dict({k: torch.from_numpy(v) for k, v in net.items()})
        self.net_.scaled = bool(facts["scaled"])
        probes = encode_both(self.net_, [torch.zeros(1, *shape) for shape in shapes])
        for features, mean in zip(
            probes, (self.x_feature_mean_, self.y_feature_mean_), strict=True
        ):
            if features.shape != (1, len(mean)):
                raise ValueError(f"encoders return {features.shape[1]} features, not {len(mean)}")
        self.head_reg_, self.n_iter_ = facts["head_reg"], int(facts["n_iter"])
        self.best_epoch_, self.history_ = int(facts["best_epoch"]), pd.DataFrame(facts["history"])


def _interpret(
    scatter: CrossScatter, A: Tensor, S: Tensor
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return loadings and patterns of a view's raw entries; see TwoViewEstimator."""
    joint = scatter.covariance() @ A
    deviations = scatter.deviations()
    loadings = joint / deviations.where(deviations > 0, 1.0)[:, None]
    patterns = joint @ (A.T @ S @ A).pinverse()
    return loadings.numpy(force=True), patterns.numpy(force=True)
