"""Places of rollouts: never more than there are, the lowest rank first, none lost by a cancellation."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from osgym_sdk._batch.rollouts import PrioritySemaphore

TURNS = st.lists(
    st.tuples(st.sampled_from(["take", "give", "cancel", "cancel as it is given"]), st.integers(0, 4))
)


@settings(max_examples=60)
@given(st.integers(1, 3), TURNS)
def test_places_are_given_by_rank_and_never_lost(count: int, turns: list[tuple[str, int]]) -> None:
    async def play() -> None:
        places = PrioritySemaphore(count)
        waiting: list[tuple[int, int, asyncio.Task[None]]] = []
        held = 0
        for turn, (what, rank) in enumerate(turns):
            if what == "take":
                task = asyncio.create_task(places.acquire(rank))
                await asyncio.sleep(0)
                if task.done():
                    assert not waiting and held < count
                    held += 1
                else:
                    waiting.append((rank, turn, task))
            elif what == "give" and held:
                places.release()
                await asyncio.sleep(0)
                held -= 1
            elif what.startswith("cancel") and waiting:
                chosen = min(waiting) if what != "cancel" and held else waiting[rank % len(waiting)]
                if what != "cancel" and held:
                    places.release()
                    held -= 1
                chosen[2].cancel()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                waiting.remove(chosen)
            if given := [one for one in waiting if one[2].done()]:
                assert given == [min(waiting)]
                waiting.remove(given[0])
                held += 1
            assert held == count or not waiting
        for one in waiting:
            one[2].cancel()
        await asyncio.gather(*(one[2] for one in waiting), return_exceptions=True)
        for _ in range(held):
            places.release()
        async with asyncio.timeout(1):
            for _ in range(count):
                await places.acquire(0)

    asyncio.run(play())
