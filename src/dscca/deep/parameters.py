"""What values the parameters of every deep estimator may take."""

from numbers import Integral, Real
from typing import Any

from sklearn.utils._param_validation import Interval, StrOptions

from dscca.deep.optimizers import OPTIMIZERS

CONSTRAINTS: dict[str, list[Any]] = {
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
