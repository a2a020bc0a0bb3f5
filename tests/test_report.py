"""What reports hold: figures, tests of significance, pictures, and nothing that could run."""

import base64
import io
import json
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from dscca import LinearCCA
from dscca.experiments.jobs import Job
from dscca.experiments.records import Record, read_records, write_record
from dscca.report import Samples, neighbor_accuracy, report_models, report_records
from dscca.report.charts import safe
from dscca.report.page import embedded_json
from dscca.report.pictures import sprite_sheet
from dscca.report.records import compare
from experiment_problems import figures as measured
from experiment_problems import record_runs, small_spec
from report_problems import HOSTILE, cloud, digits, experiment, fitted, folds_of, record

go = pytest.importorskip("plotly.graph_objects")


class Page(HTMLParser):
    """The text of a page by element, and its attributes."""

    def __init__(self, path):
        super().__init__()
        self.tables, self.tags, self.text, self.script = [], [], [], ""
        self._cell, self._inside = None, None
        self.feed(path.read_text(encoding="utf-8"))
        self.payload = json.loads(self.script)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._inside = "payload" if ("id", "payload") in attributes else tag
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self._cell = True

    def handle_endtag(self, tag):
        self._inside = None
        if tag in ("td", "th"):
            self._cell = None

    def handle_data(self, data):
        if self._inside == "payload":
            self.script += data
        elif self._inside not in ("script", "style"):
            self.text.append(data)
        if self._cell:
            self.tables[-1][-1][-1] += data

    def titles(self):
        return [tag[1]["id"] for tag in self.tags if tag[0] == "section"]


@pytest.fixture(scope="module")
def models():
    return fitted()


@pytest.fixture(scope="module")
def model_page(models, tmp_path_factory):
    return Page(report_models(models, digits(), tmp_path_factory.mktemp("m") / "report.html"))


@pytest.fixture(scope="module")
def record_page(tmp_path_factory):
    return Page(report_records(experiment(), tmp_path_factory.mktemp("r") / "report.html"))


def test_sections(model_page, record_page):
    assert model_page.titles() == [
        *("results", "training", "correlations", "variates", "scales", "retrieval", "recall"),
        "made",
    ]
    assert record_page.titles() == [
        *("results", "training", "correlations", "recall", "ablations", "costs", "made"),
    ]


def test_paired_tests_stand_beside_the_figures(record_page):
    (columns, *rows) = record_page.tables[0]
    assert columns[:4] == ["method", "test TC", "DS-DCCA ahead by", "p"]
    row = next(row for row in rows if row[0] == "DCCA")
    theirs, ours = [2.0, 2.2, 2.1, 2.15], [2.4, 2.5, 2.45, 2.6]
    assert row[1] == f"{np.mean(theirs):.2f} ± {np.std(theirs, ddof=1):.2f}"
    assert row[2].startswith("+0.38")
    p = stats.ttest_rel(ours, theirs).pvalue
    assert row[3].split()[:2] == [f"{p:.2g}", "significant,"]
    assert "n=4" in row[3]
    reference = next(row for row in rows if row[0].startswith("DS-DCCA"))
    assert reference[2:4] == ["—", "—"]


def test_the_summary_names_the_best(record_page):
    summary = "Highest total correlation (TC) of at most 3, held out: DS-DCCA"
    (text,) = [text for text in record_page.text if text.startswith(summary)]
    assert text.endswith(" 2.49, followed by DCCA 2.11, CCA 1.11.")


def test_without_repeated_runs_there_is_no_test(tmp_path):
    page = Page(report_records([record("cca", 1.0), record("dcca", 2.0)], tmp_path / "r.html"))
    assert "p" not in page.tables[0][0]
    assert any("no repeated runs" in text for text in page.text)


