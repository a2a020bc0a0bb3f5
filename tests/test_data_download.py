"""Downloads from a server on this machine: cut, stalled, killed, wrong, missing, redirected."""

import hashlib
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from data_files import FileServer, wait_for
from dscca.datasets.download import DownloadError, download, sha256_of
from dscca.locking import LockedError, lock

CONTENT = np.random.default_rng(0).bytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
OTHER = b"something else" * 1000


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def leftovers(folder):
    """What a download leaves beside its file: its lock only."""
    return sorted(p.name for p in folder.iterdir() if not p.name.endswith(".lock"))


def test_a_whole_file(tmp_path):
    seen = []
    with FileServer({"a": CONTENT}) as server:
        digest = download(
            [server.url("a")],
            tmp_path / "new" / "a",
            sha256=SHA256,
            size=len(CONTENT),
            progress=lambda done, total: seen.append((done, total)),
        )
        assert digest == SHA256
        assert (tmp_path / "new" / "a").read_bytes() == CONTENT
        assert leftovers(tmp_path / "new") == ["a"]
        assert seen[-1] == (len(CONTENT), len(CONTENT))
        assert [done for done, _ in seen] == sorted({done for done, _ in seen})
        download([server.url("a")], tmp_path / "new" / "a", sha256=SHA256)
        assert len(server.asked) == 1  # what is there is not asked for again


def test_resume_after_a_cut(tmp_path):
    with FileServer({"a": CONTENT}, {"a": ["cut", "cut"]}) as server:
        download([server.url("a")], tmp_path / "a", sha256=SHA256)
        assert server.ranges() == [None, "bytes=150000-", "bytes=225000-"]
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_a_server_without_ranges_sends_all_again(tmp_path):
    with FileServer({"a": CONTENT}, {"a": ["cut", "no ranges"]}) as server:
        download([server.url("a")], tmp_path / "a", sha256=SHA256)
        assert len(server.asked) == 2
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_a_file_that_changed_meanwhile_is_not_mixed(tmp_path):
    changed = CONTENT[::-1]
    (tmp_path / ".a.part").write_bytes(CONTENT[:1000])
    with FileServer({"a": changed}, etag='"2"') as server:
        (tmp_path / ".a.part.json").write_text(
            f'{{"url": "{server.url("a")}", "validator": "\\"1\\""}}'
        )
        download([server.url("a")], tmp_path / "a", sha256=hashlib.sha256(changed).hexdigest())
        assert server.asked[0][1]["If-Range"] == '"1"'
    assert (tmp_path / "a").read_bytes() == changed


def test_a_wrong_beginning_costs_one_more_download(tmp_path):
    """A beginning from elsewhere spoils the checksum; the next source starts afresh."""
    (tmp_path / ".a.part").write_bytes(b"x" * 1000)
    with FileServer({"a": CONTENT, "b": CONTENT}) as server:
        download([server.url("a"), server.url("b")], tmp_path / "a", sha256=SHA256)
        assert server.ranges() == ["bytes=1000-", None]
    assert (tmp_path / "a").read_bytes() == CONTENT


@pytest.mark.parametrize("extra", [0, 10])
def test_a_beginning_that_is_already_everything(tmp_path, extra):
    (tmp_path / ".a.part").write_bytes(CONTENT + b"x" * extra)
    with FileServer({"a": CONTENT}) as server:
        download([server.url("a")], tmp_path / "a", sha256=SHA256)
        assert len(server.asked) == (2 if extra else 1)
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_wrong_checksum(tmp_path):
    with FileServer({"a": OTHER, "b": CONTENT}) as server:
        with pytest.raises(DownloadError, match=f"has SHA-256 .* where {SHA256} is expected"):
            download([server.url("a")], tmp_path / "a", sha256=SHA256)
        assert leftovers(tmp_path) == []
        download([server.url("a"), server.url("b")], tmp_path / "a", sha256=SHA256)
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_wrong_size_is_seen_before_a_byte_is_read(tmp_path):
    with (
        FileServer({"a": OTHER}) as server,
        pytest.raises(DownloadError, match="has 14000 bytes where 300000 are expected"),
    ):
        download([server.url("a")], tmp_path / "a", sha256=SHA256, size=len(CONTENT))
    assert leftovers(tmp_path) == []


