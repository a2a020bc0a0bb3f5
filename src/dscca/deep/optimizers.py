"""Optimisers that update all parameters in one kernel."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

_NO_CORRECTION = 1e9
"""A count of steps so large that Adam's bias corrections are 1."""


class FusedRMSprop(torch.optim.Adam):
    """RMSprop (Tieleman and Hinton 2012) as torch implements it, by means of its fused Adam.

    Adam with no first moment (beta1 = 0) and without bias corrections makes exactly RMSprop's step,
    ``v ← α v + (1 - α) g²``, ``θ ← θ - η g / (√v + ε)``, and has a kernel that does it in one pass
    over the parameters, where torch's RMSprop takes seven. It spends one unused buffer on that.
    """

    def __init__(
        self, params: Iterable[nn.Parameter], lr: Any, *, alpha: float = 0.99, **options: Any
    ) -> None:
        super().__init__(params, lr=lr, betas=(0.0, alpha), fused=True, **options)
        for group in self.param_groups:
            for p in group["params"]:
                step = torch.tensor(_NO_CORRECTION, device=p.device)
                zeros = torch.zeros_like(p), torch.zeros_like(p)
                self.state[p] = {"step": step, "exp_avg": zeros[0], "exp_avg_sq": zeros[1]}


OPTIMIZERS: dict[str, Any] = {
    "rmsprop": FusedRMSprop,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


def make_optimizer(
    name: str, parameters: Iterable[nn.Parameter], rate: float, weight_decay: float
) -> torch.optim.Optimizer:
    """Return the named optimiser; on a GPU one that a captured step can contain."""
    parameters = list(parameters)
    device = parameters[0].device
    options: dict[str, Any] = {"weight_decay": weight_decay}
    if name != "rmsprop":
        options["fused"] = True
    lr: Any = rate
    if device.type == "cuda":
        # A captured step reads the rate, and counts steps, on the device.
        options["capturable"] = True
        lr = torch.tensor(rate, device=device)
    optimizer: torch.optim.Optimizer = OPTIMIZERS[name](parameters, lr=lr, **options)
    return optimizer
