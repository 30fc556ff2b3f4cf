//! Files that are read and written in their order, and get their name when they are whole.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{P2pError, Sum};

/// Where a file of this name is in `directory`.
pub(super) fn place(directory: &Path, name: &str) -> Result<PathBuf, P2pError> {
    let is_plain = !name.starts_with('.') && !name.contains(['/', '\0']);
    match is_plain && (1..=255).contains(&name.len()) {
        true => Ok(directory.join(name)),
        false => Err(P2pError::Name {
            name: name.to_owned(),
        }),
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

/// A file that is read.
pub(super) struct Source {
    file: File,
    path: PathBuf,
    pub(super) bytes: u64,
    pub(super) sum: Sum,
}

impl Source {
    pub(super) fn open(path: &Path) -> Result<Self, P2pError> {
        // A FIFO that nobody writes to would be waited for.
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

    /// Fills `bytes` with what comes next.
    pub(super) fn next(&mut self, bytes: &mut [u8]) -> Result<(), P2pError> {
        self.file.read_exact(bytes).map_err(failed(&self.path))?;
        self.sum.add(bytes);
        Ok(())
    }
}

/// What becomes of a target that is a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// The file that it leads to is written: the user of this program has named it.
    Follow,
    /// It may lead out of the directory.
    Refuse,
}

/// A file that is written. Without [`Target::keep`] nothing of it stays.
pub(super) struct Target {
    file: File,
    path: PathBuf,
    /// Its name while it is not whole: no name of a file that clients get, and none that is longer than a name may be.
    part: PathBuf,
    /// Those of the file that it takes the place of.
    permissions: Option<Permissions>,
    is_kept: bool,
    pub(super) sum: Sum,
}

impl Target {
    /// A new file, or one that takes the place of a regular file, with its rights.
    pub(super) fn create(path: &Path, links: Links) -> Result<Self, P2pError> {
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
        let part = path.with_file_name(format!(".{:016x}.part", fastrand::u64(..)));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        if permissions.is_some() {
            // Nobody reads it who may not read the present one.
            options.mode(0o600);
        }
        let file = options.open(&part).map_err(failed(&part))?;
        Ok(Self {
            file,
            path,
            part,
            permissions,
            is_kept: false,
            sum: Sum::new(),
        })
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), P2pError> {
        self.file.write_all(bytes).map_err(failed(&self.part))?;
        self.sum.add(bytes);
        Ok(())
    }

    /// It is whole, if the other end has the same sum.
    pub(super) fn keep(mut self, sent: u64) -> Result<(), P2pError> {
        let came = self.sum.0;
        if sent != came {
            let path = self.path.display().to_string();
            return Err(P2pError::Sum { path, sent, came });
        }
        if let Some(permissions) = self.permissions.take() {
            let set = self.file.set_permissions(permissions);
            set.map_err(failed(&self.part))?;
        }
        fs::rename(&self.part, &self.path).map_err(failed(&self.path))?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_file(&self.part);
        }
    }
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
        let sum = target.sum.0;
        assert!(matches!(target.keep(sum ^ 1), Err(P2pError::Sum { .. })));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let mut target = Target::create(&path, Links::Refuse).unwrap();
        target.append(b"abc").unwrap();
        target.keep(sum).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abc");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// Writes `bytes` to `path`.
    fn write(path: &Path, links: Links) -> Result<(), P2pError> {
        let mut target = Target::create(path, links)?;
        target.append(b"new")?;
        let sum = target.sum.0;
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
        // A link: the user's own is followed, and stays; one in a directory that is served leads nowhere.
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
            rustix::fs::CWD,
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
        // A FIFO is not waited for.
        for name in ["fifo", "directory"] {
            let refused = Source::open(&at(name)).map(drop).unwrap_err().to_string();
            assert!(refused.contains("no regular file"), "{refused}");
        }
        // The longest name.
        let longest = "x".repeat(255);
        write(&at(&longest), Links::Refuse).unwrap();
        assert_eq!(fs::read(at(&longest)).unwrap(), b"new");
        let parts = fs::read_dir(directory.path()).unwrap().flatten();
        let parts = parts.filter(|it| it.file_name().to_string_lossy().ends_with(".part"));
        assert_eq!(parts.count(), 0);
    }
}
