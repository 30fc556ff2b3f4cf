//! Where ranks find each other: a small map of keys to bytes that all of them can reach.

mod file;
mod memory;

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use file::FileStore;
pub use memory::MemoryStore;

/// A map that all ranks reach. A key is one or more names joined by `/`; a name has letters, digits, `.`, `_` and `-`.
pub trait Store: Send + Sync + Debug {
    /// Sets `key`. Readers see the old or the new value, never a part.
    fn put(&self, key: &str, value: &[u8]) -> Result<(), StoreError>;

    /// The value of `key` now.
    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Sets `key` to `value` if it is `expected` (`None`: not set), in one step. Returns whether it did.
    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, StoreError>;

    /// The names directly below `key` that have been set, sorted; none if there is nothing.
    fn list(&self, key: &str) -> Result<Vec<String>, StoreError>;

    /// Returns when something may have changed, at latest after `timeout`. May return early.
    fn wait_for_change(&self, timeout: Duration);

    /// Waits until `key` is set, at most until `deadline`.
    fn get(&self, key: &str, deadline: Instant) -> Result<Vec<u8>, StoreError> {
        let start = Instant::now();
        loop {
            if let Some(value) = self.try_get(key)? {
                return Ok(value);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(StoreError::Timeout {
                    key: key.to_owned(),
                    waited: start.elapsed(),
                });
            }
            self.wait_for_change(left);
        }
    }
}

/// Opens the store that `url` names for the run `run_id`: `file://DIRECTORY`, which must exist.
///
/// # Errors
/// Another kind of URL; what [`FileStore::open`] refuses.
pub fn open_store(url: &str, run_id: &str) -> Result<Arc<dyn Store>, StoreError> {
    match url.strip_prefix("file://") {
        Some(directory) if !directory.is_empty() => {
            Ok(Arc::new(FileStore::open(directory.as_ref(), run_id)?))
        }
        _ => Err(StoreError::Url {
            url: url.to_owned(),
        }),
    }
}

/// An error of a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Not a URL of a store.
    #[error("the store '{url}' (WARPVERBS_STORE) is not file://DIRECTORY")]
    Url {
        /// What was given.
        url: String,
    },
    /// The directory does not exist.
    #[error("the store directory {} does not exist; make it before the ranks start", directory.display())]
    Missing {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory was used by another run.
    #[error("the store directory {} belongs to run '{found}', not to run '{wanted}'; each run needs an empty one", directory.display())]
    OtherRun {
        /// The directory.
        directory: PathBuf,
        /// The run whose keys are in it.
        found: String,
        /// The run that opened it.
        wanted: String,
    },
    /// A key that is no key.
    #[error("'{key}' is not a key: names of letters, digits, '.', '_' and '-', joined by '/'")]
    Key {
        /// What was given.
        key: String,
    },
    /// Nobody set the key in time.
    #[error("nobody has set '{key}' within {waited:.1?}")]
    Timeout {
        /// The key.
        key: String,
        /// How long was waited.
        waited: Duration,
    },
    /// The file system.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Refuses a key that could leave the store's directory or is empty somewhere.
fn check_key(key: &str) -> Result<(), StoreError> {
    let name_ok = |name: &str| {
        !name.is_empty()
            && !name.starts_with('.')
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    if key.split('/').all(name_ok) {
        return Ok(());
    }
    Err(StoreError::Key {
        key: key.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_cannot_leave_the_store() {
        for key in ["", "/", "a/", "/a", "../a", "a/../b", "a b", "a/.hidden"] {
            assert!(
                matches!(check_key(key), Err(StoreError::Key { .. })),
                "{key}"
            );
        }
        assert!(check_key("window-3/rank_1.json").is_ok());
    }

    #[test]
    fn only_file_urls_open() {
        let message = open_store("etcd://localhost", "1").unwrap_err().to_string();
        assert_eq!(
            message,
            "the store 'etcd://localhost' (WARPVERBS_STORE) is not file://DIRECTORY"
        );
    }
}
