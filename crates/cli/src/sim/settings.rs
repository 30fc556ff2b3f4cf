//! The flags of `wv sim` as environment variables of the library, and the check of the variables by the library.
//!
//! The library reads its variables when a program looks for devices, which may be late or never. So `wv` asks it beforehand,
//! through two functions that it exports.

// UNSAFETY: opens the library and calls two functions of it.
#![expect(unsafe_code, reason = "calls into libsofthca.so")]

use std::env;
use std::ffi::{CString, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::child::loader_message;
use super::options::SimArgs;

/// The objection of the library, or why it could not be asked.
#[derive(Debug, Error)]
pub(super) enum SettingsError {
    #[error("{0}")]
    Objection(String),
    #[error("cannot ask {}: {}", .library.display(), loader_message(.source))]
    Library {
        library: PathBuf,
        source: libloading::Error,
    },
    #[error("{name}: a value with a zero byte")]
    Zero { name: &'static str },
    #[error("cannot use {} for the capture: {source}", .path.display())]
    Path {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// The variables that the library checks besides those that `wv` itself sets.
const CHECKED: [&str; 14] = [
    "SOFTHCA_PROFILE",
    "SOFTHCA_LINK",
    "SOFTHCA_PORTS",
    "SOFTHCA_IPV6",
    "SOFTHCA_LMC",
    "SOFTHCA_LOG_MAX_MR",
    "SOFTHCA_PKEYS",
    "SOFTHCA_FAULT",
    "SOFTHCA_CHECK",
    "SOFTHCA_CARRIER",
    "SOFTHCA_STRICT",
    "SOFTHCA_SCHEDULE_SEED",
    "SOFTHCA_ORDER",
    "SOFTHCA_ADVERSARY",
];

/// Returns the variables that the flags stand for.
pub(super) fn variables(args: &SimArgs) -> Result<Vec<(&'static str, OsString)>, SettingsError> {
    let mut variables = vec![("SOFTHCA_DEVICES", args.devices.to_string().into())];
    let given = [
        ("SOFTHCA_IP", args.ip.map(|ip| ip.to_string())),
        ("SOFTHCA_PORTS", args.ports.clone()),
        ("SOFTHCA_IPV6", args.ipv6.clone()),
        ("SOFTHCA_LMC", args.lmc.clone()),
        ("SOFTHCA_PKEYS", args.pkeys.clone()),
        ("SOFTHCA_PROFILE", args.profile.clone()),
        ("SOFTHCA_LINK", args.link.clone()),
        ("SOFTHCA_FAULT", args.fault.clone()),
        ("SOFTHCA_CHECK", args.check.clone()),
        ("SOFTHCA_CARRIER", args.carrier.clone()),
        ("SOFTHCA_EXECUTION", args.execution.map(str::to_owned)),
    ];
    for (name, value) in given {
        variables.extend(value.map(|value| (name, OsString::from(value))));
    }
    if let Some(path) = &args.pcap {
        // The path is made absolute, because the program may change its directory before it looks for devices.
        let path = std::path::absolute(path).map_err(|source| SettingsError::Path {
            path: path.clone(),
            source,
        })?;
        variables.push(("SOFTHCA_PCAP", path.into()));
    }
    Ok(variables)
}

/// Lets the library check the variables, those included that are set already.
pub(super) fn check(
    library: &Path,
    variables: &[(&'static str, OsString)],
) -> Result<(), SettingsError> {
    let set = CHECKED.into_iter().filter_map(|name| {
        let given = variables.iter().any(|(other, _)| *other == name);
        let value = env::var_os(name).filter(|value| !given && !value.is_empty())?;
        Some((name, value))
    });
    let asked: Vec<_> = variables.iter().cloned().chain(set).collect();
    let library = Library::open(library)?;
    for (name, value) in &asked {
        if let Some(text) = library.objection(name, value)? {
            return Err(SettingsError::Objection(text));
        }
    }
    Ok(())
}

/// Returns the capabilities that a device has and lacks, as text.
pub(super) fn capabilities(library: &Path) -> Result<String, SettingsError> {
    Library::open(library)?.capabilities()
}

type Objection = unsafe extern "C" fn(*const c_char, *const c_char, *mut c_char, usize) -> usize;
type Capabilities = unsafe extern "C" fn(*mut c_char, usize) -> usize;

struct Library {
    path: PathBuf,
    /// The loaded library. It is never closed, because it does not expect that.
    handle: &'static libloading::Library,
}

impl Library {
    fn open(path: &Path) -> Result<Self, SettingsError> {
        // SAFETY: its initialiser chooses a path and sets an environment variable, which is harmless here: one thread runs.
        let handle =
            unsafe { libloading::Library::new(path) }.map_err(|source| SettingsError::Library {
                library: path.to_owned(),
                source,
            })?;
        Ok(Self {
            path: path.to_owned(),
            handle: Box::leak(Box::new(handle)),
        })
    }

    fn symbol<T>(&self, name: &str) -> Result<libloading::Symbol<'static, T>, SettingsError> {
        // SAFETY: the callers give the type that the library gives its function of this name.
        unsafe { self.handle.get(name.as_bytes()) }.map_err(|source| SettingsError::Library {
            library: self.path.clone(),
            source,
        })
    }

    fn objection(
        &self,
        name: &'static str,
        value: &OsStr,
    ) -> Result<Option<String>, SettingsError> {
        let call = self.symbol::<Objection>("softhca_objection")?;
        let zero = |_| SettingsError::Zero { name };
        let value = CString::new(value.as_bytes()).map_err(zero)?;
        let key = CString::new(name).map_err(zero)?;
        let text = text(|room, bytes| {
            // SAFETY: two C strings, and a buffer of the length given.
            unsafe { call(key.as_ptr(), value.as_ptr(), room, bytes) }
        });
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    fn capabilities(&self) -> Result<String, SettingsError> {
        let call = self.symbol::<Capabilities>("softhca_capabilities")?;
        // SAFETY: a buffer of the length given.
        Ok(text(|room, bytes| unsafe { call(room, bytes) }))
    }
}

/// Returns the whole text of a function that copies as much as the buffer can take, and returns the length of all of it.
fn text(call: impl Fn(*mut c_char, usize) -> usize) -> String {
    let mut bytes = vec![0u8; 16 << 10];
    let length = call(bytes.as_mut_ptr().cast(), bytes.len());
    bytes.truncate(length);
    String::from_utf8_lossy(&bytes).into_owned()
}