def test_404_then_mirror(tmp_path):
    with FileServer({"mirror": CONTENT}) as server:
        download([server.url("gone"), server.url("mirror")], tmp_path / "a", sha256=SHA256)
        assert [path for path, _ in server.asked] == ["gone", "mirror"]
        with pytest.raises(DownloadError, match=r"gone: 404 .*; .*missing: 404"):
            download([server.url("gone"), server.url("missing")], tmp_path / "b", sha256=SHA256)


def test_the_mirror_goes_on_where_the_first_source_stopped(tmp_path):
    with FileServer({"a": CONTENT, "b": CONTENT}, {"a": ["cut", 503]}) as server:
        download([server.url("a"), server.url("b")], tmp_path / "a", sha256=SHA256)
        assert server.asked[-1][0] == "b"
        assert server.ranges()[-1] == "bytes=150000-"
    assert (tmp_path / "a").read_bytes() == CONTENT


@pytest.mark.parametrize("fault", ["stall", "trickle"])
def test_a_slow_server_is_given_up(tmp_path, fault):
    faults = {"a": [fault] * 9}
    with FileServer({"a": CONTENT, "b": CONTENT}, faults, pause=30) as server:
        download([server.url("a"), server.url("b")], tmp_path / "a", sha256=SHA256, timeout=0.2)
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert len(faults["a"]) > 1


def test_nobody_there(tmp_path):
    with FileServer({}) as server:
        url = server.url("a")
    with pytest.raises(DownloadError, match=r"could not download a: .*refused"):
        download([url], tmp_path / "a", sha256=SHA256, timeout=0.1)


def test_redirects(tmp_path):
    with FileServer({"a": CONTENT, "b": CONTENT}) as server:
        server.faults["a"] = [server.url("b")]
        download([server.url("a")], tmp_path / "a", sha256=SHA256)
        assert (tmp_path / "a").read_bytes() == CONTENT
        server.faults["a"] = ["file:///etc/hostname"]
        with pytest.raises(DownloadError):
            download([server.url("a")], tmp_path / "b", sha256=SHA256)


@pytest.mark.parametrize("url", ["http://127.0.0.1/a", "file:///etc/hostname", "ftp://h/a", "a"])
def test_sources_that_cannot_be_trusted(tmp_path, url):
    with pytest.raises(ValueError, match="can be trusted"):
        download([url], tmp_path / "a")
    assert not (tmp_path / "a").exists()


_CHILD = """
import sys
from pathlib import Path
from dscca.datasets.download import download
download([sys.argv[1]], Path(sys.argv[2]), sha256=sys.argv[3], timeout=20)
"""


def child(url, target):
    return subprocess.Popen([sys.executable, "-c", _CHILD, url, str(target), SHA256])


def test_a_killed_download_goes_on(tmp_path):
    part = tmp_path / ".a.part"
    with FileServer({"a": CONTENT}, rate=200_000) as server:
        process = child(server.url("a"), tmp_path / "a")
        wait_for(lambda: part.exists() and part.stat().st_size > 0)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kept = part.stat().st_size
        assert not (tmp_path / "a").exists()
        server.rate = None
        download([server.url("a")], tmp_path / "a", sha256=SHA256)  # the lock died with its holder
        assert server.ranges() == [None, f"bytes={kept}-"]
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_two_processes_download_once(tmp_path):
    with FileServer({"a": CONTENT}, rate=600_000) as server:
        processes = [child(server.url("a"), tmp_path / "a") for _ in range(2)]
        assert [process.wait() for process in processes] == [0, 0]
        assert len(server.asked) == 1
    assert sha256_of(tmp_path / "a") == SHA256


def test_waiting_for_a_lock_ends(tmp_path):
    held, done = threading.Event(), threading.Event()

    def hold():
        with lock(tmp_path / "l"):
            held.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    with pytest.raises(LockedError, match=r"has held .*l for 0.1 s"), lock(tmp_path / "l", 0.1):
        pass
    done.set()
    thread.join()
    with lock(tmp_path / "l", 0.1):
        pass
