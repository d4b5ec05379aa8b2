"""The small engine with what the screens of the whole ask for: the roster, the last hour."""

from __future__ import annotations

import base64
from typing import Any

from client.fake_engine import FakeEngine, Fault


class FullerEngine(FakeEngine):
    """`roster_pages` and `hour` are what it answers with; None: it has no such method."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.roster_pages: list[list[dict[str, Any]]] | None = []
        self.hour: dict[str, Any] | None = {"ended": {}, "p50Ms": None, "p95Ms": None}
        self.longest_hold = 55.0  # seconds that it holds list_tasks
        self.info: dict[str, Any] = {}  # over what engine_info says
        self.fed = b""  # what write_stdin brought
        self.loses: list[str] = []  # methods whose next call is done and not answered

    def start(self) -> None:
        super().start()
        for name in ("engine.json", "human.token"):
            (self.home / name).chmod(0o600)

    def do_roster(self, params: dict[str, Any], hello: Any) -> dict[str, Any]:
        if self.roster_pages is None:
            raise Fault(-32601, "method_not_found", "no method roster")
        firsts = [None, *(page[-1]["name"] for page in self.roster_pages[:-1])]
        number = firsts.index(params.get("after"))
        page = self.roster_pages[number] if self.roster_pages else []
        return {"callers": page, "hasMore": number + 1 < len(self.roster_pages)}

    def do_read_stats(self, params: dict[str, Any], hello: Any) -> dict[str, Any]:
        if self.hour is None:
            raise Fault(-32601, "method_not_found", "no method read_stats")
        return {"samples": [], "hasMore": False, "lastHour": self.hour}

    def do_list_tasks(self, params: dict[str, Any], hello: Any) -> dict[str, Any]:
        after, whose = params.get("changed_after"), params.get("caller") or params["as"]
        if after is not None:

            def has_news() -> bool:
                rows = [job.row for job in self.jobs.values() if whose in ("*", job.row["as"])]
                return self.is_closing or any(row["changedSeq"] > after for row in rows)

            with self.news:
                self.news.wait_for(has_news, min(params.get("timeout_secs", 0), self.longest_hold))
        return super().do_list_tasks({**params, "timeout_secs": 0}, hello)

    def do_engine_info(self, params: dict[str, Any], hello: Any) -> dict[str, Any]:
        return super().do_engine_info(params, hello) | self.info

    def do_forget(self, params: dict[str, Any], hello: Any) -> dict[str, Any]:
        reply = super().do_forget(params, hello)
        self._lose("forget")
        return reply

    def do_write_stdin(self, params: dict[str, Any], hello: Any) -> dict[str, Any]:
        data = base64.b64decode(params.get("base64") or "")
        self.fed += data
        self._lose("write_stdin eof" if params.get("eof") else "write_stdin")
        return {"written": len(data)}

    def do_reset_session(self, params: dict[str, Any], hello: Any) -> dict[str, Any]:
        self._lose("reset_session")
        return {}

    def _lose(self, call: str) -> None:
        if call in self.loses:
            self.loses.remove(call)
            self.drop()

    def do_cancel(self, params: dict[str, Any], hello: Any) -> dict[str, Any]:
        if "caller" not in params:
            return super().do_cancel(params, hello)
        names = [n for n, job in self.jobs.items() if job.row["as"] == params["caller"]]
        asked = [{"as": params["caller"], "taskId": "t" + n} for n in names]
        open_ = [a for a in asked if not self.jobs[a["taskId"][1:]].is_over]
        return {
            "tasks": [
                {"taskId": a["taskId"], **super(FullerEngine, self).do_cancel(a, hello)}
                for a in open_
            ]
        }


def caller(name: str, running: int = 0, queued: int = 0, **more: Any) -> dict[str, Any]:
    """An entry of the roster."""
    return {
        "name": name,
        "connections": 1,
        "running": running,
        "queued": queued,
        "endedLastHour": 0,
        "failedLastHour": 0,
        "lastSeen": None,
        **more,
    }
