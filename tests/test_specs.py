"""The specs of the paper's tables: what they search, what they train, what they repeat of it."""

import re
from datetime import date
from functools import partial

import numpy as np
import pytest

from dscca.deep.layers import MLP, DynamicLinear
from dscca.deep.sizes import widened, widths_per_view
from dscca.experiments.spec import SpecError, load_spec, parse_spec, spec_names
from dscca.methods import METHODS
from dscca.values import merged, parse_yaml
from runner_problems import SMALL

PER_VIEW = {"mnist": (392, 392), "xrmb": (273, 112), "flickr8k": (2048, 300), "mocha": (273, 98)}
WIDE = {"DCCA wide 2": (1,), "DCCA wide 1 and 2": (0, 1)}


def gap_closed(bound, reference, other):
    return 100 * (reference - other) / (bound - other)


@pytest.mark.parametrize("name", spec_names())
def test_every_spec_can_be_loaded(name):
    spec = load_spec(name)
    assert spec.reference in spec.methods
    assert all(deviation["why"] for deviation in spec.deviations)


@pytest.mark.parametrize("name", ["total_correlation", "retrieval"])
def test_grids_are_those_of_the_methods(name):
    """What a spec searches beyond the paper's own values is listed here."""
    beyond = {("ncca", "n_neighbors"), ("ncca", "width"), ("l0-cca", "reduction")}
    beyond |= {("fkcca", "reg"), ("nkcca", "reg"), ("cca", "reg")}
    for row in load_spec(name).methods.values():
        for choices in row.choices.values():
            for parameter, values in choices.grid.items():
                if (row.method.name, parameter) not in beyond:
                    paper = [
                        list(v) if isinstance(v, tuple) else v for v in row.method.grid[parameter]
                    ]
                    assert values == paper
            searched = {*choices.grid, *choices.takes}
            assert searched >= set(row.method.grid) or row.method.name == "cca"


def test_linear_cca_tries_all_pairs_of_the_papers_regularisers():
    grid = load_spec("retrieval").methods["CCA"].choices["flickr8k"].grid["reg"]
    values = next(m for m in METHODS if m.name == "cca").grid["reg"]
    expected = sorted((a, b) for a in values for b in values)
    np.testing.assert_allclose(sorted(map(tuple, grid)), expected)


def encoder_sizes(data, scale=None, **last):
    """Parameters of both encoders, with the hidden widths of a data set or those given."""
    hidden = last.pop("hidden", data.networks["hidden"])
    layer = partial(DynamicLinear, scale_hidden=scale, **last) if scale else None
    sizes = []
    for features, widths in zip(PER_VIEW[data.key], widths_per_view("hidden", hidden), strict=True):
        own = {"last": layer} if layer else {}
        encoder = MLP(features, widths, data.parameters["n_components"], **own)
        sizes.append(sum(p.numel() for p in encoder.parameters()))
    return sizes


@pytest.mark.parametrize("key", PER_VIEW)
def test_ablation_compares_networks_of_equal_size(key):
    spec = load_spec("ablation")
    data = spec.data[key]
    full = encoder_sizes(
        data, tuple(spec.methods["DS-DCCA"].choices[key].parameters["scale_hidden"])
    )
    for row, layers in WIDE.items():
        hidden = spec.methods[row].choices[key].parameters["hidden"]
        assert encoder_sizes(data, hidden=hidden) == pytest.approx(full, rel=1e-3)
        original = widths_per_view("hidden", data.networks["hidden"])
        expected = [
            widened(features, widths, data.parameters["n_components"], target, layers)
            for features, widths, target in zip(PER_VIEW[key], original, full, strict=True)
        ]
        assert list(widths_per_view("hidden", hidden)) == expected
    outputs = spec.methods["DS-DCCA scaling outputs"].choices[key].parameters["scale_hidden"]
    for view, widths in enumerate(widths_per_view("scale_hidden", outputs)):
        size = encoder_sizes(data, widths, scaling="outputs")[view]
        assert size == pytest.approx(full[view], rel=1e-3)


def test_published_figures_agree_with_what_the_paper_says_of_them():
    """Its text gives the gap that DS-DCCA closes to the second best, its ablation a column."""
    spec = load_spec("total_correlation")
    closed = {}
    for key, rows in spec.published.items():
        means = sorted(row["tc"]["mean"] for row in rows.values())
        closed[key] = gap_closed(spec.data[key].upper_bound, means[-1], means[-2])
        assert rows["DS-DCCA"]["tc"]["mean"] == means[-1]
    assert closed == pytest.approx({"mnist": 11.7, "xrmb": 65.9, "flickr8k": 24.0}, abs=0.2)
    ablation = load_spec("ablation")
    for key, rows in ablation.published.items():
        full = rows["DS-DCCA"]["tc"]["mean"]
        for figures in (row["tc"] for row in rows.values() if "gap" in row["tc"]):
            computed = gap_closed(ablation.data[key].upper_bound, full, figures["mean"])
            assert figures["gap"] == pytest.approx(computed, abs=1.0)


