"""Host engines: a program on the CPU moves memory to and from peers, and learns what became of it."""

from __future__ import annotations

import atexit
import builtins
import ctypes
import logging
import math
import weakref
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias, overload

from . import _arrays, _native
from ._native import Prepared, Transfer
from ._numbers import check_whole
from .errors import Refused, TimeoutError

__all__ = [
    "Closed",
    "Counter",
    "Engine",
    "Notice",
    "Operation",
    "Peer",
    "Prepared",
    "Rail",
    "Region",
    "RemoteRegion",
    "SharedMemory",
    "SliceCounts",
    "State",
    "Statistics",
    "TransferReport",
]

#: Settings by the name of their argument, each with its variable; those that Engine names itself are not among them.
SETTINGS = {
    field: variable
    for field, variable in _native.engine_settings().items()
    if field not in {"device", "provider", "connect_timeout", "deadline"}
}

#: What a peer may do with a grant, with the number that stands for it.
#: The last address, and most bytes of anything.
ADDRESSES = (1 << 64) - 1
RIGHTS = {"read": 1, "write": 2, "both": 3}

#: Bytes of an element of each type that a tensor may hold.
WIDTHS = {**_arrays.SIZES, "bool": 1, "f16": 2, "f64": 8, "u32": 4, "u64": 8}

log = logging.getLogger("warpverbs")
_open: weakref.WeakSet[Engine] = weakref.WeakSet()

#: Memory: an address, or an object that has it.
Memory: TypeAlias = Any


