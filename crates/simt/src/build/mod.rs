//! Builds kernels in build scripts: compiles `.cu` files for the CPU and lists their kernels.
//!
//! ```no_run
//! // build.rs
//! simt::build::kernels(["kernels/saxpy.cu"]).include("kernels/include").compile();
//! ```
//!
//! ```ignore
//! // lib.rs or main.rs: `pub static KERNELS: &[simt::Kernel]`
//! include!(concat!(env!("OUT_DIR"), "/simt_kernels.rs"));
//! ```
//!
//! Sources are compiled with `-x c++ -std=c++20 -O2 -fno-strict-aliasing -fexceptions -ffp-contract=off -g1`, whatever the profile. The compiler
//! is that of the `cc` crate: `$CXX`, else `c++`. `SIMT_DEBUG_PACKAGE` names a file that is compiled for a debugger. A kernel is listed when its source says `SIMT_EXPORT(name)` or
//! `WV_EXPORT(name)`.

mod reuse;
mod scan;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{env, fs, io, thread};

use scan::exported_kernels;

/// Returns the directory of `simt.cuh`.
#[must_use]
pub fn include_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// Starts a build of these sources, named relative to the package.
pub fn kernels<P: Into<PathBuf>>(sources: impl IntoIterator<Item = P>) -> Kernels {
    Kernels {
        sources: sources.into_iter().map(Into::into).collect(),
        includes: Vec::new(),
        defines: Vec::new(),
        quick: Vec::new(),
        library: "simt_kernels".to_owned(),
    }
}

/// A build of kernels; see [`kernels`].
#[derive(Clone, Debug)]
pub struct Kernels {
    sources: Vec<PathBuf>,
    includes: Vec<PathBuf>,
    defines: Vec<(String, Option<String>)>,
    quick: Vec<PathBuf>,
    library: String,
}

/// Why kernels could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A C++ compiler that does not run.
    #[error(
        "no C++ compiler: `{compiler}` does not run ({source}). On Debian and Ubuntu: apt-get install g++ (or set CXX)"
    )]
    NoCompiler {
        /// The compiler that was tried.
        compiler: String,
        /// Why it did not run.
        source: io::Error,
    },
    /// A file that cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Sources of which none exports a kernel.
    #[error("no SIMT_EXPORT(kernel) or WV_EXPORT(kernel) in {}", sources.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", "))]
    NoKernels {
        /// The sources that were searched.
        sources: Vec<PathBuf>,
    },
    /// Two kernels with one name.
    #[error("kernel {name} is exported by {} and by {}", first.display(), second.display())]
    Duplicate {
        /// The name that both files export.
        name: String,
        /// The first source.
        first: PathBuf,
        /// The second source, which may be the first.
        second: PathBuf,
    },
    /// An environment variable that cargo sets for build scripts and that is missing.
    #[error("{name} is not set: simt::build runs in build scripts only")]
    NotABuildScript {
        /// The name of the variable.
        name: &'static str,
    },
    /// A source that the compiler refused. The compiler has printed why.
    #[error("the kernels do not compile: {0}")]
    Compile(String),
}

impl Kernels {
    /// Adds a directory of headers.
    #[must_use]
    pub fn include(mut self, directory: impl Into<PathBuf>) -> Self {
        self.includes.push(directory.into());
        self
    }

