"""Which jobs an experiment needs, and what its cells hold."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dscca.experiments.jobs import Job
from dscca.experiments.planning import best_candidate, plan
from dscca.experiments.records import Record
from runner_problems import SMALL, made_up, small_spec


def carried_out(spec, figures=made_up, **restriction):
    """Return all records that an experiment comes to, and its last plan."""
    records = {}
    while (state := plan(spec, records, **restriction)).pending:
        records |= {job.id: figures(job) for job in state.pending}
    return records, state


def test_candidates_are_tried_before_anything_that_depends_on_them():
    spec = small_spec()
    first = plan(spec, {}).pending
    assert [(j.method, j.fold) for j in first] == [
        ("cca", None),
        ("cca", 0),
        ("cca", 1),
        ("dcca", None),
        ("dcca", None),
    ]
    assert [j.parameters["reg"] for j in first[3:]] == [1e-4, 1e-2]
    records = {job.id: made_up(job, validation={"tc": j}) for j, job in enumerate(first)}
    second = plan(spec, records).pending
    assert [(j.method, j.fold) for j in second] == [
        ("dcca", 0),
        ("dcca", 1),
        ("ds-dcca", None),
        ("ds-dcca", 0),
        ("ds-dcca", 1),
    ]
    assert {j.parameters["reg"] for j in second} == {1e-2}
    assert [j.parameters.get("warmup") for j in second] == [None, None, 1, 1, 1]
    assert plan(spec, records).cells["a", "DS"].chosen == {"tc": {"reg": 1e-2}}


def test_a_row_waits_until_all_candidates_of_the_row_it_takes_from_are_there():
    spec = small_spec()
    first = plan(spec, {}).pending
    state = plan(spec, {job.id: made_up(job) for job in first[:-1]})
    assert state.pending == first[-1:]
    assert state.cells["a", "DCCA"].reason == "1 of 2 candidates were tried"
    assert state.cells["a", "DS"].reason == "waits for the choice of DCCA"


def test_test_figures_take_no_part_in_a_choice():
    spec = small_spec(rules=["each"])

    def misleading(job):
        return made_up(job, test={"tc": -made_up(job).validation["tc"], "recall_sum": 0.0})

    chosen = [
        {key: cell.chosen for key, cell in carried_out(spec, figures)[1].cells.items()}
        for figures in (made_up, misleading)
    ]
    assert chosen[0] == chosen[1]


def test_each_measure_may_have_a_choice_of_its_own():
    spec = small_spec(rules=["each", "recall_sum"])

    def opposed(job):
        reg = job.parameters.get("reg")
        return made_up(job, validation={"tc": -reg, "recall_sum": reg} if reg != "auto" else None)

    _, state = carried_out(spec, opposed)
    cell = state.cells["a", "DS"]
    assert cell.chosen == {"tc": {"reg": 1e-4}, "recall_sum": {"reg": 1e-2}}
    regs = {
        (measure, rule): {record.job.parameters["reg"] for record in cell.runs(measure, rule)}
        for measure in spec.measures
        for rule in spec.rules
    }
    assert regs == {
        ("tc", "each"): {1e-4},
        ("recall_sum", "each"): {1e-2},
        ("tc", "recall_sum"): {1e-2},
        ("recall_sum", "recall_sum"): {1e-2},
    }


def test_failed_candidates_are_left_out_of_the_choice():
    spec = small_spec()
    first = plan(spec, {}).pending
    records = {job.id: made_up(job) for job in first}
    bad = max(first[3:], key=lambda job: records[job.id].validation["tc"])
    records[bad.id] = Record(bad, "failed", "ValueError: no")
    cell = plan(spec, records).cells["a", "DCCA"]
    assert cell.chosen["tc"]["reg"] != bad.parameters["reg"]
    assert (cell.failed, cell.tried, cell.candidates) == (1, 2, 2)
    records |= {job.id: Record(job, "failed", "ValueError: no") for job in first[3:]}
    cell = plan(spec, records).cells["a", "DCCA"]
    assert cell.chosen == {}
    assert cell.reason == "2 of 2 candidates were tried, and all failed"


def test_seeds_change_what_is_random_only():
    records, state = carried_out(small_spec(repeat="seeds", seeds=3))
    dcca = state.cells["a", "DCCA"].runs("tc", "tc")
    assert [r.job.parameters["random_state"] for r in dcca] == [0, 1, 2]
    assert dcca[0] is state.cells["a", "DCCA"].single("tc", "tc")
    cca = state.cells["a", "CCA"].runs("tc", "tc")
    assert [r.job.id for r in cca] == [cca[0].job.id] * 3
    assert len(records) == 1 + (2 + 2) + 3


def test_search_settings_hold_for_candidates_only():
    data = {"a": {**SMALL["data"]["a"], "search": {"epochs": 1, "warmup": 0}}}
    spec = small_spec(data=data)
    first = plan(spec, {}).pending
    assert [j.parameters.get("epochs") for j in first] == [None, None, None, 1, 1]
    _, state = carried_out(spec)
    runs = state.cells["a", "DCCA"].runs("tc", "tc")
    assert [r.job.parameters["epochs"] for r in runs] == [2, 2]
    assert state.cells["a", "DCCA"].single("tc", "tc").job.parameters["epochs"] == 2


def test_rows_and_data_can_be_asked_for_alone():
    _, state = carried_out(small_spec(), only=["DS"])
    assert {job.method for job in carried_out(small_spec(), only=["CCA"])[1].pending} == set()
    # The row whose choice is taken comes along.
    assert set(state.cells) == {("a", "DS"), ("a", "DCCA")}
    assert plan(small_spec(), {}, data=[]).cells == {}


def test_missing_and_failed_runs_are_said():
    spec = small_spec()
    records, _ = carried_out(spec)
    fold = next(r for r in records.values() if r.job.method == "cca" and r.job.fold == 1)
    without = {k: v for k, v in records.items() if k != fold.id}
    assert plan(spec, without).cells["a", "CCA"].reason == "1 of 3 runs are missing"
    failed = {**records, fold.id: replace(fold, status="failed", error="E: x")}
    assert plan(spec, failed).cells["a", "CCA"].reason == "1 of 3 runs failed: E: x"


@given(st.lists(st.one_of(st.none(), st.integers(-3, 3)), max_size=8))
def test_best_candidate_is_the_first_of_the_best(figures):
    candidates = []
    for i, figure in enumerate(figures):
        job = Job("mnist", "dcca", {"reg": float(i)})
        record = Record(job, "failed", "E") if figure is None else made_up(job, {"tc": figure})
        candidates.append(({"reg": i}, record))
    found = best_candidate(candidates, "tc")
    known = [figure for figure in figures if figure is not None]
    if not known:
        assert found is None
    else:
        assert found[0] == {"reg": figures.index(max(known))}


def test_a_job_is_the_hash_of_all_that_changes_its_result():
    job = Job("mnist", "dcca", {"reg": 1e-4, "hidden": [8, 8]}, None, {"sizes": [1, 2, 3]})
    same = Job("mnist", "dcca", {"hidden": (8, 8), "reg": 0.0001}, None, {"sizes": (1, 2, 3)})
    assert job.id == same.id
    assert Job.from_json(job.to_json()).id == job.id
    others = [
        replace(job, dataset="xrmb"),
        replace(job, method="ds-dcca"),
        replace(job, fold=0),
        replace(job, options={}),
        replace(job, parameters={**job.parameters, "reg": 1e-3}),
    ]
    assert len({job.id, *(other.id for other in others)}) == 6


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_job_cannot_hold_what_json_cannot(value):
    with pytest.raises(ValueError, match="JSON"):
        _ = Job("mnist", "dcca", {"reg": value}).id


def test_a_run_that_serves_twice_is_counted_once():
    spec = small_spec(repeat="seeds", seeds=3, rules=["each"])
    cell = plan(spec, {}).cells["a", "CCA"]
    assert cell.reason == "1 of 1 runs are missing"
    _, state = carried_out(spec)
    assert len(state.cells["a", "DS"].needed) <= 3 * len(spec.criteria)
