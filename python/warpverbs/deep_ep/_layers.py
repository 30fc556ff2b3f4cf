"""What stands behind buffers: the teams of a process group, their layers, and the calls of a layer that are open."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch

from .. import _native
from .._numbers import check_whole
from ..errors import Error, MoeError, RankLost, Refused, TeamError, TimeoutError
from ..moe import Call, CallShape, Moe, Received
from ..team import Team

__all__ = [
    "BUSY",
    "PARTS",
    "Batch",
    "Fate",
    "Handle",
    "Hook",
    "Kept",
    "Layer",
    "Layers",
    "Names",
    "Place",
    "Receive",
    "Served",
    "Shape",
    "can_be_made",
]

log = logging.getLogger("warpverbs.deep_ep")

#: Most tokens of a call at each rank, and most experts of a layer.
MOST_TOKENS, MOST_EXPERTS = 65_534, 4_096
#: Calls of a layer that may be open at once: it has two sets of slots.
OPEN = 2
#: What another thread hears meanwhile.
BUSY = (
    "a call of this buffer, or of another one of its group, is under way in another thread; make the calls of a group one after another, "
    "in the same order at all ranks, or pass each thread a process group of its own"
)
#: What a handle of a compiled dispatch has: what DeepEP's has, and the number of the batch.
PARTS = 6
#: Phases of a call by their numbers.
PHASES = ("dispatch send", "dispatch receive", "combine send", "combine receive")
#: That in which a dispatch receives.
RECEIVES = 1
#: Layers of a team: each takes three of its 16 windows.
LAYERS = 5
#: How long a call that has missed a rank waits for a store of Python's, seconds.
PATIENCE = 1.0


class Names(NamedTuple):
    """How a layer speaks of itself."""

    #: Of its log.
    log: str
    #: What the names of its calls begin with.
    calls: str
    #: How calls go on without a rank, after "make another one".
    remedy: str


class Shape(NamedTuple):
    """What a call is made of."""

    max_tokens: int
    hidden: int
    experts: int
    top_k: int
    format: str

    def arguments(self) -> list[tuple[str, str]]:
        """What all ranks give alike when they make a layer, by the names that errors have for it."""
        names = {"hidden": self.hidden, "experts": self.experts, "top-k": self.top_k, "max_tokens": self.max_tokens}
        return [(name, str(value)) for name, value in names.items()]

    def fits(self, other: Shape) -> bool:
        """Whether a layer that was made for ``other`` has room for calls of this shape. It has room for any format, because it is made
        for BF16, the largest."""
        return self[1:4] == other[1:4] and self.max_tokens <= other.max_tokens


class Fault(NamedTuple):
    """What a call has missed, as the native module has it."""

    call: int
    phase: int
    #: The ranks whose part is missing. None: this rank's own part, which was refused, or for which no send buffer was free.
    ranks: list[int]
    text: str
    #: Whether no send buffer was free.
    unbuffered: bool
    #: Whether these ranks have said that they send nothing: they live, and take part in later calls.
    answered: bool


class Fate:
    """What the buffers of a process group cannot go on without."""

    def __init__(self) -> None:
        #: The first rank that they have lost.
        self.lost: RankLost | None = None

    def again(self) -> RankLost:
        """The error of the rank that is lost, for a later call."""
        lost = self.lost
        assert lost is not None, "no rank is lost"
        return RankLost(str(lost), lost.ranks, lost.phase, lost.call)


class LayerCall(Call):
    """A call of a layer. While it waits without a mask, the end of another rank's process ends the wait, and with it all of its team."""

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer.moe)
        self._fate, self._names = layer.fate, layer.names

    def _look_at_others(self, event: _native.Event, doubt: bool) -> bool:
        try:
            return super()._look_at_others(event, doubt)
        except TeamError as error:
            if not error.ranks:
                raise
            # The team has ended the waits of its kernels: what this one has missed is known when it has ended, too.
            event.wait()
            report = self.report()
            phase = PHASES[report.phase or 0]
            self._fate.lost = RankLost(
                f"{error}, missed in {phase} of call {report.call}. This buffer cannot go on without it: make another one, "
                f"{self._names.remedy}",
                error.ranks,
                report.phase,
                report.call,
            )
            raise self._fate.lost from error


