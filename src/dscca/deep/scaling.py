"""What makes an estimator dynamically scaled: the last layer of its encoders, and their scales."""

from collections.abc import Sequence
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dscca.base import Variates
from dscca.deep.estimator import DeepEstimator
from dscca.deep.layers import Context, DynamicLinear, Scaling
from dscca.deep.scaled_product import Start
from dscca.deep.sizes import widths_per_view
from dscca.views import View, check_x, not_finite_error


class DynamicScaling(DeepEstimator):
    """Mixin of estimators whose encoders end in a dynamically-scaled layer.

    The estimator that is scaled comes after it among the bases. The parameters are explained in
    :class:`dscca.DSDCCA`.
    """

    _scaling_constraints: ClassVar[dict[str, list[Any]]] = {
        "scaling": [StrOptions({"parameters", "outputs", "global", "hypernetwork", "none"})],
        "context": [StrOptions({"z", "x", "zx"})],
        "warmup": [Interval(Integral, 0, None, closed="left")],
        "start": [StrOptions({"one", "default"})],
    }

    def __init__(
        self,
        n_components: int = 50,
        hidden: Sequence[Any] = (800, 800),
        *,
        scale_hidden: Sequence[Any] = (256,),
        scaling: Scaling = "parameters",
        context: Context = "z",
        warmup: int = 50,
        start: Start = "one",
        **options: Any,
    ) -> None:
        super().__init__(n_components, hidden, **options)
        self.scale_hidden = scale_hidden
        self.scaling = scaling
        self.context = context
        self.warmup = warmup
        self.start = start

    def scales(self, X: ArrayLike) -> NDArray[np.float32]:
        """Return the scales of view one's last layer, a row of ``c`` numbers per sample.

        The first d_out * d_in are those of the weights, row by row, the rest those of the biases.
        They are ones if the best epoch was before the scaling networks joined.
        """
        check_is_fitted(self)
        return self._scales(check_x(self, X, reset=False), 0)

    def scales_y(self, y: ArrayLike) -> NDArray[np.float32]:
        """Return the scales of view two's last layer."""
        check_is_fitted(self)
        return self._scales(self._check_second(y), 1)

    def _scales(self, view: View, which: int) -> Variates:
        encoder: Any = self.net_.encoders[which]
        if not isinstance(getattr(encoder, "last", None), DynamicLinear):
            raise ValueError("encoders of your own have no scales to return.")
        last: DynamicLinear = encoder.last
        rows = (
            view.cpu().float() if isinstance(view, Tensor) else torch.tensor(np.array(view, "f4"))
        )
        if not rows.isfinite().all():
            raise not_finite_error({"Xy"[which]: view})
        if not last.scaled:
            c = last.weight.numel() + last.out_features
            return np.ones((len(rows), c), dtype=np.float32)
        x = self.net_.inputs[which](rows)
        with torch.no_grad():
            S_W, S_b = last.scales(encoder.body(x), x)
        return torch.cat([S_W.flatten(1), S_b], dim=1).numpy()  # type: ignore[list-item]

    def _last_layer(self, which: int, in_features: int) -> Any:
        if self.scaling == "hypernetwork" and self.warmup:
            raise ValueError(
                f'scaling="hypernetwork" has no conventional parameters to warm up, but '
                f"warmup={self.warmup}: use warmup=0."
            )
        return partial(
            DynamicLinear,
            scale_hidden=widths_per_view("scale_hidden", self.scale_hidden)[which],
            context=self.context,
            context_features=in_features,
            scaling=self.scaling,
            start=self.start,
        )
