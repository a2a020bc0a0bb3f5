"""Nuclear norm and polar factor of a matrix, with gradients that never explode.

For ``M = U Σ Vᵀ`` the polar factor is ``Q = U Vᵀ`` and the nuclear norm ``‖M‖_* = Σ σ_i = ⟨Q, M⟩``.
Neither gradient divides by differences of singular values, as differentiating U and V would.

Two back ends compute the same thing: ``"svd"``, and ``"newton-schulz"``, which uses matrix products
only and is the one for GPUs, where a small SVD costs more than a whole training step.
"""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from dscca.moments import full_precision

Method = Literal["svd", "newton-schulz"]

_QUINTIC = (3.4445, -4.775, 2.0315)
_CUBIC = (1.5, -0.5, 0.0)
_STEPS = (_QUINTIC,) * 12 + (_CUBIC,) * 6
_STEPS_FROM_BOUND = (_QUINTIC,) * 6 + (_CUBIC,) * 5
"""Quintic steps lift singular values above about 1e-6 of the Frobenius norm, or 1e-3 of a bound on
the spectral norm, to near one (coefficients: K. Jordan's Muon, 2024), cubic steps polish them."""

_SMALLEST_SUM = 1e-6
"""Bound below σ_i + σ_j, relative to the largest singular value, in the polar factor's gradient."""


def nuclear_norm(M: Float[Tensor, "p q"], method: Method = "svd") -> Float[Tensor, ""]:
    """Return the sum of the singular values; its gradient is the polar factor."""
    value: Tensor = _NuclearNorm.apply(M, method)  # type: ignore[no-untyped-call]
    return value


def polar_factor(M: Float[Tensor, "p q"], method: Method = "svd") -> Float[Tensor, "p q"]:
    """Return the nearest (partial) isometry to M, ``Q = U Vᵀ``.

    With ``K = Uᵀ G V`` for an incoming gradient ``G``, the gradient is
    ``U [(K - Kᵀ)_ij / (σ_i + σ_j)] Vᵀ``, and for p > q also ``(I - U Uᵀ) G V Σ⁻¹ Vᵀ``.
    """
    value: Tensor = _PolarFactor.apply(M, method)  # type: ignore[no-untyped-call]
    return value


def newton_schulz(
    M: Float[Tensor, "p q"],
    tangent: Float[Tensor, "p q"] | None = None,
    bound: float | None = None,
) -> tuple[Float[Tensor, "p q"], Float[Tensor, "p q"] | None]:
    """Return the polar factor of M and, for a `tangent` E, its derivative along E.

    ``X ← a X + b X XᵀX + c X (XᵀX)²`` from ``X = M / ‖M‖_F``, or, in fewer steps, from
    ``X = M / bound`` if no singular value is above `bound`. A zero matrix gives zero.
    """
    if M.shape[0] < M.shape[1]:
        Q, E = newton_schulz(M.mT, None if tangent is None else tangent.mT, bound)
        return Q.mT, None if E is None else E.mT
    norm = _positive(M.norm()) if bound is None else bound
    X = M / norm
    E = None if tangent is None else tangent / norm
    with full_precision():
        for a, b, c in _STEPS if bound is None else _STEPS_FROM_BOUND:
            gram = X.mT @ X
            polynomial = torch.addmm(gram, gram, gram, beta=b, alpha=c) if c else b * gram
            if E is not None:
                turn = X.mT @ E
                d_gram = turn + turn.mT
                d_poly = b * d_gram
                if c:
                    d_poly = d_poly + c * (d_gram @ gram + gram @ d_gram)
                E = a * E + E @ polynomial + X @ d_poly
            X = torch.addmm(X, X, polynomial, beta=a)
    return X, E


class _NuclearNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, M: Tensor, method: Method) -> Tensor:
        if not ctx.needs_input_grad[0] and method == "svd":
            return torch.linalg.svdvals(M).sum()
        Q = polar(M, method)
        ctx.save_for_backward(Q)
        return (Q * M).sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (Q,) = ctx.saved_tensors
        return grads[0] * Q, None


class _PolarFactor(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, M: Tensor, method: Method) -> Tensor:
        ctx.method = method
        if method == "newton-schulz":
            ctx.save_for_backward(M)
            return newton_schulz(M)[0]
        U, s, Vh = torch.linalg.svd(M, full_matrices=False)
        ctx.save_for_backward(U, s, Vh)
        return U @ Vh

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (G,) = grads
        if ctx.method == "newton-schulz":
            # The derivative of the polar map is self-adjoint: along G it is also the gradient.
            (M,) = ctx.saved_tensors
            gradient = newton_schulz(M, G)[1]
            assert gradient is not None
            return gradient, None
        U, s, Vh = ctx.saved_tensors
        floor = _SMALLEST_SUM * _positive(s[0])
        K = U.mT @ G @ Vh.mT
        core = (K - K.mT) / (s[:, None] + s).clamp_min(floor)
        gradient = U @ core @ Vh
        if U.shape[0] > U.shape[1]:
            GV = G @ Vh.mT
            gradient = gradient + ((GV - U @ (U.mT @ GV)) / s.clamp_min(floor)) @ Vh
        if Vh.shape[0] < Vh.shape[1]:
            UG = U.mT @ G
            gradient = gradient + U @ ((UG - (UG @ Vh.mT) @ Vh) / s.clamp_min(floor)[:, None])
        return gradient, None


def _positive(value: Tensor) -> Tensor:
    """Return `value`, or 1 where it is 0, so that a zero matrix gives no NaN."""
    return torch.where(value > 0, value, torch.ones_like(value))


def polar(
    M: Float[Tensor, "p q"], method: Method, bound: float | None = None
) -> Float[Tensor, "p q"]:
    """Return the polar factor of M, for use where no gradient is needed."""
    if method == "newton-schulz":
        return newton_schulz(M, bound=bound)[0]
    U, _, Vh = torch.linalg.svd(M, full_matrices=False)
    return U @ Vh
