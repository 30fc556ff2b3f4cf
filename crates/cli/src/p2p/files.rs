//! Files that are read and written from begin to end, and get their names only when they are whole.
//!
//! Until then a file has no name at all (`O_TMPFILE`). So the kernel frees it however this process ends: by Ctrl-C, by SIGTERM, or by
//! SIGKILL, which no handler sees. File systems such as NFS have no such files. There the file has a hidden name, and a process that is
//! ended by a signal leaves it behind.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, linkat};
use rustix::io::Errno;

use super::error::P2pError;
use super::sum::Sum;

/// Returns the path of a file with this name in `directory`. The name must not lead out of the directory.
pub(super) fn place(directory: &Path, name: &str) -> Result<PathBuf, P2pError> {
    let is_plain = !name.starts_with('.') && !name.contains(['/', '\0']);
    if is_plain && (1..=255).contains(&name.len()) {
        Ok(directory.join(name))
    } else {
        Err(P2pError::Name {
            name: name.to_owned(),
        })
    }
}

pub(super) fn failed(path: &Path) -> impl Fn(io::Error) -> P2pError {
    let path = path.display().to_string();
    move |source| P2pError::File {
        path: path.clone(),
        source,
    }
}

fn no_file(path: &Path, why: &'static str) -> P2pError {
    failed(path)(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// A file that is read and sent.
pub(super) struct Source {
    file: File,
    path: PathBuf,
    pub(super) bytes: u64,
    pub(super) sum: Sum,
}

impl Source {
    pub(super) fn open(path: &Path) -> Result<Self, P2pError> {
        // An open without this flag would wait for a writer of a FIFO.
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open(path).map_err(failed(path))?;
        let facts = file.metadata().map_err(failed(path))?;
        if !facts.is_file() {
            return Err(no_file(path, "it is no regular file"));
        }
        Ok(Self {
            file,
            path: path.to_owned(),
            bytes: facts.len(),
            sum: Sum::new(),
        })
    }

    /// Fills `bytes` with the next bytes of the file.
    pub(super) fn next(&mut self, bytes: &mut [u8]) -> Result<(), P2pError> {
        self.file.read_exact(bytes).map_err(failed(&self.path))?;
        self.sum.add(bytes);
        Ok(())
    }
}

/// How a target that is a symbolic link is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// The file to which the link leads is written, because the user of this program has named it.
    Follow,
    /// The link is refused, because it may lead out of the directory.
    Refuse,
}

/// A file that is written. Without [`Target::keep`] the file is removed.
pub(super) struct Target {
    file: File,
    path: PathBuf,
    /// The hidden name of the file while it is not whole, if it has one. Clients cannot ask for such a name, and it is never too long for a
    /// name.
    part: Option<PathBuf>,
    /// The permissions of the file that it will replace, if any.
    permissions: Option<Permissions>,
    pub(super) sum: Sum,
}

impl Target {
    /// Creates a new file, or one that will replace a regular file and get its permissions.
    pub(super) fn create(path: &Path, links: Links) -> Result<Self, P2pError> {
        Self::create_as(path, links, unnamed)
    }

    /// As `create`. `open` returns a file without a name, or None if the file system has no such files.
    fn create_as(
        path: &Path,
        links: Links,
        open: impl FnOnce(&OpenOptions, &Path) -> io::Result<Option<File>>,
    ) -> Result<Self, P2pError> {
        let is_link = fs::symlink_metadata(path).is_ok_and(|facts| facts.is_symlink());
        let path = match (is_link, links) {
            (false, _) => path.to_owned(),
            (true, Links::Follow) => fs::canonicalize(path).map_err(failed(path))?,
            (true, Links::Refuse) => return Err(no_file(path, "it is a link")),
        };
        let permissions = match fs::symlink_metadata(&path) {
            Ok(facts) if facts.is_file() => Some(facts.permissions()),
            Ok(_) => return Err(no_file(&path, "it is there, and no regular file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(&path)(error)),
        };
        let mut options = OpenOptions::new();
        options.write(true);
        if permissions.is_some() {
            // Until the file is whole, only its owner may read it, because the present file may be as private.
            options.mode(0o600);
        }
        let (file, part) = match open(&options, &path).map_err(failed(&path))? {
            Some(file) => (file, None),
            None => {
                let part = part_of(&path);
                let file = options.create_new(true).open(&part);
                (file.map_err(failed(&path))?, Some(part))
            }
        };
        Ok(Self {
            file,
            path,
            part,
            permissions,
            sum: Sum::new(),
        })
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), P2pError> {
        self.file.write_all(bytes).map_err(failed(&self.path))?;
        self.sum.add(bytes);
        Ok(())
    }

    /// Gives the file its name, if the sum of the other end is the same as here.
    pub(super) fn keep(mut self, sent: u64) -> Result<(), P2pError> {
        let came = self.sum.value();
        if sent != came {
            let path = self.path.display().to_string();
            return Err(P2pError::Sum { path, sent, came });
        }
        if let Some(permissions) = self.permissions.take() {
            let set = self.file.set_permissions(permissions);
            set.map_err(failed(&self.path))?;
        }
        self.name().map_err(failed(&self.path))
    }

    /// Gives the file its name. Another file with that name loses it.
    fn name(&mut self) -> io::Result<()> {
        if self.part.is_none() {
            match self.link(&self.path) {
                Err(Errno::EXIST) => {}
                linked => return Ok(linked?),
            }
            // Only a rename takes a name from another file, so this file needs a name first.
            let part = part_of(&self.path);
            self.link(&part)?;
            self.part = Some(part);
        }
        if let Some(part) = &self.part {
            fs::rename(part, &self.path)?;
        }
        self.part = None;
        Ok(())
    }

    fn link(&self, name: &Path) -> rustix::io::Result<()> {
        let own = own_link(&self.file);
        linkat(CWD, own, CWD, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            let _ = fs::remove_file(part);
        }
    }
}

/// Returns a hidden name beside `path`.
fn part_of(path: &Path) -> PathBuf {
    path.with_file_name(format!(".{:016x}.part", fastrand::u64(..)))
}

/// Returns a file without a name in the directory of `path`. None: the file system has no such files, or there is no /proc by which such a
/// file could get a name.
fn unnamed(options: &OpenOptions, path: &Path) -> io::Result<Option<File>> {
    let directory = match path.parent() {
        Some(directory) if directory != Path::new("") => directory,
        _ => Path::new("."),
    };
    let opened = options
        .clone()
        .custom_flags(libc::O_TMPFILE)
        .open(directory);
    match opened {
        Ok(file) => Ok(own_link(&file).exists().then_some(file)),
        Err(error) => match Errno::from_io_error(&error) {
            // ISDIR and INVAL come from systems that do not know the flag. They see a directory that is to be written.
            Some(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok(None),
            _ => Err(error),
        },
    }
}

/// Returns a path in /proc by which the kernel finds an open file.
fn own_link(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_name_leads_to_no_other_directory() {
        let directory = Path::new("/served");
        for bad in [
            "",
            ".",
            "..",
            "../a",
            "a/b",
            "/a",
            ".hidden",
            "a\0b",
            &"x".repeat(256),
        ] {
            assert!(place(directory, bad).is_err(), "{bad:?}");
        }
        for good in ["a", "a.b", "ä", &"x".repeat(255)] {
            assert_eq!(place(directory, good).unwrap(), directory.join(good));
        }
    }

    #[test]
    fn a_file_that_was_not_kept_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut target = Target::create(&path, Links::Refuse).unwrap();
        target.append(b"abc").unwrap();
        let sum = target.sum.value();
        assert!(matches!(target.keep(sum ^ 1), Err(P2pError::Sum { .. })));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let mut target = Target::create(&path, Links::Refuse).unwrap();
        target.append(b"abc").unwrap();
        target.keep(sum).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abc");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_has_no_name_before_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let names = || -> Vec<_> {
            let all = fs::read_dir(directory.path()).unwrap();
            all.map(|it| it.unwrap().file_name()).collect()
        };
        for round in [b"one", b"two"] {
            let before = names();
            let mut target = Target::create(&path, Links::Refuse).unwrap();
            target.append(round).unwrap();
            assert_eq!(names(), before, "nothing is there that a kill would leave");
            let sum = target.sum.value();
            target.keep(sum).unwrap();
            assert_eq!(names(), ["file"]);
            assert_eq!(fs::read(&path).unwrap(), round);
        }
    }

    #[test]
    fn without_such_files_a_hidden_one_becomes_the_file_or_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let create = || Target::create_as(&path, Links::Refuse, |_, _| Ok(None)).unwrap();
        let count = || fs::read_dir(directory.path()).unwrap().count();
        for round in [b"one", b"two"] {
            let mut target = create();
            target.append(round).unwrap();
            let sum = target.sum.value();
            target.keep(sum).unwrap();
            assert_eq!((fs::read(&path).unwrap(), count()), (round.to_vec(), 1));
        }
        let unfinished = create();
        assert_eq!(count(), 2);
        drop(unfinished);
        assert_eq!((fs::read(&path).unwrap(), count()), (b"two".to_vec(), 1));
    }

    /// Writes a file to `path`, and keeps it.
    fn write(path: &Path, links: Links) -> Result<(), P2pError> {
        let mut target = Target::create(path, links)?;
        target.append(b"new")?;
        let sum = target.sum.value();
        target.keep(sum)
    }

    #[test]
    fn a_file_keeps_its_rights_and_what_is_no_file_stays() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("secret"), b"old").unwrap();
        fs::set_permissions(at("secret"), Permissions::from_mode(0o600)).unwrap();
        write(&at("secret"), Links::Refuse).unwrap();
        assert_eq!(fs::read(at("secret")).unwrap(), b"new");
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("secret"), 0o600);
        // A link of the user is followed and stays. A link in a served directory is refused.
        fs::write(at("file"), b"old").unwrap();
        symlink(at("file"), at("link")).unwrap();
        assert!(write(&at("link"), Links::Refuse).is_err());
        assert_eq!(fs::read(at("file")).unwrap(), b"old");
        write(&at("link"), Links::Follow).unwrap();
        assert_eq!(fs::read(at("file")).unwrap(), b"new");
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        symlink(at("nowhere"), at("dangling")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        let fifo = CString::new(at("fifo").into_os_string().into_encoded_bytes()).unwrap();
        rustix::fs::mknodat(
            CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        for (name, why) in [
            ("directory", "no regular file"),
            ("fifo", "no regular file"),
            ("dangling", "No such file"),
            ("missing/file", "No such file"),
        ] {
            let refused = write(&at(name), Links::Follow).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        // Opening a FIFO does not wait.
        for name in ["fifo", "directory"] {
            let refused = Source::open(&at(name)).map(drop).unwrap_err().to_string();
            assert!(refused.contains("no regular file"), "{refused}");
        }
        // This is the longest possible name.
        let longest = "x".repeat(255);
        write(&at(&longest), Links::Refuse).unwrap();
        assert_eq!(fs::read(at(&longest)).unwrap(), b"new");
        let parts = fs::read_dir(directory.path()).unwrap().flatten();
        let parts = parts.filter(|it| it.file_name().to_string_lossy().ends_with(".part"));
        assert_eq!(parts.count(), 0);
    }
}
