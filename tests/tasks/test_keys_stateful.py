"""Keys, whatever is asked under them at once, after restarts and after their task is forgotten."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st
from stateful import examples
from tasks.building import BASE, Built, FakeExecutor, built

from engine.errors import ExpiredHandle, KeyConflict
from engine.jobs.directory import Asked
from engine.tasks.recovery import recover


class Keys:
    """What each key stands for: the digest of its first use, and its task."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], tuple[str, str]] = {}
        self.forgotten: set[str] = set()

    async def use(self, engine: Built, caller: str, key: str, digests: list[str]) -> None:
        """Use a key so many times at once: one task for the first params, the others refused."""
        answers: list[tuple[str, str]] = []

        async def use_once(digest: str) -> None:
            asked = Asked(caller=caller, base=BASE, argv=["true"], key=key, digest=digest)
            try:
                answers.append((digest, (await engine.supervisor.accept(asked)).id))
            except KeyConflict:
                answers.append((digest, "conflict"))
            except ExpiredHandle:
                answers.append((digest, "expired"))

        async with trio.open_nursery() as nursery:
            for digest in digests:
                nursery.start_soon(use_once, digest)
        first = self.known.get((caller, key))
        if first is None:
            ids = {(digest, id_) for digest, id_ in answers if id_ != "conflict"}
            assert len(ids) == 1, answers
            first = self.known[caller, key] = ids.pop()
            assert first[1] not in [id_ for k, (_, id_) in self.known.items() if k != (caller, key)]
        mine = "expired" if first[1] in self.forgotten else first[1]
        for digest, answer in answers:
            assert answer == (mine if digest == first[0] else "conflict")

    async def forget(self, engine: Built, id_: str) -> None:
        task = engine.catalog.find("t" + id_)
        if not task.is_ended:
            await engine.canceller.cancel(task, 0, by="x")
        await engine.supervisor.forget(task)
        self.forgotten.add(id_)


def test_a_key_stands_for_its_first_use_also_at_once_and_after_restarts(tmp_path: Path) -> None:
    numbers = itertools.count()
    use = st.tuples(
        st.just("use"),
        st.sampled_from("ab"),
        st.sampled_from(["k", "K", "", "é\u2028"]),
        st.lists(st.sampled_from(["1", "2"]), min_size=1, max_size=4),
    )
    life = st.lists(use | st.just(("forget",)), min_size=1, max_size=6)

    @examples(12, shrinks=False)
    @given(st.lists(life, min_size=1, max_size=3), st.data())
    def run(lives: list[list[tuple[Any, ...]]], data: st.DataObject) -> None:
        async def scenario() -> None:
            path, keys = tmp_path / str(next(numbers)), Keys()
            for one in lives:
                executor = FakeExecutor()
                async with built(path, executor, slots=2) as engine:
                    await recover(
                        engine.home,
                        engine.index,
                        engine.ledger,
                        engine.supervisor,
                        engine.nursery,
                    )
                    for what, *rest in one:
                        there = sorted({id_ for _, id_ in keys.known.values()} - keys.forgotten)
                        if what == "use":
                            await keys.use(engine, *rest)
                        elif there:
                            await keys.forget(engine, data.draw(st.sampled_from(there)))
                    await engine.index.flush()

        trio.run(scenario)

    run()
