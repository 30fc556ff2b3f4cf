//! The versions of a key in a directory store. Two of them are kept, and nothing locks.
//!
//! **Layout.** The key `a/b` has the home `a/b@`, a directory. In it is one directory, the room, whose name is a number, say
//! `a/b@/7`. The room holds version 7 as the file `7`. Once a writer has made version 8, it holds that as the file `8`: the greater
//! is the value of the key. A new room holds no file. The first line of a version is the name of the scratch file as which its
//! writer wrote it. Beats of leases are among the scratch files.
//!
//! **Change.** A writer that has found version n to be the newest makes version n + 1 in these steps:
//!
//! 1. If the room is still called n - 1, the writer renames the scratch file of version n to `.done`, if it exists. That shows
//!    the writer of n that its change was made. Then it renames the room to n, which closes the path n - 1 for good.
//! 2. It removes the file n - 1 from the room n.
//! 3. It writes a scratch file and links it to the file n + 1 of the room n. The link fails where that file exists, or where
//!    the path is closed.
//! 4. It lists the room by its path n. If the path exists, the change is made. If it is closed, the change was made if
//!    the scratch file is `.done` now, and else it was not.
//! 5. It removes its scratch file.
//!
//! **End.** The removal of a key is a version after which no writer makes another. A process that finds it ends the room: it renames
//! the scratch file of the removal to `.done` if it exists, moves the room to the scratch directory, and deletes it there. Then it
//! removes the home and the folders above it as far as they are empty. A key that is set again gets a new home by one rename, which
//! fails where a home holds a room. The upper half of a room's first number is random. So no path of an ended room comes back: a
//! writer or reader that was stopped with such a path finds it closed.
//!
//! **Why that holds** when processes are stopped between any two of these steps, for any time, or killed between them:
//!
//! - A room is made in its home before the home gets its name, by a rename that fails where a home holds anything. So a key has one
//!   room. Only the rename from n - 1 to n gives it another number, so its numbers grow, and a closed path never comes back. A
//!   process that finds a path before and after a step knows that the room had that name in between.
//! - A room is moved away only if its newest version is a removal. No process adds to that one, so nothing that was set is lost. A
//!   link that reaches a room which is being deleted is no change: its writer finds the path closed, and no `.done`.
//! - In the room n the files n and n + 1 are never removed. A process removes only what is below the number in the path that it
//!   uses. So of the links to n + 1 one succeeds while the room is called n, and it is the change after n. A later one finds no
//!   path. That one system call makes the change: a writer that is killed has made it or not.
//! - The kernel looks up the directory of a path first, and works in it then. So a link by the path n may reach the room when it
//!   has a later name. The rooms n and n + 1 have the file n + 1; in a later one the link succeeds, and its file is a stray. No
//!   process takes a stray for a version. A reader or writer that opens one by a path of before finds that path closed
//!   afterwards. The writer of the stray finds its path closed as well, and no `.done`. Only the scratch file of a version is
//!   renamed so. The process that renames it has read its name in the version and found the path open afterwards.
//! - A process that renames the room has renamed the scratch file of its newest version before. So a writer that finds its path
//!   closed, and whose change was made, finds `.done`.
//! - A reader opens n + 1, or else n, and then finds the path n still open. So what it has read was the newest version at a
//!   moment within the call. If the path is closed, it looks again, as a writer does, until the bound of the call. So all reads
//!   and changes are as if each was made at one moment, and a stopped process sees nothing older than it has seen.
//! - Before a writer links n + 1, it has removed n - 1. So a room holds two files, and a stray until its writer comes back. If
//!   that writer was killed, the stray stays until the next change.
//!
//! **NFS.** The server makes a rename or a link in one step. If its answer is lost, the client asks again. If the first request
//! made the link, the second finds the file, or the path closed. The number of links of the scratch file then shows that the link
//! was made. What a client looks up may be as old as its caches. But the server makes links and renames. It gives the list after a
//! link, since the client itself has changed that directory. A number above n + 1 in the list counts as a closed path. So with
//! caches no change is lost and none is made twice. A handle sees changes as late as its client's caches let it, and never goes
//! back on a key. What [`Store`](crate::Store) promises of two keys needs a mount with `actimeo=0,lookupcache=none`.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::disk::{check_exists, gone, io_error, is_there, names, rename_if_there};
use super::scratch::{Scratch, ScratchFiles, is_name};
use super::tries::Tries;
use crate::{MAX_VALUE, StoreError};

