"""The HTML page: sections in, one file out that asks nothing of the network.

Its content security policy forbids every request, and every script but those it came with, so text
that slipped through as markup could still do nothing.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from dscca.extras import require
from dscca.report.blocks import Chart, Folded, Row, Section
from dscca.report.pictures import sprite_sheet
from dscca.report.samples import Samples


def require_libraries() -> None:
    """Refuse, before any work, to make a page without the libraries it needs."""
    for module, package in (("jinja2", None), ("plotly.offline", "plotly"), ("PIL", "Pillow")):
        require(module, "report", package)


def render(title: str, subtitle: str, sections: Sequence[Section], samples: Samples | None) -> str:
    """Return the page as HTML."""
    jinja2 = require("jinja2", "report")
    plotly = require("plotly.offline", "report", "plotly")
    numbers = {id(chart): number for number, chart in enumerate(_charts(sections))}
    figures = [list(chart.figures.values()) for chart in _charts(sections)]
    scripts = {"plotly": plotly.get_plotlyjs(), "page": _resource("page.js")}
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    markup = environment.from_string(_resource("page.html")).render(
        title=title,
        subtitle=subtitle,
        sections=sections,
        number_of=lambda chart: numbers[id(chart)],
        names=[] if samples is None else samples.names(),
        captions=None if samples is None else samples.captions,
        labels=_labels(samples),
        pictured=_pictured(samples),
        css=_resource("page.css"),
        payload=embedded_json({"charts": figures, "samples": _sample_facts(samples)}),
        scripts=scripts,
        hashes=[script_hash(script) for script in scripts.values()],
    )
    return str(markup).lstrip()


def embedded_json(value: Any) -> str:
    r"""Return JSON that can stand in a script element: nothing in it ends the element or a line.

    >>> print(embedded_json("</script>"))
    "\u003c/script\u003e"
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def script_hash(script: str) -> str:
    """Return what a content security policy calls a script that it allows."""
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return f"sha256-{digest}"


def _charts(sections: Sequence[Section]) -> Iterator[Chart]:
    def walk(blocks: Sequence[Any]) -> Iterator[Chart]:
        for block in blocks:
            if isinstance(block, Chart):
                yield block
            elif isinstance(block, Row | Folded):
                yield from walk(block.blocks)

    for section in sections:
        yield from walk(section.blocks)


def _sample_facts(samples: Samples | None) -> Mapping[str, Any] | None:
    if samples is None:
        return None
    sheets = {
        name: sprite_sheet(view, shape)
        for name, view, shape in zip("xy", (samples.x, samples.y), samples.images, strict=True)
        if shape is not None
    }
    return {
        "names": samples.names(),
        "labels": _labels(samples),
        "captions": None if samples.captions is None else [str(c) for c in samples.captions],
        "sheets": sheets,
    }


def _labels(samples: Samples | None) -> list[str] | None:
    if samples is None or samples.labels is None:
        return None
    return [str(label) for label in samples.labels]


def _pictured(samples: Samples | None) -> dict[str, tuple[int, int]]:
    if samples is None:
        return {}
    return {name: s for name, s in zip("xy", samples.images, strict=True) if s is not None}


def _resource(name: str) -> str:
    return (files("dscca.report.page") / name).read_text(encoding="utf-8")
