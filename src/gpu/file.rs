//! Memory of the CPU that two processes map: a file that no folder names (memfd).
//!
//! Another process opens the file below /proc of its owner. That path may be stale: if the owner has ended, its process number or the
//! descriptor may belong to another file. So the file carries a unique name. The opener compares that name, and the length. No process can
//! change the length any more, so that no access goes beyond the end of the file.

// UNSAFETY: a mapping. It goes through libc, where AddressSanitizer sees it; a raw system call would be as unsafe.
#![expect(unsafe_code, reason = "mmap")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use serde::{Deserialize, Serialize};

/// Seals: neither the length of a file nor its seals can change.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// The begin of a name; a UUID follows.
const PREFIX: &str = "warpverbs-";

/// A shared file of this process.
#[derive(Debug)]
pub(crate) struct SharedFile {
    fd: OwnedFd,
    name: String,
}

/// A name by which another process finds a shared file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileName {
    pid: u32,
    fd: i32,
    /// A name that no other file has.
    name: String,
}

impl SharedFile {
    /// Makes a file of `bytes` zeros, which take no memory until they are written.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        let drawn = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
        let name = format!("{PREFIX}{}", drawn.trim());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create(&name, flags)?);
        file.set_len(bytes as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        Ok(Self {
            fd: file.into(),
            name,
        })
    }

    /// Returns the name by which other processes open the file while this process lives and keeps it.
    pub(crate) fn name(&self) -> FileName {
        FileName {
            pid: std::process::id(),
            fd: self.fd.as_raw_fd(),
            name: self.name.clone(),
        }
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}

impl FileName {
    /// Returns the name of the file with this id, which process `pid` has as `fd`.
    pub(crate) fn of(pid: u32, fd: i32, id: u128) -> Self {
        let digits = format!("{id:032x}");
        let parts = [
            &digits[..8],
            &digits[8..12],
            &digits[12..16],
            &digits[16..20],
        ];
        let name = format!("{PREFIX}{}-{}", parts.join("-"), &digits[20..]);
        Self { pid, fd, name }
    }

    /// Returns the id of the file, which no other file has. None if the name holds no id.
    pub(crate) fn id(&self) -> Option<u128> {
        let digits = self.name.strip_prefix(PREFIX)?.replace('-', "");
        u128::from_str_radix(&digits, 16).ok()
    }

    /// Returns the file's descriptor in the process that owns it.
    pub(crate) const fn fd(&self) -> i32 {
        self.fd
    }

    /// Opens the file and maps its first `bytes` bytes. Returns a refusal in words.
    pub(crate) fn map(&self, bytes: u64) -> Result<Mapping, String> {
        let path = format!("/proc/{}/fd/{}", self.pid, self.fd);
        // The link is read before it is opened: to open some other file may wait, or have an effect.
        self.is_of(Path::new(&path))?;
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let mut options = OpenOptions::new();
        let opened = options
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(&path);
        let file = opened.map_err(|error| format!("{path}: {error}"))?;
        // The path may name another file by now; the descriptor cannot.
        self.is_of(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))?;
        let length = file.metadata().map_err(|error| error.to_string())?.len();
        if length < bytes {
            return Err(format!(
                "{path} has {length} bytes; its handle names {bytes}"
            ));
        }
        if !fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            return Err(format!("{path} may become shorter"));
        }
        let bytes = usize::try_from(bytes).map_err(|error| error.to_string())?;
        Mapping::new(&file.into(), bytes).map_err(|error| format!("{path}: {error}"))
    }

    /// Checks that the file to which a link of /proc leads has this name.
    fn is_of(&self, link: &Path) -> Result<(), String> {
        let told = |error: io::Error| format!("{}: {error}", link.display());
        let target = fs::read_link(link).map_err(told)?;
        let wanted = format!("/memfd:{} (deleted)", self.name);
        if target == Path::new(&wanted) {
            return Ok(());
        }
        let (link, target) = (link.display(), target.display());
        Err(format!("{link} is {target} now, not {}", self.name))
    }
}

