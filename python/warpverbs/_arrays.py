"""What the package asks of a tensor before the runtime gets its address: element type, shape, strides, alignment, device.

A tensor is anything with torch's ``data_ptr``, with ``__cuda_array_interface__``, with numpy's ``__array_interface__``, or with
``__dlpack__``. Torch is never imported here; a program that passes torch tensors has imported it.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

from . import _native
from .errors import Refused

#: Bytes of an element of each type that the runtime knows, and of those of other libraries that stand for them.
SIZES = {
    "bf16": 2,
    "fp8": 1,
    "f32": 4,
    "i32": 4,
    "i64": 8,
    "u8": 1,
    "i8": 1,
    "i16": 2,
    "u16": 2,
}

#: Types of libraries that have neither BF16 nor FP8: the same bits under another name.
_BITS = {"bf16": ("i16", "u16"), "fp8": ("u8", "i8"), "i32": ("u32",), "i64": ("u64",), "u8": ("i8", "bool")}

#: Names of element types in array interfaces, by kind and size.
_TYPESTR = {
    "<f4": "f32",
    "<i2": "i16",
    "<u2": "u16",
    "<i4": "i32",
    "<u4": "u32",
    "<i8": "i64",
    "<u8": "u64",
    "|i1": "i8",
    "|u1": "u8",
    "|b1": "bool",
    "<f2": "f16",
    "<f8": "f64",
}

_torch_types: dict[Any, str] = {}
#: Element types of torch by our names, and torch's class of tensors, once one was seen.
_torch_names: dict[str, Any] = {}
_Tensor: Any = None


class Array(NamedTuple):
    """What is known of one tensor."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    contiguous: bool
    #: ``cpu``, or ``cuda:N``; ``cuda`` where the library does not say which.
    device: str


def torch() -> Any:
    """The module torch, if the program has imported it."""
    return sys.modules.get("torch")


def _types_of_torch(module: Any) -> dict[Any, str]:
    global _Tensor  # noqa: PLW0603 It is set once.
    if not _torch_types:
        names = {
            "bfloat16": "bf16",
            "float8_e4m3fn": "fp8",
            "float32": "f32",
            "float64": "f64",
            "float16": "f16",
            "int16": "i16",
            "uint16": "u16",
            "int32": "i32",
            "uint32": "u32",
            "int64": "i64",
            "uint64": "u64",
            "int8": "i8",
            "uint8": "u8",
            "bool": "bool",
        }
        found = {getattr(module, name, None): ours for name, ours in names.items()}
        found.pop(None, None)
        _torch_types.update(found)
        _torch_names.update({ours: theirs for theirs, ours in found.items()})
        _Tensor = module.Tensor
    return _torch_types


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...] | None, size: int) -> bool:
    if strides is None or 0 in shape:
        return True
    expected = size
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def _of_interface(interface: dict[str, Any], device: str) -> Array:
    typestr, shape = interface["typestr"], tuple(interface["shape"])
    size = int(typestr[2:].partition("[")[0])
    return Array(
        address=interface["data"][0],
        dtype=_TYPESTR.get(typestr, typestr),
        shape=shape,
        contiguous=_is_contiguous(shape, interface.get("strides"), size),
        device=device,
    )