@pytest.mark.parametrize("name", ["seeds", "retrieval_seeds"])
def test_published_means_lie_between_minimum_and_maximum(name):
    spec = load_spec(name)
    for rows in spec.published.values():
        for row, measures in rows.items():
            for figures in measures.values():
                assert figures["min"] <= figures["mean"] <= figures["max"]
                assert ("p" in figures) == (row != spec.reference)


def test_seeds_are_those_of_the_rows_over_folds():
    seeds, folds = load_spec("seeds"), load_spec("total_correlation")
    assert seeds.methods == folds.methods
    assert (seeds.repeat, seeds.seeds) == ("seeds", 5)
    assert set(folds.deviations[0]) == {"what", "why"}
    assert [d for d in seeds.deviations if d in folds.deviations] == list(folds.deviations)
    assert len(seeds.deviations) > len(folds.deviations)


def test_a_spec_may_extend_a_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("extends: ablation\ntitle: Mine\ndata: {mnist: {networks: {epochs: 5}}}\n")
    spec = load_spec(str(path))
    assert (spec.name, spec.title) == ("mine", "Mine")
    assert spec.data["mnist"].networks == {"hidden": [800, 800], "epochs": 5, "batch_size": 750}
    path.write_text(f"extends: {path}\n")
    with pytest.raises(SpecError, match="extends goes in a circle"):
        load_spec(str(path))
    path.write_text("extends: magic\n")
    with pytest.raises(SpecError, match="no spec magic: there are ablation, "):
        load_spec(str(path))


def test_a_file_that_is_extended_lies_beside_the_one_that_says_so(tmp_path):
    (tmp_path / "theirs.yaml").write_text("extends: ablation\ntitle: Theirs\n")
    (tmp_path / "mine.yaml").write_text("extends: theirs.yaml\npaper: none\n")
    spec = load_spec(str(tmp_path / "mine.yaml"))
    assert (spec.title, spec.paper) == ("Theirs", "none")
    (tmp_path / "theirs.yaml").write_text(f"extends: ../{tmp_path.name}/mine.yaml\n")
    with pytest.raises(SpecError, match="extends goes in a circle"):
        load_spec(str(tmp_path / "mine.yaml"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"deviations: 3", "with .*deviations must be a list of entries with what and why"),
        (b"deviations: text", "with .*deviations must be a list of entries with what and why"),
        (b"title: \xff", "over.yaml is no YAML file: 'utf-8' codec"),
        (b"methods: null", "with .*methods is missing"),
    ],
)
def test_an_overlay_that_cannot_be_read_is_refused(tmp_path, content, problem):
    (tmp_path / "over.yaml").write_bytes(content)
    with pytest.raises(SpecError, match=problem):
        load_spec("ablation", overlays=[tmp_path / "over.yaml"])


def test_mappings_may_be_merged_into_others():
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n"
    assert parse_yaml(text)["b"] == {"x": 1, "y": 3}


def test_a_row_may_take_several_values_of_another(tmp_path):
    both = {"methods.DCCA wide 2.takes": {"reg": "DS-DCCA"}}
    one_more = {"methods.DCCA wide 1 and 2.takes": {"reg": "DS-DCCA", "hidden": "DCCA wide 2"}}
    load_spec("ablation", overrides={**both, **one_more})
    with pytest.raises(SpecError, match="waits for it"):
        load_spec("ablation", overrides={**both, "methods.DS-DCCA.takes": {"reg": "DCCA wide 2"}})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"reference": ["DS"]}, "reference has the value ['DS']; allowed are CCA, DCCA, DS"),
        ({"gap": "no"}, "gap must be true or false; it is 'no'"),
        ({"title": ""}, "title is missing"),
        ({"data": {"a": {"upper_bound": "50"}}}, "data.a.upper_bound must be a number; it is '50'"),
        ({"data": {"a": {"title": 7}}}, "data.a.title must be text; it is 7"),
        ({"deviations": [{"what": 1, "why": "x"}]}, "deviations[0].what must be text; it is 1"),
        (
            {"data": {"a": {"networks": {"hidden": [8, float("nan")]}}}},
            "data.a.networks.hidden[1] must be a finite number; it is nan",
        ),
        (
            {"data": {"a": {"options": {"sizes": date(2020, 1, 1)}}}},
            "data.a.options.sizes must be text, a number, a list or a mapping; it is datetime.date",
        ),
        (
            {"data": {"a": {"options": {"sizs": [9, 9, 9]}}}},
            "data.a.options has the key 'sizs'; allowed are correlations, widths, sizes",
        ),
        (
            {"published": {"a": {"CCA": {"tc": float("inf")}}}},
            "published.a.CCA.tc must be a finite number; it is inf",
        ),
        (
            {"methods": {"DS": {"takes": {"dropout": "DCCA"}}}},
            "methods.DS.takes.dropout is not given on a by DCCA, which gives reg, n_components, ",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_with_its_key(changes, problem):
    with pytest.raises(SpecError, match=re.escape(f"small.yaml: {problem}")):
        parse_spec(merged(SMALL, changes), "small", "small.yaml")
