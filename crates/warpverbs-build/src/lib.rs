//! For build scripts: makes a set of kernels, which a device of Warpverbs takes by `Gpu::add_kernels`.
//!
//! A crate keeps its `.cu` files and their headers in a folder, PTX that it has compiled beforehand below `ptx/sm_NN` of it:
//!
//! ```no_run
//! // build.rs, of a package that depends on `warpverbs`
//! warpverbs_build::kernels("kernels").compile();
//! ```
//!
//! ```ignore
//! // lib.rs or main.rs
//! warpverbs::kernels! { static KERNELS }
//! // and where it has a device
//! gpu.add_kernels(&KERNELS)?;
//! ```
//!
//! The set holds the kernels compiled for the CPU by the C++ compiler (`simt::build` says how), and the PTX by architecture. It
//! also holds the text of every `.cu`, `.cuh` and `.h` file. NVRTC compiles that text where the set has no PTX, or where the driver
//! cannot read it. A kernel is what its source exports by `WV_EXPORT(name)`.
//!
//! `#include <warpverbs/put.cuh>` finds the device library of the `warpverbs` that the package depends on. Its build script
//! passes the folder to those of its dependents, as `DEP_WARPVERBS_INCLUDE`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// What cargo calls the folder of the device library in build scripts of packages that depend on `warpverbs`.
const INCLUDE: &str = "DEP_WARPVERBS_INCLUDE";

/// What `warpverbs::kernels!` includes from `OUT_DIR`.
const TABLE: &str = "warpverbs_kernels.rs";

/// Starts a set of the kernels in `folder`, relative to the package, and in the folders below it.
#[must_use]
pub fn kernels(folder: impl Into<PathBuf>) -> Kernels {
    Kernels {
        folder: folder.into(),
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
    include: Vec<PathBuf>,
    define: Vec<(String, Option<String>)>,
    quick: Vec<PathBuf>,
    for_cpu: bool,
    for_gpu: bool,
}

/// Why a set could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Of the kernels for the CPU.
    #[error(transparent)]
    Cpu(#[from] simt::build::BuildError),
    /// A file or folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A PTX file that belongs to no architecture.
    #[error("{} is not below {}/sm_NN", path.display(), folder.display())]
    NoArchitecture {
        /// Which one.
        path: PathBuf,
        /// The folder of PTX.
        folder: PathBuf,
    },
    /// A path that is no Unicode, which a table in Rust cannot hold.
    #[error("{} is not Unicode", path.display())]
    NotUnicode {
        /// Which one.
        path: PathBuf,
    },
    /// No device library.
    #[error(
        "the device library was not found: {INCLUDE} is not set. The package must name warpverbs under [dependencies], or this script call include()"
    )]
    NoDeviceLibrary,
    /// An environment variable that cargo sets for build scripts is missing.
    #[error("{name} is not set: warpverbs-build runs in build scripts only")]
    NotABuildScript {
        /// Which one.
        name: &'static str,
    },
}

