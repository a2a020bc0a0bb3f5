"""What the static figures draw."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.colors import same_color
from matplotlib.figure import Figure

from dscca import plot
from report_problems import HISTORY


@pytest.fixture
def ax():
    return Figure().subplots()


def names(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_training_curves(ax):
    assert plot.training_curves(pd.DataFrame(HISTORY), warmup=2, best_epoch=3, ax=ax) is ax
    lines = {line.get_label(): line for line in ax.lines}
    assert list(lines["training loss"].get_ydata()) == HISTORY["loss"]
    assert list(lines["validation loss"].get_xdata()) == HISTORY["epoch"]
    dots = [line for line in ax.lines if len(line.get_xdata()) == 1]
    assert [(dot.get_xdata()[0], dot.get_ydata()[0]) for dot in dots] == [(3, -2.5), (3, -2.3)]
    (shaded,) = ax.patches
    assert (shaded.get_x(), shaded.get_width()) == (0, 2)
    assert names(ax) == ["training loss", "validation loss", "warm-up"]
    assert ax.get_xlabel() == "epoch"


def test_runs_share_axes(ax):
    for label in ("DCCA", "DS-DCCA"):
        plot.training_curves(HISTORY, columns=["val_tc"], label=label, ax=ax)
    assert names(ax) == ["DCCA validation TC", "DS-DCCA validation TC"]
    assert not ax.patches


def test_histories_of_models_are_taken():
    from dscca import DCCA
    from report_problems import cloud

    x, y = cloud(300)
    model = DCCA(2, hidden=(8,), epochs=2, batch_size=100, random_state=0, device="cpu").fit(x, y)
    ax = plot.training_curves(model.history_, best_epoch=model.best_epoch_, ax=Figure().subplots())
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), model.history_["loss"])


def test_correlation_spectra(ax):
    plot.correlation_spectra({"CCA": [0.9, 0.4], "$DCCA$": np.array([0.95, 0.7, 0.1])}, ax=ax)
    first, second, bound = ax.lines
    assert list(first.get_xdata()) == [1, 2]
    assert list(second.get_ydata()) == [0.95, 0.7, 0.1]
    assert set(bound.get_ydata()) == {1}
    assert names(ax) == ["CCA", r"\$DCCA\$", "upper bound"]  # no formula


def test_recall_curve(ax):
    plot.recall_curve({"x to y": {"10": 80.0, "1": 20.0, "5": 60.0}}, ax=ax)
    (line,) = ax.lines
    assert list(line.get_xdata()) == [1, 5, 10]
    assert list(line.get_ydata()) == [20, 60, 80]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "5", "10"]
    assert ax.get_ylim() == (0, 100)


def test_variates(ax):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    y = x + rng.normal(size=(40, 2))
    labels = np.repeat(["a", "b"], 20)
    plot.variates(x, y, pair=2, labels=labels, ax=ax)
    assert names(ax) == ["a", "b"]
    drawn = np.vstack([points.get_offsets() for points in ax.collections])
    np.testing.assert_array_equal(drawn, np.column_stack([x[:, 1], y[:, 1]]))
    assert f"{np.corrcoef(x[:, 1], y[:, 1])[0, 1]:.3f}" in ax.get_title()


def test_scales(ax):
    points = np.random.default_rng(0).normal(size=(30, 2))
    plot.scales(points, ax=ax)
    (drawn,) = ax.collections
    np.testing.assert_array_equal(drawn.get_offsets(), points)
    assert len(ax.get_xticks()) == len(ax.get_yticks()) == 0


def test_many_classes_have_colours_of_their_own(ax):
    plot.scales(np.zeros((24, 2)), labels=np.arange(24), ax=ax)
    colours = [tuple(points.get_facecolor()[0]) for points in ax.collections]
    assert len(set(colours)) == 24


def test_ablation_bars(ax):
    plot.ablation_bars({"full": [2.0, 3.0, 4.0], "outputs": 1.5}, reference="full", ax=ax)
    assert [bar.get_width() for bar in ax.patches] == [3.0, 1.5]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["full", "outputs"]
    ((low, high), *_) = [s[:, 0] for s in ax.collections[0].get_segments()]
    assert (low, high) == (2.0, 4.0)  # the standard deviation is 1
    full, outputs = (bar.get_facecolor() for bar in ax.patches)
    assert not same_color(full, outputs)


def test_time_and_memory(ax):
    plot.time_and_memory({"CCA": 0.2, "DCCA": 20}, {"CCA": 300, "DCCA": 900}, ax=ax)
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines] == [
        (0.2, 300),
        (20, 900),
    ]
    assert [text.get_text() for text in ax.texts] == ["CCA", "DCCA"]
    assert ax.get_xscale() == "log"


def test_without_axes_pyplot_has_the_figure():
    pyplot.switch_backend("Agg")
    figure = pyplot.figure()
    assert plot.correlation_spectra({"CCA": [0.5]}) is figure.axes[0]
    pyplot.close(figure)


def test_with_axes_pyplot_is_left_alone(ax):
    before = pyplot.get_fignums()
    plot.correlation_spectra({"CCA": [0.5]}, ax=ax)
    assert pyplot.get_fignums() == before


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda ax: plot.correlation_spectra({}, ax=ax), "nothing to draw"),
        (lambda ax: plot.correlation_spectra([0.5], ax=ax), "must map names to values"),
        (lambda ax: plot.correlation_spectra({"CCA": [np.nan]}, ax=ax), "finite"),
        (lambda ax: plot.correlation_spectra({"CCA": [0.5]}, ax=[ax]), "one matplotlib Axes"),
        (lambda ax: plot.training_curves({"epoch": [1]}, ax=ax), "has no loss"),
        (lambda ax: plot.training_curves(HISTORY, best_epoch=9, ax=ax), "best_epoch=9 is none"),
        (lambda ax: plot.variates(np.eye(3), np.eye(3), pair=4, ax=ax), "pairs 1 to 3"),
        (lambda ax: plot.variates(np.eye(3), np.eye(4), ax=ax), "one shape"),
        (lambda ax: plot.scales(np.eye(3), ax=ax), "two columns"),
        (lambda ax: plot.scales(np.eye(2), labels=[1], ax=ax), "labels"),
        (lambda ax: plot.ablation_bars({"a": 1}, reference="b", ax=ax), "reference='b' is none"),
        (lambda ax: plot.time_and_memory({"a": 1}, {"b": 1}, ax=ax), "the same methods"),
        (lambda ax: plot.time_and_memory({"a": 0}, {"a": 1}, ax=ax), "above 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(ax, draw, message):
    with pytest.raises((ValueError, TypeError), match=message):
        draw(ax)
