//! Tensors of other libraries. The runtime's memory becomes one by `__dlpack__` on the CPU and `__cuda_array_interface__` on a GPU, and
//! the tensor keeps the memory that it shows. A tensor of another library is read by its capsule, or by the table of its class.

// UNSAFETY: DLPack is a C struct in a capsule, which other libraries read, and free by the function that stands in it.
#![expect(unsafe_code, reason = "the C structs of DLPack")]

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::{ptr, slice};

use pyo3::exceptions::PyAttributeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use warpverbs::gpu::DeviceMemory;
use warpverbs::moe::CombineStaging;
use warpverbs::team::Team;

use crate::error::{Raise, raise};
use crate::team::runs_on_cpu;

const UNUSED: &CStr = c"dltensor";
/// kDLCPU of dlpack.h.
const CPU: i32 = 1;
/// kDLCUDA of dlpack.h.
const CUDA: i32 = 2;
/// kDLUInt of dlpack.h.
const UNSIGNED: u8 = 1;

/// What holds the memory.
#[derive(Debug)]
#[expect(dead_code, reason = "held for its drop")]
enum Owner {
    Own(Arc<Team>, DeviceMemory),
    Layer(Arc<warpverbs::moe::Moe>),
}

/// Memory of the runtime as bytes.
#[pyclass(frozen, module = "warpverbs._native")]
#[derive(Debug)]
pub(crate) struct Memory {
    owner: Arc<Owner>,
    addr: u64,
    bytes: u64,
    on_cpu: bool,
}

/// DLTensor of dlpack.h.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: [i32; 2],
    dimensions: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// DLManagedTensor of dlpack.h, and after it what only the deleter knows.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
    /// Where `tensor.shape` points: bytes.
    shape: i64,
    owner: Arc<Owner>,
}

/// # Safety
/// `managed` is what [`Memory::__dlpack__`] made, and nothing uses it any more.
unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: the caller's promise: it came from `Box::into_raw`, and is given back once.
    drop(unsafe { Box::from_raw(managed) });
}

/// # Safety
/// `capsule` is one of [`Memory::__dlpack__`].
unsafe extern "C" fn forget(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule, as CPython calls destructors. A library that takes the tensor renames the capsule, and then frees it by
    // itself.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, UNUSED.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, UNUSED.as_ptr()).cast());
        }
    }
}

impl Memory {
    pub(crate) fn new(
        py: Python<'_>,
        team: &Arc<Team>,
        bytes: usize,
        align: usize,
    ) -> PyResult<Self> {
        let memory = py.detach(|| team.gpu().alloc(bytes, align));
        let memory = memory.map_err(|error| error.raise(py))?;
        Ok(Self {
            addr: memory.addr(),
            bytes: bytes as u64,
            on_cpu: runs_on_cpu(team),
            owner: Arc::new(Owner::Own(Arc::clone(team), memory)),
        })
    }

    pub(crate) fn of_staging(moe: &Arc<warpverbs::moe::Moe>, staging: &CombineStaging) -> Self {
        Self {
            addr: staging.addr,
            bytes: staging.blocks * staging.rows * staging.row_bytes,
            on_cpu: runs_on_cpu(moe.team()),
            owner: Arc::new(Owner::Layer(Arc::clone(moe))),
        }
    }
}

#[pymethods]
impl Memory {
    #[getter]
    fn addr(&self) -> u64 {
        self.addr
    }