def test_tests_pair_the_runs_that_both_methods_have():
    ours, theirs = [2.4, 2.5, 2.45, 2.6], [2.0, 2.2, 2.1, 2.15]
    runs = [*folds_of("ds-dcca", ours), *folds_of("dcca", theirs)]
    (comparison,) = compare([run for run in runs if run.job.fold != 1 or run.job.method != "dcca"])
    dcca = next(s for s in comparison.settings if s.method == "dcca")
    test = comparison.against_reference(dcca, "tc")
    expected = stats.ttest_rel([2.4, 2.45, 2.6], [2.0, 2.1, 2.15])
    assert test.p_value == pytest.approx(expected.pvalue)
    assert test.n_pairs == 3


def test_settings_are_chosen_on_validation_data_only():
    runs = [
        record("dcca", 9.0, validation=1.0, parameters={"reg": 0.1}),
        record("dcca", 2.0, validation=2.0, parameters={"reg": 0.2}),
    ]
    (comparison,) = compare(runs)
    assert [s.parameters["reg"] for s in comparison.settings] == [0.2]
    assert [s.title for s in comparison.others] == ["DCCA (reg=0.1)"]


def test_data_sets_are_kept_apart():
    runs = [record("cca", 1.0), record("cca", 2.0, dataset="mocha")]
    assert [c.title for c in compare(runs)] == ["mnist", "mocha"]


def test_failures_are_shown(record_page):
    table = next(t for t in record_page.tables if t[0] == ["method", "run", "error"])
    assert table[1][2] == f"ValueError: {HOSTILE}"


def test_how_it_was_made(record_page):
    facts = dict(record_page.tables[-2])
    assert facts["hardware of the runs"] == "a small computer"
    assert facts["versions of the runs"] == "python 3.12"
    assert facts["folds"] == "0; 1; 2; 3"


def test_figures_are_what_plotly_knows(model_page, record_page):
    figures = [
        figure for page in (model_page, record_page) for c in page.payload["charts"] for figure in c
    ]
    assert len(figures) > 10
    for figure in figures:
        go.Figure(figure)  # refuses properties that do not exist


def test_warmup_and_best_epoch_are_marked(record_page):
    figure = record_page.payload["charts"][0][0]
    (shaded,) = figure["layout"]["shapes"]
    assert (shaded["x0"], shaded["x1"]) == (0, 2)
    assert "DS-DCCA" in figure["layout"]["annotations"][0]["text"]
    dots = [trace for trace in figure["data"] if trace["mode"] == "markers"]
    assert [(dot["x"], dot["y"]) for dot in dots] == [([3], [2.3])] * 2


def test_correlations_are_those_of_the_models(model_page, models):
    samples = digits()
    figure = model_page.payload["charts"][1][0]
    for trace, model in zip(figure["data"], models.values(), strict=False):
        expected = model.canonical_correlations(samples.x, samples.y)
        np.testing.assert_allclose(trace["y"], expected, atol=1e-5)
    assert figure["data"][-1]["y"] == [1.0, 1.0]


def test_accuracies_in_scale_space_and_input_space(model_page, models):
    samples = digits()
    rows = next(t for t in model_page.tables if "in scale space" in t[0])[1:]
    distances = [
        models["ds-dcca"].scales(samples.x),
        samples.x,
    ]
    for cell, points in zip(rows[0][2:], distances, strict=True):
        apart = np.linalg.norm(points[:, None] - points[None], axis=2)
        np.fill_diagonal(apart, np.inf)
        votes = samples.labels[np.argsort(apart, axis=1)[:, :10]]
        found = np.array([np.bincount(v, minlength=10).argmax() for v in votes])
        assert float(cell.split()[0]) == pytest.approx(
            100 * (found == samples.labels).mean(), abs=1.0
        )


def test_retrieval_examples_are_right_and_wrong(model_page):
    verdicts = [tag[1]["class"] for tag in model_page.tags if tag[0] == "li"]
    assert verdicts.count("wrong") == 6
    assert verdicts[0] == "right"
    shown = [tag[1] for tag in model_page.tags if tag[0] == "canvas"]
    assert {tag["data-view"] for tag in shown} == {"x", "y"}


