//! How this process gets at the memory of a peer, and how it knows that it is the peer's.
//!
//! This side proves which process the peer is. Both ends know a digest of the connection that no other has (`Kept`). The peer first
//! sends a code of it and of the secret of its board, which this side reads in the file of the board. Then the peer keeps the digest in
//! its memory and says at which address. If the named process holds it at that address, its memory is the peer's memory. Every
//! copy reads it again: the process may have ended and its number may be another's, or it may run another program.

// UNSAFETY: copies between addresses, and system calls that do.
#![expect(unsafe_code, reason = "copies of memory")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use rendezvous::Process;

use super::board::{
    Board, Inside, Shown, WORDS, enter, find, is_crowded, is_there, kept, kept_at, life, vouch,
};
use super::counts::CountWords;
use super::kept::{Kept, Vouch, WORDS as KEPT_WORDS};
use super::offer::{LocalOffer, Place};
use super::staged::Staged;
use super::user::{YAMA, is_of_user};
use super::words::Words;
use crate::gpu::{CopyPiece, FileName, Gpu, Mapping, MemoryHandle, OpenedMemory};
use crate::provider::{Cause, files};

/// Most files of a peer that are mapped at a time, and allocations of GPUs that are opened.
const MOST_MAPPED: usize = 256;
/// Most pieces of a copy by the kernel, which takes 1,024; one is for what the peer keeps.
pub(super) const MOST_PIECES: usize = 1023;

/// A range in this process and one of the same length at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) local: u64,
    /// Where this process reaches it, or the peer's address where the kernel copies.
    pub(super) remote: u64,
    pub(super) bytes: u64,
}

/// As the kernel takes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: usize,
    bytes: usize,
}

const _: () = assert!(size_of::<Span>() == size_of::<libc::iovec>());
const _: () = assert!(align_of::<Span>() == align_of::<libc::iovec>());

/// Lists for the kernel, kept for their memory.
#[derive(Debug, Default)]
pub(super) struct Spans {
    local: Vec<Span>,
    remote: Vec<Span>,
}

/// A peer of this machine.
#[derive(Debug)]
pub(crate) struct Reach {
    peer: String,
    way: Way,
    /// That of this side.
    own: Arc<Board>,
    /// GPUs that copy, by one less than their number.
    gpus: Mutex<Vec<Arc<dyn Gpu>>>,
    /// Regions of the peer that a GPU was to reach, by key.
    known: Mutex<HashMap<u32, Shown>>,
    seat: usize,
    /// Of this connection.
    life: u64,
    is_said: AtomicBool,
    /// A GPU has refused a copy, and the log has its reason.
    has_refused: AtomicBool,
}

#[derive(Debug)]
enum Way {
    Process(Arc<Board>),
    Machine(Machine),
}

/// Another process.
#[derive(Debug)]
struct Machine {
    pid: u32,
    words: Words,
    /// What it keeps for this connection, and where.
    kept: Kept,
    at: u64,
    mapped: Mutex<Maps>,
}

/// Files of the peer that are mapped here, and allocations of its GPUs that are opened.
#[derive(Debug, Default)]
struct Maps {
    turn: u64,
    by_id: HashMap<Id, Mapped>,
}

/// What is mapped or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Id {
    File(u128),
    /// An allocation of the peer, by its number.
    Allocation(u64),
}

/// Memory of another process that this one reaches, for as long as it has this.
#[derive(Clone, Debug)]
pub(super) enum Held {
    Mapped(Arc<Mapping>),
    /// An allocation of a GPU, and where in it the region begins.
    Opened(Arc<OpenedMemory>, u64),
}

impl Held {
    /// Where this process has the first byte of the region.
    pub(super) fn first(&self) -> u64 {
        match self {
            Self::Mapped(mapping) => mapping.start().as_ptr().addr() as u64,
            Self::Opened(memory, offset) => memory.addr() + offset,
        }
    }

    /// Bytes from there on.
    fn room(&self) -> u64 {
        match self {
            Self::Mapped(mapping) => mapping.bytes() as u64,
            Self::Opened(memory, offset) => memory.room().saturating_sub(*offset),
        }
    }
}

#[derive(Debug)]
struct Mapped {
    held: Held,
    /// The turn in which it was used last, and for which region.
    used: u64,
    shown: Shown,
}

/// What a peer says of itself, and what shows that it is so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim<'a> {
    pub(crate) incarnation: u64,
    pub(crate) process: &'a Process,
    /// The record that the peer published.
    pub(crate) offer: &'a LocalOffer,
    /// What it keeps for this connection.
    pub(crate) kept: Kept,
}