class Receive:
    """A receive phase that a hook stands for. It runs once: when its hook is called, or before a later batch is received, since a
    layer receives its batches in their order."""

    __slots__ = ("_aside", "_body", "_event", "batch", "dropped", "kind")

    def __init__(self, batch: Batch, kind: str, body: Callable[[], Any], aside: Callable[[], Any]) -> None:
        self.batch, self.kind = batch, kind
        self._body: Callable[[], Any] | None = body
        #: The same into new tensors, which nobody reads.
        self._aside = aside
        #: Behind the phase, where it has run in some stream of a GPU.
        self._event: Any = None
        #: Whether the hook is collected.
        self.dropped = False

    def run(self) -> None:
        """Runs the phase, unless it has run. One that is refused was not launched, and can run later."""
        body, self._body = self._body, None
        if body is None:
            return
        try:
            self._event = body()
        except (Refused, TypeError):
            self._body = body
            raise

    def call(self) -> None:
        """What the hook does: after it the current stream has what was received."""
        layer = self.batch.layer
        if not layer.turn.acquire(False):
            raise Refused(BUSY)
        try:
            layer.receive_before(self.batch, self.kind)
            self.run()
            if self._event is not None:
                torch.cuda.current_stream().wait_event(self._event)
            if self.batch.pending is self:
                self.batch.pending = None
        finally:
            layer.turn.release()

    def end(self) -> None:
        """Runs the phase for a program that has dropped its hook. The tensors of the caller may not be what they were, and then new ones
        take their place: the next call is not to wait for what nobody can mend."""
        try:
            self.call()
        except (Refused, TypeError) as error:
            if self._body is None:
                raise
            self.batch.layer._log.debug("%s is received aside: %s", self.what(), error)
            self._body = self._aside
            self.call()

    def what(self) -> str:
        """The call that it belongs to, in words."""
        return f"{self.batch.layer.names.calls}{self.kind} of batch {self.batch.number}"


class Batch:
    """One dispatch, until what its combine brings back has been added up."""

    __slots__ = ("call", "layer", "number", "own", "pending", "received", "shape", "stage", "tokens", "topk_idx")

    def __init__(self, served: Served, call: Call, number: int, topk_idx: Any, received: Received) -> None:
        self.layer, self.shape = served.layer, served.shape
        self.call, self.number = call, number
        #: What its dispatch writes, until it has.
        self.received: Received | None = received
        #: What combine sends from with ``zero_copy`` where that is not memory of the layer.
        self.own: Any = None
        self.topk_idx = topk_idx
        self.tokens = call._tokens
        #: ``sent``, ``dispatched``, ``returned``, ``combined`` or ``left``: a later batch has taken its place.
        self.stage = "sent"
        #: What the hook that has not been called stands for.
        self.pending: Receive | None = None

    def receive_aside(self) -> None:
        """Receives what its dispatch has sent into tensors that nobody reads."""
        self.received = self.layer.moe._received(self.call._shape, active=False)
        self.receive()

    def receive(self) -> None:
        """Receives what its dispatch has sent."""
        received, self.received = self.received, None
        assert received is not None, "nothing was sent yet"
        try:
            self.call.dispatch_receive(received)
        except (Refused, TypeError):
            self.received = received
            raise
        self.has_dispatched(received)

    def has_dispatched(self, received: Received) -> None:
        """Its dispatch is launched; on the CPU it has ended. Raises if ranks differ in their arguments: no combine follows then. What else
        is missing, its combine says, since until then the other ranks wait for what this one owes them."""
        self.received, self.stage = None, "dispatched"
        if not self.call.moe.on_cpu:
            return
        try:
            self.layer.differ(received.active if received.active_in_place else None)
        except MoeError:
            self.call.abandon()
            self.layer.end(self, "left")
            raise


class Hook:
    """What ``return_recv_hook=True`` returns: it receives what was sent, once, on the stream that is current when it is called. Where a
    tensor is refused that the caller has changed since, it may be called again."""

    __slots__ = ("_receive",)

    def __init__(self, receive: Receive) -> None:
        self._receive: Receive | None = receive

    def __repr__(self) -> str:
        state = "called" if self._receive is None else self._receive.what()
        return f"<warpverbs.deep_ep.Hook {state}>"

    def __call__(self) -> None:
        receive, self._receive = self._receive, None
        if receive is None:
            raise Refused("this hook has been called already; a hook receives once")
        try:
            receive.call()
        except (Refused, TypeError):
            self._receive = receive
            raise

    def __del__(self) -> None:
        if self._receive is not None:
            self._receive.dropped = True


