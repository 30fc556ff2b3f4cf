//! How this process reaches the memory of a peer, and how it knows that the memory is the peer's.
//!
//! This side proves which process the peer is. Both ends know a digest of the connection that no other connection has (`Kept`). The peer
//! first sends a code of the digest and of the secret of its board. This side reads the secret in the file of the board, and checks the
//! code. Then the peer keeps the digest in its memory and says at which address. If the named process holds the digest at that address, its
//! memory is the peer's memory. Every copy reads the digest again: the process may have ended and another one may have its number, or it
//! may run another program.

// UNSAFETY: copies between addresses, and system calls that do.
#![expect(unsafe_code, reason = "copies of memory")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rendezvous::Process;

use super::board::{
    Board, FIRST_COUNT, Inside, Shown, WORDS, enter, find, is_crowded, is_there, kept, kept_at,
    life, vouch,
};
use super::count_words::CountWords;
use super::kept::{Kept, Vouch};
use super::machine::{Held, Machine, Piece, Spans, UNPROVEN};
use super::offer::{LocalOffer, Place};
use super::staged::Staged;
use super::user::is_of_user;
use super::words::Words;
use crate::gpu::{CopyPiece, FileName, Gpu};
use crate::provider::{Cause, files};

/// The most files of a peer that are mapped, and allocations of its GPUs that are opened, at a time.
const MOST_MAPPED: usize = 256;

/// A peer of this machine.
#[derive(Debug)]
pub(crate) struct Reach {
    peer: String,
    way: Way,
    /// The board of this side.
    own: Arc<Board>,
    /// The files and allocations of a peer in another process.
    mapped: Mutex<Maps>,
    /// The GPUs that copy. The number of a GPU is its index plus one.
    gpus: Mutex<Vec<Arc<dyn Gpu>>>,
    /// The regions of the peer that a GPU was to reach, by key.
    known: Mutex<HashMap<u32, Shown>>,
    seat: usize,
    /// The life of this connection.
    life: u64,
    is_said: AtomicBool,
    /// A GPU has refused a copy, and its reason is in the log.
    has_refused: AtomicBool,
}

#[derive(Debug)]
enum Way {
    Process(Arc<Board>),
    Machine(Machine),
}

/// The files of the peer that are mapped here, and the allocations of its GPUs that are opened.
#[derive(Debug, Default)]
struct Maps {
    turn: u64,
    by_id: HashMap<Id, Mapped>,
}

/// The identity of what is mapped or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Id {
    File(u128),
    /// An allocation of the peer, by its number.
    Allocation(u64),
}

#[derive(Debug)]
struct Mapped {
    held: Held,
    /// The turn in which it was used last, and for which region.
    used: u64,
    shown: Shown,
}

/// What a peer says of itself, and what proves it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim<'a> {
    pub(crate) incarnation: u64,
    pub(crate) process: &'a Process,
    /// The offer in the record that the peer published.
    pub(crate) offer: &'a LocalOffer,
    /// What the peer keeps for this connection.
    pub(crate) kept: Kept,
}

/// The peer that is to be reached.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a str,
    pub(crate) claim: Claim<'a>,
    pub(crate) place: Place,
    /// The board of this side.
    pub(crate) own: &'a Arc<Board>,
}

impl Reach {
    /// Reaches the peer, or says why not.
    pub(crate) fn open(wanted: &Wanted<'_>) -> Result<Self, String> {
        let (seat, at) = kept_at(wanted.place.seat)
            .ok_or_else(|| format!("it has named seat {}", wanted.place.seat))?;
        let claim = &wanted.claim;
        let way = if claim.is_of_this_process() {
            Way::Process(claim.own_board()?)
        } else {
            let (pid, words) = claim.board_of_process()?;
            let at = wanted.place.board.checked_add(at);
            let at = at.ok_or("its board ends behind the last address")?;
            Way::Machine(Machine::open(pid, words, claim.kept, at)?)
        };
        let mut reach = Self {
            peer: wanted.name.to_owned(),
            way,
            own: Arc::clone(wanted.own),
            mapped: Mutex::default(),
            gpus: Mutex::default(),
            known: Mutex::default(),
            seat,
            life: 0,
            is_said: AtomicBool::new(false),
            has_refused: AtomicBool::new(false),
        };
        reach.life = life(reach.words(), seat);
        if kept(reach.words(), seat) != claim.kept.words() {
            return Err(UNPROVEN.to_owned());
        }
        Ok(reach)
    }

