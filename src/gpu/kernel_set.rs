//! The kernels of a crate for every device: compiled for the CPU, as PTX, and as source.

use std::collections::BTreeMap;
use std::ptr;

use super::GpuError;

/// The kernels of one crate, as its build script made them with `warpverbs-build`: for the CPU, as PTX by architecture, and as
/// source. [`kernels!`](crate::kernels) puts them into a static, [`Gpu::add_kernels`](super::Gpu::add_kernels) on a device.
#[derive(Debug)]
pub struct KernelSet {
    package: &'static str,
    cpu: &'static [::simt::Kernel],
    /// Architecture (90 for sm_90), path for messages, text without a NUL.
    ptx: &'static [(u32, &'static str, &'static str)],
    /// The reason why the set has no PTX; empty if it has PTX.
    no_ptx: &'static str,
    /// The path below the package, and the text, of each source file.
    sources: &'static [(&'static str, &'static str)],
}

impl KernelSet {
    /// Makes a set. Only [`kernel_set_table!`](crate::kernel_set_table) calls this.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(
        package: &'static str,
        cpu: &'static [::simt::Kernel],
        ptx: &'static [(u32, &'static str, &'static str)],
        sources: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self {
            package,
            cpu,
            ptx,
            no_ptx: "",
            sources,
        }
    }

    /// Adds the reason why the set has no PTX; empty if it has PTX. Only [`kernel_set_table!`](crate::kernel_set_table) calls this.
    #[doc(hidden)]
    #[must_use]
    pub const fn with_no_ptx(self, no_ptx: &'static str) -> Self {
        Self { no_ptx, ..self }
    }

    /// Returns the package of the kernels.
    #[must_use]
    pub fn package(&self) -> &'static str {
        self.package
    }

    /// Returns the kernels compiled for the CPU.
    #[must_use]
    pub fn cpu(&self) -> &'static [::simt::Kernel] {
        self.cpu
    }

    /// Returns the PTX files: architecture (90 for sm_90), path for messages, text.
    #[must_use]
    pub fn ptx(&self) -> &'static [(u32, &'static str, &'static str)] {
        self.ptx
    }

    /// Returns why the set has no PTX, in words of its build script, which may name the command that writes PTX. None: the set has PTX, or
    /// no reason is known. On a GPU, NVRTC compiles the kernels of a set without PTX.
    #[must_use]
    pub fn no_ptx(&self) -> Option<&'static str> {
        Some(self.no_ptx).filter(|why| !why.is_empty())
    }

    /// Returns the sources of CUDA C++ and their headers: path below the package, text.
    #[must_use]
    pub fn sources(&self) -> &'static [(&'static str, &'static str)] {
        self.sources
    }
}

