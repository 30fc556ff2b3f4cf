//! The library, opened once by each engine that uses it.

use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};

use libfabric_abi::{Functions, Version};

use super::error::OfiError;

/// The file that the loader looks for.
const FILE: &str = "libfabric.so.1";

/// A libfabric that is loaded.
#[derive(Clone, Debug)]
pub(crate) struct Library {
    functions: Functions,
    path: PathBuf,
    /// What descriptions are asked of, as `fi_getinfo` takes it. Tests of a library that stands in for others have one.
    node: Option<CString>,
}

impl Library {
    /// Loads the library at `path`, or the one that the loader finds.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, OfiError> {
        let path = path.unwrap_or(Path::new(FILE));
        Ok(Self {
            functions: Functions::load(path)?,
            path: path.to_owned(),
            node: None,
        })
    }

    /// Returns the library, of which descriptions are asked with this node.
    #[cfg(test)]
    pub(crate) fn with_node(self, node: &str) -> Self {
        Self {
            node: CString::new(node).ok(),
            ..self
        }
    }

    /// Returns the node as calls take it.
    pub(super) fn node(&self) -> *const c_char {
        self.node
            .as_ref()
            .map_or(std::ptr::null(), |node| node.as_ptr())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn functions(&self) -> &Functions {
        &self.functions
    }

    /// Returns the release of the library.
    pub(crate) fn version(&self) -> Version {
        self.functions.version()
    }

    /// Returns the API version that all calls ask for.
    pub(crate) fn api(&self) -> Version {
        self.functions.api_version()
    }

    /// Returns the error of a call that has returned `result`. The sign does not matter.
    pub(super) fn error(&self, call: &'static str, domain: &str, result: i64) -> OfiError {
        let errno = i32::try_from(result.unsigned_abs()).unwrap_or(i32::MAX);
        OfiError::Call {
            call,
            domain: domain.to_owned(),
            errno,
            text: self.functions.error_text(errno),
        }
    }
}
