"""Values that people write: parameters on the command line, and files of them."""

import re
from collections.abc import Mapping
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """Reads ``1e-3`` as the number it is (YAML 1.1 wants ``1.0e-3``) and refuses a key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping that a node stands for."""
        own = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        keys = [self.construct_object(key, deep=True) for key in own]
        for i, key in enumerate(keys):
            if key in keys[:i]:
                line = own[i].start_mark.line + 1
                raise yaml.YAMLError(f"line {line}: the key {key} is there twice")
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def parse_yaml(text: str) -> Any:
    """Return what a YAML document says.

    >>> parse_yaml("reg: [1e-3, auto]")
    {'reg': [0.001, 'auto']}
    """
    return yaml.load(text, _Loader)  # a SafeLoader


def parse_value(text: str) -> Any:
    """Return the value of a parameter written as YAML; a tuple is taken as the list it stands for.

    >>> parse_value("[1e-3, auto, null]"), parse_value("((8, 8), (4,))")
    ([0.001, 'auto', None], [[8, 8], [4]])
    """
    if text.strip().startswith("("):
        text = text.translate(str.maketrans("()", "[]"))
    return parse_yaml(text)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `changes` put over it, mappings within mappings likewise.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}, "d": 4})
    {'a': {'b': 1, 'c': 3}, 'd': 4}
    """
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        nested = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merged(old, value) if nested else value  # type: ignore[arg-type]
    return result
