"""Time and memory of the dynamically-scaled layer against its literal form.

``python -m benchmarks.layer``. Both are run forward and backward, in turns, in one process; the
peak memory of each is taken in a process of its own (Linux only).
"""

import argparse
import gc
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.timing import THREADS, show
from dscca.deep.layers import DynamicLinear


class Size(NamedTuple):
    """One data set's last layer in the paper."""

    d_in: int
    d_out: int
    batch: int


SIZES = {
    "MNIST": Size(800, 50, 750),
    "XRMB": Size(1800, 112, 750),
    "Flickr8k": Size(512, 128, 1024),
}


class LiteralLayer(nn.Module):
    """The layer as equations 1 and 2 read: a batch of scale matrices, then of products."""

    def __init__(self, size: Size, width: int) -> None:
        super().__init__()
        d_in, d_out, _ = size
        self.hidden = nn.Sequential(
            nn.Linear(d_in, width), nn.BatchNorm1d(width, affine=False), nn.ReLU()
        )
        self.V = nn.Parameter(0.001 * torch.randn(width, d_in * d_out))
        self.v = nn.Parameter(torch.ones(d_in * d_out))
        self.scale_bias = nn.Linear(width, d_out)
        self.weight = nn.Parameter(torch.randn(d_in, d_out) * d_in**-0.5)
        self.bias = nn.Parameter(torch.zeros(d_out))

    def forward(self, z: Tensor) -> Tensor:
        """Return y of equation 2, by way of every sample's own weight matrix."""
        h = self.hidden(z)
        S_W = torch.addmm(self.v, h, self.V).view(-1, *self.weight.shape)
        y = torch.bmm(z.unsqueeze(1), S_W * self.weight).squeeze(1)
        y += self.scale_bias(h) * self.bias
        return y


def make_layer(form: str, size: Size, width: int) -> nn.Module:
    if form == "literal":
        return LiteralLayer(size, width)
    return DynamicLinear(size.d_in, size.d_out, scale_hidden=(width,))


def make_step(form: str, size: Size, width: int) -> tuple[Callable[[], None], nn.Module]:
    """Return one forward and backward pass, as a training step does them, and its layer."""
    layer = make_layer(form, size, width)
    z = torch.randn(size.batch, size.d_in, requires_grad=True)
    dy = torch.randn(size.batch, size.d_out)

    def step() -> None:
        layer.zero_grad(set_to_none=True)
        z.grad = None
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=form == "bfloat16"):
            y = layer(z)
        y.backward(dy)

    return step, layer


def make_products(size: Size, width: int) -> Callable[[], None]:
    """Return the three matrix products that any form of the layer has to do, and nothing else."""
    d_in, d_out, batch = size
    z, P = torch.randn(batch, d_in), torch.randn((width + 1) * d_out, d_in)
    T, dz, dP = torch.randn(batch, (width + 1) * d_out), torch.empty_like(z), torch.empty_like(P)

    def products() -> None:
        torch.mm(z, P.T, out=T)
        torch.mm(T, P, out=dz)
        torch.mm(T.T, z, out=dP)

    return products


def seconds(variants: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Return each variant's median time; they take turns, so that all meet the same machine."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for repeat in range(repeats + 2):
        for name, run in variants.items():
            start = time.perf_counter()
            run()
            if repeat >= 2:
                times[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in times.items()}


def resident(field: str) -> int:
    """Return a field of /proc/self/status, such as VmHWM, the peak of resident memory, in bytes."""
    line = next(s for s in Path("/proc/self/status").read_text().splitlines() if field in s)
    return int(line.split()[1]) * 1024


def print_peak(form: str, size: Size, width: int) -> None:
    """Print the peak memory of a step beyond parameters, their gradients and the input."""
    make_step(form, Size(8, 8, 8), 8)[0]()  # loads the libraries
    step, layer = make_step(form, size, width)
    gc.collect()
    before = resident("VmRSS")
    step()
    step()
    gradients = sum(p.numel() * p.element_size() for p in layer.parameters())
    print(resident("VmHWM") - before - gradients)


def peak(form: str, name: str, width: int) -> int:
    command = [sys.executable, "-m", "benchmarks.layer", "--peak", form, name, str(width)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(name: str, width: int, repeats: int) -> list[str]:
    """Return one row of the table."""
    size = SIZES[name]
    forms = ("literal", "factored", "bfloat16")
    variants = {form: make_step(form, size, width)[0] for form in forms}
    time_of = seconds(variants | {"products": make_products(size, width)}, repeats)
    del variants
    literal, factored = peak("literal", name, width), peak("factored", name, width)
    return [
        name,
        str(width),
        *(f"{1e3 * time_of[form]:.0f}" for form in time_of),
        f"{time_of['literal'] / time_of['factored']:.2f}",
        f"{time_of['products'] / time_of['factored']:.0%}",
        f"{time_of['factored'] / time_of['bfloat16']:.2f}",
        f"{literal / 1e6:.0f}",
        f"{factored / 1e6:.0f}",
        f"{literal / factored:.1f}",
    ]


COLUMNS = (
    "data",
    "width",
    "literal, ms",
    "factored, ms",
    "bf16, ms",
    "products, ms",
    "literal / factored",
    "products / factored",
    "factored / bf16",
    "literal, MB",
    "factored, MB",
    "ratio",
)


def main() -> None:
    """Print the table, one line for every data set and width of the scaling network."""
    parser = argparse.ArgumentParser(description="Time and memory of the dynamically-scaled layer.")
    parser.add_argument("--repeats", type=int, default=9, help="timed runs of every variant")
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    if options.peak:
        form, name, width = options.peak
        print_peak(form, SIZES[name], int(width))
        return
    rows = [measure(name, width, options.repeats) for width in (128, 256) for name in SIZES]
    title = (
        f"The layer, forward and backward, float32; median of {options.repeats}; products: the "
        f"same matrix products alone; MB: peak beyond parameters and gradients"
    )
    show("layer", title, rows, COLUMNS)


if __name__ == "__main__":
    main()
