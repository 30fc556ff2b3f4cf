//! The certificates and the key of a connection to an etcd.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use super::address::TlsFiles;
use crate::StoreError;
use crate::trust::problem_of_secret;

/// Largest file that is read.
const MAX_FILE: u64 = 1 << 20;

/// What a connection needs of `files`.
///
/// # Errors
/// [`StoreError::Tls`]: a file that cannot be read, that holds nothing of what it should, or a key that others may read.
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
    let bytes = read(what, file, &File::open(file))?;
    let mut found = Vec::new();
    for item in parse_pem(&bytes) {
        match item {
            Ok(PemItem::Certificate(certificate)) => found.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(unusable(what, file, error.to_string())),
        }
    }
    match found.is_empty() {
        true => Err(unusable(what, file, "it holds no certificate".to_owned())),
        false => Ok(found),
    }
}

fn private_key(file: &Path) -> Result<PrivateKey<'static>, StoreError> {
    const WHAT: &str = "the key file";
    let opened = File::open(file);
    // Of the file that is open, whatever the name stands for by now.
    if let Ok(key) = &opened {
        let of = key
            .metadata()
            .map_err(|error| unusable(WHAT, file, error.to_string()))?;
        if let Some(problem) = problem_of_secret(&of) {
            return Err(unusable(WHAT, file, problem));
        }
    }
    let bytes = read(WHAT, file, &opened)?;
    PrivateKey::from_pem(&bytes).map_err(|_| unusable(WHAT, file, "it holds no key".to_owned()))
}

fn read(
    what: &'static str,
    path: &Path,
    file: &std::io::Result<File>,
) -> Result<Vec<u8>, StoreError> {
    let file = file
        .as_ref()
        .map_err(|error| unusable(what, path, error.to_string()))?;
    let mut bytes = Vec::new();
    let read = file.take(MAX_FILE + 1).read_to_end(&mut bytes);
    read.map_err(|error| unusable(what, path, error.to_string()))?;
    match bytes.len() as u64 > MAX_FILE {
        true => Err(unusable(
            what,
            path,
            format!("it has more than {MAX_FILE} bytes"),
        )),
        false => Ok(bytes),
    }
}

fn unusable(what: &'static str, file: &Path, problem: String) -> StoreError {
    StoreError::Tls {
        what,
        file: file.to_owned(),
        problem,
    }
}
