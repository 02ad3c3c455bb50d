"""The queue: nothing is lost or mixed up, batches are bounded, short rows do not wait for long ones."""

import asyncio
import threading
import time

import pytest

from mini_bert.serving import batching
from mini_bert.serving.batching import Batcher, Group, Job


def echo(rows):
    return [("echo", row) for row in rows]


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 20))


def test_results_come_in_the_order_of_the_rows():
    """Of 200 requests at the same time, whose rows have many lengths, each gets its own results in order."""

    async def main():
        batcher = Batcher(3)
        lengths = [[(7 * request + 5 * place) % 41 + 1 for place in range(request % 6 + 1)] for request in range(200)]
        work = [batcher.run(echo, [(i, j) for j in range(len(own))], own) for i, own in enumerate(lengths)]
        for i, done in enumerate(await asyncio.gather(*work)):
            assert done.results == [("echo", (i, j)) for j in range(len(lengths[i]))]
            assert done.queued >= 0 and done.computed >= 0
        batcher.close()

    run(main())


def test_rows_of_different_work_are_never_in_one_batch():
    seen = []

    def work(name):
        def compute(rows):
            seen.append({row[0] for row in rows})
            time.sleep(0.001)
            return [name + row[1] for row in rows]

        return compute

    async def main():
        batcher = Batcher(2)
        both = {name: work(name) for name in "ab"}
        names = ["ab"[i % 2] for i in range(60)]
        done = await asyncio.gather(*(batcher.run(both[n], [(n, str(i))], [5]) for i, n in enumerate(names)))
        assert [one.results[0] for one in done] == [name + str(i) for i, name in enumerate(names)]
        batcher.close()

    run(main())
    assert all(len(one) == 1 for one in seen)


def queue(lengths, threads=1, **bounds):
    """A queue with these rows in it, and no thread that takes them"""
    batcher = Batcher(0, **bounds)
    batcher.threads = threads
    group = object.__new__(Group)
    group.gone = False
    batcher.waiting = sorted(Job(length, number, echo, None, group, 0, 0.0) for number, length in enumerate(lengths))
    return batcher


def taken(batcher):
    batches = []
    while batcher.waiting:
        batches.append([job.length for job in batcher._take()])
    return batches


def test_a_batch_is_bounded_in_rows_and_tokens():
    batches = taken(queue([10] * 100, most_rows=7, most_tokens=1000))
    assert {len(batch) for batch in batches} == {7, 2}
    batches = taken(queue([10, 11, 12, 13, 14] * 9, most_rows=100, most_tokens=65))
    assert all(len(batch) * max(batch) <= 65 for batch in batches)
    assert taken(queue([500], most_tokens=65)) == [[500]], "a long row is computed alone"


def test_there_is_little_padding():
    """Of rows of 5 to 60 tokens, all in one queue, less than a tenth is padding."""
    lengths = [5 + 7 * i % 56 for i in range(200)]
    batches = taken(queue(lengths))
    assert sorted(length for batch in batches for length in batch) == sorted(lengths)
    assert sum(len(batch) * max(batch) for batch in batches) < 1.1 * sum(lengths)
    assert len(batches) < 60


def test_idle_threads_get_their_share():
    assert [len(batch) for batch in taken(queue([10] * 12, threads=3))][:1] == [4]


def test_long_rows_wait_in_every_other_turn():
    """Row 0, the first to come, is long: it is computed second, however many short rows there are."""
    batches = taken(queue([400, *[5] * 100, 400, 400], most_rows=8))
    assert [max(batch) for batch in batches[:6]] == [5, 400, 5, 5, 5, 5]
    assert taken(queue([400, 400])) == [[400, 400]]