    #[getter]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn __repr__(&self) -> String {
        let place = if self.on_cpu { "the CPU" } else { "the GPU" };
        format!(
            "<warpverbs.Memory {} bytes at {:#x} on {place}>",
            self.bytes, self.addr
        )
    }

    /// As DLPack says: a capsule `dltensor` of bytes. Options other than the defaults are not needed for memory of the CPU.
    #[pyo3(signature = (**_options))]
    fn __dlpack__(
        &self,
        py: Python<'_>,
        _options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        if !self.on_cpu {
            let words = "memory of a GPU is lent by __cuda_array_interface__";
            return Err(PyAttributeError::new_err(words));
        }
        let shape = i64::try_from(self.bytes)?;
        let managed = Box::into_raw(Box::new(Managed {
            tensor: Tensor {
                data: ptr::with_exposed_provenance_mut(usize::try_from(self.addr)?),
                device: [CPU, 0],
                dimensions: 1,
                code: UNSIGNED,
                bits: 8,
                lanes: 1,
                shape: ptr::null_mut(),
                strides: ptr::null_mut(),
                byte_offset: 0,
            },
            context: ptr::null_mut(),
            deleter: Some(delete),
            shape,
            owner: Arc::clone(&self.owner),
        }));
        // SAFETY: just allocated, and nothing else knows it: its shape may point into it. The capsule takes it over; where none can
        // be made it is freed here.
        unsafe {
            (*managed).tensor.shape = &raw mut (*managed).shape;
            let capsule = ffi::PyCapsule_New(managed.cast(), UNUSED.as_ptr(), Some(forget));
            if capsule.is_null() {
                delete(managed);
                return Err(PyErr::fetch(py));
            }
            Ok(Bound::from_owned_ptr(py, capsule).unbind())
        }
    }

    fn __dlpack_device__(&self) -> PyResult<(i32, i32)> {
        if self.on_cpu {
            Ok((CPU, 0))
        } else {
            Err(PyAttributeError::new_err(
                "memory of a GPU is lent by __cuda_array_interface__",
            ))
        }
    }

    /// Version 3 of the interface: bytes in one dimension.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.on_cpu {
            let words = "memory of the CPU is lent by __dlpack__";
            return Err(PyAttributeError::new_err(words));
        }
        let all = PyDict::new(py);
        all.set_item("shape", (self.bytes,))?;
        all.set_item("typestr", "|u1")?;
        all.set_item("data", (self.addr, false))?;
        all.set_item("version", 3)?;
        Ok(all)
    }
}

/// The properties of a tensor of another library, as [`read_dlpack`] returns them. Address, code and bits of an element, shape,
/// strides in elements (none: dense), number of the device.
type Foreign = (u64, (u8, u8), Vec<i64>, Option<Vec<i64>>, i32);

/// Most dimensions of a tensor that is read.
const DIMENSIONS: usize = 8;

/// Reads the capsule `dltensor` that a library's `__dlpack__` has returned, and leaves it as it is: the library frees it with the
/// capsule. The tensor itself keeps its memory.
#[pyfunction]
pub(crate) fn read_dlpack(py: Python<'_>, capsule: &Bound<'_, PyAny>) -> PyResult<Foreign> {
    let object = capsule.as_ptr();
    // SAFETY: any object may be asked.
    if unsafe { ffi::PyCapsule_IsValid(object, UNUSED.as_ptr()) } != 1 {
        let words = "__dlpack__ did not return a capsule named dltensor";
        return Err(raise(py, "Refused", words.to_owned()));
    }
    // SAFETY: a valid capsule of this name holds a DLManagedTensor, which begins with a DLTensor, until it is renamed or freed; it is
    // held here. The fields are copied at once.
    let tensor: Tensor = unsafe {
        ffi::PyCapsule_GetPointer(object, UNUSED.as_ptr())
            .cast::<Tensor>()
            .read_unaligned()
    };
    let dimensions = usize::try_from(tensor.dimensions).unwrap_or(usize::MAX);
    if dimensions > DIMENSIONS || tensor.lanes != 1 {
        let words = format!(
            "a tensor has {} dimensions of {} lanes; it must have at most {DIMENSIONS}, of one lane",
            tensor.dimensions, tensor.lanes
        );
        return Err(raise(py, "Refused", words));
    }
    let numbers = |at: *mut i64| -> Vec<i64> {
        // SAFETY: dlpack.h: shape, and strides unless null, hold one number for each dimension.
        (0..dimensions)
            .map(|i| unsafe { at.add(i).read() })
            .collect()
    };
    let strides = (!tensor.strides.is_null()).then(|| numbers(tensor.strides));
    let address = tensor.data.expose_provenance() as u64 + tensor.byte_offset;
    let shape = numbers(tensor.shape);
    Ok((
        address,
        (tensor.code, tensor.bits),
        shape,
        strides,
        tensor.device[1],
    ))
}

