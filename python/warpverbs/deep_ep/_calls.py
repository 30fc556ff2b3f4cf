"""What the buffers of DeepEP's names and of Mooncake's share: checks of arguments, and the steps of a dispatch and a combine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch

from .. import _arrays
from .._numbers import check_whole
from ..errors import Error, MoeError, Refused
from ..moe import Call, Combined, Moe, Received
from ..team import Team
from ._layers import BUSY, MOST_EXPERTS, Batch, Handle, Hook, Kept, Layer, Receive, Served
from .utils.event import EventHandle

__all__ = ["Arguments", "Calls", "format_of", "one_of", "refuse", "size_hint"]

NO_GRADIENT = (
    "x requires a gradient, and the low-latency calls have none: the gradient would end here in silence. Call them under torch.no_grad(), "
    "or pass x.detach()"
)
#: Choices of a token that a size hint assumes if the caller gives none.
HINTED_TOP_K = 16


class Arguments:
    """Says once of each argument what it means here, where it means nothing.

    :param log: where it says so.
    :param known: whose arguments the calls know, in words.
    """

    def __init__(self, log: logging.Logger, known: str) -> None:
        self._log, self._known = log, known
        self._told: set[str] = set()

    def ignore(self, call: str, given: Mapping[str, tuple[object, object]]) -> None:
        """Each argument is given as its value and its default."""
        for name, (value, default) in given.items():
            if value is not default and value != default and f"{call} {name}" not in self._told:
                self._told.add(f"{call} {name}")
                self._log.info("%s(%s=%r) is ignored; python/README.md has the table of arguments", call, name, value)

    def unknown(self, call: str, given: Mapping[str, object]) -> None:
        """Arguments that no table has: a :class:`TypeError` unless they say nothing."""
        for name, value in given.items():
            if value is not None and value is not False:
                raise TypeError(f"{call} got the unknown argument {name}={value!r}; it knows {self._known}")
            if f"{call} {name}" not in self._told:
                self._told.add(f"{call} {name}")
                self._log.warning("%s(%s=%r) is unknown, and means nothing here", call, name, value)


def refuse(name: str, why: str) -> NoReturn:
    """An argument that has no counterpart here."""
    raise NotImplementedError(f"{name} {why}")


def one_of(async_finish: bool, return_recv_hook: bool) -> None:
    """A call returns an event or a hook."""
    if async_finish and return_recv_hook:
        raise Refused("async_finish and return_recv_hook are both set; a call has an event or a hook")


def format_of(use_fp8: bool, round_scale: bool = False, use_ue8m0: bool = False) -> str:
    """The format of a layer that dispatches so."""
    if not use_fp8:
        return "bf16"
    if use_ue8m0 and not round_scale:
        raise Refused("use_ue8m0 keeps the exponent of a scale alone; pass round_scale=True with it")
    return "fp8-ue8m0" if use_ue8m0 else "fp8-pow2" if round_scale else "fp8"


def size_hint(max_tokens: int, hidden: int, ranks: int, experts: int, top_k: int | None) -> int:
    """Bytes that a layer of this shape takes at each rank."""
    top_k = top_k or min(experts, HINTED_TOP_K)
    size = Moe.required_bytes(ranks, hidden=hidden, experts=experts, top_k=top_k, max_tokens=max_tokens, returns="rows")
    return sum(size[name] for name in ("slots", "staging", "signals", "state")) + 2 * size["handle"]


class Calls:
    """Steps of the calls of a buffer."""

    #: The name of the call that dispatches.
    _dispatches_by = "low_latency_dispatch"
    #: Whether a dispatch writes the tensors of an earlier batch that is over.
    _reuses = False
    #: Whether calls that miss a rank raise nothing.
    _goes_on = True

    @property
    def _place(self) -> Any:
        """Where its layers lie."""
        raise NotImplementedError

    @property
    def unbuffered(self) -> int:
        """Calls of its layers so far that found no free send buffer, and so sent nothing: the links to several ranks failed within the
        patience of the HCA. Engines do not know this name. Reads host memory, without a sync."""
        return sum(layer.moe.unbuffered for layer in self._place.made())

    def local_experts(self, num_experts: int) -> list[int]:
        """The experts of this rank in calls with ``num_experts``, in the order of the rows of a dispatch. Engines do not know this name. If
        the ranks do not divide the experts, the first ranks have one more."""
        check_whole("num_experts", num_experts, 1, MOST_EXPERTS)
        for layer in self._place.made():
            if layer.shape.experts == num_experts:
                found: list[int] = layer.moe.local_experts()
                return found
        each, more = divmod(num_experts, self._ranks)
        first = self._rank * each + min(self._rank, more)
        return list(range(first, first + each + (self._rank < more)))

    def _run_on(self, team: Team) -> None:
        """Notes where the kernels of ``team`` run."""
        self._on_cpu, self._gpu, self._rank, self._ranks = team.on_cpu, team.gpu, team.rank, team.ranks
        self._device = torch.device(_arrays.device_of(team.gpu))
        self._kept = Kept()
        self._comm_stream = None if self._on_cpu else torch.cuda.Stream(self._device)

    def _dispatch(
        self,
        served: Served,
        x: Any,
        topk_idx: Any,
        active: Any,
        wait_ns: Any,
        stats: Any,
        deadline: float,
        async_finish: bool,
        return_recv_hook: bool,
    ) -> tuple[Received, Handle, EventHandle | None, Hook | None]:
        """A new batch of these calls: sends ``x``, and receives now or by the hook. What is refused leaves all as it was.

        The caller's tensors that it updates in stream order, each where it is given: ``active``, in which entries of ranks that the call
        misses become 0; ``wait_ns``, to which the ns waited for each rank are added; ``stats``, to which the rows of each local expert
        are.
        """
        layer = served.layer
        if not layer.turn.acquire(False):
            raise Refused(BUSY)
        try:
            call = layer.next_call()
            received = layer.outputs(call, served, self._reuses)
            received.stats, received.wait_ns = stats, wait_ns
            received.active, received.active_in_place = active, active is not None
            event = hook = None
            if return_recv_hook:
                self._send(served, call, x, topk_idx, received, deadline)
                batch = layer.begin(served, topk_idx, received)
                hook = self._hook(batch, "dispatch", batch.receive, batch.receive_aside)
            else:
                given = call._input(x, topk_idx, None, None, active, deadline, True, served.of_call, "topk_idx")
                batch = layer.begin(served, topk_idx, received)
                event = self._send_and_receive(served, batch, given, x, async_finish)
        finally:
            layer.turn.release()
        shape = served.shape
        handle = Handle((received.src_info, received.layout_range, shape.max_tokens, shape.hidden, shape.experts))
        handle.batch = batch
        return received, handle, event, hook

    def _send(self, served: Served, call: Call, x: Any, topk_idx: Any, received: Received, deadline: float) -> None:
        """The send phase of the next batch."""
        layer, of_call = served.layer, served.of_call
        try:
            if self._on_cpu:
                call._send_for(received, of_call, x, topk_idx, deadline)
            else:
                layer.launch(self._current(), call._send_for, received, of_call, x, topk_idx, deadline)
        except (Refused, TypeError):
            layer.forget(call, served)
            raise
        except BaseException:
            # It was sent, or may have been: Ctrl-C ends the wait for its end.
            layer.begin(served, topk_idx, received)
            raise

    def _send_and_receive(self, served: Served, batch: Batch, given: tuple[Any, ...], x: Any, async_finish: bool) -> EventHandle | None:
        """Both phases of a dispatch of ``batch`` as one launch."""
        received = batch.received
        assert received is not None, "nothing was received yet"
        used = (x, batch.topk_idx, received.active)

        def both() -> None:
            batch.call._dispatch(given, x, used, received)
            batch.has_dispatched(received)

        try:
            return self._at_once(batch, "dispatch", both, async_finish)
        except (Refused, TypeError):
            batch.layer.cancel(batch)
            batch.layer.forget(batch.call, served)
            raise

    def _combine(
        self,
        batch: Batch,
        y: Any,
        out: Any,
        topk_weights: Any,
        active: Any,
        wait_ns: Any,
        staging: bool,
        async_finish: bool,
        return_recv_hook: bool,
        deadline: float | None = None,
    ) -> tuple[EventHandle | None, Hook | None]:
        """Sends ``y`` back, or what lies in the layer's own memory with ``staging``, and adds up now or by the hook. Without a ``deadline``
        it waits as long as its dispatch did. ``active`` and ``wait_ns`` as in a dispatch."""
        if y is None and not staging:
            raise Refused("x is None; pass what the experts made, or zero_copy=True")
        if getattr(y, "requires_grad", False) and torch.is_grad_enabled():
            raise Refused(NO_GRADIENT)
        layer, call = batch.layer, batch.call
        written = {"wait_ns": wait_ns, "active": active, "active_in_place": active is not None}

        def ended(combined: Combined) -> None:
            layer.end(batch, "combined")
            if not self._on_cpu:
                return
            layer.differ(active)
            missed = layer.check(self._goes_on, call, combined.token_valid)
            if missed is not None:
                raise missed

        def both() -> None:
            ended(call.combine(y, out, topk_weights, staging=staging, deadline=deadline, **written))

        def send() -> None:
            sent = call.combine_send(y, staging=staging, deadline=deadline)
            batch.stage = "returned"
            call._ended(sent, None)

        def receive() -> None:
            ended(call.combine_receive(out, topk_weights, **written))

        def receive_aside() -> None:
            ended(call.combine_receive())

        if not layer.turn.acquire(False):
            raise Refused(BUSY)
        try:
            # A call of another thread may have ended it since the caller has looked.
            self._is_open(batch)
            if staging:
                # That of a smaller call is copied from.
                y = self._own_of(batch)
                staging = y is None
            if not return_recv_hook:
                return self._at_once(batch, "combine", both, async_finish), None
            # The hook would refuse it, when all has been sent.
            _arrays.address("out", out, "bf16", (batch.tokens, batch.shape.hidden), self._gpu, 16)
            if self._on_cpu:
                send()
            else:
                layer.launch(self._current(), send)
            return None, self._hook(batch, "combine", receive, receive_aside)
        finally:
            layer.turn.release()

    def _send_last(self, batch: Batch, x: Any, zero_copy: bool) -> None:
        """Sends back the rows of a batch that ends here, because its dispatch was not complete. The ranks that were not missed get what
        they wait for. A late one sees that its rows came too late, and so names itself and no other."""
        layer, call = batch.layer, batch.call
        if batch.stage != "dispatched" or not layer.turn.acquire(False):
            return
        y = self._own_of(batch) if zero_copy else x
        staging = zero_copy and y is None

        def send() -> None:
            call._ended(call.combine_send(y, staging=staging), None)

        try:
            layer.launch(None if self._on_cpu else self._current(), send)
            layer.end(batch, "left")
        except (Error, TypeError) as error:
            layer._log.debug("the last rows of batch %s are not sent back: %s", batch.number, error)
        finally:
            layer.turn.release()

    def _hook(self, batch: Batch, kind: str, receive: Callable[[], None], aside: Callable[[], None]) -> Hook:
        """The hook that makes the second launch of a call, in the stream that is current then."""
        bodies = (receive, aside) if self._on_cpu else (self._in_current(batch.layer, body) for body in (receive, aside))
        batch.pending = pending = Receive(batch, kind, *bodies)
        return Hook(pending)

    def _in_current(self, layer: Layer, body: Callable[[], None]) -> Callable[[], Any]:
        return lambda: layer.launch(self._current(), body)

    def _at_once(self, batch: Batch, kind: str, both: Callable[[], None], async_finish: bool) -> EventHandle | None:
        """A call without a hook: its one launch goes to the buffer's stream, between waits of both streams."""
        layer, comm = batch.layer, self._comm_stream
        layer.receive_before(batch, kind)
        if comm is None:
            both()
            return EventHandle() if async_finish else None
        current = self._current()
        comm.wait_stream(current)
        with torch.cuda.stream(comm):
            layer.launch(comm, both)
            event = EventHandle() if async_finish else None
        if not async_finish:
            current.wait_stream(comm)
        return event

    def _current(self) -> Any:
        return torch.cuda.current_stream(self._device)

    def _batch(self, handle: tuple[Any, ...]) -> Batch:
        batch = self._batch_of(handle)
        self._is_open(batch)
        return batch

    def _batch_of(self, handle: tuple[Any, ...]) -> Batch:
        return self._own_handle(handle).batch

    def _own_handle(self, handle: tuple[Any, ...]) -> Handle:
        """The handle that a dispatch of this buffer, or a compiled one, has made."""
        found = self._kept.of(handle)
        if not isinstance(found, Handle):
            raise Refused(f"handle is a {type(found).__name__}; pass what {self._dispatches_by} has returned, as it is")
        if not self._place.holds(found.batch.layer):
            raise Refused("handle is of a buffer of another process group; combine with the buffer that has dispatched")
        return found

    def _to_combine(self, handle: Any, topk_idx: Any, active: Any, deadline: float) -> Batch:
        """The batch of ``handle``. If it was combined before, that is a new one whose rows lie in the same places: all ranks combine it
        again, so all of them dispatch its choices again, with tokens that nobody reads."""
        own = self._own_handle(handle)
        batch = own.batch
        if batch.stage != "combined":
            self._is_open(batch)
            return batch
        if not self._on_cpu and torch.cuda.is_current_stream_capturing():
            raise Refused(
                f"batch {batch.number} has been combined already; another combine of it compares what the ranks dispatch now with what "
                "they did before, which a capture cannot: dispatch again"
            )
        shape = batch.shape
        x = torch.zeros((batch.tokens, shape.hidden), dtype=torch.bfloat16, device=self._device)
        _arrays.integers("topk_idx", topk_idx, (batch.tokens, shape.top_k), self._gpu)
        again = self._dispatch(self._place.served(active, *shape), x, topk_idx, active, None, None, deadline, False, False)[1]
        if not torch.equal(again[1], own[1]):
            again.batch.layer.end(again.batch, "left")
            raise MoeError(
                f"batch {batch.number} cannot be combined once more: the ranks do not dispatch the rows that they did, so these have other "
                "places. Pass the same topk_idx and mask at all ranks, or dispatch again"
            )
        again.batch.own = batch.own
        own.batch = again.batch
        return own.batch

    @staticmethod
    def _is_open(batch: Batch) -> None:
        """Refuses what cannot be combined: it has not been received, or is over."""
        if batch.pending is not None:
            raise Refused(f"the hook of {batch.pending.what()} has not been called; call it first")
        if batch.stage == "combined":
            raise Refused(f"batch {batch.number} has been combined already")
        if batch.stage == "left":
            raise Refused(
                f"batch {batch.number} is over: a later one was combined before it, or two later dispatches have taken its place; "
                "combine batches in their order"
            )

    def _check_choices(self, batch: Batch, topk_idx: Any) -> None:
        """The choices have the form of those of dispatch. On the CPU, where it costs no sync: they are the same."""
        chosen = batch.topk_idx
        if topk_idx is chosen:
            return
        _arrays.integers("topk_idx", topk_idx, (batch.tokens, batch.shape.top_k), self._gpu)
        if chosen is None:
            # A call of another thread has ended the batch just now.
            self._is_open(batch)
        if self._on_cpu and not torch.equal(topk_idx, chosen):
            raise Refused(f"topk_idx is not that of the dispatch of batch {batch.number}; combine follows the choices of dispatch")

    @staticmethod
    def _check_tokens(x: Any, topk_idx: Any) -> tuple[int, int]:
        """``x`` are tokens, and each has choices: returns how long a token is, and how many choices it has."""
        # The shape of a tensor is made anew each time that it is asked for.
        try:
            (tokens, hidden), (rows, top_k) = x.shape, topk_idx.shape
        except (AttributeError, TypeError, ValueError):
            name, columns = ("topk_idx", "choices") if len(getattr(topk_idx, "shape", ())) != 2 else ("x", "hidden")
            raise Refused(f"{name} must be a tensor [tokens, {columns}]") from None
        if tokens != rows:
            raise Refused(f"topk_idx has {rows} rows, and x has {tokens}; each token has one of both")
        if x.requires_grad and torch.is_grad_enabled():
            raise Refused(NO_GRADIENT)
        return hidden, top_k

    def abandon(self, handle: tuple[Any, ...]) -> None:
        """Ends the batch of ``handle``, which gets no combine; all ranks do the same. Engines do not know this name. Without the call, a
        batch ends when two later dispatches have taken its place, and a change of members waits for that."""
        batch = self._batch(handle)
        if batch.stage != "dispatched":
            raise Refused(f"the combine of batch {batch.number} has begun; a batch is abandoned between its dispatch and its combine")
        layer = batch.layer
        if not layer.turn.acquire(False):
            raise Refused(BUSY)
        try:
            self._is_open(batch)
            layer.launch(None if self._on_cpu else self._current(), batch.call.abandon)
            layer.end(batch, "left")
        finally:
            layer.turn.release()

    def _next_combine_buffer(self, handle: tuple[Any, ...]) -> Any:
        batch = self._batch_of(handle)
        if batch.stage == "combined":
            # Another combine of it sends from here.
            return self._own_memory(batch)
        self._is_open(batch)
        if not self._on_cpu and torch.cuda.is_current_stream_capturing():
            raise Refused("which of two memories combine sends from is known when dispatch has run, so not inside a capture")
        own = self._own_of(batch)
        if own is not None:
            return own
        if not self._on_cpu:
            batch.layer.wait()
        staging = batch.call.staging()
        # None: an HCA still reads the layer's own memory for a rank that is late or gone.
        return self._own_memory(batch) if staging is None else staging

    def _own_of(self, batch: Batch) -> Any:
        """The memory from which combine of ``batch`` sends with ``zero_copy``, if the layer was made for more tokens. None otherwise: the
        layer's own memory has the shape of its largest calls."""
        if batch.shape.max_tokens != batch.layer.shape.max_tokens:
            return self._own_memory(batch)
        return batch.own

    def _own_memory(self, batch: Batch) -> Any:
        """Memory of ``batch`` that its combine may send from."""
        if batch.own is None:
            shape = (batch.layer.moe.room, self._ranks * batch.shape.max_tokens, batch.shape.hidden)
            batch.own = torch.zeros(shape, dtype=torch.bfloat16, device=self._device)
        return batch.own