impl Kernels {
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
        let cpu = match self.for_cpu {
            true => self.compile_for_cpu(&files.kernels)?,
            false => Vec::new(),
        };
        let package = variable("CARGO_PKG_NAME")?;
        let embedded = match self.for_gpu {
            true => files,
            false => Files::default(),
        };
        let package = package.to_string_lossy();
        let table = table(&package, &root, &self.folder, &cpu, &embedded)?;
        let path = PathBuf::from(variable("OUT_DIR")?).join(TABLE);
        fs::write(&path, table).map_err(|source| BuildError::File { path, source })
    }

    /// Their names.
    fn compile_for_cpu(&self, sources: &[PathBuf]) -> Result<Vec<String>, BuildError> {
        let library = match env::var_os(INCLUDE) {
            Some(folder) => vec![PathBuf::from(folder)],
            None if self.include.is_empty() => return Err(BuildError::NoDeviceLibrary),
            None => Vec::new(),
        };
        let mut build = simt::build::kernels(sources);
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

/// What is in the folder of a set, sorted.
#[derive(Debug, Default)]
struct Files {
    kernels: Vec<PathBuf>,
    headers: Vec<PathBuf>,
    ptx: Vec<PathBuf>,
}

impl Files {
    fn of(folder: &Path) -> Result<Self, BuildError> {
        let mut files = Self::default();
        files.collect(folder)?;
        for list in [&mut files.kernels, &mut files.headers, &mut files.ptx] {
            list.sort();
        }
        Ok(files)
    }

    fn collect(&mut self, folder: &Path) -> Result<(), BuildError> {
        // Also new files: cargo looks at everything below.
        println!("cargo::rerun-if-changed={}", folder.display());
        let refused = |source| BuildError::File {
            path: folder.to_owned(),
            source,
        };
        for entry in fs::read_dir(folder).map_err(refused)? {
            let path = entry.map_err(refused)?.path();
            let suffix = path.extension().and_then(|suffix| suffix.to_str());
            match suffix {
                _ if path.is_dir() => self.collect(&path)?,
                Some("cu") => self.kernels.push(path),
                Some("cuh" | "h") => self.headers.push(path),
                Some("ptx") => self.ptx.push(path),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The call of a macro of `warpverbs`, which makes a set.
fn table(
    package: &str,
    root: &Path,
    folder: &Path,
    cpu: &[String],
    files: &Files,
) -> Result<String, BuildError> {
    let mut out = format!("kernel_set_table! {{\npackage: {package:?},\ncpu: [\n");
    for name in cpu {
        let _ = writeln!(out, "    {name:?} = simt_entry_{name},");
    }
    out += "],\nptx: [\n";
    let ptx_folder = folder.join("ptx");
    for file in &files.ptx {
        let (arch, path) = architecture(file, &ptx_folder)?;
        let text = unicode(&root.join(file))?;
        let _ = writeln!(out, "    ({arch}, {path:?}, include_str!({text:?})),");
    }
    out += "],\nsources: [\n";
    let mut sources: Vec<_> = files.kernels.iter().chain(&files.headers).collect();
    sources.sort();
    for file in sources {
        let (name, text) = (unicode(file)?, unicode(&root.join(file))?);
        let _ = writeln!(out, "    ({name:?}, include_str!({text:?})),");
    }
    Ok(out + "],\n}\n")
}

/// `90` and `sm_90/bench/post.ptx`.
fn architecture(file: &Path, folder: &Path) -> Result<(u32, String), BuildError> {
    let parsed = || {
        let path = file.strip_prefix(folder).ok()?;
        let arch = path.iter().next()?.to_str()?.strip_prefix("sm_")?;
        Some((arch.parse().ok()?, path.to_str()?.to_owned()))
    };
    parsed().ok_or_else(|| BuildError::NoArchitecture {
        path: file.to_owned(),
        folder: folder.to_owned(),
    })
}

fn unicode(path: &Path) -> Result<String, BuildError> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| BuildError::NotUnicode {
        path: path.to_owned(),
    })
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
        let text = table("mine", root.path(), &folder, &["b".to_owned()], &files).unwrap();
        let text = text.replace(&format!("{}/", root.path().display()), "");
        let expected = "kernel_set_table! {\npackage: \"mine\",\ncpu: [\n    \"b\" = simt_entry_b,\n],\nptx: [\n    \
            (80, \"sm_80/b.ptx\", include_str!(\"kernels/ptx/sm_80/b.ptx\")),\n    \
            (90, \"sm_90/b.ptx\", include_str!(\"kernels/ptx/sm_90/b.ptx\")),\n],\nsources: [\n    \
            (\"kernels/a.cuh\", include_str!(\"kernels/a.cuh\")),\n    \
            (\"kernels/b.cu\", include_str!(\"kernels/b.cu\")),\n],\n}\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn ptx_outside_of_an_architecture_is_refused_by_name() {
        let folder = Path::new("kernels/ptx");
        for path in [
            "kernels/ptx/a.ptx",
            "kernels/ptx/sm_x/a.ptx",
            "kernels/a.ptx",
        ] {
            let error = architecture(Path::new(path), folder).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("{path} is not below kernels/ptx/sm_NN")
            );
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = Files::of(Path::new("no/such")).unwrap_err().to_string();
        assert!(error.starts_with("no/such: "), "{error}");
    }
}
