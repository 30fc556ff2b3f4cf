"""Event loops hear of every change of a group."""

from __future__ import annotations

import asyncio
import json
import os
import select
import threading
from typing import Any

import pytest
from figures import tell

import warpverbs


def test_two_ranks(run_ranks):
    run_ranks(2, "hears:a_rank_that_leaves").check()


class Counted:
    """In place of the runtime's group: changes come when the test says so."""

    def __init__(self) -> None:
        self.number, self.state, self.closed = 0, "serving", False
        self._told = os.eventfd(1, os.EFD_NONBLOCK)

    def change(self) -> None:
        self.number += 1
        os.eventfd_write(self._told, 1)

    def view(self) -> None:
        return None

    def eventfd(self) -> int:
        return os.dup(self._told)

    def clear_changes(self) -> int:
        if self.closed:
            raise warpverbs.Refused("the group is closed")
        if select.select([self._told], [], [], 0)[0]:
            os.eventfd_read(self._told)
        return self.number

    def close(self) -> None:
        self.closed = True
        self.change()


def counted() -> tuple[warpverbs.Group, Counted]:
    group, native = warpverbs.Group.__new__(warpverbs.Group), Counted()
    group._native = native  # type: ignore[assignment]
    group._iterated = group._closed = False
    return group, native


def test_every_change_of_a_mask_arrives_and_the_loop_goes_on(run_ranks):
    wanted = 1000 if os.environ.get("WV_TEST_FULL") else 100
    heard = json.loads(run_ranks(2, "hears:many_changes", str(wanted)).check().lines[-1])
    assert heard["masked"] >= wanted
    tell(
        f"{heard['masked']} changes of a mask among {heard['changes']} of a group of 2 ranks: {heard['read']} wake-ups, "
        f"the longest call in the loop took {heard['call'] * 1e3:.2f} ms, and it stood still for {heard['longest'] * 1e3:.2f} ms at most"
    )


def test_an_unread_change_does_not_wake_the_loop_again_and_again():
    group, native = counted()

    async def main() -> None:
        changes = group.changes()
        assert (await anext(changes)).number == 0
        native.change()
        waiting = asyncio.ensure_future(anext(changes))
        assert (await waiting).number == 1
        native.change()
        wakes = 0
        loop: Any = asyncio.get_running_loop()
        select_once = loop._selector.select

        def select_and_count(timeout: float | None) -> Any:
            nonlocal wakes
            ready = select_once(timeout)
            wakes += bool(ready)
            return ready

        loop._selector.select = select_and_count
        # So many turns of the loop; a change that wakes it again does so in each.
        for _ in range(100):
            await asyncio.sleep(0)
        assert wakes <= 1
        assert (await anext(changes)).number == 2
        await changes.aclose()

    asyncio.run(main())


def test_one_iteration_at_a_time_and_none_behind_the_end():
    group, native = counted()

    async def main() -> None:
        first = group.changes()
        await anext(first)
        with pytest.raises(warpverbs.Refused, match="only one at a time"):
            await anext(group.changes())
        waiting = asyncio.ensure_future(anext(first))
        await asyncio.sleep(0)
        threading.Thread(target=group.close).start()
        with pytest.raises(StopAsyncIteration):
            await waiting
        # What has ended gives its place free.
        assert [each async for each in group.changes()] == []

    asyncio.run(main())
    assert native.closed
