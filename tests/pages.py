"""The README and the documentation's pages: their blocks of code, and what these need to run."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"))
)

_BLOCK = re.compile(
    r"^(?P<run><!-- run -->\n+)?```(?P<language>\w*)[^\n]*\n"
    r"(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    body: str
    marked: bool
    """Whether its commands are to be run."""

    @property
    def commands(self) -> list[list[str]]:
        """Arguments of every ``dscca`` command in the block; comments are dropped."""
        lines = self.body.replace("\\\n", " ").splitlines()
        called = [line for line in lines if line.startswith("dscca ")]
        return [shlex.split(line, comments=True)[1:] for line in called]


def blocks(page):
    """All fenced blocks of a page, in order."""
    return [
        Block(match["language"], match["body"], bool(match["run"]))
        for match in _BLOCK.finditer((ROOT / page).read_text())
    ]
