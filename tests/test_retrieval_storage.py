"""Indexes on disk: whole, checked, replaced in one step, shared by processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from dscca import DSDCCA, CrossModalIndex
from dscca.persistence import ModelFileError
from dscca.retrieval import IndexFileError
from problems import paired
from retrieval_problems import KINDS, fitted, make_index

FILE = "index.safetensors"


@pytest.fixture
def saved(tmp_path):
    """The folder of an exact index with items of both views."""
    model, X, y = fitted()
    index = CrossModalIndex(model).add(X, range(300), view="x")
    index.add(y, map(str, range(300)), view="y", metadata=[[row] for row in range(300)])
    index.save(tmp_path / "index")
    return tmp_path / "index"


def rewrite(folder, *, header=None, tensors=None):
    with safe_open(folder / FILE, framework="numpy") as source:
        metadata = source.metadata()
        arrays = {name: source.get_tensor(name) for name in source.keys()}  # noqa: SIM118
    save_file({**arrays, **(tensors or {})}, folder / FILE, {**metadata, **(header or {})})


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_index_answers_as_the_saved_one(kind, tmp_path):
    _, X, y = fitted()
    folder = tmp_path / "index"
    with make_index(kind, folder) as index:
        index.add(X, range(300), view="x", metadata=["é"] * 300)
        index.add(y, map(str, range(300)), view="y")
        index.remove([str(row) for row in range(0, 300, 7)], view="y")
        expected = index.search(X[:9], 9, view="x"), index.search(y[:9], 9, view="y")
        index.save(folder)
    # The embedded Milvus lies inside the folder, so the folder can be moved as a whole.
    shutil.move(folder, tmp_path / "moved")
    with CrossModalIndex.load(tmp_path / "moved") as index:
        assert (index.size("x"), index.size("y")) == (300, 257)
        assert (index.search(X[:9], 9, view="x"), index.search(y[:9], 9, view="y")) == expected
        index.add(y[:1], ["0"], view="y").remove(["1"], view="y")
        assert index.contains(["0", "1"], view="y") == [True, False]
        index.save(tmp_path / "moved")
    with CrossModalIndex.load(tmp_path / "moved") as index:
        assert index.contains(["0", "1"], view="y") == [True, False]


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_index_can_be_saved(kind, tmp_path):
    with make_index(kind, tmp_path) as index:
        index.save(tmp_path)
    with CrossModalIndex.load(tmp_path) as index:
        assert (index.size("x"), index.size("y")) == (0, 0)
        index.add(fitted()[2], range(300), view="y")
        assert len(index.search(fitted()[1][0], 300, view="x")) == 300


def test_a_deep_model_travels_with_its_items(tmp_path):
    X, y = paired()
    small = {"hidden": (8,), "scale_hidden": (4,), "batch_size": 100, "device": "cpu"}
    model = DSDCCA(2, epochs=2, warmup=1, random_state=0, **small)
    index = CrossModalIndex(model.fit(X, y)).add(y, range(300), view="y")
    index.save(tmp_path)
    again = CrossModalIndex.load(tmp_path)
    assert [hit.id for hit in again.search(X[0], view="x")] == [
        hit.id for hit in index.search(X[0], view="x")
    ]


@pytest.mark.parametrize("place", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_changed_byte_is_noticed(saved, place):
    file = saved / FILE
    raw = bytearray(file.read_bytes())
    raw[int(place * len(raw))] ^= 1
    file.write_bytes(raw)
    with pytest.raises(IndexFileError, match="index"):
        CrossModalIndex.load(saved)


@pytest.mark.parametrize("size", [0, 5, 100, 5000, -1])
def test_a_truncated_file_is_refused(saved, size):
    file = saved / FILE
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(IndexFileError, match="no whole index"):
        CrossModalIndex.load(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"header": {"format": "something"}}, "no index of dscca"),
        ({"header": {"version": "99"}}, "format version '99'"),
        ({"header": {"index": "{}"}}, "does not match its digest"),
        ({"tensors": {"x/vectors": np.zeros((300, 4), np.float32)}}, "x/vectors changed"),
        ({"tensors": {"more": np.zeros(3)}}, "more changed"),
    ],
)
def test_foreign_and_damaged_folders(saved, change, message):
    rewrite(saved, **change)
    with pytest.raises(IndexFileError, match=message):
        CrossModalIndex.load(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d, t: d.update(backend="magic"), "'magic' is unknown"),
        (lambda d, t: d.update(options={"kind": 3}), "no option kind"),
        (lambda d, t: d.pop("options"), "options"),
        (lambda d, t: d["model"].update({"class": "Path"}), "describes no model"),
        (lambda d, t: t.pop("model/correlations_"), "lacks the array correlations_"),
        (lambda d, t: t.pop("x/ids"), "ids"),
        (lambda d, t: t.update({"x/ids": t["x/ids"][:-9]}), "cannot be used"),
        (lambda d, t: t.update({"x/ids": t["y/metadata"]}), "cannot be used"),
        (lambda d, t: t.update({"x/vectors": t["x/vectors"][:-1]}), "numbers of ids"),
        (lambda d, t: t.update({"x/vectors": t["x/vectors"][:, :3]}), "not float32"),
        (lambda d, t: t.update({"x/vectors": t["x/vectors"] * np.inf}), "not finite"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_consistent_nonsense_is_refused(saved, change, message):
    """Files whose digests are right, as somebody else's program might write them."""
    from dscca.retrieval import storage

    description, tensors = storage.read(saved)
    change(description, tensors)
    storage.write(saved, description, tensors, None)
    with pytest.raises((IndexFileError, ModelFileError), match=message):
        CrossModalIndex.load(saved)


