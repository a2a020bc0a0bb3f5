"""The paper's experiments: specs, the runner that carries them out, and their tables.

>>> from dscca import experiments
>>> spec = experiments.load_spec("total_correlation")
>>> spec.data["mnist"].folds, spec.published["mnist"]["DS-DCCA"]["tc"]["mean"]
(7, 47.5)
"""

from dscca.experiments.jobs import Job
from dscca.experiments.planning import Cell, Plan, plan
from dscca.experiments.pool import LocalPool
from dscca.experiments.ray_pool import RayPool
from dscca.experiments.records import Record, read_records, write_record
from dscca.experiments.runner import Runner
from dscca.experiments.running import run_job
from dscca.experiments.spec import Spec, load_spec, spec_names
from dscca.experiments.tables import make_tables

__all__ = [
    "Cell",
    "Job",
    "LocalPool",
    "Plan",
    "RayPool",
    "Record",
    "Runner",
    "Spec",
    "load_spec",
    "make_tables",
    "plan",
    "read_records",
    "run_job",
    "spec_names",
    "write_record",
]
