//! A mapping, as the kernel shows it in `/proc/self/maps`.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{SealFlags, fcntl_get_seals, major, minor};

/// A line of `/proc/self/maps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapLine<'a> {
    /// Its first address, and the one after its last.
    pub first: u64,
    /// See `first`.
    pub end: u64,
    /// As `rw-p`.
    rights: &'a str,
    /// Major and minor number of the device that has the file.
    device: (u32, u32),
    /// 0: it has no file.
    inode: u64,
    path: &'a str,
}

impl<'a> MapLine<'a> {
    /// None where the line is not of that form.
    #[must_use]
    pub fn parse(line: &'a str) -> Option<Self> {
        let mut rest = line;
        let mut word = || {
            let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
            rest = behind;
            word
        };
        let (range, rights, _offset, device, inode) = (word(), word(), word(), word(), word());
        let (first, end) = range.split_once('-')?;
        let (major, minor) = device.split_once(':')?;
        Some(Self {
            first: u64::from_str_radix(first, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            rights,
            device: (
                u32::from_str_radix(major, 16).ok()?,
                u32::from_str_radix(minor, 16).ok()?,
            ),
            inode: inode.parse().ok()?,
            path: rest.trim_start(),
        })
    }

    /// Whether this process may read it, and write it if `write` says so.
    #[must_use]
    pub fn allows(&self, write: bool) -> bool {
        self.rights.starts_with('r') && (!write || self.rights[1..].starts_with('w'))
    }

    /// Whether it is of a file that may become shorter. Files of devices and of the kernel do not, nor does a memfd that is sealed
    /// against it and of which this process has a descriptor.
    #[must_use]
    pub fn may_shrink(&self) -> bool {
        /// The kernel's own files in memory: pages that processes share without a name, System V segments, buffers of drivers.
        const KERNEL: (u32, u32) = (0, 1);
        const DEVICES: &str = "/dev/";
        /// File systems below that folder.
        const IN_MEMORY: [&str; 2] = ["/dev/shm/", "/dev/hugepages/"];
        let begins = |with: &str| self.path.starts_with(with);
        if self.inode == 0 || !begins("/") {
            return false;
        }
        if begins("/memfd:") {
            return !self.is_sealed();
        }
        let is_hugepage = self.device.0 == 0 && self.path == "/anon_hugepage (deleted)";
        let is_of_kernel = ["/dmabuf:", "/sys/", "/proc/"].into_iter().any(begins);
        if self.device == KERNEL || is_hugepage || is_of_kernel {
            return false;
        }
        match fs::metadata(self.path) {
            Ok(metadata) => metadata.is_file(),
            // It was removed, or is not seen from here.
            Err(_) => !begins(DEVICES) || IN_MEMORY.into_iter().any(begins),
        }
    }

    /// Whether this process has a descriptor of the memfd, and it is sealed.
    fn is_sealed(&self) -> bool {
        let Ok(descriptors) = fs::read_dir("/proc/self/fd") else {
            return false;
        };
        descriptors.flatten().any(|descriptor| {
            let path = descriptor.path();
            let is_memfd = fs::read_link(&path)
                .is_ok_and(|target| target.to_str().is_some_and(|it| it.starts_with("/memfd:")));
            is_memfd
                && File::open(path).is_ok_and(|file| {
                    self.is_of(&file)
                        && fcntl_get_seals(&file)
                            .is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
                })
        })
    }

    fn is_of(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|it| {
            (it.ino(), (major(it.dev()), minor(it.dev()))) == (self.inode, self.device)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_range_rights_and_file() {
        let line = "7f00-8f00 rw-s 00001000 00:2e 1234                       /tmp/a b (deleted)";
        let line = MapLine::parse(line).unwrap();
        assert_eq!((line.first, line.end), (0x7f00, 0x8f00));
        assert!(line.allows(true));
        assert_eq!((line.device, line.inode), ((0, 0x2e), 1234));
        assert_eq!(line.path, "/tmp/a b (deleted)");
        let read = MapLine::parse("1000-3000 r--p 0 0:0 0").unwrap();
        assert!(read.allows(false) && !read.allows(true) && read.path.is_empty());
        let none = MapLine::parse("1000-3000 ---p 0 0:0 0").unwrap();
        assert!(!none.allows(false));
        for bad in [
            "",
            "x-y rw-p 0 0:0 0",
            "1000 rw-p 0 0:0 0",
            "1-2 rw-p 0 0 0",
            "1-2 rw-p",
        ] {
            assert_eq!(MapLine::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn only_files_that_can_be_truncated_may_shrink() {
        let file = std::env::current_exe().unwrap();
        let file = file.to_str().unwrap();
        let table = [
            ("00:00 0", "", false),
            ("00:00 0", "[heap]", false),
            ("08:01 7", file, true),
            ("08:01 7", "/no/such/file (deleted)", true),
            ("00:1b 7", "/dev/shm/gone (deleted)", true),
            ("00:01 7", "/dev/zero (deleted)", false),
            ("00:01 7", "/SYSV00000000 (deleted)", false),
            ("00:0f 7", "/anon_hugepage (deleted)", false),
            ("00:01 7", "/memfd:nobody's (deleted)", true),
            ("00:06 7", "/dev/null", false),
            ("00:06 7", "/dev/hidden0", false),
            ("00:0c 7", "/dmabuf:", false),
            ("00:0c 7", "anon_inode:[perf_event]", false),
            (
                "00:16 7",
                "/sys/bus/pci/devices/0000:00:00.0/resource0",
                false,
            ),
        ];
        for (file, path, expected) in table {
            let line = format!("1000-2000 rw-s 0 {file} {path}");
            let found = MapLine::parse(&line).unwrap().may_shrink();
            assert_eq!(found, expected, "{line}");
        }
    }
}
