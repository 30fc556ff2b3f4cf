//! A URL as a store.

use std::sync::Arc;

#[cfg(feature = "etcd")]
use crate::EtcdStore;
use crate::{FileStore, Records, Store, StoreError};

/// Opens the store that `url` names for the run `run_id`.
///
/// - `file://DIRECTORY[?shared]`: a directory that exists. This user or root owns it. No other user can change it or replace a
///   directory above it, unless `shared` says that such users are trusted.
/// - `etcd://[USER:PASSWORD@]HOST:PORT[,HOST:PORT..]/PREFIX[?insecure]`: an etcd, in plain text. A password goes beyond this
///   machine only with `insecure`.
/// - `etcds://..[?ca=FILE&cert=FILE&key=FILE]`: an etcd by TLS 1.2 or later. The certificates of its members must name them, and
///   come from an authority of the file `ca`, or without it from one that browsers trust. `cert` and `key` are this rank's own;
///   only its user may read the key. Files are PEM, their names percent-encoded.
///
/// # Errors
/// Another kind of URL; an error of [`FileStore::open`] or `EtcdStore::open`.
pub fn open_store(url: &str, run_id: &str) -> Result<Arc<dyn Store>, StoreError> {
    let store: Arc<dyn Store> = match url.split_once("://") {
        Some(("file", rest)) if !rest.is_empty() => match rest.strip_suffix("?shared") {
            Some(directory) => Arc::new(FileStore::open_shared(directory.as_ref(), run_id)?),
            None => Arc::new(FileStore::open(rest.as_ref(), run_id)?),
        },
        Some(("etcd" | "etcds", _)) => open_etcd(url, run_id)?,
        _ => {
            return Err(StoreError::Url {
                url: url.to_owned(),
            });
        }
    };
    Ok(Arc::new(Records::new(store, run_id)?))
}

/// Returns an error unless `url` names a store that [`open_store`] could open. Nothing is opened.
///
/// # Errors
/// Another kind of URL, or an invalid address of an etcd.
pub fn check_url(url: &str) -> Result<(), StoreError> {
    match url.split_once("://") {
        Some(("file", rest)) if !rest.is_empty() => Ok(()),
        Some(("etcd" | "etcds", _)) => check_etcd(url),
        _ => Err(StoreError::Url {
            url: url.to_owned(),
        }),
    }
}

#[cfg(feature = "etcd")]
fn check_etcd(url: &str) -> Result<(), StoreError> {
    EtcdStore::check(url)
}

#[cfg(not(feature = "etcd"))]
fn check_etcd(_: &str) -> Result<(), StoreError> {
    Err(StoreError::NoEtcd)
}

#[cfg(feature = "etcd")]
fn open_etcd(url: &str, run_id: &str) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(EtcdStore::open(url, run_id)?))
}

#[cfg(not(feature = "etcd"))]
fn open_etcd(_: &str, _: &str) -> Result<Arc<dyn Store>, StoreError> {
    Err(StoreError::NoEtcd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_urls_open() {
        let message = open_store("redis://localhost", "1")
            .unwrap_err()
            .to_string();
        assert_eq!(
            message,
            "the store 'redis://localhost' (WARPVERBS_STORE) is not file://DIRECTORY or \
             etcd[s]://[USER:PASSWORD@]HOST:PORT[,HOST:PORT..]/PREFIX"
        );
    }
}