class State(Enum):
    """What became of a transfer."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    #: It was released.
    UNKNOWN = "unknown"


class Region(NamedTuple):
    """Registered memory of an engine. Another engine refuses it."""

    #: It says the engine, too. No other region of this process ever has the same, and none has 0.
    number: int
    #: First byte.
    address: int
    #: Its length.
    bytes: int


class RemoteRegion(NamedTuple):
    """Memory of a peer, as its descriptor says. ``region.address + offset`` is what operations name."""

    address: int
    bytes: int


class Operation(NamedTuple):
    """One operation of :meth:`Peer.submit`."""

    #: ``"write"``, from here to the peer, or ``"read"``.
    kind: str
    local: int
    remote: int
    bytes: int


class Closed(NamedTuple):
    """What was left when an engine was closed."""

    #: Transfers that still ran when the time for them was over, and so have failed.
    cut_off: int
    done: int
    failed: int
    cancelled: int
    timed_out: int


class TransferReport(NamedTuple):
    """What became of a transfer, operation by operation."""

    state: State
    #: ``"done"``, ``"failed"`` or ``"not_posted"``.
    operations: tuple[str, ...]
    #: Bytes that are known to have landed.
    bytes_landed: int
    #: The peer has not said that its QPs are reset, so bytes may land in its memory until it does. Memory of this side is quiet.
    remote_unknown: bool
    #: The operation that failed first.
    operation: int | None
    #: The QP; None where no QP was left.
    qp: int | None
    #: The rail by which that was posted, by its place in :attr:`Engine.rails`; None as above, and of a copy within the machine.
    rail: int | None
    #: The RDMA device of that rail.
    device: str | None
    #: ``syndrome`` of the CQE; None of what was never posted.
    syndrome: int | None
    #: The cause in words.
    cause: str | None


class SliceCounts(NamedTuple):
    """What workers have done with slices."""

    #: Slices that were given to a QP or to a copy, those that were posted again and those that the QP refused among them.
    posted: int
    #: Bytes of those that the QP or the copy has taken.
    posted_bytes: int
    #: Posted slices whose bytes have landed.
    completed: int
    #: Posted slices that have failed. Each may have been posted again.
    failed: int
    #: How long workers have had slices to post and no room on any of their QPs, seconds, summed over workers.
    stalled: float


class Statistics(NamedTuple):
    """The counts of an engine since its start.

    One snapshot is consistent: transfers that have ended were submitted. ``slices.completed + slices.failed`` is at most
    ``slices.posted``, and ``slices.posted + not_posted`` at most ``queued + retried``. Both are equal once all transfers are concluded.
    """

    #: Transfers that the engine has taken.
    submitted: int
    #: Transfers that it has refused, since all slots were taken. A wait for a slot counts each of its tries.
    refused: int
    done: int
    failed: int
    cancelled: int
    timed_out: int
    #: Bytes of the transfers that are done.
    done_bytes: int
    #: Slices of the submitted transfers.
    queued: int
    #: How often a slice was put back to be posted again, since it had failed.
    retried: int
    #: Slices that were queued or put back and never posted, since their transfers had ended before.
    not_posted: int
    #: By NICs and by copies.
    slices: SliceCounts


class Rail(NamedTuple):
    """A port of an RDMA device, and what an engine has done by it."""

    device: str
    #: From 1 on.
    port: int
    #: ``works``, ``rests`` or ``probes``. A rail rests when its QPs have failed often: none is connected again while another rail carries
    #: slices. A rail probes after a rest: the engine connects one QP again, and the others if that one does not fail.
    state: str
    #: How often it was given a rest.
    rests: int
    slices: SliceCounts


class Stalled(NamedTuple):
    """A rail by which slices are in flight to a peer, and whether some of them complete."""

    #: Its number in :attr:`Engine.rails`; ``None``: copies within the machine.
    rail: int | None
    #: Its RDMA device; ``None`` as above.
    device: str | None
    #: Slices that were posted and have not completed.
    in_flight: int
    #: How many seconds none of them has completed.
    since_completion: float

    def __str__(self) -> str:
        by = self.device or "this machine"
        return f"{self.in_flight} slices by {by}, none completed for {self.since_completion:.3f} s"


class SharedMemory:
    """Host memory of zeros that engines of other processes of this machine and user may map: they copy at the speed of memory.

    It is memory wherever an engine takes some, and an array of bytes for numpy. It stays as long as this object, a view or array of it,
    or a region of it does.
    """

    def __init__(self, bytes: int) -> None:
        self._native = _native.SharedMemory(bytes)

    @property
    def address(self) -> int:
        """Where its first byte lies."""
        return self._native.address

    @property
    def bytes(self) -> int:
        """Its length."""
        return self._native.bytes

    def view(self) -> memoryview:
        """Its bytes."""
        array = (ctypes.c_char * self.bytes).from_address(self.address)
        # The view holds the array, and the array the memory.
        array.memory = self  # type: ignore[attr-defined]
        return memoryview(array).cast("B")

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"data": (self.address, False), "typestr": "|u1", "shape": (self.bytes,), "version": 3}

    def __repr__(self) -> str:
        return f"<warpverbs.SharedMemory {self.bytes} bytes>"


class Notice(NamedTuple):
    """A message of a peer's program."""

    #: The name of the peer.
    peer: str
    #: The life of it that has sent this.
    incarnation: int
    bytes: bytes
    #: What became of the transfer that it was sent with; None of one that was sent alone.
    state: State | None
    #: The operation of that transfer that failed first.
    operation: int | None
    #: Why, in words.
    cause: str | None


class Counter:
    """A counter of an engine: how many WRITEs of peers that count at it have landed. It is made by :meth:`Engine.counter`."""

    def __init__(self, native: _native.Engine, id: int) -> None:
        self._native = native
        #: Its number.
        self.id = id

    @property
    def value(self) -> int:
        """The number of writes that have counted since it was set to 0. All bytes of these writes are in memory. One that the peer
        reports as failed may have counted too, by the time of the report; none does later."""
        return self._native.counter_read(self.id)

    @property
    def word(self) -> int:
        """The address of its 8 bytes in this process, for kernels that wait for it, once the memory is registered with the driver. It is
        valid until the engine is closed."""
        return self._native.counter_word(self.id)

    def wait(self, count: int, timeout: float | None = None) -> int:
        """Waits until it says ``count`` or more, and returns what it says; :class:`TimeoutError` after ``timeout`` seconds."""
        found = self._native.counter_wait(self.id, count, timeout)
        if found is None:
            raise TimeoutError(f"counter {self.id} says {self.value}, not {count}, after {timeout} seconds")
        return found

    def reset(self) -> int:
        """Sets it to 0, and returns what it said. A program that uses a counter again and again need not: it waits for one sum after the
        other."""
        return self._native.counter_reset(self.id)

    def mirror(self, word: Memory, bytes: int | None = None) -> Mirror:
        """Copies the counter into a word of the program, now and until the mirror or the engine is closed. Kernels wait for the word by
        loads of system scope. ``word`` is memory of 8 aligned bytes as :meth:`Engine.register` takes it, which this process and the
        kernel reach. When a kernel has seen a value, the bytes of as many writes have landed."""
        address, length, owner, on = _placed("word", word, bytes, None)
        if on is not None:
            raise Refused(f"word is on {_device(on)}; it must be memory that this process has mapped")
        if length != 8:
            raise Refused(f"word has {length} bytes; it must be of 8")
        return Mirror(self._native.counter_mirror(self.id, address, owner))

    def __repr__(self) -> str:
        return f"<warpverbs.Counter {self.id}>"