/// Which peer is to be reached.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a str,
    pub(crate) claim: Claim<'a>,
    pub(crate) place: Place,
    /// That of this side.
    pub(crate) own: &'a Arc<Board>,
}

impl Reach {
    /// Reaches the peer, or says why not.
    pub(crate) fn open(wanted: &Wanted<'_>) -> Result<Self, String> {
        let (seat, at) = kept_at(wanted.place.seat)
            .ok_or_else(|| format!("it has named seat {}", wanted.place.seat))?;
        let way = match wanted.claim.is_of_this_process() {
            true => Way::Process(wanted.claim.own_board()?),
            false => Way::Machine(Machine::open(wanted, at)?),
        };
        let mut reach = Self {
            peer: wanted.name.to_owned(),
            way,
            own: Arc::clone(wanted.own),
            gpus: Mutex::default(),
            known: Mutex::default(),
            seat,
            life: 0,
            is_said: AtomicBool::new(false),
            has_refused: AtomicBool::new(false),
        };
        reach.life = life(reach.words(), seat);
        match kept(reach.words(), seat) == wanted.claim.kept.words() {
            true => Ok(reach),
            false => Err(UNPROVEN.to_owned()),
        }
    }

    /// Whether the peer is of this process.
    pub(crate) fn is_of_process(&self) -> bool {
        matches!(self.way, Way::Process(_))
    }

    /// ESRCH where the peer's process is gone.
    pub(crate) fn cause_of_end(&self) -> Option<Cause> {
        match &self.way {
            Way::Process(_) => None,
            Way::Machine(machine) => match machine.prove() {
                Err(libc::ESRCH) => Some(Cause::of_system(libc::ESRCH)),
                _ => None,
            },
        }
    }

    /// Says once that the peer is not reached any more.
    pub(super) fn say(&self, cause: Cause) {
        if !self.is_said.swap(true, Ordering::Relaxed) && !cause.is_flush() {
            let peer = &self.peer;
            tracing::warn!("{peer} is not reached within this machine any more: {cause}");
        }
    }

    fn words(&self) -> &[AtomicU64] {
        match &self.way {
            Way::Process(board) => board.own(),
            Way::Machine(machine) => &machine.words,
        }
    }

