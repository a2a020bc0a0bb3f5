"""What README and documentation show runs as written, and leads where it says."""

import re
import tomllib
from importlib import import_module
from types import ModuleType

import numpy as np
import pytest
import typer
import yaml

import dscca
from dscca.cli import app
from dscca.methods import find_method
from feature_problems import folder_of_pictures, small_resnet, word2vec_binary
from pages import PAGES, ROOT, blocks


def raw_files(folder, monkeypatch):
    """Put photos, captions and word vectors there, and a small network in place of the paper's."""
    pytest.importorskip("transformers")
    pytest.importorskip("spacy")
    from dscca.features import vision

    photos = folder_of_pictures(folder / "photos", suffix=".jpg")
    names = sorted(str(path.relative_to(photos)) for path in photos.glob("**/*.jpg"))
    words = ["dog", "snow", "child", "grass"]
    vectors = np.eye(4, 3, dtype=np.float32)
    (folder / "vectors.bin").write_bytes(word2vec_binary(words, vectors))
    captions = [f"{name}#0\tA {words[i % 4]} , {words[i % 3]} .\n" for i, name in enumerate(names)]
    (folder / "captions.token.txt").write_text("".join(captions))
    small = small_resnet(folder / "resnet", size=32)
    monkeypatch.setitem(vision.ALIASES, "resnet50", str(small))


def small_spec(folder, monkeypatch):
    """Put the spec that the page shows into the file that it names."""
    pytest.importorskip("optuna", reason="needs dscca[tune]")
    page = blocks("docs/guides/hyperparameters.md")
    spec = next(block.body for block in page if block.language == "yaml")
    (folder / "small.yaml").write_text(spec)


NEEDS = {"docs/features.md": raw_files, "docs/guides/hyperparameters.md": small_spec}
"""What the code of a page finds in its folder."""


def runs(page):
    return any(block.language == "python" or block.marked for block in blocks(page))


@pytest.mark.parametrize("page", [p for p in PAGES if runs(p)])
def test_blocks_run(page, tmp_path, monkeypatch, run_dscca):
    monkeypatch.chdir(tmp_path)
    NEEDS.get(page, lambda folder, patch: None)(tmp_path, monkeypatch)
    namespace = {"__name__": "page"}
    for number, block in enumerate(blocks(page), start=1):
        if block.language == "python":
            exec(compile(block.body, f"{page}, block {number}", "exec"), namespace)
        elif block.marked:
            assert block.commands
            for command in block.commands:
                code, out, error = run_dscca(*command)
                assert code == 0, f"{' '.join(command)}: {error}"
                assert out


COMMANDS = [
    pytest.param(arguments, id=f"{page}: {' '.join(arguments)}")
    for page in PAGES
    for block in blocks(page)
    for arguments in block.commands
]


@pytest.mark.parametrize("arguments", COMMANDS)
def test_commands_exist(arguments):
    command = typer.main.get_command(app)
    while subcommands := getattr(command, "commands", None):
        name, *arguments = arguments
        assert name in subcommands
        command = subcommands[name]
    command.make_context(command.name, list(arguments))


def shell_lines():
    return [
        (page, line.split("#")[0].strip())
        for page in PAGES
        for block in blocks(page)
        if block.language != "python"
        for line in block.body.splitlines()
    ]


def test_make_targets_and_extras_exist():
    rules = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    targets, extras = set(), set()
    for _, line in shell_lines():
        if found := re.match(r"make ([a-z]+)", line):
            targets.add(found[1])
        for found in re.findall(r"\[([a-z,]+)\]", line if line.startswith("pip ") else ""):
            extras.update(found.split(","))
    assert {"demo", "test"} <= targets <= rules
    assert {"features"} <= extras <= set(project["optional-dependencies"])


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_to_files(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_citation_is_of_this_version_and_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == dscca.__version__
    preferred = citation["preferred-citation"]
    names = [f"{a['family-names']}, {a['given-names']}" for a in preferred["authors"]]
    entry = find_method("ds-dcca").citation
    assert f"title = {{{preferred['title']}}}" in entry
    assert f"author = {{{' and '.join(names)}}}" in entry
    assert f"year = {{{preferred['year']}}}" in entry


def public_names():
    packages = ("datasets", "experiments", "features", "metrics", "plot", "report")
    for module in ("", *(f".{name}" for name in (*packages, "retrieval", "stats"))):
        for name in import_module(f"dscca{module}").__all__:
            if not isinstance(resolved(f"dscca{module}.{name}"), ModuleType):
                yield f"dscca{module}.{name}"


def test_every_public_name_is_in_the_reference():
    text = "".join(path.read_text() for path in ROOT.glob("docs/api/*.md"))
    documented = re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)
    assert len(documented) == len(set(documented))
    objects = {id(resolved(name)) for name in documented}
    missing = {name for name in public_names() if id(resolved(name)) not in objects}
    assert missing == set()


def resolved(name):
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)