class Mirror:
    """A word that says what a counter says. It is made by :meth:`Counter.mirror`, and a context manager."""

    def __init__(self, native: _native.Mirror) -> None:
        self._native = native

    def close(self) -> None:
        """Ends it: after that the word is not written. Once more does nothing."""
        self._native.close()

    def __enter__(self) -> Mirror:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Engine:
    """An engine on one HCA or on several: regions of memory, and peers.

    :param name: by which peers know it.
    :param device: RDMA device, several with commas between them, or ``auto``, which takes as many as the setting ``rails`` says.
    :param provider: what drives the NICs: ``mlx5``, ``verbs``, ``ofi``, ``ofi:NAME`` with the name of a provider of libfabric, or
        ``auto``, the first of these that can drive them.
    :param insecure: :meth:`listen` takes addresses that are not loopback also without a key (``key_file``).
    :param drain: longest wait for running transfers when a connection or the engine is closed, seconds. Default 5.
    :param connect_timeout: longest wait for the other end in each step of a connection, seconds. Default 5.
    :param deadline: deadline of transfers that name none, seconds. Default none.
    :param settings: any other variable of docs/configuration.md that an engine reads, by the name of its field: ``qps=8``, for example.
        Values that are not given come from the environment.

    All methods may be called from any thread, and release the GIL where they wait. An engine is a context manager, which closes it.
    """

    def __init__(
        self,
        name: str,
        *,
        device: str | None = None,
        provider: str | None = None,
        insecure: bool = False,
        drain: float | None = None,
        connect_timeout: float | None = None,
        deadline: float | None = None,
        **settings: Any,
    ) -> None:
        given: dict[str, str] = {}
        if device is not None:
            given["WARPVERBS_DEVICE"] = device
        if provider is not None:
            given["WARPVERBS_PROVIDER"] = provider
        for field, seconds in (("connect_timeout", connect_timeout), ("deadline", deadline)):
            if seconds is not None:
                if not seconds > 0:
                    raise ValueError(f"{field} is {seconds} seconds; it must be positive")
                given[f"WARPVERBS_ENGINE_{field.upper()}_MS"] = str(max(1, round(seconds * 1000)))
        for field, value in settings.items():
            if field not in SETTINGS:
                raise TypeError(f"Engine takes no argument '{field}'; settings are {', '.join(sorted(SETTINGS))}")
            given[SETTINGS[field]] = str(value)
        self.name = name
        self._native = _native.Engine(name, given, insecure, drain)
        _open.add(self)

    @property
    def device(self) -> str:
        """The RDMA devices that it is on, with commas between them."""
        return self._native.device

    @property
    def in_use(self) -> int:
        """Transfers that were submitted and not released."""
        return self._native.in_use

    @property
    def rails(self) -> list[Rail]:
        """Its rails, and what each has done."""
        return [Rail(**{**rail, "slices": SliceCounts(*rail["slices"])}) for rail in self._native.rails()]

    def statistics(self) -> Statistics:
        """What it has done since its start, in one consistent look. It never waits."""
        found = self._native.statistics()
        return Statistics(**{**found, "slices": SliceCounts(*found["slices"])})

    @overload
    def register(self, memory: list[Any], bytes: None = None, *, gpu: int | str | None = None) -> list[Region]: ...

    @overload
    def register(self, memory: Memory, bytes: int | None = None, *, gpu: int | str | None = None) -> Region: ...

    def register(self, memory: Memory, bytes: int | None = None, *, gpu: int | str | None = None) -> Region | list[Region]:
        """Registers memory for transfers of this engine, and of those peers that get its descriptor.

        ``memory`` is an object with the buffer protocol, a dense tensor, or an address with its ``bytes``. Tensors are those of torch, or
        objects with ``__cuda_array_interface__``, ``__array_interface__`` or ``__dlpack__``. An object is held until its region and
        those inside it are gone; memory that is given by its address must stay so long. Peers of this machine map a
        :class:`SharedMemory` that is registered whole.

        A mapping of a file (``mmap``, ``numpy.memmap``) is the caller's risk: whoever truncates the file takes its pages away. Copies by
        the processor then fail with a cause. A hardware HCA goes on with pages that no file has. A driver that copies for a GPU, and the
        program's own access, end the process with SIGBUS. A :class:`SharedMemory` has none of this.

        Memory of a GPU is registered by its DMA-BUF on each NIC, else by its address. The NIC moves it, or a GPU copies it to peers
        of this machine. ``gpu`` is the number of the CUDA device that has ``memory``: of an address, or of a tensor that does not say its
        device. ``"simt"`` stands for a GPU where there is none.

        A list of objects and of pairs ``(address, bytes)`` is registered whole or not at all: the result is a list of regions, and an
        error names the element. Those inside a region, or inside another of the list, share its registration.
        """
        if isinstance(memory, list):
            if bytes is not None:
                raise Refused(f"bytes is {bytes}; it belongs to an address, and memory is a list")
            return self._register_list(memory, gpu)
        if isinstance(memory, SharedMemory) and bytes is None:
            _on_host("memory", gpu)
            return Region(self._native.register_shared(memory._native), memory.address, memory.bytes)
        address, length, owner, on = _placed("memory", memory, bytes, gpu)
        if on is None:
            return Region(self._native.register(address, length, owner), address, length)
        return Region(self._native.register_gpu(on, address, length, owner), address, length)

    def _register_list(self, memories: list[Any], gpu: int | str | None) -> list[Region]:
        given: list[tuple[int, int, object, str | None]] = []
        for nth, memory in enumerate(memories):
            if isinstance(memory, SharedMemory):
                _on_host(f"memory[{nth}]", gpu)
                given.append((memory.address, memory.bytes, memory._native, None))
                continue
            pair = memory if isinstance(memory, tuple) else (memory, None)
            if len(pair) != 2:
                raise Refused(f"memory[{nth}] is a tuple of {len(pair)}; it must be an address and its bytes")
            given.append(_placed(f"memory[{nth}]", *pair, gpu))
        numbers = self._native.register_list(given)
        return [Region(number, address, length) for number, (address, length, *_) in zip(numbers, given, strict=True)]

    def deregister(self, region: Region, *, wait: float = 0) -> None:
        """Takes a region away, from peers too. Refused while transfers of this engine or grants use it, after ``wait`` seconds."""
        if wait:
            self._native.deregister_wait(region.number, wait)
        else:
            self._native.deregister(region.number)

    @property
    def grants(self) -> int:
        """Grants to peers that have not ended."""
        return self._native.grants

    def revoke(self, grant: bytes) -> None:
        """Ends a grant. It returns when the HCA has destroyed the key: what the peer begins then fails, and the memory may be used for
        something else. Once more does no harm."""
        self._native.revoke(grant)

    def descriptor(self, region: Region) -> bytes:
        """The descriptor of a region: bytes that the program carries to a peer, which needs them to reach the region."""
        return self._native.descriptor(region.number)

    def listen(self, address: str | None = None) -> str:
        """Lets other engines connect at ``address``, as ``IP:PORT``, where port 0 takes any free port, or ``unix:PATH``. The default is
        ``WARPVERBS_ENGINE_LISTEN``, else loopback. Returns the address with its port, or with its path from the root on.

        All users of the machine reach a port of loopback, and only this user a Unix socket. Its path has at most 107 bytes. A socket
        that a process has left over is replaced; one in use is not."""
        return self._native.listen(address)

    def connect(self, at: str) -> Peer:
        """Connects to the engine that listens at ``host:port`` or ``unix:PATH``."""
        return Peer(self._native.connect(at))

    def publish(self, address: str, *, store: str | None = None, run_id: str | None = None) -> None:
        """Publishes that this engine listens at ``address``, under its name, until :meth:`unpublish` or its end. ``address`` is one of
        this machine with its port, or a Unix socket, as :meth:`listen` returns it. ``store`` is ``file://DIRECTORY`` or
        ``etcd://HOST:PORT/PREFIX``, and ``run_id`` separates runs that use the same store. Their defaults are
        ``WARPVERBS_STORE`` and ``WARPVERBS_RUN_ID``.

        :class:`EngineError` if another engine has published the name. A process that is killed keeps its name for at most ten seconds.
        """
        self._native.publish(address, store, run_id)

    def unpublish(self) -> None:
        """Takes its name out of the stores that it was published in. Once more does no harm."""
        self._native.unpublish()

    def connect_by_name(self, name: str, *, store: str | None = None, run_id: str | None = None) -> Peer:
        """Connects to the engine that has published ``name`` in a store, as for :meth:`publish`. :class:`EngineError` if none has."""
        return Peer(self._native.connect_by_name(name, store, run_id))

    def accept(self, timeout: float | None = None) -> Peer:
        """The next peer that has connected to this engine; :class:`TimeoutError` after ``timeout`` seconds."""
        peer = self._native.accept(timeout)
        if peer is None:
            raise TimeoutError(f"no engine has connected for {timeout} seconds")
        return Peer(peer)

    def notice(self, timeout: float | None = None) -> Notice:
        """The next notice of any peer. Those of one peer come once, in the order in which it sent them. :class:`TimeoutError` after
        ``timeout`` seconds."""
        found = self._notice(timeout)
        if found is None:
            raise TimeoutError(f"no notice has come for {timeout} seconds")
        return found

    def notices(self) -> Iterator[Notice]:
        """All notices that have come. It waits for none."""
        while (found := self._notice(0)) is not None:
            yield found

    def _notice(self, timeout: float | None) -> Notice | None:
        found = self._native.notice(timeout)
        if found is None:
            return None
        state = found["state"]
        return Notice(**{**found, "state": None if state is None else State(state)})

    def counter(self, id: int) -> Counter:
        """Counter number ``id``, below 4096. It exists from the start of the engine, and all callers with the same number share it. After
        the end of a peer's life no write of that life counts any more; a later life counts on."""
        self._native.counter_read(id)
        return Counter(self._native, id)

    def poll(self, transfer: Transfer) -> State:
        """The state of a transfer. Any number of polls return the same, until it is released."""
        return State(self._native.poll(transfer))

    def poll_many(self, transfers: Iterable[Transfer]) -> list[State]:
        """The states of many transfers, in their order. It releases none."""
        return [State(state) for state in self._native.poll_many(list(transfers))]

    def wait(self, transfer: Transfer, timeout: float | None = None) -> State:
        """Waits until a transfer is concluded: then the HCA has nothing more of it, and its memory may be used again, whatever the
        state. :class:`TimeoutError` if it still runs after ``timeout`` seconds: :meth:`waits_for` says what it
        waits for, and :meth:`stalled` tells slow from dead."""
        if self._native.wait_any([transfer], timeout) is None:
            what = self.waits_for(transfer)
            why = [] if what is None else [f"it waits for {what}"]
            words = "".join(f"; {word}" for word in [*why, *self.stalled(transfer)])
            raise TimeoutError(f"nothing was concluded for {timeout} seconds{words}")
        return self.poll(transfer)

    def stalled(self, transfer: Transfer) -> list[Stalled]:
        """The rails by which slices to the peer of a transfer are in flight, and for how long nothing has completed on each. A slow rail
        completes, a dead one does not. Empty if the transfer is concluded, and while QPs are connected anew. It never waits."""
        return [Stalled(**rail) for rail in self._native.stalled(transfer)]

    def waits_for(self, transfer: Transfer) -> str | None:
        """What a transfer waits for at this moment, in words, also where nothing is in flight; nothing if it is concluded. It never
        waits."""
        return self._native.waits_for(transfer)

    def wait_any(self, transfers: Sequence[Transfer], timeout: float | None = None) -> int:
        """Waits until one of these is concluded or unknown, and returns its index."""
        if not transfers:
            raise Refused("transfers is empty; it must have at least one")
        found = self._native.wait_any(list(transfers), timeout)
        if found is None:
            raise TimeoutError(f"nothing was concluded for {timeout} seconds")
        return found

    def cancel(self, transfer: Transfer) -> None:
        """Hands nothing more out of a transfer. It is concluded when the HCA has nothing more of it: wait for that."""
        self._native.cancel(transfer)

    def report(self, transfer: Transfer) -> TransferReport:
        """What became of a transfer that is concluded and not released."""
        found = self._native.report(transfer)
        return TransferReport(**{**found, "state": State(found["state"]), "operations": tuple(found["operations"])})

    def release(self, transfer: Transfer) -> None:
        """Gives the slot of a concluded transfer back. Once more does no harm."""
        self._native.release(transfer)

    def close(self) -> Closed | None:
        """Takes nothing new, waits for what runs (``drain``), ends all connections and takes all regions away. What was left; None in
        a process that was forked from the engine's. Once more only says that again."""
        left = self._native.close()
        return None if left is None else Closed(*left)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<warpverbs.Engine {self.name!r}>"


