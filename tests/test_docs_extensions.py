"""Docstrings and formulas as readers of the site get them."""

from types import SimpleNamespace

import pytest

pytest.importorskip("griffe", reason="needs dscca[docs]")
pytest.importorskip("math_core", reason="needs dscca[docs]")

from docs.extensions.docstrings import to_markdown
from docs.extensions.mathematics import on_page_content

DOCSTRING = """Return y of :math:`y = a x`, as :func:`other` and :class:`dscca.DCCA` do.

.. math::

    y &= a x \\\\
    z &= y

Parameters
----------
a, b : float
    The factors.
x : what is multiplied

Notes
-----
name : is no parameter
"""


def test_docstrings_become_markdown():
    text = to_markdown(DOCSTRING, {"other": "dscca.module.other"}.__getitem__)
    assert "$y = a x$, as [`other`][dscca.module.other] and [`DCCA`][dscca.DCCA] do." in text
    assert "$$\n\\begin{aligned}y &= a x \\\\\nz &= y\\end{aligned}\n$$" in text
    items = "a : float\n    The factors.\nb\n    See `a`.\nx\n    what is multiplied\n\nNotes"
    assert items in text
    assert text.endswith("name : is no parameter")


def page(name):
    return SimpleNamespace(file=SimpleNamespace(src_uri=name))


def test_formulas_become_mathml():
    html = 'a <span class="arithmatex">\\(x &lt; 1\\)</span> b'
    shown = on_page_content(html, page("a.md"))
    assert "<math" in shown
    assert "<mo>&lt;</mo>" in shown
    assert "arithmatex" not in shown


def test_wrong_formulas_stop_the_build_and_name_the_page():
    html = '<div class="arithmatex">\\[\\nonsense\\]</div>'
    with pytest.raises(Exception, match=r"(?s)a\.md: .*nonsense"):
        on_page_content(html, page("a.md"))
