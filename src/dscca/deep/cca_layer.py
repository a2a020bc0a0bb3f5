"""CCA as a differentiable layer (Dorfer et al. 2018), in a form whose gradient stays finite."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dscca.deep.losses import inverse_factors
from dscca.polar import Method, polar_factor


def cca_projections(
    S: Float[Tensor, "d d"], split: int, reg: tuple[float, float], method: Method
) -> tuple[Float[Tensor, "d1 k"], Float[Tensor, "d2 k"]]:
    r"""Return matrices that project features as CCA does, up to a rotation common to both views.

    CCA projects the views by :math:`S_{11}^{-1/2} U` and :math:`S_{22}^{-1/2} V` for the singular
    vectors of :math:`S_{11}^{-1/2} S_{12} S_{22}^{-1/2}`. Inner products, norms and so cosines of
    the projections depend on U and V through :math:`U V^\top` alone, and the square roots may be
    any other whitening: with Cholesky factors :math:`S_{jj} + r_j I = L_j L_j^\top` and the polar
    factor Q of :math:`M = L_1^{-1} S_{12} L_2^{-\top}`,

    .. math::

        W_1 = L_1^{-\top} Q, \quad W_2 = L_2^{-\top}
        \qquad (W_1 = L_1^{-\top},\ W_2 = L_2^{-\top} Q^\top \text{ if } d_1 < d_2),

    with :math:`k = \min(d_1, d_2)` columns, give the same scores. Their gradient divides by sums of
    singular values, where that of U and V divides by differences, which may be zero.

    Parameters
    ----------
    S : covariance of both views' features side by side, in float64
    split : d1, the number of features of view one
    reg : r1 and r2, added to the diagonals of S11 and S22
    method : how Q is computed
    """
    J1, J2 = inverse_factors(S[:split, :split], S[split:, split:], reg)
    Q = polar_factor(J1 @ S[:split, split:] @ J2.T, method)
    if split >= len(S) - split:
        return J1.T @ Q, J2.T
    return J1.T, J2.T @ Q.T


class CCALayer(nn.Module):
    r"""Project features of both views by the CCA of running averages of their moments.

    In training a batch F of both views' features, side by side, updates

    .. math::

        μ &\leftarrow (1 - α)\, μ + α\, \text{mean}(F), \\
        S &\leftarrow (1 - α)\, S + α\, \tfrac{1}{n-1} (F - μ)^\top (F - μ),

    and is projected by what results; gradients flow through the batch's own part. The first batch
    is taken whole. At evaluation the averages are used as they stand.

    Parameters
    ----------
    d1, d2
        Features of the views.
    alpha
        Weight of the newest batch: the paper chose from 0.85, 0.9, 0.95 and 0.97.
    reg
        r1 and r2, positive.
    method
        How the polar factor is computed; by default "newton-schulz" on a GPU, "svd" elsewhere.

    Notes
    -----
    All of it is float64, whatever the features' precision. Batch moments are around the running
    mean and averaged before whitening, as in the authors' code. S stays positive semi-definite as
    a whole, so no regularised correlation exceeds one.
    """

    mean: Tensor
    covariance: Tensor
    started: Tensor

    def __init__(
        self,
        d1: int,
        d2: int,
        *,
        alpha: float = 0.9,
        reg: tuple[float, float] = (1e-3, 1e-3),
        method: Method | None = None,
    ) -> None:
        super().__init__()
        self.split, self.alpha, self.reg, self.method = d1, alpha, reg, method
        d = d1 + d2
        self.register_buffer("mean", torch.zeros(d, dtype=torch.float64))
        self.register_buffer("covariance", torch.eye(d, dtype=torch.float64))
        self.register_buffer("started", torch.zeros((), dtype=torch.float64))

    def forward(
        self, F1: Float[Tensor, "n d1"], F2: Float[Tensor, "n d2"]
    ) -> tuple[Float[Tensor, "n k"], Float[Tensor, "n k"]]:
        """Return the projections of both views, in the precision of the features."""
        F = torch.cat([F1, F2], dim=1).double()
        mean, S = self._updated(F) if self.training else (self.mean, self.covariance)
        projected = self.project(F - mean, S)
        return projected[0].to(F1.dtype), projected[1].to(F2.dtype)

    def fit_project(
        self, training: tuple[Tensor, Tensor], features: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return projections of `features` by the CCA of `training` features, without averages."""
        F = torch.cat(training, dim=1).double()
        mean = F.mean(dim=0)
        S = (F - mean).T @ (F - mean) / (len(F) - 1)
        P1, P2 = self.project(torch.cat(features, dim=1).double() - mean, S)
        return P1.to(features[0].dtype), P2.to(features[1].dtype)

    def project(self, C: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
        """Return the projections of centred features C by the CCA of covariance S."""
        method = self.method or ("newton-schulz" if C.is_cuda else "svd")
        W1, W2 = cca_projections(S, self.split, self.reg, method)
        return C[:, : self.split] @ W1, C[:, self.split :] @ W2

    def _updated(self, F: Float[Tensor, "n d"]) -> tuple[Tensor, Tensor]:
        """Return the averages with this batch in them, and keep their values in place."""
        kept = (1 - self.alpha) * self.started
        mean = kept * self.mean + (1 - kept) * F.mean(dim=0)
        C = F - mean
        S = kept * self.covariance + (1 - kept) / (len(F) - 1) * (C.T @ C)
        with torch.no_grad():
            self.mean.copy_(mean)
            self.covariance.copy_(S)
            self.started.fill_(1.0)
        return mean, S
