"""Ranks that compare `warpverbs.mooncake_ep` with plain torch, and show what else it promises."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import groups
import oracle
import pytest
import torch
import torch.distributed as dist
from low_latency import CASE, CHOICES, check_rows, expected, worked
from refusals import Told

import warpverbs
from warpverbs import mooncake_ep

#: Microseconds: ends a hang.
LONG = int(groups.LONG * 1e6)


@dataclass(frozen=True)
class Arguments:
    """One combination of what the calls take."""

    fp8: bool | None = False
    #: ``plain``, ``async`` or ``hook``.
    mode: str = "plain"
    zero_copy: bool = False
    out: bool = False
    #: Whether ``active_ranks`` is a tensor.
    active: bool = True
    timeout_us: int = LONG

    @property
    def form(self) -> str:
        return "bf16" if self.fp8 is False else "fp8"


def combinations() -> list[Arguments]:
    flags = (False, True)
    rest = itertools.product(("plain", "async", "hook"), flags, flags, flags)
    return [Arguments(fp8, *more, timeout) for more in rest for fp8, timeout in ((False, LONG), (True, -1), (None, LONG))]


class Sent:
    """A dispatch with all that is needed to check and combine it."""

    def __init__(
        self, buffer: mooncake_ep.Buffer, arguments: Arguments, case: oracle.Case, seed: int, active: torch.Tensor | None = None
    ) -> None:
        self.buffer, self.arguments, self.case = buffer, arguments, case
        self.all_batches = oracle.batches(case, buffer.group_size, seed)
        self.own = self.all_batches[buffer.rank]
        self.ids = self.own.experts.to(torch.int64)
        every = torch.ones(buffer.group_size, dtype=torch.int32)
        self.active = active if active is not None else every if arguments.active else None
        x = self.own.x.clone()
        self.rows, self.counts, self.handle, self.event, self.hook = buffer.dispatch(
            x,
            self.ids,
            self.active,
            case.max_tokens,
            case.experts,
            arguments.timeout_us,
            use_fp8=arguments.fp8,
            async_finish=arguments.mode == "async",
            return_recv_hook=arguments.mode == "hook",
        )
        # The caller may write again what it has passed.
        x.fill_(float("nan"))
        assert (self.hook is not None) == (arguments.mode == "hook")
        assert (self.event.event is not None) == (arguments.mode == "async")

    def arrive(self) -> None:
        if self.hook is not None:
            self.hook()
        elif self.event.event is not None:
            self.event.current_stream_wait()

    def receive(self) -> None:
        self.arrive()
        buffer, form = self.buffer, self.arguments.form
        check_rows(form, self.rows, self.handle, self.counts, self.all_batches, buffer.rank, self.case)
        self.work()

    def receive_from(self, sources: list[int]) -> None:
        """The same where tokens of these ranks alone have come; in BF16."""
        self.arrive()
        empty = oracle.Batch(self.own.x[:0], self.own.experts[:0], self.own.weights[:0])
        came = [batch if source in sources else empty for source, batch in enumerate(self.all_batches)]
        check_rows("bf16", self.rows, self.handle, self.counts, came, self.buffer.rank, self.case)
        self.work()

    def work(self) -> None:
        self.y = worked(self.arguments.form, self.rows, self.counts, self.buffer.group_size, self.buffer.rank, self.case)

    def back(self) -> None:
        """Sends back, to be finished by `finish`."""
        arguments, y = self.arguments, self.y
        if arguments.zero_copy:
            place = self.buffer.get_next_combine_buffer(self.handle)
            assert (place.shape, place.dtype) == (y.shape, y.dtype)
            place.copy_(y)
            y = torch.full_like(y, float("nan"))
        out = torch.full((len(self.own.x), self.case.hidden), float("nan"), dtype=torch.bfloat16) if arguments.out else None
        self.sums, self.event, self.hook = self.buffer.combine(
            y,
            self.ids,
            self.own.weights,
            self.active,
            arguments.timeout_us,
            self.handle,
            zero_copy=arguments.zero_copy,
            async_finish=arguments.mode == "async",
            return_recv_hook=arguments.mode == "hook",
            out=out,
        )
        assert out is None or self.sums is out

    def finish(self, without: tuple[int, ...] = (), cleared: tuple[int, ...] = ()) -> None:
        """Compares the sums with what they must be without the experts of ranks, and the entries of these and others with 0."""
        if self.hook is not None:
            self.hook()
        elif self.event.event is not None:
            with self.event:
                pass
        ranks = self.buffer.group_size
        left = self.own.experts.clone()
        gone = torch.tensor([home in without for home in oracle.homes(self.case, ranks)])
        left[gone[left.long()] & (left >= 0)] = -1
        wanted = expected(self.arguments.form, oracle.Batch(self.own.x, left, self.own.weights), ranks, self.case)
        assert torch.equal(self.sums, wanted), (self.sums.float() - wanted.float()).abs().max()
        if self.active is not None:
            assert self.active.tolist() == [int(rank not in (*without, *cleared)) for rank in range(ranks)]


def whole(buffer: mooncake_ep.Buffer, arguments: Arguments = Arguments(), case: oracle.Case = CASE, seed: int = 0) -> None:
    sent = Sent(buffer, arguments, case, seed)
    sent.receive()
    sent.back()
    sent.finish()


def grid(step: str, seeds: str) -> None:
    """Every `step`-th combination of arguments, with so many seeds each; prints how many calls were right."""
    with groups.world() as group:
        buffer = mooncake_ep.Buffer(group, 1 << 20)
        done = 0
        for number, arguments in enumerate(combinations()):
            if number % int(step):
                continue
            for round in range(int(seeds)):
                case = replace(CASE, choices=CHOICES[(number // int(step) + round) % len(CHOICES)])
                seed = round * 1000 + number
                try:
                    whole(buffer, arguments, case, seed)
                except AssertionError as error:
                    raise AssertionError(f"rank {dist.get_rank()}, {arguments}, {case}, seed {seed}: {error}") from error
                done += 1
        if dist.get_rank() == 0:
            print(json.dumps(done), flush=True)


def batches() -> None:
    """Two micro-batches overlap and a third is refused; a hook is called once; a batch is combined once, and with its own handle."""
    arguments = Arguments(True, "hook")
    with groups.world() as group:
        buffer = mooncake_ep.Buffer(group)
        # Buffers of one group share their layers.
        other = mooncake_ep.Buffer(group)
        one, two = (Sent(each, arguments, CASE, seed) for seed, each in enumerate((buffer, other)))
        with pytest.raises(warpverbs.Refused, match="two batches are in flight: the hook of dispatch of batch 0"):
            Sent(buffer, arguments, CASE, 3)
        two.receive()
        one.receive()
        hook = one.hook
        assert hook is not None
        with pytest.raises(warpverbs.Refused, match="has been called already"):
            hook()
        one.back()
        two.back()
        with pytest.raises(warpverbs.Refused, match="the hook of combine of batch 0 has not been called"):
            one.back()
        two.finish()
        one.finish()
        for again in (two, one, one):
            again.back()
            again.finish()
        for seed in range(5):
            Sent(buffer, Arguments(), CASE, seed).receive()
        whole(buffer, arguments, CASE, 7)


def masks() -> None:
    """Ranks whose entries are 0 are in no result, and stay 0; when they are 1 again, everything is whole."""
    case = replace(CASE, choices="random")
    with groups.world() as group:
        buffer = mooncake_ep.Buffer(group, 0, True)
        rank, ranks = buffer.rank, buffer.group_size
        whole(buffer, Arguments(), case, 1)
        alone = ranks - 1
        others = tuple(each for each in range(ranks) if (each == alone) != (rank == alone))
        for seed, mode in enumerate(("plain", "hook", "async")):
            active = torch.tensor([int(each not in others) for each in range(ranks)], dtype=torch.int32)
            sent = Sent(buffer, Arguments(mode=mode), case, 2 + seed, active)
            sent.receive_from([each for each in range(ranks) if each not in others])
            sent.back()
            sent.finish(others)
        dist.barrier()
        whole(buffer, Arguments(), case, 9)
        # A rank that is cleared between dispatch and combine is added, because its rows come; its entry stays as it is. The own entry
        # says nothing at all.
        next = (rank + 1) % ranks
        active = torch.ones(ranks, dtype=torch.int32)
        active[rank] = 0
        sent = Sent(buffer, Arguments(), case, 10, active)
        sent.receive()
        active[next] = 0
        sent.back()
        sent.finish(cleared=(rank, next))
        whole(buffer, Arguments(), case, 11)


def two_die() -> None:
    """Of four ranks one dies before a dispatch and another between dispatch and combine: their entries are cleared, and the others go
    on."""
    rank, _ = groups.start()
    three, left = dist.new_group([0, 1, 2]), dist.new_group([0, 1])
    buffer = mooncake_ep.Buffer(dist.group.WORLD, join_timeout=groups.LONG)
    case = replace(CASE, choices="random")
    brief = Arguments(timeout_us=3_000_000)
    whole(buffer, Arguments(timeout_us=-1), case, 1)
    active = torch.ones(4, dtype=torch.int32)
    dist.barrier()
    if rank == 3:
        os._exit(0)
    sent = Sent(buffer, brief, case, 2, active)
    sent.receive_from([0, 1, 2])
    assert active.tolist() == [1, 1, 1, 0]
    dist.barrier(group=three)
    if rank == 2:
        os._exit(0)
    sent.back()
    sent.finish((2, 3))
    for seed, mode in enumerate(("hook", "plain", "async")):
        later = Sent(buffer, replace(brief, mode=mode, timeout_us=LONG), case, 3 + seed, active)
        later.receive_from([0, 1])
        later.back()
        later.finish((2, 3))
    dist.barrier(group=left)


def combine_is_late() -> None:
    """A combine has a bound of its own: the rank that does not combine is cleared, whatever its dispatch said."""
    with groups.world() as group:
        buffer = mooncake_ep.Buffer(group, join_timeout=groups.LONG)
        case = replace(CASE, choices="random")
        whole(buffer, Arguments(), case, 1)
        for seed, mode in enumerate(("plain", "async", "hook"), 2):
            active = torch.ones(2, dtype=torch.int32)
            # Each dispatch would wait for an hour.
            sent = Sent(buffer, Arguments(timeout_us=-1, mode=mode), case, seed, active)
            sent.receive()
            dist.barrier()
            if buffer.rank == 0:
                sent.arguments = replace(sent.arguments, timeout_us=500_000)
                sent.back()
                sent.finish((1,))
            dist.barrier()
            if buffer.rank == 1:
                sent.back()
                sent.finish()
            dist.barrier()
        whole(buffer, Arguments(), case, 9)


class Numbers:
    """All that a rank that was started again can say of its group."""

    def rank(self) -> int:
        return 1

    def size(self) -> int:
        return 2


def comes_back() -> None:
    """A rank dies, its entry is cleared and the other goes on. Started again, it is a member of the same layer, and no row is missing."""
    place = f"{os.environ['WARPVERBS_STORE']}/own"
    os.makedirs(place.removeprefix("file://"), 0o700, exist_ok=True)
    case = replace(CASE, choices="random")
    # Longer than a busy machine keeps a rank, or the thread of its HCA, from running.
    os.environ["WARPVERBS_ACK_TIMEOUT"] = "18"
    known = {"store": place, "run_id": "test", "join_timeout": groups.LONG, "lease": 10.0}
    first = os.environ["WARPVERBS_RANK"] == "0"
    child = 0 if first else os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        # What the others pass, by variables.
        os.environ.update(WARPVERBS_STORE=place, WARPVERBS_RUN_ID="test")
        buffer = mooncake_ep.Buffer(Numbers(), join_timeout=groups.LONG, lease=10.0, rejoin=True)
        buffer.warm_up(case.max_tokens, case.hidden, case.experts, case.top_k, use_fp8=False)
    else:
        groups.start()
        buffer = mooncake_ep.Buffer(dist.group.WORLD, **known)
        with pytest.raises(warpverbs.Refused, match="has no layer yet"):
            buffer.update_ep_member()
        whole(buffer, Arguments(), case, 1)
        assert buffer.update_ep_member().members == {0: 1, 1: 1}
        whole(buffer, Arguments(fp8=True), replace(case, max_tokens=4))
        with pytest.raises(warpverbs.Refused, match=r"max_tokens=8, .* and less; a buffer with a store of its own has one layer"):
            whole(buffer, Arguments(), replace(case, max_tokens=9))
        active = torch.ones(2, dtype=torch.int32)
        before = Sent(buffer, Arguments(), case, 2, active)
        before.receive()
        dist.barrier()
        if not first:
            os._exit(0)
        # Of a batch from before the change the own rows come back.
        before.back()
        before.finish((1,))
        for seed in (3, 4):
            sent = Sent(buffer, Arguments(), case, seed, active)
            sent.receive_from([0])
            sent.back()
            sent.finish((1,))
    view = buffer.update_ep_member()
    assert view.members == {0: 1, 1: 2}
    assert view == buffer.update_ep_member([0])
    for seed in (5, 6, 7):
        whole(buffer, Arguments(mode="hook"), case, seed)
    elastic: Any = buffer._open
    if not first:
        elastic._members.leave(groups.LONG)
        with pytest.raises(warpverbs.RankLost, match=r"rank 1 is no member of its group any more \(left\); start it again"):
            whole(buffer, Arguments(), case)
        buffer.destroy()
        with pytest.raises(warpverbs.Refused, match="the buffer was destroyed"):
            buffer.update_ep_member()
        return
    # The other leaves for good.
    elastic._members.wait_view(view.epoch + 1, groups.LONG)
    elastic._limit = 0.1
    with pytest.raises(warpverbs.TimeoutError, match=r"ranks \[1\] are not members after 0.1 s .* rejoin=True and warm_up"):
        buffer.update_ep_member()
    assert buffer.update_ep_member([0]).members == {0: 1}
    alone = Sent(buffer, Arguments(), case, 8)
    alone.receive_from([0])
    alone.back()
    alone.finish((1,))


def refused() -> None:
    """What each refused or ignored argument says; prints it as JSON."""
    told = Told()
    tried = told.of

    with groups.world() as group:
        own = oracle.batches(CASE, 2, 1)[dist.get_rank()]
        x, ids = own.x, own.experts.long()
        active = torch.ones(2, dtype=torch.int32)

        def make(*more: Any, **named: Any) -> Callable[[], Any]:
            return lambda: mooncake_ep.Buffer(group, *more, **named)

        tried("Buffer num_ep_buffer_bytes", make(1 << 20))
        tried("Buffer num_ep_buffer_bytes again", make(1 << 21))
        tried("Buffer disable_p2p", make(0, True))
        tried("Buffer deadline", make(deadline=0))
        tried("Buffer rejoin", make(rejoin=True))
        tried("Buffer run_id", make(run_id="1"))
        tried("Buffer store", make(store="memory://"))
        tried("Buffer colour", make(colour=None))
        tried("Buffer colour red", make(colour="red"))
        tried("Buffer group", lambda: mooncake_ep.Buffer(None))
        tried("Buffer other group", lambda: mooncake_ep.Buffer(Numbers()))
        buffer = make()()
        tried("update_ep_member", buffer.update_ep_member)

        def dispatch(*, x: Any = x, ids: Any = ids, active: Any = active, most: int = CASE.max_tokens, us: int = LONG, **more: Any) -> Any:
            return buffer.dispatch(x, ids, active, most, CASE.experts, us, **more)

        wrong: dict[str, dict[str, Any]] = {
            "both": {"async_finish": True, "return_recv_hook": True},
            "no time": {"us": 0},
            "less than no time": {"us": -2},
            "all the time": {"us": 10**15},
            "active length": {"active": torch.ones(3, dtype=torch.int32)},
            "active i64": {"active": torch.ones(2, dtype=torch.int64)},
            "active list": {"active": [1]},
            "active strides": {"active": torch.ones(2, 2, dtype=torch.int32)[:, 0]},
            "active elsewhere": {"active": torch.ones(2, dtype=torch.int32, device="meta")},
            "many tokens": {"most": 1},
            "too many tokens": {"most": 1 << 16},
            "f32": {"x": x.float()},
            "three dimensions": {"x": x[None]},
            "strides": {"x": torch.zeros(CASE.hidden, len(x), dtype=torch.bfloat16).T},
            "odd hidden": {"x": x[:, :100].contiguous()},
            "f32 ids": {"ids": ids.float()},
            "one dimension of ids": {"ids": ids[0]},
            "fewer ids": {"ids": ids[:-1]},
            "colour": {"colour": False},
            "colour red": {"colour": "red"},
        }
        for name, given in wrong.items():
            tried(f"dispatch {name}", lambda given=given: dispatch(**given))
        handle = dispatch(use_fp8=False)[2]
        single = [dist.new_group([rank]) for rank in range(2)][dist.get_rank()]
        alone = mooncake_ep.Buffer(single).dispatch(x, ids, None, CASE.max_tokens, CASE.experts, LONG, use_fp8=False)[2]
        y = torch.zeros(-(-CASE.experts // 2), 2 * CASE.max_tokens, CASE.hidden, dtype=torch.bfloat16)

        def combine(*, y: Any = y, ids: Any = ids, active: Any = active, us: int = LONG, handle: Any = handle, **more: Any) -> Any:
            weights = more.pop("weights", own.weights)
            return buffer.combine(y, ids, weights, active, us, handle, **more)

        wrong = {
            "both": {"async_finish": True, "return_recv_hook": True},
            "no time": {"us": 0},
            "active length": {"active": torch.ones(1, dtype=torch.int32)},
            "handle": {"handle": tuple(handle)},
            "other handle": {"handle": alone},
            "other ids": {"ids": ids + 1},
            "y": {"y": y[:1]},
            "no y": {"y": None},
            "f32 y": {"y": y.float()},
            "weights": {"weights": own.weights.double()},
            "out": {"out": torch.empty(1, 1, dtype=torch.bfloat16)},
            "colour red": {"colour": "red"},
        }
        for name, given in wrong.items():
            tried(f"combine {name}", lambda given=given: combine(**given))
        combine()
        whole(buffer)
        buffer.destroy()
        tried("destroyed", dispatch)
        if dist.get_rank() == 0:
            print(told.as_json(), flush=True)
