"""Libraries that only feature extraction needs."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dscca import extras


def require(module: str, package: str | None = None) -> Any:
    """Import a library of the extra ``features``, or say that it is missing."""
    return extras.require(module, "features", package)


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


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers from drawing bars and reports while a model is loaded."""
    logging = require("transformers.utils.logging", "transformers")
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
