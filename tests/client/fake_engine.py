"""A small engine for the tests of its clients: real bash, the real wire, a foreign server.

It speaks the methods that the command line uses, keeps what it was asked in `calls`, and can drop
its connections or hold its queue at a word. Everything lives in threads of the test's process.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, unix_serve

AGENT = "a" * 43
OBSERVER = "o" * 43
HUMAN = "h" * 43
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
FINAL = ("succeeded", "failed", "cancelled", "timed_out", "lost")


def stamp() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Fault(Exception):
    """An error reply."""

    def __init__(self, code: int, kind: str, message: str, **data: Any) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message, "data": {"kind": kind, **data}}


class Job:
    """One task: its process, what it wrote, its row."""

    def __init__(self, name: str, params: dict[str, Any], hello: dict[str, Any]) -> None:
        self.name, self.params, self.hello = name, params, hello
        self.key = params.get("key")
        self.kept: dict[str, bytes] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self.seq = 0
        self.cancelled = False
        self.row: dict[str, Any] = {
            "taskId": None,
            "kickoffId": "k" + name,
            "as": params["as"],
            "kind": "bash" if "command" in params else "argv",
            "title": (params.get("command") or " ".join(params.get("argv", ()))).split("\n")[0],
            "status": "queued",
            "reason": None,
            "exitCode": None,
            "signal": None,
            "createdAt": stamp(),
            "startedAt": None,
            "endedAt": None,
            "durationMs": None,
            "lastOutputAt": None,
            "outputBytes": 0,
            "errorLines": 0,
            "warningLines": 0,
            "lane": None,
            "queuePosition": 1,
            "queueReason": "all slots are taken",
            "roundId": None,
            "seat": None,
            "changedSeq": 0,
        }

    @property
    def is_over(self) -> bool:
        return self.row["status"] in FINAL

    @property
    def streams(self) -> tuple[str, ...]:
        return ("stdout", "stderr") if self.params.get("streams") == "split" else ("output",)


class FakeEngine:
    """Listens on `home`/engine.sock between `start` and `stop`; jobs outlive both."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.jobs: dict[str, Job] = {}
        self.news = threading.Condition()
        self.seq = 0
        self.holds_queue = False
        self.is_closing = False
        self.degraded: list[str] = []
        self.greetings: list[dict[str, Any]] = []
        self.lines: list[dict[str, Any]] = []  # the journal
        self.dropped = 0  # lines that the next page of the journal says are gone
        self.reply_logs: dict[str, Any] = {"logs": [], "logsDropped": 0}  # of wait, bash, execute
        self.tokens: list[tuple[str, str]] = []  # method and the token that it came with
        self._server: Server | None = None
        self._threads: list[threading.Thread] = []
        self._connections: list[ServerConnection] = []
        home.mkdir(mode=0o700, exist_ok=True)
        self.started_at = stamp()
        self.process: subprocess.Popen[bytes] | None = None  # stands in for the engine's own

    def start(self) -> None:
        path = self.home / "engine.sock"
        path.unlink(missing_ok=True)
        folder = os.open(self.home, os.O_PATH)
        try:
            self._server = unix_serve(
                self._serve,
                f"/proc/self/fd/{folder}/engine.sock",
                process_request=self._check_token,
                max_size=16 << 20,
                close_timeout=0.2,  # who is killed says no goodbye, and waits for none
            )
        finally:
            os.close(folder)
        self.process = self.process or subprocess.Popen(["sleep", "600"])
        facts = {
            "url": "ws://127.0.0.1:8420/rpc",
            "socket": str(path),
            "pid": self.process.pid,
            "version": "0.1.0",
            "startedAt": self.started_at,
            "tokens": {"agent": AGENT, "observer": OBSERVER},
        }
        (self.home / "engine.json").write_text(json.dumps(facts))
        (self.home / "human.token").write_text(HUMAN + "\n")
        self._spawn(self._server.serve_forever)

    def stop(self) -> None:
        """As when the process is killed: no goodbye, the socket file stays."""
        assert self._server is not None
        self.drop()  # first: the server would say goodbye
        self._server.shutdown()
        self._server = None
        self.drop()

    def drop(self) -> None:
        """Cut all connections."""
        connections, self._connections = self._connections, []
        for connection in connections:
            with suppress(OSError):
                connection.socket.shutdown(2)

    def close(self) -> None:
        """Leave no process, thread or file descriptor behind."""
        if self._server is not None:
            self.stop()
        self._end_process()
        with self.news:
            self.is_closing = True
            self.news.notify_all()
        for job in self.jobs.values():
            self._kill(job, signal.SIGKILL)
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()
        shutil.rmtree(self.home)

    def _end_process(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def methods(self) -> list[str]:
        return [method for method, _ in self.calls]

    def release_queue(self) -> None:
        """Let what waits in the queue start."""
        self.holds_queue = False
        for job in list(self.jobs.values()):
            if job.row["status"] == "queued":
                self._launch(job)

    def wait_for(self, predicate: Any) -> None:
        """Block until `predicate()` holds; fail after 10 seconds."""
        with self.news:
            assert self.news.wait_for(predicate, 10)

    def _spawn(self, function: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _check_token(self, connection: ServerConnection, request: Request) -> Response | None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if request.path != "/rpc" or request.headers["Host"] != "localhost":
            return connection.respond(404, "")
        if token not in (AGENT, OBSERVER, HUMAN):
            return connection.respond(401, "")
        self._connections.append(connection)  # before the client hears that it is connected
        return None

    def _serve(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        token = connection.request.headers["Authorization"].removeprefix("Bearer ")
        hello: dict[str, Any] = {}
        lock = threading.Lock()
        with suppress(ConnectionClosed, OSError):
            for text in connection:
                call = json.loads(text)
                if call["method"] == "hello":
                    hello.update(call["params"])
                    self.greetings.append(call["params"])
                self._spawn(self._answer, connection, lock, call, hello, token)

    def _answer(
        self, connection: ServerConnection, lock: Any, call: dict[str, Any], hello: Any, token: str
    ) -> None:
        method, params = call["method"], call.get("params", {})
        with self.news:
            self.calls.append((method, params))
            self.tokens.append((method, token))
            self.news.notify_all()
        if "id" not in call:  # a notification
            return
        try:
            if method == "shutdown" and token != HUMAN:
                raise Fault(-32009, "forbidden", "the token's role may not call shutdown")
            handler = getattr(self, f"do_{method}", None)
            if handler is None:
                raise Fault(-32601, "method_not_found", f"no method {method}")
            reply = {"result": handler(params, hello)}
        except Fault as fault:
            reply = {"error": fault.error}
        with lock, suppress(ConnectionClosed, OSError):
            connection.send(json.dumps({"jsonrpc": "2.0", "id": call["id"], **reply}))
        if method == "shutdown" and "result" in reply:
            self.stop()
            self._end_process()

    # Methods.

    def do_hello(self, params: Any, hello: Any) -> dict[str, Any]:
        return {}

    def do_bash(self, params: dict[str, Any], hello: dict[str, Any]) -> dict[str, Any]:
        with self.news:
            key = (params["as"], params.get("key"))
            job = next((j for j in self.jobs.values() if (j.row["as"], j.key) == key), None)
            if job is None or key[1] is None:
                name = f"8f3{len(self.jobs):03d}"
                job = self.jobs[name] = Job(name, params, dict(hello))
                self._touch(job)
                if not self.holds_queue:
                    self._launch(job)
        return self._await(job, params)

    do_execute = do_bash

    def do_wait(self, params: dict[str, Any], hello: Any) -> dict[str, Any]:
        return self._await(self._job(params), params)

    def do_cancel(self, params: dict[str, Any], hello: Any) -> dict[str, Any]:
        job = self._job(params)
        if job.row["as"] != params["as"] and not params.get("force"):
            whose = f"{params.get('taskId')} is {job.row['as']}'s"
            raise Fault(-32009, "forbidden", f"{whose}; cancel it with force: true")
        if job.is_over:
            return {
                "status": job.row["status"],
                "outcome": "already_finished",
                "signalled": [],
                "survivors": [],
            }
        with self.news:
            job.cancelled = True
            if job.process is None:
                job.row |= {"status": "cancelled", "endedAt": stamp(), "durationMs": 0}
                self._touch(job)
        self._kill(job, signal.SIGTERM)
        self.wait_for(lambda: job.is_over)
        pids = [job.process.pid] if job.process else []
        return {
            "status": job.row["status"],
            "outcome": "cancelled",
            "signalled": pids,
            "survivors": [],
        }

    def do_read_output(self, params: dict[str, Any], hello: Any) -> dict[str, Any]:
        job, stream = self._job(params), params.get("stream", "output")
        if stream not in job.streams:
            raise Fault(-32602, "invalid_params", "$.stream: no such stream")
        offset, limit = params.get("offset", 0), params.get("limit_bytes", 65536)
        with self.news:
            self.news.wait_for(
                lambda: len(job.kept.get(stream, b"")) > offset or job.is_over,
                params.get("timeout_secs", 0),
            )
            whole = job.kept.get(stream, b"")
            page = whole[offset : offset + min(limit, 380_000)]
            end = offset + len(page)
            head = {"base64": base64.b64encode(page).decode()}
            if not params.get("raw"):
                head = {"text": page.decode(errors="replace")}
            return head | {
                "offset": offset,
                "nextOffset": end,
                "size": len(whole),
                "eof": job.is_over and end == len(whole),
                "droppedBytes": 0,
            }

    def do_read_task(self, params: dict[str, Any], hello: Any) -> dict[str, Any]:
        job = self._job(params)
        paths = [str(self.home / "tasks" / job.name / stream) for stream in job.streams]
        return job.row | {
            "command": job.params.get("command", job.row["title"]),
            "cwd": job.hello.get("cwd"),
            "session": bool(job.params.get("session")),
            "outputPath": paths[0] if len(paths) == 1 else paths,
            "cpuMs": 0,
            "survivors": [],
            "droppedBytes": 0,
        }

    def do_list_tasks(self, params: dict[str, Any], hello: Any) -> dict[str, Any]:
        caller = params.get("caller") or params["as"]

        def rows() -> list[dict[str, Any]]:
            jobs = sorted(self.jobs.values(), key=lambda j: j.name, reverse=True)
            found = [j.row for j in jobs if caller in ("*", j.row["as"])]
            if params.get("state"):
                found = [r for r in found if r["status"] in params["state"]]
            after = params.get("changed_after")
            return [r for r in found if after is None or r["changedSeq"] > after]

        with self.news:
            if params.get("changed_after") is not None:
                self.news.wait_for(rows, params.get("timeout_secs", 0))
            start = int(params.get("before") or 0)
            limit = params.get("limit", 50)
            page = [dict(r) for r in rows()[start : start + limit]]
            return {
                "tasks": page,
                "hasMore": len(rows()) > start + limit,
                "next": str(start + limit),
                "latestSeq": self.seq,
                "nextChangedAfter": self.seq,
            }

    def log(
        self, level: str, text: str, caller: str | None = None, task: str | None = None
    ) -> None:
        """Write a line of the journal."""
        with self.news:
            self.seq += 1
            source = "engine" if caller is None else "output"
            line = {"seq": self.seq, "time": stamp(), "level": level, "caller": caller}
            self.lines.append(line | {"taskId": task, "source": source, "text": text})
            self.news.notify_all()

    def do_read_logs(self, params: dict[str, Any], hello: Any) -> dict[str, Any]:
        assert params["peek"]
        before, after = params.get("before_seq"), params.get("after_seq", 0)
        if since := params.get("since"):
            after = max((n["seq"] for n in self.lines if n["time"] < since), default=0)

        def found() -> list[dict[str, Any]]:
            floor, text = LEVELS.index(params["logs"]), params.get("contains", "").lower()
            return [
                line
                for line in self.lines
                if LEVELS.index(line["level"]) >= floor
                and (line["seq"] < before if before is not None else line["seq"] > after)
                and params.get("caller") in (None, line["caller"])
                and params.get("taskId") in (None, line["taskId"])
                and text in line["text"].lower()
            ]

        def shown() -> list[dict[str, Any]]:
            is_scoped = params["logScope"] == "caller" and not params.get("caller")
            return [n for n in found() if not is_scoped or n["caller"] in (None, params["as"])]

        with self.news:
            hold = params.get("timeout_secs", 0)
            self.news.wait_for(lambda: shown() or self.is_closing, hold)
            limit, every = params["limit"], shown()
            page = every[-limit:] if before is not None else every[:limit]
            gap = self.dropped if before is None else 0
            self.dropped -= gap
            reply = {
                "lines": page,
                "nextAfterSeq": page[-1]["seq"] if len(page) < len(every) else self.seq,
                "latestSeq": self.seq,
                "hasMore": len(page) < len(every),
                "leftOut": len(found()) - len(every),
                "endReason": "woke" if page else "timeout",
            }
            return reply | ({"gap": gap} if gap else {})

    def do_forget(self, params: dict[str, Any], hello: Any) -> dict[str, Any]:
        job = self._job(params)
        if not job.is_over:
            raise Fault(-32011, "invalid_state", f"t{job.name} is running", state="running")
        del self.jobs[job.name]
        return {}

    def do_reset_session(self, params: dict[str, Any], hello: Any) -> dict[str, Any]:
        return {}

    def do_shutdown(self, params: dict[str, Any], hello: Any) -> dict[str, Any]:
        return {}

    def do_engine_info(self, params: dict[str, Any], hello: Any) -> dict[str, Any]:
        counts = {
            s: sum(j.row["status"] == s for j in self.jobs.values())
            for s in ("queued", "held", "running")
        }
        return {
            "name": "engine",
            "version": "0.1.0",
            "protocol": 1,
            "startedAt": self.started_at,
            "slots": 32,
            **counts,
            "oldestQueuedMs": None,
            "lanes": {},
            "requestsPending": 0,
            "callers": 1,
            "journalLines": 0,
            "outputBytes": 0,
            "diskFreeBytes": 118 << 30,
            "policy": "none",
            "limits": {},
            "degraded": self.degraded,
        }

    # Jobs.

    def _job(self, params: dict[str, Any]) -> Job:
        handle = params.get("taskId") or params.get("kickoffId") or ""
        job = self.jobs.get(handle[1:])
        if handle == "t7a0000":
            facts = {"endedAt": "2026-11-22T10:00:00.000Z", "status": "failed"}
            raise Fault(-32004, "expired_handle", "expired", **facts)
        if job is None or (handle[0] == "t" and job.row["taskId"] is None):
            raise Fault(-32003, "unknown_handle", "no such handle")
        return job

    def _touch(self, job: Job) -> None:
        with self.news:
            self.seq += 1
            job.row["changedSeq"] = self.seq
            self.news.notify_all()

    def _launch(self, job: Job) -> None:
        argv = job.params.get("argv") or ["bash", "-c", job.params["command"]]
        stdin = job.params.get("stdin")
        split = job.params.get("streams") == "split"
        started = stamp()  # as the keeper takes it: before there is a process
        process = job.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if isinstance(stdin, dict) else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if split else subprocess.STDOUT,
            cwd=job.params.get("cwd") or job.hello.get("cwd"),
            env={**(job.hello.get("env") or os.environ), **(job.params.get("env") or {})},
            start_new_session=True,
        )
        if process.stdin is not None:
            process.stdin.write(job.params["stdin"]["text"].encode())
            process.stdin.close()
        job.row |= {"status": "running", "taskId": "t" + job.name, "startedAt": started}
        job.row |= {"queuePosition": None, "queueReason": None}
        self._touch(job)
        pipes = (process.stdout, process.stderr) if split else (process.stdout,)
        readers = [
            threading.Thread(target=self._read, args=(job, stream, pipe), daemon=True)
            for stream, pipe in zip(job.streams, pipes, strict=True)
        ]
        for reader in readers:
            reader.start()
        self._spawn(self._reap, job, readers, time.monotonic())

    def _read(self, job: Job, stream: str, pipe: Any) -> None:
        while data := pipe.read1(65536):
            with self.news:
                job.kept[stream] = job.kept.get(stream, b"") + data
                job.row["lastOutputAt"] = stamp()
                job.row["outputBytes"] += len(data)
                self.news.notify_all()
        pipe.close()

    def _reap(self, job: Job, readers: list[threading.Thread], began: float) -> None:
        assert job.process is not None
        timed_out = False
        try:
            code = job.process.wait(job.params.get("deadline_secs"))
        except subprocess.TimeoutExpired:
            timed_out = True
            self._kill(job, signal.SIGKILL)
            code = job.process.wait()
        for reader in readers:
            reader.join()
        status = "succeeded" if code == 0 else "failed"
        status = "timed_out" if timed_out else "cancelled" if job.cancelled else status
        with self.news:
            job.row |= {
                "status": status,
                "reason": "exit",
                "exitCode": code if code >= 0 else None,
                "signal": signal.Signals(-code).name if code < 0 else None,
                "endedAt": stamp(),
                "durationMs": int((time.monotonic() - began) * 1000),
            }
            self._touch(job)

    def _kill(self, job: Job, number: int) -> None:
        if job.process is not None and not job.is_over:
            with suppress(ProcessLookupError):
                os.killpg(job.process.pid, number)

    def _await(self, job: Job, params: dict[str, Any]) -> dict[str, Any]:
        with self.news:
            self.news.wait_for(lambda: job.is_over, params.get("timeout_secs", 20))
            row = job.row
            common = {n: row[n] for n in ("status", "taskId", "kickoffId", "as", "outputBytes")}
            if row["status"] == "queued":
                return {
                    "status": "running",
                    **{n: row[n] for n in ("kickoffId", "as", "queuePosition", "queueReason")},
                }
            if not job.is_over:
                news = {"lastOutputAt": row["lastOutputAt"], "elapsedMs": 1}
                return {**common, **news, **self.reply_logs}
            texts = {s: shown(job.kept.get(s, b"")) for s in job.streams}
            limit = params.get("max_output_bytes", 32768)
            cut = {s: t.encode()[:limit].decode(errors="ignore") for s, t in texts.items()}
            facts = ("reason", "exitCode", "signal", "createdAt", "endedAt", "durationMs")
            return {**common, **cut, **{n: row[n] for n in facts}, **self.reply_logs, "notices": []}


def shown(data: bytes) -> str:
    """Output as a reply shows it."""
    text = re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07", "", data.decode(errors="replace"))
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return "\n".join(line.rpartition("\r")[2] for line in lines)
