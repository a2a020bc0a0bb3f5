"""Data sets in their original formats, small or empty, for tests to read and to damage."""

import gzip
import json
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import h5py
import numpy as np
import scipy.io


def write_idx(path, array):
    content = struct.pack(">HBB", 0, 8, array.ndim)
    content += struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    zipped = path.suffix == ".gz"
    path.write_bytes(gzip.compress(content, 1, mtime=0) if zipped else content)


def write_mnist(folder, end=".gz"):
    """All 70,000 digits: number i has i modulo 251 and 241 in its first and last pixel."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, first, n in (("train", 0, 60_000), ("t10k", 60_000, 10_000)):
        numbers = np.arange(first, first + n)
        images = np.zeros((n, 28, 28), dtype=np.uint8)
        images[:, 0, 0], images[:, 27, 27] = numbers % 251, numbers % 241
        write_idx(folder / f"{part}-images-idx3-ubyte{end}", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte{end}", numbers % 10)
    return folder


XRMB_NAMES = ("XRMBf2KALDI_window7_single1.mat", "XRMBf2KALDI_window7_single2.mat")


def xrmb_arrays(n_train=500, n_tune=80, n_test=90, seed=0):
    """The variables of both files; the first feature of either view is the frame's number."""
    rng = np.random.default_rng(seed)
    files = ({}, {})
    parts = (("", "train", n_train), ("V", "tune", n_tune), ("Te", "test", n_test))
    for i, (short, long, n) in enumerate(parts):
        for view, width in ((0, 273), (1, 112)):
            matrix = rng.normal(size=(n, width)).astype(np.float32)
            matrix[:, 0] = np.arange(n)
            files[view][f"X{short}{view + 1}"] = matrix
        files[1][f"{long}Label"] = rng.integers(0, 39, (n, 1)).astype(np.uint8)
        files[1][f"{long}ID"] = (10 * (i + 1) + rng.integers(0, 3, (n, 1))).astype(np.uint8)
    return files


def write_xrmb(folder, files, version="5"):
    folder.mkdir(parents=True, exist_ok=True)
    for name, variables in zip(XRMB_NAMES, files, strict=True):
        path = folder / name
        if version == "5":
            scipy.io.savemat(path, variables, do_compression=True)
        else:
            with h5py.File(path, "w", userblock_size=512) as file:
                for key, value in variables.items():
                    file[key] = value.T  # MATLAB stores columns first
            with open(path, "r+b") as file:
                file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
    return folder


def mocha_arrays(utterances=40, seed=0):
    """Utterances 1 to n of different lengths; mfcc 0 and ema 0 are the frame's number."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(20, 40, utterances)
    n = lengths.sum()
    phones = np.array(["a", "breath", "sil", "t"])
    mfcc, ema = rng.normal(size=(n, 39)), rng.normal(size=(n, 14))
    mfcc[:, 0] = ema[:, 0] = np.arange(n)
    return {
        "mfcc": mfcc.astype(np.float32),
        "ema": ema.astype(np.float32),
        "utterance": np.repeat(np.arange(utterances), lengths).astype(np.int16),
        "utterance_names": np.array([f"fsew0_{i + 1:03}" for i in range(utterances)]),
        "phone": rng.integers(0, 4, n).astype(np.int8),
        "phone_names": phones,
    }


def write_features(path, images, width, seed=0, first=None):
    """Features by file; the first is the image's number in `first`, or in the given order."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(len(images), width)).astype(np.float16)
    features[:, 0] = [(first or list(images)).index(image) for image in images]
    np.savez(path, features=features, files=np.array(images))


def write_flickr8k(folder, n=(24, 8, 8), unlisted=3, captions=5):
    """Lists, captions and features of a small Flickr8k; return the listed images by part."""
    folder.mkdir(parents=True, exist_ok=True)
    images = [f"{1000 + (i * 37) % 101}_{i:02}.jpg" for i in range(sum(n) + unlisted)]
    bounds = np.cumsum([0, *n])
    parts = {}
    for i, (part, name) in enumerate((("train", "train"), ("val", "dev"), ("test", "test"))):
        parts[part] = images[bounds[i] : bounds[i + 1]]
        (folder / f"Flickr_8k.{name}Images.txt").write_text("\n".join(parts[part]) + "\n")
    lines = [f"{image}#{k}\tcaption {k} of {image} ." for image in images for k in range(captions)]
    (folder / "Flickr8k.token.txt").write_text("\n".join(lines) + "\n")
    write_features(folder / "resnet50.npz", images, 12, first=sorted(images))
    write_features(folder / "text300.npz", images[::-1], 7, seed=1, first=sorted(images))
    return parts