/// The ending of a key's home, after the last name of the key.
pub(super) const HOME: &str = "@";
/// Bits of a version's number that count the changes of one room; the bits above them are random for each room.
const VERSIONS: u32 = 32;
/// The random bits of a room's number.
const LIVES: u32 = 30;
/// How often a home is made anew after another process has removed its folder.
const MAKES: u32 = 100;
/// The most bytes of a version: a value, and the lines before it.
const MAX_VERSION: u64 = MAX_VALUE as u64 + 4096;

/// The keys of a directory, as one handle uses them.
#[derive(Debug)]
pub(super) struct Keys {
    directory: PathBuf,
    scratch: ScratchFiles,
    /// The newest version that this handle has found, by key.
    seen: Mutex<HashMap<String, u64>>,
    /// A function that returns the number of a new room.
    first: fn() -> u64,
    #[cfg(test)]
    steps: tests::Steps,
}

/// The newest version of a key.
#[derive(Debug, Default)]
pub(super) struct Newest {
    /// The number of the version. If the room holds no version, the number of the room; without a room, 0.
    pub(super) version: u64,
    /// The bytes of that version; empty if there is none.
    pub(super) content: Vec<u8>,
    /// True if there is a version.
    pub(super) exists: bool,
    /// The number of the room, if the key has one.
    pub(super) room: Option<u64>,
    /// The scratch file as which the version was written.
    pub(super) scratch: String,
}

impl Newest {
    /// Returns whether the key has a room, so that a version can be added.
    pub(super) fn has_room(&self) -> bool {
        self.room.is_some()
    }
}

