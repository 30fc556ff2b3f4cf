"""Host engines: a program on the CPU moves memory to and from peers, and learns what became of it."""

from __future__ import annotations

import atexit
import ctypes
import logging
import math
import weakref
from collections.abc import Iterable, Sequence
from enum import Enum
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias

from . import _arrays, _native
from ._native import Prepared, Transfer
from .errors import Refused, TimeoutError

__all__ = ["Closed", "Engine", "Operation", "Peer", "Prepared", "Region", "RemoteRegion", "State", "TransferReport"]

#: Settings by the name of their argument, each with its variable; those that Engine names itself are not among them.
SETTINGS = {field: variable for field, variable in _native.engine_settings().items() if field not in {"device", "connect_timeout"}}

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
    """Registered memory of an engine."""

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
    #: The peer has not said that its QPs are reset, so something may land there until it does. Memory of this side is quiet.
    remote_unknown: bool
    #: The operation that failed first.
    operation: int | None
    #: The QP; None where no QP was left.
    qp: int | None
    #: ``syndrome`` of the CQE; None of what was never posted.
    syndrome: int | None
    #: The cause in words.
    cause: str | None


class Engine:
    """An engine on one HCA: regions of memory, and peers.

    :param name: by which peers know it.
    :param device: RDMA device, or ``auto``.
    :param insecure: :meth:`listen` takes addresses that are not loopback, though who connects is asked for no key.
    :param drain: longest wait for running transfers when a connection or the engine is closed, seconds. Default 5.
    :param connect_timeout: longest wait for the other end in each step of a connection, seconds. Default 5.
    :param settings: any other variable of docs/configuration.md that an engine reads, by the name of its field, such as ``qps=8`` or
        ``mtu=1024``. What is not given comes from the environment.

    All methods may be called from any thread, and release the GIL where they wait. An engine is a context manager, which closes it.
    """

    def __init__(
        self,
        name: str,
        *,
        device: str | None = None,
        insecure: bool = False,
        drain: float | None = None,
        connect_timeout: float | None = None,
        **settings: Any,
    ) -> None:
        given: dict[str, str] = {}
        if device is not None:
            given["WARPVERBS_DEVICE"] = device
        if connect_timeout is not None:
            if not connect_timeout > 0:
                raise ValueError(f"connect_timeout is {connect_timeout} seconds; it must be positive")
            given["WARPVERBS_ENGINE_CONNECT_TIMEOUT_MS"] = str(max(1, round(connect_timeout * 1000)))
        for field, value in settings.items():
            if field not in SETTINGS:
                raise TypeError(f"Engine takes no argument '{field}'; settings are {', '.join(sorted(SETTINGS))}")
            given[SETTINGS[field]] = str(value)
        self.name = name
        self._native = _native.Engine(name, given, insecure, drain)
        _open.add(self)

    @property
    def device(self) -> str:
        """The RDMA device that it is on."""
        return self._native.device

    @property
    def in_use(self) -> int:
        """Transfers that were submitted and not released."""
        return self._native.in_use

    def register(self, memory: Memory, bytes: int | None = None) -> Region:
        """Registers memory for transfers of this engine, and of those peers that get its descriptor.

        ``memory`` is an object with the buffer protocol, a dense tensor on the CPU (of torch, or with ``__array_interface__`` or
        ``__dlpack__``), or an address with its ``bytes``. An object is held until its region and those inside it are gone; memory
        that is given by its address must stay so long.
        """
        address, length, owner = _whole("memory", memory, bytes)
        return Region(self._native.register(address, length, owner), address, length)

    def deregister(self, region: Region) -> None:
        """Takes a region away, from peers too. Refused while transfers of this engine use it."""
        self._native.deregister(region.number)

    def descriptor(self, region: Region) -> bytes:
        """What a peer needs to know of a region: bytes that the program carries there."""
        return self._native.descriptor(region.number)

    def listen(self, address: str = "127.0.0.1:0") -> str:
        """Lets other engines connect at ``address``, where port 0 is any. Where that is."""
        return self._native.listen(address)

    def connect(self, at: str) -> Peer:
        """Connects to the engine that listens at ``host:port``."""
        return Peer(self._native.connect(at))

    def accept(self, timeout: float | None = None) -> Peer:
        """The next peer that has connected to this engine; :class:`TimeoutError` behind ``timeout`` seconds."""
        peer = self._native.accept(timeout)
        if peer is None:
            raise TimeoutError(f"no engine has connected for {timeout} seconds")
        return Peer(peer)

    def poll(self, transfer: Transfer) -> State:
        """What became of a transfer. Any number of polls say the same, until it is released."""
        return State(self._native.poll(transfer))

    def poll_many(self, transfers: Iterable[Transfer]) -> list[State]:
        """The same of many, in their order. It releases none."""
        return [State(state) for state in self._native.poll_many(list(transfers))]

    def wait(self, transfer: Transfer, timeout: float | None = None) -> State:
        """Waits until a transfer is concluded: then the HCA has nothing more of it, and its memory may be used again, whatever the
        state. :class:`TimeoutError` if it still runs behind ``timeout`` seconds."""
        self.wait_any([transfer], timeout)
        return self.poll(transfer)

    def wait_any(self, transfers: Sequence[Transfer], timeout: float | None = None) -> int:
        """Waits until one of these is concluded or unknown: its place among them."""
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

    Transfers name memory of this side by an address, or by an object that has it: then the whole of it, unless ``bytes`` says less.
    It lies in a region of the engine, and memory of the peer in one that was imported.
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
    def open(self) -> bool:
        """Whether it takes transfers."""
        return self._native.open

    def import_region(self, descriptor: bytes) -> RemoteRegion:
        """Takes a region of the peer to be written and read. The same once more does no harm."""
        return RemoteRegion(*self._native.import_region(descriptor))

    def write(self, local: Memory, remote: int, bytes: int | None = None, *, deadline: float | None = None, wait: float = 0) -> Transfer:
        """Begins a transfer that writes ``local``, here, to the address ``remote``, at the peer."""
        return self.writev([(local, remote, bytes)], deadline=deadline, wait=wait)

    def read(self, local: Memory, remote: int, bytes: int | None = None, *, deadline: float | None = None, wait: float = 0) -> Transfer:
        """Begins a transfer that reads from the address ``remote``, at the peer, to ``local``, here."""
        return self.readv([(local, remote, bytes)], deadline=deadline, wait=wait)

    def writev(self, parts: Iterable[tuple[Any, ...]], *, deadline: float | None = None, wait: float = 0) -> Transfer:
        """The same of many, each ``(local, remote)`` or ``(local, remote, bytes)``, in one transfer, in no order among each other."""
        return self._native.submit([(False, *_part(*part)) for part in parts], deadline, wait)

    def readv(self, parts: Iterable[tuple[Any, ...]], *, deadline: float | None = None, wait: float = 0) -> Transfer:
        """As :meth:`writev`."""
        return self._native.submit([(True, *_part(*part)) for part in parts], deadline, wait)

    def submit(
        self, operations: Iterable[Operation | tuple[str, Any, int, int]], *, deadline: float | None = None, wait: float = 0
    ) -> Transfer:
        """Begins a transfer of writes and reads, 1 to 65,536, all or nothing.

        ``deadline``: nothing more is handed out when so many seconds are over. ``wait``: so many seconds are waited for a slot where
        none is free; then, and at once for 0, it raises :class:`WouldBlock`, and nothing was done.
        """
        return self._native.submit(_given(operations), deadline, wait)

    def prepare(self, operations: Iterable[Operation | tuple[str, Any, int, int]]) -> Prepared:
        """Plans a transfer of writes and reads once, to be begun many times by :meth:`post`. Nothing is moved. Like every transfer it
        names memory by its address: objects are held by their regions."""
        return self._native.prepare(_given(operations))

    def post(self, prepared: Prepared, *, deadline: float | None = None, wait: float = 0) -> Transfer:
        """Begins a transfer that was prepared for this peer, over this connection or an earlier one to the same life of it. It may be
        posted again while earlier posts run."""
        return self._native.post(prepared, deadline, wait)

    def close(self) -> int:
        """Waits for its transfers (``drain`` of the engine), and ends the connection. How many were cut off."""
        return self._native.close()

    def __repr__(self) -> str:
        return f"<warpverbs.Peer {self.name!r}>"


