//! Files and directories of sysfs, read up to a bound.
//!
//! A test or a mount of a container may put anything below the root: a pipe that nothing writes to, a file without end, or a link
//! in a loop.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Most bytes of a file of sysfs: the kernel gives an attribute one page, of 4,096 bytes if pages are smallest.
const LONGEST: u64 = 4096;
/// Most entries of a directory. A machine with all functions of 256 buses has fewer.
const MOST: usize = 1 << 16;

/// The directories that stand for `/sys`.
#[derive(Clone, Debug)]
pub(super) struct Sysfs {
    /// The directory of the PCI tree and the NUMA nodes.
    pub(super) sys: PathBuf,
    /// The directory that holds `class/infiniband`.
    pub(super) rdma: PathBuf,
}

impl Sysfs {
    /// Returns the kernel's directory, and the directory in which libibverbs looks for RDMA devices.
    pub(super) fn of_this_process() -> Self {
        let sys = PathBuf::from("/sys");
        let rdma = std::env::var_os("SYSFS_PATH").map_or_else(|| sys.clone(), PathBuf::from);
        Self { sys, rdma }
    }
}

/// A file or directory that exists in a form that sysfs does not give it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unread {
    /// The kernel refuses to open or read the file.
    #[error("{}: {message}", path.display())]
    Refused {
        /// The path of the file.
        path: PathBuf,
        /// The error of the kernel.
        message: String,
    },
    /// The file is a pipe, a device or a directory.
    #[error("{}: not a regular file", path.display())]
    NoFile {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file is longer than any file of sysfs.
    #[error("{}: longer than {limit} bytes", path.display())]
    TooLong {
        /// The path of the file.
        path: PathBuf,
        /// The most bytes of a file of sysfs.
        limit: u64,
    },
    /// A directory has more entries than that of any machine.
    #[error("{}: more than {limit} entries", path.display())]
    TooMany {
        /// The path of the directory.
        path: PathBuf,
        /// The most entries that are read.
        limit: usize,
    },
    /// The file does not hold what this file of sysfs always holds.
    #[error("{}: '{value}' is not {wanted}", path.display())]
    Value {
        /// The path of the file.
        path: PathBuf,
        /// The contents of the file, at most 64 characters of it.
        value: String,
        /// The kind of contents that the file should hold.
        wanted: &'static str,
    },
}

impl Unread {
    fn refused(path: &Path, error: &io::Error) -> Self {
        Self::Refused {
            path: path.to_owned(),
            message: error.to_string(),
        }
    }
}

/// Returns the text of a file without the end of the line. Returns `None` if the file does not exist or is empty.
pub(crate) fn text(path: &Path) -> Result<Option<String>, Unread> {
    // An open that blocks would wait for a pipe without a writer. The open goes by libc, as those of libibverbs do: a library that
    // is preloaded in front of libc sees it, and keeps the states of simulated ports current.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = File::options();
    options.read(true).custom_flags(flags.bits().cast_signed());
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => return Ok(None),
            _ => return Err(Unread::refused(path, &error)),
        },
    };
    let kind = file.metadata().map_err(|e| Unread::refused(path, &e))?;
    if !kind.is_file() {
        return Err(Unread::NoFile {
            path: path.to_owned(),
        });
    }
    let mut bytes = Vec::new();
    let read = file.take(LONGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| Unread::refused(path, &error))?;
    if bytes.len() as u64 > LONGEST {
        return Err(Unread::TooLong {
            path: path.to_owned(),
            limit: LONGEST,
        });
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text.trim_end().to_owned()).filter(|text| !text.is_empty())),
        Err(error) => {
            let value = String::from_utf8_lossy(error.as_bytes());
            Err(value_fault(path, &value, "text in UTF-8"))
        }
    }
}

