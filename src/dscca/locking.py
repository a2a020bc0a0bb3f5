"""A lock between processes that ends with its holder, however that ends."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_PAUSE = 0.05


class LockedError(TimeoutError):
    """Another process holds the lock."""


@contextlib.contextmanager
def lock(path: Path, timeout: float = 600.0) -> Iterator[None]:
    """Hold `path` against other processes; wait at most `timeout` seconds for them.

    The operating system drops the lock of a process that is killed. The empty file stays: deleting
    it would let two processes hold locks on two files of the same name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        deadline = time.monotonic() + timeout
        while not _try(handle):
            if time.monotonic() > deadline:
                raise LockedError(
                    f"another process has held {path} for {timeout:g} s: wait for it, or end it."
                )
            time.sleep(_PAUSE)
        yield
    finally:
        os.close(handle)


if sys.platform == "win32":
    import msvcrt

    def _try(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
