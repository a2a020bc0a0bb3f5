"""The scales of a DS-DCCA trained on MNIST halves: their picture, and what they know of the digits.

``python -m benchmarks.scales RECORD.json FIGURE.png --model FOLDER`` takes the model in FOLDER, or
trains one at the paper's settings and saves it there; the data come from where ``dscca data`` keeps
them. Nothing of the labels is used before the picture is coloured and neighbours are counted.
"""

import argparse
import io
import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

import dscca
from benchmarks import records
from benchmarks.mnist import PAPER
from dscca import plot
from dscca.datasets import TwoViewSplits, load_splits
from dscca.persistence import model_path
from dscca.report import embed_scales, neighbor_accuracy
from dscca.report.scales import NEIGHBORS

VIEWS = ("left half", "right half")
CHECKED = 1000
"""Digits on which neighbours by coordinates are compared with those by the scales themselves."""


def trained(folder: Path, data: TwoViewSplits) -> Any:
    """Return the model in a folder, trained and saved if there is none."""
    if model_path(folder).is_file():
        return dscca.load(folder)
    model = dscca.DSDCCA(
        **PAPER,
        scale_hidden=(128,),
        warmup=50,
        precision="bf16",
        random_state=0,
        checkpoint_dir=folder / "checkpoint",
    )
    model.fit(data.X_train, data.y_train, X_val=data.X_val, y_val=data.y_val)
    model.save(folder)
    return model


def accuracies(model: Any, data: TwoViewSplits) -> dict[str, dict[str, float]]:
    """Return, by view, the digit accuracy of neighbours among the test digits."""
    test, labels = data.test, data.test.labels
    found = {}
    for name, view, coordinates, scales in zip(
        VIEWS,
        (test.x, test.y),
        (model.scale_coordinates(test.x), model.scale_coordinates_y(test.y)),
        (model.scales(test.x[:CHECKED]), model.scales_y(test.y[:CHECKED])),
        strict=True,
    ):
        some = labels[:CHECKED]
        found[name] = {
            "in scale space": neighbor_accuracy(coordinates, labels),
            "in input space": neighbor_accuracy(view, labels),
            f"in scale space, {CHECKED} digits": neighbor_accuracy(coordinates[:CHECKED], some),
            f"by the scales themselves, {CHECKED} digits": neighbor_accuracy(scales, some),
        }
    return found


def picture(model: Any, data: TwoViewSplits) -> Figure:
    """Draw the scales of both views of the test digits, coloured by digit."""
    figure = Figure(figsize=(10, 5.2), layout="constrained")
    axes = figure.subplots(1, 2)
    test = data.test
    embedded = (model.scale_coordinates(test.x), model.scale_coordinates_y(test.y))
    for ax, name, coordinates in zip(axes, VIEWS, embedded, strict=True):
        plot.scales(embed_scales(coordinates, seed=0), labels=test.labels, ax=ax)
        ax.set_title(f"scales of the {name}")
        ax.set_frame_on(False)
        handles, labels = ax.get_legend_handles_labels()
        ax.get_legend().remove()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=10,
        frameon=False,
        markerscale=5,
        fontsize=12,
    )
    return figure


def write_png(figure: Figure, path: Path) -> None:
    """Write a figure with a palette of 256 colours, which takes a third of the space."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, facecolor="white")
    image = Image.open(buffer).convert("RGB").quantize(256, Image.Quantize.FASTOCTREE)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("figure", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    arguments = parser.parse_args()
    data = load_splits("mnist")
    model = trained(arguments.model, data)
    kept = ("hidden", "scale_hidden", "epochs", "warmup", "batch_size", "precision", "random_state")
    parameters = {name: model.get_params()[name] for name in ("n_components", *kept)}
    record = {
        "method": "DSDCCA",
        "parameters": parameters,
        "best_epoch": model.best_epoch_,
        "test_tc": model.score(data.X_test, data.y_test),
        "test_digits": len(data.X_test),
        "scales_per_view": model.scales(data.X_test[:1]).shape[1],
        "neighbors": NEIGHBORS,
        "accuracy": accuracies(model, data),
        **records.made_on(),
    }
    arguments.record.parent.mkdir(parents=True, exist_ok=True)
    arguments.record.write_text(json.dumps(record, indent=1) + "\n")
    write_png(picture(model, data), arguments.figure)
    print(json.dumps(record["accuracy"], indent=1))


if __name__ == "__main__":
    main()
