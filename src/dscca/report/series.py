"""What curves are drawn from, whether it comes from records or from fitted models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dscca.report.analysis import ModelView
from dscca.report.records import Comparison, Setting, mean_and_spread

Spread = tuple[float, float | None]


@dataclass(frozen=True)
class Series:
    """One method of one data set."""

    title: str
    history: Mapping[str, Sequence[float | None]] | None
    warmup: int | None
    best_epoch: int | None
    correlations: Sequence[float]
    recalls: Mapping[str, Mapping[Any, float]]
    seconds: Spread | None = None
    memory_mb: Spread | None = None

    @property
    def training(self) -> dict[str, Any]:
        """What a chart of training takes."""
        return {
            "title": self.title,
            "history": self.history,
            "warmup": self.warmup,
            "best_epoch": self.best_epoch,
        }


@dataclass(frozen=True)
class Group:
    """The methods of one data set."""

    title: str
    series: Sequence[Series]


def groups_of_records(comparisons: Sequence[Comparison]) -> list[Group]:
    """Return the run that is shown of every method's best setting."""
    return [
        Group(comparison.title, [_of_setting(setting) for setting in comparison.settings])
        for comparison in comparisons
        if comparison.settings
    ]


def group_of_models(title: str, views: Sequence[ModelView]) -> Group:
    """Return the same of fitted models, on the report's samples."""
    return Group(title, [_of_model(view) for view in views])


def _of_setting(setting: Setting) -> Series:
    run = setting.shown
    return Series(
        setting.title,
        run.history,
        run.warmup,
        run.best_epoch,
        run.correlations,
        run.recall_curve,
        _spread(setting, "fit_seconds"),
        _spread(setting, "peak_memory_mb"),
    )


def _spread(setting: Setting, name: str) -> Spread | None:
    values = {i: value for i, run in enumerate(setting.runs) if (value := getattr(run, name))}
    return mean_and_spread(values) if values else None


def _of_model(view: ModelView) -> Series:
    history = getattr(view.model, "history_", None)
    return Series(
        view.title,
        None if history is None else history.to_dict("list"),
        getattr(view.model, "warmup", None) or None,
        getattr(view.model, "best_epoch_", None),
        [float(value) for value in view.correlations],
        view.recalls,
    )
