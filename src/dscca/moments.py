"""Sums over samples: means and scatter matrices, in one pass and in constant memory."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

_FAR = 0.99
"""Share of a block's squares that its mean may make up before the block is centred by it."""


@contextmanager
def full_precision(device: torch.device | None = None) -> Iterator[None]:
    """Keep matrix products out of TF32 and, on the given device, out of ``torch.autocast``.

    Process-wide settings and contexts around this one do not matter.
    """
    matmul = torch.backends.cuda.matmul
    previous = matmul.fp32_precision
    matmul.fp32_precision = "ieee"
    try:
        with nullcontext() if device is None else torch.autocast(device.type, enabled=False):
            yield
    finally:
        matmul.fp32_precision = previous


@full_precision()
def _add_gram(gram: Float[Tensor, "d d"], C: Float[Tensor, "n d"], beta: float = 1.0) -> None:
    """Set `gram` to ``beta gram + CᵀC``; of the result only what :func:`_mirror` reads is defined.

    Strips above the diagonal are multiplied, little more than half of the work. With beta 0 what
    was in `gram` is not read.
    """
    for strip in _strips(gram):
        part = gram[strip, strip.start :]
        part.addmm_(C[:, strip].T, C[:, strip.start :], beta=beta)


def _mirror(gram: Float[Tensor, "d d"]) -> None:
    """Copy what :func:`_add_gram` has summed to the other side of the diagonal, in place."""
    for strip in _strips(gram):
        gram[strip.stop :, strip] = gram[strip, strip.stop :].T


def _strips(gram: Tensor) -> Iterator[slice]:
    """Cut the rows where products are quickest: by 200 to 768, on a GPU by 2,048."""
    width = 2048 if gram.is_cuda else min(max(200, len(gram) // 8), 768)
    for start in range(0, len(gram), width):
        yield slice(start, start + width)


def _gram(C: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    """Return ``CᵀC``."""
    gram = torch.empty(C.shape[1], C.shape[1], dtype=C.dtype, device=C.device)
    _add_gram(gram, C, beta=0.0)
    _mirror(gram)
    return gram


@dataclass
class Moments:
    """Number of samples, mean and scatter matrix of a set of rows, all in float64.

    ``scatter = Σ (x - mean)(x - mean)ᵀ``. Two sets merge exactly (Chan, Golub and LeVeque 1979), so
    data of any length is summed in constant memory; rows of two views are taken side by side, as
    one vector of ``p + q`` entries, so that one symmetric product gives all three covariances.
    """

    n_samples: int
    mean: Float[Tensor, " d"]
    scatter: Float[Tensor, "d d"]
    eps: float
    """Rounding unit of the precision that products were taken in."""

    @classmethod
    def of(cls, block: Float[Tensor, "n d"], shift: Float[Tensor, " d"] | None = None) -> "Moments":
        """Moments of one block, from which `shift` was subtracted already.

        Products are taken in the block's own precision, their sums in float64. A shift near the
        mean makes a large mean cost nothing; a block that lies far from it is centred, in place,
        by its own mean. Values that are not finite show as a scatter that is not.
        """
        n, eps = len(block), torch.finfo(block.dtype).eps
        origin = torch.zeros(()) if shift is None else shift
        gram, total = _gram(block), block.sum(dim=0)
        if (total * total > _FAR * n * gram.diagonal()).any():
            centre = total / n
            block -= centre
            origin = origin.to(centre.device) + centre.double()
            gram, total = _gram(block), block.sum(dim=0)
        total, scatter = total.double(), gram.double()
        scatter.addr_(total, total, alpha=-1 / n)
        return cls(n, origin.to(total) + total / n, scatter, eps)

    def merge(self, other: "Moments") -> None:
        """Add another set of rows."""
        total = self.n_samples + other.n_samples
        step = other.mean - self.mean
        self.scatter += other.scatter
        self.scatter.addr_(step, step, alpha=self.n_samples * other.n_samples / total)
        self.mean = self.mean + step * (other.n_samples / total)
        self.n_samples = total
        self.eps = max(self.eps, other.eps)

    def without(self, other: "Moments") -> "Moments":
        """Return the moments of the rows that are not in `other`, a part of this set."""
        rest = self.n_samples - other.n_samples
        mean = (self.mean * self.n_samples - other.mean * other.n_samples) / rest
        step = other.mean - mean
        weight = rest * other.n_samples / self.n_samples
        scatter = self.scatter - other.scatter - torch.outer(step * weight, step)
        return Moments(rest, mean, scatter, self.eps)

    def copy(self) -> "Moments":
        """Return a copy that `merge` can change, in the memory of the CPU."""
        return Moments(self.n_samples, self.mean.cpu(), self.scatter.cpu().clone(), self.eps)

    def covariance(self) -> Float[Tensor, "d d"]:
        """Return the covariance, divided by ``n - 1``."""
        return self.scatter / (self.n_samples - 1)


class RunningMoments:
    """Moments of rows in float64 that come block by block, in the memory of one scatter matrix.

    Sums are taken about the first block's mean, so a large mean costs no accuracy as long as later
    rows do not lie far from the first ones.
    """

    def __init__(self) -> None:
        self.n_samples = 0

    def add(self, block: Float[Tensor, "n d"]) -> None:
        """Add rows; the block is shifted in place."""
        if not self.n_samples:
            d = block.shape[1]
            self.shift = block.mean(dim=0)
            self.total = torch.zeros_like(self.shift)
            self.gram = torch.zeros(d, d, dtype=block.dtype, device=block.device)
        block -= self.shift
        _add_gram(self.gram, block)
        self.total += block.sum(dim=0)
        self.n_samples += len(block)

    def finish(self) -> Moments:
        """Return the moments; no more rows can be added."""
        _mirror(self.gram)
        self.gram.addr_(self.total, self.total, alpha=-1 / self.n_samples)
        mean = self.shift + self.total / self.n_samples
        return Moments(self.n_samples, mean, self.gram, torch.finfo(self.gram.dtype).eps)