impl Keys {
    /// Opens the keys of `directory`, which exists.
    pub(super) fn open(directory: &Path) -> Result<Self, StoreError> {
        Ok(Self {
            directory: directory.to_owned(),
            scratch: ScratchFiles::open(directory)?,
            seen: Mutex::default(),
            first: || fastrand::u64(1..1 << LIVES) << VERSIONS,
            #[cfg(test)]
            steps: tests::Steps::default(),
        })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the scratch files of this handle.
    pub(super) fn scratch(&self) -> &ScratchFiles {
        &self.scratch
    }

    pub(super) fn home(&self, key: &str) -> PathBuf {
        self.directory.join(format!("{key}{HOME}"))
    }

    /// Returns the newest version of `key`. In one room it is never older than what this handle has found before this call. The versions of
    /// an ended room are not compared with those of a later room.
    pub(super) fn newest(&self, key: &str, tries: &Tries) -> Result<Newest, StoreError> {
        let least = self.seen().get(key).copied().unwrap_or(0);
        let is_old = |found: &Newest| {
            let same = found.room.is_some() && found.version >> VERSIONS == least >> VERSIONS;
            same && found.version < least
        };
        loop {
            let found = self.look(key)?;
            if let Some(newest) = found.filter(|found| !is_old(found)) {
                self.note(key, newest.version);
                return Ok(newest);
            }
            tries.again(key)?;
        }
    }

    /// Returns the newest version of `key`. Returns None if its room got another name meanwhile.
    fn look(&self, key: &str) -> Result<Option<Newest>, StoreError> {
        let home = self.home(key);
        self.step();
        let names = match names(&home) {
            Ok(names) => names,
            Err(error) if gone(&error) => return self.without_room().map(Some),
            Err(error) => return Err(io_error(&home)(error)),
        };
        // A listing during a rename may hold both names of the room, or neither.
        let Some(number) = names.iter().filter_map(|name| number(name)).max() else {
            self.step();
            // Only an empty home can be removed, and an empty home means that its room has ended.
            return match fs::remove_dir(&home) {
                Ok(()) => self.without_room().map(Some),
                Err(error) if gone(&error) => self.without_room().map(Some),
                Err(_) => Ok(None),
            };
        };
        let room = home.join(number.to_string());
        self.step();
        let mut found = (number + 1, read(key, &room, number + 1)?);
        if found.1.is_none() {
            self.step();
            found = (number, read(key, &room, number)?);
        }
        self.step();
        if !is_there(&room)? {
            return Ok(None);
        }
        let mut newest = Newest {
            room: Some(number),
            version: number,
            ..Newest::default()
        };
        match found {
            (version, Some(bytes)) => {
                (newest.scratch, newest.content) = split(key, bytes)?;
                (newest.version, newest.exists) = (version, true);
            }
            (number, None) if is_first(number) => {}
            (_, None) => return Ok(None),
        }
        Ok(Some(newest))
    }

    /// Returns a key without a room, if the directory exists. Without the directory nothing is known of any key.
    fn without_room(&self) -> Result<Newest, StoreError> {
        check_exists(&self.directory)?;
        Ok(Newest::default())
    }

    /// Makes the version after `newest`, which has a room and is no removal. Returns false if another writer was faster or the room has
    /// ended.
    pub(super) fn add(
        &self,
        key: &str,
        newest: &Newest,
        content: &[u8],
    ) -> Result<bool, StoreError> {
        let home = self.home(key);
        self.settle(&home, newest)?;
        let room = home.join(newest.version.to_string());
        if !is_first(newest.version) {
            self.step();
            let before = newest.version - 1;
            let _ = fs::remove_file(room.join(before.to_string()));
        }
        let scratch = self
            .scratch
            .write(|name| [name.as_bytes(), b"\n", content].concat())?;
        let made = self.link(&scratch, &room, newest.version + 1)?;
        if made {
            self.note(key, newest.version + 1);
        }
        Ok(made)
    }

    /// Makes the home of a key with a new room, unless the home has a room.
    pub(super) fn begin(&self, key: &str) -> Result<(), StoreError> {
        let home = self.home(key);
        let parent = home.parent().unwrap_or(&self.directory);
        for _ in 0..MAKES {
            check_exists(&self.directory)?;
            match fs::create_dir_all(parent) {
                // Another process has removed the folder, which was empty. The call has found it, then not found it; or a folder above it
                // was removed.
                Err(error) if gone(&error) || error.kind() == ErrorKind::AlreadyExists => continue,
                made => made.map_err(io_error(parent))?,
            }
            let room = (self.first)().to_string();
            let scratch = self.scratch.make_directory(&room)?;
            self.step();
            let Err(error) = fs::rename(&scratch, &home) else {
                return Ok(());
            };
            let _ = fs::remove_dir_all(&scratch);
            let is_made = [ErrorKind::AlreadyExists, ErrorKind::DirectoryNotEmpty];
            match error.kind() {
                kind if is_made.contains(&kind) => return Ok(()),
                // Another process has removed the folder, which was empty.
                _ if gone(&error) => {}
                _ => return Err(io_error(&home)(error)),
            }
        }
        Ok(())
    }

    /// Ends the room of `key`, whose newest version is the removal `newest`, and removes what is empty then.
    pub(super) fn end(&self, key: &str, newest: &Newest) -> Result<(), StoreError> {
        let home = self.home(key);
        if let Some(room) = newest.room {
            if !newest.scratch.is_empty() {
                self.step();
                self.scratch.show_done(&newest.scratch)?;
            }
            let (_, scratch) = self.scratch.new_name();
            self.step();
            rename_if_there(&home.join(room.to_string()), &scratch)?;
            // A late link may put a file into the room meanwhile. What is left then is removed after this process has ended.
            let _ = fs::remove_dir_all(&scratch).or_else(|_| fs::remove_dir_all(&scratch));
        }
        self.step();
        let above = home.ancestors();
        let empty = above.take_while(|path| *path != self.directory);
        for path in empty {
            if fs::remove_dir(path).is_err_and(|error| !gone(&error)) {
                break;
            }
        }
        Ok(())
    }

    /// Renames the room to the newest version. Before that it shows the version's writer that the change was made.
    fn settle(&self, home: &Path, newest: &Newest) -> Result<(), StoreError> {
        let Some(room) = newest.room.filter(|room| *room != newest.version) else {
            return Ok(());
        };
        self.step();
        self.scratch.show_done(&newest.scratch)?;
        let [from, to] = [room, newest.version].map(|number| home.join(number.to_string()));
        self.step();
        rename_if_there(&from, &to)
    }

    /// Links a scratch file as `number` in `room`. Returns whether the file is that version of the key.
    fn link(&self, scratch: &Scratch, room: &Path, number: u64) -> Result<bool, StoreError> {
        let path = room.join(number.to_string());
        self.step();
        let linked = match scratch.link(&path) {
            Ok(()) => true,
            Err(error) if gone(&error) || error.kind() == ErrorKind::AlreadyExists => {
                scratch.has_links()
            }
            Err(error) => return Err(io_error(&path)(error)),
        };
        self.step();
        if linked && self.is_newest(room, number)? {
            return Ok(true);
        }
        self.step();
        scratch.is_done()
    }

    /// Returns whether the room of this path exists and `number` is its newest version. Removes the strays in the room.
    fn is_newest(&self, room: &Path, number: u64) -> Result<bool, StoreError> {
        let found = match names(room) {
            Ok(found) => found,
            Err(error) if gone(&error) => return Ok(false),
            Err(error) => return Err(io_error(room)(error)),
        };
        let numbers = || found.iter().filter_map(|name| self::number(name));
        for stray in numbers().filter(|&stray| stray + 1 < number) {
            self.step();
            let _ = fs::remove_file(room.join(stray.to_string()));
        }
        Ok(numbers().max() == Some(number))
    }

    fn note(&self, key: &str, version: u64) {
        let mut seen = self.seen();
        match seen.get_mut(key) {
            // The room of the version that was seen has ended.
            Some(_) if version == 0 => drop(seen.remove(key)),
            Some(seen) if *seen >> VERSIONS == version >> VERSIONS => *seen = version.max(*seen),
            Some(seen) => *seen = version,
            None if version != 0 => {
                seen.insert(key.to_owned(), version);
            }
            None => {}
        }
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs before each step in which another process can be faster. Tests let other processes go on at these points.
    fn step(&self) {
        #[cfg(test)]
        self.steps.run();
    }
}

/// Returns whether a room begins with this number: it holds no version of this number.
fn is_first(number: u64) -> bool {
    number.trailing_zeros() >= VERSIONS
}

/// Returns the number that is the name of a room or version, if larger numbers can follow it.
fn number(name: &str) -> Option<u64> {
    let number: u64 = name.parse().ok()?;
    (number < u64::MAX / 2 && number.to_string() == name).then_some(number)
}

fn read(key: &str, room: &Path, number: u64) -> Result<Option<Vec<u8>>, StoreError> {
    let path = room.join(number.to_string());
    // Another program may have written the file, with any length.
    let bounded = || {
        let file = File::open(&path)?;
        let length = file.metadata()?.len();
        let mut bytes = Vec::new();
        file.take(MAX_VERSION + 1).read_to_end(&mut bytes)?;
        Ok((length.max(bytes.len() as u64), bytes))
    };
    match bounded() {
        Ok((length, _)) if length > MAX_VERSION => Err(StoreError::TooLong {
            what: "the value of",
            key: key.to_owned(),
            bytes: usize::try_from(length).unwrap_or(usize::MAX),
            limit: MAX_VALUE,
        }),
        Ok((_, bytes)) => Ok(Some(bytes)),
        Err(error) if gone(&error) => Ok(None),
        Err(error) => Err(io_error(&path)(error)),
    }
}

/// Splits a version into the name of its scratch file and its content.
fn split(key: &str, mut bytes: Vec<u8>) -> Result<(String, Vec<u8>), StoreError> {
    let garbage = StoreError::NotARecord {
        key: key.to_owned(),
        bytes: bytes.len(),
    };
    let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
        return Err(garbage);
    };
    let name = &bytes[..end];
    if !is_name(name) {
        return Err(garbage);
    }
    let name = String::from_utf8_lossy(name).into_owned();
    bytes.drain(..=end);
    Ok((name, bytes))
}

#[cfg(test)]
mod tests;
