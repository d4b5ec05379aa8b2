"""The command `engine`: finds the verb, runs it, and turns whatever ends it into an exit code.

Verbs are imported when they are called: a script calls `engine` hundreds of times.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from engine.cli import exits
from engine.cli.app import AS_JOB, App
from engine.cli.report import report, report_error, usage_text
from engine.cli.verbs import Helped, common_options, console_of, verb

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Verb -> module of engine.cli, help in the list. The order is that of `engine help`.
VERBS: Final = {
    "run": ("run", "Run bash text and follow its output."),
    "exec": ("run", "Run an argument list, no shell."),
    "py": ("run", "Run Python code in the caller's interpreter."),
    "wait": ("wait", "Wait until tasks have ended."),
    "inbox": ("inbox", "Print the ends that the caller has not received."),
    "round": ("rounds", "Run several side by side, as the seats of a round."),
    "tasks": ("tasks", "List tasks (also: ps)."),
    "show": ("tasks", "Show everything about one task."),
    "output": ("output", "Print the output of a task, bytes exact."),
    "logs": ("logs", "Print lines of the journal, and follow it."),
    "stdin": ("stdin", "Give a job something to read."),
    "cancel": ("control", "End tasks and wait until they are gone (also: kill)."),
    "callers": ("callers", "Who works with the engine."),
    "status": ("status", "The engine at a glance."),
    "forget": ("control", "Drop ended tasks and their files now."),
    "reset": ("control", "Start the caller's shell or Python session afresh."),
    "call": ("control", "Call any method and print its reply."),
    "mcp": ("mcp", "Speak MCP: what an agent's configuration starts."),
    "serve": ("serve", "Run the engine."),
    "stop": ("status", "Stop the engine; jobs run on."),
    "doctor": ("doctor", "What is wrong here, and how to mend it."),
    "install-service": ("service", "A systemd user unit that runs the engine."),
    "completion": ("completion", "Completion for bash, zsh or fish."),
    "version": ("about", "Print the version."),
    "help": ("about", "Explain a verb."),
}
ALIASES: Final = {"ps": "tasks", "kill": "cancel"}


class LazyGroup(Helped, click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in VERBS:
            return None
        module = importlib.import_module(f"engine.cli.{VERBS[name][0]}")
        command = getattr(module, name.replace("-", "_") + "_verb")
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that `args` begin with. Raises UsageError, with the one that may be meant."""
        if args[0] not in VERBS and args[0] not in ALIASES and not args[0].startswith("-"):
            import difflib  # only here: it is for who made a mistake

            near = difflib.get_close_matches(args[0], [*VERBS, *ALIASES], 1, 0.8)
            hint = f": do you mean {near[0]}?" if near else ""
            ctx.fail(f"there is no verb {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs, without importing them, and options."""
        from click.shell_completion import CompletionItem

        verbs = [
            CompletionItem(name, help=text)
            for name, (_, text) in VERBS.items()
            if name.startswith(incomplete)
        ]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of verbs, without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])


@click.pass_context
def _begin(ctx: click.Context) -> None:
    """Work with a background-task execution engine."""


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from engine.cli.about import print_version

        verb(print_version, ctx)


VERSION_OPTION: Final = click.Option(
    ["--version"],
    is_flag=True,
    expose_value=False,
    callback=_show_version,
    help="Print the version, and that of the protocol.",
)

cli = LazyGroup(
    name="engine",
    callback=_begin,
    params=[*common_options(), VERSION_OPTION],
    help="Run work in the background, follow it, wait for it; nothing is lost.",
    epilog="Everything after -- is the command's. engine help VERB explains a verb.",
    no_args_is_help=False,
    subcommand_metavar="VERB [ARGS]...",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    closed = open_standard_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(run(given, dict(os.environ), closed))


def open_standard_streams() -> frozenset[int]:
    """Point 0, 1 and 2 at nothing where they are closed; those that were.

    Else the next file or socket that is opened has that number, and is taken for the stream.
    """
    closed = set[int]()
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            closed.add(fd)
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != fd:  # not the lowest that is free: a thread was quicker
                os.dup2(opened, fd)
                os.close(opened)
            os.set_inheritable(fd, True)
            setattr(sys, name, open(fd, mode, closefd=False))  # noqa: SIM115
    return frozenset(closed)


def run(given: list[str], environ: dict[str, str], closed: frozenset[int] = frozenset()) -> int:
    """Run the command line with these arguments; the exit code comes back.

    `closed`: the standard streams that lead nowhere because nobody gave them.
    """
    app = App(
        options={"json": "--json" in _before_dashes(given)},
        environ=environ,
        console=console_of({}, environ),
        has_stdout=1 not in closed,
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
        report(app, "usage", [usage_text(exc)])
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
