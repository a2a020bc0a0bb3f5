"""Objectives of deep models, as pure functions of the two views' features."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from dscca.moments import full_precision
from dscca.polar import Method, polar


def cca_loss(
    F1: Float[Tensor, "n d1"],
    F2: Float[Tensor, "n d2"],
    reg: tuple[float, float] = (1e-4, 1e-4),
    method: Method | None = None,
) -> Float[Tensor, ""]:
    r"""Return minus the sum of the regularised canonical correlations (the paper's equation 6).

    With centred features :math:`\bar F_1, \bar F_2`,

    .. math::

        \Sigma_{jj} = \tfrac{1}{n-1} \bar F_j^\top \bar F_j + r_j I, \quad
        \Sigma_{12} = \tfrac{1}{n-1} \bar F_1^\top \bar F_2, \quad
        \mathcal{L} = -\lVert \Sigma_{11}^{-1/2} \Sigma_{12} \Sigma_{22}^{-1/2} \rVert_*.

    Whitened by Cholesky factors, :math:`M = L_1^{-1} \Sigma_{12} L_2^{-\top}` has the same singular
    values; its polar factor Q gives the gradient in closed form (Andrew et al. 2013, section 3),
    without differentiating a decomposition:

    .. math::

        \partial \lVert M \rVert_* / \partial \Sigma_{12} = L_1^{-\top} Q L_2^{-1}, \quad
        \partial \lVert M \rVert_* / \partial \Sigma_{11}
            = -\tfrac{1}{2} L_1^{-\top} M Q^\top L_1^{-1}.

    Parameters
    ----------
    F1, F2 : features of n paired samples
    reg : r1 and r2, positive and absolute as in the paper (its features have unit variance)
    method : how Q is computed, by default "newton-schulz" on a GPU and "svd" elsewhere

    Notes
    -----
    The d x d algebra is done in float64, whatever the precision of the features. Features that
    are not finite give a loss that is not.
    """
    if method is None:
        method = "newton-schulz" if F1.is_cuda else "svd"
    loss: Tensor = _CCALoss.apply(F1, F2, reg, method)  # type: ignore[no-untyped-call]
    return loss


class _CCALoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, F1: Tensor, F2: Tensor, reg: tuple[float, float], method: Method
    ) -> Tensor:
        n, d = F1.shape
        ctx.split = d
        C = torch.cat([F1 - F1.mean(dim=0), F2 - F2.mean(dim=0)], dim=1)
        with full_precision():
            S = (C.T @ C).double() / (n - 1)
            J1, J2 = _inverse_factors(S[:d, :d], S[d:, d:], reg)
            M = J1 @ S[:d, d:] @ J2.T
            Q = polar(M, method, bound=1.0)  # canonical correlations are at most 1
            D12 = J1.T @ Q @ J2
            D11, D22 = -(J1.T @ (M @ Q.T) @ J1), -(J2.T @ (Q.T @ M) @ J2)
            D = torch.cat([torch.cat([D11, D12], dim=1), torch.cat([D12.T, D22], dim=1)])
            ctx.save_for_backward(C @ ((D + D.T) / (2 - 2 * n)).to(C.dtype))
        return -(Q * M).sum().to(F1.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (G,) = ctx.saved_tensors
        G = grads[0] * G
        return G[:, : ctx.split], G[:, ctx.split :], None, None


def _inverse_factors(
    S11: Float[Tensor, "d1 d1"], S22: Float[Tensor, "d2 d2"], reg: tuple[float, float]
) -> list[Tensor]:
    """Return the inverses of the Cholesky factors of ``S11 + r1 I`` and ``S22 + r2 I``."""
    identities = [torch.eye(len(S), dtype=S.dtype, device=S.device) for S in (S11, S22)]
    both = [S + r * eye for S, r, eye in zip((S11, S22), reg, identities, strict=True)]
    if S11.shape == S22.shape:  # one call for both
        return list(_inverse_factor(torch.stack(both), torch.stack(identities)))
    return [_inverse_factor(S, eye) for S, eye in zip(both, identities, strict=True)]


def _inverse_factor(S: Tensor, identity: Tensor) -> Tensor:
    L, _ = torch.linalg.cholesky_ex(S)
    return torch.linalg.solve_triangular(L, identity, upper=False)
