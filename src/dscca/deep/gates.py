"""Stochastic gates, which select a view's features."""

import torch
from torch import Tensor, nn


class StochasticGates(nn.Module):
    r"""Gates :math:`z = \operatorname{clip}(μ + σ ε, 0, 1)` that multiply the entries of a view.

    The continuous relaxation of Bernoulli gates by Yamada et al. (2020), which ℓ0-CCA puts on its
    inputs (Lindenbaum et al. 2020). In training ε is standard normal, drawn once per batch, as in
    the published code; at inference it is 0. μ starts normal around 0.5 with deviation 0.01.

    Parameters
    ----------
    shape
        Shape of a sample; every entry has its own gate.
    noise
        σ. The larger it is, the longer a gate that closes is given another chance.

    Examples
    --------
    >>> gates = StochasticGates((5,), noise=0.5).eval()
    >>> gates(torch.ones(2, 5)).shape
    torch.Size([2, 5])
    """

    def __init__(self, shape: tuple[int, ...], noise: float) -> None:
        super().__init__()
        self.noise = noise
        self.mu = nn.Parameter(0.5 + 0.01 * torch.randn(shape))

    def gates(self) -> Tensor:
        """Return the gates z, in training with new noise."""
        mu: Tensor = self.mu
        if self.training:
            mu = mu + self.noise * torch.randn_like(mu)
        return mu.clamp(0, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the gated samples."""
        return x * self.gates()
