"""`run`, `exec` and `py`: start a job, follow its output, exit as it does."""

from __future__ import annotations

import os
from typing import Any, Final

import click

from engine.cli.app import App, read_stdin
from engine.cli.replylogs import ReplyLogs, log_options
from engine.cli.verbs import Seconds, Verb, verb
from engine.client.identity import is_text

TEXT_BYTES: Final = 1 << 20  # the most that the engine takes of a command or code
UNKEPT: Final = "--on-disconnect cancel and --detach exclude each other"


STDIN: Final = (
    "ours, read to its end before the job starts: UTF-8, 16 MiB at most (for bytes or more: "
    "-d --stdin open, then engine stdin ID -)."
)


def job_options(function: Any) -> Any:
    """The options of `run` and `exec`."""
    input_option = click.option(
        "--stdin",
        type=click.Choice(["null", "open", "-"]),
        help=f"Its input: none; what `engine stdin` gives it; or {STDIN}",
    )
    pty = click.option("--pty", is_flag=True, help="A terminal of 80x24; `engine stdin` types.")
    port = click.option(
        "--ready-port",
        type=click.IntRange(1, 65535),
        metavar="N",
        help="It is ready when this port accepts; with -d: wait for that, then print the id.",
    )
    line = click.option(
        "--ready-line", metavar="TEXT", help="Likewise when a line of its output holds TEXT."
    )
    return _options(function, input_option, pty, port, line)


def code_options(function: Any) -> Any:
    """The options of `py`: an interpreter has no terminal, and reads nothing later on."""
    input_option = click.option(
        "--stdin",
        type=click.Choice(["null", "-"]),
        help="Its input: none; or ours, read to its end before it starts: UTF-8, 16 MiB at most.",
    )
    return _options(function, input_option)