    /// Returns whether the peer is of this process.
    pub(crate) fn is_of_process(&self) -> bool {
        matches!(self.way, Way::Process(_))
    }

    /// Returns ESRCH if the peer's process is gone.
    pub(crate) fn cause_of_end(&self) -> Option<Cause> {
        match &self.way {
            Way::Process(_) => None,
            Way::Machine(machine) => match machine.prove() {
                Err(libc::ESRCH) => Some(Cause::of_system(libc::ESRCH)),
                _ => None,
            },
        }
    }

    /// Logs once that the peer is not reached any more.
    pub(super) fn say(&self, cause: Cause) {
        if !self.is_said.swap(true, Ordering::Relaxed) && !cause.is_flush() {
            let peer = &self.peer;
            tracing::warn!("{peer} is not reached within this machine any more: {cause}");
        }
    }

    fn words(&self) -> &[AtomicU64] {
        match &self.way {
            Way::Process(board) => board.own(),
            Way::Machine(machine) => machine.words(),
        }
    }

    /// Enters the peer's board as thread `copier`. Until this thread leaves, no region of the peer is taken away. Returns None if the peer
    /// lets this side in no more.
    pub(super) fn enter(&self, copier: usize) -> Option<Inside<'_>> {
        enter(self.words(), self.seat, self.life, copier)
    }

    /// Adds one to the peer's counter, after the bytes. The caller has entered. Returns whether the counter exists.
    pub(super) fn count(&self, counter: u32) -> bool {
        let counts = match &self.way {
            Way::Process(board) => board.counts(),
            Way::Machine(machine) => CountWords::at(machine.words(), FIRST_COUNT),
        };
        counts.add(counter, 1)
    }

    /// Returns the peer's region with this key.
    pub(super) fn find(&self, key: u32) -> Option<Shown> {
        find(self.words(), key)
    }

    pub(super) fn is_there(&self, shown: &Shown) -> bool {
        is_there(self.words(), shown)
    }

    /// Returns whether the peer has more regions than it shows.
    pub(super) fn is_crowded(&self) -> bool {
        is_crowded(self.words())
    }

    /// Returns the memory of a region of another process, mapped here, or opened by this GPU. Returns None if the region has no name or
    /// cannot be reached by it.
    pub(super) fn hold(&self, shown: &Shown, gpu: Option<&Arc<dyn Gpu>>) -> Option<Held> {
        let Way::Machine(machine) = &self.way else {
            return None;
        };
        let id = match (shown.file, shown.ipc, gpu) {
            (Some((_, id)), ..) => Id::File(id),
            (None, Some(name), Some(_)) => Id::Allocation(name.allocation()),
            _ => return None,
        };
        let offset = shown.ipc.map_or(0, |name| name.offset());
        let mut maps = lock(&self.mapped);
        maps.turn += 1;
        let turn = maps.turn;
        let fits = |held: &Held| held.room() >= shown.bytes;
        if let Some(mapped) = maps.by_id.get_mut(&id) {
            (mapped.used, mapped.shown) = (turn, *shown);
            let held = match &mapped.held {
                Held::Opened(memory, _) => Held::Opened(Arc::clone(memory), offset),
                mapped => mapped.clone(),
            };
            return Some(held).filter(fits);
        }
        let held = match machine.hold(shown, gpu) {
            Ok(held) => held,
            Err(why) => {
                let means = if shown.is_of_gpu {
                    "the NIC moves"
                } else {
                    "the kernel copies"
                };
                tracing::debug!("{means} what is of {}: {why}", self.peer);
                return None;
            }
        };
        if maps.by_id.len() >= MOST_MAPPED {
            let oldest = maps.by_id.iter().min_by_key(|(_, mapped)| mapped.used);
            if let Some(oldest) = oldest.map(|(id, _)| *id) {
                maps.by_id.remove(&oldest);
            }
        }
        let mapped = Mapped {
            held: held.clone(),
            used: turn,
            shown: *shown,
        };
        maps.by_id.insert(id, mapped);
        Some(held).filter(fits)
    }

    /// Returns the GPU that is to copy between host memory of this side and this region of the peer: the region's GPU if the peer is of
    /// this process, else a GPU of this side.
    pub(crate) fn gpu_for(&self, key: u32) -> Option<Arc<dyn Gpu>> {
        match &self.way {
            Way::Process(board) => board.gpu_of(self.shown(key)?.place),
            Way::Machine(_) => self.own.any_gpu(),
        }
    }

    /// Returns whether this GPU reaches the peer's region with this key.
    pub(crate) fn is_reached_by(&self, gpu: &Arc<dyn Gpu>, key: u32) -> bool {
        let Some(shown) = self.shown(key) else {
            return false;
        };
        match &self.way {
            Way::Process(_) if !shown.is_of_gpu => true,
            Way::Process(board) => {
                let theirs = board.gpu_of(shown.place);
                theirs.is_some_and(|it| it.copies_within() == gpu.copies_within())
            }
            Way::Machine(_) => self.hold(&shown, Some(gpu)).is_some(),
        }
    }

    /// Returns the number of a GPU that copies, at least 1. Returns None if there are too many GPUs.
    pub(crate) fn number_of(&self, gpu: &Arc<dyn Gpu>) -> Option<u8> {
        let mut gpus = lock(&self.gpus);
        let known = gpus.iter().position(|it| Arc::ptr_eq(it, gpu));
        let place = known.unwrap_or(gpus.len());
        let number = u8::try_from(place + 1).ok()?;
        if known.is_none() {
            gpus.push(Arc::clone(gpu));
        }
        Some(number)
    }

    /// Returns the GPU with this number.
    pub(super) fn gpu(&self, number: u8) -> Option<Arc<dyn Gpu>> {
        let place = usize::from(number).checked_sub(1)?;
        lock(&self.gpus).get(place).cloned()
    }

    /// Returns the peer's region with this key. It searches the board only if the region that it found last is gone.
    fn shown(&self, key: u32) -> Option<Shown> {
        let mut known = lock(&self.known);
        if let Some(shown) = known.get(&key).filter(|shown| self.is_there(shown)) {
            return Some(*shown);
        }
        known.retain(|_, shown| self.is_there(shown));
        let shown = self.find(key)?;
        known.insert(key, shown);
        Some(shown)
    }

    /// Unmaps files and closes allocations of regions that the peer has taken away, so that their memory is free. Returns whether some may
    /// be mapped later.
    pub(crate) fn sweep(&self) -> bool {
        if self.is_of_process() {
            return false;
        }
        let mut maps = lock(&self.mapped);
        maps.by_id.retain(|_, mapped| self.is_there(&mapped.shown));
        true
    }

    /// Lets this GPU copy all pieces. The GPU reaches both ends of each.
    pub(super) fn copy_by_gpu(
        &self,
        is_read: bool,
        pieces: &[Piece],
        gpu: &Arc<dyn Gpu>,
        copies: &mut Vec<CopyPiece>,
    ) -> Result<(), i32> {
        copies.clear();
        copies.extend(pieces.iter().map(|piece| {
            let (to, from) = if is_read {
                (piece.local, piece.remote)
            } else {
                (piece.remote, piece.local)
            };
            let bytes = piece.bytes;
            CopyPiece { to, from, bytes }
        }));
        // SAFETY: as in `copy`; memory of the peer is opened or mapped as long as the caller holds it, and was found to have the
        // whole region.
        let staged = unsafe { Staged::new(copies) }.map_err(|_| libc::EFAULT)?;
        // SAFETY: as above.
        if let Err(error) = unsafe { gpu.copy(copies) } {
            if !self.has_refused.swap(true, Ordering::Relaxed) {
                let (gpu, peer) = (gpu.label(), &self.peer);
                tracing::warn!("{gpu} refuses copies for {peer}, which QPs take over: {error}");
            }
            return Err(libc::EIO);
        }
        // SAFETY: as above.
        unsafe { staged.finish() }.map_err(|_| libc::EFAULT)?;
        match &self.way {
            Way::Process(_) => Ok(()),
            Way::Machine(machine) => machine.prove(),
        }
    }

    /// Copies all pieces. This process reaches both ends: the peer's memory is in this process, or is mapped.
    pub(super) fn copy(&self, is_read: bool, pieces: &[Piece]) -> Result<(), i32> {
        for piece in pieces {
            let [from, to] = if is_read {
                [piece.remote, piece.local]
            } else {
                [piece.local, piece.remote]
            };
            // SAFETY: both ranges lie in registered regions: this side's stays registered while a transfer uses it, and the peer's
            // while this thread is inside. Other programs, and HCAs, may use the bytes meanwhile; no Rust reference to them exists.
            let copied = unsafe { files::copy(from, to, piece.bytes) };
            // The error is the same as that of the kernel for another process.
            copied.map_err(|_| libc::EFAULT)?;
        }
        match &self.way {
            Way::Process(_) => Ok(()),
            Way::Machine(machine) => machine.prove(),
        }
    }

    /// Lets the kernel copy all pieces, at most [`MOST_PIECES`](super::machine::MOST_PIECES), to or from the peer's addresses.
    pub(super) fn copy_by_kernel(
        &self,
        is_read: bool,
        pieces: &[Piece],
        spans: &mut Spans,
    ) -> Result<(), i32> {
        match &self.way {
            // The peer's memory is in this process.
            Way::Process(_) => self.copy(is_read, pieces),
            Way::Machine(machine) => machine.copy(is_read, pieces, spans),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change under the lock is complete, so a poisoned lock does no harm.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Claim<'_> {
    fn is_of_this_process(&self) -> bool {
        *self.process == Process::this()
    }

    /// Returns the board of an engine of this process.
    fn own_board(&self) -> Result<Arc<Board>, &'static str> {
        Board::of(self.incarnation).ok_or("this process has no such engine")
    }

    /// Returns the number of the peer's process, and the words of its board. The process is another one than this.
    fn board_of_process(&self) -> Result<(u32, Words), String> {
        let pid = self.process.pid_here();
        let pid = pid.ok_or("its process is not seen from here")?;
        is_of_user(pid, self.process)?;
        let (fd, id) = (self.offer.board.fd(), self.offer.board.id());
        let id = id.ok_or("its board is no file of an engine")?;
        let mapping = FileName::of(pid, fd, id).map(8 * WORDS as u64)?;
        Ok((pid, Words::of(mapping)))
    }

    /// Checks that the peer has shown by this code that the board which it offers is its own. The kernel lets any process of this user read
    /// the file of a board. This function reads nothing of the memory of the peer's process.
    pub(crate) fn check(&self, shown: Vouch) -> Result<(), String> {
        let right = if self.is_of_this_process() {
            self.own_board()?.vouch(self.kept)
        } else {
            vouch(&self.board_of_process()?.1, self.kept)
        };
        if shown != right {
            let why = "it has not shown over this connection that its board is its own: a relay, a proxy or a translation of addresses may be between";
            return Err(why.to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::{KEPT, machine};
    use super::super::{MemoryName, ShownRegion};
    use super::*;
    use crate::gpu::Mapping;

    /// Returns a reach to this machine's process, with what is not under test left empty.
    fn reach(machine: Machine) -> Reach {
        Reach {
            peer: "b".to_owned(),
            way: Way::Machine(machine),
            own: Board::new(99).unwrap(),
            mapped: Mutex::default(),
            gpus: Mutex::default(),
            known: Mutex::default(),
            seat: 0,
            life: 0,
            is_said: AtomicBool::new(false),
            has_refused: AtomicBool::new(false),
        }
    }

    fn mapping(reach: &Reach, key: u32) -> Option<Arc<Mapping>> {
        match reach.hold(&reach.find(key).unwrap(), None)? {
            Held::Mapped(mapping) => Some(mapping),
            Held::Opened(..) => None,
        }
    }

    /// Shows 4,096 bytes of a file for any use; returns their place on the board.
    fn show_file(board: &Arc<Board>, memory: &crate::provider::HostMemory, key: u32) -> usize {
        let region = ShownRegion {
            address: memory.address(),
            bytes: 4096,
            key,
            place: memory.address(),
            may_read: true,
            may_write: true,
        };
        let name = memory.file().map(MemoryName::File);
        board.show(&region, name.as_ref(), None).unwrap()
    }

    #[test]
    fn the_file_of_a_region_that_was_taken_away_is_unmapped() {
        let board = Board::new(13).unwrap();
        let (machine, _seat) = machine(&board, KEPT);
        let reach = reach(machine);
        assert!(reach.sweep(), "nothing is mapped yet");
        let memory = crate::provider::HostMemory::shared(4096).unwrap();
        let show = |key| show_file(&board, &memory, key);
        let mapped = |key| mapping(&reach, key);
        let first = show(7);
        let held = Arc::downgrade(&mapped(7).unwrap());
        assert!(reach.sweep() && held.upgrade().is_some());
        // The file is shown again under another key: it is mapped once, for the later region.
        let second = show(8);
        assert!(Arc::ptr_eq(&mapped(8).unwrap(), &held.upgrade().unwrap()));
        board.mark(first);
        assert!(reach.sweep() && held.upgrade().is_some());
        board.mark(second);
        assert!(reach.sweep() && held.upgrade().is_none());
    }

    #[test]
    fn of_257_files_the_least_recently_used_is_unmapped() {
        let board = Board::new(14).unwrap();
        let (machine, _seat) = machine(&board, KEPT);
        let reach = reach(machine);
        let memories: Vec<_> = (0..258)
            .map(|_| crate::provider::HostMemory::shared(4096).unwrap())
            .collect();
        let places: Vec<usize> = (1u32..)
            .zip(&memories)
            .map(|(key, memory)| show_file(&board, memory, key))
            .collect();
        let map = |nth: u32| mapping(&reach, nth + 1).unwrap();
        let mut mapped: Vec<_> = (0..256).map(|nth| Arc::downgrade(&map(nth))).collect();
        let gone = |mapped: &[std::sync::Weak<Mapping>]| -> Vec<usize> {
            let all = mapped.iter().enumerate();
            let gone = all.filter(|(_, mapping)| mapping.strong_count() == 0);
            gone.map(|(nth, _)| nth).collect()
        };
        assert_eq!(gone(&mapped), Vec::<usize>::new());
        // The first is used again, so the second is the one that was not used for longest.
        map(0);
        mapped.push(Arc::downgrade(&map(256)));
        assert_eq!(gone(&mapped), [1]);
        // A copy that runs keeps its mapping until its end, and maps no file twice.
        let running = map(2);
        (3..256).for_each(|nth| drop(map(nth)));
        mapped.push(Arc::downgrade(&map(257)));
        assert_eq!(gone(&mapped), [0, 1]);
        drop(map(0));
        assert_eq!(gone(&mapped), [0, 1, 256], "the new mapping is another");
        (3..256).for_each(|nth| drop(map(nth)));
        drop(map(257));
        drop(map(0));
        drop(map(1));
        assert_eq!(gone(&mapped), [0, 1, 256], "the copy still runs");
        drop(running);
        assert_eq!(gone(&mapped), [0, 1, 2, 256]);
        // A file that was unmapped still has its bytes.
        memories[1].write(0, &[9; 8]).unwrap();
        let byte = map(1).start().as_ptr();
        // SAFETY: the mapping lives, and no thread writes.
        assert_eq!(unsafe { byte.read() }, 9);
        places.into_iter().for_each(|place| board.mark(place));
        assert!(reach.sweep());
        assert_eq!(gone(&mapped).len(), 258);
    }
}
