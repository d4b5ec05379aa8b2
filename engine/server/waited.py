"""Tasks and kickoffs as a wait over many handles sees them; see `updates.Waited`."""

from __future__ import annotations

import functools
from collections.abc import Collection, Hashable, Sequence
from typing import Any, Final

import msgspec

from engine.protocol.params import WaitAnyParams
from engine.server import outputs, replies
from engine.server.dispatcher import Request
from engine.server.methods_run import finished
from engine.server.services import Services
from engine.server.updates import List, Look, look_at
from engine.tasks.alerts import Alert, Once
from engine.tasks.task import Task

OUTPUT_BYTES: Final = 32_768  # of an end, unless there is less room
LOG_SHARE: Final = 8  # of the room for an update, what its log may take
FLOOR: Final = "warning"  # of the lines of a task that stand beside its end


class Waiter(msgspec.Struct, frozen=True, kw_only=True):
    """Who waits, and how the reply is to be."""

    services: Services
    request: Request
    caller: str
    params: WaitAnyParams

    @property
    def is_onlooker(self) -> bool:
        return self.request.is_onlooker

    def acknowledges(self, once: Once) -> bool:
        """Whether something that `once` has in doubt has come, as the call says."""
        ack = self.params.ack
        return ack is not None and not self.is_onlooker and once.acknowledge(ack)

    def wake(self, key: Hashable) -> None:
        """Have those look who wait for what has this key, or for all of the caller's."""
        self.services.waits.wake(key)
        self.services.waits.wake(("inbox", self.caller))

    @property
    def shown_to(self) -> str:
        """Whom alerts are told once: an onlooker for itself, as nothing of the caller's moves."""
        return f"{self.request.connection.name}/{self.caller}" if self.is_onlooker else self.caller

    @property
    def has_tails(self) -> bool:
        """Whether what goes on shows its last output: where nobody was to wait."""
        return self.params.wait_seconds == 0 and self.params.include_output


class WaitedTask:
    """A task or kickoff."""

    list: List = "updates"

    def __init__(self, waiter: Waiter, task: Task, id_: str) -> None:
        self._waiter, self._services, self._caller = waiter, waiter.services, waiter.caller
        self._task, self.id = task, id_
        self.wake_key: Hashable = ("state", task.id)
        self._told_before: tuple[int, ...] | None = None
        self._alert: Alert | None = None

    @property
    def handle(self) -> str:
        return self._task.record.task_id

    def look(self) -> Look | None:
        task, schedule = self._task, self._services.supervisor.schedule
        once = self._once()
        if once is not None and once.doubtful and self._waiter.acknowledges(once):
            self._keep()
        shown = () if once is None else once.shown
        return look_at(task.record, shown, is_lane_full=lambda: schedule.is_lane_full(task))

    def _once(self) -> Once | None:
        """What the caller was told once of the task; None: nothing."""
        if not self._waiter.is_onlooker:
            self._services.logs.recall(self._task, self._caller)
        return self._task.shown.get(self._waiter.shown_to)

    def _keep(self) -> None:
        self._services.logs.keep_told(self._task, self._waiter.shown_to)

    def ends(self, look: Look, told: Collection[str]) -> Sequence[str]:
        is_new = look.ready == "ended" and not look.is_returned and self.handle not in told
        return [self.handle] if is_new else []

    def alert(self, look: Look, delivery: str) -> Alert | None:
        if look.category is None:
            return None
        once = self._task.shown.setdefault(self._waiter.shown_to, Once())
        wake = functools.partial(self._waiter.wake, self.wake_key)
        self._alert = Alert(once, [look.category], delivery, self._keep, wake)
        return self._alert

    def unsettled(self, look: Look) -> Sequence[str]:
        return [self._task.id] if look.ready == "ended" and self._is_shown(look) else []

    def _is_shown(self, look: Look) -> bool:
        """Whether an entry has what the task has written."""
        return self._waiter.params.include_output and not look.is_returned

    def unshow(self) -> None:
        if self._told_before is not None:
            self._task.told[self._caller] = self._told_before

    async def show(
        self, look: Look, room: int, marked: Collection[str], behind: Collection[str]
    ) -> dict[str, Any]:
        self._told_before = self._task.told.get(self._caller)
        head: dict[str, Any] = {"id": self.id, "ready": look.ready}
        is_shown = self._is_shown(look)
        if look.ready == "ended":
            if look.is_returned:
                head["output_returned"] = True
            if self.handle in marked:
                head["redelivered"] = True
            is_behind = self._task.id in behind
            return {**await self._ended(room, is_shown=is_shown, is_behind=is_behind), **head}
        if self._alert is not None and self._alert.marked:
            head["redelivered"] = True
        record = self._task.record
        if look.ready == "execution_blocked":
            head["category"] = look.category
            if look.category == "input":
                head["prompt"] = record.prompt
        elif record.ready_line is not None:
            head["line"] = record.ready_line
        return head | await self._running(is_shown=is_shown) | head

    async def _ended(self, room: int, *, is_shown: bool, is_behind: bool) -> dict[str, Any]:
        if not is_shown:
            return replies.ended(self._task, room)
        logs = await self._services.logs.of(
            self._task,
            self._caller,
            FLOOR,
            "caller",
            room // LOG_SHARE,
            is_onlooker=self._waiter.is_onlooker,
            is_alone=True,
            is_behind=is_behind,
        )
        json_limit = room - room // LOG_SHARE
        update = await finished(self._services, self._task, OUTPUT_BYTES, json_limit, logs) | logs
        del update["notices"]
        return update

    async def _running(self, *, is_shown: bool) -> dict[str, Any]:
        supervisor, task = self._services.supervisor, self._task
        is_onlooker = self._waiter.is_onlooker
        if is_shown and task.is_started:
            update = await replies.running(
                supervisor,
                task,
                self._caller,
                OUTPUT_BYTES,
                self._waiter.request.page_bytes,
                is_first=False,
                is_onlooker=is_onlooker,
            )
            del update["notices"]
        else:
            update = replies.standing(supervisor, task) | {"outputBytes": task.record.output_bytes}
        if not is_onlooker:
            self._keep()
        return update

    async def standing(self, room: int) -> dict[str, Any]:
        facts = replies.standing(self._services.supervisor, self._task)
        update = {"id": self.id, **facts, "ready": None}  # that it is ready was told
        update["outputBytes"] = self._task.record.output_bytes
        if self._waiter.has_tails and self._task.is_started:
            update |= await outputs.tail(self._task)
        return update
