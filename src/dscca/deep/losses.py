"""Objectives of deep models, as pure functions of the two views' features."""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from dscca.moments import full_precision
from dscca.polar import Method, polar

Reduction = Literal["mean", "sum"]

_BLOCK_SCORES = 2**24
"""Scores that are held at a time."""


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
    n, d = len(F1), max(F1.shape[1], F2.shape[1])
    if n <= d:
        raise ValueError(
            f"{n} samples cannot carry {d} features, so many correlate perfectly whatever they "
            f"are: use a batch_size, and as many validation samples, well above {d}."
        )
    loss: Tensor = _CCALoss.apply(F1, F2, reg, method)  # type: ignore[no-untyped-call]
    return loss


def reconstruction_error(
    x: Float[Tensor, "n ..."], reconstruction: Float[Tensor, "n p"]
) -> Float[Tensor, ""]:
    r"""Return the mean over samples of :math:`\lVert x - \hat x \rVert^2`, for x flattened."""
    return (x.flatten(start_dim=1) - reconstruction).square().sum(dim=1).mean()


def feature_correlations(F1: Float[Tensor, "n d"], F2: Float[Tensor, "n d"]) -> Float[Tensor, " d"]:
    """Return the correlation of feature k of one view with feature k of the other, for every k.

    Constant features have correlation 0.
    """
    F1, F2 = F1 - F1.mean(dim=0), F2 - F2.mean(dim=0)
    tiny = torch.finfo(F1.dtype).tiny ** 0.5
    lengths = [F.square().sum(dim=0).clamp_min(tiny).sqrt() for F in (F1, F2)]
    return (F1 * F2).sum(dim=0) / (lengths[0] * lengths[1])


def batch_normalized(F: Float[Tensor, "n d"], eps: float = 1e-5) -> Float[Tensor, "n d"]:
    """Return features of mean 0 and variance 1 (Ioffe and Szegedy 2015, without parameters)."""
    F = F - F.mean(dim=0)
    return F * (F.square().mean(dim=0) + eps).rsqrt()


def accumulated_covariance(
    F: Float[Tensor, "n d"],
    total: Float[Tensor, "d d"],
    normalizer: Float[Tensor, ""],
    memory: float,
) -> tuple[Float[Tensor, "d d"], Float[Tensor, ""]]:
    r"""Return :math:`C_t` and its normaliser :math:`c_t` of Soft-CCA's decorrelation loss.

    .. math::

        C_t = α C_{t-1} + \tfrac{1}{n-1} F^\top F, \quad c_t = α c_{t-1} + 1

    for centred features F and memory α. :math:`C_t / c_t` estimates the covariance over all
    samples; of it only the batch's own share has a gradient, the past is a constant.
    """
    with full_precision(F.device):
        batch = F.T @ F / (len(F) - 1)
    return memory * total.detach() + batch, memory * normalizer + 1


def soft_cca_loss(
    F1: Float[Tensor, "n d"],
    F2: Float[Tensor, "n d"],
    covariances: tuple[Float[Tensor, "d d"], Float[Tensor, "d d"]],
    weights: tuple[float, float],
) -> Float[Tensor, ""]:
    r"""Return the loss of Soft-CCA (Chang et al. 2018).

    .. math::

        \mathcal{L} = \tfrac{1}{n} \sum_k \lVert f_k - g_k \rVert^2
            + \sum_{v=1}^2 λ_v \sum_{i \ne j} |\hat Σ^{(v)}_{ij}|

    Parameters
    ----------
    F1, F2 : batch-normalised features of n paired samples
    covariances : estimates of both views' covariances
    weights : λ of both views
    """
    distance = (F1 - F2).square().sum(dim=1).mean()
    for S, weight in zip(covariances, weights, strict=True):
        S = S.abs()
        distance = distance + weight * (S.sum() - S.diagonal().sum())
    return distance


