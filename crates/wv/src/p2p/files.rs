//! Files that are read and written in their order, and get their name when they are whole.

use std::fs::{self, File};
use std::io::{self, Read, Write};
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

fn failed(path: &Path) -> impl Fn(io::Error) -> P2pError {
    let path = path.display().to_string();
    move |source| P2pError::File {
        path: path.clone(),
        source,
    }
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
        let file = File::open(path).map_err(failed(path))?;
        let facts = file.metadata().map_err(failed(path))?;
        if !facts.is_file() {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "it is no file");
            return Err(failed(path)(source));
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

/// A file that is written. Without [`Target::keep`] nothing of it stays.
pub(super) struct Target {
    file: File,
    path: PathBuf,
    /// Its name while it is not whole.
    part: PathBuf,
    is_kept: bool,
    pub(super) sum: Sum,
}

impl Target {
    pub(super) fn create(path: &Path) -> Result<Self, P2pError> {
        let mut part = path.as_os_str().to_owned();
        part.push(format!(".{:08x}.part", fastrand::u32(..)));
        let part = PathBuf::from(part);
        let file = File::create_new(&part).map_err(failed(&part))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            part,
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
        let mut target = Target::create(&path).unwrap();
        target.append(b"abc").unwrap();
        let sum = target.sum.0;
        assert!(matches!(target.keep(sum ^ 1), Err(P2pError::Sum { .. })));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let mut target = Target::create(&path).unwrap();
        target.append(b"abc").unwrap();
        target.keep(sum).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abc");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
