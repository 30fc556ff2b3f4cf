//! The errors of stores.

use std::path::PathBuf;
use std::time::Duration;

use crate::text::printable;
use crate::thread::{ThreadPanicked, ThreadRefused};

/// An error of a call on a store, with the place and the value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A text that is no URL of a store.
    #[error(
        "the store '{url}' (WARPVERBS_STORE) is not file://DIRECTORY or etcd[s]://[USER:PASSWORD@]HOST:PORT[,HOST:PORT..]/PREFIX"
    )]
    Url {
        /// The given value.
        url: String,
    },
    /// A directory that does not exist.
    #[error("the store directory {} does not exist; make it before the ranks start", directory.display())]
    Missing {
        /// The directory of the URL `file://`.
        directory: PathBuf,
    },
    /// A directory that another user could change.
    #[error(
        "the store {}: {} {problem}; make a directory that only user {uid} can change, or say that all users who can change \
         this one are trusted (WARPVERBS_STORE_SHARED=1, or file://DIRECTORY?shared)",
        directory.display(), part.display()
    )]
    Shared {
        /// The directory, symbolic links resolved.
        directory: PathBuf,
        /// The directory, or a directory above it, that gives others the right.
        part: PathBuf,
        /// The owner or the mode.
        problem: String,
        /// The user of this process.
        uid: u32,
    },
    /// A password that would cross a network in plain text.
    #[error(
        "the store '{url}' sends a password to {member} in plain text; use etcds://, or add ?insecure"
    )]
    PlainPassword {
        /// The URL without user and password.
        url: String,
        /// A member that is not on this machine.
        member: String,
    },
    /// A file that TLS needs and that cannot be used.
    #[error("{what} {}: {problem}", file.display())]
    Tls {
        /// The kind of the file.
        what: &'static str,
        /// The path of the file.
        file: PathBuf,
        /// Why it cannot be used.
        problem: String,
    },
    /// A place that was used by another run.
    #[error(
        "the store {store} belongs to run '{}', not to run '{wanted}'; each run needs an empty one",
        printable(found)
    )]
    OtherRun {
        /// The directory or prefix.
        store: String,
        /// The run whose keys are in it.
        found: String,
        /// The run that opened it.
        wanted: String,
    },
    /// A thread of the store, or of a lease, could not be started.
    #[error(transparent)]
    Thread(#[from] ThreadRefused),
    /// A thread of the store has panicked.
    #[error(transparent)]
    Panicked(#[from] ThreadPanicked),
    /// A build without etcd.
    #[cfg(not(feature = "etcd"))]
    #[error("a store etcd:// needs a build with the feature 'etcd', which this one lacks")]
    NoEtcd,
    /// No member of an etcd could be asked, or none answered a question. Nothing was changed.
    #[error(
        "no member of the etcd {store} could be asked within {waited:.1?} ({})",
        printable(cause)
    )]
    Unreachable {
        /// The members of the etcd.
        store: String,
        /// For how long it was tried.
        waited: Duration,
        /// The error of the last member that was tried, or of the way to it.
        cause: String,
    },
    /// A change that was sent to an etcd and got no answer. It may have been made or not: read the key.
    #[error(
        "the etcd {store} did not answer a change within {waited:.1?}; the change may have been made ({})",
        printable(cause)
    )]
    NoAnswer {
        /// The members of the etcd.
        store: String,
        /// How long the call took.
        waited: Duration,
        /// Revision of the key's newest change when the request was sent; 0 if the key was not set. The request changes
        /// nothing once the key has another one.
        seen: u64,
        /// The error in place of an answer.
        cause: String,
    },
    /// A request that an etcd refuses because of user, password, rights, or space.
    #[error("the etcd {store} refuses: {}", printable(message))]
    Refused {
        /// The members of the etcd.
        store: String,
        /// The message of the etcd.
        message: String,
    },
    /// An error of a map that another library keeps.
    #[error("the store {store}: {message}")]
    Foreign {
        /// The name of the map.
        store: String,
        /// The message of the map.
        message: String,
    },
    /// An interrupt of the calling program before the answer, by Ctrl-C for example. A change may have been made or not.
    #[error("the program was interrupted ({cause})")]
    Interrupted {
        /// The cause of the interrupt.
        cause: String,
    },
    /// A call about a lease on a store that carries no leases.
    #[error(
        "the store {store} carries no leases, by which ranks tell that they live; take file://DIRECTORY or \
         etcd://HOST:PORT/PREFIX (WARPVERBS_STORE)"
    )]
    NoLeases {
        /// The name of the store.
        store: String,
    },
    /// A text that is no valid key.
    #[error("'{key}' is not a key: names of letters, digits, '.', '_' and '-', joined by '/'")]
    Key {
        /// The given value.
        key: String,
    },
    /// A key or value above the limit.
    #[error("{what} '{key}' has {bytes} bytes; at most {limit} are kept")]
    TooLong {
        /// What is too long: the key or the value.
        what: &'static str,
        /// The key, shortened.
        key: String,
        /// Length of the key or value in bytes.
        bytes: usize,
        /// The largest allowed number of bytes.
        limit: usize,
    },
    /// A look at too many keys.
    #[error("a look names {keys} keys; at most {limit} are read at once")]
    TooMany {
        /// The number of keys that the look names.
        keys: usize,
        /// The largest allowed number of keys.
        limit: usize,
    },
    /// A time to live that no backend can keep.
    #[error("a lease of {ttl:?} on '{key}'; it must be {least:?} to {most:?}")]
    Ttl {
        /// The key that the lease was to hold.
        key: String,
        /// The requested time.
        ttl: Duration,
        /// The shortest allowed time.
        least: Duration,
        /// The longest allowed time.
        most: Duration,
    },
    /// A run id that cannot stand in a record.
    #[error("the run '{run}' must have 1 to {limit} bytes and no line break")]
    Run {
        /// The given value.
        run: String,
        /// The largest allowed number of bytes.
        limit: usize,
    },
    /// A record that another run or another version has written.
    #[error("the record '{key}' is {}, not {wanted}", printable(found))]
    OtherRecord {
        /// The key that holds the record.
        key: String,
        /// Version and run that wrote it.
        found: String,
        /// Version and run that read it.
        wanted: String,
    },
    /// Bytes that are no record at all.
    #[error("'{key}' holds {bytes} bytes that are no record of warpverbs")]
    NotARecord {
        /// The key that holds the bytes.
        key: String,
        /// Length of the value.
        bytes: usize,
    },
    /// A key that no rank has set in time.
    #[error("no rank has set '{key}' within {waited:.1?}")]
    Timeout {
        /// The key for which the call waited.
        key: String,
        /// How long the call has waited.
        waited: Duration,
    },
    /// A call whose bound passed because others changed the key each time before it could change or read the key. Nothing was changed.
    #[error(
        "the call on '{key}' had no turn within {waited:.1?}: others changed the key each time"
    )]
    Late {
        /// The key that the call was to change or read.
        key: String,
        /// How long the call took.
        waited: Duration,
    },
    /// An error of the file system.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::is_plain;

    #[test]
    fn what_a_store_has_said_is_shown_as_one_plain_line() {
        const TEXT: &str = "a\nERROR b\u{1b}[2J\u{202e}c\u{85}";
        let (text, store, wanted) = (TEXT.to_owned(), String::new(), String::new());
        let waited = Duration::ZERO;
        for error in [
            StoreError::Refused {
                store: store.clone(),
                message: text.clone(),
            },
            StoreError::Unreachable {
                store: store.clone(),
                waited,
                cause: text.clone(),
            },
            StoreError::NoAnswer {
                store: store.clone(),
                waited,
                seen: 0,
                cause: text.clone(),
            },
            StoreError::OtherRun {
                store,
                found: text.clone(),
                wanted: wanted.clone(),
            },
            StoreError::OtherRecord {
                key: "a".to_owned(),
                found: text,
                wanted,
            },
        ] {
            let shown = error.to_string();
            assert!(shown.chars().all(is_plain), "{shown:?}");
            assert!(shown.contains("a\\nERROR b\\u{1b}[2J"), "{shown}");
        }
    }
}