def _close_all() -> None:
    """At the end of the interpreter: threads that wait for transfers or peers end."""
    for engine in list(_open):
        try:
            engine.close()
        except Exception as error:  # the process ends whatever happens here
            log.warning("%r could not be closed at exit: %s", engine, error)


atexit.register(_close_all)


class Peer:
    """A connection to another engine, see :meth:`Engine.connect`. It lasts until :meth:`close`, the end of either engine, or a failure.

    Transfers name memory of this side by an address or by an object. An object stands for its whole memory, unless ``bytes`` says less.
    The memory lies in a region of the engine. Memory of the peer lies in a region that was imported.
    """

    def __init__(self, native: _native.Peer) -> None:
        self._native = native

    @property
    def name(self) -> str:
        """Its name."""
        return self._native.name

    @property
    def qps(self) -> int:
        """QPs of the connection, the smaller number of both ends."""
        return self._native.qps

    @property
    def path(self) -> str:
        """How transfers go to it now: ``nic``, or by copies within this ``process`` or this ``machine``."""
        return self._native.path

    @property
    def open(self) -> bool:
        """Whether it takes transfers."""
        return self._native.open

    def import_region(self, descriptor: bytes) -> RemoteRegion:
        """Imports a region of the peer from its descriptor, so that transfers can write and read it. Importing it twice does no harm."""
        return RemoteRegion(*self._native.import_region(descriptor))

    def grant(self, memory: Memory, bytes: int | None = None, *, rights: str = "read", ttl: float | None = None) -> bytes:
        """Lets the peer ``read`` or ``write`` memory of this side, or ``both``, by a key of its own. The memory is a whole object, or
        ``bytes`` bytes at an address, inside a region. The grant ends after ``ttl`` seconds, with this connection, or by
        :meth:`Engine.revoke`. The program carries the result to the peer, for its :meth:`import_grant`."""
        if rights not in RIGHTS:
            raise Refused(f"rights are {rights!r}; they must be 'read', 'write' or 'both'")
        address, length, *_ = _placed("memory", memory, bytes, None)
        return self._native.grant(address, length, RIGHTS[rights], ttl)

    def export(self, region: Region) -> bytes:
        """Grants the whole registration behind a region, to be read and written, without a time. The result is for
        :meth:`import_grant`."""
        return self._native.export(region.number)

    def import_grant(self, grant: bytes) -> RemoteRegion:
        """Imports a grant of the peer. Importing it twice does no harm."""
        return RemoteRegion(*self._native.import_grant(grant))

    def forget(self, region: RemoteRegion) -> None:
        """Forgets memory of the peer: transfers that begin later do not reach it."""
        self._native.forget(region.address)

    def write(
        self,
        local: Memory,
        remote: int,
        bytes: int | None = None,
        *,
        deadline: float | None = None,
        wait: float = 0,
        notice: builtins.bytes | None = None,
        counter: int | None = None,
    ) -> Transfer:
        """Begins a transfer that writes ``local``, here, to the address ``remote``, at the peer."""
        return self.writev([(local, remote, bytes)], deadline=deadline, wait=wait, notice=notice, counter=counter)

    def read(
        self,
        local: Memory,
        remote: int,
        bytes: int | None = None,
        *,
        deadline: float | None = None,
        wait: float = 0,
        notice: builtins.bytes | None = None,
    ) -> Transfer:
        """Begins a transfer that reads from the address ``remote``, at the peer, to ``local``, here."""
        return self.readv([(local, remote, bytes)], deadline=deadline, wait=wait, notice=notice)

    def writev(
        self,
        parts: Iterable[tuple[Any, ...]],
        *,
        deadline: float | None = None,
        wait: float = 0,
        notice: bytes | None = None,
        counter: int | None = None,
    ) -> Transfer:
        """The same of many, each ``(local, remote)`` or ``(local, remote, bytes)``, in one transfer, in no order among each other."""
        _check_deadline(deadline)
        return self._native.submit([(False, *_part(*part)) for part in parts], deadline, wait, notice, counter)

    def readv(
        self, parts: Iterable[tuple[Any, ...]], *, deadline: float | None = None, wait: float = 0, notice: bytes | None = None
    ) -> Transfer:
        """As :meth:`writev`."""
        _check_deadline(deadline)
        return self._native.submit([(True, *_part(*part)) for part in parts], deadline, wait, notice, None)

    def submit(
        self,
        operations: Iterable[Operation | tuple[str, Any, int, int]],
        *,
        deadline: float | None = None,
        wait: float = 0,
        notice: bytes | None = None,
        counter: int | None = None,
    ) -> Transfer:
        """Begins a transfer of writes and reads, 1 to 65,536, all or nothing.

        ``deadline``: seconds after which no slice is handed out any more. ``wait``: longest wait for a free slot, and for room for the
        notice, seconds. After that, and at once for 0, it raises :class:`WouldBlock`, and nothing was done. ``notice``: bytes for the
        peer's program. It gets them after the last byte of the transfer, or with the state of a transfer that is not done. ``counter``:
        each operation, a write, counts once at this counter of the peer, after its last byte. The operation is one WRITE of the HCA. It
        is posted only once, because a WRITE that failed may have counted.
        """
        _check_deadline(deadline)
        return self._native.submit(_given(operations), deadline, wait, notice, counter)

    def prepare(self, operations: Iterable[Operation | tuple[str, Any, int, int]], *, counting: bool = False) -> Prepared:
        """Plans a transfer of writes and reads once, to be begun many times by :meth:`post`. Moves no byte. Like every transfer it names
        memory by its address: objects are held by their regions. ``counting``: for writes that may be posted with ``counter``."""
        return self._native.prepare(_given(operations), counting)

    def post(
        self,
        prepared: Prepared,
        *,
        deadline: float | None = None,
        wait: float = 0,
        notice: bytes | None = None,
        counter: int | None = None,
    ) -> Transfer:
        """Begins a transfer that was prepared for this peer, over this connection or an earlier one to the same life of the peer. It may
        be posted again while earlier posts run."""
        _check_deadline(deadline)
        return self._native.post(prepared, deadline, wait, notice, counter)

    def notify(self, bytes: builtins.bytes, *, wait: float = 0) -> None:
        """Sends a notice of up to 65,536 bytes to the peer's program, after those sent before. It arrives once. If this connection ends
        before, it comes over a later connection of the same two lives. ``wait``: longest wait for room in the peer's inbox, seconds.
        After that, and at once for 0, it raises :class:`WouldBlock`, and nothing was sent."""
        self._native.notify(bytes, wait)

    def close(self) -> int:
        """Waits for its transfers (``drain`` of the engine), and ends the connection. Returns the number of transfers cut off."""
        return self._native.close()

    def __repr__(self) -> str:
        return f"<warpverbs.Peer {self.name!r}>"


