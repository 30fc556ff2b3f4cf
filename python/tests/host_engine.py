"""What a program shows with two host engines of its own: memory of every kind is moved, and what cannot be is refused in words."""

from __future__ import annotations

import array
import ctypes
import gc
import os
import random
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from refusals import Told

import warpverbs
from warpverbs import Engine, Peer, State

LONG = 120.0


def pair(**settings: Any) -> tuple[Engine, Engine, Peer, Peer]:
    a, b = Engine("a", drain=LONG, **settings), Engine("b", drain=LONG)
    to_b = a.connect(b.listen())
    return a, b, to_b, b.accept(LONG)


def reach(engine: Engine, peer: Peer, memory: object) -> int:
    """Where ``memory`` of ``engine`` lies for the peer."""
    return peer.import_region(engine.descriptor(engine.register(memory))).address


def done(engine: Engine, transfer: warpverbs.Transfer) -> None:
    assert engine.wait(transfer, LONG) is State.DONE
    assert engine.poll(transfer) is State.DONE
    engine.release(transfer)
    engine.release(transfer)
    assert engine.poll(transfer) is State.UNKNOWN


def memory_of_every_kind() -> None:
    a, b, to_b, _ = pair()
    with a, b:
        assert to_b.name == "b"
        assert to_b.open
        assert 1 <= to_b.qps <= 4
        assert to_b.path == "process"
        values = random.Random(1).randbytes(4096)
        there = bytearray(4096)
        remote = reach(b, to_b, there)
        raw = (ctypes.c_char * 4096)()
        kinds: list[Any] = [
            bytearray(values),
            memoryview(bytearray(values)),
            array.array("d", values),
            np.frombuffer(values, dtype=np.float32).copy(),
            np.frombuffer(values, dtype=np.complex64).copy(),
            torch.frombuffer(bytearray(values), dtype=torch.int16),
            torch.frombuffer(bytearray(values), dtype=torch.bfloat16).view(32, 64),
        ]
        for memory in kinds:
            there[:] = bytes(4096)
            region = a.register(memory)
            assert region.bytes == 4096, memory
            done(a, to_b.write(memory, remote))
            assert there == values, type(memory)
            a.deregister(region)
        raw[:] = values
        region = a.register(ctypes.addressof(raw), 4096)
        there[:] = bytes(4096)
        done(a, to_b.write(ctypes.addressof(raw) + 8, remote + 4, 100))
        assert bytes(there) == bytes(4) + values[8:108] + bytes(4096 - 104)
        there[:] = random.Random(2).randbytes(4096)
        done(a, to_b.read(region.address, remote, 4096))
        assert bytes(raw) == bytes(there)


def vectors() -> None:
    a, b, to_b, to_a = pair(slice=4096, fragment=0, qps=2)
    with a, b:
        here, there = bytearray(random.Random(3).randbytes(1 << 18)), bytearray(1 << 18)
        local, remote = a.register(here), reach(b, to_b, there)
        part, parts = 1 << 12, 64
        order = random.Random(4).sample(range(parts), parts)
        places = [(local.address + at * part, remote + to * part, part) for at, to in enumerate(order)]
        done(a, to_b.writev(places))
        for at, to in enumerate(order):
            assert there[to * part : (to + 1) * part] == here[at * part : (at + 1) * part]
        before = bytes(here)
        here[:] = bytes(len(here))
        done(a, to_b.readv(places))
        assert here == before
        # The peer reads and writes in one transfer.
        back, back_remote = b.register(there), reach(a, to_a, here)
        mixed = [("read", back.address, back_remote, part), ("write", back.address + part, back_remote + part, part)]
        transfer = to_a.submit(mixed, deadline=LONG, wait=LONG)
        assert b.wait_any([transfer], LONG) == 0
        report = b.report(transfer)
        assert report.state is State.DONE
        assert report.operations == ("done", "done")
        assert report.bytes_landed == 2 * part
        assert report.operation is None
        assert not report.remote_unknown
        assert there[:part] == before[:part]
        assert here[part : 2 * part] == there[part : 2 * part]
        done(b, transfer)
        # No bytes: done without a WQE.
        done(a, to_b.write(local.address, remote, 0))


