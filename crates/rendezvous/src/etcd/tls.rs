//! The certificates and the key of a connection to an etcd.

use std::fs::File;
use std::path::Path;

use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use super::address::TlsFiles;
use crate::StoreError;
use crate::trust::{read_bounded, read_secret};

/// The most bytes of a file that is read.
const MAX_FILE: u64 = 1 << 20;

/// Returns the TLS configuration of a connection with these files.
///
/// # Errors
/// [`StoreError::Tls`]: a file that cannot be read or has other contents than expected, or a key that others may read.
pub(super) fn config(files: &TlsFiles) -> Result<TlsConfig, StoreError> {
    let mut config = TlsConfig::builder();
    if let Some(file) = &files.authorities {
        config = config.root_certs(RootCerts::new_with_certs(&certificates(
            "the CA file",
            file,
        )?));
    }
    if let Some((certificate, key)) = &files.identity {
        let chain = certificates("the certificate file", certificate)?;
        config = config.client_cert(Some(ClientCert::new_with_certs(&chain, private_key(key)?)));
    }
    Ok(config.build())
}

fn certificates(what: &'static str, file: &Path) -> Result<Vec<Certificate<'static>>, StoreError> {
    let bytes = read(what, file)?;
    let mut found = Vec::new();
    for item in parse_pem(&bytes) {
        match item {
            Ok(PemItem::Certificate(certificate)) => found.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(unusable(what, file, error.to_string())),
        }
    }
    if found.is_empty() {
        Err(unusable(what, file, "it holds no certificate".to_owned()))
    } else {
        Ok(found)
    }
}

fn private_key(file: &Path) -> Result<PrivateKey<'static>, StoreError> {
    const WHAT: &str = "the key file";
    let bytes = read_secret(file, MAX_FILE).map_err(|problem| unusable(WHAT, file, problem))?;
    PrivateKey::from_pem(&bytes).map_err(|_| unusable(WHAT, file, "it holds no key".to_owned()))
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, StoreError> {
    let file = File::open(path).map_err(|error| unusable(what, path, error.to_string()))?;
    read_bounded(&file, MAX_FILE).map_err(|problem| unusable(what, path, problem))
}

fn unusable(what: &'static str, file: &Path, problem: String) -> StoreError {
    StoreError::Tls {
        what,
        file: file.to_owned(),
        problem,
    }
}