def _check_deadline(deadline: float | None) -> None:
    if deadline is not None and not 0 < deadline < 1e9:
        raise Refused(f"deadline is {deadline} seconds; it must be positive and below 10^9, or None")


def _given(operations: Iterable[Operation | tuple[str, Any, int, int]]) -> list[tuple[bool, int, int, int]]:
    given = []
    for kind, local, remote, bytes in operations:
        if kind not in ("write", "read"):
            raise Refused(f"kind is {kind!r}; it must be 'write' or 'read'")
        given.append((kind == "read", *_part(local, remote, bytes)))
    return given


def _part(local: Memory, remote: int, bytes: int | None = None) -> tuple[int, int, int]:
    """Addresses and length of an operation."""
    check_whole("remote", remote, 0, ADDRESSES)
    if isinstance(local, int):
        if bytes is None:
            raise Refused("local is an address; it needs its bytes")
        check_whole("local", local, 0, ADDRESSES)
        check_whole("bytes", bytes, 0, ADDRESSES)
        return local, remote, bytes
    address, length, *_ = _placed("local", local, None, None)
    if bytes is None:
        return address, remote, length
    check_whole("bytes", bytes, 0, ADDRESSES)
    if bytes > length:
        raise Refused(f"bytes is {bytes}; local has {length}")
    return address, remote, bytes