def providers() -> None:
    """Each provider that drives the software HCA moves the same bytes. An engine to which none is given takes that of the environment."""
    values = random.Random(7).randbytes(1 << 16)
    for provider in (None, "auto", "mlx5", "verbs"):
        a, b, to_b, _ = pair(provider=provider, path="nic")
        with a, b:
            here, there = bytearray(values), bytearray(len(values))
            a.register(here)
            done(a, to_b.write(here, reach(b, to_b, there)))
            assert there == values, provider
            assert a.rails[0].slices.posted > 0, provider
    os.environ["WARPVERBS_PROVIDER"] = "efa"
    with pytest.raises(warpverbs.ConfigError, match="provider 'efa'"):
        Engine("a")
    with pytest.raises(warpverbs.ConfigError, match="provider 'ofi:'"):
        Engine("a", provider="ofi:")
    Engine("a", provider="verbs").close()


def no_room() -> None:
    """A worker with more slices than its only QP has room for counts how long it had none."""
    a, b, to_b, _ = pair(slice=4096, fragment=0, path="nic", qps=1, depth=256)
    with a, b:
        here, there = bytearray(random.Random(6).randbytes(4 << 20)), bytearray(4 << 20)
        a.register(here)
        remote = reach(b, to_b, there)
        assert a.statistics().slices.stalled == 0
        until = time.monotonic() + LONG
        while a.statistics().slices.stalled == 0:
            assert time.monotonic() < until, "a worker has had room for 1,024 slices all the time"
            done(a, to_b.write(here, remote))
        assert there == here


def statistics() -> None:
    a, b, to_b, _ = pair(slice=4096, fragment=0, path="nic", retry=0, transfers=1)
    with a, b:
        nothing = a.statistics()
        assert nothing.submitted == nothing.queued == nothing.slices.posted == 0
        here, there = bytearray(random.Random(5).randbytes(1 << 16)), bytearray(1 << 16)
        a.register(here)
        region = b.register(there)
        remote = to_b.import_region(b.descriptor(region)).address
        start = time.monotonic()
        transfer = to_b.write(here, remote)
        with pytest.raises(warpverbs.WouldBlock):
            to_b.write(here, remote)
        for rail in a.stalled(transfer):
            assert (rail.rail, rail.device) == (0, a.device)
            assert rail.in_flight in range(1, 17)
            # No longer than the transfer is under way.
            assert 0 < rail.since_completion <= time.monotonic() - start
            assert str(rail).startswith(f"{rail.in_flight} slices by {a.device}, none completed for ")
        assert a.waits_for(transfer) in ("room on a QP", "completions", None)
        assert a.wait(transfer, LONG) is State.DONE
        assert a.stalled(transfer) == []
        assert a.waits_for(transfer) is None
        done(a, transfer)
        with pytest.raises(warpverbs.Refused):
            a.stalled(transfer)
        with pytest.raises(warpverbs.Refused):
            a.waits_for(transfer)
        assert there == here
        all = a.statistics()
        assert (all.submitted, all.done, all.failed, all.cancelled, all.timed_out) == (1, 1, 0, 0, 0)
        assert all.refused >= 1  # each try of its wait for a slot counts
        assert (all.done_bytes, all.queued, all.retried, all.not_posted) == (1 << 16, 16, 0, 0)
        assert (all.slices.posted, all.slices.posted_bytes, all.slices.completed, all.slices.failed) == (16, 1 << 16, 16, 0)
        # The only QP has room for all of them.
        assert all.slices.stalled == 0
        (rail,) = a.rails
        assert (rail.device, rail.port, rail.state, rail.rests) == (a.device, 1, "works", 0)
        assert rail.slices == all.slices
        # The peer has taken it away.
        b.deregister(region)
        transfer = to_b.write(here, remote, len(here))
        assert a.wait(transfer, LONG) is State.FAILED
        report = a.report(transfer)
        assert (report.rail, report.device) == (0, a.device)
        all = a.statistics()
        assert all.failed == 1
        assert all.slices.posted + all.not_posted == all.queued + all.retried == 32


def shared_memory() -> None:
    a, b, to_b, _ = pair()
    with a, b:
        with pytest.raises(warpverbs.Refused, match="0 bytes of host memory"):
            warpverbs.SharedMemory(0)
        here, there = warpverbs.SharedMemory(4096), warpverbs.SharedMemory(8192)
        assert here.bytes == 4096
        view = here.view()
        assert bytes(view) == bytes(4096)
        assert np.asarray(here).ctypes.data == here.address
        view[:] = random.Random(6).randbytes(4096)
        region = a.register(here)
        assert (region.address, region.bytes) == (here.address, 4096)
        remote = reach(b, to_b, there)
        done(a, to_b.write(here, remote + 8))
        assert bytes(there.view()[8 : 8 + 4096]) == bytes(view)
        # Its view and its region hold it.
        del here
        gc.collect()
        view[0] ^= 1
        done(a, to_b.write(region.address, remote, 1))
        assert there.view()[0] == view[0]
        a.deregister(region)