class Handle(tuple[Any, ...]):
    """``(src_info, layout_range, num_max_dispatch_tokens_per_rank, hidden, num_experts)``, and the batch that it stands for."""

    batch: Batch


class Kept:
    """The handles of a buffer's compiled dispatches, until their batches are over."""

    def __init__(self) -> None:
        self._handles: dict[int, Handle] = {}
        self._next = 0

    def keep(self, handle: Handle) -> int:
        """The number by which :meth:`of` finds the handle."""
        self._handles = {number: kept for number, kept in self._handles.items() if kept.batch.stage not in ("combined", "left")}
        number, self._next = self._next, self._next + 1
        self._handles[number] = handle
        return number

    def of(self, handle: Any) -> Any:
        """The handle for which this one stands; it itself if a compiled dispatch has not returned it."""
        if isinstance(handle, Handle) or not isinstance(handle, tuple) or len(handle) != PARTS:
            return handle
        return self._handles.get(int(handle[-1]), handle)


class Layer:
    """The memory of calls of one shape, of smaller ones and of other formats, and the batches of them that are open.

    :param shape: the largest of these calls.
    """

    def __init__(self, team: Team, shape: Shape, names: Names, fate: Fate, name: str = "layer-0") -> None:
        self.shape, self.names, self.fate = shape, names, fate
        self._log = logging.getLogger(names.log)
        self.moe = Moe(
            team,
            # The same at all ranks: one that passes another shape is named, with what is different.
            name,
            hidden=shape.hidden,
            experts=shape.experts,
            top_k=shape.top_k,
            max_tokens=shape.max_tokens,
            returns="rows",
        )
        self._idle: list[Call] = [LayerCall(self) for _ in range(OPEN)]
        #: Outputs that are used again, by the handle that writes them and the shape of its call.
        self._kept: dict[tuple[Call, Served], Received] = {}
        self._open: list[Batch] = []
        self._begun = 0
        #: Held by the thread that is in a step of a call: what a layer sends is in one order at all ranks. Each step takes it by hand: a
        #: context manager that refuses cost 0.4 us of a dispatch, whose goal is 8.
        self.turn = threading.Lock()
        #: The newest fault that was looked at, and the number of faults then.
        self._seen: Fault | None = None
        self._faults = 0
        #: The number of faults when ranks were last found to give the same arguments, or not.
        self._argued = 0
        #: The thread that asks a store of Python's why a rank was missed.
        self._asking: threading.Thread | None = None
        #: The stream of the last launch, and an event after it: what a layer sends is in one order at all ranks.
        self._last: tuple[Any, Any] | None = None
        self._log.info("%r", self.moe)

    def next_call(self) -> Call:
        """The call of the next batch. With two open batches it is that of the older one, if nothing of it is under way."""
        if len(self._open) < OPEN:
            return self._idle[-1]
        oldest = self._open[0]
        if oldest.pending is not None:
            raise Refused(
                f"two batches are in flight: the hook of {oldest.pending.what()} has not been called; call it before another dispatch"
            )
        return oldest.call

    def begin(self, served: Served, topk_idx: Any, received: Received) -> Batch:
        """A new batch, of the call that :meth:`next_call` has said, which knows its number of tokens. With two open ones, the older is
        left."""
        if len(self._open) == OPEN:
            self.end(self._open[0], "left")
        batch = Batch(served, self._idle.pop(), self._begun, topk_idx, received)
        self._begun += 1
        self._open.append(batch)
        return batch

    def outputs(self, call: Call, served: Served, reuse: bool) -> Received:
        """What the dispatch of the next batch writes, which has this ``call``: new, or that of an earlier batch that is over."""
        kept = self._kept.get((call, served)) if reuse else None
        if kept is not None:
            return kept
        received = self.moe._received(served.of_call, active=False)
        if reuse:
            self._kept[call, served] = received
        return received

    def forget(self, call: Call, served: Served) -> None:
        """Those are not used again: the caller may have changed them in place."""
        self._kept.pop((call, served), None)

    def end(self, batch: Batch, stage: str) -> None:
        """``batch`` is over."""
        batch.stage = stage
        batch.pending = batch.received = batch.topk_idx = batch.own = None
        self._open.remove(batch)
        self._idle.append(batch.call)

    def cancel(self, batch: Batch) -> None:
        """``batch`` was refused before anything was launched."""
        self.end(batch, "left")
        self._begun -= 1

    def receive_before(self, batch: Batch, kind: str) -> None:
        """Receives what older batches still wait for, before `batch` does: later it could not be had any more. With ``combine``, those
        that were not sent back yet are over."""
        for older in tuple(self._open):
            if older.number >= batch.number:
                break
            if older.pending is not None and older.pending.kind == kind:
                older.pending.run()
            elif kind == "combine" and older.stage == "dispatched":
                self.end(older, "left")

    def settle(self) -> None:
        """Ends the call whose hook the program has dropped, and names it."""
        for batch in self._open:
            pending = batch.pending
            if pending is not None and pending.dropped:
                pending.end()
                raise Refused(
                    f"the hook of {pending.what()} was never called, and the program has dropped it: its results were not received then. "
                    "They are now; call every hook"
                )

    def differ(self, mask: Any) -> None:
        """Raises if phases have shown, since the last look, that ranks give arguments that differ. Ranks that are missed for this reason
        live, so they keep their places in ``mask``. Asks the store, if ranks were missed."""
        native = self.moe._native
        number = native.faults
        if number == self._argued:
            return
        self._argued = number
        found = self._difference()
        if found is None:
            return
        self._faults, self._seen = number, self._newest()
        for rank in found.ranks:
            if mask is not None:
                mask[rank] = 1
            # On a GPU a kernel may run. There the next word of the rank does it.
            if self.moe.on_cpu:
                native.trust(rank)
        raise found

    def _difference(self) -> MoeError | None:
        native = self.moe._native
        if not self.moe.team._borrowed:
            return native.difference()
        # It may not answer, because a rank holds it: the call does not wait for it as long as torch would.
        if self._asking is not None and self._asking.is_alive():
            return None
        answers: list[MoeError | None] = []

        def ask() -> None:
            try:
                answers.append(native.difference())
            except Error as error:
                self._log.debug("the store does not say why a rank was missed: %s", error)

        self._asking = threading.Thread(target=ask, name="why a rank was missed", daemon=True)
        self._asking.start()
        self._asking.join(PATIENCE)
        return answers[0] if answers else None

    def check(self, tolerant: bool, call: Call | None = None, token_valid: Any = None) -> MoeError | None:
        """What the newest phases have missed, if that is new: an error, or with ``tolerant`` a line in the log. There a call without a send
        buffer is such a line, too: the calls of all others go on, and so do later ones of this rank. A rank that is lost is the fate of
        all buffers of the group. One that has said that it sends nothing is not lost.

        :param call: the one whose combine is to begin, or with ``token_valid`` has ended. On the CPU that says which sums are whole.
        """
        # Read before the record, which is then as new or newer.
        number = self.moe._native.faults
        if number == self._faults:
            return None
        found = self._newest()
        if found is None:
            return None
        # A rank that has no tokens for the others may still serve theirs: combine says whether it does.
        only_its_own = found.answered and found.phase == RECEIVES
        if only_its_own and call is not None and token_valid is None:
            return None
        self._faults = number
        if found == self._seen:
            return None
        self._seen = found
        is_harmless = only_its_own and token_valid is not None and bool(token_valid.all())
        if is_harmless or (tolerant and (found.ranks or found.unbuffered)):
            self._log.warning("%s", found.text)
            return None
        text, which = found.text, "an earlier call"
        if call is not None:
            report = call.report()
            if report.call == found.call:
                text, which = found.text if found.ranks else report.text, "this call"
        words, of = f"{which} was not complete: {text}", (tuple(found.ranks), found.phase, found.call)
        if not found.ranks:
            return MoeError(words, *of)
        if found.answered:
            return MoeError(f"{words}. That rank lives, so later calls have it again", *of)
        self.fate.lost = RankLost(f"{words}. This buffer cannot go on without its ranks: make another one, {self.names.remedy}", *of)
        return self.fate.lost

    def _newest(self) -> Fault | None:
        found = self.moe._native.fault()
        return None if found is None else Fault(*found)

    def launch(self, stream: Any, body: Callable[..., None], *arguments: Any) -> Any:
        """Launches ``body`` with these arguments in ``stream``, torch's current one, after the layer's launch before. Returns an event
        after it; None on the CPU and while the stream is captured."""
        if stream is None:
            body(*arguments)
            return None
        captures = torch.cuda.is_current_stream_capturing()
        if self._last is not None and self._last[0] != stream and not captures:
            stream.wait_event(self._last[1])
        body(*arguments)
        if not captures:
            event = torch.cuda.Event()
            event.record(stream)
            self._last = (stream, event)
            return event
        return None

    def wait(self) -> None:
        """Waits until the GPU has run what was launched. The host reads a call's report by a stream of its own, which waits for none."""
        if self._last is not None:
            self._last[1].synchronize()


