"""Networks of saved models, whose arrays may come from anywhere."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from numpy.typing import NDArray
from torch import nn

from dscca.deep.network import Standardize, TwoViewNet
from dscca.head import encode_both


def stored_inputs(
    arrays: dict[str, NDArray[Any]], shapes: Sequence[tuple[int, ...]]
) -> tuple[Standardize, Standardize]:
    """Return standardisations of the stored shapes, yet without their values."""
    for i, shape in enumerate(shapes):
        if arrays[f"inputs.{i}.mean"].shape not in ((), shape):
            raise ValueError(f"the standardisation of view {'Xy'[i]} does not fit its shape")
    x, y = (
        Standardize(
            *(torch.empty(arrays[f"inputs.{i}.{part}"].shape) for part in ("mean", "scale"))
        )
        for i in range(2)
    )
    return x, y


Network = TypeVar("Network", bound=nn.Module)


def new_network(build: Callable[[], Network], arrays: dict[str, NDArray[Any]]) -> Network:
    """Return what `build` makes, if it is what the arrays were taken from.

    That is seen before it takes any memory: a few bytes of a file can ask for any size.
    """
    with torch.random.fork_rng(devices=[]):
        with torch.device("meta"):
            planned = build().state_dict()
        for name, value in planned.items():
            if name not in arrays or arrays[name].size != value.numel():
                raise ValueError(f"the network would have {name} of shape {tuple(value.shape)}")
        return build()


def load_net(
    net: TwoViewNet,
    arrays: dict[str, NDArray[Any]],
    shapes: Sequence[tuple[int, ...]],
    feature_means: Sequence[NDArray[Any]],
) -> None:
    """Give a network the stored values, and check that its features fit the head."""
    net.requires_grad_(False).eval()
    net.load_state_dict({name: torch.from_numpy(value) for name, value in arrays.items()})
    probes = encode_both(net.encode, [torch.zeros(1, *shape) for shape in shapes])
    for features, mean in zip(probes, feature_means, strict=True):
        if features.shape != (1, len(mean)):
            raise ValueError(f"encoders return {features.shape[1]} features, not {len(mean)}")
