"""Read the package's docstrings as Markdown: roles, formulas and one-line descriptions."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|data|mod):`~?(?P<name>[\w.]+)`")
_INLINE = re.compile(r":math:`([^`]+)`")
_DISPLAYED = re.compile(
    r"^(?P<indent> *)\.\. math::(?P<first>.*)\n(?P<rest>(?:\n|(?P=indent) +.*\n?)*)", re.MULTILINE
)
_SECTION = re.compile(r"^([A-Z][a-z]+)\n-+\n", re.MULTILINE)
_DESCRIBING = ("Parameters", "Attributes", "Returns")
_ITEM = re.compile(r"^(?P<names>[\w*]+(?:, [\w*]+)*)(?: : (?P<text>.+))?$")

_TYPE_WIDTH = 70
"""What stands behind a name's colon and fills a longer line is a description, not a type."""


class Markdown(griffe.Extension):
    """Rewrites every docstring of a package, so that it is parsed as Markdown."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Rewrite the docstrings of all that a package holds."""
        _rewrite(pkg)


def _rewrite(obj: griffe.Object) -> None:
    if obj.docstring is not None:
        obj.docstring.value = to_markdown(obj.docstring.value, obj.resolve)
    for member in obj.members.values():
        if not member.is_alias:
            _rewrite(member)


def to_markdown(text: str, resolve: Callable[[str], str]) -> str:
    """Return a docstring in Markdown; `resolve` finds the dotted name of one in scope."""

    def reference(match: re.Match[str]) -> str:
        name = match["name"]
        target = name if "." in name else resolve(name)
        return f"[`{name.rpartition('.')[2]}`][{target}]"

    text = _DISPLAYED.sub(_displayed, f"{text}\n")
    text = _INLINE.sub(lambda match: f"${match[1]}$", text)
    return _described(_ROLE.sub(reference, text)).strip()


def _displayed(match: re.Match[str]) -> str:
    lines = [match["first"], *match["rest"].splitlines()]
    latex = "\n".join(line.strip() for line in lines if line.strip())
    if "&" in latex:
        latex = rf"\begin{{aligned}}{latex}\end{{aligned}}"
    elif r"\\" in latex:
        latex = rf"\begin{{gathered}}{latex}\end{{gathered}}"
    indent = match["indent"]
    formula = f"$$\n{latex}\n$$".replace("\n", f"\n{indent}")
    return f"\n{indent}{formula}\n\n"


def _described(text: str) -> str:
    """Put a description that stands beside its name on lines of its own, and names apart.

    The package writes ``reg : r1 and r2, positive`` where numpy's convention has room for a type
    only. A type is short and has its description below it. Of several parameters the first has
    the description and the others refer to it, since each has a type and a default of its own.
    """
    parts = _SECTION.split(text)
    described = [parts[0]]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        lines = body.rstrip().splitlines()
        described.append(f"{title}\n{'-' * len(title)}")
        described += [*(_items(lines, title) if title in _DESCRIBING else lines), ""]
    return "\n".join(described)


def _items(lines: list[str], title: str) -> Iterator[str]:
    """Yield the lines of a section with its items rewritten."""
    others: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        item = _ITEM.match(line)
        if item is None:
            yield line
            continue
        yield from others
        names, others = item["names"], []
        if title == "Parameters":
            names, *rest = names.split(", ")
            others = [f"{name}\n    See `{names}`." for name in rest]
        typed = following.startswith(" ") and len(line) <= _TYPE_WIDTH
        if item["text"] is None:
            yield names
        elif typed and title != "Attributes":
            yield f"{names} : {item['text']}"
        else:
            yield f"{names}\n    {item['text']}"
    yield from others