def can_be_made(team: Team, shape: Shape) -> None:
    """Refuses a layer of ``shape`` that cannot be, before any other rank hears of it."""
    hidden, experts, top_k, most = shape.hidden, shape.experts, shape.top_k, shape.max_tokens
    Moe.required_bytes(team.ranks, hidden=hidden, experts=experts, top_k=top_k, max_tokens=most, format=shape.format, returns="rows")
    if not team.on_cpu and torch.cuda.is_current_stream_capturing():
        raise Refused(
            f"the first call of the shape {shape} is inside a CUDA graph capture, where no memory can be registered; call "
            "Buffer.warm_up(..) with this shape before the capture"
        )


class Served:
    """Calls of one shape: the layer that serves them, and what it has looked up of them."""

    __slots__ = ("layer", "of_call", "shape")

    def __init__(self, layer: Layer, shape: Shape) -> None:
        self.layer, self.shape = layer, shape
        self.of_call: CallShape = layer.moe._shape_of(shape.format, shape.max_tokens)


class Layers:
    """The layers of a place, by the calls that they serve."""

    def __init__(self) -> None:
        self._served: dict[tuple[Any, ...], Served] = {}
        self.fate = Fate()

    def layer(self, shape: Shape, active: Any) -> Layer:
        """The layer that serves calls of ``shape``; the first use makes it, at all ranks together. ``active`` is the mask of the call, or
        None."""
        raise NotImplementedError

    def made(self) -> list[Layer]:
        """The layers that serve calls, each once."""
        return list({id(served.layer): served.layer for served in self._served.values()}.values())

    def served(self, active: Any, *numbers: Any) -> Served:
        """Calls of the shape with these numbers."""
        found = self._served.get(numbers)
        if found is None:
            shape = Shape(*numbers)
            check_whole("num_max_dispatch_tokens_per_rank", shape.max_tokens, 1, MOST_TOKENS)
            check_whole("num_experts", shape.experts, 1, MOST_EXPERTS)
            found = self._served[numbers] = Served(self.layer(shape, active), shape)
        return found


