import os
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

try:
    import beartype  # noqa: F401
except ImportError:  # a machine where nothing can be installed: shapes go unchecked there
    pass
else:
    # The shapes in these modules' annotations are checked on every call.
    install_import_hook(
        [
            "dscca.linalg",
            "dscca.moments",
            "dscca.polar",
            "dscca.regularization",
            "dscca.deep.losses",
            "dscca.deep.cca_layer",
        ],
        "beartype.beartype",
    )

settings.register_profile("dscca", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("dscca")


def pytest_collection_modifyitems(items):
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session")
def real_data():
    """The folder of real data, whose tests are skipped without it."""
    folder = os.environ.get("DSCCA_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("set DSCCA_DATA to the folder of real data to run this")
    return Path(folder)


@pytest.fixture
def recorded(monkeypatch):
    """A list to which every deep fit in the test adds the record of its training."""
    from deep_problems import RecordingTrainer

    runs = []
    monkeypatch.setattr(RecordingTrainer, "runs", runs)
    monkeypatch.setattr("dscca.deep.fitting.Trainer", RecordingTrainer)
    return runs


@pytest.fixture
def run_dscca(monkeypatch, capfd):
    """Run ``dscca`` with arguments; return exit code, standard output and standard error."""
    from dscca import cli

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["dscca", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capfd.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return call
