"""The configurations of engine/docs/mcp-clients.md, by the file that each belongs into.

A file's name stands in backquotes at the beginning of the line above its block.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any, Final, NamedTuple

PAGE: Final = Path(__file__).resolve().parent.parent / "engine/docs/mcp-clients.md"
_BLOCK: Final = re.compile(
    r"^(?P<above>[^\n]*)\n\n```(?P<kind>[a-z]+)\n(?P<text>.*?)^```$", re.M | re.S
)
_NAME: Final = re.compile(r"(?:.*, )?`(?P<name>[~.][^`]*)`")


class Snippet(NamedTuple):
    """`client`: the heading under which it stands. `file`: as the page names it."""

    client: str
    file: str
    kind: str
    text: str

    def parsed(self) -> Any:
        """What the file says; a script has to compile."""
        if self.kind == "json":
            return json.loads(self.text)
        if self.kind == "toml":
            return tomllib.loads(self.text)
        return compile(self.text, self.file, "exec")


def read_snippets(page: Path = PAGE) -> list[Snippet]:
    """All files on the page, in its order."""
    found = []
    for section in page.read_text().split("\n## ")[1:]:
        client = section.partition("\n")[0]
        for block in _BLOCK.finditer(section):
            if named := _NAME.match(block["above"]):
                found.append(Snippet(client, named["name"], block["kind"], block["text"]))
    return found


def snippet(client: str, file: str) -> Snippet:
    (found,) = (each for each in read_snippets() if (each.client, each.file) == (client, file))
    return found