    /// Enters, as thread `copier`. None: the peer lets this side in no more. Until it is left no region of the peer is taken away.
    pub(super) fn enter(&self, copier: usize) -> Option<Inside<'_>> {
        enter(self.words(), self.seat, (self.life, copier))
    }

    /// Adds one to the peer's counter, after the bytes; the caller has entered. Returns whether the counter exists.
    pub(super) fn count(&self, counter: u32) -> bool {
        let counts = match &self.way {
            Way::Process(board) => board.counts(),
            Way::Machine(machine) => CountWords::of_board(&machine.words),
        };
        counts.add(counter)
    }

    /// The peer's region with this key.
    pub(super) fn find(&self, key: u32) -> Option<Shown> {
        find(self.words(), key)
    }

    pub(super) fn is_there(&self, shown: &Shown) -> bool {
        is_there(self.words(), shown)
    }

    /// Whether the peer has more regions than it shows.
    pub(super) fn is_crowded(&self) -> bool {
        is_crowded(self.words())
    }

    /// The memory of a region of another process, mapped here, or opened by this GPU. None where it has no name, or cannot be.
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
        let mut maps = lock(&machine.mapped);
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

    /// The GPU that is to copy between host memory of this side and regions of the peer: the peer's own, if it is of this process.
    pub(crate) fn gpu_for(&self, key: u32) -> Option<Arc<dyn Gpu>> {
        match &self.way {
            Way::Process(board) => board.gpu_of(self.shown(key)?.place),
            Way::Machine(_) => self.own.any_gpu(),
        }
    }

    /// Whether this GPU reaches the peer's region with this key.
    pub(crate) fn is_reached_by(&self, gpu: &Arc<dyn Gpu>, key: u32) -> bool {
        let Some(shown) = self.shown(key) else {
            return false;
        };
        match &self.way {
            Way::Process(board) => match shown.is_of_gpu {
                false => true,
                true => {
                    let theirs = board.gpu_of(shown.place);
                    theirs.is_some_and(|it| it.copies_within() == gpu.copies_within())
                }
            },
            Way::Machine(_) => self.hold(&shown, Some(gpu)).is_some(),
        }
    }

    /// A number for a GPU that copies; 0 stands for none. None: there are too many.
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

    /// The GPU with this number.
    pub(super) fn gpu(&self, number: u8) -> Option<Arc<dyn Gpu>> {
        let place = usize::from(number).checked_sub(1)?;
        lock(&self.gpus).get(place).cloned()
    }

    /// The peer's region with this key, which is not looked for each time.
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

    /// Unmaps files and closes allocations of regions that the peer has taken away, so that their memory is free. Whether some may be
    /// mapped later.
    pub(crate) fn sweep(&self) -> bool {
        let Way::Machine(machine) = &self.way else {
            return false;
        };
        let mut maps = lock(&machine.mapped);
        maps.by_id.retain(|_, mapped| self.is_there(&mapped.shown));
        true
    }

    /// This GPU copies all pieces, of which it reaches both ends.
    pub(super) fn copy_by_gpu(
        &self,
        is_read: bool,
        pieces: &[Piece],
        (gpu, copies): (&Arc<dyn Gpu>, &mut Vec<CopyPiece>),
    ) -> Result<(), i32> {
        copies.clear();
        copies.extend(pieces.iter().map(|piece| {
            let (to, from) = match is_read {
                true => (piece.local, piece.remote),
                false => (piece.remote, piece.local),
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

    /// Copies all pieces, of which this process reaches both ends: here is the peer's, or is mapped.
    pub(super) fn copy(&self, is_read: bool, pieces: &[Piece]) -> Result<(), i32> {
        for piece in pieces {
            let [from, to] = match is_read {
                true => [piece.remote, piece.local],
                false => [piece.local, piece.remote],
            };
            // SAFETY: both ranges lie in registered regions: this side's stays registered while a transfer uses it, and the peer's
            // while this thread is inside. Other programs, and HCAs, may use the bytes meanwhile; no Rust reference to them exists.
            let copied = unsafe { files::copy(from, to, piece.bytes) };
            // As the kernel says it of another process.
            copied.map_err(|_| libc::EFAULT)?;
        }
        match &self.way {
            Way::Process(_) => Ok(()),
            Way::Machine(machine) => machine.prove(),
        }
    }

    /// The kernel copies all pieces, at most [`MOST_PIECES`], of the peer's addresses. All of them, or an error.
    pub(super) fn copy_by_kernel(
        &self,
        is_read: bool,
        pieces: &[Piece],
        spans: &mut Spans,
    ) -> Result<(), i32> {
        match &self.way {
            // The memory is in this process.
            Way::Process(_) => self.copy(is_read, pieces),
            Way::Machine(machine) => machine.copy(is_read, pieces, spans),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Claim<'_> {
    fn is_of_this_process(&self) -> bool {
        *self.process == Process::this()
    }

    /// The board of an engine of this process.
    fn own_board(&self) -> Result<Arc<Board>, &'static str> {
        Board::of(self.incarnation).ok_or("this process has no such engine")
    }

    /// Another process, and the words of its board.
    fn board_of_process(&self) -> Result<(u32, Words), String> {
        let pid = self.process.pid_here();
        let pid = pid.ok_or("its process is not seen from here")?;
        is_of_user(pid, self.process)?;
        let (fd, id) = (self.offer.board.fd(), self.offer.board.id());
        let id = id.ok_or("its board is no file of an engine")?;
        let mapping = FileName::of(pid, fd, id).map(8 * WORDS as u64)?;
        Ok((pid, Words::of(mapping)))
    }

    /// Whether the peer has shown by this code that the board which it offers is its own. The kernel lets any process of this user read
    /// the file of a board. Of the peer's process this reads nothing.
    pub(crate) fn check(&self, shown: Vouch) -> Result<(), String> {
        let right = match self.is_of_this_process() {
            true => self.own_board()?.vouch(self.kept),
            false => vouch(&self.board_of_process()?.1, self.kept),
        };
        match shown == right {
            true => Ok(()),
            false => Err(
                "it has not shown over this connection that its board is its own: a relay, a proxy or a translation of addresses may be between"
                    .to_owned(),
            ),
        }
    }
}

const UNPROVEN: &str = "its memory does not have what it is to keep there";

impl Machine {
    fn open(wanted: &Wanted<'_>, at: u64) -> Result<Self, String> {
        let (pid, words) = wanted.claim.board_of_process()?;
        let at = wanted.place.board.checked_add(at);
        let machine = Self {
            pid,
            words,
            kept: wanted.claim.kept,
            at: at.ok_or("its board ends behind the last address")?,
            mapped: Mutex::default(),
        };
        match machine.prove() {
            Ok(()) => Ok(machine),
            Err(libc::ESRCH) => Err(UNPROVEN.to_owned()),
            Err(errno) => {
                let error = io::Error::from_raw_os_error(errno);
                let yama = fs::read_to_string(YAMA).unwrap_or_default();
                let yama = match yama.trim() {
                    "" | "0" => String::new(),
                    scope => format!("; {YAMA} is {scope}"),
                };
                Err(format!("process_vm_readv of process {pid}: {error}{yama}"))
            }
        }
    }

    /// Maps the file of a region, or lets this GPU open its allocation.
    fn hold(&self, shown: &Shown, gpu: Option<&Arc<dyn Gpu>>) -> Result<Held, String> {
        if let Some((fd, id)) = shown.file {
            let mapping = FileName::of(self.pid, fd, id).map(shown.bytes)?;
            mapping.start().as_ptr().expose_provenance();
            return Ok(Held::Mapped(Arc::new(mapping)));
        }
        let (Some(name), Some(gpu)) = (shown.ipc, gpu) else {
            return Err("it has no name".to_owned());
        };
        let end = name.offset().checked_add(shown.bytes);
        let end = end.ok_or("its region ends behind the last address")?;
        let opened = gpu.open_memory(&MemoryHandle::of_ipc(end, name.handle()));
        let opened = opened.map_err(|error| error.to_string())?;
        Ok(Held::Opened(Arc::new(opened), name.offset()))
    }

    /// Reads what the peer keeps for this connection. ESRCH: its process is gone.
    fn prove(&self) -> Result<(), i32> {
        let mut words = [0; KEPT_WORDS];
        self.read(&[into(&mut words)], &[self.kept()])?;
        self.judge(words)
    }

    fn copy(&self, is_read: bool, pieces: &[Piece], spans: &mut Spans) -> Result<(), i32> {
        spans.set(pieces);
        let Spans { local, remote } = spans;
        if is_read {
            // What is kept comes last, so what comes before is of the memory that has them.
            let mut words = [0; KEPT_WORDS];
            local.push(into(&mut words));
            remote.push(self.kept());
            self.read(local, remote)?;
            return self.judge(words);
        }
        // The process that is written to is the peer, before and after the whole write.
        self.prove()?;
        self.write(local, remote)?;
        self.prove()
    }

    /// Where the peer keeps it.
    fn kept(&self) -> Span {
        Span {
            first: address(self.at),
            bytes: size_of::<[u64; KEPT_WORDS]>(),
        }
    }

    /// ESRCH where they are others: the process has ended, and its number is another's, or it runs another program.
    fn judge(&self, words: [u64; KEPT_WORDS]) -> Result<(), i32> {
        match words == self.kept.words() {
            true => Ok(()),
            false => Err(libc::ESRCH),
        }
    }

    fn read(&self, local: &[Span], remote: &[Span]) -> Result<(), i32> {
        // SAFETY: the kernel writes to local ranges: of registered regions, which stay while a transfer uses them, and words of a
        // caller. It checks the addresses of both sides.
        let copied = unsafe {
            libc::process_vm_readv(
                self.pid()?,
                local.as_ptr().cast(),
                local.len() as libc::c_ulong,
                remote.as_ptr().cast(),
                remote.len() as libc::c_ulong,
                0,
            )
        };
        check(copied, local)
    }

    fn write(&self, local: &[Span], remote: &[Span]) -> Result<(), i32> {
        // SAFETY: the kernel reads local ranges of registered regions, which stay while a transfer uses them. It checks the addresses
        // of both sides.
        let copied = unsafe {
            libc::process_vm_writev(
                self.pid()?,
                local.as_ptr().cast(),
                local.len() as libc::c_ulong,
                remote.as_ptr().cast(),
                remote.len() as libc::c_ulong,
                0,
            )
        };
        check(copied, local)
    }

    fn pid(&self) -> Result<libc::pid_t, i32> {
        self.pid.try_into().map_err(|_| libc::ESRCH)
    }
}

/// Whether the kernel has copied all of it. It stops without an error where memory ends.
fn check(copied: isize, local: &[Span]) -> Result<(), i32> {
    let wanted: usize = local.iter().map(|span| span.bytes).sum();
    match usize::try_from(copied) {
        Ok(copied) if copied == wanted => Ok(()),
        Ok(_) => Err(libc::EFAULT),
        Err(_) => Err(io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO)),
    }
}

impl Spans {
    fn set(&mut self, pieces: &[Piece]) {
        self.local.clear();
        self.remote.clear();
        for piece in pieces {
            append(&mut self.local, piece.local, piece.bytes);
            append(&mut self.remote, piece.remote, piece.bytes);
        }
    }
}

/// The words that are read.
fn into(words: &mut [u64; KEPT_WORDS]) -> Span {
    Span {
        first: words.as_mut_ptr().expose_provenance(),
        bytes: size_of_val(words),
    }
}

/// Ranges that follow each other are one.
fn append(spans: &mut Vec<Span>, first: u64, bytes: u64) {
    let (first, bytes) = (address(first), address(bytes));
    match spans.last_mut() {
        Some(last) if last.first.checked_add(last.bytes) == Some(first) => last.bytes += bytes,
        _ => spans.push(Span { first, bytes }),
    }
}

/// On this machine addresses have 64 bits.
fn address(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::board::Seat;
    use super::super::{MemoryName, ShownRegion};
    use super::*;

    const KEPT: Kept = Kept::from_words([3, 4, 5, 6]);

    /// This process as if it were another one: the kernel copies from it to itself.
    fn machine(board: &Arc<Board>, kept: Kept) -> (Machine, Seat) {
        let other = Process::of(1);
        let seat = board.seat(&other, kept, None).unwrap();
        let [number, at] = seat.place();
        let mapping = board.name().map(8 * WORDS as u64).unwrap();
        let (_, skipped) = kept_at(number).unwrap();
        let machine = Machine {
            pid: std::process::id(),
            words: Words::of(mapping),
            kept,
            at: at + skipped,
            mapped: Mutex::default(),
        };
        (machine, seat)
    }

    #[test]
    fn one_call_copies_the_most_pieces_and_a_missing_byte_is_an_error() {
        let board = Board::new(11).unwrap();
        let (machine, _seat) = machine(&board, KEPT);
        machine.prove().unwrap();
        let bytes = 3 * MOST_PIECES as u64;
        let [here, there] =
            [0, 1].map(|_| crate::provider::HostMemory::new(bytes.next_multiple_of(4096)).unwrap());
        let mut wanted = vec![0u8; usize::try_from(bytes).unwrap()];
        fastrand::Rng::with_seed(5).fill(&mut wanted);
        there.write(0, &wanted).unwrap();
        // Each third byte stays.
        let pieces: Vec<Piece> = (0..MOST_PIECES as u64)
            .map(|nth| Piece {
                local: here.address() + 3 * nth,
                remote: there.address() + 3 * nth,
                bytes: 2,
            })
            .collect();
        let mut spans = Spans::default();
        machine.copy(true, &pieces, &mut spans).unwrap();
        let mut found = vec![0; wanted.len()];
        here.read(0, &mut found).unwrap();
        wanted.iter_mut().skip(2).step_by(3).for_each(|it| *it = 0);
        assert!(found == wanted);
        here.write(0, &[7; 8]).unwrap();
        machine.copy(false, &pieces, &mut spans).unwrap();
        let mut written = [0; 2];
        there.read(0, &mut written).unwrap();
        assert_eq!(written, [7; 2]);
        // No memory is at the first addresses.
        let piece = |remote| Piece {
            local: here.address(),
            remote,
            bytes: 1,
        };
        for is_read in [true, false] {
            for pieces in [&[piece(8)][..], &[piece(there.address()), piece(8)]] {
                let copied = machine.copy(is_read, pieces, &mut spans);
                assert_eq!(copied, Err(libc::EFAULT));
            }
        }
    }

    /// What another engine keeps of the one on this machine.
    fn reach(machine: Machine) -> Reach {
        Reach {
            peer: "b".to_owned(),
            way: Way::Machine(machine),
            own: Board::new(99).unwrap(),
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
        board.show(&region, (name.as_ref(), None)).unwrap()
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
        // Again under another key: one file, for the later region.
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
        // What was unmapped is as it was.
        memories[1].write(0, &[9; 8]).unwrap();
        let byte = map(1).start().as_ptr();
        // SAFETY: the mapping lives, and no thread writes.
        assert_eq!(unsafe { byte.read() }, 9);
        places.into_iter().for_each(|place| board.mark(place));
        assert!(reach.sweep());
        assert_eq!(gone(&mapped).len(), 258);
    }

    #[test]
    fn a_process_that_does_not_keep_the_words_is_not_the_peer() {
        let board = Board::new(12).unwrap();
        let (mut machine, _seat) = machine(&board, KEPT);
        machine.kept = Kept::from_words([3, 4, 5, 7]);
        assert_eq!(machine.prove(), Err(libc::ESRCH));
        let piece = Piece {
            local: 0,
            remote: 0,
            bytes: 0,
        };
        for is_read in [true, false] {
            let mut spans = Spans::default();
            assert_eq!(
                machine.copy(is_read, &[piece], &mut spans),
                Err(libc::ESRCH)
            );
        }
        machine.pid = u32::MAX;
        assert_eq!(machine.prove(), Err(libc::ESRCH));
    }
}