    /// Defines a macro.
    #[must_use]
    pub fn define<'a>(mut self, name: &str, value: impl Into<Option<&'a str>>) -> Self {
        self.defines
            .push((name.to_owned(), value.into().map(str::to_owned)));
        self
    }

    /// Optimises sources whose path begins with `prefix` less. This is for big kernels that run seldom, such as tests that hold every
    /// variant of a function. It halves the time to compile them.
    #[must_use]
    pub fn quick(mut self, prefix: impl Into<PathBuf>) -> Self {
        self.quick.push(prefix.into());
        self
    }

    /// Sets the name of the static library, for packages that build several. Default: `simt_kernels`.
    #[must_use]
    pub fn library(mut self, name: &str) -> Self {
        name.clone_into(&mut self.library);
        self
    }

    /// Compiles and links the kernels and writes `$OUT_DIR/simt_kernels.rs`. On an error it reports to cargo and ends the script.
    pub fn compile(&self) {
        if let Err(error) = self.try_compile() {
            println!("cargo::error={}", error.to_string().replace('\n', " "));
            std::process::exit(1);
        }
    }

    /// As [`compile`](Self::compile), for scripts that handle errors themselves.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn try_compile(&self) -> Result<(), BuildError> {
        for path in self
            .sources
            .iter()
            .chain(&self.includes)
            .chain([&include_dir()])
        {
            println!("cargo::rerun-if-changed={}", path.display());
        }
        let table = self.table()?;
        let out = PathBuf::from(variable("OUT_DIR")?).join("simt_kernels.rs");
        fs::write(&out, table).map_err(|source| BuildError::File { path: out, source })?;

        let mut build = cc::Build::new();
        build
            .cpp(true)
            .std("c++20")
            .opt_level(2)
            .debug(false)
            .warnings(false);
        // gcc does not know the suffix, clang would take it for CUDA.
        for flag in [
            "-g1",
            "-x",
            "c++",
            "-fno-strict-aliasing",
            "-fexceptions",
            "-ffp-contract=off",
            "-Wall",
            "-Wextra",
        ] {
            build.flag(flag);
        }
        build.include(include_dir()).includes(&self.includes);
        for (name, value) in &self.defines {
            build.define(name, value.as_deref());
        }
        require_compiler(&build)?;
        sanitize(&mut build)?;
        build.objects(self.objects(&build)?);
        build
            .try_compile(&self.library)
            .map_err(|error| BuildError::Compile(error.to_string()))
    }

    /// Compiles the sources, as many at a time as cargo allows.
    fn objects(&self, build: &cc::Build) -> Result<Vec<PathBuf>, BuildError> {
        let jobs = env::var("NUM_JOBS")
            .ok()
            .and_then(|jobs| jobs.parse().ok())
            .unwrap_or(1)
            .max(1);
        let out = PathBuf::from(variable("OUT_DIR")?);
        let debugged = debugged()?;
        let next = AtomicUsize::new(0);
        let worker = || {
            let mut objects = Vec::new();
            while let Some(source) = self.sources.get(next.fetch_add(1, Relaxed)) {
                let quick = |prefix: &PathBuf| {
                    let path = source.as_os_str().as_encoded_bytes();
                    path.starts_with(prefix.as_os_str().as_encoded_bytes())
                };
                let mut build = build.clone();
                if self.quick.iter().any(quick) {
                    build.flag("-Og");
                }
                if debugged
                    .as_deref()
                    .is_some_and(|name| source.ends_with(name))
                {
                    build.flag("-Og").flag("-g");
                }
                objects.extend(reuse::object(&build, source, &out)?);
            }
            Ok(objects)
        };
        let results: Vec<Result<Vec<PathBuf>, BuildError>> = thread::scope(|scope| {
            let spawned: Vec<_> = (0..jobs.min(self.sources.len()))
                .map(|_| scope.spawn(worker))
                .collect();
            let joined = spawned.into_iter().map(thread::ScopedJoinHandle::join);
            joined
                .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        let objects: Result<Vec<_>, _> = results.into_iter().collect();
        Ok(objects?.concat())
    }

    /// Returns the kernels that the sources export, in their order. The entry of kernel `NAME` is the C symbol `simt_entry_NAME`.
    ///
    /// # Errors
    /// [`BuildError::File`], [`BuildError::Duplicate`], [`BuildError::NoKernels`].
    pub fn names(&self) -> Result<Vec<String>, BuildError> {
        let mut found: Vec<(String, &Path)> = Vec::new();
        for source in &self.sources {
            let text = fs::read_to_string(source).map_err(|error| BuildError::File {
                path: source.clone(),
                source: error,
            })?;
            for name in exported_kernels(&text) {
                if let Some((_, first)) = found.iter().find(|(other, _)| *other == name) {
                    return Err(BuildError::Duplicate {
                        name,
                        first: first.to_path_buf(),
                        second: source.clone(),
                    });
                }
                found.push((name, source));
            }
        }
        if found.is_empty() {
            return Err(BuildError::NoKernels {
                sources: self.sources.clone(),
            });
        }
        Ok(found.into_iter().map(|(name, _)| name).collect())
    }

    /// Returns the text of `simt_kernels.rs`.
    fn table(&self) -> Result<String, BuildError> {
        let rows: String = self
            .names()?
            .iter()
            .map(|name| format!("    \"{name}\" = simt_entry_{name},\n"))
            .collect();
        Ok(format!("::simt::kernel_table! {{\n{rows}}}\n"))
    }
}

fn variable(name: &'static str) -> Result<OsString, BuildError> {
    env::var_os(name).ok_or(BuildError::NotABuildScript { name })
}

/// Returns the file name of the source that is compiled for a debugger, with variables and little optimisation. The environment variable of
/// the package names it (`SIMT_DEBUG_TEST_SUPPORT=hello.cu`). Each package has its own variable, so that no other package is built again.
fn debugged() -> Result<Option<OsString>, BuildError> {
    let package = variable("CARGO_PKG_NAME")?.to_string_lossy().into_owned();
    let name = format!("SIMT_DEBUG_{}", package.replace('-', "_").to_uppercase());
    println!("cargo::rerun-if-env-changed={name}");
    Ok(env::var_os(name))
}

/// Adds the flags for the features `tsan` and `asan` of this crate to a build of kernels.
fn sanitize(build: &mut cc::Build) -> Result<(), BuildError> {
    if cfg!(feature = "tsan") {
        // The headers call the checker where the compiler does not.
        build.flag("-fsanitize=thread").define("SIMT_TSAN", None);
    }
    if cfg!(feature = "asan") {
        build.flag("-fsanitize=address");
        // rustc links without gcc's own libraries, so the archive of the runtime is named. A shared library would have to come first.
        let file = |name: &str| {
            let tool = build
                .try_get_compiler()
                .map_err(|error| BuildError::Compile(error.to_string()))?;
            let output = tool
                .to_command()
                .arg(format!("-print-file-name={name}"))
                .output();
            let output = output.map_err(|source| BuildError::NoCompiler {
                compiler: tool.path().display().to_string(),
                source,
            })?;
            let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            if Path::new(&path).is_absolute() {
                Ok(path)
            } else {
                Err(BuildError::Compile(format!(
                    "{} has no {name}: install the AddressSanitizer of the compiler",
                    tool.path().display()
                )))
            }
        };
        let (preinit, archive) = (file("libasan_preinit.o")?, file("libasan.a")?);
        println!("cargo::rustc-link-arg={preinit}");
        println!("cargo::rustc-link-arg=-Wl,--whole-archive,{archive},--no-whole-archive");
        println!("cargo::rustc-link-arg=-lstdc++");
        println!("cargo::rustc-link-arg=-lm");
    }
    Ok(())
}

/// Returns an error if the compiler does not run. The `cc` crate would report that per file, and not say how to get a compiler.
fn require_compiler(build: &cc::Build) -> Result<(), BuildError> {
    let tool = build
        .try_get_compiler()
        .map_err(|error| BuildError::Compile(error.to_string()))?;
    match Command::new(tool.path()).arg("--version").output() {
        Ok(_) => Ok(()),
        Err(source) => Err(BuildError::NoCompiler {
            compiler: tool.path().display().to_string(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the table of these sources, or the error with paths cut to file names.
    fn table(sources: &[&str]) -> Result<String, String> {
        let directory = tempfile::tempdir().unwrap();
        let names = (0..sources.len()).map(|i| directory.path().join(format!("{i}.cu")));
        let paths: Vec<PathBuf> = names.collect();
        for (path, text) in paths.iter().zip(sources) {
            fs::write(path, text).unwrap();
        }
        let cut = |error: BuildError| {
            error
                .to_string()
                .replace(&format!("{}/", directory.path().display()), "")
        };
        kernels(paths).table().map_err(cut)
    }

    #[test]
    fn the_table_lists_the_kernels_of_all_sources() {
        let expected =
            "::simt::kernel_table! {\n    \"a\" = simt_entry_a,\n    \"b\" = simt_entry_b,\n}\n";
        assert_eq!(
            table(&["SIMT_EXPORT(a)", "WV_EXPORT(b)"]).unwrap(),
            expected
        );
    }

    #[test]
    fn no_kernels_and_doubled_kernels_are_errors_that_name_the_sources() {
        let none = "no SIMT_EXPORT(kernel) or WV_EXPORT(kernel) in 0.cu, 1.cu";
        assert_eq!(table(&["", "// SIMT_EXPORT(a)"]).unwrap_err(), none);
        let twice = "kernel a is exported by 0.cu and by 1.cu";
        assert_eq!(
            table(&["SIMT_EXPORT(a)", "SIMT_EXPORT(a)"]).unwrap_err(),
            twice
        );
    }

    #[test]
    fn a_missing_source_is_named() {
        let error = kernels(["no/such.cu"]).table().unwrap_err().to_string();
        assert!(error.starts_with("no/such.cu: No such file"), "{error}");
    }
}
