"""Libraries that only feature extraction needs."""

import hashlib
from importlib import import_module
from pathlib import Path
from typing import Any


def require(module: str, package: str | None = None) -> Any:
    """Import an optional library, or say which extra brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ModuleNotFoundError(
            f'this needs {package or module}, an extra: pip install "dscca[features]"',
            name=error.name,
        ) from error


def model_name(model: str) -> str:
    """Return how records call a model: a folder by its own name, which says nothing of the disk."""
    return Path(model).resolve().name if Path(model).is_dir() else model


def weights_sha256(network: Any) -> str:
    """Return a hash of all parameters and buffers of a torch module, by name."""
    import torch

    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
