//! A set of kernels to be made: what a build script says of it, and how it is made.

use std::path::PathBuf;
use std::{env, fs};

use crate::error::{BuildError, INCLUDE};
use crate::files::Files;
use crate::ptx::Ptx;
use crate::table::table;

/// What `warpverbs::kernels!` includes from `OUT_DIR`, less the name of a set that has one and the ending.
const TABLE: &str = "warpverbs_kernels";

/// The library of the kernels for the CPU, less the name of a set that has one.
const LIBRARY: &str = "simt_kernels";

/// Starts a set of the kernels in `folder`, relative to the package, and in the folders below it.
#[must_use]
pub fn kernels(folder: impl Into<PathBuf>) -> Kernels {
    Kernels {
        folder: folder.into(),
        name: None,
        ptx_command: None,
        include: Vec::new(),
        define: Vec::new(),
        quick: Vec::new(),
        for_cpu: true,
        for_gpu: true,
    }
}

/// A set to be made; see [`kernels()`].
#[derive(Clone, Debug)]
pub struct Kernels {
    folder: PathBuf,
    name: Option<String>,
    /// What writes the PTX. None: it is kept beside the sources.
    ptx_command: Option<String>,
    include: Vec<PathBuf>,
    define: Vec<(String, Option<String>)>,
    quick: Vec<PathBuf>,
    for_cpu: bool,
    for_gpu: bool,
}

impl Kernels {
    /// Names the set, for a package with several: `warpverbs::kernels! { static KERNELS = "name" }` includes it.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// The PTX is not kept beside the sources: `command` writes it before a build whose programs are to have it. It is taken if its
    /// stamp, the file `SOURCES` in the folder `ptx`, is of the sources and of the device library at hand.
    ///
    /// Without it, and if it is of other sources, the set has no PTX: NVRTC compiles the kernels on a GPU. Where there is no NVRTC
    /// either, the error of the device names `command`. Of PTX that is not taken cargo warns.
    #[must_use]
    pub fn ptx_written_by(mut self, command: &str) -> Self {
        self.ptx_command = Some(command.to_owned());
        self
    }

    /// Adds a folder of headers, searched before the device library.
    #[must_use]
    pub fn include(mut self, folder: impl Into<PathBuf>) -> Self {
        self.include.push(folder.into());
        self
    }