/// Declares a static [`KernelSet`](crate::gpu::KernelSet) of the kernels of this crate, which its build script has made with
/// `warpverbs-build`.
///
/// ```ignore
/// warpverbs::kernels! {
///     /// The kernels of this crate.
///     pub static KERNELS
/// }
///
/// gpu.add_kernels(&KERNELS)?;
/// ```
///
/// To include a set to which the build script gave a name, add the name: `static KERNELS = "name"`.
#[macro_export]
macro_rules! kernels {
    ($(#[$meta:meta])* $vis:vis static $name:ident) => {
        $crate::kernels! { @ $(#[$meta])* $vis static $name from "/warpverbs_kernels.rs" }
    };
    ($(#[$meta:meta])* $vis:vis static $name:ident = $set:literal) => {
        $crate::kernels! { @ $(#[$meta])* $vis static $name from "/warpverbs_kernels_", $set, ".rs" }
    };
    (@ $(#[$meta:meta])* $vis:vis static $name:ident from $($file:literal),+) => {
        $(#[$meta])*
        $vis static $name: $crate::gpu::KernelSet = {
            use $crate::gpu::kernel_set_table;
            include!(concat!(env!("OUT_DIR"), $($file),+))
        };
    };
}

/// The code that `warpverbs-build` writes into `OUT_DIR`. It is a macro so that the lints of the crate that includes it skip it.
#[doc(hidden)]
#[macro_export]
macro_rules! kernel_set_table {
    (
        package: $package:literal,
        cpu: [$($name:literal = $entry:ident,)*],
        ptx: [$($ptx:expr,)*],
        no_ptx: $no_ptx:literal,
        sources: [$($source:expr,)*],
    ) => {{
        unsafe extern "C-unwind" {
            $( fn $entry(args: *mut *mut ::core::ffi::c_void); )*
        }
        $crate::gpu::KernelSet::new(
            $package,
            &[$( $crate::gpu::simt::Kernel { name: $name, entry: $entry } ),*],
            &[$($ptx),*],
            &[$($source),*],
        )
        .with_no_ptx($no_ptx)
    }};
}

#[doc(hidden)]
pub use kernel_set_table;

mod library {
    // UNSAFETY: the C symbols of the kernels, which the build script compiles.
    #![expect(unsafe_code, reason = "declares C symbols, calls none")]

    /// The kernels of this crate, which every device knows from the start.
    pub(in crate::gpu) static LIBRARY: super::KernelSet =
        include!(concat!(env!("OUT_DIR"), "/warpverbs_kernels.rs"));
}
pub(super) use library::LIBRARY;

/// The kernels that a device knows, and the package of each.
#[derive(Debug)]
pub(super) struct KernelTable<K> {
    sets: Vec<&'static KernelSet>,
    kernels: BTreeMap<String, (K, String)>,
}

impl<K> KernelTable<K> {
    pub(super) fn new() -> Self {
        Self {
            sets: Vec::new(),
            kernels: BTreeMap::new(),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&K> {
        self.kernels.get(name).map(|(kernel, _)| kernel)
    }

    /// Returns the names of all kernels, sorted.
    pub(super) fn names(&self) -> Vec<String> {
        self.kernels.keys().cloned().collect()
    }

    pub(super) fn has(&self, set: &'static KernelSet) -> bool {
        self.sets.iter().any(|known| ptr::eq(*known, set))
    }

    /// Adds the kernels of `set`. After an error none of them is added.
    pub(super) fn add(
        &mut self,
        set: &'static KernelSet,
        kernels: impl IntoIterator<Item = (String, K)>,
    ) -> Result<(), GpuError> {
        let kernels: Vec<_> = kernels.into_iter().collect();
        for (name, _) in &kernels {
            if let Some((_, other)) = self.kernels.get(name) {
                return Err(GpuError::KernelClash {
                    kernel: name.clone(),
                    package: set.package.to_owned(),
                    other: other.clone(),
                });
            }
        }
        for (name, kernel) in kernels {
            self.replace(name, kernel, set.package);
        }
        self.sets.push(set);
        Ok(())
    }

    /// Adds a kernel of the device's options. It replaces a kernel of the same name.
    pub(super) fn replace(&mut self, name: String, kernel: K, package: &str) {
        self.kernels.insert(name, (kernel, package.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static ONE: KernelSet = KernelSet::new("one", &[], &[], &[]);
    static TWO: KernelSet = KernelSet::new("two", &[], &[], &[]);

    fn kernels(names: &[&str]) -> Vec<(String, usize)> {
        let numbered = names.iter().zip(0..);
        numbered
            .map(|(name, number)| ((*name).to_owned(), number))
            .collect()
    }

    #[test]
    fn a_name_clash_of_kernel_sets_names_both_packages_and_adds_nothing() {
        let mut known = KernelTable::new();
        known.add(&ONE, kernels(&["a", "b"])).unwrap();
        let error = known.add(&TWO, kernels(&["c", "b"])).unwrap_err();
        assert_eq!(
            error,
            GpuError::KernelClash {
                kernel: "b".to_owned(),
                package: "two".to_owned(),
                other: "one".to_owned()
            }
        );
        assert!(known.has(&ONE) && !known.has(&TWO));
        assert_eq!(known.names(), ["a", "b"]);
        assert_eq!(known.get("b"), Some(&1));
    }
}