def test_a_folder_without_an_index(tmp_path):
    with pytest.raises(FileNotFoundError, match="no index at"):
        CrossModalIndex.load(tmp_path)


def test_a_failed_save_leaves_the_old_index(saved, monkeypatch):
    before = (saved / FILE).read_bytes()
    index = CrossModalIndex.load(saved).remove(range(10), view="x")

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        index.save(saved)
    assert (saved / FILE).read_bytes() == before
    assert sorted(os.listdir(saved)) == [".lock", FILE]
    monkeypatch.undo()
    index.save(saved)
    assert CrossModalIndex.load(saved).size("x") == 290


def test_changes_of_another_process_are_not_overwritten(saved):
    mine, theirs = CrossModalIndex.load(saved), CrossModalIndex.load(saved)
    theirs.remove([0], view="x").save(saved)
    theirs.remove([1], view="x").save(saved)
    with pytest.raises(IndexFileError, match=r"saved by another process.*load it again"):
        mine.remove([2], view="x").save(saved)
    assert CrossModalIndex.load(saved).contains([0, 1, 2], view="x") == [False, False, True]
    mine.save(saved.parent / "elsewhere")
    again = CrossModalIndex.load(saved)
    again.remove([2], view="x").save(saved)
    assert CrossModalIndex.load(saved).size("x") == 297


def started(code, *arguments):
    """A process that runs `code` and has printed its first line."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PATHS))},
    )
    assert process.stdout.readline() == b"ready\n"
    return process


PATHS = (Path(__file__).parent, *os.environ.get("PYTHONPATH", "").split(os.pathsep))

SAVER = """
import sys
import numpy as np
from dscca import CrossModalIndex
from retrieval_problems import fitted
model, X, y = fitted()
many = np.random.default_rng(0).normal(size=(100_000, 4))
indexes = [
    CrossModalIndex(model).add_variates(many[:n], range(n), view="y", metadata=[n] * n)
    for n in (50_000, 100_000)
]
print("ready", flush=True)
while True:
    for index in indexes:
        index.save(sys.argv[1])
"""


def test_killed_saves_and_concurrent_readers(tmp_path):
    """A process saves two indexes over and over; readers see either, whole, also after a kill."""
    _, X, _ = fitted()
    seen = set()
    for delay in (0.0, 0.05, 0.11):
        process = started(SAVER, tmp_path)
        try:
            deadline = time.monotonic() + 30
            while not (tmp_path / FILE).exists() and time.monotonic() < deadline:
                time.sleep(0.005)
            index = CrossModalIndex.load(tmp_path)
            time.sleep(delay)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(10)
            process.stdout.close()
        for found in (index, CrossModalIndex.load(tmp_path)):
            size = found.size("y")
            seen.add(size)
            assert found.search(X[0], 1, view="x")[0].metadata == size
    assert seen <= {50_000, 100_000}
    # What the killed processes left is cleared away by the next save.
    index.save(tmp_path / "other")
    CrossModalIndex.load(tmp_path).save(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".lock", FILE, "other"]


ADDER = """
import sys
from dscca import CrossModalIndex
from dscca.retrieval import IndexFileError
from retrieval_problems import fitted
print("ready", flush=True)
X = fitted()[1]
for row in range(4):
    while True:
        index = CrossModalIndex.load(sys.argv[1]).add(X[:1], [f"{sys.argv[2]} {row}"], view="x")
        try:
            index.save(sys.argv[1])
            break
        except IndexFileError:
            pass
