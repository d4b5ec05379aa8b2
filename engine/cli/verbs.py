"""What every verb is made of: the options that all take, and the way from click to a function.

A verb's function gets the `App` and its own options, and returns the exit code.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any, NoReturn

import click

from engine.cli import exits
from engine.cli.app import AS_JOB, META, App
from engine.cli.console import Console


class Seconds(click.types.FloatParamType):
    """A span of time: a number that is finite, and not below `least`."""

    name = "seconds"

    def __init__(self, least: float | None = None) -> None:
        self._least = least

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        if self._least is not None and number < self._least:
            self.fail(f"{value} is less than {self._least:g}.", param, ctx)
        return number


def _show_help(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """`--help`, written as everything else is, so that a failure to write is told."""
    if value and not ctx.resilient_parsing:
        app = ctx.find_root().obj
        assert isinstance(app, App)
        app.as_job = ctx.command.name in AS_JOB
        app.console.line(ctx.get_help())
        ctx.exit()


class Helped(click.Command):
    """A command whose `--help` is ours."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _show_help
        return option


def _note(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Put an option where the verb's own and the group's meet; the later one stands."""
    if value is not None and param.name is not None:
        ctx.meta.setdefault(META, {})[param.name] = value


def common_options() -> list[click.Parameter]:
    """The options that stand before or after any verb."""

    def flag(*names: str, about: str) -> click.Option:
        return click.Option(
            names, is_flag=True, default=None, expose_value=False, callback=_note, help=about
        )

    def value(*names: str, about: str, kind: Any = str, metavar: str | None = None) -> click.Option:
        return click.Option(
            names, type=kind, metavar=metavar, expose_value=False, callback=_note, help=about
        )

    return [
        value("--home", metavar="DIR", about="The engine's home (ENGINE_HOME)."),
        value("--url", metavar="URL", about="ws://HOST:PORT/rpc (ENGINE_URL)."),
        value("--as", "as_", metavar="NAME", about="Who asks (ENGINE_CALLER)."),
        value(
            "--reconnect",
            kind=Seconds(0),
            metavar="S",
            about="How long to try again after a lost connection (60).",
        ),
        flag("--no-start", about="Do not start an engine."),
        flag("--json", about="One JSON object a line."),
        value(
            "--color",
            kind=click.Choice(["auto", "always", "never"]),
            about="Colours: auto, always or never.",
        ),
        flag("--plain", about="As to a pipe: nothing cut, nothing redrawn."),
        flag("-q", "--quiet", about="Say nothing but errors."),
        flag("-v", "--verbose", about="Say more."),
    ]


class Verb(Helped):
    """A command that also takes the common options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._common = common_options()
        self.params.extend(self._common)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verb's own options, then those of all verbs."""
        options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
        own = [option for option in options if option not in self._common]
        for title, group in (("Options", own), ("Options of all verbs", self._common)):
            records = [r for r in (p.get_help_record(ctx) for p in group) if r is not None]
            with formatter.section(title):
                formatter.write_dl(records)


def task_argument(name: str, **settings: Any) -> Callable[[Any], Any]:
    """An argument that is a task's id: the shell offers those that there are."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
        from engine.cli.completion import complete_task

        return complete_task(ctx, incomplete)

    return click.argument(name, shell_complete=complete, **settings)


def verb(function: Callable[..., int], ctx: click.Context, **arguments: Any) -> NoReturn:
    """Call `function(app, **arguments)` and exit with what it returns."""
    app = make_app(ctx)
    try:
        code = function(app, **arguments)
        app.acknowledge()
    except KeyboardInterrupt:  # caught here, like the next: click would write and exit 1
        app.console.end_interrupted()
        code = exits.INTERRUPTED
    except BrokenPipeError:
        _silence_stdout()
        code = exits.BROKEN_PIPE
    finally:
        app.console.erase_status()
        app.close()
    ctx.exit(code)


def make_app(ctx: click.Context) -> App:
    """The app of this call, from the options of group and verb."""
    root = ctx.find_root()
    app = root.obj
    assert isinstance(app, App)
    app.options.update(ctx.meta.get(META, {}))
    app.console = console_of(app.options, app.environ)
    app.verb = ctx.command.name or ""
    app.as_job = app.verb in AS_JOB or (app.verb == "output" and bool(ctx.params.get("follow")))
    return app


def console_of(options: dict[str, Any], environ: dict[str, str]) -> Console:
    return Console(
        environ,
        color=options.get("color"),
        plain=bool(options.get("plain")),
        quiet=bool(options.get("quiet")),
    )


def _silence_stdout() -> None:
    """Point stdout at nothing, so that Python's own flush at exit does not complain."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