def test_short_rows_do_not_wait_for_long_ones():
    """While long rows keep a thread busy for a second, short rows are answered within a fraction of it."""

    def slow(rows):
        time.sleep(0.001 * sum(rows))
        return rows

    async def main():
        batcher = Batcher(2, most_tokens=100)
        began = time.monotonic()
        long = [asyncio.create_task(batcher.run(slow, [100], [1000])) for _ in range(10)]
        await asyncio.sleep(0.01)
        await asyncio.gather(*(batcher.run(slow, [1], [1]) for _ in range(10)))
        short_took = time.monotonic() - began
        await asyncio.gather(*long)
        assert short_took < 0.75 * (time.monotonic() - began)
        batcher.close()

    run(main())


def test_a_row_that_cannot_be_computed_does_not_spoil_others():
    def picky(rows):
        if "bad" in rows:
            raise ValueError("bad row")
        return rows

    async def main():
        batcher = Batcher(1)
        rows = ["good", "bad", "fine"] * 5
        work = (batcher.run(picky, [row], [3]) for row in rows)
        results = await asyncio.gather(*work, return_exceptions=True)
        for row, result in zip(rows, results, strict=True):
            assert isinstance(result, ValueError) if row == "bad" else result.results == [row]
        batcher.close()

    run(main())


def test_after_a_row_has_failed_the_rest_of_its_request_is_not_computed():
    computed = []

    def picky(rows):
        time.sleep(0.01)
        computed.extend(rows)
        if "bad" in rows:
            raise ValueError("bad row")
        return rows

    async def main():
        batcher = Batcher(1, most_tokens=1)  # each row alone
        with pytest.raises(ValueError, match="bad row"):
            await batcher.run(picky, ["bad", *"abcdefgh"], range(1, 10))
        await batcher.run(picky, ["other"], [20])
        batcher.close()

    run(main())
    assert computed[0] == "bad" and computed[-1] == "other" and len(computed) < 9


def test_rows_of_a_client_that_is_gone_are_not_computed():
    computed, go = [], threading.Event()

    def compute(rows):
        go.wait(10)
        computed.extend(rows)
        return rows

    async def main():
        batcher = Batcher(1)
        first = asyncio.create_task(batcher.run(compute, ["first"], [1]))
        await asyncio.sleep(0.05)
        gone = asyncio.create_task(batcher.run(compute, ["gone"], [1]))
        last = asyncio.create_task(batcher.run(compute, ["last"], [1]))
        await asyncio.sleep(0.05)
        gone.cancel()
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(first, last)
        batcher.close()

    run(main())
    assert computed == ["first", "last"]


def test_a_closed_queue_finishes_what_it_has_and_ends_its_threads():
    async def main():
        before = threading.active_count()
        batcher = Batcher(3)
        work = [asyncio.create_task(batcher.run(echo, [i], [i + 1])) for i in range(20)]
        await asyncio.sleep(0)
        batcher.close()
        await asyncio.gather(*work)
        for _ in range(100):
            if threading.active_count() <= before:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("threads are left")

    run(main())


def test_rows_that_come_together_share_a_batch(monkeypatch):
    """While one row is computed, ten more arrive one by one, and are computed together."""
    monkeypatch.setattr(batching, "PAUSE", 0.05)
    monkeypatch.setattr(batching, "GATHER", 0.5)
    sizes = []

    def compute(rows):
        sizes.append(len(rows))
        time.sleep(0.3 if rows == ["first"] else 0)
        return rows

    async def main():
        batcher = Batcher(2)
        work = [asyncio.create_task(batcher.run(compute, ["first"], [1]))]
        await asyncio.sleep(0.02)
        for i in range(10):
            work.append(asyncio.create_task(batcher.run(compute, [i], [1])))
            await asyncio.sleep(0.002)
        await asyncio.gather(*work)
        batcher.close()

    run(main())
    assert sizes == [1, 10]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_that_comes_alone_is_not_kept_waiting(threads, monkeypatch):
    monkeypatch.setattr(batching, "PAUSE", 5.0)
    monkeypatch.setattr(batching, "GATHER", 5.0)

    async def main():
        batcher = Batcher(threads)
        began = time.monotonic()
        await batcher.run(echo, ["a"], [1])
        assert time.monotonic() - began < 2
        batcher.close()

    run(main())
