"""`doctor`: what is wrong here, and how to mend it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Final

import click

from engine import PROTOCOL, VERSION
from engine.cli import exits, units
from engine.cli.app import App
from engine.cli.checks import (
    Finding,
    look_at_cgroup,
    look_at_disk,
    look_at_home,
    look_at_limits,
    look_at_programs,
    summary,
)
from engine.cli.verbs import Verb, verb
from engine.cli.view import View, pad, safe

CHECK_CELLS: Final = 8
LOOKS: Final = {"ok": "succeeded", "note": "held", "bad": "failed"}
AFRESH: Final = "engine stop, then engine serve (jobs run on)"
START: Final = "engine run TEXT starts one; so does engine serve"


@click.command(
    "doctor",
    cls=Verb,
    help="Look at the home, the engine, its version, the programs, limits and disk that it needs, "
    "and say for each that is not well how to mend it. Exit 1 if there is one.",
)
@click.pass_context
def doctor_verb(ctx: click.Context, /) -> None:
    verb(_doctor, ctx)


def _doctor(app: App) -> int:
    from engine.client.wire import to_json

    findings = examine(app)
    if app.json:
        for finding in findings:
            app.console.line(to_json(finding._asdict()))
    elif not app.console.quiet:
        for line in doctor_lines(findings, app.console.view()):
            app.console.line(line)
    return exits.REFUSED if any(f.state == "bad" for f in findings) else exits.DONE


def examine(app: App) -> list[Finding]:
    """All findings, about the engine that answers and the machine here."""
    info, pid, said = _look_at_engine(app)
    findings = [] if app.url else list(look_at_home(app.home))
    findings += said
    if app.url:  # the machine of an engine that is afar cannot be looked at from here
        return findings
    settings, least = _look_at_settings(app.home)
    limits = info.get("limits") or {}
    findings += settings
    findings += look_at_disk(app.home, limits.get("min_free_bytes", least))
    findings += look_at_programs(app.environ.get("PATH"))
    findings += look_at_limits()
    findings.append(look_at_cgroup(pid))
    return findings


def _look_at_engine(app: App) -> tuple[dict[str, Any], int | None, list[Finding]]:
    """What the engine says of itself, its process here, and the findings about it."""
    from engine.client.errors import ClientError, NotReachable, TokenRefused, TokenUnreadable

    began = time.monotonic()
    app.options["reconnect"] = 0.0  # how it is now
    try:
        client = app.client(role="observer")
        info = client.call("engine_info", {"as": app.caller})
    except (TokenRefused, TokenUnreadable) as exc:
        mend = "another engine has the port, or engine.json is older than the engine: engine serve"
        return {}, None, [Finding("engine", "bad", exc.lines[0], mend)]
    except NotReachable as exc:
        return {}, None, [_unreachable(app, exc)]
    except ClientError as exc:
        return {}, None, [Finding("engine", "bad", exc.lines[0], f"{AFRESH}; see engine.log")]
    took = int((time.monotonic() - began) * 1000)
    pid = client.place.pid if client.place is not None and not app.url else None
    up = units.duration(units.since(info["startedAt"], app.console.now()))
    text = f"answers in {took}ms" + (f", pid {pid}" if pid else "") + f", up {up}"
    return info, pid, [Finding("engine", "ok", text), _skew(info), *_degraded(info)]


def _unreachable(app: App, exc: Any) -> Finding:
    """No engine is no fault: one is started when it is needed. One that is there and is silent is.

    `exc` is the `NotReachable` with which the attempt ended.
    """
    from engine.client.errors import NotReachable
    from engine.client.places import is_alive, read_facts

    if app.url:
        return Finding("engine", "bad", exc.lines[0], "look at the machine where it runs")
    try:
        pid = read_facts(app.home).get("pid")
    except NotReachable as unread:
        if unread.absent:
            return Finding("engine", "note", "none runs here", START)
        return Finding("engine", "bad", unread.lines[0], "engine serve makes it anew")
    if isinstance(pid, int) and is_alive(pid):
        text = f"{exc.lines[0]}, though pid {pid} is there"
        return Finding("engine", "bad", text, f"see engine.log; kill {pid}, engine serve")
    return Finding("engine", "note" if exc.absent else "bad", exc.lines[0], START)


def _skew(info: dict[str, Any]) -> Finding:
    """Whether this client and the engine are of one release."""
    theirs, protocol = info["version"], info["protocol"]
    if protocol != PROTOCOL:
        text = f"the engine speaks protocol {protocol}, this client {PROTOCOL}"
        return Finding("version", "bad", text, AFRESH)
    if theirs != VERSION:
        text = f"the engine is {theirs}, this client {VERSION}"
        return Finding("version", "bad", text, AFRESH)
    return Finding("version", "ok", f"{VERSION}, protocol {PROTOCOL}, client and engine")


def _degraded(info: dict[str, Any]) -> list[Finding]:
    return [
        Finding("engine", "bad", str(trouble), "free the disk, or see engine.log")
        for trouble in info.get("degraded") or ()
    ]


def _look_at_settings(home: str) -> tuple[list[Finding], int]:
    """Whether engine.toml can be read, and the free bytes of disk that it asks for."""
    from engine.config import BadSetting, Settings, load_settings

    try:
        settings = load_settings(Path(home), {}, {})
    except BadSetting as exc:
        mend = "correct it: the engine does not start with it"
        return [Finding("settings", "bad", str(exc), mend)], Settings().min_free_bytes
    there = os.path.exists(os.path.join(home, "engine.toml"))
    return [Finding("settings", "ok", "engine.toml" if there else "defaults")], (
        settings.min_free_bytes
    )


def doctor_lines(findings: list[Finding], view: View) -> list[str]:
    """A line a finding, its mend below; to a pipe on the same line. The last line sums up."""
    if view.width is None:
        return [
            "  ".join([pad(f.state, 4), pad(f.check, CHECK_CELLS), _plain(f)]) for f in findings
        ]
    lines = []
    for finding in findings:
        look = LOOKS[finding.state]
        state = view.paint_status(pad(finding.state, 4), look)
        head = f"{view.glyph(look)} {state}  {pad(finding.check, CHECK_CELLS)}  "
        indent = 2 + 4 + 2 + CHECK_CELLS + 2
        texts = view.fold(safe(finding.text), view.width - indent)
        lines.append(head + texts[0])
        lines += [" " * indent + text for text in texts[1:]]
        if finding.mend is not None:
            mends = view.fold(finding.mend, view.width - indent - 3)
            lines.append(" " * indent + view.paint("-> ", "dim") + mends[0])
            lines += [" " * (indent + 3) + text for text in mends[1:]]
    return [*lines, view.paint(summary(findings), "bold")]


def _plain(finding: Finding) -> str:
    return safe(finding.text) + (f"; mend: {finding.mend}" if finding.mend is not None else "")
