//! What a CUDA device says of itself, and what its driver says of the loaded kernels.

// UNSAFETY: calls of the driver API.
#![expect(unsafe_code, reason = "CUDA driver API")]

use cudarc::driver::sys::{
    self, CUdevice_attribute as Attribute, CUfunction, CUfunction_attribute as Property,
};

use super::device::Device;
use super::driver::check;
use super::module::Kernel;
use crate::gpu::kernel_set::KernelTable;
use crate::gpu::{DeviceFacts, GpuError, KernelFacts};

const ATTRIBUTES: [(&str, Attribute); 19] = [
    ("clock_khz", Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
    (
        "memory_clock_khz",
        Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,
    ),
    (
        "memory_bus_bits",
        Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
    ),
    ("l2_bytes", Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
    (
        "multiprocessors",
        Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
    ),
    (
        "registers_per_multiprocessor",
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
    ),
    (
        "shared_bytes_per_block",
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
    ),
    (
        "cooperative_launch",
        Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH,
    ),
    (
        "unified_addressing",
        Attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING,
    ),
    (
        "pageable_access",
        Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
    ),
    (
        "pageable_access_by_host_tables",
        Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
    ),
    (
        "host_native_atomics",
        Attribute::CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
    ),
    (
        "concurrent_managed_access",
        Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
    ),
    (
        "host_register",
        Attribute::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
    ),
    (
        "host_register_read_only",
        Attribute::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
    ),
    (
        "host_pointer_of_registered_memory",
        Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
    ),
    ("dma_buf", Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED),
    (
        "rdma",
        Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
    ),
    (
        "rdma_write_ordering",
        Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
    ),
];

/// Returns the figures of a device and of all its kernels. An attribute that the driver does not know is left out.
pub(super) fn of(device: &Device, kernels: &KernelTable<Kernel>) -> Result<DeviceFacts, GpuError> {
    let (free, total) = device.memory()?;
    let mut facts = DeviceFacts {
        attributes: vec![
            ("arch", device.arch().into()),
            ("driver_cuda_version", device.driver_version().into()),
            ("memory_bytes", total as u64),
            ("memory_free_bytes", free as u64),
        ],
        kernels: Vec::new(),
    };
    for (name, attribute) in ATTRIBUTES {
        match device.attribute(attribute) {
            Ok(value) => facts.attributes.push((name, value.into())),
            Err(error) => tracing::debug!("no {name}: {error}"),
        }
    }
    device.bind()?;
    for name in kernels.names() {
        let Some(kernel) = kernels.get(&name) else {
            continue;
        };
        let of = |property| property_of(kernel.function, property);
        facts.kernels.push(KernelFacts {
            registers: of(Property::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: of(Property::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            shared_bytes: of(Property::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            max_threads: of(Property::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            name,
        });
    }
    Ok(facts)
}

/// Returns the most bytes of local memory that a thread of any of the kernels has.
pub(super) fn most_local_bytes(
    device: &Device,
    kernels: &KernelTable<Kernel>,
) -> Result<u32, GpuError> {
    device.bind()?;
    let mut most = 0;
    for name in kernels.names() {
        if let Some(kernel) = kernels.get(&name) {
            let local = Property::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES;
            most = most.max(property_of(kernel.function, local)?);
        }
    }
    Ok(most)
}

/// Returns a property of a loaded kernel. The context is current.
fn property_of(function: CUfunction, property: Property) -> Result<u32, GpuError> {
    let mut value = 0;
    // SAFETY: `value` is written during the call; the function belongs to a module that its device keeps.
    let asked = unsafe { sys::cuFuncGetAttribute(&raw mut value, property, function) };
    check("cuFuncGetAttribute", asked)?;
    Ok(u32::try_from(value).unwrap_or(0))
}