def notices() -> None:
    a, b, to_b, to_a = pair(inbox=1 << 17)
    with a, b:
        here, there = bytearray(b"kv blocks"), bytearray(9)
        local, remote = a.register(here), reach(b, to_b, there)
        to_b.notify(b"alone\0")
        done(a, to_b.write(here, remote, notice=b"behind"))
        plan = to_b.prepare([("write", local.address, remote, 9)])
        done(a, to_b.post(plan, wait=LONG, notice=b""))
        alone, behind = b.notice(LONG), b.notice(LONG)
        assert (alone.peer, alone.bytes, alone.state) == ("a", b"alone\0", None)
        assert (behind.bytes, behind.state, behind.operation, behind.cause) == (b"behind", State.DONE, None, None)
        assert there == here
        assert behind.incarnation == alone.incarnation
        last = b.notice(LONG)
        assert (last.bytes, last.state) == (b"", State.DONE)
        assert list(b.notices()) == []
        with pytest.raises(warpverbs.TimeoutError):
            b.notice(0.01)
        # The inbox of a has room for one of this length.
        long = bytes(1 << 16)
        to_a.notify(long)
        for begin in (lambda: to_a.notify(long), lambda: to_a.notify(long, wait=0.01)):
            with pytest.raises(warpverbs.WouldBlock, match="inbox"):
                begin()
        taken = threading.Timer(0.01, lambda: a.notice(LONG))
        taken.start()
        to_a.notify(long, wait=LONG)
        taken.join()
        assert a.notice(LONG).bytes == long
        with pytest.raises(warpverbs.Refused, match="65537 bytes"):
            to_a.notify(bytes((1 << 16) + 1))


def counters() -> None:
    a, b, to_b, to_a = pair()
    with a, b:
        here, there = bytearray(range(64)), bytearray(64)
        local, remote = a.register(here), reach(b, to_b, there)
        # No caller has asked for the counter yet.
        done(a, to_b.writev([(local.address + at, remote + at, 8) for at in range(0, 64, 8)], counter=5))
        counter = b.counter(5)
        assert counter.wait(8, LONG) == counter.value == ctypes.c_uint64.from_address(counter.word).value == 8
        assert there == here
        with pytest.raises(warpverbs.TimeoutError, match="counter 5 says 8, not 9"):
            counter.wait(9, 0.01)
        word = ctypes.c_uint64(7)
        with counter.mirror(word):
            assert word.value == 8
            done(a, to_b.write(here, remote, counter=5))
            deadline = time.monotonic() + LONG
            while word.value != 9:
                assert time.monotonic() < deadline
        for wrong in (bytearray(16), bytearray(7)):
            with pytest.raises(warpverbs.Refused, match=f"word has {len(wrong)} bytes; it must be of 8"):
                counter.mirror(wrong)
        plan = to_b.prepare([("write", here, remote, 64)], counting=True)
        done(a, to_b.post(plan, counter=5))
        done(a, to_b.post(plan))
        assert b.counter(5).wait(10, LONG) == counter.reset() == 10
        assert word.value == 9
        assert (counter.value, a.counter(5).value, b.counter(4095).value) == (0, 0, 0)
        plain = to_b.prepare([("write", here, remote, 64)])
        for begin, words in (
            (lambda: to_b.write(here, remote, counter=4096), "counter 4096; it must be 0 to 4095"),
            (lambda: to_b.submit([("read", here, remote, 8)], counter=0), "operation 0 is a READ"),
            (lambda: to_b.write(here, remote, 0, counter=0), "operation 0 of 0 bytes is to count"),
            (lambda: to_b.post(plain, counter=0), "prepare_counting"),
            (lambda: b.counter(1 << 31), "it must be 0 to 4095"),
        ):
            with pytest.raises(warpverbs.Refused, match=words):
                begin()
        assert counter.value == 0
        assert to_a.open


