"""Feature extraction end to end: speed against the network alone, and memory against the number.

Needs the extra ``features`` and Flickr8k's files in ``DSCCA_DATA``. The weights are random, which
changes nothing here.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.timing import pin_threads, show, watched_memory

BATCH = 32
RUNS = (("fp32", 250), ("fp32", 1000), ("bf16", 1000))


def main() -> None:
    folder = os.environ.get("DSCCA_DATA")
    if not folder or not (Path(folder) / "flickr8k").is_dir():
        print("features: set DSCCA_DATA to the folder that holds flickr8k to run this")
        return
    with tempfile.TemporaryDirectory() as workspace:
        tasks = [("model", workspace), ("text", workspace)]
        for precision, count in RUNS:  # each beside what it is compared with
            tasks.append((f"network {precision}", workspace))
            tasks.append((f"images {precision} {count}", workspace))
        results = {name: in_own_process(name, where) for name, where in tasks}
    rows = [
        row(f"{count:,} images, {precision}", results[f"images {precision} {count}"])
        for precision, count in RUNS
    ]
    for precision in ("fp32", "bf16"):
        rows.append(row(f"the network alone, {precision}", results[f"network {precision}"]))
    rows.append(row("40,455 captions, word2vec", results["text"]))
    title = (
        f"Feature extraction, Flickr8k: ResNet-50 on JPEG files of 192 pixels, batches of {BATCH}"
    )
    show("features", title, rows, ("", "seconds", "items/s", "peak RssAnon, MB"))


def row(name: str, result: dict[str, float]) -> tuple[str, ...]:
    seconds, items = result["seconds"], result["items"]
    return name, f"{seconds:.1f}", f"{items / seconds:,.1f}", f"{result['peak'] / 1024:.0f}"


def in_own_process(name: str, workspace: str) -> dict[str, float]:
    """Run one task where nothing else has used memory."""
    command = [sys.executable, "-m", "benchmarks.features", name, workspace]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out.splitlines()[-1])


def measure(name: str, workspace: Path) -> None:
    pin_threads()
    data = Path(os.environ["DSCCA_DATA"]) / "flickr8k"
    kind, *details = name.split()
    with watched_memory() as peak:
        start = time.perf_counter()
        items, seconds = 1, None
        if kind == "model":
            random_resnet50(workspace / "model")
        elif kind == "images":
            items = encode_images(data, workspace, *details)
        elif kind == "network":
            items, seconds = run_network(workspace, *details)
        else:
            items = encode_text(data, workspace)
        seconds = time.perf_counter() - start if seconds is None else seconds
    print(json.dumps({"seconds": seconds, "items": items, "peak": peak[0]}))


def random_resnet50(folder: Path) -> None:
    from transformers import ResNetConfig, ResNetModel

    ResNetModel(ResNetConfig()).save_pretrained(folder)


def encode_images(data: Path, workspace: Path, precision: str, count: str) -> int:
    """Encode test images; the time is the whole call's, loading of the model included."""
    from dscca.features import image_features

    names = (data / "Flickr_8k.testImages.txt").read_text().split()[: int(count)]
    (workspace / "names.txt").write_text("\n".join(names))
    return image_features(
        data / "test_images.zip",
        workspace / f"{precision}{count}.npz",
        model=str(workspace / "model"),
        names=workspace / "names.txt",
        batch_size=BATCH,
        device="cpu",
        precision=precision,
    ).rows


def run_network(workspace: Path, precision: str, batches: int = 8) -> tuple[int, float]:
    import numpy as np

    from dscca.features.vision import VisionEncoder

    encoder = VisionEncoder(str(workspace / "model"), device="cpu", precision=precision)
    pixels = np.random.default_rng(0).integers(0, 256, (BATCH, 224, 224, 3), dtype=np.uint8)
    encoder.encode(pixels)
    start = time.perf_counter()
    for _ in range(batches):
        encoder.encode(pixels)
    return batches * BATCH, time.perf_counter() - start


def encode_text(data: Path, workspace: Path) -> int:
    from dscca.features import text_features

    text_features(
        data / "Flickr8k.token.txt.gz",
        workspace / "text.npz",
        vectors=data / "word_vectors.bin",
    )
    return 40_455


if __name__ == "__main__":
    measure(sys.argv[1], Path(sys.argv[2])) if len(sys.argv) > 1 else main()