def test_nothing_is_left_out_silently(models, tmp_path):
    path = report_models(models, digits(), tmp_path / "r.html", max_points=40)
    page = Page(path)
    assert any("Of 120 samples 40, drawn at random, are shown." in text for text in page.text)
    assert len(page.payload["samples"]["names"]) == 40


def test_a_part_of_samples_stays_paired():
    samples = digits()
    part = samples.at_most(40, seed=1)
    for row in range(40):
        origin = list(samples.ids).index(part.ids[row])
        np.testing.assert_array_equal(part.x[row], samples.x[origin])
        np.testing.assert_array_equal(part.y[row], samples.y[origin])
        assert part.labels[row] == samples.labels[origin]


def test_samples_without_labels_or_pictures(tmp_path):
    x, y = cloud(60)
    model = LinearCCA(2).fit(x[:40], y[:40])
    captions = [f"caption {i}" for i in range(20)]
    path = report_models(
        {"my own": model}, Samples(x[40:], y[40:], captions=captions), tmp_path / "r.html"
    )
    page = Page(path)
    assert "scales" not in page.titles()
    assert any(text.startswith("caption ") for text in page.text)
    assert page.payload["samples"]["sheets"] == {}


def test_constant_scales_are_said_to_be(tmp_path):
    models = fitted(scaling="global")
    page = Page(report_models({"ds-dcca": models["ds-dcca"]}, digits(), tmp_path / "r.html"))
    assert any("the same for every sample" in text for text in page.text)


def test_the_page_asks_for_nothing(model_page, record_page):
    for page in (model_page, record_page):
        for tag, attributes in page.tags:
            for name in ("src", "href", "action"):
                target = attributes.get(name)
                assert target is None or target.startswith(("#", "data:")), (tag, target)
        policy = next(
            a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"
        )
        assert policy.startswith("default-src 'none'")
        assert "unsafe-inline" not in re.search("script-src[^;]*", policy).group()


