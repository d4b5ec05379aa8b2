"""`cancel`, `forget`, `reset` and `call`: things done to tasks and sessions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from engine.cli import exits
from engine.cli.app import App
from engine.cli.console import Console
from engine.cli.verbs import Verb, task_argument, verb

if TYPE_CHECKING:
    from engine.client.errors import Refused

CANCEL_BUDGET: Final = 20.0  # seconds: the grace and what follows it, with room


@click.command(
    "cancel",
    cls=Verb,
    help="End these tasks, or all seats of these rounds, with all their processes, and wait until "
    "they are gone; --all: whatever the caller has running or queued.",
)
@task_argument("ids", nargs=-1, metavar="ID...")
@click.option("--all", "everything", is_flag=True, help="All that the caller has.")
@click.option("--force", is_flag=True, help="Also another caller's; it is on record.")
@click.pass_context
def cancel_verb(ctx: click.Context, /, ids: tuple[str, ...], everything: bool, force: bool) -> None:
    if everything == bool(ids):
        raise click.UsageError("which? ID... or --all" if not ids else "ID and --all: give one")
    if everything:
        verb(_cancel_all, ctx)
    verb(_each, ctx, ids=ids, force=force, act=_cancel)


@click.command("forget", cls=Verb, help="Drop these ended tasks and their files now.")
@task_argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--force", is_flag=True, help="Also another caller's; it is on record.")
@click.pass_context
def forget_verb(ctx: click.Context, /, ids: tuple[str, ...], force: bool) -> None:
    verb(_each, ctx, ids=ids, force=force, act=_forget)


@click.command("reset", cls=Verb, help="Start the caller's shell or Python session afresh.")
@click.argument("kind", type=click.Choice(["bash", "python"]))
@click.pass_context
def reset_verb(ctx: click.Context, /, kind: str) -> None:
    verb(_reset, ctx, kind=kind)


@click.command("call", cls=Verb, help="Call METHOD with params from JSON (- from stdin).")
@click.argument("method")
@click.argument("params", metavar="[JSON]", default="{}")
@click.pass_context
def call_verb(ctx: click.Context, /, method: str, params: str) -> None:
    verb(_call, ctx, method=method, params=params)


def _each(
    app: App, *, ids: tuple[str, ...], force: bool, act: Callable[[App, Any, str, bool], None]
) -> int:
    """Do `act` to each; one that is refused does not keep the others from it."""
    from engine.cli.report import report_error
    from engine.client.errors import AmbiguousHandle, ConnectionLost, Refused

    client = app.client()
    code = exits.DONE
    for given in dict.fromkeys(ids):
        try:
            act(app, client, given, force)
        except (Refused, AmbiguousHandle, ConnectionLost) as exc:
            code = max(code, report_error(app, exc))
    return code


def _cancel(app: App, client: Any, given: str, force: bool) -> None:
    from engine.cli.handles import as_param, resolve

    if given.startswith("r"):
        _cancel_round(app, client, given, force)
        return
    handle = resolve(app, client, given)
    params = {"as": app.caller, **as_param(handle), "force": force or None}
    _tell(app, client, handle, client.call("cancel", params, budget=CANCEL_BUDGET))


def _cancel_round(app: App, client: Any, given: str, force: bool) -> None:
    """Cancel the seats that have not ended, all at once: each may need its grace.

    Those that wait first, so that none of them starts in place of one that ends. Raises `Refused`
    for a round that there is not, and at last what one of its seats was refused for.
    """
    from engine.cli.handles import resolve_round
    from engine.cli.roundwatch import read_round
    from engine.cli.words import is_waiting

    round_id = resolve_round(app, client, given)
    rows = read_round(client, round_id)["seats"].values()
    left = [row for row in rows if row["status"] not in (*exits.ENDED, "forgotten")]
    waiting = [row for row in left if is_waiting(row)]
    running = [row for row in left if not is_waiting(row)]
    refused = [*_cancel_seats(app, client, waiting, force)]
    refused += _cancel_seats(app, client, running, force)
    if refused:
        raise refused[-1]
    if not left and not app.json:
        app.console.say(f"no seat of {round_id} runs or waits")


def _cancel_seats(app: App, client: Any, rows: list[dict[str, Any]], force: bool) -> list[Refused]:
    """Cancel these side by side; what was refused, but for those that are gone meanwhile."""
    from engine.cli.handles import as_param
    from engine.cli.words import row_handle
    from engine.client.errors import EXPIRED_HANDLE, UNKNOWN_HANDLE

    common, asked = {"as": app.caller, "force": force or None}, {}
    for row in rows:
        params = {**common, "kickoffId": row["kickoffId"]}
        asked[client.submit("cancel", params, budget=CANCEL_BUDGET).id] = row_handle(row)
    refused = []
    while asked:
        got = client.next_answer(None)
        if got is None or got[0].id not in asked:
            continue
        handle, answer = asked.pop(got[0].id), got[1]
        if answer.error is None:
            _tell(app, client, handle, {**as_param(handle), **answer.result})
        elif answer.error.code not in (UNKNOWN_HANDLE, EXPIRED_HANDLE):
            app.subject = handle
            refused.append(answer.error)
    return refused


def _tell(app: App, client: Any, handle: str, reply: dict[str, Any]) -> None:
    """Print what became of a cancel."""
    from engine.cli.handles import task_of
    from engine.cli.words import cancelled
    from engine.client.wire import to_json

    if app.json:
        app.console.line(to_json(reply))
        return
    console = app.console
    count = len(reply.get("signalled") or ())
    if reply["outcome"] == "already_finished":
        line = _had_ended(task_of(app, client, handle), console)
        processes = f"{count} {'process' if count == 1 else 'processes'}"
        console.say(line + (f"; {processes} that it left behind ended" if count else ""))
    else:
        console.say(cancelled(handle, count))
    for survivor in reply.get("survivors") or ():
        console.say(f"{handle}: process {_pid(survivor)} is still there", always=True)


def _cancel_all(app: App) -> int:
    from engine.cli.words import cancelled
    from engine.client.wire import to_json

    asked = {"as": app.caller, "caller": app.caller}
    done = app.client().call("cancel", asked, budget=CANCEL_BUDGET)["tasks"]
    for each in done:
        if app.json:
            app.console.line(to_json(each))
        elif each["outcome"] == "cancelled":
            app.console.say(cancelled(each["taskId"], len(each.get("signalled") or ())))
        for survivor in each.get("survivors") or ():
            pid = _pid(survivor)
            app.console.say(f"{each['taskId']}: process {pid} is still there", always=True)
    if not done and not app.json:
        app.console.say(f"nothing of {app.caller} runs or waits")
    return exits.DONE


def _had_ended(row: dict[str, Any], console: Console) -> str:
    """`t8f3kq2 had already succeeded at 12:02:11`."""
    from engine.cli import units, words

    verbs = {"lost": "been lost", "cancelled": "been cancelled", "timed_out": "timed out"}
    status = str(row["status"])
    done = verbs.get(status, f"been {status}" if status in ("skipped", "denied") else status)
    line = f"{words.handle(row)} had already {done}"
    if not row.get("endedAt"):
        return line
    return f"{line} at {units.clock(row['endedAt'], console.now(), None)[:-4]}"


def _pid(survivor: Any) -> Any:
    return survivor.get("pid") if isinstance(survivor, dict) else survivor


def _forget(app: App, client: Any, given: str, force: bool) -> None:
    from engine.cli.handles import resolve
    from engine.client.errors import ConnectionLost
    from engine.client.wire import to_json

    handle = resolve(app, client, given)
    task_id = "t" + handle[1:] if handle.startswith("k") else handle
    params = {"as": app.caller, "taskId": task_id, "force": force or None}
    try:
        reply = client.call("forget", params, resend=False)
    except ConnectionLost as exc:
        line = f"connection lost: {task_id} may have been forgotten; engine show {task_id} tells"
        raise ConnectionLost(line) from exc
    if app.json:
        app.console.line(to_json(reply))


def _reset(app: App, *, kind: str) -> int:
    from engine.client.wire import to_json

    asked = {"as": app.caller, "kind": kind}
    # What runs in a Python session has its grace.
    budget = CANCEL_BUDGET if kind == "python" else 0.0
    reply = app.client().call("reset_session", asked, budget=budget)
    if app.json:
        app.console.line(to_json(reply))
    return exits.DONE


def _call(app: App, *, method: str, params: str) -> int:
    """Print the reply of any method. `as` is the caller's name unless the params have one."""
    from engine.cli.app import read_stdin
    from engine.client.wire import to_json

    try:
        given = json.loads(read_stdin("JSON") if params == "-" else params)
    except (ValueError, RecursionError) as exc:
        raise click.UsageError(f"that is no JSON: {exc}") from exc
    if not isinstance(given, dict):
        raise click.UsageError("params are a JSON object: they go by name")
    try:
        to_json(given).encode()
    except UnicodeEncodeError as exc:
        raise click.UsageError("that is no JSON: half of a surrogate pair") from exc
    except (ValueError, RecursionError) as exc:
        raise click.UsageError(f"that is no JSON: {exc}") from exc
    given.setdefault("as", app.caller)
    budget = _budget(given)
    app.console.line(
        to_json(app.client(hello=True).call(method, given, budget=budget, resend=False))
    )
    return exits.DONE


def _budget(given: dict[str, Any]) -> float:
    """How long the engine may take by the params' own terms; a wrong type is its to refuse."""
    names = ("timeout_secs", "wait_seconds", "waitSeconds", "timeout_s", "grace_secs")
    longest = 20.0 if "timeout_secs" not in given else 0.0
    for name in names:
        value = given.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            longest = max(longest, float(min(value, 300.0)))
    return longest
