"""How DeepEP's test programs start: ``init_dist``."""

from __future__ import annotations

import datetime
import os
import random
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from ..._numbers import of_variable

__all__ = ["dist_print", "get_global_seed", "get_local_seed", "init_dist", "init_seed"]

#: Names of the collective call that fills one tensor, as torch has had it.
GATHERS = ("all_gather_into_tensor", "all_gather_single")
#: Of the whole program, and of this rank.
_seeds = [0, 0]
#: Of this process on its node, as :func:`init_dist` was told.
_local_rank = [0]


def init_seed(global_seed: int) -> None:
    """Seeds torch and ``random`` with ``global_seed`` and the rank."""
    _seeds[:] = [global_seed, global_seed + dist.get_rank()]
    torch.manual_seed(_seeds[1])
    random.seed(_seeds[1])


def get_global_seed() -> int:
    """What :func:`init_seed` was given."""
    return _seeds[0]


def get_local_seed() -> int:
    """The same and the rank."""
    return _seeds[1]


class CpuForCuda(TorchFunctionMode):  # type: ignore[misc]
    """Tensors that a program asks for on ``cuda`` are made on the CPU. What gloo gathers may have a dimension for the ranks, as NCCL's
    may."""

    def __torch_function__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if "device" in kwargs and _is_cuda(kwargs["device"]):
            kwargs["device"] = "cpu"
        if function is torch.Tensor.cuda:
            return args[0]
        if function is torch.Tensor.to:
            args = tuple("cpu" if _is_cuda(value) else value for value in args)
        if getattr(function, "__name__", "") in GATHERS:
            given = {**dict(zip(("output_tensor", "input_tensor", "group", "async_op"), args, strict=False)), **kwargs}
            args, kwargs = (), {**given, "output_tensor": _flat(given["output_tensor"], given["input_tensor"])}
        return function(*args, **kwargs)


def _flat(gathered: Any, own: Any) -> Any:
    """``[ranks, rows, ..]`` as ``[ranks * rows, ..]``."""
    return gathered.view(-1, *own.shape[1:]) if gathered.dim() == own.dim() + 1 else gathered


def _is_cuda(device: Any) -> bool:
    return isinstance(device, (str, torch.device)) and str(device).startswith("cuda")


def runs_on_cpu() -> bool:
    """Whether programs of DeepEP run on the CPU here."""
    return os.environ.get("WARPVERBS_GPU") == "simt" or not torch.cuda.is_available()


def dist_print(s: str = "", once_in_node: bool = False) -> None:
    """Prints ``s``, at the first rank of each node or at every rank, and waits for all ranks."""
    if not once_in_node or _local_rank[0] == 0:
        print(s, flush=True)
    dist.barrier()


def init_dist(local_rank: int, num_local_ranks: int, seed: int = 0, timeout: float = 600.0) -> tuple[int, int, Any]:
    """Makes the process group of all ranks; returns rank, number of ranks and a group of all.

    Addresses come from ``MASTER_ADDR`` and ``MASTER_PORT``, nodes from ``WORLD_SIZE`` and ``RANK``. Kernels run on the CPU with
    ``WARPVERBS_GPU=simt``, or with a torch without GPUs. Then the group is gloo's, and tensors that the program asks for on ``cuda`` are
    made on the CPU. Otherwise the group is NCCL's, as DeepEP makes it.

    :param timeout: longest wait of the group, seconds.
    """
    nodes, node = of_variable("WORLD_SIZE", 1), of_variable("RANK", 0)
    address, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), of_variable("MASTER_PORT", 8361)
    ranks = nodes * num_local_ranks
    on_cpu = runs_on_cpu()
    more = {} if on_cpu else {"device_id": torch.device("cuda", local_rank)}
    dist.init_process_group(
        backend="gloo" if on_cpu else "nccl",
        init_method=f"tcp://{address}:{port}",
        world_size=ranks,
        rank=node * num_local_ranks + local_rank,
        timeout=datetime.timedelta(seconds=timeout),
        **more,
    )
    _local_rank[0] = local_rank
    torch.set_default_dtype(torch.bfloat16)
    if on_cpu:
        CpuForCuda().__enter__()
    else:
        torch.set_default_device("cuda")
        torch.cuda.set_device(local_rank)
    init_seed(seed)
    return dist.get_rank(), dist.get_world_size(), dist.new_group(list(range(ranks)))
