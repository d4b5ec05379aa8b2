"""`mcp`: what an agent's configuration starts."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Final

import click

import engine
from engine.cli.app import App
from engine.cli.verbs import Seconds, Verb, make_app

ROOT: Final = str(Path(engine.__file__).parent.parent)
# Isolated and without site: the standard library is all that the pipe needs.
_PIPE: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from engine.mcp.pipe import main; main()"
)


@click.command(
    "mcp",
    cls=Verb,
    help="Speak MCP on stdin and stdout: what an agent's configuration starts.",
)
@click.option(
    "--max-wait",
    type=Seconds(0),
    metavar="S",
    help="No call waits longer: for agents that give up early.",
)
@click.option(
    "--http", metavar="HOST:PORT", help="Open /mcp at an address of its own instead of stdio."
)
@click.pass_context
def mcp_verb(ctx: click.Context, /, max_wait: float | None, http: str | None) -> None:
    app = make_app(ctx)
    if http is not None:
        from engine.mcp.forward import Target, run  # only here: it has trio

        ctx.exit(run(Target(app.home, app.url, app.environ, _may_start(app)), http))
    options = {
        "home": app.home,
        "url": app.url,
        "name": _name(app),
        "max_wait": max_wait,
        "may_start": _may_start(app),
    }
    command = [sys.executable, "-I", "-S", "-c", _PIPE, ROOT, json.dumps(options)]
    os.execve(sys.executable, command, app.environ)  # which leaves click and all of this behind


def _may_start(app: App) -> bool:
    return not (app.options.get("no_start") or app.url)


def _name(app: App) -> str:
    """The caller: as of the other verbs where it is said, else one that stands for this agent."""
    if app.options.get("as_") or app.environ.get("ENGINE_CALLER"):
        return app.caller
    return "mcp-" + os.urandom(5).hex()
