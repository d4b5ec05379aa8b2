"""Writes the tables of the reference from the code: `make reference`.

    python scripts/reference.py [--check] [PAGE…]

The pages are those of engine/docs. What stands in one between `<!-- made: NAME -->` and
`<!-- end -->` is made here, the rest is written by hand and left alone. `--check` writes nothing
and exits 1 where a page is not what it would write. Exits 1 also where a page names a table that
there is not, or no page has one that must be there.
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.cli.main import ALIASES, VERBS, cli
from engine.cli.verbs import common_options
from engine.config import Settings
from scripts import reference_wire as wire
from scripts.reference_wire import code, table

PAGES: Final = sorted((Path(__file__).parents[1] / "engine" / "docs").glob("*.md"))
MADE: Final = re.compile(r"(<!-- made: (.+?) -->\n).*?(<!-- end -->)", re.S)

# What click cannot say of these: one TEXT and no more, and what must stand before ARGV.
USAGE: Final = {"run": "TEXT", "exec": "-- ARGV..."}
UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"))


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def commands() -> dict[str, click.Command]:
    """All verbs by name; of one that has verbs of its own, these: `round start`."""
    found: dict[str, click.Command] = {}
    for name in VERBS:
        verb = command(name)
        inner = verb.commands if isinstance(verb, click.Group) else {}
        found |= {f"{name} {each}": inner[each] for each in inner} or {name: verb}
    return found


def options(found: click.Command) -> list[click.Option]:
    """A verb's own options, as far as people see them."""
    general = {option.name for option in common_options()}
    given = [p for p in found.params if isinstance(p, click.Option) and not p.hidden]
    return [option for option in given if option.name not in general]


def verbs_table() -> str:
    rows = []
    for name, found in commands().items():
        context = click.Context(found)
        words = [p.make_metavar(context) for p in found.params if isinstance(p, click.Argument)]
        usage = f"engine {name} {USAGE.get(name, ' '.join(words))}".strip()
        other = "".join(f", {code(alias)}" for alias, of in ALIASES.items() if of == name)
        text = " ".join((found.help or "").split("\n\n")[0].split())
        rows.append([code(usage) + other, text.replace("|", "\\|")])
    return table("verb | does", rows)


def options_table() -> str:
    """What one verb or several take besides what all take; those of the same verbs together."""
    takers: dict[tuple[str, str], list[str]] = {}
    for name, found in commands().items():
        for option in options(found):
            takers.setdefault((_names(option), _meaning(option)), []).append(name)
    groups = list(dict.fromkeys(map(tuple, takers.values())))
    rows = []
    for group in groups:
        shown = ", ".join(map(code, group))
        for key, names in takers.items():
            if tuple(names) == group:
                rows.append([shown, *key])
                shown = ""
    return table("verbs | option | meaning", rows)


def common_table() -> str:
    given = [option for option in common_options() if isinstance(option, click.Option)]
    return table("option | meaning", [[_names(option), _meaning(option)] for option in given])


def _names(option: click.Option) -> str:
    value = "" if option.is_flag else " " + (option.metavar or "|".join(_choices(option)))
    return ", ".join(code(name + value) for name in option.opts)


def _choices(option: click.Option) -> list[str]:
    assert isinstance(option.type, click.Choice), option.name
    return list(option.type.choices)


def _meaning(option: click.Option) -> str:
    text = (option.help or "").replace("|", "\\|")
    default = option.to_info_dict()["default"]
    is_told = option.is_flag or default in (None, ()) or str(default) in text
    return text if is_told else f"{text.removesuffix('.')} ({default})."


def settings_table() -> str:
    schema = msgspec.json.schema(Settings)["$defs"]["Settings"]["properties"]
    rows = [
        [code(name), _setting_type(part), _setting_default(part), part["description"]]
        for name, part in schema.items()
    ]
    return table("setting | type | default | meaning", rows)


def _setting_type(part: dict[str, Any]) -> str:
    if "anyOf" in part:  # one that may be left out
        (part,) = [each for each in part["anyOf"] if each != {"type": "null"}]
    words = wire.type_words(part)
    low, high = part.get("minimum"), part.get("maximum")
    if high is not None:
        return f"{words}, {low} to {high}"
    return words if low is None else f"{words} >= {low}"


def _setting_default(part: dict[str, Any]) -> str:
    default = part["default"]
    if not default and not isinstance(default, int):
        return "none"
    for size, unit in UNITS:
        if isinstance(default, int) and default % size == 0 and default:
            return f"`{default}` ({default // size} {unit})"
    return code(str(default).removesuffix(".0"))


TABLES: Final[dict[str, Callable[[], str]]] = {
    "methods": wire.methods_table,
    "general params": wire.general_params,
    **{f"method {name}": functools.partial(wire.method_block, name) for name in wire.METHODS},
    "objects": wire.objects,
    "general errors": wire.general_errors,
    "errors": wire.error_table,
    "verbs": verbs_table,
    "common options": common_table,
    "options": options_table,
    "settings": settings_table,
}


def renewed(page: str) -> str:
    """`page` with its tables as they are now. Raises KeyError at one that there is not."""
    return MADE.sub(lambda m: f"{m[1]}\n{TABLES[m[2]]()}\n\n{m[3]}", page)


def main() -> int:
    """0, or 1 with a line for each thing that is wrong."""
    parser = argparse.ArgumentParser(description="Writes the tables of the reference.")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("pages", nargs="*", type=Path, default=PAGES)
    given = parser.parse_args()
    faults, found = [], set()
    for path in given.pages:
        page = path.read_text(encoding="utf-8")
        names = [match[2] for match in MADE.finditer(page)]
        found |= set(names)
        if unknown := [name for name in names if name not in TABLES]:
            faults.append(f"{path.name} has tables that there are not: {unknown}")
        elif given.check and renewed(page) != page:
            faults.append(f"{path.name} is not up to date: make reference")
        elif not given.check:
            path.write_text(renewed(page), encoding="utf-8")
    if given.pages == PAGES and (missing := TABLES.keys() - found):
        faults.append(f"no page has these tables: {sorted(missing)}")
    print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