def keys() -> None:
    with tempfile.NamedTemporaryFile() as file, tempfile.NamedTemporaryFile() as other:
        for each, key in ((file, b"ab" * 32 + b"\n"), (other, bytes(32))):
            each.write(key)
            each.flush()
        a, b = Engine("a", key_file=file.name, listen="0.0.0.0:0"), Engine("b", key_file=file.name, allow="a")
        c, clear = Engine("c", key_file=other.name), Engine("clear", deadline=LONG)
        with a, b, c, clear:
            port = a.listen().rpartition(":")[2]
            at = f"127.0.0.1:{port}"
            assert b.connect(at).name == "a"
            for engine, words in ((c, "its key is another"), (clear, "it asks for a key")):
                with pytest.raises(warpverbs.EngineError, match=words):
                    engine.connect(at)
        os.chmod(file.name, 0o640)
        with pytest.raises(warpverbs.ConfigError, match="others may use it"):
            Engine("d", key_file=file.name)


def prepared() -> None:
    a, b, to_b, to_a = pair()
    with a, b:
        here, there = bytearray(b"12345678"), bytearray(8)
        local, remote = a.register(here), reach(b, to_b, there)
        plan = to_b.prepare([("write", local.address + at, remote + 4 - at, 4) for at in (0, 4)])
        for value in (b"12345678", b"abcdefgh"):
            here[:] = value
            transfer = to_b.post(plan, deadline=LONG, wait=LONG)
            done(a, transfer)
            assert there == value[4:] + value[:4]
        # An object is its address, as in submit.
        done(a, to_b.post(to_b.prepare([("read", here, remote, 8)])))
        assert here == there
        with pytest.raises(warpverbs.Refused, match=r"that engine .+ of this process has prepared is posted by engine"):
            to_a.post(plan)
        a.deregister(local)
        with pytest.raises(warpverbs.Refused, match=r"operation 0: the local byte at 0x.* is in no registered region"):
            to_b.post(plan)


def grants() -> None:
    a, b, to_b, to_a = pair()
    with a, b:
        here, there = bytearray(64), bytearray(range(64))
        local, region = a.register(here), b.register(there)
        grant = to_a.grant(region.address + 8, 16)
        assert len(grant) == 96
        assert b.grants == 1
        remote = to_b.import_grant(grant)
        assert remote == to_b.import_grant(grant)
        assert remote.bytes == 16
        done(a, to_b.read(local.address, remote.address, 16))
        assert here[:16] == there[8:24]
        with pytest.raises(warpverbs.Refused, match="the peer has granted reads on this region"):
            to_b.write(local.address, remote.address, 16)
        with pytest.raises(warpverbs.Refused, match="incarnation"):
            to_a.import_grant(grant)
        with pytest.raises(warpverbs.EngineError, match=r"1 uses of region .* revoke the grants"):
            b.deregister(region)
        with pytest.raises(warpverbs.EngineError, match=r"1 uses of region .* revoke the grants"):
            b.deregister(region, wait=0.01)
        b.revoke(grant)
        b.revoke(grant)
        assert b.grants == 0
        there[:] = bytes(64)
        late = to_b.read(local.address, remote.address, 16)
        assert a.wait(late, LONG) is State.FAILED
        assert a.report(late).syndrome == 0x13
        assert here[:16] == bytearray(range(8, 24))
        to_b.forget(remote)
        with pytest.raises(warpverbs.Refused, match="in no registered region"):
            to_b.read(local.address, remote.address, 16)
        for rights, wrong in (("write", "read"), ("both", None)):
            remote = to_b.import_grant(to_a.grant(there, rights=rights, ttl=3600.0))
            done(a, to_b.write(local.address, remote.address, 64))
            assert there == here
            if wrong:
                with pytest.raises(warpverbs.Refused, match="is a READ: the peer has granted writes"):
                    to_b.read(local.address, remote.address, 64)
        whole = to_a.export(region)
        done(a, to_b.read(local.address, to_b.import_grant(whole).address, 64))
        for wrong_call, words in (
            (lambda: to_a.grant(there, rights="all"), "rights are 'all'"),
            (lambda: to_a.grant(there, ttl=0), "a time to live of 0"),
            (lambda: to_a.grant(there, ttl=-1), "ttl is -1 seconds"),
            (lambda: to_a.grant(region.address, 65), "all of one registration"),
            (lambda: to_b.import_grant(whole[:95]), "its length is not 96 bytes"),
            (lambda: b.revoke(bytes(96)), "it is none of this version"),
            (lambda: a.revoke(whole), "is not of this engine"),
        ):
            with pytest.raises(warpverbs.Refused, match=words):
                wrong_call()


