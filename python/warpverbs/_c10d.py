"""Process groups of ``torch.distributed``: their ranks, and the store in which these meet."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from .errors import Refused, TeamError

#: What this package writes into a group's store lies below this.
PREFIX = "warpverbs"


class Ranks(NamedTuple):
    """This process in a process group."""

    group: Any
    store: Any
    rank: int
    ranks: int

    def meeting(self) -> tuple[object, str]:
        """A place in the group's store that no other team uses, and its name. Each rank counts its teams, so ranks that make theirs
        in the same order meet."""
        number = self._asked(lambda: self.store.add(f"{PREFIX}/teams of rank {self.rank}", 1))
        place = _distributed().PrefixStore(f"{PREFIX}/team {number}", self.store)
        return place, self._place()

    def run_id(self, chooser: int = 0) -> str:
        """An id that the rank ``chooser`` chooses, the same at all ranks."""
        number = self._asked(lambda: self.store.add(f"{PREFIX}/runs of rank {self.rank}", 1))
        key = f"{PREFIX}/run {number}"
        if self.rank == chooser:
            self._asked(lambda: self.store.set(key, secrets.token_hex(8)))
        return bytes(self._asked(lambda: self.store.get(key))).decode()

    def _place(self) -> str:
        return f"of the process group '{_name(self.group)}' ({type(_innermost(self.store)).__name__} of c10d)"

    def _asked(self, call: Callable[[], Any]) -> Any:
        """What the store answers. One whose process is gone raises errors of torch."""
        if self.store is None:
            raise Refused(
                f"the process group '{_name(self.group)}' has no store in which its ranks could meet; pass store=file://DIRECTORY or "
                "etcd://HOST:PORT/PREFIX, and a run_id"
            )
        try:
            return call()
        except RuntimeError as error:
            raise TeamError(f"the store {self._place()}: {type(error).__name__}: {error}") from error


def _distributed() -> Any:
    module = sys.modules.get("torch.distributed")
    if module is None or not module.is_available():
        raise Refused("torch.distributed is not imported; give rank, ranks and store to Team(..), or import it and make a process group")
    return module


def _name(group: Any) -> str:
    return str(getattr(group, "group_name", "?"))


def _innermost(store: Any) -> Any:
    return store.underlying_store if hasattr(store, "underlying_store") and store.underlying_store is not None else store


def ranks_of(group: Any) -> Ranks:
    """This process in ``group``; None is the group of all processes."""
    distributed = _distributed()
    if not distributed.is_initialized():
        raise Refused("there is no process group; call torch.distributed.init_process_group(..) first")
    group = distributed.group.WORLD if group is None else group
    try:
        rank = distributed.get_rank(group) if isinstance(group, distributed.ProcessGroup) else -1
    except ValueError as error:
        raise Refused(f"the process group was destroyed, or is not one of this process: {error}") from error
    if rank < 0:
        raise Refused(f"this process is not in the process group {group!r}")
    get = getattr(group, "get_group_store", None)
    store = distributed.distributed_c10d._get_process_group_store(group) if get is None else get()
    return Ranks(group, store, rank, distributed.get_world_size(group))


def current_gpu() -> int | None:
    """The GPU that torch has current, once the program uses one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return int(torch.cuda.current_device())
