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

    def scale_coordinates(self, X: ArrayLike) -> NDArray[np.float32]:
        r"""Return points that lie as far apart as the rows of :meth:`scales`, in few dimensions.

        Scales are ``S = h V + v`` with the scaling network's hidden units h, so they fill an affine
        space of at most as many dimensions as there are units. With ``V Vᵀ = Q Λ Qᵀ`` the rows
        ``h Q Λ^½`` have the distances of the scales exactly:
        ``‖S_i - S_j‖² = (h_i - h_j) V Vᵀ (h_i - h_j)ᵀ``. Neighbours and embeddings of
        10,000 samples then take megabytes where the scales take gigabytes. Where scales are the
        same for every sample, all points are zero.

        Returns
        -------
        (n_samples, width), the directions of largest Λ first; width 1 for constant scales
        """
        check_is_fitted(self)
        return self._scale_coordinates(check_x(self, X, reset=False), 0)

    def scale_coordinates_y(self, y: ArrayLike) -> NDArray[np.float32]:
        """Return such points for the scales of view two."""
        check_is_fitted(self)
        return self._scale_coordinates(self._check_second(y), 1)

    def _scales(self, view: View, which: int) -> Variates:
        last, x = self._dynamic_layer(view, which)
        if not last.scaled:
            c = last.weight.numel() + last.out_features
            return np.ones((len(x), c), dtype=np.float32)
        with torch.no_grad():
            S_W, S_b = last.scales(self.net_.encoders[which].body(x), x)  # type: ignore[operator]
        return torch.cat([S_W.flatten(1), S_b], dim=1).numpy()  # type: ignore[list-item]

    def _scale_coordinates(self, view: View, which: int) -> NDArray[np.float32]:
        last, x = self._dynamic_layer(view, which)
        if not last.scaled or last.hidden is None:
            return np.zeros((len(x), 1), dtype=np.float32)
        body: Any = self.net_.encoders[which].body
        with torch.no_grad():
            parts: Any = [last.hidden_activations(body(b), b) for b in torch.split(x, 4096)]
        h = torch.cat(parts).double()
        eigenvalues, Q = torch.linalg.eigh(last.scale_gram())
        found = (h @ Q * eigenvalues.clamp_min(0).sqrt()).flip(1)
        return found.float().numpy()

    def _dynamic_layer(self, view: View, which: int) -> tuple[DynamicLinear, Tensor]:
        """Return a view's last layer, and the view as its encoder takes it."""
        encoder: Any = self.net_.encoders[which]
        if not isinstance(getattr(encoder, "last", None), DynamicLinear):
            raise ValueError("encoders of your own have no scales to return.")
        rows = (
            view.cpu().float() if isinstance(view, Tensor) else torch.tensor(np.array(view, "f4"))
        )
        if not rows.isfinite().all():
            raise not_finite_error({"Xy"[which]: view})
        return encoder.last, self.net_.inputs[which](rows)

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
