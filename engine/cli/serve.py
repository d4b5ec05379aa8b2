"""`serve`: run the engine in this process."""

from __future__ import annotations

import sys
from typing import Any

import click

from engine.cli.sparing import spare_modules
from engine.cli.verbs import Verb, make_app


@click.command("serve", cls=Verb, help="Run the engine until SIGTERM or SIGINT; jobs run on.")
@click.option("--listen", metavar="HOST:PORT", help="TCP address (a free loopback port, kept).")
@click.option("--slots", type=click.IntRange(min=1), metavar="N", help="Jobs at once.")
@click.option(
    "--lane", "lanes", multiple=True, metavar="NAME=N", help="At most N jobs at once in this lane."
)
@click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE", help="A setting.")
@click.option("--log-format", type=click.Choice(["console", "json"]), help="How it logs.")
@click.option("--notify-fd", type=int, hidden=True)
@click.pass_context
def serve_verb(
    ctx: click.Context, /, pairs: tuple[str, ...], lanes: tuple[str, ...], **options: Any
) -> None:
    settings = _named("--set", pairs, "NAME=VALUE")
    limits = {}
    for name, limit in _named("--lane", lanes, "NAME=N").items():
        if not (limit.isascii() and limit.isdigit()):
            raise click.UsageError(f"--lane {name}={limit}: {limit!r} is not a number of jobs")
        limits[name] = int(limit)
    home = make_app(ctx).home
    spare_modules()
    from engine import daemon  # only here: the engine's modules are none of a client's business

    sys.exit(daemon.run(home=home, settings=settings, lanes=limits or None, **options))


def _named(option: str, pairs: tuple[str, ...], form: str) -> dict[str, str]:
    """What stands on both sides of the first `=` of each."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} {pair!r} is not of the form {form}")
        found[name] = value
    return found
