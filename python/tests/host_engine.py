"""What a program shows with two host engines of its own: memory of every kind is moved, and what cannot be is refused in words."""

from __future__ import annotations

import array
import ctypes
import gc
import json
import os
import random
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

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
        with pytest.raises(warpverbs.Refused, match="prepared for incarnation"):
            to_a.post(plan)
        a.deregister(local)
        with pytest.raises(warpverbs.Refused, match="was taken away"):
            to_b.post(plan)


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
    body = bytearray(descriptor[:32])
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
    """The interpreter ends while engines, peers and a waiting thread are there."""
    a, b, to_b, _ = pair()
    local, remote = a.register(bytearray(64)), reach(b, to_b, bytearray(64))
    threading.Thread(target=lambda: b.accept(None), daemon=True).start()
    to_b.write(local.address, remote, 64)
    globals()["kept"] = (a, b, to_b)


def wrong_calls() -> None:
    """Each wrong call is refused in words; prints the texts as JSON."""
    texts: dict[str, list[str]] = {}

    def wrong(name: str, does: Callable[[], object]) -> None:
        try:
            does()
        except Exception as error:
            texts[name] = [type(error).__name__, str(error)]
        else:
            texts[name] = ["nothing", "was refused"]

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
        wrong("a fragment longer than a slice", lambda: Engine("c", slice=4096, fragment=4097))
        wrong("no such device", lambda: Engine("c", device="nosuch_0"))
        wrong("no time to connect", lambda: Engine("c", connect_timeout=0))
        wrong("a negative drain", lambda: Engine("c", drain=-1))
        wrong("an address without bytes", lambda: a.register(at))
        wrong("an object with bytes", lambda: a.register(here, 64))
        wrong("no memory", lambda: a.register("text"))
        wrong("read-only memory", lambda: a.register(bytes(64)))
        wrong("memory that is not dense", lambda: a.register(np.zeros((8, 8))[:, ::2]))
        wrong("a tensor that is not dense", lambda: a.register(torch.zeros(8, 8).t()))
        wrong("no bytes", lambda: a.register(bytearray()))
        wrong("0 bytes at an address", lambda: a.register(at, 0))
        wrong("a type without a width", lambda: a.register(np.zeros(8, dtype="datetime64[s]")))
        wrong("half of it is registered", lambda: a.register(at + 32, 64))
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
        transfer = to_b.write(at, remote, 8)
        done(a, transfer)
        wrong("of another engine", lambda: b.poll(transfer))
        wrong("a report of what was released", lambda: a.report(transfer))
        wrong("a cancel of what was released", lambda: a.cancel(transfer))
    wrong("a closed engine", lambda: a.register(here))
    wrong("a peer of a closed engine", lambda: to_b.write(at, remote, 8))
    print(json.dumps(texts))
