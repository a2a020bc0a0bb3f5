"""One step of training: eager, or captured as a CUDA graph and replayed."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from dscca.deep.training import Trainer

_EAGER_STEPS = 3
"""Steps before a capture, in which libraries and the optimiser allocate what they keep."""


def make_step(trainer: "Trainer") -> Callable[[], Tensor]:
    """Return a function that takes one step on the current batch and returns its loss."""
    model, optimizer, clip = trainer.model, trainer.optimizer, trainer.options.clip
    autocast = torch.bfloat16 if trainer.precision == "bf16" else None
    parameters = [p for p in model.parameters() if p.requires_grad]

    def eager() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = model.loss(*trainer.batches.current(), autocast=autocast)
        loss.backward()  # type: ignore[no-untyped-call]
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, clip, foreach=True)
        optimizer.step()
        return loss.detach()

    return _Captured(eager) if trainer.device.type == "cuda" else eager


class _Captured:
    """The same step as a CUDA graph, captured after a few eager ones.

    It has static shapes and asks nothing of the host, so a replay is one launch.
    """

    def __init__(self, eager: Callable[[], Tensor]) -> None:
        self.eager = eager
        self.graph: torch.cuda.CUDAGraph | None = None
        self.taken = 0
        self.loss: Tensor
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def __call__(self) -> Tensor:
        if self.graph is not None:
            self.graph.replay()
            return self.loss
        if self.taken < _EAGER_STEPS:
            self.taken += 1
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                loss = self.eager()
            torch.cuda.current_stream().wait_stream(self.stream)
            return loss
        graph = torch.cuda.CUDAGraph()
        # Other threads may go on, such as the one that fetches batches into pinned memory.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.loss = self.eager()
        self.graph = graph
        return self()
