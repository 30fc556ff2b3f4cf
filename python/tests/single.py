"""What one rank can show by itself: wrong calls and their texts, memory of the layer as tensors, arrays of other libraries."""

from __future__ import annotations

import gc
import logging
import os
import tempfile
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from refusals import Told

import warpverbs
from warpverbs import _native

SHAPE: dict[str, Any] = {"hidden": 64, "experts": 4, "top_k": 2, "max_tokens": 8}


def batch(tokens: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.arange(tokens * 64, dtype=torch.float32).reshape(tokens, 64).to(torch.bfloat16)
    experts = torch.tensor([[token % 4, (token + 1) % 4] for token in range(tokens)], dtype=torch.int32)
    return x, experts, torch.full((tokens, 2), 0.5)


def team() -> warpverbs.Team:
    return warpverbs.Team(deadline=20)


def wrong_calls() -> None:
    """Each wrong call is refused before anything is launched, in words; prints the texts as JSON."""
    told = Told()
    wrong = told.of

    with team() as own:
        moe = warpverbs.Moe(own, "wrong", **SHAPE)
        rows = warpverbs.Moe(own, "rows", returns="rows", **SHAPE)
        fp8 = warpverbs.Moe(own, "fp8", format="fp8", **{**SHAPE, "hidden": 128})
        call = moe.call()
        x, experts, weights = batch()
        shifted = torch.empty(3 * 64 + 1, dtype=torch.bfloat16)[1:].view(3, 64)
        wrong("dtype of x", lambda: call.dispatch(x.float(), experts))
        wrong("shape of x", lambda: call.dispatch(x[:, :32].contiguous(), experts))
        wrong("dimensions of x", lambda: call.dispatch(x[0], experts))
        wrong("stride of x", lambda: call.dispatch(x.t().contiguous().t(), experts))
        wrong("alignment of x", lambda: call.dispatch(shifted, experts))
        wrong("too many tokens", lambda: call.dispatch(*batch(9)))
        wrong("f32 ids", lambda: call.dispatch(x, experts.float()))
        wrong("int16 ids", lambda: call.dispatch(x, experts.short()))
        wrong("shape of ids", lambda: call.dispatch(x, experts[:, :1].contiguous()))
        wrong("no tensor", lambda: call.dispatch([1.0], experts))
        wrong("f64 weights", lambda: call.dispatch(x, experts, weights.double()))
        wrong("shape of weights", lambda: call.dispatch(x, experts, weights[:2]))
        wrong("scales of bf16", lambda: call.dispatch(x, experts, scales=weights))
        wrong("length of active", lambda: call.dispatch(x, experts, active=torch.ones(2, dtype=torch.int32)))
        wrong("deadline", lambda: call.dispatch(x, experts, deadline=0.0))
        wrong("a stream on the CPU", lambda: call.dispatch(x, experts, stream=7))
        wrong(
            "bf16 with scales of fp8", lambda: fp8.call().dispatch(torch.zeros(1, 128, dtype=torch.bfloat16), experts[:1], scales=weights)
        )
        out = moe.received()
        out.counts = torch.empty(5, dtype=torch.int32)
        wrong("counts of an output", lambda: call.dispatch(x, experts, out=out))
        out = moe.received(stats=True)
        out.stats = out.stats.float()
        wrong("f32 statistics", lambda: call.dispatch(x, experts, out=out))
        out = moe.received(active=False)
        out.active_in_place = True
        wrong("a mask in place that is none", lambda: call.dispatch(x, experts, out=out))
        wrong("a mask in place of combine that is none", lambda: call.combine(out.x, active_in_place=True))
        wrong("no y", call.combine)
        wrong("y and staging", lambda: call.combine(x, staging=True))
        wrong("staging of sums", lambda: moe.staging(0))
        wrong("max_tokens of a call beyond", lambda: rows.call().dispatch(x, experts, max_tokens=9))
        wrong("no max_tokens of a call", lambda: rows.call().dispatch(x, experts, max_tokens=0))
        wrong("a format of a call that is none", lambda: rows.call().dispatch(x, experts, format="fp4"))
        narrow = warpverbs.Moe(own, "narrow", format="fp8", **{**SHAPE, "hidden": 1024})
        wide = torch.zeros(1, 1024, dtype=torch.bfloat16)
        wrong("a format of a call beyond", lambda: narrow.call().dispatch(wide, experts[:1], format="bf16"))
        wrong("a deadline of combine", lambda: call.combine(x, deadline=0.0))
        small = rows.call()
        small.dispatch(x, experts, max_tokens=4)
        wrong("staging of a call of fewer tokens", lambda: small.combine(staging=True))
        wrong("memory of a call of fewer tokens", small.staging)
        wrong("a set that is none", lambda: rows.staging(2))
        wrong("weights at combine of sums", lambda: combine_with_weights(call))
        wrong("top_k 0", lambda: warpverbs.Moe.required_bytes(1, **{**SHAPE, "top_k": 0}))
        wrong("hidden 65", lambda: warpverbs.Moe.required_bytes(1, **{**SHAPE, "hidden": 65}))
        wrong("a format that is none", lambda: warpverbs.Moe.required_bytes(1, format="fp4", **SHAPE))
        wrong("a layout that is none", lambda: warpverbs.Moe.required_bytes(1, layout="token", **SHAPE))
        wrong("a negative number", lambda: warpverbs.Moe.required_bytes(1, **{**SHAPE, "experts": -1}))
        wrong("a bound that is too short", lambda: warpverbs.Group(own, moe, lease=0.001))
        wrong("an unknown state", lambda: warpverbs.Group(own, moe).wait("happy", 1))
    wrong("a closed team", lambda: own.barrier("again"))
    wrong("an unknown argument", lambda: warpverbs.Team(0, 1, colour="red"))
    wrong("rank alone", lambda: warpverbs.Team(rank=0))
    wrong("a rank beyond", lambda: warpverbs.Team(2, 2, "file:///nowhere"))
    wrong("no store", lambda: warpverbs.Team(0, 2, ""))
    # A rank takes its place in the store before it opens a device, so that the others hear of a failure. The place must be free.
    with tempfile.TemporaryDirectory() as fresh:
        wrong("a device that is none", lambda: warpverbs.Team(0, 1, f"file://{fresh}", device="mlx5_9"))
    wrong("a GPU that is none", lambda: warpverbs.Team(0, 1, gpu="seven"))
    wrong("a depth beyond", lambda: warpverbs.Team(0, 1, log_depth=16))
    wrong("a deadline of 0", lambda: warpverbs.Team(0, 1, deadline=0))
    print(told.as_json())


def combine_with_weights(call: warpverbs.Call) -> None:
    x, experts, weights = batch()
    got = call.dispatch(x, experts, weights)
    call.combine(got.x, weights=weights)


def out_of_order() -> None:
    """Phases that do not follow each other, and calls of a closed team, are refused before anything is launched; prints the texts."""
    told = Told()
    wrong = told.of
    own = team()
    moe = warpverbs.Moe(own, "order", returns="rows", **SHAPE)
    call = moe.call()
    x, experts, weights = batch()
    y = torch.zeros(moe.room, 8, 64, dtype=torch.bfloat16)
    wrong("receive before a send", call.dispatch_receive)
    wrong("combine first", lambda: call.combine(y))
    wrong("combine send first", lambda: call.combine_send(y))
    wrong("combine receive first", call.combine_receive)
    call.dispatch_send(x, experts)
    wrong("combine of what was not received", lambda: call.combine(y))
    rows = call.dispatch_receive().x
    wrong("receive twice", call.dispatch_receive)
    call.combine_send(rows)
    wrong("combine send twice", lambda: call.combine_send(rows))
    assert torch.equal(call.combine_receive(weights=weights).out, x)
    wrong("combine receive twice", call.combine_receive)
    call.check()
    call.dispatch(x, experts, combine=False)
    wrong("combine of a dispatch alone", lambda: call.combine(rows))
    call.dispatch(x, experts)
    own.close()
    wrong("call of a closed team", moe.call)
    wrong("dispatch of a closed team", lambda: call.dispatch(x, experts))
    wrong("dispatch send of a closed team", lambda: call.dispatch_send(x, experts))
    wrong("combine of a closed team", lambda: call.combine(rows))
    print(told.as_json())


def words() -> None:
    """What each object says of itself: rank, shape, bytes, device; closed ones, too."""
    with team() as own:
        moe = warpverbs.Moe(own, "words", **SHAPE)
        call = moe.call()
        event = call.dispatch_send(*batch())
        got = call.dispatch_receive()
        result = call.combine(got.x)
        event.wait(20)
        group = warpverbs.Group(own, moe)
        group.wait("serving", 20)
        library = sum(moe._bytes[name] for name in ("slots", "staging", "signals", "state"))
        said = {
            own: "<warpverbs.Team rank 0 of 1 on simt>",
            moe: f"<warpverbs.Moe 'words' rank 0 of 1: 4 experts, top 2, 8 x 64 bf16, {library} bytes on simt>",
            call: f"<warpverbs.Call of 'words', rank 0 of 1, {moe._bytes['handle']} bytes on simt>",
            event: "<warpverbs.Event of a kernel that has ended>",
            got: f"<warpverbs.Received [4, 8, 64] torch.bfloat16, {4 * 8 * 64 * 2} bytes on cpu>",
            group: "<warpverbs.Group rank 0 of 1 on simt, serving, members [0]>",
        }
        assert {repr(each) for each in said} == set(said.values())
        assert repr(result) == "<warpverbs.Combined [3, 64] torch.bfloat16, 384 bytes on cpu>"
        memory = own._native.alloc(64, 64)
        assert repr(memory) == f"<warpverbs.Memory 64 bytes at {memory.addr:#x} on the CPU>"
        group.close()
        assert repr(group) == "<warpverbs.Group rank 0 of 1 on simt, closed>"
    assert repr(own) == "<warpverbs.Team rank 0 of 1 on simt, closed>"


class Kept(logging.Handler):
    """Keeps the records of the log, and waits for them."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, str]] = []
        self._come = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._come:
            self.told.append((record.levelname, record.getMessage()))
            self._come.notify_all()

    def wait_for(self, words: str) -> str:
        with self._come:
            there = self._come.wait_for(lambda: any(words in told for _, told in self.told), 60)
            assert there, self.told
            return next(level for level, told in self.told if words in told)


def logs() -> None:
    """Events of the runtime are records of the logger, at its levels; a child that was forked has none, and does not wait for any."""
    logger, kept = logging.getLogger("warpverbs"), Kept()
    logger.addHandler(kept)
    logger.setLevel(logging.INFO)
    with team() as own:
        assert kept.wait_for(own._native.summary()) == "INFO"
        child = os.fork()
        if child == 0:
            _native.end_log()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        moe = warpverbs.Moe(own, "logs", **SHAPE)
        logger.setLevel(logging.DEBUG)
        with warpverbs.Group(own, moe) as group:
            group.wait("serving", 20)
        assert kept.wait_for("members: {0: 1}") == "INFO"
    _native.end_log()
    before = len(kept.told)
    with warpverbs.Team(0, 1, "", deadline=20):
        assert len(kept.told) == before
    _native.end_log()


def integers() -> None:
    """Ids and statistics of 32 and of 64 bits say the same; an id that no expert has is none, whatever its low half says."""
    with team() as own:
        call = warpverbs.Moe(own, "integers", **SHAPE).call()
        x, experts, weights = batch()
        plain = call.dispatch(x, experts, weights)
        for ids in (experts.long(), experts.long().numpy(), experts.numpy().astype(np.uint64)):
            for dtype in (torch.int32, torch.int64):
                out = call.moe.received()
                out.stats = torch.full((4,), 3, dtype=dtype)
                got = call.dispatch(x, ids, weights, out=out)
                call.check()
                assert torch.equal(got.counts, plain.counts)
                assert got.stats.tolist() == [count + 3 for count in plain.counts.tolist()]
                for expert, count in enumerate(plain.counts.tolist()):
                    assert torch.equal(got.x[expert, :count], plain.x[expert, :count])
                assert torch.equal(call.combine(got.x).out, x)
        call.dispatch(x[:0], experts[:0].long())
        call.check()
        for wrong in (1 << 32, 4, -2, -(1 << 63), (1 << 63) - 1):
            ids = experts.long()
            ids[1, 0] = wrong
            call.dispatch(x, ids, weights)
            with pytest.raises(warpverbs.MoeError, match="dispatch send"):
                call.check()


def staging() -> None:
    """What is written into the layer's own memory is what combine sends, and the tensor keeps the layer."""
    with team() as own:
        moe = warpverbs.Moe(own, "staging", returns="rows", **SHAPE)
        call = moe.call()
        x, experts, weights = batch()
        got = call.dispatch(x, experts)
        place = call.staging()
        assert place.shape == got.x.shape
        place.copy_(got.x)
        result = call.combine(staging=True, weights=weights)
        call.check()
        assert torch.equal(result.out, x)
        kept = weakref.ref(moe)
        del moe, call, got, result
        gc.collect()
        assert kept() is None
        place.fill_(1)
        assert float(place.float().sum()) == place.numel()


def arrays() -> None:
    """Arrays of numpy, which has neither BF16 nor FP8, pass as their bits; an object with __dlpack__ alone passes, too."""
    with team() as own:
        moe = warpverbs.Moe(own, "arrays", **SHAPE)
        call = moe.call()
        x, experts, weights = batch()
        # numpy aligns to 16 bytes.
        bits = x.view(torch.int16).numpy()
        call.dispatch_send(bits, experts.numpy(), weights.numpy())
        got = call.dispatch_receive()
        call.check()

        class Lender:
            def __init__(self, tensor: torch.Tensor) -> None:
                self.tensor = tensor

            def __dlpack__(self) -> object:
                return torch.utils.dlpack.to_dlpack(self.tensor)

            def __dlpack_device__(self) -> tuple[int, int]:
                return self.tensor.__dlpack_device__()

        out = np.empty((3, 64), dtype=np.uint16)
        valid = np.empty(3, dtype=np.uint8)
        result = call.combine(Lender(got.x), out, token_valid=valid)
        call.check()
        assert result.out is out
        assert torch.equal(torch.from_numpy(out.view(np.int16)).view(torch.bfloat16), x)
        assert valid.tolist() == [1, 1, 1]
        memory = own._native.alloc(64, 64)
        lent = torch.from_dlpack(memory)
        address = memory.addr
        del memory
        gc.collect()
        lent.fill_(7)
        assert lent.data_ptr() == address
        assert lent.sum() == 448
        for each in (None, object()):
            with pytest.raises(warpverbs.Refused, match="dltensor"):
                _native.read_dlpack(each)


def _refused(does: Callable[[], object]) -> bool:
    try:
        does()
    except warpverbs.Refused as error:
        return "which was forked from it" in str(error)
    return False


def forked() -> None:
    """A child that was forked after a team is refused at its first call, and takes nothing from its parent."""
    own = team()
    moe = warpverbs.Moe(own, "forked", **SHAPE)
    call = moe.call()
    x, experts, weights = batch()
    child = os.fork()
    if child == 0:
        refused = [
            _refused(lambda: call.dispatch(x, experts, weights)),
            _refused(call.report),
            _refused(moe.call),
            _refused(moe.progress),
            _refused(lambda: warpverbs.Moe(own, "other", **SHAPE)),
            _refused(lambda: own.barrier("forked")),
            _refused(lambda: warpverbs.Group(own, moe)),
        ]
        del call, moe, own
        gc.collect()
        os._exit(0 if all(refused) else 1)
    assert os.waitpid(child, 0)[1] == 0
    call.dispatch(x, experts, weights)
    call.check()
    assert own.close() is None  # the layer holds it


def closed_with_a_report() -> None:
    """A team that nothing else holds says what became of its QPs."""
    own = team()
    end = own.close()
    assert end == (0, 0, (), ()), end  # a team of one has none
    assert own.close() is None
    assert own._native.closed


def dropped_while_it_runs() -> None:
    """A handle that is collected while its kernel runs keeps what the kernel uses until it has ended."""
    with team() as own:
        moe = warpverbs.Moe(own, "dropped", **SHAPE)
        for _ in range(20):
            x, experts, weights = batch()
            event = moe.call().dispatch_send(x, experts, weights, combine=False)
            del x, experts, weights
            gc.collect()
            event.wait(20)
            assert event.done


def threads_go_on() -> None:
    """A thread that waits in a phase lets other threads of Python run."""
    with team() as own:
        moe = warpverbs.Moe(own, "threads", **SHAPE)
        rounds = 0
        ended = threading.Event()

        def count() -> None:
            nonlocal rounds
            while not ended.is_set():
                rounds += 1

        counter = threading.Thread(target=count)
        counter.start()
        call = moe.call()
        for _ in range(20):
            got = call.dispatch(*batch())
            call.combine(got.x)
            call.check()
        ended.set()
        counter.join()
        assert rounds > 0
