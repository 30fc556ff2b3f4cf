//! A directory of our own in a shared place, that never outlives its owner for long.
//!
//! It has mode 0700, lies in a directory of mode 0700 of the same user, and its owner holds an flock on it. The kernel drops the
//! lock when the owner dies, however it dies. So a directory whose lock can be had is rubbish, and every owner starts by sweeping
//! up what the dead have left. Creating and sweeping race without harm: the holder of the lock decides, and a creator that finds
//! its new directory swept tries again.
//!
//! Names: `pPID-RANDOM` is the tree of a process, `pPID-RANDOM-CHILD` that of process CHILD, which the former or a child of it has
//! forked. `sPID-RANDOM` belongs to `wv sim` and holds the trees of the processes below it, each with a lock of its own. A later
//! start sweeps it only when all of them are dead.
//!
//! softhca and `wv sim` keep this one rule. It is a crate because `wv` must not link softhca, whose symbols would take the place of
//! libc's.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

/// Why a process got no private directory.
#[derive(Debug, Error)]
pub enum PrivateDirError {
    /// A system call failed.
    #[error("cannot {action} {path}: {source}", path = .path.display())]
    Io {
        /// What it was to do.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Its error.
        source: io::Error,
    },
    /// Another user could read or change its contents.
    #[error(
        "{path} is not a directory that only user {uid} can use (owner {owner}, mode {mode:o})",
        path = .path.display()
    )]
    NotPrivate {
        /// The directory, or what stands in its place.
        path: PathBuf,
        /// User of this process.
        uid: u32,
        /// User whose it is.
        owner: u32,
        /// Its permissions.
        mode: u32,
    },
    /// Others kept sweeping it away.
    #[error("{path} was removed again each time it was made", path = .path.display())]
    Contended {
        /// The directory.
        path: PathBuf,
    },
}

/// A directory that this process owns, see the front page.
#[derive(Debug)]
pub struct PrivateDir {
    path: PathBuf,
    /// Holds the flock.
    _lock: File,
}

