"""Text encoders of the sentence-transformers library, one vector per item."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscca.features.extras import model_name, quiet_transformers, require, weights_sha256


class SentenceEncoder:
    """The mean of the embeddings of an item's captions.

    Parameters
    ----------
    model : a local folder or an id of the Hugging Face hub
    device : "auto", "cpu" or "cuda"
    """

    def __init__(self, model: str, *, device: str = "auto") -> None:
        from dscca.views import resolve_device

        library = require("sentence_transformers", "sentence-transformers")
        self.name = model
        try:
            with quiet_transformers():
                self._model = library.SentenceTransformer(
                    model,
                    device=str(resolve_device(device)),
                    trust_remote_code=False,
                    model_kwargs={"use_safetensors": True},
                )
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(
                f"cannot load the text encoder {model}: give word2vec, the folder of a "
                f"sentence-transformers model with safetensors, or its id on the Hugging Face hub. "
                f"{error}"
            ) from error
        self.width = self.encode([["a"]]).shape[1]

    def about(self) -> dict[str, Any]:
        """Say what makes the features what they are."""
        return {
            "encoder": "sentence-transformers",
            "model": model_name(self.name),
            "weights_sha256": weights_sha256(self._model),
        }

    def encode(self, items: Sequence[Sequence[str]]) -> NDArray[np.float32]:
        """Return one row per item, each the mean over its captions."""
        captions = [caption for item in items for caption in item]
        embedded = self._model.encode(
            captions, batch_size=len(captions), convert_to_numpy=True, show_progress_bar=False
        )
        starts = np.cumsum([0, *(len(item) for item in items[:-1])])
        sums = np.add.reduceat(np.asarray(embedded, dtype=np.float64), starts, axis=0)
        counts = np.array([[len(item)] for item in items])
        return (sums / counts).astype(np.float32)
