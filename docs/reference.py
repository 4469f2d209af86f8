"""The reference pages, made from what the program itself reads; mkdocs asks for them at each build.

Commands come from the command line, keys from the records that read spec files, figures from the
hardware profiles, names of the Python interface from the package: none of it is typed here.
"""

import json
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from inspect import cleandoc
from pathlib import Path
from types import NoneType
from typing import Any, Final, Literal, get_args, get_origin

from reference_hardware import profiles, sources
from tables import table, told
from typer.main import get_command

import zeroplan
from zeroplan.cli import app
from zeroplan.cli.flags import flag
from zeroplan.cli.light import COMMANDS
from zeroplan.schemas import sentences
from zeroplan.spec.hints import AUTO, spelled
from zeroplan.spec.presets import list_presets
from zeroplan.spec.reading import keys
from zeroplan.spec.schema import spec_schema

HOME: Final = Path(__file__).parents[1]
FOLDER: Final = "reference"

Page = str


def pages() -> dict[str, Page]:
    """Return the text of every page by its place below `docs`."""
    made = {
        "commands": commands(),
        "keys": spec_keys(),
        "presets": presets(),
        "gpus": profiles("gpu"),
        "links": profiles("link"),
        "nodes": profiles("node"),
        "sources": sources(),
        "python": python(),
    }
    return {f"{FOLDER}/{name}.md": text for name, text in made.items()} | {"cite.md": cite()}


def commands() -> Page:
    """Return every command with its arguments and flags."""
    root: Any = get_command(app)
    parts = [
        (
            "# Commands\n\nEvery flag of every command. Flags that are keys of the spec file belong to "
            "most commands and stand [there](keys.md), each with its type and default; below is what a "
            "command has beside them. `zeroplan COMMAND --help` shows both. "
            f"{root.epilog}\n"
        )
    ]
    shared = {flag(dotted) for dotted in keys()}
    for name in COMMANDS:
        command = root.get_command(None, name)
        parts.append(one_command(name, command, shared))
        for below, each in getattr(command, "commands", {}).items():
            parts.append(one_command(f"{name} {below}", each, shared, level=3))
    return "\n".join(parts)


def one_command(name: str, command: Any, shared: set[str], level: int = 2) -> Page:
    """Return what a command does, its own arguments and flags, and its examples."""
    own = [each for each in command.params if not (shared & set(each.opts) and each.help is None)]
    takes_keys = len(own) < len(command.params)
    lines = [f"{'#' * level} zeroplan {name}\n", cleandoc(command.help or "").replace("\f", "")]
    if takes_keys:
        lines.append("\nTakes the [keys of the spec file](keys.md) as flags.")
    rows = [
        (f"`{', '.join(flags(each))}`", takes(each), told(each.help or ""), default_of(each))
        for each in own
    ]
    if rows:
        lines.append("\n" + table(("flag", "takes", "what it does", "default"), rows))
    examples = [
        line for line in (command.epilog or "").split("\n\n") if line.startswith("zeroplan")
    ]
    if examples:
        lines.append("\n```sh\n" + "\n".join(examples) + "\n```\n")
    return "\n".join(lines) + "\n"


def flags(option: Any) -> list[str]:
    """Return an option's names, or an argument's word."""
    if option.param_type_name == "argument":
        return [option.metavar or option.name.upper()]
    return [*option.opts, *option.secondary_opts]


def takes(option: Any) -> str:
    """Return what follows a flag."""
    if getattr(option, "is_flag", False):
        return "switch"
    word = f"`{option.metavar}`" if option.metavar else "TEXT"
    return f"{word}, several" if option.multiple or option.nargs == -1 else word


def default_of(option: Any) -> str:
    """Return a default that says something."""
    if option.default in (None, False, ()) or callable(option.default):
        return ""
    return f"`{option.default}`"


def spec_keys() -> Page:
    """Return every key of the spec file, a table for each of its own."""
    heading, rows, parts = "", [], [KEYS]
    for dotted, key in keys().items():
        above = dotted.rpartition(".")[0]
        if above != heading and rows:
            parts.append(key_table(heading, rows))
            rows = []
        heading = above
        default = "required" if key.default is MISSING else f"`{spelled(key.default)}`"
        sentence = told(sentences(key.record)[key.name])
        word = f"`{key.name}`"
        if flag(dotted) != f"--{key.name.replace('_', '-')}":
            word += f" (`{flag(dotted)}`)"
        rows.append((word, shape(dotted), default, sentence))
    parts.append(key_table(heading, rows))
    return "\n".join(parts)


