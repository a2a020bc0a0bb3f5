"""What all deep estimators share: fitting, the head, inference, and models on disk."""

import copy
import inspect
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from os import PathLike
from typing import Any, ClassVar, Self

import pandas as pd
import torch
from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from torch import nn

from dscca.base import TwoViewEstimator, Variates
from dscca.deep.checkpoint import Checkpoint
from dscca.deep.fitting import FEATURE_EPS, check_features, make_trainer, run_facts
from dscca.deep.layers import MLP
from dscca.deep.network import Objective, Standardize, TwoViewModel, TwoViewNet
from dscca.deep.parameters import CONSTRAINTS
from dscca.deep.preparation import FittingData, prepare
from dscca.deep.restoring import load_net, new_network, stored_inputs
from dscca.deep.sizes import widths_per_view
from dscca.deep.training import Callback, DivergedError, Options, State
from dscca.head import encode_both, feature_covariances, fit_head, project, training_sums
from dscca.parameters import NOT_NEGATIVE, pair_of
from dscca.views import View, resolve_device, working_dtype


class DeepEstimator(TwoViewEstimator):
    """Base of the deep estimators: two encoders, an objective, and a linear CCA as head.

    A subclass says what the encoders are trained for (``_objective``) and, where they are not the
    paper's, what they are (``_encoder``, ``_last_layer``, ``_output_norm``). Its ``__init__`` takes
    its own parameters and passes the rest on.

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
        Stop after so many epochs none of which was the best on validation data.
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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = CONSTRAINTS

    _output_norm: ClassVar[bool] = True
    """Whether a BatchNorm follows the encoders' last layer."""

    _own_signature: ClassVar[inspect.Signature]
    net_: TwoViewNet
    input_shapes_: tuple[tuple[int, ...], ...]
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
            cls._own_signature = inspect.signature(cls.__init__)
            own = [vars(c)["_own_signature"] for c in cls.__mro__ if "_own_signature" in vars(c)]
            merged: dict[str, inspect.Parameter] = {}
            for signature in (*own, inspect.signature(DeepEstimator.__init__)):
                merged |= {k: v for k, v in signature.parameters.items() if k not in merged}
            merged = {k: v for k, v in merged.items() if v.kind != v.VAR_KEYWORD}
            cls.__init__.__signature__ = inspect.Signature(list(merged.values()))  # type: ignore

    @abstractmethod
    def _objective(self, net: TwoViewNet) -> Objective:
        """Return what the encoders of `net` are trained for; the views have ``input_shapes_``."""

    def _encoder(self, which: int, in_features: int) -> nn.Module:
        """Return a new encoder for a view of `in_features` features."""
        hidden = widths_per_view("hidden", self.hidden)[which]
        last = self._last_layer(which, in_features)
        width = (in_features, *hidden)[-1]
        if last is nn.Linear and width < self.n_components:
            raise ValueError(
                f"n_components={self.n_components} is above {width}, the width of what the last "
                f"layer of view {'Xy'[which]} sees: use n_components <= {width} or wider layers."
            )
        return MLP(
            in_features,
            hidden,
            self.n_components,
            last=last,
            output_norm=self._output_norm,
            dropout=self.dropout,
        )

    def _last_layer(self, which: int, in_features: int) -> Any:
        """Return what makes an encoder's last layer from its sizes."""
        return nn.Linear

    def _assembled(self, which: int, encoder: nn.Module) -> nn.Module:
        """Return a view's encoder, the package's or the user's, as it is trained."""
        return encoder

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
        if self.warmup >= self.epochs and self.warmup:
            raise ValueError(
                f"warmup={self.warmup} leaves none of epochs={self.epochs} to the scaling "
                f"networks: use a smaller warmup or more epochs."
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        data = prepare(
            views,
            given,
            n_components=self.n_components,
            batch_size=self.batch_size,
            fraction=self.validation_fraction,
            scale=self.scale,
            seed=seed,
            device=resolve_device(self.device),
        )
        self.input_shapes_ = data.shapes
        model = self._model(data.inputs, seed).to(data.device)
        check_features(model.net, data.validation, self.n_components)
        options = Options(
            **{k: getattr(self, k) for k in Options.__dataclass_fields__ if k != "seed"}, seed=seed
        )
        trainer = make_trainer(
            model,
            data,
            options,
            n_components=self.n_components,
            callbacks=self.callbacks,
            verbose=self.verbose,
        )
        if self.checkpoint_dir is not None:
            facts = {**run_facts(self, model.net, data), **asdict(options)}
            trainer.checkpoint = Checkpoint(self.checkpoint_dir, facts)
        try:
            state = trainer.run()
        except DivergedError:
            if trainer.state.best_epoch >= 0:
                self._finish(model, trainer.state, data)
            raise
        return self._finish(model, state, data)

    def _model(self, inputs: tuple[Standardize, ...], seed: int) -> TwoViewModel:
        """Return a new network for views of ``input_shapes_``, and its objective."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            net = self._network(inputs)
            return TwoViewModel(net, self._objective(net))

    def _network(self, inputs: tuple[Standardize, ...]) -> TwoViewNet:
        if self.encoders is not None:
            if len(self.encoders) != 2:
                raise ValueError(f"encoders must be a pair, got {len(self.encoders)} of them.")
            encoders = [copy.deepcopy(encoder) for encoder in self.encoders]
        else:
            encoders = [self._encoder(i, shape[0]) for i, shape in enumerate(self.input_shapes_)]
        return TwoViewNet(inputs, tuple(self._assembled(i, e) for i, e in enumerate(encoders)))

    def _finish(self, model: TwoViewModel, state: State, data: FittingData) -> Self:
        """Fit the head on the training features and set the fitted attributes."""
        net = model.net
        train, scatters = training_sums(net.encode, data.training_blocks(), FEATURE_EPS)
        held_out = feature_covariances(encode_both(net.encode, data.validation), FEATURE_EPS)
        automatic = isinstance(self.head_reg, str)
        reg: Any = "auto" if automatic else pair_of("head_reg", self.head_reg, NOT_NEGATIVE)
        found, self.head_reg_ = fit_head(train, held_out, self.n_components, reg)
        self.net_ = net.cpu().requires_grad_(False).eval()
        self._set_spectrum(found)
        self.x_feature_mean_, self.y_feature_mean_ = train.mean_x.numpy(), train.mean_y.numpy()
        self.x_rotations_, self.y_rotations_ = found.A.numpy(), found.B.numpy()
        self.x_loadings_, self.x_patterns_ = scatters[0].interpret(found.A, train.S11)
        self.y_loadings_, self.y_patterns_ = scatters[1].interpret(found.B, train.S22)
        self.history_ = pd.DataFrame(state.history)
        self.n_iter_, self.best_epoch_ = len(state.history), state.best_epoch + 1
        self._keep(model.objective)
        return self

    def _keep(self, objective: Objective) -> None:
        """Set what a method keeps of its trained objective."""

    def _project(self, view: View, which: int) -> Variates:
        mean = (self.x_feature_mean_, self.y_feature_mean_)[which]
        A = (self.x_rotations_, self.y_rotations_)[which]
        device = resolve_device(self.device)
        net = copy.deepcopy(self.net_).to(device, working_dtype(view))
        encode = partial(net.encode, which=which)
        return project(encode, view, mean, A, name="Xy"[which], device=device)

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
        self.input_shapes_ = tuple(tuple(int(n) for n in s) for s in facts["input_shapes"])
        if [s[0] for s in self.input_shapes_] != [self.n_features_in_, self.n_features_y_]:
            raise ValueError("the numbers of features do not fit the shapes of samples")
        build = partial(self._network, stored_inputs(net, self.input_shapes_))
        self.net_ = new_network(build, net)
        load_net(self.net_, net, self.input_shapes_, (self.x_feature_mean_, self.y_feature_mean_))
        self.net_.scaled = bool(facts["scaled"])
        self.head_reg_ = pair_of("head_reg", facts["head_reg"], NOT_NEGATIVE)
        self.n_iter_ = int(facts["n_iter"])
        self.best_epoch_, self.history_ = int(facts["best_epoch"]), pd.DataFrame(facts["history"])