def karpathy(parts, captions=5):
    images = [
        {
            "filename": image,
            "split": part,
            "imgid": i,
            "sentids": list(range(captions)),
            "sentences": [
                {"raw": f"caption {k} of {image} .", "tokens": [], "imgid": i, "sentid": k}
                for k in range(captions)
            ],
        }
        for part, names in parts.items()
        for i, image in enumerate(names)
    ]
    return json.dumps({"images": images, "dataset": "flickr8k"})


def write_iapr(folder, n=40):
    """Annotations as they are published: Latin-1, no header, bare ampersands."""
    images = []
    for i in range(n):
        image = f"{i % 3:02}/{i}.jpg"
        path = folder / "annotations_complete_eng" / f"{i % 3:02}" / f"{i}.eng"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            f"<DOC>\n<DOCNO>annotations/{i % 3:02}/{i}.eng</DOCNO>\n<TITLE>B & B</TITLE>\n"
            f"<DESCRIPTION>a café & {i} &quot;tables&quot;;\n two chairs;</DESCRIPTION>\n"
            f"<NOTES></NOTES>\n<IMAGE>images/{image}</IMAGE>\n</DOC>\n".encode("latin-1")
        )
        images.append(image)
    write_features(folder / "resnet50.npz", [f"images/{i}" for i in images], 12)
    write_features(folder / "text300.npz", images[::-1], 7, seed=1, first=images)
    return images


class FileServer:
    """Serve bytes on 127.0.0.1, as badly as a test asks for; `asked` records the requests.

    `files` is the content by path. A `faults` list for a path is used up request by request:
    "cut" sends half of what is left, "stall" sends little and then nothing for `pause` seconds,
    "trickle" a byte at a time; "no ranges" ignores Range; a number is a status; a URL redirects.
    """

    def __init__(self, files, faults=None, *, etag='"1"', pause=2.0, rate=None):
        self.files, self.faults, self.etag = files, faults or {}, etag
        self.pause, self.rate, self.asked = pause, rate, []
        self.stopping = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def url(self, path):
        return f"http://127.0.0.1:{self.server.server_port}/{path}"

    def ranges(self):
        return [headers.get("Range") for _, headers in self.asked]

    def _handler(outer):  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                path = self.path.lstrip("/")
                outer.asked.append((path, dict(self.headers)))
                waiting = outer.faults.get(path, [])
                fault = waiting.pop(0) if waiting else None
                if path not in outer.files or isinstance(fault, int):
                    self.send_error(fault or 404)
                    return
                if isinstance(fault, str) and "://" in fault:
                    self.send_response(302)
                    self.send_header("Location", fault)
                    self.end_headers()
                    return
                self._send(outer.files[path], fault)

            def _send(self, content, fault):
                wanted, start = self.headers.get("Range"), 0
                if_range = self.headers.get("If-Range")
                if wanted and fault != "no ranges" and if_range in (None, outer.etag):
                    start = int(wanted.removeprefix("bytes=").rstrip("-"))
                if start >= len(content) > 0:
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(content)}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206 if start else 200)
                if start:
                    last = len(content) - 1
                    self.send_header("Content-Range", f"bytes {start}-{last}/{len(content)}")
                if outer.etag:
                    self.send_header("ETag", outer.etag)
                self.send_header("Content-Length", str(len(content) - start))
                self.end_headers()
                body = content[start:]
                try:
                    self._body(body, fault)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def _body(self, body, fault):
                if fault == "cut":
                    self.wfile.write(body[: len(body) // 2])
                elif fault == "stall":
                    self.wfile.write(body[:100])
                    self.wfile.flush()
                    outer.stopping.wait(outer.pause)
                elif fault == "trickle":
                    for i in range(len(body)):
                        self.wfile.write(body[i : i + 1])
                        self.wfile.flush()
                        if outer.stopping.wait(0.02):
                            return
                elif outer.rate:
                    for i in range(0, len(body), outer.rate // 50):
                        self.wfile.write(body[i : i + outer.rate // 50])
                        if outer.stopping.wait(0.02):
                            return
                else:
                    self.wfile.write(body)

        return Handler


def wait_for(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)