def slots() -> None:
    a, b, to_b, _ = pair(transfers=2)
    with a, b:
        local, remote = a.register(bytearray(64)), reach(b, to_b, bytearray(64))
        write = lambda **how: to_b.write(local.address, remote, 8, **how)  # noqa: E731
        kept = [write(), write()]
        assert len({*kept, kept[0]}) == 2
        assert kept[0] != kept[1]
        for wait in (0, 0.02):
            with pytest.raises(warpverbs.WouldBlock, match="all 2 slots"):
                write(wait=wait)
        for transfer in kept:
            assert a.wait(transfer, LONG) is State.DONE
        assert a.poll_many(kept) == a.poll_many(iter(kept)) == [State.DONE, State.DONE]
        assert a.in_use == 2
        a.cancel(kept[0])
        a.release(kept[0])
        done(a, write(wait=LONG))
        left = a.close()
        assert left == a.close()
        assert left is not None
        assert (left.cut_off, left.done, left.failed) == (0, 3, 0)


def waits_release_the_gil() -> None:
    a, b, to_b, _ = pair(transfers=1)
    with a, b:
        local, remote = a.register(bytearray(64)), reach(b, to_b, bytearray(64))
        kept = to_b.write(local.address, remote, 8)
        assert a.wait(kept, LONG) is State.DONE
        waits: list[Callable[[], object]] = [
            lambda: b.accept(LONG),
            lambda: to_b.write(local.address, remote, 8, wait=LONG),
        ]
        threads = [threading.Thread(target=wait) for wait in waits]
        for thread in threads:
            thread.start()
        # Were the GIL held, nothing of this would run.
        c = Engine("c", drain=LONG)
        with c:
            c.connect(b.listen())
            a.release(kept)
            for thread in threads:
                thread.join(LONG)
                assert not thread.is_alive()


def regions_name_their_engine() -> None:
    """A region of another engine, none, and one that was taken away: every call says which, and all other regions stay."""
    a, b, to_b, to_a = pair()
    with a, b:
        here, there = bytearray(random.Random(9).randbytes(4096)), bytearray(4096)
        local, region = a.register(here), b.register(there)
        assert len({local, region, a.register(here), b.register(there)}) == 4
        inside = a.register(here)
        a.deregister(inside)
        before = b.descriptor(region)
        foreign = rf"region {local.number} names engine \d+ of this process, and engine \d+ was asked: ask the engine"
        for wrong, words in [
            (local, foreign),
            (region._replace(number=0), "region 0 was never registered"),
            (region._replace(number=1), "region 1 was never registered"),
            (region._replace(number=region.number + 1000), "was never registered, or was taken away"),
            (inside._replace(number=(1 << 64) - 1), "names engine 16777215 of this process"),
        ]:
            for call in (
                lambda wrong=wrong: b.descriptor(wrong),
                lambda wrong=wrong: b.deregister(wrong),
                lambda wrong=wrong: b.deregister(wrong, wait=0.01),
                lambda wrong=wrong: to_a.export(wrong),
            ):
                with pytest.raises(warpverbs.Refused, match=words):
                    call()
        with pytest.raises(warpverbs.Refused, match=f"region {inside.number} was never registered, or was taken away"):
            a.deregister(inside)
        assert b.descriptor(region) == before
        done(a, to_b.write(here, to_b.import_region(before).address))
        assert there == here
        whole = to_a.export(region)
        b.revoke(whole)
        a.deregister(local)
        b.deregister(region)


def regions_hold_their_memory() -> None:
    a, b, _to_b, _ = pair()
    with a, b:
        memory = np.zeros(4096, dtype=np.uint8)
        alive = weakref.ref(memory)
        region = a.register(memory)
        inside = a.register(region.address + 64, 64)
        del memory
        gc.collect()
        assert alive() is not None
        a.deregister(region)
        gc.collect()
        assert alive() is not None, "a region inside shares its registration"
        a.deregister(inside)
        gc.collect()
        assert alive() is None
        resizable = bytearray(64)
        region = a.register(resizable)
        with pytest.raises(BufferError):
            resizable.append(1)
        a.deregister(region)
        gc.collect()
        resizable.append(1)
    memory = np.zeros(64, dtype=np.uint8)
    alive = weakref.ref(memory)
    c = Engine("c")
    c.register(memory)
    c.close()
    del memory
    gc.collect()
    assert alive() is None, "a closed engine holds nothing"


def forged(descriptor: bytes) -> bytes:
    """With a key that the peer does not have, and the checksum that fits."""
    body = bytearray(descriptor[:64])
    body[4] ^= 0x5A
    total = 0xCBF29CE484222325
    for byte in body:
        total = (total ^ byte) * 0x100000001B3 % (1 << 64)
    return bytes(body) + total.to_bytes(8, "little")


