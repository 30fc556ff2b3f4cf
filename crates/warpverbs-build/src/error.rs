//! Why a set of kernels could not be made.

use std::io;
use std::path::PathBuf;

use crate::stamp::Unreadable;

/// What cargo calls the folder of the device library in build scripts of packages that depend on `warpverbs`.
pub(crate) const INCLUDE: &str = "DEP_WARPVERBS_INCLUDE";

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
    /// PTX of some kernels of a set: a device would run those, and compile the others or lack them.
    #[error(
        "there is no {}, and PTX of other kernels of the set: make all of it, or remove the folder",
        missing.display()
    )]
    PartOfPtx {
        /// Which file there is not.
        missing: PathBuf,
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

impl From<Unreadable> for BuildError {
    fn from(Unreadable { path, source }: Unreadable) -> Self {
        Self::File { path, source }
    }
}