class Place(Layers):
    """What the buffers of a process group share: its teams, and their layers."""

    _all: ClassVar[weakref.WeakKeyDictionary[Any, Place]] = weakref.WeakKeyDictionary()
    #: Of its layers.
    names: ClassVar[Names] = Names("warpverbs.deep_ep", "low_latency_", "with enable_shrink=True if it shall")

    def __init__(self, group: Any, store: str | None, join_timeout: float | None, modes: dict[str, Any]) -> None:
        super().__init__()
        self._group = weakref.ref(group)
        self._store, self._join_timeout, self.modes = store, join_timeout, modes
        self.teams = [self._meet(())]
        self._layers: list[Layer] = []
        #: Ranks of the newest team, and how many layers it has.
        self._members, self._held = list(range(self.team.ranks)), 0
        #: Ranks that were there when living ranks were counted last, and how often that was.
        self._left, self._counts = self._members, 0
        #: Why this rank makes no layer with the others any more.
        self._left_out: RankLost | None = None
        #: Number of buffers that will be destroyed, and whether another one will not. Then only the end of the group ends the teams.
        self.users, self.stays = 0, False

    @classmethod
    def of(cls, group: Any, store: str | None, join_timeout: float | None, destroyed: bool, **modes: Any) -> Place:
        """That of ``group``, for one more buffer; ``modes`` are those of its teams."""
        try:
            place = cls._all.get(group)
        except TypeError:
            raise Refused(f"group is a {type(group).__name__}; pass a process group of torch.distributed") from None
        if place is not None:
            # A process that was forked has its parent's: refused here, in words.
            _ = place.team.generation
        if place is None or place.fate.lost is not None:
            place = cls(group, store, join_timeout, modes)
            cls._all[group] = place
        elif store is not None and store != place._store:
            raise Refused(
                f"store is {store!r}, and the buffers of this group that were made before have {place._store!r}; they share their memory, "
                "so pass the same, none, or another process group"
            )
        if destroyed:
            place.users += 1
        else:
            place.stays = True
        return place

    @property
    def team(self) -> Team:
        """The newest of its teams."""
        return self.teams[-1]

    def layer(self, shape: Shape, active: Any) -> Layer:
        """The first layer that has room for calls of ``shape``, else a new one, which all ranks make together. With a mask (``active``)
        those make it that live: ranks whose processes have ended have no part in it, nor has a masked rank that does not come."""
        for layer in self._layers:
            if shape.fits(layer.shape):
                return layer
        try:
            return self._made(shape, active)
        except MoeError as error:
            # The others have made a call of an older layer without this rank, which makes the next one with them.
            for layer in self._layers:
                if error.call is not None and layer.moe.name == error._layer and layer.moe.on_cpu:
                    layer.moe._native.skip_to(error.call)
            raise

    def _made(self, shape: Shape, active: Any) -> Layer:
        can_be_made(self.team, shape)
        if active is None:
            try:
                return self._make(shape, self._members)
            except TeamError as error:
                gone = self.team._native.ended_process()
                if gone is None:
                    raise
                self.fate.lost = RankLost(
                    f"{gone}, and without a mask all ranks make the memory for the first call of the shape {shape}. This buffer cannot go "
                    f"on without it: make another one, {self.names.remedy}",
                    getattr(gone, "ranks", ()),
                )
                raise self.fate.lost from error
        awaited = [rank for rank, on in enumerate(active.tolist()) if on and rank in self._left]
        failed: Error | None = None
        tried: list[int] = []
        while True:
            members = self._living(shape, awaited)
            if failed is not None and members == tried:
                raise failed
            try:
                return self._make(shape, members)
            except (TeamError, TimeoutError) as error:
                if isinstance(error, TeamError) and not error.ended and self.team._native.ended_process() is None:
                    # All live, and all hear why one of them could not make it. The next call of all makes it.
                    raise
                # A rank that has died meanwhile is not counted again. The team is over: a rank of it is gone.
                failed, tried, self._members = error, members, []

    def _living(self, shape: Shape, awaited: list[int]) -> list[int]:
        """The ranks that make the next layer, the same at all of them."""
        if self._left_out is not None:
            raise self._left_out
        self._want(shape)
        self._counts += 1
        try:
            # In the team that all have: a newer one may have been made by some alone.
            members = self.teams[0]._native.living(f"layer-{self._counts}", awaited)
        except MoeError:
            # Others are in a call with other arguments, and have not counted.
            self._counts -= 1
            raise
        except TeamError as error:
            if self.team.rank not in error.ranks:
                raise
            self._left_out = RankLost(
                f"{error}, and have made the memory for calls of the shape {shape}. Shapes that were used before can be used; for others "
                "make another buffer, at all ranks",
                error.ranks,
            )
            raise self._left_out from error
        gone = sorted(set(self._left) - set(members))
        if gone:
            logging.getLogger(self.names.log).warning("calls of new shapes, such as %s, leave out ranks %s, which are gone", shape, gone)
        self._left = members
        return members

    def _make(self, shape: Shape, members: list[int]) -> Layer:
        """A layer of these ranks, in the newest team if it has the same and room for another."""
        if members != self._members or self._held == LAYERS:
            self._want(shape)
            self.teams.append(self._meet(members))
            self._members, self._held = members, 0
        layer = Layer(self.team, shape, self.names, self.fate, self._next_name())
        self._held += 1
        self._layers.append(layer)
        return layer

    def _next_name(self) -> str:
        """Name of the layer that is made next, the same at all ranks."""
        return f"layer-{len(self._layers)}"

    def _want(self, shape: Shape) -> None:
        """Tells ranks that miss this one in a call that it makes a layer instead."""
        for team in self.teams:
            team._native.wants(self._next_name(), shape.arguments())

    def holds(self, layer: Layer) -> bool:
        """Whether ``layer`` is one of its own."""
        return layer in self._layers

    def _meet(self, founders: list[int] | tuple[()]) -> Team:
        given = (self._store, None, None, None, None, self._join_timeout)
        return Team._from_group(self._group(), given, founders, self.modes)

    def leave(self) -> None:
        """One buffer less; the last one, where all are destroyed, gives everything back together with the other ranks."""
        self.users -= 1
        if self.users or self.stays:
            return
        group = self._group()
        if group is not None and self._all.get(group) is self:
            del self._all[group]
        self._layers.clear()
        self._served.clear()
        for team in self.teams:
            try:
                if self.fate.lost is None:
                    team.barrier("destroy")
            except Error as error:
                log.warning("a buffer is destroyed without meeting the other ranks: %s", error)
            team.close()
