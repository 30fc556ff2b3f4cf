//! Which owners and modes of directories and files a rank trusts.
//!
//! The contents of a store directory decide which memory of a rank its peers write to, so no other user may change it. The rule is that of
//! sshd for keys. The directory and everything above it on the same mount belong to this user or to root, and no other user can write to
//! them. For directories above, a sticky bit is enough (`/tmp`): other users can add files there and cannot replace those of this user.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::StoreError;

const STICKY: u32 = 0o1000;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const OPEN_TO_OTHERS: u32 = 0o077;

/// Returns the user of this process.
pub(crate) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns `directory` with symbolic links resolved, if only this user and root can change its contents.
///
/// # Errors
/// [`StoreError::Shared`] with the directory that gives others the right; an error of the file system.
pub(crate) fn resolved(directory: &Path) -> Result<PathBuf, StoreError> {
    let io_error = |path: &Path, source| StoreError::Io {
        path: path.to_owned(),
        source,
    };
    let resolved = fs::canonicalize(directory).map_err(|error| io_error(directory, error))?;
    let mut mount = None;
    for part in resolved.ancestors() {
        let of = fs::metadata(part).map_err(|error| io_error(part, error))?;
        // A directory above the root of a mount gives no user the right to change the contents of the mount.
        if *mount.get_or_insert(of.dev()) != of.dev() {
            break;
        }
        let is_above = part != resolved;
        if let Some(problem) = problem(&of, own_user(), is_above) {
            return Err(StoreError::Shared {
                part: part.to_owned(),
                directory: resolved,
                problem,
                uid: own_user(),
            });
        }
    }
    Ok(resolved)
}

/// Returns, in words, why a directory is not trusted.
fn problem(of: &Metadata, user: u32, is_above: bool) -> Option<String> {
    if of.uid() != user && of.uid() != 0 {
        return Some(format!("belongs to user {}", of.uid()));
    }
    let is_protected = is_above && of.mode() & STICKY != 0;
    let writable = of.mode() & WRITABLE_BY_OTHERS != 0 && !is_protected;
    writable.then(|| format!("can be changed by others (mode {:04o})", of.mode() & 0o7777))
}

/// Returns the contents of a file with a secret, at most `most` bytes. The file belongs to this user or root, and no other user may read
/// it.
///
/// # Errors
/// Why the file is not taken, in words.
pub fn read_secret(file: &Path, most: u64) -> Result<Vec<u8>, String> {
    // Opening a pipe without a writer does not block.
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(file)
        .map_err(|error| error.to_string())?;
    // These are the metadata of the open file, whatever file the name stands for by now.
    let of = opened.metadata().map_err(|error| error.to_string())?;
    if !of.is_file() {
        return Err("it is no regular file".to_owned());
    }
    match problem_of_secret(&of) {
        Some(problem) => Err(problem),
        None => read_bounded(&opened, most),
    }
}

/// Returns all bytes of an open file. Returns, in words, why not if it has more than `most` bytes or cannot be read.
pub(crate) fn read_bounded(file: &File, most: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = file.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > most {
        Err(format!("it has more than {most} bytes"))
    } else {
        Ok(bytes)
    }
}

fn problem_of_secret(of: &Metadata) -> Option<String> {
    if of.uid() != own_user() && of.uid() != 0 {
        return Some(format!("belongs to user {}", of.uid()));
    }
    let open = of.mode() & OPEN_TO_OTHERS != 0;
    open.then(|| {
        let mode = of.mode() & 0o7777;
        format!("others may use it (mode {mode:04o}); it must be 0600 or less")
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Returns `part` and the problem of a refusal.
    fn refusal(directory: &Path) -> (PathBuf, String) {
        match resolved(directory).unwrap_err() {
            StoreError::Shared { part, problem, .. } => (part, problem),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn only_a_directory_that_no_other_user_can_change_is_taken() {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        let store = root.join("store");
        fs::create_dir(&store).unwrap();
        for mode in [0o700, 0o755, 0o1755, 0o2750] {
            set_mode(&store, mode);
            assert_eq!(resolved(&store).unwrap(), store, "{mode:o}");
        }
        for mode in [0o770, 0o702, 0o777, 0o1777] {
            set_mode(&store, mode);
            let problem = format!("can be changed by others (mode {mode:04o})");
            assert_eq!(refusal(&store), (store.clone(), problem));
        }
    }

    #[test]
    fn a_directory_above_counts_and_a_link_is_followed() {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        let (above, store) = (root.join("above"), root.join("above/store"));
        fs::create_dir_all(&store).unwrap();
        set_mode(&store, 0o700);
        let link = root.join("link");
        symlink(&store, &link).unwrap();
        assert_eq!(resolved(&link).unwrap(), store);
        set_mode(&above, 0o777);
        assert_eq!(refusal(&store).0, above);
        assert_eq!(refusal(&link).0, above, "the link stands elsewhere");
        // The mode is that of /tmp: other users may add files and not replace them.
        set_mode(&above, 0o1777);
        assert_eq!(resolved(&store).unwrap(), store);
    }

    #[test]
    fn a_secret_is_read_from_a_short_file_that_others_may_not_use() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("secret");
        fs::write(&file, b"12345678").unwrap();
        for mode in [0o600, 0o400] {
            set_mode(&file, mode);
            assert_eq!(read_secret(&file, 8).unwrap(), b"12345678");
        }
        assert_eq!(
            read_secret(&file, 7).unwrap_err(),
            "it has more than 7 bytes"
        );
        for mode in [0o640, 0o604, 0o610] {
            set_mode(&file, mode);
            let problem = read_secret(&file, 8).unwrap_err();
            assert!(problem.starts_with("others may use it"), "{problem}");
        }
        let problem = read_secret(root.path(), 8).unwrap_err();
        assert_eq!(problem, "it is no regular file");
        assert!(read_secret(&root.path().join("none"), 8).is_err());
        let pipe = root.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(read_secret(&pipe, 8).unwrap_err(), "it is no regular file");
    }

    #[test]
    fn a_directory_that_becomes_writable_is_refused_at_the_next_open() {
        let root = tempfile::tempdir().unwrap();
        set_mode(root.path(), 0o700);
        let first = crate::FileStore::open(root.path(), "run");
        assert!(first.is_ok());
        set_mode(root.path(), 0o777);
        let error = crate::FileStore::open(root.path(), "run").unwrap_err();
        assert!(matches!(error, StoreError::Shared { .. }), "{error}");
        assert!(crate::FileStore::open_shared(root.path(), "run").is_ok());
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        let root = tempfile::tempdir().unwrap();
        set_mode(root.path(), 0o700);
        let of = fs::metadata(root.path()).unwrap();
        let (own, other) = (of.uid(), of.uid() + 1);
        assert_eq!(problem(&of, own, false), None);
        match own {
            // Directories of root are trusted for every user.
            0 => assert_eq!(problem(&of, other, false), None),
            _ => assert_eq!(
                problem(&of, other, false),
                Some(format!("belongs to user {own}"))
            ),
        }
        if own == 0 {
            std::os::unix::fs::chown(root.path(), Some(65_534), None).unwrap();
            assert_eq!(refusal(root.path()).1, "belongs to user 65534");
        }
    }
}
