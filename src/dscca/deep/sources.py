"""Batches of paired samples: from the device's memory, or streamed to it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dscca.views import View, shared

RESIDENT_SHARE = 0.4
"""Share of the free memory that data may fill; larger data is streamed."""

_KEPT_DTYPES = ("uint8", "int8", "float16", "float32", "bfloat16")


def shared_tensor(view: View) -> Tensor:
    """Return a tensor that shares the view's memory where its dtype and strides allow it.

    Kinds that no network takes are converted to float32.
    """
    if isinstance(view, Tensor):
        return view if str(view.dtype).removeprefix("torch.") in _KEPT_DTYPES else view.float()
    return shared(view if view.dtype.name in _KEPT_DTYPES else view.astype(np.float32))


def take(view: View, rows: NDArray[np.int64], device: torch.device) -> Tensor:
    """Return the chosen rows of a view on the device."""
    if isinstance(view, Tensor):
        return shared_tensor(view[torch.from_numpy(rows).to(view.device)]).to(device)
    return shared_tensor(view[rows]).to(device)


class ResidentBatches:
    """Data on the device. A batch is gathered there, by an order and a cursor that live there.

    So a captured step needs nothing from the host: replaying it walks through the epoch.
    """

    def __init__(
        self, x: View, y: View, rows: NDArray[np.int64], batch_size: int, device: torch.device
    ) -> None:
        self._views = [shared_tensor(view).to(device) for view in (x, y)]
        self._rows = torch.from_numpy(rows)
        self._order = self._rows.to(device).clone()
        self._cursor = torch.zeros((), dtype=torch.int64, device=device)
        self._steps = torch.arange(batch_size, device=device)
        self._size = batch_size
        self.n_batches = len(rows) // batch_size

    def start_epoch(self, generator: torch.Generator) -> Iterator[None]:
        """Shuffle, then make each of the epoch's batches the current one."""
        order = self._rows[torch.randperm(len(self._rows), generator=generator)]
        self._order.copy_(order)
        self._cursor.zero_()
        return iter([None] * self.n_batches)

    def current(self) -> tuple[Tensor, Tensor]:
        """Return the current batch and move on."""
        index = self._order.index_select(0, self._cursor + self._steps)
        self._cursor += self._size
        x, y = (view.index_select(0, index).float() for view in self._views)
        return x, y


class StreamedBatches:
    """Data in host memory or on disk; a thread fetches the next batches while one is in use."""

    _AHEAD = 4

    def __init__(
        self, x: View, y: View, rows: NDArray[np.int64], batch_size: int, device: torch.device
    ) -> None:
        self._views, self._rows, self._size, self._device = (x, y), rows, batch_size, device
        self._batch = [
            torch.empty(batch_size, *view.shape[1:], device=device) for view in self._views
        ]
        self.n_batches = len(rows) // batch_size

    def start_epoch(self, generator: torch.Generator) -> Iterator[None]:
        """Shuffle, then make each of the epoch's batches the current one."""
        order = self._rows[torch.randperm(len(self._rows), generator=generator).numpy()]
        parts = [order[i * self._size : (i + 1) * self._size] for i in range(self.n_batches)]
        with ThreadPoolExecutor(1, "dscca-prefetch") as pool:
            coming = [pool.submit(self._fetch, part) for part in parts[: self._AHEAD]]
            for i in range(self.n_batches):
                for static, batch in zip(self._batch, coming.pop(0).result(), strict=True):
                    static.copy_(batch, non_blocking=True)
                if i + self._AHEAD < self.n_batches:
                    coming.append(pool.submit(self._fetch, parts[i + self._AHEAD]))
                yield

    def _fetch(self, rows: NDArray[np.int64]) -> list[Tensor]:
        # In the order of the file; a batch's rows have no order of their own.
        batch = [take(view, np.sort(rows), torch.device("cpu")) for view in self._views]
        return [part.pin_memory() for part in batch] if self._device.type == "cuda" else batch

    def current(self) -> tuple[Tensor, Tensor]:
        """Return the current batch."""
        return self._batch[0], self._batch[1]


Batches = ResidentBatches | StreamedBatches


def batches_of(
    x: View, y: View, rows: NDArray[np.int64], batch_size: int, device: torch.device
) -> Batches:
    """Return batches of the given rows, resident on the device if they fit there."""
    size = sum(view.nbytes for view in (x, y))
    kind = ResidentBatches if size <= RESIDENT_SHARE * _free_bytes(device) else StreamedBatches
    return kind(x, y, rows, batch_size, device)


def _free_bytes(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    try:
        with open("/proc/meminfo") as file:
            fields = dict(line.split(":", 1) for line in file)
        return float(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):  # elsewhere than on Linux the system pages what does not fit
        return float("inf")