def _options(function: Any, *inputs: Any) -> Any:
    after_option = click.option(
        "--after", multiple=True, metavar="ID", help="Start when this one has succeeded."
    )
    options = (
        click.option("-d", "--detach", is_flag=True, help="Print the id and leave it running."),
        click.option("--keep", is_flag=True, help="Ctrl-C leaves the job running."),
        click.option(
            "--deadline", type=Seconds(), metavar="S", help="End the job after S seconds."
        ),
        click.option("--cwd", metavar="DIR", help="Where it runs (here)."),
        click.option("-e", "--env", multiple=True, metavar="K=V", help="One variable more."),
        *inputs,
        click.option("--split", is_flag=True, help="stdout and stderr apart."),
        click.option("--key", metavar="KEY", help="Never run this twice."),
        click.option("--lane", metavar="NAME", help="In this lane, which has its own limit."),
        after_option,
        click.option(
            "--then",
            metavar="TEXT",
            help="Run this bash text when the job has ended, however; it is a task of its own.",
        ),
        click.option(
            "--on-disconnect",
            type=click.Choice(["keep", "cancel"]),
            default="keep",
            help="What becomes of the job when this call goes away.",
        ),
        click.option("--raw", is_flag=True, help="Escape sequences to a terminal, too."),
        log_options,
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command(
    "run",
    cls=Verb,
    help="Run bash TEXT (- reads it from stdin) in a fresh shell with this directory and "
    "environment, follow its output and exit as it does.",
)
@click.argument("text", nargs=-1)
@click.option("--session", is_flag=True, help="In the caller's shell session.")
@job_options
@click.pass_context
def run_verb(ctx: click.Context, /, text: tuple[str, ...], session: bool, **options: Any) -> None:
    if len(text) != 1:
        hint = "an argument list is for: engine exec -- ARGV..."
        raise click.UsageError(f"engine run takes one TEXT, not {len(text)}; {hint}")
    if text[0] == "-" and options["stdin"] == "-":
        raise click.UsageError("TEXT and --stdin cannot both be read from stdin")
    command = _source(text[0], "TEXT")
    verb(_start, ctx, method="bash", what={"command": command, "session": session}, **options)


@click.command(
    "exec",
    cls=Verb,
    help="Run an argument list without a shell, with this directory and environment, follow its "
    "output and exit as it does.",
    context_settings={"allow_interspersed_args": False},
)
@click.argument("argv", nargs=-1, required=True)
@job_options
@click.pass_context
def exec_verb(ctx: click.Context, /, argv: tuple[str, ...], **options: Any) -> None:
    what = {"argv": [_text(word, "an argument") for word in argv]}
    verb(_start, ctx, method="execute", what=what, **options)


@click.command(
    "py",
    cls=Verb,
    help="Run Python CODE (- reads it from stdin) in the caller's interpreter, where names live on "
    "from call to call; print its output, then the value of its last expression.",
)
@click.argument("code")
@code_options
@click.pass_context
def py_verb(ctx: click.Context, /, code: str, **options: Any) -> None:
    if code == "-" and options["stdin"] == "-":
        raise click.UsageError("CODE and --stdin cannot both be read from stdin")
    verb(_start, ctx, method="execute", what={"code": _source(code, "CODE")}, **options)


def _start(app: App, *, method: str, what: dict[str, Any], **options: Any) -> int:
    from engine.cli.runner import Runner

    if options["detach"] and options["on_disconnect"] == "cancel":
        raise click.UsageError(UNKEPT)
    if options.get("ready_port") and options.get("ready_line"):
        raise click.UsageError("--ready-port and --ready-line exclude each other")
    if options["then"] is not None:
        options["then"] = _source(options["then"], "--then")
        if not options["then"] or "\0" in options["then"]:  # seen before the job is begun
            raise click.UsageError("--then is empty or has a NUL; it is bash text")
    return Runner(app, method, params_of(app, what, options), options).run()


def params_of(app: App, what: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The params of the call that starts the job, but for how long it may take."""
    given = options["stdin"]
    return {
        **what,
        "as": app.caller,
        "key": _key(options["key"]) or "cli-" + os.urandom(16).hex(),
        "deadline_secs": options["deadline"],
        "cwd": _directory(app, options["cwd"], is_here=not (what.get("session") or "code" in what)),
        "env": _variables(options["env"]) or None,
        "stdin": {"text": read_stdin("stdin")} if given == "-" else given,
        "pty": options.get("pty") or None,
        "streams": "split" if _wants_split(app, options) else "merged",
        "on_disconnect": options["on_disconnect"],
        "lane": options["lane"],
        "after": list(options["after"]) or None,
        "ready_when": _ready_when(options),
        **ReplyLogs(app, options["logs"], options["scope"]).params,
    }


def _ready_when(options: dict[str, Any]) -> dict[str, Any] | None:
    if options.get("ready_port"):
        return {"port": options["ready_port"]}
    line = options.get("ready_line")
    return None if line is None else {"contains": _text(line, "--ready-line")}


def _wants_split(app: App, options: dict[str, Any]) -> bool:
    """Streams apart where ours are; a reply that is printed whole has them merged."""
    from engine.cli.console import lead_apart

    if options["split"] or options["detach"] or options.get("pty") or app.json:
        return bool(options["split"])
    return lead_apart(app.console.out_fd, app.console.err_fd)


def _directory(app: App, given: str | None, *, is_here: bool) -> str | None:
    """The directory that was asked for; None: where we are, if `is_here`, or the session is.

    Raises UsageError where we are nowhere: what was meant for a directory that is gone must not
    run in another.
    """
    here = app.directory()
    if given is None:
        if is_here and not (here and os.path.isdir(here)):
            where = here or "the current directory"
            raise click.UsageError(f"{where} is gone; go elsewhere, or say --cwd DIR")
        return None
    path = os.path.join(here or "/", os.path.expanduser(given))
    return _text(os.path.normpath(path), "--cwd")


def _variables(pairs: tuple[str, ...]) -> dict[str, str]:
    env = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"-e {pair!r} is not of the form NAME=VALUE")
        env[_text(name, "-e")] = _text(value, f"-e {name}")
    return env


def _key(given: str | None) -> str | None:
    return None if given is None else _text(given, "--key")


def _source(given: str, what: str) -> str:
    """The command or code that was given, or for `-` our stdin; not more than the engine takes."""
    text = read_stdin(what) if given == "-" else _text(given, what)
    size = len(text.encode())
    if size > TEXT_BYTES:
        raise click.UsageError(f"{what} has {size} bytes; the engine takes {TEXT_BYTES}")
    return text


def _text(text: str, what: str) -> str:
    if not is_text(text):
        raise click.UsageError(f"{what} is not UTF-8")
    return text
