"""Small experiments whose records are written by hand."""

import re

from dscca.experiments.planning import plan
from dscca.experiments.records import Record, read_records, write_record
from dscca.experiments.spec import RECALLS, load_spec

SPEC = """
title: Total correlation
paper: Table 1
measures: [tc]
rules: [tc]
repeat: folds
reference: DS-DCCA
gap: true
data:
  digits:
    title: Digits
    dataset: embedded-digits
    folds: 4
    upper_bound: 20
    parameters: {n_components: 20}
methods:
  CCA: {method: cca}
  NKCCA: {method: nkcca}
  DCCA: {method: dcca, grid: {reg: [1e-4, 1e-2]}}
  DS-DCCA: {method: ds-dcca}
published:
  digits:
    CCA: {tc: {mean: 11.5, std: 0.25, p: 1.5e-5}}
    DCCA: {tc: {mean: 15.25, std: 0.5, p: 0.0123}}
    DS-DCCA: {tc: 16.0}
"""


def small_spec(folder, published=True, **changes):
    """A spec of four methods on the digits; `changes` replace lines of its text by their key."""
    text = SPEC if published else SPEC[: SPEC.index("published:")]
    for key, value in changes.items():
        text = re.sub(rf"^(\s*){key}:.*$", rf"\g<1>{key}: {value}", text, flags=re.MULTILINE)
    path = folder / "small.yaml"
    path.write_text(text)
    return load_spec(str(path))


def figures(tc, recalls=(0.0,) * 6):
    """What a record holds of validation or test samples."""
    return {"tc": tc, **dict(zip(RECALLS, recalls, strict=True)), "recall_sum": sum(recalls)}


def record_runs(spec, folder, result):
    """Write records until a spec needs none; `result` gives those of (row, job), or None for none.

    It returns a pair of validation and test figures, or a text, the error of a job that failed.
    """
    rows = {row.method.name: row.name for row in spec.methods.values()}
    left_out = set()
    while True:
        pending = [j for j in plan(spec, read_records(folder)).pending if j.id not in left_out]
        if not pending:
            return plan(spec, read_records(folder))
        for job in pending:
            found = result(rows[job.method], job)
            if found is None:
                left_out.add(job.id)
            elif isinstance(found, str):
                write_record(folder, Record(job, "failed", error=found))
            else:
                write_record(folder, Record(job, "done", validation=found[0], test=found[1]))