    /// Defines a macro for the CPU's compiler. NVRTC does not see it, nor does what made the PTX.
    #[must_use]
    pub fn define<'a>(mut self, name: &str, value: impl Into<Option<&'a str>>) -> Self {
        let value = value.into().map(str::to_owned);
        self.define.push((name.to_owned(), value));
        self
    }

    /// Optimises sources whose path begins with `prefix` less for the CPU: big kernels that run seldom.
    #[must_use]
    pub fn quick(mut self, prefix: impl Into<PathBuf>) -> Self {
        self.quick.push(prefix.into());
        self
    }

    /// Leaves the kernels for the CPU out where the environment variable `name` is set. This is for crates with kernels that
    /// include a header which a test of the same crate renders. Such kernels do not compile while the header is stale, and the test
    /// needs the crate.
    #[must_use]
    pub fn no_cpu_if_set(mut self, name: &str) -> Self {
        println!("cargo::rerun-if-env-changed={name}");
        self.for_cpu &= env::var_os(name).is_none();
        self
    }

    /// Leaves PTX and sources out: the set has kernels for the CPU alone.
    #[must_use]
    pub fn for_cpu_only(mut self) -> Self {
        self.for_gpu = false;
        self
    }

    /// Compiles and links the kernels for the CPU and writes what `warpverbs::kernels!` reads. On an error it reports to cargo
    /// and ends the script.
    pub fn compile(&self) {
        if let Err(error) = self.try_compile() {
            println!("cargo::error={}", error.to_string().replace('\n', " "));
            std::process::exit(1);
        }
    }

    /// As [`compile`](Self::compile), for scripts that treat errors themselves.
    ///
    /// # Errors
    ///
    /// See [`BuildError`].
    pub fn try_compile(&self) -> Result<(), BuildError> {
        let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
        let files = Files::of(&self.folder)?;
        let cpu = if self.for_cpu {
            self.compile_for_cpu(&files.kernels)?
        } else {
            Vec::new()
        };
        let package = variable("CARGO_PKG_NAME")?;
        let (files, ptx) = if self.for_gpu {
            let ptx = self.ptx(&files, self.device_library())?;
            (files, ptx)
        } else {
            (Files::default(), Ptx::default())
        };
        if let Some(warning) = ptx.warning() {
            println!("cargo::warning={warning}");
        }
        let package = package.to_string_lossy();
        let table = table(&package, &root, &cpu, &ptx, &files)?;
        let path = PathBuf::from(variable("OUT_DIR")?).join(self.with_name(TABLE) + ".rs");
        fs::write(&path, table).map_err(|source| BuildError::File { path, source })
    }

    /// `base_NAME`, or `base` for a set without a name.
    fn with_name(&self, base: &str) -> String {
        let name = self.name.as_ref();
        name.map_or_else(|| base.to_owned(), |name| format!("{base}_{name}"))
    }

    /// Its folder, from the build script of `warpverbs`; none for the library itself, whose script includes it.
    fn device_library(&self) -> Option<PathBuf> {
        env::var_os(INCLUDE).map(PathBuf::from)
    }

    /// The PTX that the set gets.
    fn ptx(&self, files: &Files, library: Option<PathBuf>) -> Result<Ptx, BuildError> {
        let Some(command) = &self.ptx_command else {
            return Ptx::kept(&self.folder, files);
        };
        let mut folders = vec![self.folder.clone()];
        folders.extend(self.include.iter().cloned().chain(library));
        for folder in &folders {
            println!("cargo::rerun-if-changed={}", folder.display());
        }
        Ptx::written(&folders, files, command)
    }

    /// Their names.
    fn compile_for_cpu(&self, sources: &[PathBuf]) -> Result<Vec<String>, BuildError> {
        let library = self.device_library();
        if library.is_none() && self.include.is_empty() {
            return Err(BuildError::NoDeviceLibrary);
        }
        let mut build = simt::build::kernels(sources).library(&self.with_name(LIBRARY));
        for folder in self.include.iter().chain(&library) {
            build = build.include(folder);
        }
        for (name, value) in &self.define {
            build = build.define(name, value.as_deref());
        }
        for prefix in &self.quick {
            build = build.quick(prefix);
        }
        build.try_compile()?;
        Ok(build.names()?)
    }
}

fn variable(name: &'static str) -> Result<std::ffi::OsString, BuildError> {
    env::var_os(name).ok_or(BuildError::NotABuildScript { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_every_kernel_text_and_architecture() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("kernels");
        for file in [
            "b.cu",
            "a.cuh",
            "ptx/sm_90/b.ptx",
            "ptx/sm_80/b.ptx",
            "README.md",
        ] {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let files = Files::of(&folder).unwrap();
        let set = kernels(&folder);
        let text = |ptx: &Ptx| {
            let text = table("mine", root.path(), &["b".to_owned()], ptx, &files).unwrap();
            text.replace(&format!("{}/", root.path().display()), "")
        };
        let expected = "kernel_set_table! {\npackage: \"mine\",\ncpu: [\n    \"b\" = simt_entry_b,\n],\nptx: [\n    \
            (80, \"sm_80/b.ptx\", include_str!(\"kernels/ptx/sm_80/b.ptx\")),\n    \
            (90, \"sm_90/b.ptx\", include_str!(\"kernels/ptx/sm_90/b.ptx\")),\n],\nno_ptx: \"\",\nsources: [\n    \
            (\"kernels/a.cuh\", include_str!(\"kernels/a.cuh\")),\n    \
            (\"kernels/b.cu\", include_str!(\"kernels/b.cu\")),\n],\n}\n";
        assert_eq!(text(&set.ptx(&files, None).unwrap()), expected);
        // Of PTX without a stamp nobody knows what it is of.
        let written = set.ptx_written_by("make ptx");
        let without = text(&written.ptx(&files, None).unwrap());
        assert!(without.contains("ptx: [\n],\nno_ptx: \""), "{without}");
        assert!(without.contains("`make ptx`"), "{without}");
    }

    #[test]
    fn a_named_set_has_a_table_and_a_library_of_its_own() {
        let set = kernels("kernels");
        assert_eq!(set.with_name(TABLE), "warpverbs_kernels");
        assert_eq!(
            set.named("doctor").with_name(LIBRARY),
            "simt_kernels_doctor"
        );
    }
}
