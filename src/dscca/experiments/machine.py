"""What a figure was measured on."""

import contextlib
import platform
import subprocess
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import torch

import dscca


def processor() -> str:
    """Return the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def hardware(device: str) -> str:
    """Return what computes: the GPU, or the processor and the number of threads."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"{processor()}, {torch.get_num_threads()} threads"


def versions() -> dict[str, str]:
    """Return the versions that figures depend on."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "dscca": dscca.__version__,
    }


@cache
def commit() -> str | None:
    """Return the commit of the package's sources, with "-dirty" if changed; None if not in git."""
    folder = Path(dscca.__file__).parent
    git = ["git", "-C", str(folder)]
    try:
        tracked = subprocess.run(
            [*git, "ls-files", "--error-unmatch", "__init__.py"], capture_output=True, check=False
        )
        if tracked.returncode:
            return None
        command = [*git, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


class Circumstances:
    """How a record is made, from here on: when, on what, how long, in how much memory."""

    def __init__(self, device: str) -> None:
        self.device, self._memory = device, PeakMemory(device)
        self._started, self._clock = datetime.now(UTC), time.perf_counter()

    def facts(self) -> dict[str, Any]:
        """Return what a record holds of them, up to now."""
        return {
            "seconds": round(time.perf_counter() - self._clock, 3),
            "peak_memory_mb": round(self._memory.megabytes(), 1),
            "device": self.device,
            "hardware": hardware(self.device),
            "versions": versions(),
            "commit": commit(),
            "started": self._started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }


class PeakMemory:
    """The most memory that a part of a process took, in MB: the device's, or the process's.

    Linux can start the count again; elsewhere it is the peak of the process so far.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            return
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")

    def megabytes(self) -> float:
        """Return the peak since this was made."""
        if self.device == "cuda":
            return torch.cuda.max_memory_allocated() / 1e6
        try:
            status = Path("/proc/self/status").read_text()
        except OSError:
            import resource  # not on Windows

            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6