/// The attribute of a class that holds its table, and the name of the capsule around it.
const TABLE: (&str, &CStr) = ("__dlpack_c_exchange_api__", c"dlpack_exchange_api");
/// The version of the table that this module knows.
const MAJOR: u32 = 1;

/// Fills in the properties of a tensor of the class, whose owner it stays. 0; another number with an exception of Python.
type Read = unsafe extern "C" fn(*mut ffi::PyObject, *mut Tensor) -> c_int;

/// DLPackExchangeAPI of dlpack.h: the functions by which C code reads and makes tensors of a class.
#[repr(C)]
struct Table {
    major: u32,
    minor: u32,
    older: *const c_void,
    allocate: *const c_void,
    keep: *const c_void,
    make: *const c_void,
    read: Option<Read>,
    stream: *const c_void,
}

/// Reads tensors of one class by the table of that class: one call of C instead of six attributes.
#[derive(Debug)]
pub(crate) struct Reader {
    class: Py<PyType>,
    read: Read,
    /// The device of the tensors, as `DLDevice` of DLPack: its type and number.
    device: [i32; 2],
}

impl Reader {
    /// For tensors of `class` on the GPU with this number of CUDA's, or on the CPU. None: the class has no such table.
    pub(crate) fn of(class: &Bound<'_, PyType>, gpu: Option<i32>) -> Option<Self> {
        let capsule = class.getattr(TABLE.0).ok()?;
        // SAFETY: any object may be asked.
        if unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), TABLE.1.as_ptr()) } != 1 {
            return None;
        }
        // SAFETY: dlpack.h: a valid capsule of this name holds a table that lives as long as the process. Its first words are the
        // version in every version, and version 1 has these fields.
        let read = unsafe {
            let table =
                ffi::PyCapsule_GetPointer(capsule.as_ptr(), TABLE.1.as_ptr()).cast::<Table>();
            match (*table).major {
                MAJOR => (*table).read?,
                _ => return None,
            }
        };
        Some(Self {
            class: class.clone().unbind(),
            read,
            device: gpu.map_or([CPU, 0], |number| [CUDA, number]),
        })
    }

    /// Returns what `of` makes of address and shape of `value`. None where `value` is not of this very class, is not dense, is empty, lies
    /// on another device, or has other elements than `kind`, (code, bits), at addresses that are multiples of `align`.
    pub(crate) fn dense<T>(
        &self,
        value: &Bound<'_, PyAny>,
        kind: (u8, u8),
        align: u64,
        of: impl FnOnce(u64, &[i64]) -> Option<T>,
    ) -> Option<T> {
        if !value.get_type().is(&self.class) {
            return None;
        }
        let mut tensor = MaybeUninit::<Tensor>::uninit();
        // SAFETY: dlpack.h: for an object of the class that has the table, called with the GIL, it fills in the struct if it returns 0.
        if unsafe { (self.read)(value.as_ptr(), tensor.as_mut_ptr()) } != 0 {
            drop(PyErr::take(value.py()));
            return None;
        }
        // SAFETY: it has returned 0.
        let tensor = unsafe { tensor.assume_init() };
        let is_right =
            (tensor.code, tensor.bits) == kind && tensor.lanes == 1 && tensor.device == self.device;
        let at = tensor.data.expose_provenance() as u64 + tensor.byte_offset;
        let dimensions = usize::try_from(tensor.dimensions).ok()?;
        if !is_right
            || tensor.data.is_null()
            || !at.is_multiple_of(align)
            || dimensions == 0
            || tensor.strides.is_null()
        {
            return None;
        }
        // SAFETY: dlpack.h: shape and strides hold as many numbers as there are dimensions. They are the tensor's, which `value` keeps;
        // no code of Python runs before the last use of them here, so none changes it.
        let (shape, strides) = unsafe {
            (
                slice::from_raw_parts(tensor.shape, dimensions),
                slice::from_raw_parts(tensor.strides, dimensions),
            )
        };
        let mut expected = 1;
        for (extent, stride) in shape.iter().zip(strides).rev() {
            if *extent < 1 || (*extent != 1 && *stride != expected) {
                return None;
            }
            expected *= extent;
        }
        of(at, shape)
    }
}
