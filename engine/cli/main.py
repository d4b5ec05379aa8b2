"""The command `engine`: finds the verb, runs it, and turns whatever ends it into an exit code.

Verbs are imported when they are called: a script calls `engine` hundreds of times.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from engine.cli import exits
from engine.cli.app import AS_JOB, META, App
from engine.cli.console import Console

if TYPE_CHECKING:
    from engine.client.errors import ClientError

# Verb -> module of engine.cli, help in the list. The order is that of `engine help`.
VERBS: Final = {
    "run": ("run", "Run bash text and follow its output."),
    "exec": ("run", "Run an argument list, no shell."),
    "py": ("run", "Run Python code in the caller's interpreter."),
    "wait": ("wait", "Wait until tasks have ended."),
    "tasks": ("tasks", "List tasks (also: ps)."),
    "show": ("tasks", "Show everything about one task."),
    "output": ("output", "Print the output of a task, bytes exact."),
    "logs": ("logs", "Print lines of the journal, and follow it."),
    "stdin": ("stdin", "Give a job something to read."),
    "cancel": ("control", "End tasks and wait until they are gone (also: kill)."),
    "forget": ("control", "Drop ended tasks and their files now."),
    "reset": ("control", "Start the caller's shell or Python session afresh."),
    "status": ("status", "The engine at a glance."),
    "serve": ("serve", "Run the engine."),
    "stop": ("status", "Stop the engine; jobs run on."),
    "call": ("control", "Call any method and print its reply."),
    "version": ("about", "Print the version."),
    "help": ("about", "Explain a verb."),
}
ALIASES: Final = {"ps": "tasks", "kill": "cancel"}


class Seconds(click.FloatRange):
    """A span of time: a number that is finite."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number

    def _describe_range(self) -> str:
        return ""


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


class LazyGroup(Helped, click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in VERBS:
            return None
        module = importlib.import_module(f"engine.cli.{VERBS[name][0]}")
        command = getattr(module, name + "_verb")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of verbs, without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])


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
            kind=Seconds(min=0),
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
        self.params.extend(common_options())


@click.pass_context
def _begin(ctx: click.Context) -> None:
    """Work with a background-task execution engine."""


cli = LazyGroup(
    name="engine",
    callback=_begin,
    params=common_options(),
    help="Run work in the background, follow it, wait for it; nothing is lost.",
    epilog="Everything after -- is the command's. engine help VERB explains a verb.",
    no_args_is_help=False,
    subcommand_metavar="VERB [ARGS]...",
)


def verb(function: Callable[..., int], ctx: click.Context, **arguments: Any) -> NoReturn:
    """Call `function(app, **arguments)` and exit with what it returns."""
    app = make_app(ctx)
    try:
        code = function(app, **arguments)
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
    app.console = _console(app.options, app.environ)
    app.verb = ctx.command.name or ""
    app.as_job = app.verb in AS_JOB or (app.verb == "output" and bool(ctx.params.get("follow")))
    return app


def _console(options: dict[str, Any], environ: dict[str, str]) -> Console:
    return Console(
        environ,
        color=options.get("color"),
        plain=bool(options.get("plain")),
        quiet=bool(options.get("quiet")),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    open_standard_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(run(given, dict(os.environ)))


def open_standard_streams() -> None:
    """Point 0, 1 and 2 at nothing where they are closed.

    Else the next file or socket that is opened has that number, and is taken for the stream.
    """
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != fd:  # not the lowest that is free: a thread was quicker
                os.dup2(opened, fd)
                os.close(opened)
            os.set_inheritable(fd, True)
            setattr(sys, name, open(fd, mode, closefd=False))  # noqa: SIM115


def run(given: list[str], environ: dict[str, str]) -> int:
    """Run the command line with these arguments; the exit code comes back."""
    app = App(
        options={"json": "--json" in _before_dashes(given)},
        environ=environ,
        console=_console({}, environ),
    )
    guess = _guess_verb(given)
    try:
        code = cli.main(given, prog_name="engine", obj=app, standalone_mode=False)
        return code if isinstance(code, int) else exits.DONE
    except click.exceptions.Exit as exc:
        return exc.exit_code
    except click.exceptions.NoArgsIsHelpError as exc:
        app.console.raw_error(exc.ctx.get_help())
        return exits.USAGE
    except click.UsageError as exc:
        ours = app.as_job or guess
        _report(app, "usage", [_usage_text(exc)])
        return exits.OURS if ours else exits.USAGE
    except (KeyboardInterrupt, click.Abort):
        return exits.INTERRUPTED
    except Exception as exc:
        from engine.client.errors import ClientError

        if not isinstance(exc, ClientError):
            raise
        return report_error(app, exc)
    finally:
        app.close()


def _before_dashes(given: list[str]) -> list[str]:
    return given[: given.index("--")] if "--" in given else given


def _guess_verb(given: list[str]) -> bool:
    """Whether the verb in `given` exits as the job does, for arguments that do not parse."""
    words = _before_dashes(given)
    found = next((ALIASES.get(w, w) for w in words if ALIASES.get(w, w) in VERBS), "")
    return found in AS_JOB or (found == "output" and ("-f" in words or "--follow" in words))


def _usage_text(exc: click.UsageError) -> str:
    text = " ".join(exc.format_message().split()).rstrip(".")
    text = text[:1].lower() + text[1:] if text[1:2].islower() else text
    known = exc.ctx.command_path if exc.ctx is not None else None
    return f"{text} (see: {known} --help)" if known and "engine " not in text else text


def _report(
    app: App,
    kind: str,
    lines: list[str],
    code: int | None = None,
    data: dict[str, Any] | None = None,
) -> None:
    """Say what went wrong on stderr, as words or, with `--json`, as one object."""
    if not app.json:
        for line in lines:
            app.console.say(line, always=True)
        return
    from engine.client.wire import to_json

    error = {"code": code, "kind": kind, "message": " ".join(lines), "data": data or {}}
    app.console.raw_error(to_json({"error": error}))


def report_error(app: App, exc: ClientError) -> int:
    """Report `exc`; the exit code for it."""
    from engine.cli.words import refusal
    from engine.client import errors

    if isinstance(exc, errors.Refused):
        _report(app, exc.kind, [refusal(exc, app.subject)], exc.code, exc.data)
        code = exits.NOT_ALLOWED if exc.code == errors.FORBIDDEN else exits.REFUSED
    else:
        _report(app, exc.kind, exc.lines)
        unreadable = isinstance(exc, errors.TokenUnreadable)
        code = exits.NOT_ALLOWED if unreadable else exits.NOT_REACHABLE
        if isinstance(exc, errors.AmbiguousHandle | errors.CannotWrite):
            code = exits.REFUSED
        if isinstance(exc, errors.Unsendable):
            code = exits.USAGE
    return exits.OURS if app.as_job else code


def _silence_stdout() -> None:
    """Point stdout at nothing, so that Python's own flush at exit does not complain."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