def soft_hgr_loss(F1: Float[Tensor, "n d"], F2: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
    r"""Return minus the objective of Soft-HGR (Wang et al. 2019).

    .. math::

        \mathcal{L} = -\mathbb{E}[\bar f^\top \bar g]
            + \tfrac{1}{2} \operatorname{tr}(\operatorname{cov} f \, \operatorname{cov} g)

    with sample moments (divided by n - 1) of centred features. Its minimum over all d features of
    either view is :math:`-\tfrac{1}{2} \sum_{i \le d} ρ_i^2` for canonical correlations ρ.
    """
    F1, F2 = F1 - F1.mean(dim=0), F2 - F2.mean(dim=0)
    n = len(F1)
    with full_precision(F1.device):
        S11, S22 = F1.T @ F1 / (n - 1), F2.T @ F2 / (n - 1)
    return (S11 * S22).sum() / 2 - (F1 * F2).sum() / (n - 1)


def open_gates(
    mu: Float[Tensor, "..."], noise: float, reduction: Literal["sum", "mean"]
) -> Float[Tensor, ""]:
    r"""Return the expected number (or share) of open gates, the penalty of ℓ0-CCA.

    A gate :math:`\operatorname{clip}(μ + σ ε, 0, 1)`, ε standard normal, is open, above 0, with
    probability :math:`Φ(μ / σ)`.
    """
    open_probabilities = torch.special.ndtr(mu / noise)
    return open_probabilities.sum() if reduction == "sum" else open_probabilities.mean()


class _CCALoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, F1: Tensor, F2: Tensor, reg: tuple[float, float], method: Method
    ) -> Tensor:
        n, d = F1.shape
        ctx.split = d
        C = torch.cat([F1 - F1.mean(dim=0), F2 - F2.mean(dim=0)], dim=1)
        with full_precision(C.device):
            S = (C.T @ C).double() / (n - 1)
            J1, J2 = inverse_factors(S[:d, :d], S[d:, d:], reg)
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


def inverse_factors(
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


def ranking_loss(
    P1: Float[Tensor, "n k"],
    P2: Float[Tensor, "n k"],
    margin: float = 0.5,
    reduction: Reduction = "mean",
) -> Float[Tensor, ""]:
    r"""Return the pairwise ranking loss (the paper's equation 7) of projections, both ways.

    With the cosine :math:`s_{ij}` of row i of P1 and row j of P2, the sum over mismatched pairs is

    .. math::

        \mathcal{L} = \sum_{i} \sum_{j \ne i} \max(0, m - s_{ii} + s_{ij})
                    + \sum_{i} \sum_{j \ne i} \max(0, m - s_{ii} + s_{ji}).

    Parameters
    ----------
    P1, P2 : projections of n pairs, row i of one matching row i of the other
    margin : m, by which a match is to score above any mismatch
    reduction : ``"sum"`` for the paper's formula, ``"mean"`` for its n(n - 1)-th part: the mean
        over mismatched pairs, summed over both directions, as in the code of Dorfer et al. (2018)

    Notes
    -----
    Scores are formed in blocks of rows; without a gradient to keep, memory does not grow with n².
    """
    n = len(P1)
    if n < 2:
        raise ValueError(f"a ranking needs at least 2 pairs, got {n}.")
    A, B = normalize(P1), normalize(P2)
    matched = (A * B).sum(dim=1)
    total = torch.zeros_like(matched[0])
    with full_precision(A.device):
        for start in range(0, n, max(1, _BLOCK_SCORES // n)):
            rows = slice(start, start + max(1, _BLOCK_SCORES // n))
            scores = A[rows] @ B.T
            scores.diagonal(offset=start).fill_(-torch.inf)  # a match is no mismatch
            total = total + (margin - matched[rows, None] + scores).relu().sum()
            total = total + (margin - matched + scores).relu().sum()
    return total / (n * (n - 1)) if reduction == "mean" else total