/// Returns what `parse` makes of the text of a file. If the file cannot be read, or `parse` returns None, the fault goes to
/// `unread`.
pub(super) fn fact<T>(
    path: &Path,
    wanted: &'static str,
    unread: &mut Vec<Unread>,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Option<T> {
    let text = text(path).unwrap_or_else(|fault| {
        unread.push(fault);
        None
    })?;
    let value = parse(&text);
    if value.is_none() {
        unread.push(value_fault(path, &text, wanted));
    }
    value
}

fn value_fault(path: &Path, value: &str, wanted: &'static str) -> Unread {
    Unread::Value {
        path: path.to_owned(),
        value: value.chars().take(64).collect(),
        wanted,
    }
}

/// Returns the names in a directory, sorted; none if the directory does not exist. A name that is not valid text is left out.
pub(super) fn names(path: &Path, unread: &mut Vec<Unread>) -> Vec<String> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            unread.push(Unread::refused(path, &error));
            return Vec::new();
        }
    };
    let mut names = Vec::new();
    for entry in entries {
        if names.len() == MOST {
            unread.push(Unread::TooMany {
                path: path.to_owned(),
                limit: MOST,
            });
            break;
        }
        match entry {
            Ok(entry) => names.extend(entry.file_name().into_string()),
            Err(error) => {
                unread.push(Unread::refused(path, &error));
                break;
            }
        }
    }
    names.sort();
    names
}

/// Returns the path that a link of sysfs leads to. Returns None if there is no such link, or its target does not exist.
pub(super) fn target(path: &Path, unread: &mut Vec<Unread>) -> Option<PathBuf> {
    match fs::canonicalize(path) {
        Ok(target) => Some(target),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            unread.push(Unread::refused(path, &error));
            None
        }
    }
}

/// Parses a number in hexadecimal with `0x`, as `class` and `vendor` hold it.
pub(super) fn hexadecimal(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0x")?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| plain)
}

/// Parses a number in decimal digits.
pub(super) fn decimal(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_no_file_of_sysfs_is_refused_and_never_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("good"), "4: ACTIVE\n").unwrap();
        fs::write(at("empty"), "").unwrap();
        fs::write(at("blank"), " \n\n").unwrap();
        fs::write(at("bytes"), b"\xff\xfe\n").unwrap();
        fs::write(at("longest"), "7".repeat(4096)).unwrap();
        fs::write(at("long"), "7".repeat(4097)).unwrap();
        File::create(at("sparse"))
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        symlink("loop-b", at("loop-a")).unwrap();
        symlink("loop-a", at("loop-b")).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        symlink("nothing", at("broken")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), mode).unwrap();

        assert_eq!(text(&at("good")), Ok(Some("4: ACTIVE".to_owned())));
        for absent in ["empty", "blank", "broken", "missing", "good/inside"] {
            assert_eq!(text(&at(absent)), Ok(None), "{absent}");
        }
        assert_eq!(text(&at("longest")).unwrap().unwrap().len(), 4096);
        let fault = |name: &str| text(&at(name)).unwrap_err();
        for long in ["long", "sparse"] {
            assert!(matches!(fault(long), Unread::TooLong { limit: 4096, .. }));
        }
        for other in ["zero", "directory", "pipe"] {
            assert!(matches!(fault(other), Unread::NoFile { .. }), "{other}");
        }
        assert!(fault("bytes").to_string().ends_with("is not text in UTF-8"));
        assert!(matches!(fault("loop-a"), Unread::Refused { .. }));
        let mut unread = Vec::new();
        assert_eq!(target(&at("loop-a"), &mut unread), None);
        assert_eq!(target(&at("broken"), &mut unread), None);
        assert_eq!(unread.len(), 1, "{unread:?}");
    }

    #[test]
    fn numbers_are_digits_and_nothing_else() {
        assert_eq!(hexadecimal("0x030200"), Some(0x3_0200));
        for text in ["030200", "0x", "0x+1", "0x-1", "0x1g", "0x123456789", ""] {
            assert_eq!(hexadecimal(text), None, "{text}");
        }
        assert_eq!(decimal("4294967295"), Some(u32::MAX));
        for text in ["", "+1", "-1", "1 ", "4294967296"] {
            assert_eq!(decimal(text), None, "{text}");
        }
    }
}
