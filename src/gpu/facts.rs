//! Figures that a device reports of itself, for a report of measurements.

/// The figures of a device, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceFacts {
    /// Attributes with their units in the name: `clock_khz`, `pageable_access`.
    pub attributes: Vec<(&'static str, u64)>,
    /// The kernels that are loaded, by name.
    pub kernels: Vec<KernelFacts>,
}

impl DeviceFacts {
    /// Returns the attribute of that name. None if the device does not have it.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<u64> {
        let mut all = self.attributes.iter();
        all.find_map(|(known, value)| (*known == name).then_some(*value))
    }
}

/// Properties that the driver's compiler has given a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelFacts {
    /// The name under which the kernel is exported.
    pub name: String,
    /// Number of registers of a thread.
    pub registers: u32,
    /// Bytes of local memory of a thread, for spilled registers and arrays.
    pub local_bytes: u32,
    /// Bytes of static shared memory of a block.
    pub shared_bytes: u32,
    /// Largest number of threads of a block.
    pub max_threads: u32,
}

/// Kind of memory as which a page of registers is mapped for kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterKind {
    /// I/O memory, like the registers of a NIC: not cached.
    Io,
    /// Memory that the CPU uses too.
    Memory,
}