"""


def test_writers_that_retry_lose_nothing(saved):
    processes = [started(ADDER, saved, name) for name in ("a", "b")]
    try:
        assert [process.wait(60) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.stdout.close()
    names = [f"{name} {row}" for name in ("a", "b") for row in range(4)]
    assert all(CrossModalIndex.load(saved).contains(names, view="x"))


HOLDER = """
import sys, time
from dscca import CrossModalIndex
index = CrossModalIndex.load(sys.argv[1])
print("ready", flush=True)
time.sleep(30)
"""


def test_the_embedded_milvus_serves_one_process_and_survives_a_kill(tmp_path, capfd):
    model, X, _ = fitted()
    with make_index("milvus", tmp_path, model) as index:
        index.add(X, range(300), view="x")
        index.save(tmp_path)
    holder = started(HOLDER, tmp_path)
    try:
        with pytest.raises(ConnectionError, match="another process has it open"):
            CrossModalIndex.load(tmp_path)
        assert capfd.readouterr().err == ""
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
        holder.stdout.close()
    with CrossModalIndex.load(tmp_path) as index:
        assert index.size("x") == 300
        with pytest.raises(ValueError, match="has a collection dscca_x already"):
            CrossModalIndex(model, backend="milvus", uri=str(tmp_path / "milvus.db"))
        assert index.size("x") == 300
        index.drop()
    with pytest.raises(IndexFileError, match="no collection dscca_x"):
        CrossModalIndex.load(tmp_path)
    shutil.rmtree(tmp_path / "milvus.db")
    with pytest.raises(FileNotFoundError, match=r"there is no .*milvus\.db"):
        CrossModalIndex.load(tmp_path)


def test_a_failed_addition_to_milvus_is_taken_back(tmp_path, monkeypatch):
    from dscca.retrieval import milvus_backend

    monkeypatch.setattr(milvus_backend, "_REQUEST_BYTES", 1000)
    _, X, _ = fitted()
    with make_index("milvus", tmp_path) as index:
        client = index._items["x"]._client
        insert, sent = client.insert, []

        def breaking(name, rows):
            sent.append(len(rows))
            if len(sent) == 3:
                raise index._items["x"]._pymilvus.MilvusException(message="connection lost")
            return insert(name, rows)

        monkeypatch.setattr(client, "insert", breaking)
        with pytest.raises(ConnectionError, match="connection lost"):
            index.add(X, range(300), view="x")
        assert len(sent) == 3
        assert index.size("x") == 0
        monkeypatch.setattr(client, "insert", insert)
        index.add(X, range(300), view="x")
        assert index.size("x") == 300
        with pytest.raises(ValueError, match="at most 65,535 bytes"):
            index.add(X[:1], ["long"], view="x", metadata=["x" * 70_000])


def test_milvus_at_a_url(tmp_path):
    """A server is used by the same code; its items are there at once for every index."""
    module = "milvus_lite.adapter.grpc.server"
    server_module = pytest.importorskip(module, reason="needs dscca[milvus]")
    model, X, _ = fitted()
    server, database, port = server_module.start_server_in_thread(str(tmp_path / "db"))
    try:
        uri = f"http://127.0.0.1:{port}"
        options = {"backend": "milvus", "uri": uri, "collection": "photos", "token": "root:secret"}
        with CrossModalIndex(model, **options) as index:
            index.save(tmp_path / "index")
            assert b"secret" not in (tmp_path / "index" / FILE).read_bytes()
            index.add(X, range(300), view="x")
            with CrossModalIndex.load(tmp_path / "index") as other:
                assert other.size("x") == 300
                other.remove([0], view="x")
            assert index.contains([0, 1], view="x") == [False, True]
    finally:
        server.stop(grace=0).wait(10)
        database.close()


def test_devices_are_not_saved(saved):
    with safe_open(saved / FILE, framework="numpy") as source:
        assert json.loads(source.metadata()["index"])["options"] == {}
    assert CrossModalIndex.load(saved, options={"device": "cpu"}).size("x") == 300