KEYS: Final = f"""\
# Keys of the spec file

Every key. Its flag is `--` and the key with hyphens, unless another stands beside it; a value
`{AUTO}` leaves it to zeroplan, and the answer says what was chosen. [Spec files](../editor.md) says how they are written.
"""


def key_table(heading: str, rows: Iterable[tuple[str, ...]]) -> Page:
    """Return one table of the file."""
    heads = ("key", "takes", "default", "what it says")
    return f"## [{heading}]\n\n" + table(heads, rows)


def shape(dotted: str) -> str:
    """Return in words what a key takes, from the schema."""
    found: Any = spec_schema()
    for name in dotted.split("."):
        found = found["properties"][name]
    choices = found.get("anyOf", [found])
    return " or ".join(filter(None, (one_shape(each) for each in choices)))


def one_shape(schema: dict[str, Any]) -> str:
    """Return one alternative in words."""
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    kind = {"string": "text", "integer": "whole number", "boolean": "true or false"}
    word = kind.get(schema["type"], schema["type"])
    if "pattern" in schema:
        return ", ".join(f"`{each}`" for each in schema["pattern"].strip("^$()").split("|"))
    if "minimum" in schema:
        return f"{word}, {schema['minimum']:,} to {schema['maximum']:,}"
    return word


def presets() -> Page:
    """Return the models that have a name."""
    rows = []
    for name in list_presets():
        path = HOME / "zeroplan" / "data" / "presets" / f"{name}.json"
        preset = json.loads(path.read_text(encoding="utf-8"))
        rows.append((f"`{name}`", told(str(preset.get("source", "")))))
    head = (
        "# Presets\n\nModels that `--model` knows by name; `zeroplan inspect NAME` shows blocks and "
        "parameters.\n\n"
    )
    return head + table(("model", "shape and total from"), rows)


def python() -> Page:
    """Return the public names, whose text mkdocstrings takes from their docstrings."""
    functions = [name for name in zeroplan.__all__ if name[0].islower()]
    records = [name for name in zeroplan.__all__ if name[0].isupper()]
    parts = [f"::: zeroplan.{name}\n" for name in (*functions, *records)]
    about = (
        "## What an answer holds\n\n`estimate` returns an `Estimate`, and `--json` prints the same "
        "fields. Names end in the unit, [nomenclature](../nomenclature.md#terms) has their terms; "
        "what is not known is `None`.\n"
    )
    return "\n".join(
        ["# Python interface\n", *parts, about, *map(holding, held(zeroplan.Estimate))]
    )


def held(kind: Any) -> Iterator[type]:
    """Yield a record, then those in its fields; a run's keys have a page of their own."""
    yield kind
    for each in fields(kind):
        for hint in (each.type, *get_args(each.type)):
            if is_dataclass(hint) and hint is not zeroplan.Run:
                yield from held(hint)


def holding(kind: type) -> Page:
    """Return the fields of a record."""
    words = sentences(kind)
    rows = [
        (f"`{each.name}`", type_of(each.type), told(words.get(each.name, "")))
        for each in fields(kind)
    ]
    head = (
        f"### Fields of {kind.__name__}\n\n{told((kind.__doc__ or '').partition(chr(10))[0])}\n\n"
    )
    return head + table(("field", "type", "what it says"), rows)


def type_of(hint: Any) -> str:
    """Return a type in words."""
    choices = get_args(hint)
    if get_origin(hint) is Literal:
        return ", ".join(f"`{word}`" for word in choices)
    if get_origin(hint) is tuple:
        return f"several {type_of(choices[0])}"
    if hint is NoneType:
        return "`None`"
    return " or ".join(map(type_of, choices)) or f"`{getattr(hint, '__name__', hint)}`"


def cite() -> Page:
    """Return the entry of CITATION.cff, as it is and as BibTeX."""
    text = (HOME / "CITATION.cff").read_text(encoding="utf-8")
    license_of = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    entry = dict(
        line.split(": ", 1) for line in text.splitlines() if ": " in line and line[0].isalpha()
    )
    bibtex = "\n".join(
        (
            "@software{zeroplan,",
            f"  title   = {{{entry['title'].strip(chr(34))}}},",
            "  author  = {{The zeroplan authors}},",
            f"  version = {{{entry['version']}}},",
            f"  license = {{{license_of['license']}}}",
            "}",
        )
    )
    return (
        f"# How to cite\n\n{entry['message']}\n\n```bibtex\n{bibtex}\n```\n\n"
        f"The same as `CITATION.cff`, which reference managers read:\n\n```yaml\n{text}```\n"
    )