def failures() -> None:
    a, b, to_b, _ = pair()
    with a, b:
        there = bytearray(64)
        local = a.register(bytearray(64))
        remote = to_b.import_region(forged(b.descriptor(b.register(there)))).address
        transfer = to_b.write(local.address, remote, 64)
        assert a.wait(transfer, LONG) is State.FAILED
        report = a.report(transfer)
        assert report.operations == ("failed",)
        assert report.bytes_landed == 0
        assert report.operation == 0
        assert report.syndrome == 0x13
        assert report.cause is not None
        assert not report.remote_unknown
        assert there == bytes(64)
        assert to_b.close() == 0
        assert not to_b.open
        with pytest.raises(warpverbs.PeerGone, match="connect again"):
            to_b.write(local.address, remote, 64)


def forked() -> None:
    a, b, to_b, _ = pair()
    with a, b:
        local, remote = a.register(bytearray(64)), reach(b, to_b, bytearray(64))
        child = os.fork()
        if child == 0:
            said = ""
            try:
                to_b.write(local.address, remote, 8)
            except warpverbs.Refused as error:
                said = str(error)
            assert a.close() is None
            del a, b, to_b
            gc.collect()
            os._exit(0 if "was forked from it" in said else 7)
        _, status = os.waitpid(child, 0)
        assert status == 0
        done(a, to_b.write(local.address, remote, 8))


def left_open_at_the_end() -> None:
    """The interpreter ends while engines, peers and a waiting thread exist."""
    a, b, to_b, _ = pair()
    local, remote = a.register(bytearray(64)), reach(b, to_b, bytearray(64))
    threading.Thread(target=lambda: b.accept(None), daemon=True).start()
    to_b.write(local.address, remote, 64)
    globals()["kept"] = (a, b, to_b)


def names() -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = f"file://{directory}"
        with Engine("a") as a, Engine("b") as b, Engine("b") as twin:
            at = b.listen()
            with pytest.raises(warpverbs.EngineError, match="no engine has published the name 'b'"):
                a.connect_by_name("b", store=store)
            b.publish(at, store=store)
            assert a.connect_by_name("b", store=store).name == "b"
            with pytest.raises(warpverbs.EngineError, match="another engine has published the name 'b'"):
                twin.publish(twin.listen(), store=store)
            with pytest.raises(warpverbs.Refused, match=r"the address 0\.0\.0\.0:7000 is published"):
                twin.publish("0.0.0.0:7000", store=store)
            with pytest.raises(warpverbs.EngineError, match="'engine/no key' is not a key"):
                a.connect_by_name("no key", store=store)
            b.unpublish()
            b.unpublish()
            twin.publish(twin.listen(), store=store)
            with pytest.raises(warpverbs.Error, match="store"):
                a.connect_by_name("b", store="nowhere")
            # By the environment, as the variables of ranks name it.
            os.environ["WARPVERBS_STORE"] = store
            try:
                twin.unpublish()
                b.publish(at)
                assert a.connect_by_name("b").name == "b"
            finally:
                del os.environ["WARPVERBS_STORE"]
        with Engine("a") as a, Engine("b") as b:
            b.publish(b.listen(), store=store)
            assert a.connect_by_name("b", store=store).name == "b", "the end of an engine ends its name"


def sockets() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/socket"
        with Engine("a") as a, Engine("b") as b:
            at = b.listen(f"unix:{path}")
            assert at == f"unix:{path}"
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            assert a.connect(at).name == "b"
            b.publish(at, store=f"file://{directory}")
            assert a.connect_by_name("b", store=f"file://{directory}").name == "b"
            with pytest.raises(warpverbs.EngineError, match="a process listens there"):
                a.listen(at)
            with pytest.raises(warpverbs.Refused, match="it must have 1 to 107"):
                a.listen("unix:" + "x" * 108)
            with pytest.raises(warpverbs.EngineError, match="it must have 1 to 107"):
                a.connect("unix:" + "x" * 108)
            with pytest.raises(warpverbs.Refused, match="unix:engine is published"):
                b.publish("unix:engine", store=f"file://{directory}")
        assert not os.path.exists(path), "the socket goes with its engine"


