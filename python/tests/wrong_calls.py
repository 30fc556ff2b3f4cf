"""Wrong calls, each with the text that it is refused by, as JSON: of one rank, and of two that do not do the same."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import groups
import pytest
import torch
import torch.distributed as dist
from refusals import Told

import warpverbs
from warpverbs import _arrays, deep_ep, mooncake_ep

SHAPE: dict[str, Any] = {"hidden": 128, "experts": 4, "top_k": 2, "max_tokens": 8}
TOKENS = 3
#: Ends a hang, seconds.
LONG = 60.0


def spoiled(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same tensor as it must not be, by what is wrong with it."""
    shifted = torch.frombuffer(bytearray(tensor.nbytes + 1), dtype=tensor.dtype, offset=1).view(tensor.shape)
    wrong = {
        "dtype": tensor.double(),
        "shape": torch.zeros(*tensor.shape[:-1], tensor.shape[-1] + 1).to(tensor.dtype),
        "device": tensor.to("meta"),
        "stride": torch.zeros(*tensor.shape, 2).to(tensor.dtype)[..., 0],
        "alignment": shifted,
    }
    # One element has any stride, and a byte any address.
    if tensor.numel() == 1:
        del wrong["stride"]
    if tensor.dtype == torch.uint8:
        del wrong["alignment"]
    return wrong


class OnGpu:
    """An array that says that it lies on a GPU."""

    __cuda_array_interface__: ClassVar[dict[str, Any]] = {"typestr": "<i4", "shape": (TOKENS, 2), "data": (1 << 20, False), "version": 3}


