"""The dynamically-scaled layer (equations 1 and 2 of the paper) and the encoder that ends in it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dscca.deep.scaled_product import Scale, Start

Scaling = Literal["parameters", "outputs", "global", "hypernetwork", "none"]
Context = Literal["z", "x", "zx"]


class DynamicLinear(nn.Module):
    r"""Linear layer whose parameters a network scales for every sample: the paper's DSL.

    .. math::

        h &= \mathrm{ReLU}(\mathrm{BN}(c W_1)), \quad
             S_W = h V_W + v_W, \quad S_b = h V_b + v_b            && \text{(eq. 1)} \\
        y &= (S_W ∘ W)\, z + S_b ∘ b                               && \text{(eq. 2)}

    for the context c: z, x, or both. S_W is never formed: see `dscca.deep.scaled_product`.

    Parameters
    ----------
    in_features, out_features
        Sizes of z and y, as in `torch.nn.Linear`, which the layer replaces.
    scale_hidden
        Widths of the scaling network's hidden layers: (128,), (256,) or (256, 128) in the paper.
    context
        What the scaling network sees: the layer's input z (DS-DCCA), the encoder's raw input x,
        or both, concatenated (DS-Ranking CCA).
    context_features
        Size of x; read only where the context holds it.
    scaling
        ``"parameters"`` is the paper's layer, the others are its ablations. ``"outputs"``:
        y = S_y ∘ (W z + b). ``"global"``: S_W = v_W and S_b = v_b, the same for every sample.
        ``"hypernetwork"``: W and b are constants 1, the network makes the parameters.
        ``"none"``: `torch.nn.Linear`. The last and ``"global"`` have no scaling network, and do
        not read its options (scale_hidden, context, context_features, start).
    bias
        Whether there is a b.
    start
        ``"one"``: v = 1, and V a hundredth of its default, so that all scales start within about
        one per cent of 1. V is not exactly zero: the hidden layers' first gradient would then be
        weight decay's alone, and RMSprop makes a full step of any gradient. A hypernetwork starts
        as the same function, its v as W and b would start, its V multiplied by them.
        ``"default"``: V and v as `torch.nn.Linear` starts them.

    Notes
    -----
    W and b start as those of a `torch.nn.Linear` made at the same state of torch's generator, and
    leave it in the same state: the scaling network draws from a stream of its own. So models
    with and without scaling, built from one seed, are the same until their warm-up ends.

    Examples
    --------
    >>> layer = DynamicLinear(8, 3, scale_hidden=(4,))
    >>> layer(torch.randn(5, 8)).shape
    torch.Size([5, 3])
    """

    weight: Tensor
    bias: Tensor | None
    scale_weight: Scale
    scale_bias: Scale
    scale_output: Scale

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        scale_hidden: Sequence[int] = (256,),
        context: Context = "z",
        context_features: int | None = None,
        scaling: Scaling = "parameters",
        bias: bool = True,
        start: Start = "one",
    ) -> None:
        super().__init__()
        _require_positive("in_features and out_features", (in_features, out_features))
        _require_choice("scaling", scaling, get_args(Scaling))
        _require_choice("context", context, get_args(Context))
        _require_choice("start", start, get_args(Start))
        self.in_features, self.out_features = in_features, out_features
        self.scaling, self.context, self._scaled = scaling, context, True
        has_network = scaling in ("parameters", "outputs", "hypernetwork")
        self.sees_x = has_network and context != "z"

        conventional = nn.Linear(in_features, out_features, bias)
        for name in ("weight", "bias"):
            theta: nn.Parameter | None = getattr(conventional, name)
            if scaling == "hypernetwork" and theta is not None:
                self.register_buffer(name, torch.ones_like(theta), persistent=False)
            else:
                self.register_parameter(name, theta)

        width, self.hidden = None, None
        with _own_random_stream():
            if has_network:
                _require_positive("scale_hidden", scale_hidden)
                size = _context_size(in_features, context, context_features)
                width = scale_hidden[-1]
                self.hidden = nn.Sequential(*_hidden_layers((size, *scale_hidden)))
            for name, neutral in _neutral_scales(scaling, conventional).items():
                setattr(self, f"scale_{name}", Scale(neutral, width, start))

    @property
    def scaled(self) -> bool:
        """Whether the scales are in use; set it to False for the warm-up.

        While it is False the layer is its conventional self, and the parameters of its scales
        have no gradient at all: weight decay would act on a zero one.
        """
        return self._scaled

    @scaled.setter
    def scaled(self, scaled: bool) -> None:
        if not scaled and self.scaling == "hypernetwork":
            raise ValueError(
                "A hypernetwork layer has no conventional parameters to use without its network: "
                'train it without a warm-up, or take scaling="parameters".'
            )
        self._scaled = scaled

    def forward(
        self, z: Float[Tensor, "batch d_in"], x: Float[Tensor, "batch d_x"] | None = None
    ) -> Float[Tensor, "batch d_out"]:
        """Return y of equation 2 for every sample; x is needed where the context holds it."""
        if z.ndim != 2 or z.shape[1] != self.in_features:
            raise ValueError(
                f"z must be batch x {self.in_features}, got shape {tuple(z.shape)}; "
                "reshape it, or make the layer with another in_features."
            )
        W, b = self.weight, self.bias
        if not self.scaled or self.scaling == "none":
            return nn.functional.linear(z, W, b)
        h = self.hidden_activations(z, x)
        if self.scaling == "outputs":
            scaled: Tensor = self.scale_output(h) * nn.functional.linear(z, W, b)
            return scaled
        y = self.scale_weight.apply_scaled(W, z, h)
        return y if b is None else y + self.scale_bias(h) * b

    def hidden_activations(self, z: Tensor, x: Tensor | None) -> Tensor | None:
        """Return h, batch x width, of equation 1, or None where there is no scaling network."""
        if self.hidden is None:
            return None
        if self.sees_x and x is None:
            raise ValueError(
                f'The scaling network\'s context is "{self.context}", but no x was given; '
                'call layer(z, x), or take context="z".'
            )
        context = [part for name, part in (("z", z), ("x", x)) if name in self.context]
        h: Tensor = self.hidden(torch.cat([part for part in context if part is not None], dim=1))
        return h

    @torch.no_grad()
    def scale_gram(self) -> Float[Tensor, "width width"]:
        """Return V Vᵀ in float64, for all scales together; needs a scaling network."""
        if self.scaling == "outputs":  # one scale for every weight of an output, and its bias
            repeats = self.in_features + (self.bias is not None)
            V = self.scale_output.V.double()  # type: ignore[union-attr]
            return repeats * V @ V.T
        used = [self.scale_weight] if self.bias is None else [self.scale_weight, self.scale_bias]
        return sum(V @ V.T for V in (s.V.flatten(1).double() for s in used))  # type: ignore

    @torch.no_grad()
    def scales(
        self, z: Tensor, x: Tensor | None = None, block_size: int = 256
    ) -> tuple[Float[Tensor, "batch d_out d_in"], Float[Tensor, "batch d_out"] | None]:
        """Return the scales (S_W, S_b) that equation 1 gives these samples at inference.

        They are formed block_size samples at a time, whatever `training` and `scaled` say. S_W has
        the layout of `weight`, and S_b is None without a bias. Memory: batch x d_out x d_in
        numbers (160 kB a sample for 800 to 50 features in float32), and one block of them more.
        """
        if self.scaling == "none":
            raise ValueError('A layer with scaling="none" has no scales; take another scaling.')
        _require_positive("block_size", (block_size,))
        S_W = self.weight.new_empty(len(z), *self.weight.shape)
        S_b = None if self.bias is None else self.bias.new_empty(len(z), self.out_features)
        outputs = self.scaling == "outputs"
        training = self.training
        self.eval()
        try:
            for start in range(0, len(z), block_size):
                rows = slice(start, start + block_size)
                h = self.hidden_activations(z[rows], None if x is None else x[rows])
                S_W[rows] = self.scale_output(h)[:, :, None] if outputs else self.scale_weight(h)
                if S_b is not None:
                    S_b[rows] = self.scale_output(h) if outputs else self.scale_bias(h)
        finally:
            self.train(training)
        return S_W, S_b


class MLP(nn.Module):
    """Encoder of one view: Linear, BatchNorm, ReLU for every hidden layer, then a last layer.

    The networks f of the paper (its supplement, "Implementation Details"): every BatchNorm is
    without affine parameters, and the last layer is followed by one, but by no activation.

    Parameters
    ----------
    in_features, hidden, out_features
        Sizes of x, of the hidden layers and of the output: 392, (800, 800), 50 for half a digit.
    last
        Makes the last layer from its sizes. ``partial(DynamicLinear, scale_hidden=(128,))`` makes
        the encoder of DS-DCCA; one whose scaling network sees x is called with x as well.
    output_norm
        Whether the BatchNorm after the last layer is there (Soft-HGR has none).
    dropout
        Probability with which hidden activations are dropped in training.

    Examples
    --------
    >>> from functools import partial
    >>> encoder = MLP(392, (80, 80), 5, last=partial(DynamicLinear, scale_hidden=(16,)))
    >>> encoder(torch.randn(7, 392)).shape
    torch.Size([7, 5])
    """

    def __init__(
        self,
        in_features: int,
        hidden: Sequence[int],
        out_features: int,
        *,
        last: Callable[[int, int], nn.Module] = nn.Linear,
        output_norm: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        sizes = (in_features, *hidden)
        _require_positive("the sizes of an encoder", (*sizes, out_features))
        self.body = nn.Sequential(*_hidden_layers(sizes, dropout))
        self.last = last(sizes[-1], out_features)
        self.norm = nn.BatchNorm1d(out_features, affine=False) if output_norm else nn.Identity()

    def forward(self, x: Float[Tensor, "batch d_x"]) -> Float[Tensor, "batch d_out"]:
        """Return the features f(x)."""
        z = self.body(x)
        sees_x = getattr(self.last, "sees_x", False)
        y: Tensor = self.norm(self.last(z, x) if sees_x else self.last(z))
        return y


def _hidden_layers(sizes: Sequence[int], dropout: float = 0.0) -> Iterator[nn.Module]:
    """Yield Linear, BatchNorm without affine parameters, ReLU between each two sizes.

    The linear layers have no bias: the BatchNorm would take it away again.
    """
    for a, b in pairwise(sizes):
        yield nn.Linear(a, b, bias=False)
        yield nn.BatchNorm1d(b, affine=False)
        yield nn.ReLU()
        if dropout:
            yield nn.Dropout(dropout)


def _neutral_scales(scaling: Scaling, conventional: nn.Linear) -> dict[str, Tensor]:
    """Return, for each tensor that is scaled, the scales that make the conventional layer."""
    if scaling == "none":
        return {}
    if scaling == "outputs":
        return {"output": torch.ones(conventional.out_features)}
    thetas = {"weight": conventional.weight.detach()}
    if conventional.bias is not None:
        thetas["bias"] = conventional.bias.detach()
    if scaling == "hypernetwork":
        return thetas
    return {name: torch.ones_like(theta) for name, theta in thetas.items()}


@contextmanager
def _own_random_stream() -> Iterator[None]:
    """Draw from a stream seeded by torch's CPU generator, which is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(torch.randint(2**62, (), device="cpu")))
        yield


def _context_size(in_features: int, context: Context, context_features: int | None) -> int:
    """Return the size of what the scaling network sees."""
    if context == "z":
        return in_features
    if context_features is None:
        raise ValueError(
            f'context="{context}" needs the size of x; give context_features, or context="z".'
        )
    return context_features if context == "x" else in_features + context_features


def _require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}.")


def _require_positive(name: str, values: Sequence[int]) -> None:
    if not values or min(values) < 1:
        raise ValueError(f"{name} must be at least 1, got {values}.")
