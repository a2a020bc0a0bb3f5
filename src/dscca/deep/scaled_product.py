"""The scales of a dynamically-scaled layer, and their product with its input without them."""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Start = Literal["one", "default"]

# Bytes of W ∘ V that are formed at a time. On a CPU they stay in the cache between the element-wise
# product and the matrix product; on an accelerator few launches matter more than temporaries.
_CHUNK_BYTES = {"cpu": 4 << 20}
_CHUNK_BYTES_ACCELERATOR = 256 << 20


class Scale(nn.Module):
    r"""Last layer of a scaling network, for one tensor θ: :math:`S = h V + v`, of θ's shape.

    Without a scaling network (width None) S = v, learned, and the same for every sample.

    Parameters
    ----------
    neutral
        The S at which the layer is its conventional self, of θ's shape.
    width
        Number of hidden units in h.
    start
        ``"one"``: v neutral, and V a hundredth of the default. ``"default"``: V and v uniform
        within ±1/√width, as `torch.nn.Linear` starts them.
    """

    def __init__(self, neutral: Tensor, width: int | None, start: Start) -> None:
        super().__init__()
        if width is None:
            self.V, self.v = None, nn.Parameter(neutral)
            return
        limit = width**-0.5
        V = torch.empty(width, *neutral.shape).uniform_(-limit, limit)
        v = torch.empty_like(neutral).uniform_(-limit, limit)
        self.V = nn.Parameter(0.01 * neutral * V if start == "one" else V)
        self.v = nn.Parameter(neutral if start == "one" else v)

    def forward(self, h: Float[Tensor, "batch width"] | None) -> Float[Tensor, "..."]:
        """Return S for every sample, batch first, or v alone without a scaling network."""
        if h is None or self.V is None:
            return self.v
        S = torch.addmm(self.v.flatten(), h, self.V.flatten(1))
        return S.view(len(h), *self.v.shape)

    def apply_scaled(
        self,
        W: Float[Tensor, "d_out d_in"],
        z: Float[Tensor, "batch d_in"],
        h: Float[Tensor, "batch width"] | None,
    ) -> Float[Tensor, "batch d_out"]:
        """Return (S ∘ W) z without forming S for every sample."""
        y = nn.functional.linear(z, self.v * W)
        return y if h is None or self.V is None else y + scaled_product(z, h, self.V, W)


def scaled_product(
    z: Float[Tensor, "batch d_in"],
    h: Float[Tensor, "batch width"],
    V: Float[Tensor, "width d_out d_in"],
    W: Float[Tensor, "d_out d_in"],
) -> Float[Tensor, "batch d_out"]:
    r"""Apply to every sample its own weight matrix ``(h V) ∘ W``, which is never formed.

    .. math::

        y_{o} = \sum_i \Big(\sum_k h_k V_{koi}\Big) W_{oi}\, z_i
              = \sum_k h_k \underbrace{\sum_i z_i\, W_{oi} V_{koi}}_{T_{ko}}

    The first form is the scaled weight matrix of equation 2 of the paper times z; it stores and
    moves batch x d_in x d_out scales. The second takes the same number of operations, nearly all
    in the one matrix product :math:`T = z (W ∘ V)^\top` of shape batch x (width d_out), which is
    all that is kept for the gradient. It pays where d_out is not much larger than d_in, as in
    every encoder that ends in a shared space. All of it runs in chunks over k.

    Parameters
    ----------
    z
        Input of the layer.
    h
        Activations of the scaling network's last hidden layer.
    V
        Weights of the scaling network's last layer, one d_out x d_in slice per hidden unit.
    W
        Conventional weights.

    Returns
    -------
    Tensor
        In V's precision. Under ``torch.autocast`` only the matrix products use the lower one;
        ``W ∘ V``, the sum over k and every accumulation keep V's.
    """
    device = z.device.type
    lowered = torch.is_autocast_enabled(device) and z.dtype != torch.float64
    precision = torch.get_autocast_dtype(device) if lowered else z.dtype
    keep = torch.is_grad_enabled()
    with torch.autocast(device, enabled=False):
        y: Tensor = _ScaledProduct.apply(z.to(precision), h.to(V.dtype), V, W, keep)  # type: ignore[no-untyped-call]
    return y


class _ScaledProduct(torch.autograd.Function):
    """`scaled_product` with a gradient that forms W ∘ V again rather than storing it.

    With dT_ko = h_k dy_o, dP = dTᵀ z and P = W ∘ V: dz = dT P, dh_k = Σ_o T_ko dy_o,
    dV = dP ∘ W, dW = Σ_k dP_k ∘ V_k.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, h: Tensor, V: Tensor, W: Tensor, keep: bool) -> Tensor:
        y = h.new_zeros(len(z), V.shape[1])
        kept = []
        for k in _chunks(V):
            P = _product(V[k], W, z.dtype)
            T = (z @ P.T).view(len(z), -1, V.shape[1])  # batch x chunk x d_out
            y += torch.bmm(h[:, None, k], T.to(h.dtype)).squeeze(1)
            if keep:
                kept.append(T)
        ctx.save_for_backward(z, h, V, W, *kept)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        z, h, V, W, *kept = ctx.saved_tensors
        dz = torch.zeros_like(z, dtype=h.dtype)
        dh, dV = torch.empty_like(h), torch.empty_like(V)
        dW = torch.zeros_like(W) if ctx.needs_input_grad[3] else None
        for k, T in zip(_chunks(V), kept, strict=True):
            dh[:, k] = torch.bmm(T.to(h.dtype), dy[:, :, None]).squeeze(2)
            dT = (h[:, k, None] * dy[:, None, :]).to(z.dtype).flatten(1)
            P = _product(V[k], W, z.dtype)
            if P.dtype == dz.dtype:
                dz.addmm_(dT, P)  # saves a batch x d_in temporary and a pass over it
            else:
                dz += dT @ P
            dP = (dT.T @ z).view_as(V[k]).to(V.dtype)
            torch.mul(dP, W, out=dV[k])
            if dW is not None:
                dW += dP.mul_(V[k]).sum(0)
        return dz.to(z.dtype), dh, dV, dW, None


def _chunks(V: Tensor) -> list[slice]:
    """Cut the hidden units into runs whose slices of V fill about one chunk of memory."""
    limit = _CHUNK_BYTES.get(V.device.type, _CHUNK_BYTES_ACCELERATOR)
    size = max(1, limit // (V[0].numel() * V.element_size()))
    return [slice(start, start + size) for start in range(0, len(V), size)]


def _product(V: Tensor, W: Tensor, dtype: torch.dtype) -> Tensor:
    """Return W ∘ V as a (chunk d_out) x d_in matrix."""
    return (V * W).to(dtype).flatten(0, 1)
