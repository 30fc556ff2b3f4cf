//! Certificates for tests of TLS: an authority, and the certificates that it issues, as PEM files in one directory.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};

/// A certificate authority that a test has made.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: tempfile::TempDir,
    name: String,
}

/// The files of a certificate that an authority has issued.
pub struct Issued {
    /// The path of the certificate, as PEM.
    pub certificate: PathBuf,
    /// The path of its key, which only this user may read.
    pub key: PathBuf,
}

impl Authority {
    /// Makes an authority with the name `name`.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let authority = Self {
            issuer: CertifiedIssuer::self_signed(params, key).unwrap(),
            directory: tempfile::tempdir().unwrap(),
            name: name.to_owned(),
        };
        fs::write(authority.certificate(), authority.issuer.pem()).unwrap();
        authority
    }

    /// Returns the path of the authority's own certificate.
    pub fn certificate(&self) -> PathBuf {
        self.path("authority.pem")
    }

    /// Returns a path for a file that is removed when this is dropped.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Issues a certificate for servers and clients with `hosts`, which are names and addresses. `valid`: it has not expired.
    pub fn issue(&self, name: &str, hosts: &[&str], valid: bool) -> Issued {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(
            rcgen::DnType::CommonName,
            format!("{name} of {}", self.name),
        );
        // etcd's gateway is a client of its own server, and shows the server's certificate.
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(if valid { 2100 } else { 2021 }, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let issued = Issued {
            certificate: self.path(&format!("{name}.pem")),
            key: self.path(&format!("{name}.key")),
        };
        fs::write(&issued.certificate, certificate.pem()).unwrap();
        fs::write(&issued.key, key.serialize_pem()).unwrap();
        set_mode(&issued.key, 0o600);
        issued
    }
}

/// Changes which users may read and write `file`.
pub fn set_mode(file: &Path, mode: u32) {
    fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
}
