"""Two encoders side by side, and what they are trained for."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dscca.deep.layers import DynamicLinear
from dscca.head import BLOCK_ROWS, encode_both


@cache
def _side_stream(device: torch.device) -> Any:
    """Return the stream on which the second view is encoded."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class Standardize(nn.Module):
    """``(x - mean) / scale`` with fixed values, so that units of the data do not matter."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        """Return x, standardised."""
        return (x - self.mean) / self.scale

    def inverse(self, x: Tensor) -> Tensor:
        """Return what gives x when standardised."""
        return x * self.scale + self.mean


class TwoViewNet(nn.Module):
    """Encoders of both views (the paper's f), each behind its standardisation."""

    def __init__(self, inputs: tuple[nn.Module, ...], encoders: tuple[nn.Module, ...]) -> None:
        super().__init__()
        self.inputs = nn.ModuleList(inputs)
        self.encoders = nn.ModuleList(encoders)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features of both (standardised) views."""
        if not x.is_cuda:
            return self.encoders[0](x), self.encoders[1](y)
        # The views do not depend on each other: on a GPU they run side by side.
        main, side = torch.cuda.current_stream(x.device), _side_stream(x.device)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            g: Tensor = self.encoders[1](y)
        f = self.encoders[0](x)
        main.wait_stream(side)
        g.record_stream(main)
        return f, g

    def standardize(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return both views as the encoders take them."""
        return self.inputs[0](x), self.inputs[1](y)

    @torch.no_grad()
    def encode(self, view: Tensor, which: int) -> Float[Tensor, "n d"]:
        """Return the features of one view at inference, block by block."""
        dtype = next((p.dtype for p in self.parameters()), torch.float32)
        encode, standardize = self.encoders[which], self.inputs[which]
        rows = 8 * BLOCK_ROWS if view.is_cuda else BLOCK_ROWS
        with evaluating(self):
            return torch.cat([encode(standardize(b.to(dtype))) for b in torch.split(view, rows)])

    def widths(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Return how many features each encoder returns for samples of these shapes."""
        return tuple(
            self.encode(torch.zeros(1, *shape), which)[0].numel()
            for which, shape in enumerate(shapes)
        )

    def shared_width(self, shapes: Sequence[tuple[int, ...]]) -> int:
        """Return how many features both encoders return, for a method that compares them."""
        first, second = self.widths(shapes)
        if first != second:
            raise ValueError(
                f"the encoders return {first} and {second} features, but this method compares "
                f"them one by one: let both return the same number."
            )
        return first

    @property
    def scaled(self) -> bool:
        """Whether dynamically-scaled layers use their scales; False during the warm-up."""
        return all(layer.scaled for layer in self._dynamic())

    @scaled.setter
    def scaled(self, scaled: bool) -> None:
        for layer in self._dynamic():
            if layer.scaling != "hypernetwork":
                layer.scaled = scaled

    def _dynamic(self) -> list[DynamicLinear]:
        return [module for module in self.modules() if isinstance(module, DynamicLinear)]


class Objective(nn.Module):
    """What the encoders are trained for: a loss of both views' features, and of the views.

    A subclass may hold parameters (decoders, say) and running statistics, which it updates only
    while it is training.
    """

    def forward(self, f: Tensor, g: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of a batch of features f, g of standardised views x, y."""
        raise NotImplementedError

    def validate(
        self,
        features: tuple[Tensor, Tensor],
        x: Tensor,
        y: Tensor,
        training: tuple[Tensor, Tensor],
    ) -> dict[str, Tensor | float]:
        """Return an epoch's figures for the history, ``val_loss`` among them.

        Parameters
        ----------
        features : of all validation samples, at inference
        x, y : the standardised validation views
        training : features of a sample of training rows, at inference
        """
        return {"val_loss": self(*features, x, y)}

    def criterion(self, row: dict[str, float]) -> float:
        """Return what is smallest at the epoch whose parameters are kept, of a history row."""
        return row["val_loss"]


class TwoViewModel(nn.Module):
    """A network and its objective, which is all the training engine knows."""

    def __init__(self, net: TwoViewNet, objective: Objective) -> None:
        super().__init__()
        self.net, self.objective = net, objective

    def loss(self, x: Tensor, y: Tensor, autocast: torch.dtype | None = None) -> Tensor:
        """Return the loss of a batch; only networks run in the lower precision.

        The objective may have networks too, so the losses see to their own precision.
        """
        with torch.no_grad():
            x, y = self.net.standardize(x, y)
        with torch.autocast(x.device.type, dtype=autocast, enabled=autocast is not None):
            f, g = self.net(x, y)
            value: Tensor = self.objective(f.to(x.dtype), g.to(x.dtype), x, y)
        return value

    @torch.no_grad()
    def evaluate(
        self, x: Tensor, y: Tensor, watched: tuple[Tensor, Tensor]
    ) -> tuple[dict[str, Tensor | float], tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return the objective's figures of validation views at inference, and features.

        The features are those of some `watched` training rows, and of the validation samples.
        """
        with evaluating(self):
            f, g = encode_both(self.net.encode, (x, y))
            training = encode_both(self.net.encode, watched)
            standardized = self.net.standardize(x.to(f), y.to(g))
            return self.objective.validate((f, g), *standardized, training), training, (f, g)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode for a while."""
    if not module.training:
        yield
        return
    module.eval()
    try:
        yield
    finally:
        module.train()


@torch.no_grad()
def recalibrate(model: TwoViewModel, x: Tensor, y: Tensor) -> None:
    """Set the statistics of every BatchNorm to those of one large batch of raw views."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    with evaluating(model):
        for norm in norms:
            norm.train()
            norm.momentum = 1.0
        model.loss(x.float(), y.float())
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
            norm.eval()
