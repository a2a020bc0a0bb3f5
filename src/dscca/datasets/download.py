"""Downloads that resume, check what they got, and leave a whole file or none."""

import hashlib
import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dscca.locking import lock

Progress = Callable[[int, int | None], None]
"""Called with the bytes there are so far and, where known, the bytes there will be."""

_CHUNK = 1 << 20
_ATTEMPTS = 3
_MAX_BYTES = 1 << 34
_MIN_RATE = 1024


class DownloadError(OSError):
    """No source gave the file."""


class _RefusedError(OSError):
    """A source that asking again would not help."""


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects, but not from https to anything less."""

    def redirect_request(
        self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if req.type == "https" and urllib.parse.urlsplit(newurl).scheme != "https":
            raise _RefusedError(f"redirects from https to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(
    urls: Sequence[str],
    target: Path,
    *,
    sha256: str | None = None,
    size: int | None = None,
    timeout: float = 30.0,
    progress: Progress | None = None,
) -> str:
    """Bring a file from the first of `urls` that gives it, and return its SHA-256.

    What arrives is kept in a hidden file beside `target`, so a cut connection or a killed process
    goes on where it stopped, if the server can and its file is the same. The target appears in one
    step, once size and checksum are right. Two processes asking for one target wait for each other.

    Parameters
    ----------
    urls : mirrors in order; https, or http where `sha256` is given
    target : where the file shall be; a file that is there already is left alone
    sha256, size : of the whole file; without them it is what the server says it is
    timeout : seconds without an answer, or of less than a kibibyte each, after which to give up
    progress : called as bytes arrive
    """
    for url in urls:
        scheme = urllib.parse.urlsplit(url).scheme
        if scheme not in ("http", "https") or (scheme == "http" and sha256 is None):
            raise ValueError(f"{url}: only https, or http with a known SHA-256, can be trusted.")
    with lock(target.with_name(f".{target.name}.lock")):
        if target.exists():
            return sha256_of(target)
        failures = []
        for url in urls:
            try:
                transfer = _Transfer(url, target, sha256, size, timeout, progress)
                return transfer.run()
            except (OSError, http.client.HTTPException) as error:
                failures.append(f"{url}: {_reason(error)}")
        raise DownloadError(f"could not download {target.name}: {'; '.join(failures)}")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Transfer:
    """One file from one mirror."""

    def __init__(
        self,
        url: str,
        target: Path,
        sha256: str | None,
        size: int | None,
        timeout: float,
        progress: Progress | None,
    ) -> None:
        self.url, self.target, self.sha256, self.size = url, target, sha256, size
        self.timeout, self.progress = timeout, progress
        self.part = target.with_name(f".{target.name}.part")
        self.note = target.with_name(f".{target.name}.part.json")
        self.opener = urllib.request.build_opener(_Redirects)

    def run(self) -> str:
        attempt = 0
        while True:
            before = self._have()
            try:
                self._receive()
                return self._finish()
            except urllib.error.HTTPError as error:
                error.close()
                raise
            except _RefusedError:
                raise
            except (OSError, http.client.HTTPException):
                moved = self._have() - before > _MIN_RATE * self.timeout
                attempt = 0 if moved else attempt + 1
                if attempt >= _ATTEMPTS:
                    raise
                time.sleep(min(0.1 * 4**attempt, self.timeout))

    def _have(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _discard(self) -> None:
        self.part.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)

    def _receive(self) -> None:
        have, validator = self._resumable()
        headers = {"User-Agent": "dscca", "Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
            if validator:
                headers["If-Range"] = validator
        request = urllib.request.Request(self.url, headers=headers)
        try:
            response = self.opener.open(request, timeout=self.timeout)
        except urllib.error.HTTPError as error:
            if error.code == 416:  # nothing comes after what is there
                error.close()
                if error.headers.get("Content-Range") == f"bytes */{have}":
                    return
                self._discard()
                raise ConnectionError("cannot resume: starting again") from error
            raise
        with response:
            start = have if response.status == 206 else 0
            if start and not str(response.headers.get("Content-Range", "")).startswith(
                f"bytes {start}-"
            ):
                self._discard()
                raise ConnectionError("resumed at another place: starting again")
            length = response.headers.get("Content-Length")
            total = start + int(length) if length and length.isdigit() else None
            self._check_size(total)
            self._write_note(response.headers)
            self._copy(response, start, total)

    def _resumable(self) -> tuple[int, str | None]:
        """Return how many bytes can be gone on from, and what the server's file must match."""
        have = self._have()
        try:
            note = json.loads(self.note.read_text(encoding="utf-8"))
            same, validator = note["url"] == self.url, note["validator"]
        except (OSError, ValueError, LookupError, TypeError):
            same, validator = False, None
        # With a checksum any mirror's bytes will do: a mixture of two files would show in the end.
        if not have or not (self.sha256 or (same and validator)):
            self._discard()
            return 0, None
        return have, validator if same else None

    def _write_note(self, headers: Any) -> None:
        tag = headers.get("ETag")
        strong = tag if tag and not tag.startswith("W/") else None
        note = {"url": self.url, "validator": strong or headers.get("Last-Modified")}
        self.note.write_text(json.dumps(note), encoding="utf-8")

    def _check_size(self, total: int | None) -> None:
        if self.size is not None and total is not None and total != self.size:
            raise _RefusedError(f"has {total} bytes where {self.size} are expected")
        if total is not None and total > _MAX_BYTES:
            raise _RefusedError(f"has {total} bytes, more than the bound of {_MAX_BYTES}")

    def _copy(self, response: Any, start: int, total: int | None) -> None:
        bound = total if total is not None else (self.size or _MAX_BYTES)
        received, mark, since = start, start, time.monotonic()
        with open(self.part, "r+b" if start else "wb") as file:
            file.seek(start)
            file.truncate()
            # read1 returns what has come, so that a trickle cannot hold the loop.
            while chunk := response.read1(_CHUNK):
                file.write(chunk)
                received += len(chunk)
                if received > bound:
                    raise _RefusedError(f"sends more than the expected {bound} bytes")
                if self.progress:
                    self.progress(received, total or self.size)
                if (elapsed := time.monotonic() - since) > self.timeout:
                    if received - mark < _MIN_RATE * elapsed:
                        raise TimeoutError(f"under {_MIN_RATE} bytes a second")
                    mark, since = received, time.monotonic()
            file.flush()
            os.fsync(file.fileno())
        expected = total if total is not None else self.size
        if expected is not None and received < expected:
            raise ConnectionError(f"the connection was cut after {received} of {expected} bytes")

    def _finish(self) -> str:
        digest = sha256_of(self.part)
        if self.sha256 is not None and digest != self.sha256:
            self._discard()
            raise _RefusedError(f"has SHA-256 {digest} where {self.sha256} is expected")
        os.replace(self.part, self.target)
        self.note.unlink(missing_ok=True)
        return digest


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"{error.code} {error.reason}"
    inner = getattr(error, "reason", None)
    return str(inner or error) or type(error).__name__