def lists_of_memory() -> None:
    a, b, to_b, _ = pair()
    with a, b:
        buffer = np.zeros(1265 * 64, dtype=np.uint8)
        tensors = [buffer[nth * 64 : nth * 64 + 64] for nth in range(1265)]
        shared = warpverbs.SharedMemory(4096)
        whole = (buffer.ctypes.data, buffer.nbytes)
        regions = b.register([*tensors, whole, shared])
        assert len(regions) == 1267
        assert [region.bytes for region in regions[-2:]] == [buffer.nbytes, 4096]
        assert {b.descriptor(region) for region in regions[:-1]} == {b.descriptor(regions[-2])}
        assert b.descriptor(regions[-1]) != b.descriptor(regions[0])
        here = bytearray(random.Random(2).randbytes(buffer.nbytes))
        a.register([here])
        remote = to_b.import_region(b.descriptor(regions[5]))
        assert remote == (buffer.ctypes.data, buffer.nbytes)
        done(a, to_b.write(here, remote.address))
        assert buffer.tobytes() == here
        for region in regions:
            b.deregister(region)
        assert b.register([]) == []
        alive = weakref.ref(buffer)
        with pytest.raises(warpverbs.Refused, match=r"element 1 of the list: 0 bytes of host memory"):
            b.register([buffer, (whole[0], 0)])
        del buffer, tensors
        gc.collect()
        assert alive() is None, "nothing was registered"


class OnGpu:
    """An array that says that it lies on a GPU, as CuPy does: its memory is simulated."""

    def __init__(self, values: np.ndarray[Any, Any], number: int | None = None) -> None:
        self.values = values
        self.__cuda_array_interface__ = values.__array_interface__
        if number is not None:
            self.__dlpack_device__ = lambda: (2, number)


def memory_of_a_gpu() -> None:
    for path in ("nic", "process"):
        moved_from_a_gpu(path)


def moved_from_a_gpu(path: str) -> None:
    a, b, to_b, _ = pair(path="nic" if path == "nic" else "auto")
    with a, b:
        assert to_b.path == path
        values = np.frombuffer(random.Random(2).randbytes(8192), dtype=np.uint8)
        here, there = OnGpu(values.copy()), OnGpu(np.zeros(8192, dtype=np.uint8))
        region = a.register(here, gpu="simt")
        lists = b.register([(there.values.ctypes.data + 64, 64), there], gpu="simt")
        descriptors = {b.descriptor(each) for each in lists}
        assert len(descriptors) == 1, "they share a registration"
        remote = to_b.import_region(descriptors.pop()).address
        assert remote == there.values.ctypes.data

        def posted() -> int:
            return a.rails[0].slices.posted

        # The NIC moves it, or the GPU copies it.
        before = posted()
        done(a, to_b.write(here, remote))
        assert (posted() > before) == (path == "nic")
        assert (there.values == values).all()
        back = np.zeros(8192, dtype=np.uint8)
        a.register(back)
        done(a, to_b.read(back, remote))
        assert (back == values).all()
        # The region holds the array.
        weak, there = weakref.ref(there), OnGpu(back)
        gc.collect()
        assert weak() is not None
        for each in lists:
            b.deregister(each)
        gc.collect()
        assert weak() is None
        a.deregister(region)
        # A raw address too.
        again = a.register(values.ctypes.data, 64, gpu="simt")
        a.deregister(again)


