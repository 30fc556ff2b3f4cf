//! Why kernels could not be built.

use std::io;
use std::path::PathBuf;

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