def _on_host(name: str, gpu: int | str | None) -> None:
    if gpu is not None:
        raise Refused(f"gpu is {gpu!r}; it must be None, since {name} is memory of the host")


def _device(gpu: str) -> str:
    return f"cuda:{gpu}" if gpu.isdecimal() else gpu


def _placed(name: str, memory: Memory, bytes: int | None, gpu: int | str | None) -> tuple[int, int, object, str | None]:
    """Address and length of memory, what keeps it, and its GPU."""
    if isinstance(memory, int):
        if bytes is None:
            raise Refused(f"{name} is an address; it needs its bytes")
        check_whole(name, memory, 0, ADDRESSES)
        check_whole("bytes", bytes, 0, ADDRESSES)
        return memory, bytes, None, None if gpu is None else str(gpu)
    if bytes is not None:
        raise Refused(f"bytes is {bytes}; it belongs to an address, and {name} is a {type(memory).__name__}")
    try:
        view = memoryview(memory)
    except (TypeError, ValueError, BufferError):
        return _tensor(name, memory, gpu)
    _on_host(name, gpu)
    if view.readonly:
        raise Refused(f"{name} is read-only; HCAs write to registered memory")
    if not view.c_contiguous:
        raise Refused(f"{name} is not contiguous")
    if view.nbytes == 0:
        raise Refused(f"{name} has 0 bytes; it must have at least one")
    # It holds the buffer, which cannot move while it lives.
    held = (ctypes.c_char * view.nbytes).from_buffer(view)
    return ctypes.addressof(held), view.nbytes, held, None


