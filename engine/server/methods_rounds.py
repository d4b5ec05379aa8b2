"""`run_round`, `list_rounds`, `read_round`: jobs side by side under one handle."""

from __future__ import annotations

from typing import Any

import msgspec
import structlog
import trio

from engine.errors import Forbidden, InvalidParams
from engine.jobs.directory import Asked
from engine.model import TaskRecord, rfc3339
from engine.protocol.decode import member_path
from engine.protocol.params import ListRoundsParams, ReadRoundParams, RunRoundParams
from engine.server import replies
from engine.server.dispatcher import Request
from engine.server.fitting import frame
from engine.server.methods_run import asked_by
from engine.server.services import Services, caller_of
from engine.store.index import FORGOTTEN
from engine.store.rounds import StoredRound
from engine.tasks.seats import Seat, ended_at, status_of
from engine.tasks.task import Task

log = structlog.get_logger()


class RoundMethods:
    def __init__(self, services: Services) -> None:
        self._services = services

    # -- starting ----------------------------------------------------------------------------------

    async def run_round(self, request: Request, params: RunRoundParams) -> dict[str, Any]:
        caller = caller_of(request, params)
        if params.seats is not None:
            id_, tasks = await self._start(request, caller, params.seats)
        else:
            assert params.round_id is not None
            assert params.retry_seats is not None
            id_ = params.round_id
            tasks = await self._retry(caller, id_, params.retry_seats)
        log.info("round", roundId=id_, caller=caller, seats=len(tasks), again=params.seats is None)
        await self._services.supervisor.wait_started(tasks.values())
        return {"roundId": id_, "seats": {name: _handle(task) for name, task in tasks.items()}}

    async def _start(
        self, request: Request, caller: str, seats: dict[str, Any]
    ) -> tuple[str, dict[str, Task]]:
        base, starter = self._services.base_of(request.connection), self._services.round_starter
        asked = {name: asked_by(given, caller, base) for name, given in seats.items()}
        for name, each in asked.items():
            self._check(name, each)
        id_, tasks = await starter.start(caller, asked)
        bound = [tasks[name] for name, each in seats.items() if each.on_disconnect == "cancel"]

        def settle(written: bool) -> None:
            if written:
                self._services.supervisor.prepare_next(next(iter(tasks.values())))
                return
            for task in bound:
                if not task.is_ended:
                    self._services.bind(request.connection, task, caller)

        request.also_finished(settle)
        return id_, tasks

    def _check(self, name: str, asked: Asked) -> None:
        try:
            self._services.round_starter.check(asked)
        except InvalidParams as exc:
            at = member_path("$.seats", name)
            raise InvalidParams(at + exc.path.removeprefix("$"), exc.expected) from exc

    async def _retry(self, caller: str, id_: str, names: list[str]) -> dict[str, Task]:
        round_ = self._services.find_round(id_)
        if round_.row.caller != caller:
            raise Forbidden(f"{id_} is {round_.row.caller}'s")
        for place, name in enumerate(names):
            if name not in round_.row.seats:
                known = ", ".join(round_.row.seats)
                raise InvalidParams(f"$.retry_seats[{place}]", f"one of the seats {known}")
        return await self._services.round_starter.retry(round_, names)

    # -- looking -----------------------------------------------------------------------------------

    async def list_rounds(self, request: Request, params: ListRoundsParams) -> dict[str, Any]:
        name = params.caller or caller_of(request, params)
        before = None if params.before is None else int(params.before)
        rows = self._services.rounds.newest_first(None if name == "*" else name, before)
        page: list[dict[str, Any]] = []
        size, last = frame(request.page_bytes), None
        for row in rows:
            shown = self._row(row)
            size += len(msgspec.json.encode(shown)) + 1
            if page and (len(page) == params.limit or size > request.page_bytes):
                return {"rounds": page, "hasMore": True, "next": str(last)}
            page.append(shown)
            last = row.order
            await trio.lowlevel.checkpoint()  # 500 rounds may have 128,000 seats
        return {"rounds": page, "hasMore": False, "next": None}

    def _row(self, row: StoredRound) -> dict[str, Any]:
        seats = self._services.rounds.seats(row)
        return {**_facts(row, seats), "seats": {name: _state(each) for name, each in seats.items()}}

    async def read_round(self, request: Request, params: ReadRoundParams) -> dict[str, Any]:
        row = self._services.find_round(params.round_id).row
        await self._services.index.flush()
        seats = self._services.rounds.seats(row)
        return {
            **_facts(row, seats),
            "seats": {
                name: {"taskId": "t" + seat.id, "status": FORGOTTEN}
                if seat.task is None
                else self._task_row(seat.task.record)
                for name, seat in seats.items()
            },
            "earlier": {
                name: ["t" + id_ for id_ in ids[:-1]]
                for name, ids in row.seats.items()
                if len(ids) > 1
            },
        }

    def _task_row(self, record: TaskRecord) -> dict[str, Any]:
        index = self._services.index
        changed, tally = index.changed_seq(record.id), index.tally(record.id)
        return replies.row(self._services.supervisor, record, changed, tally)


def _facts(row: StoredRound, seats: dict[str, Seat]) -> dict[str, Any]:
    at = ended_at(seats.values())
    return {
        "roundId": row.id,
        "as": row.caller,
        "status": status_of(seats.values()),
        "createdAt": rfc3339(row.created_at),
        "endedAt": None if at is None else rfc3339(at),
    }


def _handle(task: Task) -> dict[str, Any]:
    record = task.record
    is_reached = task.is_started or task.is_ended
    return {"taskId": record.task_id} if is_reached else {"kickoffId": record.kickoff_id}


def _state(seat: Seat) -> dict[str, Any]:
    task = seat.task
    if seat.status.is_final:
        code = None if task is None else task.record.exit_code
        return {"taskId": "t" + seat.id, "status": seat.status, "exitCode": code}
    assert task is not None
    return {**_handle(task), "status": "running"}
