//! What a device says of itself, for a report of measurements.

/// A device in figures, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceFacts {
    /// Attributes with their units in the name: `clock_khz`, `pageable_access`.
    pub attributes: Vec<(&'static str, u64)>,
    /// The kernels that are loaded, by name.
    pub kernels: Vec<KernelFacts>,
}

impl DeviceFacts {
    /// Returns the attribute of that name; none if the device does not have it.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<u64> {
        let mut all = self.attributes.iter();
        all.find_map(|(known, value)| (*known == name).then_some(*value))
    }
}

/// What the driver's compiler has made of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelFacts {
    /// The name under which the kernel is exported.
    pub name: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of local memory of a thread: spilled registers, and arrays.
    pub local_bytes: u32,
    /// Bytes of static shared memory of a block.
    pub shared_bytes: u32,
    /// Most threads of a block.
    pub max_threads: u32,
}

/// As what a page of registers is mapped for kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterKind {
    /// I/O memory, as the registers of a NIC: not cached.
    Io,
    /// Memory that the CPU has too.
    Memory,
}