class OfGpu1:
    """A tensor that says by DLPack that it lies on the second GPU."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 1

    def __dlpack__(self) -> object:
        return self._tensor.__dlpack__()


def tensors() -> None:
    """Each tensor of each call with what may be wrong with it."""
    told = Told()
    with warpverbs.Team(deadline=20) as team:
        rows = warpverbs.Moe(team, "rows", returns="rows", **SHAPE)
        fp8 = warpverbs.Moe(team, "fp8", format="fp8", returns="rows", **SHAPE)
        by_rank = warpverbs.Moe(team, "rank", layout="rank", **SHAPE)
        x = torch.ones(TOKENS, 128, dtype=torch.bfloat16)
        ids = torch.tensor([[0, 1], [1, 2], [2, 3]], dtype=torch.int32)
        weights, mask = torch.ones(TOKENS, 2), torch.ones(1, dtype=torch.int32)
        codes, scales = torch.ones(TOKENS, 128).to(torch.float8_e4m3fn), torch.ones(TOKENS, 1)
        sends: dict[str, tuple[torch.Tensor, Callable[[Any], object]]] = {
            "x": (x, lambda wrong: rows.call().dispatch(wrong, ids)),
            "x of fp8": (codes, lambda wrong: fp8.call().dispatch(wrong, ids, scales=scales)),
            "scales": (scales, lambda wrong: fp8.call().dispatch(codes, ids, scales=wrong)),
            "experts": (ids, lambda wrong: rows.call().dispatch(x, wrong)),
            "weights": (weights, lambda wrong: rows.call().dispatch(x, ids, wrong)),
            "active": (mask, lambda wrong: rows.call().dispatch(x, ids, active=wrong)),
        }
        for name, (right, call) in sends.items():
            for what, wrong in spoiled(right).items():
                told.of(f"{name}, {what}", lambda wrong=wrong, call=call: call(wrong))
        for moe, fields in (
            (fp8, ("x", "scales_memory", "counts", "src_info", "layout_range", "stats", "wait_ns", "active")),
            (by_rank, ("experts", "weights")),
        ):
            for field in fields:
                right = getattr(moe.received(stats=True, wait_ns=True), field)
                for what, wrong in spoiled(right).items():
                    out = moe.received(stats=True, wait_ns=True)
                    setattr(out, field, wrong)
                    told.of(f"out.{field}, {what}", lambda moe=moe, out=out: moe.call().dispatch(x, ids, out=out))
        call = rows.call()
        got = call.dispatch(x, ids)
        told.of("out.x that overlaps x", lambda: rows.call().dispatch(got.x[0, :TOKENS], ids, out=got))
        sums, valid, waited = torch.empty_like(x), torch.empty(TOKENS, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64)
        returns: dict[str, tuple[torch.Tensor, Callable[[Any], object]]] = {
            "y": (got.x, call.combine),
            "out": (sums, lambda wrong: call.combine(got.x, wrong)),
            "weights of combine": (weights, lambda wrong: call.combine(got.x, weights=wrong)),
            "token_valid": (valid, lambda wrong: call.combine(got.x, token_valid=wrong)),
            "active of combine": (mask, lambda wrong: call.combine(got.x, active=wrong)),
            "wait_ns of combine": (waited, lambda wrong: call.combine(got.x, wait_ns=wrong)),
        }
        for name, (right, combine) in returns.items():
            for what, wrong in spoiled(right).items():
                told.of(f"{name}, {what}", lambda wrong=wrong, combine=combine: combine(wrong))
        told.of("out that overlaps y", lambda: call.combine(got.x, got.x[0, :TOKENS]))
        told.of("a tensor of a GPU where kernels run on the CPU", lambda: rows.call().dispatch(x, OnGpu()))
        told.of("a tensor of the CPU where kernels run on a GPU", lambda: _arrays.address("x", x, "bf16", (TOKENS, 128), 0))
        told.of("a tensor of another GPU", lambda: _arrays.address("x", OfGpu1(x), "bf16", (TOKENS, 128), 0))
        assert _arrays.address("x", OfGpu1(x), "bf16", (TOKENS, 128), 1) == x.data_ptr()
        # After all of that the call goes on.
        assert torch.equal(call.combine(got.x, weights=weights / 2).out, x)
        call.check()
        # What only the device can see.
        beyond = ids.clone()
        beyond[1, 1] = 4
        call.dispatch(x, beyond)
        told.of("an id beyond the experts", call.check)
        twice = ids.clone()
        twice[1] = 2
        call.dispatch(x, twice)
        told.of("an expert twice", call.check)
        # Weights are the caller's: a NaN is one in the sums of its token, and in no other.
        weights[1, 0] = float("nan")
        got = call.dispatch(x, ids)
        out = call.combine(got.x, weights=weights).out
        call.check()
        assert out.isnan().any(1).tolist() == [False, True, False]
        assert bool(out[1].isnan().all())
    print(told.as_json())


def by_phases() -> None:
    """A tensor that a call of two launches refuses is refused as that of one launch is, and nothing is launched."""
    with warpverbs.Team(deadline=20) as team:
        for form, layout in itertools.product(("bf16", "fp8"), ("expert", "rank")):
            phases_of(warpverbs.Moe(team, f"{form}-{layout}", format=form, layout=layout, **SHAPE))


def phases_of(moe: warpverbs.Moe) -> None:
    told, call = Told(), moe.call()

    def same(name: str, one: Callable[[], object], two: Callable[[], object]) -> None:
        told.of("one", one)
        told.of("two", two)
        assert told.texts["one"][0] == "Refused", (name, told.texts)
        assert told.texts["one"] == told.texts["two"], name

    x = torch.ones(TOKENS, 128, dtype=torch.bfloat16)
    ids, mask = torch.tensor([[0, 1], [1, 2], [2, 3]]), torch.ones(1, dtype=torch.int32)
    sends: dict[str, tuple[torch.Tensor, Callable[[Any], tuple[Any, Any, Any]]]] = {
        "x": (x, lambda wrong: (wrong, ids, None)),
        "experts": (ids, lambda wrong: (x, wrong, None)),
        "active": (mask, lambda wrong: (x, ids, wrong)),
    }
    started, _ = moe.progress()
    for name, (right, arguments) in sends.items():
        for what, wrong in spoiled(right).items():
            sent, experts, active = arguments(wrong)
            same(
                f"{name}, {what}",
                lambda sent=sent, experts=experts, active=active: call.dispatch(sent, experts, active=active),
                lambda sent=sent, experts=experts, active=active: call.dispatch_send(sent, experts, active=active),
            )
    assert moe.progress()[0] == started
    if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        takes_right_tensors(moe, x, ids, mask)
        started += 1
    # The native module knows torch's own class. A class below it and an array of another library are looked at by the package.
    for sent in (x, torch.nn.Parameter(x), OfCpu(x)):
        call.dispatch_send(sent, ids, active=mask)
        got = call.dispatch_receive()
        assert got.counts.tolist() == ([1, 2, 2, 1] if moe.layout == "expert" else [TOKENS])
    assert moe.progress()[0] == started + 3
    fields = ["x", "counts", "src_info", "stats", "wait_ns", "active"]
    fields += ["layout_range"] if moe.layout == "expert" else ["experts", "weights"]
    fields += ["scales_memory"] if moe.format == "fp8" else []
    for field in fields:
        for what, wrong in spoiled(getattr(moe.received(stats=True, wait_ns=True), field)).items():
            out = moe.received(stats=True, wait_ns=True)
            setattr(out, field, wrong)
            call.dispatch_send(x, ids)
            same(f"{field}, {what}", lambda out=out: moe.call().dispatch(x, ids, out=out), lambda out=out: call.dispatch_receive(out))
            call.dispatch_receive()
            call.check()


def takes_right_tensors(moe: warpverbs.Moe, x: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> None:
    """The native module looks at all tensors of a dispatch that is right, and at nothing that is not."""
    call, out = moe.call(), moe.received(stats=True, wait_ns=True)
    form = call._shape.form
    assert form is not None
    assert call._native.send_tensors(form, (x, torch.nn.Parameter(ids.float()), mask), None, 0, True) is None
    assert call._native.send_tensors(form, (x, ids, mask), 0.0, 0, True) is None
    assert call._native.send_tensors(form, (x, ids), None, 0, True) is None  # type: ignore[arg-type]
    assert call._native.send_tensors(form, (x, ids, mask), None, 0, True, out._tensors()[:-1]) is None
    sent = call._native.send_tensors(form, (x, ids, mask), None, 0, True, out._tensors())
    assert sent is not None
    assert sent[0] == TOKENS
    assert call._native.receive_tensors(form, out._tensors(), False, 0) is not None
    assert out.x.shape[-1] == moe.hidden


def of_the_caller() -> None:
    """Each tensor of the caller in the calls of other names, with what may be wrong with it: it is refused before anything is launched,
    with a hook, too. Then the call goes on."""
    told = Told()
    x, ids = torch.ones(TOKENS, 128, dtype=torch.bfloat16), torch.tensor([[0, 1], [1, 2], [2, 3]])
    weights, mask, waited = torch.full((TOKENS, 2), 0.5), torch.ones(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int64)

    def deep_ep_calls(group: Any, hook: bool) -> tuple[Callable[..., Any], Callable[..., Any], dict[str, Any], dict[str, Any]]:
        buffer = deep_ep.Buffer(group, low_latency_mode=True)

        def dispatch(**given: Any) -> Any:
            all_of_it = {"topk_idx": ids, "use_fp8": False, "return_recv_hook": hook, **given}
            rows, _, handle, _, received = buffer.low_latency_dispatch(x, num_max_dispatch_tokens_per_rank=8, num_experts=4, **all_of_it)
            return rows, handle, received

        def combine(rows: Any, handle: Any, **given: Any) -> Any:
            all_of_it = {"topk_idx": ids, "topk_weights": weights, "return_recv_hook": hook, **given}
            return buffer.low_latency_combine(rows, handle=handle, **all_of_it)

        counted = torch.zeros(4, dtype=torch.int32)
        sent = {"topk_idx": ids, "cumulative_local_expert_recv_stats": counted, "dispatch_wait_recv_cost_stats": waited}
        return dispatch, combine, sent, {"topk_idx": ids, "topk_weights": weights, "combine_wait_recv_cost_stats": waited}

    def mooncake_calls(group: Any, hook: bool) -> tuple[Callable[..., Any], Callable[..., Any], dict[str, Any], dict[str, Any]]:
        buffer = mooncake_ep.Buffer(group)

        def dispatch(**given: Any) -> Any:
            all_of_it = {"topk_idx": ids, "active_ranks": mask, "use_fp8": False, "return_recv_hook": hook, **given}
            rows, _, handle, _, received = buffer.dispatch(x, num_max_dispatch_tokens_per_rank=8, num_experts=4, timeout_us=-1, **all_of_it)
            return rows, handle, received

        def combine(rows: Any, handle: Any, **given: Any) -> Any:
            all_of_it = {"topk_idx": ids, "topk_weights": weights, "active_ranks": mask, "return_recv_hook": hook, **given}
            return buffer.combine(rows, handle=handle, timeout_us=-1, **all_of_it)

        return dispatch, combine, {"topk_idx": ids, "active_ranks": mask}, {"topk_idx": ids, "topk_weights": weights, "active_ranks": mask}

    with groups.world() as group:
        for calls, hook in itertools.product((deep_ep_calls, mooncake_calls), (False, True)):
            dispatch, combine, sent, returned = calls(group, hook)
            rows, handle, received = dispatch()
            (received or int)()
            layer, out = handle.batch.layer, torch.zeros_like(x)
            before = layer.moe.progress(), list(layer._open)
            of = f"{calls.__name__}{' with a hook' if hook else ''}"
            for name, right in sent.items():
                for what, wrong in short(right).items():
                    told.of(
                        f"{of}: {name} of dispatch, {what}", lambda name=name, wrong=wrong, dispatch=dispatch: dispatch(**{name: wrong})
                    )
                    assert (layer.moe.progress(), layer._open) == before, (name, what)
            for name, right in {**returned, "out": out}.items():
                for what, wrong in short(right).items():
                    given = {"out": out, name: wrong}
                    told.of(
                        f"{of}: {name} of combine, {what}",
                        lambda given=given, combine=combine, rows=rows, handle=handle: combine(rows, handle, **given),
                    )
                    assert (layer.moe.progress(), layer._open) == before, (name, what)
            assert not out.any()
            sums, _, received = combine(rows, handle, out=out)
            (received or int)()
            assert sums is out
            assert torch.equal(out, x)
        shrinks = deep_ep.Buffer(group, low_latency_mode=True, enable_shrink=True)
        for what, wrong in short(mask).items():
            told.of(f"mask_status, {what}", lambda wrong=wrong: shrinks.low_latency_query_mask_buffer(wrong))
    print(told.as_json())


def short(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same tensor with what may be wrong with it, a row too few and without memory among it."""
    wrong = spoiled(tensor)
    wrong["shape"], wrong["freed"] = tensor[:-1].clone(), tensor.clone()
    wrong["freed"].untyped_storage().resize_(0)
    return wrong


