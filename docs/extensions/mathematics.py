"""Turn the site's LaTeX into MathML while it is built, so that browsers need no script for it."""

import re
from html import unescape
from typing import Any

from math_core import LatexError, LatexToMathML
from mkdocs.exceptions import PluginError

_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)
_converter = LatexToMathML(annotation=True)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Replace what the Markdown extension arithmatex marked as formulas by MathML."""

    def formula(match: re.Match[str]) -> str:
        displayed = match["tag"] == "div"
        try:
            mathml = _converter.convert_with_local_state(
                unescape(match["latex"]), displaystyle=displayed
            )
        except LatexError as error:
            raise PluginError(f"{page.file.src_uri}: {match['latex']}: {error}") from error
        return f'<div class="formula">{mathml}</div>' if displayed else mathml

    return _FORMULA.sub(formula, html)
