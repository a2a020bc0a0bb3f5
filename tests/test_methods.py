"""The registry of methods."""

import re

import pytest

import dscca
from dscca.methods import METHODS, citations, find_method


def test_every_public_estimator_is_a_method():
    assert {method.estimator for method in METHODS} == set(dscca.all_estimators())
    assert len({method.name for method in METHODS}) == len(METHODS)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
class TestMethod:
    def test_choices_are_valid_parameters(self, method):
        method.make()._validate_params()
        for name, values in method.grid.items():
            for value in values:
                model = method.make(**{name: value})
                model._validate_params()
                assert model.get_params()[name] == value

    def test_has_a_citation(self, method):
        entry = method.citation
        for field in ("title", "author", "year"):
            assert re.search(rf"^  {field} = {{.+}},?$", entry, re.MULTILINE)
        assert entry.count("{") == entry.count("}")

    def test_is_found_by_its_names(self, method):
        for name in (method.name, method.title, method.estimator, method.name.upper()):
            assert find_method(name) is method


def test_unknown_methods_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="no method pca: there are cca, "):
        find_method("pca")


def test_citations_have_the_keys_of_their_entries():
    for key, entry in citations().items():
        assert re.match(rf"@\w+{{{key},", entry)
