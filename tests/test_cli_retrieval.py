"""``dscca index`` and ``dscca evaluate`` on files; errors are one line."""

import json
import sys

import numpy as np
import pytest

from dscca import CrossModalIndex
from dscca.metrics import evaluate_retrieval
from retrieval_problems import fitted

NASTY = ["[bold red]loud[/bold red]", "[/nothing]", "\x1b[31mred", "../../up", "a b", "7"]


@pytest.fixture
def run(monkeypatch, run_dscca):
    """Run ``dscca`` with arguments on a wide terminal."""
    monkeypatch.setenv("COLUMNS", "200")
    return run_dscca


@pytest.fixture
def files(tmp_path, monkeypatch):
    model, X, y = fitted()
    model.save(tmp_path / "model")
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", y)
    np.save(tmp_path / "few.npy", y[: len(NASTY)])
    np.save(tmp_path / "narrow.npy", y[:, :3])
    (tmp_path / "few.txt").write_text("\n".join(NASTY) + "\n")
    (tmp_path / "names.txt").write_text("".join(f"caption {row}\n" for row in range(300)))
    (tmp_path / "more.jsonl").write_text(
        "".join(json.dumps({"text": f"[red]{row}"}) + "\n" for row in range(300))
    )
    (tmp_path / "twice.txt").write_text("a\n" * 300)
    (tmp_path / "broken.jsonl").write_text("{}\n{\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


BUILD = ["index", "build", "model", "index", "--x", "x.npy", "--y", "y.npy"]
NAMED = [*BUILD, "--y-ids", "names.txt", "--y-metadata", "more.jsonl"]


@pytest.mark.parametrize(
    "backend",
    [
        ["exact"],
        ["faiss", "-p", "kind=flat"],
        ["milvus"],
    ],
)
def test_build_search_add_remove_info(run, files, backend):
    if backend[0] != "exact":
        pytest.importorskip({"faiss": "faiss", "milvus": "milvus_lite"}[backend[0]])
    code, out, error = run(*NAMED, "--backend", *backend)
    assert (code, error) == (0, "")
    assert "300 items of view x, 300 items of view y" in out
    code, out, _ = run("index", "search", "index", "--x", "x.npy", "-k", 3, "--json")
    model, X, y = fitted()
    direct = CrossModalIndex(model).add(y, [f"caption {row}" for row in range(300)], view="y")
    expected = [[hit.id for hit in one] for one in direct.search(X, 3, view="x")]
    found = json.loads(out)
    assert [[hit["id"] for hit in one] for one in found] == expected
    assert found[0][0]["metadata"] == {"text": f"[red]{expected[0][0].split()[1]}"}
    code, out, _ = run("index", "search", "index", "--id", 7, "--view", "x", "-k", 3, "--json")
    assert [hit["id"] for hit in json.loads(out)[0]] == expected[7]
    code, out, _ = run("index", "add", "index", "--y", "few.npy", "--y-ids", "few.txt")
    assert "306 items of view y" in out
    code, out, _ = run("index", "remove", "index", "[/nothing]", "7", "--view", "y")
    assert "304 items of view y" in out
    code, out, _ = run("index", "info", "index", "--json")
    facts = json.loads(out)
    assert (facts["items of x"], facts["items of y"], facts["backend"]) == (300, 304, backend[0])
    code, out, _ = run("index", "info", "index")
    assert "LinearCCA" in out


def test_text_from_outside_is_shown_as_it_is(run, files):
    run("index", "build", "model", "index", "--y", "few.npy", "--y-ids", "few.txt")
    code, out, error = run("index", "search", "index", "--x", "x.npy", "-k", 6)
    assert (code, error) == (0, "")
    for name in ("[bold red]loud[/bold red]", "[/nothing]", r"\x1b[31mred", "../../up"):
        assert name in out
    assert "\x1b[31m" not in out
    same = ["--id", "[/nothing]", "--view", "y", "--among", "y"]
    code, out, _ = run("index", "search", "index", *same, "-k", 1)
    assert code == 0
    assert "[/nothing]" in out
    assert not (files.parent / "up").exists()


def test_build_replaces_an_index(run, files):
    run(*BUILD)
    run("index", "build", "model", "index", "--y", "few.npy")
    assert CrossModalIndex.load("index").size("y") == len(NASTY)


def test_a_failed_build_in_milvus_can_be_repeated(run, files):
    pytest.importorskip("milvus_lite", reason="needs dscca[milvus]")
    code, _, error = run(*BUILD, "--y-ids", "twice.txt", "--backend", "milvus")
    assert (code, error.count("\n")) == (2, 1)
    assert "299 of 300 ids are given more than once" in error
    code, out, _ = run(*NAMED, "--backend", "milvus")
    assert "300 items of view y" in out
    code, _, error = run(*NAMED, "--backend", "milvus")
    assert (code, error.count("\n")) == (2, 1)
    assert "has a collection dscca_x already" in error


def test_evaluate(run, files):
    model, X, y = fitted()
    expected = evaluate_retrieval(model.embed(X), model.embed_y(y))
    code, out, _ = run("evaluate", "model", "x.npy", "y.npy", "--json")
    assert code == 0
    assert json.loads(out) == expected.to_dict(orient="index")
    code, out, _ = run("evaluate", "model", "x.npy", "y.npy")
    for direction in ("x to y", "y to x"):
        for k in (1, 5, 10):
            assert f"{100 * expected.loc[direction, f'R@{k}']:.1f}" in out
    np.save("five.npy", np.repeat(y, 5, axis=0))
    np.save("groups.npy", np.repeat(np.arange(300), 5))
    code, out, _ = run(
        "evaluate", "model", "x.npy", "five.npy", "--y-groups", "groups.npy", "-k", 20, "--json"
    )
    both = json.loads(out)
    assert both["x to y"]["items"] == both["y to x"]["queries"] == 1500
    single = evaluate_retrieval(model.embed(X), model.embed_y(y), ks=[20])
    assert both["y to x"]["R@20"] == single.loc["y to x", "R@20"]


def test_fit_indexes_items_by_the_names_in_their_files(run, files):
    names = [f"[b]{row}.jpg" for row in range(300)]
    for view in "xy":
        np.savez(f"{view}.npz", features=np.load(f"{view}.npy"), ids=np.array(names))
    code, out, err = run(
        "fit", "x.npz", "y.npz", "-n", 4, "-p", "reg=0.1", "-o", "m", "--index", "i"
    )
    assert (code, err) == (0, "")
    assert "300 items of view x, 300 items of view y" in out
    code, out, _ = run("index", "search", "i", "--id", names[7], "--view", "x", "-k", 3, "--json")
    opened = CrossModalIndex.load("i")
    assert [hit["id"] for hit in json.loads(out)[0]] == [
        hit.id for hit in opened.search(np.load("x.npy")[7], k=3, view="x")
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["index", "build", "model", "new"], "give items"),
        (["index", "build", "nothing", "new", "--x", "x.npy"], "no model at"),
        (["index", "build", "model", "new", "--x", "y.npy"], "5 features"),
        (["index", "build", "model", "new", "--x", "x.npy", "--y-ids", "few.txt"], "need --y"),
        (["index", "build", "model", "new", "--x", "x.npy", "--x-ids", "few.txt"], "6 ids"),
        (["index", "build", "model", "new", "--x", "x.npy", "--x-ids", "twice.txt"], "than once"),
        (["index", "build", "model", "new", "--x", "x.npy", "--x-ids", "no.txt"], "No such file"),
        (
            ["index", "build", "model", "new", "--x", "x.npy", "--x-metadata", "broken.jsonl"],
            "broken.jsonl, line 2",
        ),
        (["index", "build", "model", "new", "--x", "x.npy", "-p", "kind=ivf"], "no option kind"),
        (["index", "build", "model", "new", "--x", "x.npy", "-p", "kind"], "NAME=VALUE"),
        (["index", "add", "index", "--y", "few.npy"], "needs --y-ids"),
        (["index", "add", "index", "--y", "y.npy", "--y-ids", "names.txt"], "in the index already"),
        (["index", "add", "index"], "--x or --y"),
        (["index", "add", "nothing", "--y", "few.npy", "--y-ids", "few.txt"], "no index at"),
        (["index", "remove", "index", "caption 1", "other", "--view", "y"], "'other'"),
        (["index", "search", "index", "--x", "y.npy"], "5 features"),
        (["index", "search", "index", "--x", "x.npy", "-k", "400"], "above the 300 items"),
        (["index", "search", "index"], "one of --x, --y and --id"),
        (["index", "search", "index", "--id", "caption 1"], "--id and --view go together"),
        (["index", "search", "index", "--id", "77777", "--view", "x"], "77777"),
        (["index", "search", "broken", "--x", "x.npy"], "no whole index"),
        (["index", "info", "nothing"], "no index at"),
        (["evaluate", "model", "x.npy", "narrow.npy"], "3 features"),
        (["evaluate", "model", "x.npy", "few.npy", "-k", "1"], "pass groups"),
        (["evaluate", "model", "x.npy", "y.npy", "-k", "301"], "only 300 items"),
        (["evaluate", "model", "x.npy", "y.npy", "--x-groups", "few.npy"], "300 whole numbers"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(run, files, arguments, message):
    run(*NAMED)
    before = (files / "index" / "index.safetensors").read_bytes()
    (files / "broken").mkdir()
    (files / "broken" / "index.safetensors").write_bytes(before[:100])
    code, _, error = run(*arguments)
    assert (code, error.count("\n")) == (2, 1)
    assert message in error
    assert not (files / "new").exists()
    assert (files / "index" / "index.safetensors").read_bytes() == before


def test_a_missing_extra_is_one_line(run, files, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    code, _, error = run(*BUILD, "--backend", "faiss")
    assert (code, error.count("\n")) == (2, 1)
    assert 'pip install "dscca[faiss]"' in error


@pytest.mark.parametrize(
    "command", [["index"], *(["index", c] for c in ("build", "add", "remove", "search", "info"))]
)
def test_help(run, command):
    code, out, _ = run(*command, "--help")
    assert code == 0
    assert "Usage" in out
    assert run("evaluate", "--help")[0] == 0