/// A mapping of a file into this process.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the pointer is only used to unmap; access is by kernels.
unsafe impl Send for Mapping {}
// SAFETY: as for Send.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` bytes, at an address that the kernel chooses.
    pub(crate) fn new(fd: &OwnedFd, bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { map(std::ptr::null_mut(), bytes, 0, fd) }?;
        Ok(Self { start, bytes })
    }

    /// Returns the address of the first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping's own, unmapped once; code that still uses it breaks the contract of `OpenedMemory`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Returns the bytes of a page of this machine: the unit in which the kernel maps and a driver registers memory.
pub(super) fn page_bytes() -> usize {
    // SAFETY: asks for a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// Maps `bytes` bytes of the file at `at`, with `flags` besides those of a shared mapping.
///
/// # Safety
///
/// With `MAP_FIXED`, the bytes at `at` are the caller's to replace.
pub(super) unsafe fn map(
    at: *mut u8,
    bytes: usize,
    flags: i32,
    fd: &OwnedFd,
) -> io::Result<NonNull<u8>> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | flags;
    // SAFETY: the caller's promise; without MAP_FIXED nothing that is mapped changes.
    let mapped = unsafe { libc::mmap(at.cast(), bytes, rights, flags, fd.as_raw_fd(), 0) };
    match NonNull::new(mapped.cast::<u8>()) {
        Some(start) if mapped != libc::MAP_FAILED => Ok(start),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn file(bytes: usize) -> SharedFile {
        SharedFile::new(bytes).unwrap()
    }

    #[test]
    fn one_mapping_reads_the_bytes_of_the_other_and_outlives_the_file() {
        let file = file(8192);
        let own = Mapping::new(file.fd(), 8192).unwrap();
        let opened = file.name().map(8192).unwrap();
        assert_ne!(own.start(), opened.start());
        // SAFETY: both are 8,192 bytes long, and no other code uses them.
        unsafe { own.start().add(8191).write_volatile(7) };
        drop((file, own));
        // SAFETY: as above.
        assert_eq!(unsafe { opened.start().add(8191).read_volatile() }, 7);
    }

    #[test]
    fn a_name_is_made_again_of_its_parts() {
        let name = file(4096).name();
        let id = name.id().unwrap();
        assert_eq!(FileName::of(name.pid, name.fd(), id), name);
        let other = FileName {
            name: "warpverbs-x".to_owned(),
            ..name
        };
        assert_eq!(other.id(), None);
    }

    #[test]
    fn a_name_whose_number_has_become_another_file_is_refused() {
        let (first, other) = (file(4096), file(4096));
        let mut name = first.name();
        name.fd = other.name().fd;
        let error = name.map(4096).unwrap_err();
        assert!(error.contains(" is /memfd:warpverbs-"), "{error}");
        name.fd = 0;
        name.map(4096).unwrap_err();
        name.fd = 1 << 20;
        name.map(4096).unwrap_err();
    }

    #[test]
    fn a_process_that_has_ended_and_one_that_has_its_number_are_refused() {
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut name = file(4096).name();
        name.pid = child.id();
        for fd in 0..3 {
            name.fd = fd;
            assert!(name.map(4096).unwrap_err().contains(" now, not warpverbs-"));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let error = name.map(4096).unwrap_err();
        assert!(error.contains("No such file"), "{error}");
    }

    #[test]
    fn a_file_shorter_than_said_is_refused_and_a_made_file_keeps_its_size() {
        let file = file(4096);
        let error = file.name().map(4097).unwrap_err();
        assert!(
            error.contains("has 4096 bytes; its handle names 4097"),
            "{error}"
        );
        let again = File::from(file.fd().try_clone().unwrap());
        again.set_len(100).unwrap_err();
        again.set_len(8192).unwrap_err();
    }
}