def wrong_calls() -> None:
    """Each wrong call is refused in words; prints the texts as JSON."""
    told = Told()
    wrong = told.of

    a, b, to_b, _ = pair()
    with a, b:
        here, there = bytearray(64), bytearray(64)
        local = a.register(here)
        remote = reach(b, to_b, there)
        descriptor = b.descriptor(b.register(there))
        at = local.address
        wrong("no name", lambda: Engine(""))
        wrong("an argument that is none", lambda: Engine("c", colour=1))
        wrong("a setting of a team", lambda: Engine("c", windows=3))
        wrong("9 QPs", lambda: Engine("c", qps=9))
        wrong("9 rails", lambda: Engine("c", rails=9))
        wrong("more rails than QPs", lambda: Engine("c", rails=3, qps=2))
        wrong("a fragment longer than a slice", lambda: Engine("c", slice=4096, fragment=4097))
        wrong("no such device", lambda: Engine("c", device="nosuch_0"))
        wrong("a provider that is none", lambda: Engine("c", provider="efa"))
        wrong("no time to connect", lambda: Engine("c", connect_timeout=0))
        wrong("a negative drain", lambda: Engine("c", drain=-1))
        wrong("an address without bytes", lambda: a.register(at))
        wrong("an object with bytes", lambda: a.register(here, 64))
        wrong("no memory", lambda: a.register("text"))
        tensor = OnGpu(np.zeros(8), 1)
        wrong("a tensor of another GPU", lambda: a.register(tensor, gpu=0))
        wrong("host memory on a GPU", lambda: a.register(bytearray(64), gpu=0))
        wrong("a tensor of the host on a GPU", lambda: a.register(np.zeros(8), gpu=0))
        wrong("shared memory on a GPU", lambda: a.register([warpverbs.SharedMemory(64)], gpu=0))
        wrong("a GPU that is none", lambda: a.register(at, 64, gpu="gpu0"))
        wrong("a GPU that is none in a list", lambda: a.register([bytearray(64), (at, 64)], gpu="gpu0"))
        wrong("a tensor on no CUDA device", lambda: a.register(torch.zeros(8, device="meta")))
        wrong("0 bytes on a GPU", lambda: a.register(at, 0, gpu="simt"))
        wrong("a counter mirrored to a GPU", lambda: a.counter(1).mirror(tensor))
        wrong("read-only memory", lambda: a.register(bytes(64)))
        wrong("memory that is not dense", lambda: a.register(np.zeros((8, 8))[:, ::2]))
        wrong("a tensor that is not dense", lambda: a.register(torch.zeros(8, 8).t()))
        wrong("no bytes", lambda: a.register(bytearray()))
        wrong("0 bytes at an address", lambda: a.register(at, 0))
        wrong("a type without a width", lambda: a.register(np.zeros(8, dtype="datetime64[s]")))
        wrong("half of it is registered", lambda: a.register(at + 32, 64))
        wrong("a list of which half is registered", lambda: a.register([bytearray(64), (at + 32, 64)]))
        wrong("a list with a text", lambda: a.register([bytearray(64), "text"]))
        wrong("a list with an address alone", lambda: a.register([at]))
        wrong("a list with three of one", lambda: a.register([(at, 64, 1)]))
        wrong("a list with bytes", lambda: a.register([bytearray(64)], 64))
        wrong("a region that is none", lambda: a.deregister(warpverbs.Region(77, at, 64)))
        wrong("a name to listen at", lambda: a.listen("nowhere"))
        wrong("all the world", lambda: a.listen("0.0.0.0:0"))
        wrong("where nobody listens", lambda: a.connect("127.0.0.1:1"))
        wrong("nobody comes", lambda: a.accept(0.01))
        wrong("half a descriptor", lambda: to_b.import_region(descriptor[:20]))
        wrong("a damaged descriptor", lambda: to_b.import_region(descriptor[:-1] + bytes([descriptor[-1] ^ 1])))
        wrong("a descriptor of its own", lambda: to_b.import_region(a.descriptor(local)))
        wrong("beyond the peer's region", lambda: to_b.write(at, remote + 1, 64))
        wrong("beyond its own region", lambda: to_b.read(at + 1, remote, 64))
        wrong("more than it has", lambda: to_b.write(here, remote, 65))
        wrong("an operation without bytes", lambda: to_b.write(at, remote))
        wrong("no operations", lambda: to_b.writev([]))
        wrong("65537 operations", lambda: to_b.writev([(at, remote, 1)] * 65537))
        wrong("no operations to prepare", lambda: to_b.prepare([]))
        wrong("prepared beyond the peer's region", lambda: to_b.prepare([("write", at, remote + 1, 64)]))
        wrong("a kind that is none", lambda: to_b.submit([("move", at, remote, 1)]))
        wrong("a deadline that is none", lambda: to_b.write(at, remote, 1, deadline=-1))
        wrong("wait for none", lambda: a.wait_any([]))
        wrong("2^64", lambda: to_b.write(at, 1 << 64, 1))
        wrong("a negative address", lambda: a.register(-1, 64))
        wrong("a negative length", lambda: a.register(at, -1))
        wrong("a negative local address", lambda: to_b.write(-1, at, 1))
        wrong("an address that is a fraction", lambda: to_b.write(at, 1.5, 1))
        wrong("no time", lambda: to_b.write(at, at, 1, deadline=0))
        transfer = to_b.write(at, remote, 8)
        done(a, transfer)
        wrong("of another engine", lambda: b.poll(transfer))
        wrong("a report of what was released", lambda: a.report(transfer))
        wrong("a cancel of what was released", lambda: a.cancel(transfer))
    wrong("a closed engine", lambda: a.register(here))
    wrong("a peer of a closed engine", lambda: to_b.write(at, remote, 8))
    print(told.as_json())
