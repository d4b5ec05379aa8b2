"""Examples of the project's documents: found in their pages, and held against what really comes.

What is different each time is written in the pages as it once was: the ids of tasks begin with
`8f3k`, the reader is anna, at home in /home/anna, and works in /home/anna/proj. `Likeness` knows
what stands for what; times, durations and counters of the whole engine may be any.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"
DOCS: Final = ROOT / "engine" / "docs"
# What other programs are to read; held against those by `tests/test_mcp_snippets.py`.
FOREIGN: Final = DOCS / "mcp-clients.md"
PAGES: Final = [README, *sorted(set(DOCS.glob("*.md")) - {FOREIGN})]

ELLIPSIS: Final = "…"
ID: Final = "8f3k[0-9a-v]{2}"  # of a task in the pages, without its letter
TIME: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
# Kinds of text that may be any of their kind.
ANY_OF_ITS_KIND: Final = [
    TIME,
    r"\d{4}-\d\d-\d\d",
    r"\d\d:\d\d:\d\d\.\d{3}",
    r"\d+(?:\.\d+)?m?s\b",
    r"(?<=pid )\d+",
    r"(?<=127\.0\.0\.1:)\d+",
    r"[\d,.]+ [GMK]iB",
]
VARYING: Final = re.compile(
    "|".join([f"(?P<id>{ID})", f"(?P<any>{ELLIPSIS})", *(f"({kind})" for kind in ANY_OF_ITS_KIND)])
)
# Members whose value may be any of its type.
VARIES: Final = re.compile(
    r".*(?:At|Ms|[sS]eq|AfterSeq|ChangedAfter)|time|lastSeen|pid|version|schemaFingerprint"
    r"|diskFreeBytes|journalLines|signalled|nextChangedAfter"
)


class Example(NamedTuple):
    """A fenced block: its language, what follows that on the fence, its text and its line."""

    page: Path
    line: int
    language: str
    more: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page.name}:{self.line}"


def examples(*languages: str, pages: list[Path] | None = None) -> list[Example]:
    """All blocks in these languages, in the order of the pages."""
    found = []
    for page in PAGES if pages is None else pages:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"^```(\w+)(.*)\n((?:.*\n)*?)```$", text, re.M):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Example(page, line, match[1], match[2].strip(), match[3]))
    return [each for each in found if each.language in languages]


def commands(text: str) -> list[tuple[str, list[str]]]:
    """The commands of a `console` block, each with the lines that it shows."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:].partition("   #")[0].rstrip(), []))
        elif line.startswith("> "):
            found[-1] = (f"{found[-1][0]}\n{line[2:]}", [])
        else:
            found[-1][1].append(line)
    return found


def messages(text: str) -> list[tuple[str, dict[str, Any]]]:
    """What goes to the engine (`-->`) and what comes from it (`<--`), in their order."""
    pieces = re.split(r"^(-->|<--)", text, flags=re.M)
    assert pieces[0].strip() == "", pieces[0]
    return [
        (arrow, json.loads(_filled(body)))
        for arrow, body in zip(pieces[1::2], pieces[2::2], strict=True)
    ]


def _filled(text: str) -> str:
    """JSON in which `…` stands for what is left out, as members and items that say so."""
    text = re.sub(r"…(?=\s*})", f'"{ELLIPSIS}": null', text)
    return re.sub(r"…(?=\s*\])", f'"{ELLIPSIS}"', text)


class Likeness:
    """What the words of the pages stand for in this run."""

    def __init__(self, places: dict[str, str]) -> None:
        """`places`: a path in the pages, and the one here; the longer ones first."""
        self._places = places
        self._ids: dict[str, str] = {}

    def here(self, told: str) -> str:
        """A text of the pages, as it is to be said here. Raises KeyError at an unknown id."""
        for place, real in self._places.items():
            told = told.replace(place, real)
        return re.sub(ID, lambda match: self._ids[match[0]], told)

    def in_pages(self, real: str) -> str:
        """A text from here, its places as the pages have them."""
        for place, path in self._places.items():
            real = real.replace(path, place)
        return real

    def is_like(self, told: str, real: str) -> bool:
        """Whether one line could be the other; an id that is new is learnt. Spaces may be any."""
        return self._is_like(" ".join(told.split()), " ".join(self.in_pages(real).split()))

    def _is_like(self, wanted: str, heard: str) -> bool:
        pattern, new, end = "", [], 0
        for found in VARYING.finditer(wanted):
            pattern += re.escape(wanted[end : found.start()])
            end, text = found.end(), found[0]
            if found["id"]:
                pattern += self._ids.get(text) or "([0-9a-v]{6,})"
                new += [text] if text not in self._ids else []
            else:
                pattern += ".*" if found["any"] else ANY_OF_ITS_KIND[(found.lastindex or 0) - 3]
        pattern += re.escape(wanted[end:])
        match = re.fullmatch(pattern, heard, re.DOTALL)
        if match:
            self._ids |= dict(zip(new, match.groups(), strict=True))
        return match is not None

    def are_like(self, told: list[str], real: list[str]) -> bool:
        """Whether the lines could be those that are told; a line `…` stands for any number."""
        if not told:
            return not real
        if told[0] == ELLIPSIS:
            return any(self.are_like(told[1:], real[i:]) for i in range(len(real) + 1))
        return bool(real) and self.is_like(told[0], real[0]) and self.are_like(told[1:], real[1:])

    def faults(self, told: Any, real: Any, path: str = "$") -> list[str]:
        """Where a real value is not what the page tells."""
        if isinstance(told, dict) and isinstance(real, dict):
            return self._faults_of_members(told, real, path)
        if isinstance(told, list) and isinstance(real, list):
            is_open = told[-1:] == [ELLIPSIS]
            told = told[:-1] if is_open else told
            if len(told) > len(real) or (len(told) < len(real) and not is_open):
                return [f"{path}: {len(real)} items"]
            pairs = zip(told, real, strict=False)
            return [f for i, (t, r) in enumerate(pairs) for f in self.faults(t, r, f"{path}[{i}]")]
        if isinstance(told, str) and isinstance(real, str):
            is_like = self._is_like(told, self.in_pages(real))
            return [] if is_like else [f"{path}: {real!r}, told {told!r}"]
        varies = VARIES.fullmatch(re.split(r"[.\[]", path.removesuffix("]"))[-1]) is not None
        varies = varies and type(told) is type(real)
        is_same = told == real and isinstance(told, bool) is isinstance(real, bool)
        return [] if varies or is_same else [f"{path}: {real!r}, told {told!r}"]

    def _faults_of_members(
        self, told: dict[str, Any], real: dict[str, Any], path: str
    ) -> list[str]:
        found = [
            f"{path}.{name}: not told" for name in real if name not in told and ELLIPSIS not in told
        ]
        for name in told.keys() - {ELLIPSIS}:
            if name not in real:
                found.append(f"{path}.{name}: not there")
            elif VARIES.fullmatch(name) and isinstance(told[name], str):
                kind = TIME if re.fullmatch(TIME, told[name]) else ".*"
                is_one = isinstance(real[name], str) and re.fullmatch(kind, real[name])
                found += [] if is_one else [f"{path}.{name}: {real[name]!r}"]
            elif name == "signalled":
                found += [] if len(told[name]) == len(real[name]) else [f"{path}.{name}: how many"]
            else:
                found += self.faults(told[name], real[name], f"{path}.{name}")
        return found
