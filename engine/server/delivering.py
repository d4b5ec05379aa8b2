"""Ends and notices on their way to a caller: noted as told, and settled by the reply's fate."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any

from engine.errors import ExpiredHandle, UnknownHandle
from engine.model import rfc3339
from engine.server.dispatcher import Request
from engine.server.services import Services
from engine.store.reading import StoreUnreadable
from engine.tasks.alerts import Alert
from engine.tasks.inbox import Inbox
from engine.tasks.mailbox import Delivery
from engine.tasks.rounds import LETTER, Round, id_of
from engine.tasks.seats import ended_at, status_of
from engine.tasks.task import Task


def begin_delivery(
    inbox: Inbox, request: Request, caller: str, handles: Collection[str]
) -> Delivery:
    """A delivery of ends that the caller has not received; it shares the fate of the reply.

    To an onlooker, who receives nothing, it has no ends, and its alerts are told once written.
    """
    if request.is_onlooker:
        return _show_alerts(request, caller)
    delivery = inbox.claim(caller, handles, request.connection)

    def settle(written: bool) -> None:
        if written:
            request.connection.deliveries += 1
            inbox.written(delivery, request.connection.deliveries)
        else:
            inbox.abandoned(delivery, may_be_told=request.is_begun)

    request.also_finished(settle)
    return delivery


def _show_alerts(request: Request, caller: str) -> Delivery:
    delivery = Delivery("", caller, request.connection)

    def settle(written: bool) -> None:
        if written:
            delivery.settle_alerts(Alert.receive)
        else:
            delivery.settle_alerts(lambda each: each.take_back(may_be_told=request.is_begun))

    request.also_finished(settle)
    return delivery


def deliver(services: Services, request: Request, caller: str, task: Task) -> None:
    """The reply to `request` carries the end of `task`."""
    inbox, handle = services.inbox, task.record.task_id
    if not request.is_onlooker and not inbox.is_received(caller, handle):
        inbox.keep(begin_delivery(inbox, request, caller, [handle]), [handle])


def expecting(
    services: Services, request: Request, caller: str, task: Task
) -> contextlib.AbstractContextManager[None]:
    """Meanwhile the end of `task` is for the reply to `request`, not for the caller's inbox."""
    if request.is_onlooker:
        return contextlib.nullcontext()
    return services.inbox.expecting(caller, task.record.task_id)


def add_notices(services: Services, request: Request, caller: str, result: dict[str, Any]) -> None:
    """Put the ends of which no reply has told the caller yet into a result, if there are any."""
    inbox = services.inbox
    handles = inbox.notices(caller)
    if not handles:
        return
    result["notices"] = [
        notice for handle in handles if (notice := _notice(services, handle)) is not None
    ]

    def settle(written: bool) -> None:
        if not written and not request.is_begun:
            inbox.unnoticed(caller, handles)

    request.also_finished(settle)


def _notice(services: Services, handle: str) -> dict[str, Any] | None:
    """The end of a task or round in a few words; None of one that is being dropped, or cannot be
    read: a notice refuses no call."""
    try:
        if handle.startswith(LETTER):
            return _notice_of_round(services, services.rounds.find(id_of(handle)))
        record = services.catalog.find(handle).record
    except (UnknownHandle, ExpiredHandle, StoreUnreadable):
        return None
    return {
        "taskId": record.task_id,
        "status": record.status,
        "exitCode": record.exit_code,
        "endedAt": None if record.ended_at is None else rfc3339(record.ended_at),
    }


def _notice_of_round(services: Services, round_: Round) -> dict[str, Any]:
    seats = services.rounds.seats(round_.row).values()
    at = ended_at(seats)
    return {
        "roundId": round_.row.id,
        "status": status_of(seats),
        "exitCode": None,
        "endedAt": None if at is None else rfc3339(at),
    }
