"""A job that is begun and left: `-d`, until it is ready where that was asked; and what follows it.

`Then` begins the second task of `--then`, which the engine starts at the end of the first.
"""

from __future__ import annotations

from typing import Any, Final

from engine.cli import exits, words
from engine.cli.app import App
from engine.cli.handles import as_param, resolve_any
from engine.cli.report import report
from engine.cli.signals import left_by, terminable
from engine.cli.view import safe
from engine.client.blocking import Client, Ticket
from engine.client.cursors import HOLD
from engine.client.errors import Refused
from engine.client.wire import to_json

# What the second task has from the first: where it runs, and as whom.
SHARED: Final = ("as", "cwd", "env")

SAID: Final = 200  # characters of a line of the job's that are quoted
FIRST_HOLD: Final = 0.25  # seconds; each is twice as long as the one before, up to `HOLD`


def resolve_after(app: App, client: Client, params: dict[str, Any]) -> None:
    """Have the handles of `--after` whole. Raises `Refused`, `AmbiguousHandle`."""
    if params.get("after"):
        params["after"] = [resolve_any(app, client, given) for given in params["after"]]
        app.subject = ""


class Then:
    """The task that follows the job: asked for once the job has a handle. `is_open` until then
    and until the engine has taken or refused it; `is_refused`: the job goes on without it."""

    def __init__(self, app: App, client: Client, params: dict[str, Any], text: str | None) -> None:
        """`params`: of the call that starts the job. `text`: None where nothing follows."""
        self._app, self._client = app, client
        self._params, self._text = params, text
        self._asked: Ticket | None = None
        self._name = ""  # of the job
        self.is_open = text is not None
        self.is_refused = False

    def begin(self, reply: dict[str, Any]) -> None:
        """The job has been accepted, as `reply` says."""
        if self.is_open and self._asked is None:
            asked = self._call(reply)
            self._asked = self._client.submit("bash", asked)

    def call(self, reply: dict[str, Any]) -> None:
        """As `begin`, and wait until the engine has taken or refused it."""
        if self.is_open:
            try:
                self._took(self._client.call("bash", self._call(reply)))
            except Refused as exc:
                self._refused(exc)

    def answered(self, ticket: Ticket, result: Any, error: Refused | None) -> bool:
        """Take an answer; False where it is none of ours."""
        if self._asked is None or ticket.id != self._asked.id:
            return False
        if error is not None:
            self._refused(error)
        else:
            self._took(result)
        return True

    def _refused(self, error: Refused) -> None:
        """Say that the job, which has been begun, has nothing that follows.

        Not the engine's own "try again": all of it again would run the job twice.
        """
        self.is_open, self.is_refused = False, True
        reason = str(error).partition("; try again")[0]
        line = f"{self._name} was started without its --then: {reason}"
        report(self._app, error.kind, [line], error.code, error.data)

    def _call(self, reply: dict[str, Any]) -> dict[str, Any]:
        import hashlib  # only here: most jobs have nothing that follows

        self._name = words.handle(reply)
        # By the key of the first: who repeats both gets the same two.
        key = hashlib.sha256(self._params["key"].encode()).hexdigest()
        return {
            **{name: self._params[name] for name in SHARED},
            "command": self._text,
            "session": False,
            "after": [reply["kickoffId"]],
            "after_when": "ended",
            "key": f"then-{key}",
            "timeout_secs": 0,
            "max_output_bytes": 0,
            "logs": "none",
        }

    def _took(self, reply: dict[str, Any]) -> None:
        self.is_open = False
        if self._app.options.get("verbose"):
            self._app.console.say(f"then {words.handle(reply)}")


class Detached:
    """One `-d` from its call to its exit code."""

    def __init__(self, app: App, method: str, params: dict[str, Any], then: str | None) -> None:
        self._app, self._method, self._params = app, method, params
        self._text = then
        self._warned: set[str] = set()

    def run(self) -> int:
        """Begin the job and print its id, once it is ready where that was asked for.

        Raises `ClientError`.
        """
        app = self._app
        client = app.client(starts=True, hello=True)
        resolve_after(app, client, self._params)
        reply = client.call(self._method, {**self._params, "timeout_secs": 0})
        self._then = Then(app, client, self._params, self._text)
        self._then.call(reply)
        if self._params.get("ready_when") is None or self._then.is_refused:
            return self._tell(reply)
        name = words.handle(reply)
        try:
            with terminable():  # `timeout 60 engine run -d …` is how a script bounds this
                return self._await_ready(client, reply)
        except KeyboardInterrupt as exc:
            app.console.end_interrupted()
            app.console.say(f"{name} runs on; engine wait {name}", always=True)
            return left_by(exc)

    def _tell(self, reply: dict[str, Any]) -> int:
        self._app.console.line(to_json(reply) if self._app.json else words.handle(reply))
        return exits.OURS if self._then.is_refused else exits.DONE

    def _warn(self, reply: dict[str, Any]) -> None:
        """Say what the engine warns of, each once: that a port was taken, which is no end."""
        for warning in reply.get("warnings") or ():
            if warning not in self._warned:
                self._warned.add(warning)
                self._app.console.say(warning)

    def _await_ready(self, client: Client, reply: dict[str, Any]) -> int:
        """Wait until the job is ready, or has ended without.

        That it is ready is told once: if to another call of this caller's, replies still say so.
        The first holds are short: a warning comes with a reply, and wakes none.
        """
        app, name = self._app, words.handle(reply)
        app.subject = name
        asked = {"as": app.caller, "ids": [name], "include_output": app.json}
        looked = {"as": app.caller, **as_param(name), "timeout_secs": 0, "max_output_bytes": 0}
        hold = FIRST_HOLD
        self._warn(reply)
        while not reply.get("ready"):
            news = client.call("wait_any", {**asked, "wait_seconds": hold}, budget=hold)
            hold = min(2 * hold, HOLD)
            for update in news["updates"] if news["reason"] == "ready" else ():
                self._warn(update)
                if update["ready"] == "ready_when":
                    app.shown = name  # else it would be told again
                    return self._tell(update)
                if update["ready"] == "ended":
                    return self._ended(client, update)
                app.console.say(words.goes_on(update))
            view = app.console.error_view()
            head = f"{view.glyph('running')} {name} is not ready yet"
            app.console.show_status(f"{head} {view.dot} Ctrl-C leaves it running")
            if news["reason"] != "ready":
                reply = client.call("wait", looked)
                self._warn(reply)
        return self._tell(reply)

    def _ended(self, client: Client, record: dict[str, Any]) -> int:
        """The job has ended and was never ready: one line, and its exit code, which is not 0."""
        name = words.handle(record)
        is_skipped = record["status"] == "skipped"
        line = words.run_ended(record) or f"{name} succeeded"
        if not (is_skipped or words.unstarted(record)):
            said = _last_said(client, record)
            line += f", before it was ready{said and ': '}{said}; engine output {name}"
        self._app.console.say(line)
        self._app.shown = name
        return exits.of_task(record) or exits.OURS


def _last_said(client: Client, record: dict[str, Any]) -> str:
    """The last error line of a job that nobody has followed, or else its last line."""
    from engine.cli.tails import last_line, read_tail
    from engine.cli.tasks import error_lines

    errors = [each["text"] for each in error_lines(client, record) if each["source"] != "engine"]
    if not errors and record.get("taskId"):
        errors = [last_line(read_tail(client, record["taskId"], "output", "stderr"))]
    return safe(errors[-1])[:SAID] if errors else ""
