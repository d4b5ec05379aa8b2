"""`completion`: the words that a shell offers after Tab.

The shell calls `engine` again for them, with what has been typed in its environment. That call
starts no engine, writes nothing but the words, and is over within `PATIENCE`.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from engine.cli import exits
from engine.cli.app import META, App
from engine.cli.exits import ENDED
from engine.cli.verbs import Verb, verb
from engine.cli.view import safe

VARIABLE: Final = "_ENGINE_COMPLETE"  # what tells a call that it is one for the shell
PATIENCE: Final = 0.5  # seconds that a person waits for Tab
OFFERED: Final = 100  # tasks, the newest
SHELLS: Final = ("bash", "zsh", "fish")
SETUP: Final = """
\b
~/.bashrc: eval "$(engine completion bash)"
~/.zshrc:  eval "$(engine completion zsh)"      (after compinit)
fish:      engine completion fish > ~/.config/fish/completions/engine.fish
"""  # the sign before it is click's for lines that are not to be filled


@click.command(
    "completion",
    cls=Verb,
    help=f"Print what makes a shell complete verbs, options and task ids.\n{SETUP}",
)
@click.argument("shell", type=click.Choice(SHELLS), metavar="bash|zsh|fish")
@click.pass_context
def completion_verb(ctx: click.Context, /, shell: str) -> None:
    verb(_completion, ctx, group=ctx.find_root().command, shell=shell)


def _completion(app: App, *, group: click.Command, shell: str) -> int:
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(group, {}, "engine", VARIABLE)
    # Not `source()`: for bash it starts one to look how old it is, and warns on our stderr.
    app.console.line((script.source_template % script.source_vars()).strip())
    return exits.DONE


def complete_task(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Ids of tasks that the verb can be about, the newest first; none where nobody answers."""
    from engine.client.errors import ClientError

    app = ctx.find_root().obj
    if not isinstance(app, App):
        return []
    app.options.update(ctx.meta.get(META, {}))
    try:
        with _limited(PATIENCE):
            rows = _rows(app, ctx.command.name or "")
    except (ClientError, click.UsageError, TimeoutError):
        return []  # Tab offers nothing, and says nothing: the line is still being typed
    finally:
        app.close()
    given = set(ctx.params.get("ids") or ())
    return [
        CompletionItem(handle, help=safe(f"{row['status']}  {row['title']}"))
        for row in rows
        if (handle := str(row["taskId"] or row["kickoffId"])).startswith(incomplete)
        and handle not in given
    ]


def _rows(app: App, name: str) -> list[dict[str, Any]]:
    """The caller's tasks, or, where it has none, everybody's."""
    client = app.client(role="observer")
    asked = {"as": app.caller, "limit": OFFERED}
    for whose in (None, "*"):
        rows = client.call("list_tasks", {**asked, "caller": whose})["tasks"]
        if name in ("cancel", "stdin"):
            rows = [row for row in rows if row["status"] not in ENDED]
        elif name == "forget":
            rows = [row for row in rows if row["status"] in ENDED]
        if rows:
            return list(rows)
    return []


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in what runs inside once it has taken so long."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