def test_hostile_text_stays_text(models, tmp_path):
    n = 20
    samples = digits(n)
    hostile = Samples(
        samples.x,
        samples.y,
        title=HOSTILE,
        ids=[HOSTILE] * n,
        labels=np.array([HOSTILE, "b"] * (n // 2)),
        captions=[HOSTILE] * n,
    )
    path = report_models(
        {HOSTILE: models["cca"]}, hostile, tmp_path / "r.html", title=HOSTILE, command=HOSTILE
    )
    page = Page(path)
    assert not any(tag == "img" or "onerror" in attributes for tag, attributes in page.tags)
    assert [tag for tag, _ in page.tags].count("script") == 3
    assert page.payload["samples"]["captions"] == [HOSTILE] * n
    for figures in page.payload["charts"]:
        for figure in figures:
            drawn = json.dumps(figure)
            assert "<img" not in drawn
            assert "</script" not in drawn


@pytest.mark.parametrize("text", ["<b>", "</a>", "&amp;", "a\u2028b", "a\nb", "<a href='x'>"])
def test_plotly_reads_no_markup(text):
    assert not re.search("[<>\u2028\n]", safe(text))


@pytest.mark.parametrize("text", ["</script>", "<!--", "]]>", "\u2028", "\u2029", "é", "'\"\\"])
def test_embedded_json_is_the_same_value_and_ends_nothing(text):
    written = embedded_json({"key": text})
    assert json.loads(written) == {"key": text}
    assert not re.search("[<>&\u2028\u2029]", written)


def test_sprite_sheets_hold_every_picture():
    pictures = np.random.default_rng(0).uniform(size=(23, 5 * 3))
    sheet = sprite_sheet(pictures, (5, 3))
    content = base64.b64decode(sheet["source"].removeprefix("data:image/png;base64,"))
    image = np.asarray(Image.open(io.BytesIO(content)).convert("L")) / 255
    for row, picture in enumerate(pictures):
        line, column = divmod(row, sheet["columns"])
        shown = image[5 * line : 5 * line + 5, 3 * column : 3 * column + 3]
        np.testing.assert_allclose(shown, picture.reshape(5, 3), atol=0.04)


def test_neighbors_leave_the_sample_itself_out():
    points = np.array([[0.0], [0.1], [5.0], [5.1]])
    assert neighbor_accuracy(points, ["a", "a", "b", "b"], k=1) == 1
    assert neighbor_accuracy(points, ["a", "b", "a", "b"], k=1) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Samples(np.eye(3), np.eye(2)), "2 rows of y for 3 samples"),
        (lambda: Samples(np.eye(3), np.eye(3), labels=np.zeros(2)), "2 labels for 3"),
        (lambda: Samples(np.eye(2), np.eye(2), labels=np.array([1, np.nan])), "sample 1 is nan"),
        (lambda: Samples(np.eye(2), np.eye(2), labels=np.array([0.5, 1])), "sample 0 is 0.5"),
        (lambda: Samples(np.eye(3), np.eye(3), images=((2, 2), None)), "have 4 values"),
        (lambda: report_records([], "r.html"), "neither records nor models"),
        (lambda: report_models({}, digits(), "r.html"), "no models"),
    ],
)
def test_what_cannot_be_shown_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_missing_libraries_are_named_before_any_work(run_dscca, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    code, out, error = run_dscca("demo", "-o", tmp_path / "demo")
    assert code == 2
    assert 'this needs plotly, an extra: pip install "dscca[report]"' in error
    assert "Fitting" not in out


def test_command_on_records(run_dscca, tmp_path):
    for run in experiment():
        write_record(tmp_path / "runs", run)
    code, out, _ = run_dscca("report", tmp_path / "runs", "-o", tmp_path / "r.html")
    assert code == 0
    assert "r.html" in out
    assert "ablations" in Page(tmp_path / "r.html").titles()


def test_command_on_an_experiment(run_dscca, tmp_path):
    spec = small_spec(tmp_path)
    scores = {"CCA": 11, "NKCCA": 12, "DCCA": 15, "DS-DCCA": 16}

    def result(row, job):
        wobble = 0.1 * (job.fold or 0) ** 2 if row == "CCA" else 0.1 * (job.fold or 0)
        reg = job.parameters.get("reg")
        found = scores[row] + wobble - (reg == 0.01)  # which is worse on validation data
        return measured(found), measured(found)

    record_runs(spec, tmp_path / "runs", result)
    code, _, _ = run_dscca(
        *("report", tmp_path / "runs", "--spec", tmp_path / "small.yaml"),
        *("-o", tmp_path / "r.html"),
    )
    assert code == 0
    columns, *rows = Page(tmp_path / "r.html").tables[0]
    assert [row[0] for row in rows] == list(scores)
    assert columns[2] == "DS-DCCA ahead by"
    cca = next(row for row in rows if row[0] == "CCA")
    ours, theirs = 16 + 0.1 * np.arange(4), 11 + 0.1 * np.arange(4) ** 2
    assert cca[1] == f"{theirs.mean():.2f} ± {theirs.std(ddof=1):.2f}"
    assert cca[3].split()[0] == f"{stats.ttest_rel(ours, theirs).pvalue:.2g}"
    dcca = next(row for row in rows if row[0] == "DCCA")
    assert dcca[1].split()[0] == f"{15 + 0.15:.2f}"

    (tmp_path / "other.yaml").write_text("methods: {DCCA: {grid: {reg: [0.01]}}}\n")
    overlay = ("--with", tmp_path / "other.yaml", "--set", "title=Two of four")
    code, _, _ = run_dscca(
        *("report", tmp_path / "runs", "--spec", tmp_path / "small.yaml", *overlay),
        *("-o", tmp_path / "r.html"),
    )
    assert code == 0
    _, *rows = Page(tmp_path / "r.html").tables[0]
    # With that value there is only the candidate's run, on the standard split.
    assert next(row for row in rows if row[0] == "DCCA")[1].startswith("14.0")
    assert "Two of four" in (tmp_path / "r.html").read_text()


def test_no_other_row_stands_in_for_a_reference_without_runs(tmp_path):
    spec = small_spec(tmp_path)

    def result(row, job):
        tc = 10 + (job.fold or 0) / 8
        return "ValueError: no" if row == spec.reference else (measured(tc), measured(tc))

    state = record_runs(spec, tmp_path / "runs", result)
    page = report_records(read_records(tmp_path / "runs").values(), tmp_path / "r.html", spec=spec)
    assert state.cells["digits", "DS-DCCA"].failed == 5
    text = page.read_text()
    assert "There are no runs of DS-DCCA to test differences with." in text
    assert "ahead by" not in text


def test_command_on_a_model_and_arrays(run_dscca, tmp_path):
    x, y = cloud(80)
    LinearCCA(2).fit(x[:50], y[:50]).save(tmp_path / "model")
    np.save(tmp_path / "x.npy", x[50:])
    np.save(tmp_path / "y.npy", y[50:])
    (tmp_path / "labels.txt").write_text("a\nb\n" * 15)
    code, _, _ = run_dscca(
        *("report", tmp_path / "model", "--x", tmp_path / "x.npy", "--y", tmp_path / "y.npy"),
        *("--labels", tmp_path / "labels.txt", "-o", tmp_path / "r.html"),
    )
    assert code == 0
    page = Page(tmp_path / "r.html")
    expected = LinearCCA(2).fit(x[:50], y[:50]).score(x[50:], y[50:])
    assert page.tables[0][1][:2] == ["CCA", f"{expected:.2f}"]
    assert page.payload["samples"]["labels"] == ["a", "b"] * 15


def test_command_on_models_and_records(run_dscca, tmp_path, models):
    models["cca"].save(tmp_path / "cca")
    write_record(tmp_path, record("cca", 1.0, dataset="embedded-digits"))
    code, _, _ = run_dscca("report", tmp_path, "-o", tmp_path / "r.html", "--points", 50)
    assert code == 0
    page = Page(tmp_path / "r.html")
    assert {"variates", "costs"} <= set(page.titles())
    assert set(page.payload["samples"]["sheets"]) == {"x", "y"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "there is nothing at"),
        (["empty"], "neither records of runs"),
        (["model"], "give --x and --y, or --data NAME"),
        (["model", "--data", "mnist", "--x", "x.npy"], "not both"),
        (["model", "--x", "x.npy"], "give --x and --y"),
        (["model", "--x", "x.npy", "--y", "x.npy", "--x-image", "5"], "no shape of pictures"),
        (["model", "--x", "x.npy", "--y", "x.npy", "--x-image", "2x2"], "have 4 values"),
        (["damaged"], "no record of an experiment"),
        (["model", "--spec", "seeds"], "for a folder of records alone"),
        (["model", "--set", "seeds=2"], "name it by --spec"),
        (["model", "--data", "embedded-digits", "-o", "empty"], "empty is a folder"),
        (["model", "--data", "embedded-digits", "-o", "x.npy/r.html"], "is a file, not a folder"),
    ],
)
def test_command_refuses(run_dscca, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    x, _ = cloud(30)
    LinearCCA(2).fit(x, x[:, :4]).save("model")
    np.save("x.npy", x)
    (tmp_path / "empty").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "a.json").write_text('{"a": 1}')
    code, _, error = run_dscca("report", "-o", "r.html", *arguments)
    assert code == 2
    assert message in error
    assert not (tmp_path / "r.html").exists()


def test_several_data_sets_leave_the_choice_to_the_reader(run_dscca, tmp_path, models):
    models["cca"].save(tmp_path / "cca")
    write_record(tmp_path, record("cca", 1.0))
    write_record(tmp_path, Record(Job("mocha", "cca", {}), "failed", error="ValueError"))
    code, _, error = run_dscca("report", tmp_path, "-o", tmp_path / "r.html")
    assert code == 2
    assert "several data sets" in error
