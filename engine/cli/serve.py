"""`serve`: run the engine in this process."""

from __future__ import annotations

import sys
from typing import Any

import click

from engine.cli.verbs import Verb, make_app


@click.command("serve", cls=Verb, help="Run the engine until SIGTERM or SIGINT; jobs run on.")
@click.option("--listen", metavar="HOST:PORT", help="TCP address (a free loopback port, kept).")
@click.option("--slots", type=click.IntRange(min=1), metavar="N", help="Jobs at once.")
@click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE", help="A setting.")
@click.option("--log-format", type=click.Choice(["console", "json"]), help="How it logs.")
@click.option("--notify-fd", type=int, hidden=True)
@click.pass_context
def serve_verb(ctx: click.Context, /, pairs: tuple[str, ...], **options: Any) -> None:
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--set {pair!r} is not of the form NAME=VALUE")
        settings[name] = value
    home = make_app(ctx).home
    from engine import daemon  # only here: the engine's modules are none of a client's business

    sys.exit(daemon.run(home=home, settings=settings, **options))
