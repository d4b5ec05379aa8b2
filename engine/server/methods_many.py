"""`wait_any`: many handles in one wait, or all whose end the caller has not received."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any, Final

import trio

from engine.errors import DuplicateHandle, ExpiredHandle, UnknownHandle
from engine.protocol.params import WaitAnyParams
from engine.server.delivering import begin_delivery
from engine.server.dispatcher import Request
from engine.server.services import Services, caller_of
from engine.server.updates import MOST_UPDATES, Look, Page, Waited
from engine.server.waited import WaitedTask, Waiter
from engine.server.waited_rounds import WaitedRound
from engine.tasks.rounds import LETTER, id_of
from engine.tasks.task import Task

MOST_IDS: Final = 10_000  # of an inbox that one call looks at
TURN: Final = 100  # handles that are looked up without giving way; takes 2 ms


class _Found:
    """What a wait came to: all that was waited for, and what of it is ready, in that order."""

    def __init__(self, waited: list[Waited], ready: dict[Waited, Look], later: list[str]) -> None:
        """`later`: ids of ends that are not to be looked at now: there are too many, or they are on
        their way in replies that were not acknowledged."""
        self.waited, self.ready, self.later = waited, ready, later


class ManyMethods:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def wait_any(self, request: Request, params: WaitAnyParams) -> dict[str, Any]:
        caller = caller_of(request, params)
        waiter = Waiter(services=self._services, request=request, caller=caller, params=params)
        waited = None if params.ids is None else await self._find_all(waiter, params.ids)
        if params.ack is not None and not waiter.is_onlooker:
            self._services.inbox.acknowledge(caller, params.ack)
        assert params.wait_seconds is not None
        if waited is not None:
            found = await self._wait_for(caller, waited, params.wait_seconds)
        else:
            found = await self._wait_inbox(waiter, params.wait_seconds)
        if found.ready:
            return await self._answer_ready(waiter, found)
        return await self._answer_elapsed(request, found)

    # -- finding -----------------------------------------------------------------------------------

    async def _find_all(self, waiter: Waiter, ids: list[str]) -> list[Waited]:
        """What the ids name. Raises UnknownHandle, ExpiredHandle, DuplicateHandle."""
        found: dict[Hashable, Waited] = {}
        for number, id_ in enumerate(ids, 1):
            waited = self._find(waiter, id_)
            if waited.wake_key in found:
                raise DuplicateHandle(id_)
            found[waited.wake_key] = waited
            if number % TURN == 0:
                await trio.lowlevel.checkpoint()
        return list(found.values())

    def _find(self, waiter: Waiter, id_: str) -> Waited:
        """The thing of one id: by its letter, each kind has its own."""
        if id_.startswith(LETTER):
            return WaitedRound(waiter, self._services.rounds.find(id_))
        return WaitedTask(waiter, self._services.catalog.find(id_), id_)

    def _own(self, waiter: Waiter) -> list[Waited]:
        """What goes on of the caller's own: tasks, and rounds in place of their seats."""
        tasks = self._services.catalog.unfinished_of(waiter.caller)
        rounds = self._services.rounds.unfinished_of(waiter.caller)
        single = (task for task in tasks if task.record.round_id is None)
        return [
            *(WaitedTask(waiter, task, _id_of(task)) for task in single),
            *(WaitedRound(waiter, each) for each in rounds),
        ]

    # -- waiting -----------------------------------------------------------------------------------

    async def _wait_for(self, caller: str, waited: list[Waited], timeout_secs: float) -> _Found:
        """Wait until any of them is ready."""
        inbox = self._services.inbox
        by_key = {each.wake_key: each for each in waited}
        ready: dict[Waited, Look] = {}

        def look(keys: Collection[Hashable]) -> bool | None:
            looks = {by_key[key]: seen for key in keys if (seen := by_key[key].look())}
            ended = [each.handle for each, seen in looks.items() if seen.ready == "ended"]
            received = inbox.received_of(caller, ended) if ended else set()
            for each, seen in looks.items():
                ready[each] = seen._replace(is_returned=each.handle in received)
            return True if ready else None

        await self._services.waits.until_any(by_key.keys(), look, timeout_secs)
        return _Found(waited, ready, [])

    async def _wait_inbox(self, waiter: Waiter, timeout_secs: float) -> _Found:
        """Wait until anything of the caller's own is ready, or there is nothing to wait for."""
        inbox, caller = self._services.inbox, waiter.caller

        def look(_keys: Collection[Hashable] = ()) -> _Found | None:
            own, carried = self._own(waiter), inbox.on_their_way(caller)
            ready = {each: seen for each in own if (seen := each.look())}
            handles = list(itertools.islice(inbox.ready(caller), MOST_IDS))
            if not ready and not handles and (own or carried or inbox.is_expecting(caller)):
                return None
            first = handles[:MOST_UPDATES]
            ended = [each for handle in first if (each := self._ended(waiter, handle))]
            ready |= {each: seen for each in ended if (seen := each.look())}
            later = [id_of(handle) for handle in (*handles[MOST_UPDATES:], *carried[:MOST_IDS])]
            return _Found([*ended, *own], ready, later)

        key = ("inbox", caller)
        found = await self._services.waits.until_any([key], look, timeout_secs)
        if found is None:
            carried = inbox.on_their_way(caller)[:MOST_IDS]
            found = _Found(self._own(waiter), {}, [id_of(handle) for handle in carried])
        return found

    def _ended(self, waiter: Waiter, handle: str) -> Waited | None:
        """What has ended under a handle of an inbox; None of what is being dropped."""
        with contextlib.suppress(UnknownHandle, ExpiredHandle):
            return self._find(waiter, id_of(handle))
        return None

    # -- answering ---------------------------------------------------------------------------------

    async def _answer_ready(self, waiter: Waiter, found: _Found) -> dict[str, Any]:
        """All that is ready, as much of it as fits; what does not fit is as if not looked at."""
        chosen = [each for each in found.waited if each in found.ready][:MOST_UPDATES]
        ends, handles = _ends(chosen, found.ready)
        delivery = begin_delivery(self._services.inbox, waiter.request, waiter.caller, handles)
        alerts = {
            each: alert
            for each in chosen
            if (alert := each.alert(found.ready[each], delivery.id)) is not None
        }
        delivery.alerts = list(alerts.values())  # until it is known which of them fit
        behind = await self._settle(
            id_ for each in chosen for id_ in each.unsettled(found.ready[each])
        )
        ids = itertools.chain(_ids(found.waited), found.later)
        page = Page(waiter.request.page_bytes, ids)
        carried: list[Waited] = []
        used = [*_ids(chosen), *itertools.chain.from_iterable(ends.values())]
        with self._services.catalog.using(*used):
            for each in chosen:
                entry = await each.show(found.ready[each], page.room, delivery.marked, behind)
                if not page.add(entry, each.list):
                    each.unshow()
                    break
                carried.append(each)
        delivery.alerts = [alerts[each] for each in carried if each in alerts]
        for each in chosen[len(carried) :]:
            if each in alerts:
                alerts[each].take_back(may_be_told=False)
        if not waiter.is_onlooker:
            self._services.inbox.keep(delivery, [end for each in carried for end in ends[each]])
        told = {each for each in carried if found.ready[each].ready == "ended"}
        pending = [each.id for each in found.waited if each not in told] + found.later
        is_owed = delivery.is_owed and not waiter.is_onlooker
        return _reply("ready", page, pending, delivery.id if is_owed else None)

    async def _settle(self, ids: Iterable[str]) -> set[str]:
        """Wait until the lines of these tasks, which have ended, are in the journal, of all at a
        time; those of which they are not yet."""
        behind: set[str] = set()

        async def settle(id_: str) -> None:
            if not await self._services.journal.settle(id_):
                behind.add(id_)

        async with trio.open_nursery() as settling_nursery:
            for id_ in ids:
                settling_nursery.start_soon(settle, id_)
        return behind

    async def _answer_elapsed(self, request: Request, found: _Found) -> dict[str, Any]:
        """How each one stands that goes on; with its last output where nobody was to wait."""
        ids = _ids(found.waited) + found.later
        page = Page(request.page_bytes, ids)
        for each in found.waited:
            if not page.add(await each.standing(page.room), each.list):
                break
        return _reply("wait_elapsed" if ids else "nothing_pending", page, ids, None)


def _ids(waited: list[Waited]) -> list[str]:
    return [each.id for each in waited]


def _ends(
    chosen: list[Waited], ready: dict[Waited, Look]
) -> tuple[dict[Waited, Sequence[str]], dict[str, None]]:
    """Which ends each one's entry carries, and all of them. What two would tell, as a round and the
    task of a seat, the later one shows as received: in `ready` it is that from here on."""
    ends, told = dict[Waited, Sequence[str]](), dict[str, None]()
    for each in chosen:
        look = ready[each]
        ends[each] = each.ends(look, told)
        if look.ready == "ended" and each.handle in told:
            ready[each] = look._replace(is_returned=True)
        told.update(dict.fromkeys(ends[each]))
    return ends, told


def _id_of(task: Task) -> str:
    """By which its caller knows a task that goes on."""
    return task.record.task_id if task.is_started else task.record.kickoff_id


def _reply(reason: str, page: Page, pending: list[str], delivery: str | None) -> dict[str, Any]:
    return {
        "reason": reason,
        "updates": page.entries["updates"],
        "rounds": page.entries["rounds"],
        "pending_ids": pending,
        "all_finished": not pending,
        "delivery": delivery,
        "notices": [],
    }
