"""The README's Python runs as written."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_python_blocks(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, str(README), "exec"), {})
    assert "model" in [path.name for path in tmp_path.iterdir()]
    assert capsys.readouterr().out
