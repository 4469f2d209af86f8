"""From the text of a file to plain values: JSON as DeepSpeed takes it, YAML, TOML and Python.

A file is small, shallow and says each key once; anything else is refused before it is read.
"""

import ast
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from zeroplan.errors import SpecError

__all__ = ["MAX_ALIASES", "MAX_BYTES", "leaves", "parse", "read_text"]

MAX_BYTES: Final = 2**17
"""Far above any: a dump of all of TrainingArguments has 5,000 bytes. [B]"""
MAX_ALIASES: Final = 16
"""References of one YAML file: more of them could stand for any amount of text. [count]"""
MAX_DEPTH: Final = 8
"""Objects in one another; DeepSpeed's have four. [count]"""

_STRING_OR_COMMENT: Final = re.compile(
    r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|#[^\n]*|/\*.*?\*/', re.DOTALL
)
_STRING_OR_COMMA: Final = re.compile(r'("(?:[^"\\\n]|\\.)*")|,(?=\s*[}\]])')


def read_text(path: Path) -> str:
    """Return the text of a trainer's file."""
    try:
        if path.exists() and not path.is_file():
            raise SpecError(f"{path}: not a file; give the path of a trainer's configuration.")
        if path.stat().st_size > MAX_BYTES:
            raise SpecError(f"{path}: too long for a configuration; at most {MAX_BYTES} bytes.")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise SpecError(f"{path}: not a text in UTF-8; save it as one.") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise SpecError(f"{path}: {why}; give the path of a trainer's configuration.") from None


def parse(text: str, language: str, place: str) -> dict[str, Any]:
    """Return the values of a text in a language: json, yaml, toml or python.

    Raises
    ------
    SpecError
        It is not of that language, says a key twice, or is no table of keys.

    """
    title, reader = _READERS[language]
    try:
        found = reader(text)
    except RecursionError:
        raise SpecError(f"{place}: nested too deeply for a configuration.") from None
    except (ValueError, OverflowError) as error:
        detail = " ".join(str(error).split())
        shown = detail if len(detail) <= 200 else f"{detail[:200]}..."  # noqa: PLR2004  two lines
        raise SpecError(f"{place}: not {title}: {shown.rstrip('.')}.") from None
    if not isinstance(found, dict):
        raise SpecError(f"{place}: no keys; a trainer's configuration is a table of them.")
    return found


def leaves(values: Mapping[Any, Any], place: str, prefix: str = "") -> dict[str, Any]:
    """Return the values of nested tables by dotted key; an empty table is left out."""
    found: dict[str, Any] = {}
    if prefix.count(".") >= MAX_DEPTH:
        raise SpecError(f"{place}: nested too deeply for a configuration.")
    for name, value in values.items():
        key = f"{prefix}{_word(name)}"
        if isinstance(value, Mapping):
            found |= leaves(value, place, f"{key}.")
        else:
            found[key] = value
    return found


def _word(name: object) -> str:
    return (
        {True: "true", False: "false"}.get(name, str(name)) if isinstance(name, bool) else str(name)
    )


def _json(text: str) -> Any:
    """Read JSON, and where that fails with the comments and last commas that hjson takes.

    DeepSpeed reads its file with hjson (`DeepSpeedConfig.__init__`, deepspeed/runtime/config.py,
    0.19.8), and refuses a key that comes twice.
    """
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except json.JSONDecodeError:
        bare = _STRING_OR_COMMENT.sub(lambda found: found[1] or " ", text)
        bare = _STRING_OR_COMMA.sub(lambda found: found[1] or "", bare)
        return json.loads(bare, object_pairs_hook=_once, parse_constant=_no_number)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} comes twice")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number that JSON has")


def _yaml(text: str) -> Any:
    import yaml  # noqa: PLC0415  # only where there is YAML to read

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # untyped
        """PyYAML's safe loader, which takes no key twice."""

        def construct_mapping(self, node: Any, **deep: bool) -> Any:
            del deep
            self.flatten_mapping(node)
            made = [
                [self.construct_object(part, deep=True) for part in pair] for pair in node.value
            ]
            return _once([(key, value) for key, value in made])

    try:
        events = yaml.parse(text, Loader=yaml.SafeLoader)
        aliases = sum(isinstance(event, yaml.AliasEvent) for event in events)
        if aliases > MAX_ALIASES:
            raise ValueError(f"{aliases} references to anchors; at most {MAX_ALIASES}")
        return yaml.load(text, Loader=Loader)  # noqa: S506  a safe loader's child
    except (yaml.YAMLError, TypeError, AttributeError, KeyError) as error:
        raise ValueError(str(error)) from None


def _toml(text: str) -> Any:
    import tomllib  # noqa: PLC0415  # only where there is TOML to read

    return tomllib.loads(text)


def _python(text: str) -> Any:
    """Read the constants at the top of a script; a dotted name is read as its last word."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, MemoryError) as error:
        raise ValueError(str(error)) from None
    return _once([pair for node in tree.body for pair in _constants(node)])


def _constants(node: ast.stmt) -> list[tuple[str, Any]]:
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return []
    name, value = node.targets[0].id, node.value
    if not name.isupper():
        return []
    if isinstance(value, ast.Attribute):
        return [(name, value.attr)]
    return [(name, ast.literal_eval(value))]


_READERS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "json": ("JSON", _json),
    "yaml": ("YAML", _yaml),
    "toml": ("TOML", _toml),
    "python": ("Python", _python),
}
