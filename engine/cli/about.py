"""`version` (also `--version`) and `help`."""

from __future__ import annotations

import click

from engine.cli import exits
from engine.cli.app import App
from engine.cli.verbs import Verb, verb


@click.command("version", cls=Verb, help="Print the version, and that of the protocol.")
@click.pass_context
def version_verb(ctx: click.Context, /) -> None:
    verb(print_version, ctx)


def print_version(app: App) -> int:
    from engine import PROTOCOL, VERSION

    if app.json:
        from engine.client.wire import to_json

        app.console.line(to_json({"version": VERSION, "protocol": PROTOCOL}))
    else:
        app.console.line(f"engine {VERSION} (protocol {PROTOCOL})")
    return exits.DONE


@click.command("help", cls=Verb, help="Explain a verb, or list them.")
@click.argument("name", metavar="[VERB]", required=False)
@click.pass_context
def help_verb(ctx: click.Context, /, name: str | None) -> None:
    verb(_help, ctx, parent=ctx.find_root(), name=name)


def _help(app: App, *, parent: click.Context, name: str | None) -> int:
    group = parent.command
    assert isinstance(group, click.Group)
    if name is None:
        app.console.line(parent.get_help())
        return exits.DONE
    command = group.get_command(parent, name)
    if command is None:
        raise click.UsageError(f"there is no verb {name}: see engine help")
    context = click.Context(command, info_name=command.name, parent=parent)
    app.console.line(command.get_help(context))
    return exits.DONE