def _given(operations: Iterable[Operation | tuple[str, Any, int, int]]) -> list[tuple[bool, int, int, int]]:
    given = []
    for kind, local, remote, bytes in operations:
        if kind not in ("write", "read"):
            raise Refused(f"kind is {kind!r}; it must be 'write' or 'read'")
        given.append((kind == "read", *_part(local, remote, bytes)))
    return given


def _part(local: Memory, remote: int, bytes: int | None = None) -> tuple[int, int, int]:
    """Addresses and length of an operation."""
    if isinstance(local, int):
        if bytes is None:
            raise Refused("local is an address; it needs its bytes")
        return local, remote, bytes
    address, length, _ = _whole("local", local, None)
    if bytes is None:
        return address, remote, length
    if bytes > length:
        raise Refused(f"bytes is {bytes}; local has {length}")
    return address, remote, bytes


def _whole(name: str, memory: Memory, bytes: int | None) -> tuple[int, int, object]:
    """Address and length of memory, and what keeps it."""
    if isinstance(memory, int):
        if bytes is None:
            raise Refused(f"{name} is an address; it needs its bytes")
        return memory, bytes, None
    if bytes is not None:
        raise Refused(f"bytes is {bytes}; it belongs to an address, and {name} is a {type(memory).__name__}")
    try:
        view = memoryview(memory)
    except (TypeError, ValueError, BufferError):
        return _tensor(name, memory)
    if view.readonly:
        raise Refused(f"{name} is read-only; HCAs write to registered memory")
    if not view.c_contiguous:
        raise Refused(f"{name} is not contiguous")
    if view.nbytes == 0:
        raise Refused(f"{name} has 0 bytes; it must have at least one")
    # It holds the buffer, which cannot move while it lives.
    held = (ctypes.c_char * view.nbytes).from_buffer(view)
    return ctypes.addressof(held), view.nbytes, held


def _tensor(name: str, memory: Memory) -> tuple[int, int, object]:
    found = _arrays.look(name, memory)
    if not found.device.startswith("cpu"):
        raise Refused(f"{name} is on {found.device}; it must be on the CPU")
    if not found.contiguous:
        raise Refused(f"{name} is not contiguous; pass {name}.contiguous()")
    if found.dtype not in WIDTHS:
        raise Refused(f"{name} holds {found.dtype}; it must hold one of {', '.join(WIDTHS)}")
    length = math.prod(found.shape) * WIDTHS[found.dtype]
    if length == 0:
        raise Refused(f"{name} is {list(found.shape)} of {found.dtype}; it must have at least one byte")
    return found.address, length, memory