impl PrivateDir {
    /// Makes `path` and, if it is missing, its parent.
    ///
    /// # Errors
    /// A failed system call, a parent that others can use, or a sweeper that removes `path` each of many times.
    pub fn create(path: &Path) -> Result<Self, PrivateDirError> {
        // One a millisecond: a busy machine may keep a sweeper from its core for seconds.
        const ATTEMPTS: u32 = 10_000;
        let parent = path.parent().unwrap_or(Path::new("/"));
        for _ in 0..ATTEMPTS {
            make_parent(parent)?;
            match DirBuilder::new().mode(0o700).create(path) {
                Ok(()) => {}
                // The last owner of something in the parent has just removed it, or a sweeper is
                // still busy with our last attempt.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists
                    ) =>
                {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                Err(source) => return Err(io_error("make", path, source)),
            }
            if let Some(lock) = lock(path) {
                return Ok(Self {
                    path: path.to_path_buf(),
                    _lock: lock,
                });
            }
        }
        Err(PrivateDirError::Contended {
            path: path.to_path_buf(),
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it with everything in it, and the standard parent if that is empty then.
    pub fn remove(&self) {
        // A process that still lives in it may be adding files. What cannot be removed now is swept by a later start.
        for _ in 0..3 {
            match fs::remove_dir_all(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                _ => break,
            }
        }
        let parent = standard_parent();
        if self.path.starts_with(&parent) {
            let _ = fs::remove_dir(parent);
        }
    }
}

/// The lock on the directory at `path`, if no other process holds it and the directory still exists.
fn lock(path: &Path) -> Option<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(path)
        .ok()?;
    file.try_lock().ok()?;
    let locked = file.metadata().ok()?;
    let named = fs::symlink_metadata(path).ok()?;
    (locked.ino() == named.ino() && locked.dev() == named.dev()).then_some(file)
}

fn make_parent(parent: &Path) -> Result<(), PrivateDirError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(parent)
        .map_err(|source| io_error("make", parent, source))?;
    let found = match fs::symlink_metadata(parent) {
        Ok(found) => found,
        // Removed since: the caller's next step finds that out and comes back.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(io_error("look at", parent, source)),
    };
    let uid = rustix::process::geteuid().as_raw();
    if !found.is_dir() || found.uid() != uid || found.mode() & 0o077 != 0 {
        return Err(PrivateDirError::NotPrivate {
            path: parent.to_path_buf(),
            uid,
            owner: found.uid(),
            mode: found.mode() & 0o7777,
        });
    }
    Ok(())
}

/// Removes what dead owners left in `parent`. What cannot be removed is left for the next sweep.
pub fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let path = entry.path();
        match name.as_encoded_bytes().first() {
            Some(b'p') => {
                if let Some(_lock) = lock(&path) {
                    let _ = fs::remove_dir_all(&path);
                }
            }
            Some(b's') => {
                if let Some(_lock) = lock(&path) {
                    sweep(&path);
                    // A process of a dead `wv sim` that lives has a directory here.
                    let is_used = fs::read_dir(&path)
                        .is_ok_and(|left| left.flatten().any(|entry| entry.path().is_dir()));
                    if !is_used {
                        let _ = fs::remove_dir_all(&path);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The directory of this user for private directories: in `$XDG_RUNTIME_DIR` if that is this user's own,
/// else in `/tmp`.
#[must_use]
pub fn standard_parent() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)
        && runtime.is_absolute()
        && fs::metadata(&runtime).is_ok_and(|found| found.is_dir() && found.uid() == uid)
    {
        return runtime.join("softhca");
    }
    PathBuf::from(format!("/tmp/softhca-{uid}"))
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> PrivateDirError {
    PrivateDirError::Io {
        action,
        path: path.to_path_buf(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A fresh path below /tmp, removed at the end of the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = PathBuf::from(format!("/tmp/softhca-test-{}-{count}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn removing_it_takes_what_is_in_it_and_no_neighbour() {
        let scratch = Scratch::new();
        let one = PrivateDir::create(&scratch.0.join("p1")).unwrap();
        let two = PrivateDir::create(&scratch.0.join("p2")).unwrap();
        fs::write(one.path().join("file"), "x").unwrap();
        one.remove();
        assert!(!one.path().exists());
        assert!(two.path().exists());
    }

    #[test]
    fn it_and_its_parent_are_for_the_owner_alone() {
        let scratch = Scratch::new();
        let dir = PrivateDir::create(&scratch.0.join("p1")).unwrap();
        for path in [dir.path(), &scratch.0] {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn a_parent_that_others_can_use_is_refused() {
        let scratch = Scratch::new();
        fs::create_dir(&scratch.0).unwrap();
        fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o755)).unwrap();
        let error = PrivateDir::create(&scratch.0.join("p1")).unwrap_err();
        assert!(
            matches!(error, PrivateDirError::NotPrivate { mode: 0o755, .. }),
            "{error}"
        );
    }

    #[test]
    fn a_sweep_takes_the_dead_and_leaves_the_living() {
        let scratch = Scratch::new();
        let living = PrivateDir::create(&scratch.0.join("p1")).unwrap();
        drop(PrivateDir::create(&scratch.0.join("p2")).unwrap()); // lock gone, directory left
        fs::write(scratch.0.join("p2/file"), "x").unwrap();
        fs::create_dir(scratch.0.join("other")).unwrap();
        sweep(&scratch.0);
        assert!(living.path().exists());
        assert!(!scratch.0.join("p2").exists());
        assert!(scratch.0.join("other").exists(), "not of our making");
    }

    #[test]
    fn a_dead_parent_of_a_living_tree_waits_for_it() {
        let scratch = Scratch::new();
        drop(PrivateDir::create(&scratch.0.join("s1")).unwrap());
        let living = PrivateDir::create(&scratch.0.join("s1/p1")).unwrap();
        drop(PrivateDir::create(&scratch.0.join("s1/p2")).unwrap());
        sweep(&scratch.0);
        assert!(living.path().exists());
        assert!(!scratch.0.join("s1/p2").exists());
        drop(living);
        sweep(&scratch.0);
        assert!(!scratch.0.join("s1").exists());
    }

    #[test]
    fn creators_and_sweepers_do_not_trip_each_other() {
        let scratch = Scratch::new();
        let parent = &scratch.0;
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || {
                    for round in 0..50 {
                        let path = parent.join(format!("p{thread}-{round}"));
                        let dir = PrivateDir::create(&path).unwrap();
                        fs::write(dir.path().join("file"), "x").unwrap();
                        assert!(path.join("file").exists(), "swept under its owner");
                        dir.remove();
                    }
                });
            }
            scope.spawn(move || {
                for _ in 0..200 {
                    sweep(parent);
                }
            });
        });
        assert_eq!(fs::read_dir(parent).unwrap().count(), 0);
    }
}