def _gpu_of(name: str, memory: Memory, device: str, gpu: int | str | None) -> str | None:
    """The GPU of a tensor: as it says, or as the caller does."""
    kind, _, number = device.partition(":")
    if kind == "cpu":
        _on_host(name, gpu)
        return None
    if kind != "cuda":
        raise Refused(f"{name} is on {device}; it must be on the CPU or on a CUDA GPU")
    if not number and hasattr(memory, "__dlpack_device__"):
        number = str(memory.__dlpack_device__()[1])
    if gpu is None:
        return number or "auto"
    if number and str(gpu) != number:
        raise Refused(f"gpu is {gpu!r}; {name} is on cuda:{number}")
    return str(gpu)


def _tensor(name: str, memory: Memory, gpu: int | str | None) -> tuple[int, int, object, str | None]:
    found = _arrays.look(name, memory)
    on = _gpu_of(name, memory, found.device, gpu)
    if not found.contiguous:
        raise Refused(f"{name} is not contiguous; pass {name}.contiguous()")
    if found.dtype not in WIDTHS:
        raise Refused(f"{name} holds {found.dtype}; it must hold one of {', '.join(WIDTHS)}")
    length = math.prod(found.shape) * WIDTHS[found.dtype]
    if length == 0:
        raise Refused(f"{name} is {list(found.shape)} of {found.dtype}; it must have at least one byte")
    return found.address, length, memory, on