def freed() -> None:
    """A tensor without memory is not one that is not given."""
    with warpverbs.Team(deadline=20) as team:
        call = warpverbs.Moe(team, "freed", **SHAPE).call()
        weights = torch.ones(TOKENS, 2)
        weights.untyped_storage().resize_(0)
        with pytest.raises(warpverbs.Refused, match="weights has no memory, because its storage was freed; it must have 6 elements"):
            call.dispatch(torch.ones(TOKENS, 128, dtype=torch.bfloat16), torch.tensor([[0, 1], [1, 2], [2, 3]]), weights)


class OfCpu:
    """An array that says by DLPack alone what it is."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__


#: Ways to change a tensor of two dimensions that stays the same object, and words of the text that refuses it then.
CHANGES: dict[str, tuple[Callable[[torch.Tensor], object], str]] = {
    "resized": (lambda tensor: tensor.resize_(tensor.shape[0] + 1, *tensor.shape[1:]), "has the shape|has 3 rows|has 4"),
    "of another memory": (
        lambda tensor: tensor.set_(torch.zeros(1, *tensor.shape, dtype=tensor.dtype)),
        "must be a tensor|has the shape",
    ),
    "of other data": (lambda tensor: setattr(tensor, "data", tensor.double()), "holds f64; it must hold"),
    "with other strides": (lambda tensor: tensor.as_strided_(tensor.shape, (1, *tensor.shape[:-1])), "is not contiguous"),
    "transposed": (lambda tensor: tensor.transpose_(0, 1), "has the shape|has 128|has 2 rows|is not contiguous"),
    "without memory": (lambda tensor: tensor.untyped_storage().resize_(0), "has no memory, because its storage was freed"),
}


def changed_in_place() -> None:
    """Between two calls a tensor stays the same object and becomes another one: the second call refuses it, and the next goes on."""
    ones = torch.ones(TOKENS, 128, dtype=torch.bfloat16)
    choices = torch.tensor([[0, 1], [1, 2], [2, 3]])

    def refused(words: str, x: torch.Tensor, ids: torch.Tensor, step: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
        with pytest.raises(warpverbs.Refused, match=words):
            step(x, ids)

    with groups.world() as group:
        for hooks, (what, (change, words)) in itertools.product((True, False), CHANGES.items()):
            buffer = deep_ep.Buffer(group, low_latency_mode=True, reuse_outputs=True)
            weights = torch.full((TOKENS, 2), 0.5)

            def step(x: torch.Tensor, ids: torch.Tensor, buffer=buffer, hooks=hooks, weights=weights) -> torch.Tensor:
                rows, counts, handle, _, hook = buffer.low_latency_dispatch(x, ids, 8, 4, use_fp8=False, return_recv_hook=hooks)
                (hook or int)()
                assert counts.tolist() == [1, 2, 2, 1]
                sums, *_ = buffer.low_latency_combine(rows, choices, weights, handle)
                assert torch.equal(sums, ones)
                return rows

            for place in range(2):
                x, ids = ones.clone(), choices.clone()
                first = step(x, ids)
                (served,) = buffer._place._served.values()
                before = served.layer.moe.progress()
                change((x, ids)[place])
                refused(words, x, ids, step)
                # Another type at the same address.
                refused("holds f16; it must hold bf16", ones.view(torch.float16), choices, step)
                refused("holds f64; it must hold i32 or i64", ones, choices.view(torch.float64), step)
                assert served.layer.moe.progress() == before, what
                step(ones, choices)
            # What it has returned, and would write again.
            first = step(ones, choices)
            before = served.layer.moe.progress()
            change(first)
            refused(words, ones, choices, step)
            assert served.layer.moe.progress() == before, what
            again = step(ones, choices)
            assert again is not first
            assert step(ones, choices) is again


def process_groups() -> None:
    """Process groups that are none, and masks that say nothing."""
    told = Told()
    told.of("no process group", warpverbs.Team.from_group)
    with groups.world() as group:
        told.of("a group without a store", lambda: warpverbs.Team.from_group(object()))
        gone = dist.new_group([0])
        dist.destroy_process_group(gone)
        told.of("a group that was destroyed", lambda: warpverbs.Team.from_group(gone))
        buffer = deep_ep.Buffer(group, low_latency_mode=True, enable_shrink=True)
        x, ids = torch.ones(TOKENS, 128, dtype=torch.bfloat16), torch.zeros(TOKENS, 1, dtype=torch.int64)

        def dispatch(tokens: int = 8) -> Any:
            return buffer.low_latency_dispatch(x, ids, tokens, 4, use_fp8=False)

        # A mask of oneself says nothing: a rank always has its own tokens.
        buffer.low_latency_update_mask_buffer(0, True)
        rows, counts, handle, *_ = dispatch()
        assert counts.tolist() == [TOKENS, 0, 0, 0]
        sums, *_ = buffer.low_latency_combine(rows, ids, torch.ones(TOKENS, 1), handle)
        assert torch.equal(sums, x)
        told.of("a mask of no rank", lambda: buffer.low_latency_update_mask_buffer(1, True))
        told.of("a mask of rank -1", lambda: buffer.low_latency_update_mask_buffer(-1, True))
        handles = [dispatch()[2] for _ in range(3)]
        told.of("a handle of two calls ago", lambda: buffer.low_latency_combine(rows, ids, torch.ones(TOKENS, 1), handles[0]))
    told.of("a group of a program that has left", warpverbs.Team.from_group)
    print(told.as_json())


def other_calls(folder: str) -> None:
    """Two ranks that do not make the same calls: the error of each names the other. Each writes its errors into a file of `folder`."""
    told = Told()
    os.environ["WARPVERBS_STORE"], place = "", os.environ["WARPVERBS_STORE"]

    def team(name: str, timeout: float = LONG) -> warpverbs.Team:
        own = f"{place}/{name}"
        os.makedirs(own.removeprefix("file://"), 0o700, exist_ok=True)
        return warpverbs.Team(rank, 2, own, join_timeout=timeout, deadline=0.5)

    rank = int(os.environ["WARPVERBS_RANK"])
    x = torch.ones(1, 128, dtype=torch.bfloat16)
    ids = torch.tensor([[0, 3]], dtype=torch.int32)
    for name, own in {
        "hidden": {"hidden": 64 * (rank + 1)},
        "format": {"format": ("bf16", "fp8")[rank]},
        "max_tokens": {"max_tokens": 8 + rank},
        "layout": {"layout": ("expert", "rank")[rank]},
    }.items():
        apart = team(name)
        told.of(f"another {name} at another rank", lambda apart=apart, own=own: warpverbs.Moe(apart, "layer", **{**SHAPE, **own}))
        apart.close()
    between = team("between")
    apart = team("name", 1.0)
    told.of("another name at another rank", lambda: warpverbs.Moe(apart, f"layer.{rank}", **SHAPE))
    # The next call tells the other rank that this one has failed; that rank may still wait for the layer.
    between.barrier("named")
    told.of("a name that is none", lambda: warpverbs.Moe(apart, "my layer", **SHAPE))
    apart.close()
    between.close()
    apart = team("order")
    call = warpverbs.Moe(apart, "layer", **SHAPE).call()
    if rank == 0:
        call.dispatch(x, ids)
        told.of("a dispatch where another rank makes none", call.check)
    else:
        told.of("a combine without a dispatch", lambda: call.combine(torch.zeros(2, 16, 128, dtype=torch.bfloat16)))
    apart.barrier("told")
    apart.close()
    Path(folder, str(rank)).write_text(told.as_json())


def vanishing_store() -> None:
    """The store of a process group ends while a team is made: the rank that waits says so."""
    told = Told()
    rank, _ = groups.start()
    dist.barrier()
    if rank == 0:
        # It holds the store.
        os._exit(0)
    start = time.monotonic()
    told.of("a store that vanishes", lambda: warpverbs.Team.from_group(join_timeout=LONG))
    assert time.monotonic() - start < LONG
    print(told.as_json(), flush=True)
    os._exit(0)


def refused_by_a_hook() -> None:
    """A hook refuses a tensor that was changed since the dispatch, and receives when it is called again with the right one."""
    x = torch.ones(TOKENS, 128, dtype=torch.bfloat16)
    choices, weights = torch.tensor([[0, 1], [1, 2], [2, 3]]), torch.full((TOKENS, 2), 0.5)
    with groups.world() as group:
        buffer = deep_ep.Buffer(group, low_latency_mode=True)
        for _ in range(3):
            rows, counts, handle, _, hook = buffer.low_latency_dispatch(x, choices, 8, 4, use_fp8=False, return_recv_hook=True)
            right, counts.data = counts.data, counts.data.double()
            for _ in range(2):
                with pytest.raises(warpverbs.Refused, match="counts holds f64"):
                    hook()
            counts.data = right
            hook()
            assert counts.tolist() == [1, 2, 2, 1]
            with pytest.raises(warpverbs.Refused, match="has been called already"):
                hook()
            sums, *_ = buffer.low_latency_combine(rows, choices, weights, handle)
            assert torch.equal(sums, x)