def _of_dlpack(value: Any) -> Array:
    kind, number = value.__dlpack_device__()
    if kind not in (1, 2, 3):
        raise Refused(f"a tensor is on DLPack device type {kind}; it must be on the CPU (1, 3) or a CUDA GPU (2)")
    address, (code, bits), shape, strides, _ = _native.read_dlpack(value.__dlpack__())
    names = {(4, 16): "bf16", (10, 8): "fp8", (2, 32): "f32", (2, 64): "f64", (2, 16): "f16", (6, 8): "bool"}
    letter = {0: "i", 1: "u"}.get(code, f"code{code}-")
    dtype = names.get((code, bits), f"{letter}{bits}")
    scaled = None if strides is None else tuple(stride * (bits // 8) for stride in strides)
    device = f"cuda:{number}" if kind == 2 else "cpu"
    return Array(address, dtype, tuple(shape), _is_contiguous(tuple(shape), scaled, bits // 8), device)


def look(name: str, value: Any) -> Array:
    """What ``value`` is; a :class:`Refused` error if it is no tensor."""
    module = torch()
    if module is not None and isinstance(value, module.Tensor):
        return Array(
            address=value.data_ptr(),
            dtype=_types_of_torch(module).get(value.dtype, str(value.dtype)),
            shape=tuple(value.shape),
            contiguous=value.is_contiguous(),
            device=str(value.device),
        )
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_interface(interface, "cuda")
    interface = getattr(value, "__array_interface__", None)
    if interface is not None:
        return _of_interface(interface, "cpu")
    if hasattr(value, "__dlpack__"):
        return _of_dlpack(value)
    raise Refused(
        f"{name} is a {type(value).__name__}; it must be a tensor: of torch, or with "
        "__cuda_array_interface__, __array_interface__ or __dlpack__"
    )


def shape_of(name: str, value: Any) -> tuple[int, ...]:
    """Its shape; a :class:`Refused` error if it is no tensor."""
    return value.shape if type(value) is _Tensor else look(name, value).shape


def _shown(shape: tuple[Any, ...]) -> str:
    return "[" + ", ".join("any" if extent is None else str(extent) for extent in shape) + "]"


def address(
    name: str,
    value: Any,
    dtype: str,
    shape: tuple[int | None, ...],
    gpu: int | None,
    align: int | None = None,
) -> int:
    """The device address of ``value``, which must be dense and have this element type and shape. ``None`` in a shape fits any
    extent. ``None`` as value is address 0: not given. ``gpu`` is CUDA's number of the GPU that it must lie on; None: the CPU."""
    if value is None:
        return 0
    if type(value) is _Tensor and value.dtype is _torch_names.get(dtype):
        at = _quickly(value, shape, gpu, align or SIZES[dtype])
        if at:
            return at
    found = look(name, value)
    if not _holds(found, dtype):
        raise Refused(f"{name} holds {found.dtype}; it must hold {dtype}")
    return _place(name, found, shape, gpu, align or SIZES[dtype])


def integers(name: str, value: Any, shape: tuple[int | None, ...], gpu: int | None) -> tuple[int, bool]:
    """The same of integers of 32 or of 64 bits, and whether they have 64."""
    if value is None:
        return 0, False
    if type(value) is _Tensor:
        wide = value.dtype is _torch_names["i64"]
        at = _quickly(value, shape, gpu, 8 if wide else 4) if wide or value.dtype is _torch_names["i32"] else 0
        if at:
            return at, wide
    found = look(name, value)
    wide = _holds(found, "i64")
    if not wide and not _holds(found, "i32"):
        raise Refused(f"{name} holds {found.dtype}; it must hold i32 or i64")
    return _place(name, found, shape, gpu, SIZES["i64" if wide else "i32"]), wide


def apart(name: str, written: Any, other: str, read: Any) -> None:
    """Refuses memory that one launch reads and writes. Both are dense."""
    begin, end = _range(written)
    first, last = _range(read)
    if begin < last and first < end:
        raise Refused(f"{name} overlaps {other}, which the same launch reads; pass a tensor of its own, or make the call by its two phases")


def _range(value: Any) -> tuple[int, int]:
    if type(value) is _Tensor:
        at = value.data_ptr()
        return at, at + value.nbytes
    found = look("", value)
    return found.address, found.address + math.prod(found.shape) * SIZES[found.dtype]


def _quickly(tensor: Any, shape: tuple[int | None, ...], gpu: int | None, align: int) -> int:
    """The address of a tensor of torch in which nothing is wrong: a call has a dozen of them. 0 where something may be."""
    if tensor.shape != shape or not tensor.is_contiguous():
        return 0
    # Where the kernels run.
    if not (tensor.is_cpu if gpu is None else tensor.is_cuda and tensor.get_device() == gpu):
        return 0
    at: int = tensor.data_ptr()
    return 0 if at % align else at


def device_of(gpu: int | None) -> str:
    """The name of a device as torch has it; None is the CPU."""
    return "cpu" if gpu is None else f"cuda:{gpu}"


def _holds(found: Array, dtype: str) -> bool:
    return found.dtype == dtype or found.dtype in _BITS.get(dtype, ())


def _place(name: str, found: Array, shape: tuple[int | None, ...], gpu: int | None, align: int) -> int:
    """The address of what has the right element type."""
    fits = len(found.shape) == len(shape) and all(
        wanted is None or wanted == extent for extent, wanted in zip(found.shape, shape, strict=True)
    )
    if not fits:
        raise Refused(f"{name} has the shape {_shown(found.shape)}; it must have {_shown(shape)}")
    if not found.contiguous:
        raise Refused(f"{name} is not contiguous; pass {name}.contiguous()")
    device = device_of(gpu)
    # Of some libraries the number of the GPU is not known.
    if found.device != device and (gpu is None or found.device != "cuda"):
        where = "the CPU" if gpu is None else device
        raise Refused(f"{name} is on {found.device}; the team runs on {where} (WARPVERBS_GPU, or Team(gpu=..), chooses)")
    if not found.address and 0 not in found.shape:
        # Address 0 would stand for a tensor that is not given.
        raise Refused(f"{name} has no memory, because its storage was freed; it must have {math.prod(found.shape)} elements")
    if found.address % align:
        raise Refused(
            f"{name} begins at address {found.address:#x}; it must be a multiple of {align}: pass a tensor of its own, not a slice"
        )
    return found.address
