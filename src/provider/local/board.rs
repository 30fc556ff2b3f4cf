//! The board of an engine: words in which peers of its machine find its regions, and in which they say that they copy.
//!
//! A peer that copies enters first: it makes its sequence number odd, then checks that its seat is open and the region is shown. An owner
//! that takes a region away first marks the region so, then waits until each odd number has changed. So no peer uses a region that was
//! taken away, just as after the end of a key. Both steps are sequentially consistent.
//!
//! Other processes map these words, and may write anything into them. So peers of this process have words of their own, which no other
//! process reaches. Other processes of this user can break nothing by these words that they could not break anyway.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rendezvous::Process;

use super::admitted::Admitted;
use super::count_words::{COUNT_WORDS, CountWords, PAGE};
use super::kept::{Kept, Secret, Vouch, WORDS as SECRET_WORDS};
use super::names::{ALL_WORDS, IpcName, MemoryName, NAMES};
use super::words::Words;
use crate::deadline::Looks;
use crate::gpu::{FileName, Gpu, SharedFile};

/// The number of seats for each kind of peer: peers of this process, and peers of others.
const SEATS: usize = 256;
/// Most threads of a peer that copy at a time.
pub(crate) const MOST_COPIERS: usize = 8;
/// The most regions that a board shows at a time.
const REGIONS: usize = 1 << 14;

const HEAD_WORDS: usize = 16;
const SEAT_WORDS: usize = 8 + MOST_COPIERS;
const REGION_WORDS: usize = 8;
const FIRST_REGION: usize = HEAD_WORDS + SEATS * SEAT_WORDS;
/// First word of the counters, which follow all words of seats and regions, in pages of their own.
pub(super) const FIRST_COUNT: usize =
    (FIRST_REGION + REGIONS * REGION_WORDS).next_multiple_of(PAGE);
/// First word of the handles of GPU memory, which follow the counters. Peers of this process need no handles.
const FIRST_NAME: usize = (FIRST_COUNT + COUNT_WORDS).next_multiple_of(PAGE);
pub(super) const WORDS: usize = FIRST_NAME + ALL_WORDS;

/// First word of the head: the number of places that regions have ever used.
const USED: usize = 0;
/// Second word of the head: not 0 while a region has no place on the board.
const CROWDED: usize = 1;
/// First word of the secret in the head.
const SECRET: usize = 2;
/// The words of a seat. `OPEN` is the life of the connection whose peer may copy, 0 for none. `KEPT` is what this engine keeps for the
/// peer. `SEQUENCES` are the numbers of the peer's threads, with the life in their upper half. So a thread of an ended connection does not
/// enter the seat of the next one.
const OPEN: usize = 0;
const KEPT: usize = 1;
const SEQUENCES: usize = 8;
const _: () = assert!(SECRET + SECRET_WORDS <= HEAD_WORDS && KEPT + SECRET_WORDS <= SEQUENCES);
/// Number of the bit at which the life begins in a sequence number.
const LIFE_SHIFT: u32 = 32;
/// The words of a region. `STATE` is odd while the region is shown. `ADDRESS` and `BYTES` are its address and size. `KEY` has its key, and
/// above the key what peers may do.
const STATE: usize = 0;
const ADDRESS: usize = 1;
const BYTES: usize = 2;
const KEY: usize = 3;
/// The file of a region, in three words. The first is 0 without a file, else one more than the descriptor; the others are the id of the
/// file. Without a file the second is 0, or one more than the place of the handle, and the third is the number of the allocation.
const FILE: usize = 4;
/// The address at which the first byte lies. `ADDRESS` is the address by which peers name it.
const PLACE: usize = 7;
const MAY_READ: u64 = 1 << 32;
const MAY_WRITE: u64 = 1 << 33;
/// A flag: no thread reaches the memory of the region, only a GPU.
const OF_GPU: u64 = 1 << 34;

/// Longest wait for a peer that copies: for a step of its lane, or until its process has ended.
pub(crate) const COPYING: Duration = Duration::from_secs(2);
/// Longest wait for such a peer while a program takes a region away. It is shorter, since other calls of the program wait meanwhile.
pub(crate) const LEAVING: Duration = Duration::from_millis(200);
/// Time between two looks at a peer that copies.
const LOOK: Duration = Duration::from_micros(50);

/// All boards of this process, by the life of their engine.
static BOARDS: Mutex<BTreeMap<u64, Weak<Board>>> = Mutex::new(BTreeMap::new());

/// The words that one engine keeps for its peers.
#[derive(Debug)]
pub(crate) struct Board {
    incarnation: u64,
    file: SharedFile,
    /// The words for peers of this process, and the words for peers of other processes.
    words: [Words; 2],
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    regions: Places,
    /// The process that has each seat, by kind of peer and number of the seat.
    seats: [Vec<Option<Process>>; 2],
    /// The life of the seat that was given last.
    life: u32,
    /// The number of regions that have no place.
    unshown: usize,
    /// The GPUs of regions, by the place of the region.
    gpus: BTreeMap<usize, Arc<dyn Gpu>>,
    /// The places of handles (`handles`), and the place of each region's handle, by the place of the region (`names`).
    handles: Places,
    names: BTreeMap<usize, usize>,
}

/// Which places are free, and how many were ever used.
#[derive(Debug, Default)]
struct Places {
    free: Vec<usize>,
    used: usize,
}

impl Places {
    /// Takes a free place, or else the next unused one if fewer than `most` were used.
    fn take(&mut self, most: usize) -> Option<usize> {
        self.free.pop().or_else(|| {
            let next = self.used;
            (next < most).then(|| {
                self.used += 1;
                next
            })
        })
    }
}

/// A region that has no place on its board. While one exists, peers learn that the board does not show all regions.
#[derive(Debug)]
pub(crate) struct Unshown(Arc<Board>);

/// A region that its owner shows on the board.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShownRegion {
    /// The address by which peers name the first byte.
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// The rkey.
    pub(crate) key: u32,
    /// The address at which the first byte lies.
    pub(crate) place: u64,
    pub(crate) may_read: bool,
    pub(crate) may_write: bool,
}

/// A region, as a peer has found it on the board.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) place: usize,
    state: u64,
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// The address at which the first byte lies.
    pub(super) first: u64,
    pub(super) may_read: bool,
    pub(super) may_write: bool,
    /// The descriptor and the id of its file.
    pub(super) file: Option<(i32, u128)>,
    /// The place of its memory in an allocation of a CUDA device.
    pub(super) ipc: Option<IpcName>,
    /// True if its memory is of a GPU.
    pub(super) is_of_gpu: bool,
}

impl Shown {
    /// Returns whether two looks have found the same region. The owner may change the words between the looks.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let of = |it: &Self| (it.place, it.state, it.address, it.bytes, it.first, it.file);
        of(self) == of(other) && (self.ipc, self.is_of_gpu) == (other.ipc, other.is_of_gpu)
    }
}

/// The leave of a peer to copy. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    board: Arc<Board>,
    kind: usize,
    number: usize,
    /// The permission of Yama, which ends after the seat.
    #[expect(dead_code, reason = "held for its drop")]
    admitted: Option<Admitted>,
}

impl Board {
    /// Returns a new board for the engine of this life.
    pub(crate) fn new(incarnation: u64) -> io::Result<Arc<Self>> {
        let file = SharedFile::new(WORDS * 8)?;
        let board = Arc::new(Self {
            incarnation,
            words: [Words::own(FIRST_COUNT), Words::shared(&file, WORDS)?],
            file,
            state: Mutex::default(),
        });
        let secret = Secret::draw()?;
        for words in &board.words {
            secret.put(&words[SECRET..][..SECRET_WORDS]);
        }
        boards().insert(incarnation, Arc::downgrade(&board));
        Ok(board)
    }

    /// Returns the board of an engine of this process.
    pub(super) fn of(incarnation: u64) -> Option<Arc<Self>> {
        boards().get(&incarnation)?.upgrade()
    }

    /// Returns the code by which this engine shows that the board is its own and that it will keep `kept` for a peer.
    pub(crate) fn vouch(&self, kept: Kept) -> Vouch {
        vouch(self.own(), kept)
    }

    /// Returns the name of the file that other processes map.
    pub(crate) fn name(&self) -> FileName {
        self.file.name()
    }

    /// Returns the words for peers of this process.
    pub(super) fn own(&self) -> &[AtomicU64] {
        &self.words[0]
    }

    /// Returns the counters, which are the same for all peers.
    pub(super) fn counts(&self) -> CountWords<'_> {
        CountWords::at(&self.words[1], FIRST_COUNT)
    }

    /// Shows a region with its key. Returns its place.
    ///
    /// # Errors
    /// The board has no place left.
    pub(crate) fn show(
        self: &Arc<Self>,
        shown: &ShownRegion,
        name: Option<&MemoryName>,
        gpu: Option<&Arc<dyn Gpu>>,
    ) -> Result<usize, Unshown> {
        let mut state = self.state();
        let Some(place) = state.regions.take(REGIONS) else {
            state.unshown += 1;
            self.set_crowded(&state);
            return Err(Unshown(Arc::clone(self)));
        };
        let [fd, high, low] = match name {
            None => [0; 3],
            Some(MemoryName::File(file)) => file.id().map_or([0; 3], |id| {
                let (high, low) = halves(id);
                [u64::from(file.fd().unsigned_abs()) + 1, high, low]
            }),
            Some(MemoryName::Cuda(ipc)) => self
                .put_name(&mut state, place, ipc)
                .map_or([0; 3], |at| [0, at as u64 + 1, ipc.allocation()]),
        };
        if let Some(gpu) = gpu {
            state.gpus.insert(place, Arc::clone(gpu));
        }
        for words in &self.words {
            let region = region(words, place);
            let flag = |may: bool, flag: u64| if may { flag } else { 0 };
            let rights = flag(shown.may_read, MAY_READ) | flag(shown.may_write, MAY_WRITE);
            let key = u64::from(shown.key) | rights | flag(gpu.is_some(), OF_GPU);
            let values = [shown.address, shown.bytes, key, fd, high, low, shown.place];
            for (word, value) in region[ADDRESS..].iter().zip(values) {
                word.store(value, Ordering::Relaxed);
            }
            region[STATE].fetch_add(1, Ordering::SeqCst);
            words[USED].store(state.regions.used as u64, Ordering::SeqCst);
        }
        Ok(place)
    }

    /// Finds a place for the handle of the region at `place`, and writes the handle there. Returns None if no place is left.
    fn put_name(&self, state: &mut State, place: usize, ipc: &IpcName) -> Option<usize> {
        let at = state.handles.take(NAMES)?;
        ipc.put(&self.words[1][FIRST_NAME..], at);
        state.names.insert(place, at);
        Some(at)
    }

    /// Returns the GPU of the region at this place.
    pub(super) fn gpu_of(&self, place: usize) -> Option<Arc<dyn Gpu>> {
        self.state().gpus.get(&place).cloned()
    }

    /// Returns a GPU that makes copies and has memory of some region.
    pub(super) fn any_gpu(&self) -> Option<Arc<dyn Gpu>> {
        self.state().gpus.values().next().cloned()
    }

    fn set_crowded(&self, state: &State) {
        for words in &self.words {
            words[CROWDED].store(u64::from(state.unshown > 0), Ordering::SeqCst);
        }
    }

    /// Marks a region as taken away: no copy begins in it any more.
    pub(crate) fn mark(&self, place: usize) {
        for words in &self.words {
            region(words, place)[STATE].fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Waits until no peer copies in these regions, which are marked already. Then new regions may take their places.
    ///
    /// # Errors
    /// The number of threads of peers that still copy after `most`.
    pub(crate) fn leave(&self, places: &[usize], most: Duration) -> Result<(), u32> {
        // A seat that is given from here on is entered after the marks, so its peer sees them.
        let taken = self.state().taken();
        match self.wait(&taken, most) {
            0 => {
                let mut state = self.state();
                for place in places {
                    state.gpus.remove(place);
                    let name = state.names.remove(place);
                    state.handles.free.extend(name);
                }
                state.regions.free.extend(places);
                Ok(())
            }
            left => Err(left),
        }
    }

    /// Undoes `mark`: peers may use the region again.
    pub(crate) fn unmark(&self, place: usize) {
        for words in &self.words {
            region(words, place)[STATE].fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Returns whether threads of a peer whose connection has ended may still copy.
    pub(crate) fn has_copiers(&self) -> bool {
        !self.state().taken().is_empty()
    }

    /// Returns a seat for a peer of `process`, and keeps `kept` in it. Returns None if all seats are taken.
    pub(crate) fn seat(
        self: &Arc<Self>,
        process: &Process,
        kept: Kept,
        admitted: Option<Admitted>,
    ) -> Option<Seat> {
        let kind = usize::from(*process != Process::this());
        let mut state = self.state();
        let seats = &mut state.seats[kind];
        let number = match seats.iter().position(Option::is_none) {
            Some(number) => number,
            None if seats.len() < SEATS => {
                seats.push(None);
                seats.len() - 1
            }
            None => return None,
        };
        seats[number] = Some(process.clone());
        state.life = state.life.wrapping_add(1).max(1);
        let life = u64::from(state.life);
        drop(state);
        let words = seat(&self.words[kind], number);
        for (word, value) in words[KEPT..].iter().zip(kept.words()) {
            word.store(value, Ordering::Relaxed);
        }
        for word in &words[SEQUENCES..] {
            word.store(life << LIFE_SHIFT, Ordering::Relaxed);
        }
        words[OPEN].store(life, Ordering::SeqCst);
        Some(Seat {
            board: Arc::clone(self),
            kind,
            number,
            admitted,
        })
    }

    /// Waits until each thread that copies in these seats has left. Returns how many have not left after `most`.
    fn wait(&self, seats: &[(usize, usize, Process)], most: Duration) -> u32 {
        fence(Ordering::SeqCst);
        let mut busy = Vec::new();
        for (kind, number, process) in seats {
            for word in &seat(&self.words[*kind], *number)[SEQUENCES..] {
                let value = word.load(Ordering::SeqCst);
                if value % 2 == 1 {
                    busy.push((word, value, process));
                }
            }
        }
        for left in Looks::within(most) {
            busy.retain(|(word, value, _)| word.load(Ordering::SeqCst) == *value);
            if busy.is_empty() {
                return 0;
            }
            busy.retain(|(_, _, process)| !process.has_ended());
            std::thread::sleep(LOOK.min(left));
        }
        u32::try_from(busy.len()).unwrap_or(u32::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change under the lock is complete, so a poisoned lock does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns kind, number and process of each seat that a peer has.
    fn taken(&self) -> Vec<(usize, usize, Process)> {
        let all = self.seats.iter().map(|seats| seats.iter().enumerate());
        let all = (0..).zip(all).flat_map(|(kind, seats)| {
            seats.filter_map(move |(number, process)| Some((kind, number, process.clone()?)))
        });
        all.collect()
    }
}

impl Drop for Unshown {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.unshown -= 1;
        self.0.set_crowded(&state);
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        boards().remove(&self.incarnation);
    }
}

impl Seat {
    /// Returns the number of the seat, and the address of the board's words in this process.
    pub(crate) fn place(&self) -> [u64; 2] {
        let words = &self.board.words[self.kind];
        [self.number as u64, words.as_ptr().addr() as u64]
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Self {
            board,
            kind,
            number,
            ..
        } = self;
        seat(&board.words[*kind], *number)[OPEN].store(0, Ordering::SeqCst);
        let Some(process) = board.state().seats[*kind][*number].clone() else {
            return;
        };
        match board.wait(&[(*kind, *number, process.clone())], COPYING) {
            0 => board.state().seats[*kind][*number] = None,
            // The seat stays taken: a thread that takes a region away waits for these threads again.
            left => tracing::error!("{left} threads of process {process} do not end a copy"),
        }
    }
}

/// Returns the code by which the owner of these words shows that it has them and will keep `kept` for a peer.
pub(super) fn vouch(words: &[AtomicU64], kept: Kept) -> Vouch {
    Secret::get(&words[SECRET..][..SECRET_WORDS]).vouch(kept)
}

/// Returns the life of the connection whose peer has this seat. Returns 0 if the seat is free.
pub(super) fn life(words: &[AtomicU64], number: usize) -> u64 {
    seat(words, number)[OPEN].load(Ordering::SeqCst)
}

/// A thread that copies. It has left when this is dropped.
#[derive(Debug)]
pub(super) struct Inside<'a> {
    word: &'a AtomicU64,
    left: u64,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.word.store(self.left, Ordering::SeqCst);
    }
}

/// Notes that thread `copier` of the peer with life `of` begins to copy. Returns None if that peer does not have the seat any more.
pub(super) fn enter(
    words: &[AtomicU64],
    number: usize,
    of: u64,
    copier: usize,
) -> Option<Inside<'_>> {
    let word = &seat(words, number)[SEQUENCES + copier % MOST_COPIERS];
    let known = word.load(Ordering::SeqCst);
    if known >> LIFE_SHIFT != of || known % 2 == 1 {
        return None;
    }
    let next = |steps: u64| of << LIFE_SHIFT | (known + steps) & u64::from(u32::MAX);
    word.compare_exchange(known, next(1), Ordering::SeqCst, Ordering::SeqCst)
        .ok()?;
    fence(Ordering::SeqCst);
    let inside = Inside {
        word,
        left: next(2),
    };
    (life(words, number) == of).then_some(inside)
}

/// Returns what the owner of the board keeps in seat `number`.
pub(super) fn kept(words: &[AtomicU64], number: usize) -> [u64; SECRET_WORDS] {
    let words = seat(words, number);
    std::array::from_fn(|nth| words[KEPT + nth].load(Ordering::SeqCst))
}

/// Returns `number` as an index, and the number of bytes from the first word to what is kept in that seat. Returns None if the board has no
/// such seat.
pub(super) fn kept_at(number: u64) -> Option<(usize, u64)> {
    let number = usize::try_from(number).ok().filter(|it| *it < SEATS)?;
    let words = HEAD_WORDS + number * SEAT_WORDS + KEPT;
    Some((number, 8 * words as u64))
}

/// Returns whether a region of the owner is not shown.
pub(super) fn is_crowded(words: &[AtomicU64]) -> bool {
    words[CROWDED].load(Ordering::SeqCst) != 0
}

/// Returns the region with this key.
pub(super) fn find(words: &[AtomicU64], key: u32) -> Option<Shown> {
    let used = usize::try_from(words[USED].load(Ordering::SeqCst)).unwrap_or(REGIONS);
    let has_key = |place: &usize| {
        let region = region(words, *place);
        region[STATE].load(Ordering::SeqCst) % 2 == 1
            && key_of(region[KEY].load(Ordering::Relaxed)) == u64::from(key)
    };
    let place = (0..used.min(REGIONS)).find(has_key)?;
    let region = region(words, place);
    let state = region[STATE].load(Ordering::SeqCst);
    let word = |at: usize| region[at].load(Ordering::Relaxed);
    let fd = word(FILE).checked_sub(1).map(i32::try_from);
    let name = word(FILE + 1).checked_sub(1).filter(|_| fd.is_none());
    let names = words.get(FIRST_NAME..);
    let ipc = name
        .zip(names)
        .and_then(|(at, words)| IpcName::take(words, at, word(FILE + 2)));
    let id = u128::from(word(FILE + 1)) << 64 | u128::from(word(FILE + 2));
    let shown = Shown {
        place,
        state,
        address: word(ADDRESS),
        bytes: word(BYTES),
        first: word(PLACE),
        may_read: word(KEY) & MAY_READ != 0,
        may_write: word(KEY) & MAY_WRITE != 0,
        file: fd.and_then(Result::ok).map(|fd| (fd, id)),
        ipc,
        is_of_gpu: word(KEY) & OF_GPU != 0,
    };
    // The place may have got another region meanwhile.
    let is_same = key_of(word(KEY)) == u64::from(key) && is_there(words, &shown) && state % 2 == 1;
    is_same.then_some(shown)
}

/// Returns the key in the word `KEY`, without the flags above it.
const fn key_of(word: u64) -> u64 {
    word & (MAY_READ - 1)
}

/// Returns whether the region is still shown.
pub(super) fn is_there(words: &[AtomicU64], shown: &Shown) -> bool {
    region(words, shown.place)[STATE].load(Ordering::SeqCst) == shown.state
}

fn region(words: &[AtomicU64], place: usize) -> &[AtomicU64] {
    let first = FIRST_REGION + place * REGION_WORDS;
    &words[first..first + REGION_WORDS]
}

fn seat(words: &[AtomicU64], number: usize) -> &[AtomicU64] {
    let first = HEAD_WORDS + number * SEAT_WORDS;
    &words[first..first + SEAT_WORDS]
}

/// Returns the two words of an id, the high one first.
fn halves(id: u128) -> (u64, u64) {
    let bytes = id.to_be_bytes();
    let half = |at: usize| {
        let mut half = [0; 8];
        half.copy_from_slice(&bytes[at..at + 8]);
        u64::from_be_bytes(half)
    };
    (half(0), half(8))
}

fn boards() -> MutexGuard<'static, BTreeMap<u64, Weak<Board>>> {
    BOARDS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use test_basics::limits::HANG;

    use super::*;

    fn region(address: u64, bytes: u64, key: u32) -> ShownRegion {
        ShownRegion {
            address,
            bytes,
            key,
            place: address,
            may_read: true,
            may_write: false,
        }
    }

    /// Takes a region away. If threads of peers do not leave within `most`, it shows the region again.
    fn hide(board: &Board, place: usize, most: Duration) -> Result<(), u32> {
        board.mark(place);
        let left = board.leave(&[place], most);
        left.inspect_err(|_| board.unmark(place))
    }

    #[test]
    fn a_region_is_found_by_its_key_while_it_lasts_then_its_place_is_reused() {
        let board = Board::new(1).unwrap();
        let place = board.show(&region(0x1000, 64, 7), None, None).unwrap();
        let file = board.name();
        let name = MemoryName::File(file.clone());
        board
            .show(&region(0x2000, 32, 8), Some(&name), None)
            .unwrap();
        for words in &board.words {
            let found = find(words, 7).unwrap();
            assert_eq!((found.address, found.bytes, found.file), (0x1000, 64, None));
            assert!(found.may_read && !found.may_write);
            let found = find(words, 8).unwrap();
            assert_eq!(found.file, Some((file.fd(), file.id().unwrap())));
            assert!(find(words, 9).is_none());
        }
        let old = find(board.own(), 7).unwrap();
        hide(&board, place, HANG).unwrap();
        assert!(find(board.own(), 7).is_none() && !is_there(board.own(), &old));
        assert_eq!(
            board.show(&region(0x3000, 16, 7), None, None).ok(),
            Some(place)
        );
        assert!(!is_there(board.own(), &old), "it is another one");
        assert_eq!(find(board.own(), 7).unwrap().address, 0x3000);
    }

    #[test]
    fn one_region_too_many_has_no_place_and_all_hear_of_it() {
        let board = Board::new(2).unwrap();
        for key in 0..REGIONS {
            assert!(!is_crowded(board.own()));
            let key = u32::try_from(key).unwrap();
            assert!(board.show(&region(0, 1, key), None, None).is_ok());
        }
        let are_crowded = || board.words.each_ref().map(|words| is_crowded(words));
        let too_many = || board.show(&region(0, 1, 1 << 20), None, None).unwrap_err();
        let unshown = [too_many(), too_many()];
        // The board is crowded until the last region without a place is gone.
        for one in unshown {
            assert_eq!(are_crowded(), [true; 2]);
            drop(one);
        }
        assert_eq!(are_crowded(), [false; 2]);
        hide(&board, 0, HANG).unwrap();
        assert!(board.show(&region(0, 1, 1 << 20), None, None).is_ok());
        assert_eq!(are_crowded(), [false; 2]);
    }

    #[test]
    fn whoever_takes_a_region_away_waits_for_the_thread_that_is_in_it() {
        let board = Board::new(3).unwrap();
        let place = board.show(&region(0, 64, 7), None, None).unwrap();
        let seat = board
            .seat(&Process::this(), Kept::from_words([1, 2, 3, 4]), None)
            .unwrap();
        assert_eq!(kept(board.own(), 0), [1, 2, 3, 4]);
        let of = life(board.own(), 0);
        let inside = enter(board.own(), 0, of, 3).unwrap();
        assert!(enter(board.own(), 0, of, 3).is_none(), "it is inside");
        std::thread::scope(|scope| {
            let hiding = scope.spawn(|| hide(&board, place, HANG));
            let shown = find(board.own(), 7);
            while shown.is_some_and(|shown| is_there(board.own(), &shown)) {
                std::thread::yield_now();
            }
            assert!(!hiding.is_finished());
            drop(inside);
            assert_eq!(hiding.join().unwrap(), Ok(()));
        });
        // A thread that never leaves keeps the region.
        let place = board.show(&region(0, 64, 8), None, None).unwrap();
        let inside = enter(board.own(), 0, of, 3).unwrap();
        assert_eq!(hide(&board, place, Duration::ZERO), Err(1));
        assert!(find(board.own(), 8).is_some() && board.has_copiers());
        drop(inside);
        drop(seat);
        assert_eq!(life(board.own(), 0), 0);
        assert!(!board.has_copiers());
        assert_eq!(hide(&board, place, HANG), Ok(()));
    }

    #[test]
    fn a_process_that_has_ended_within_a_copy_is_not_waited_for() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let board = Board::new(4).unwrap();
        let place = board.show(&region(0, 64, 7), None, None).unwrap();
        let _seat = board
            .seat(
                &Process::of(child.id()),
                Kept::from_words([0, 0, 3, 4]),
                None,
            )
            .unwrap();
        let words = &board.words[1];
        let inside = enter(words, 0, life(words, 0), 0).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(hide(&board, place, HANG), Ok(()));
        drop(inside);
    }

    #[test]
    fn a_thread_of_an_ended_connection_does_not_enter_the_next_seat() {
        let board = Board::new(6).unwrap();
        let first = board
            .seat(&Process::this(), Kept::from_words([1, 1, 3, 4]), None)
            .unwrap();
        let of = life(board.own(), 0);
        // The number of the thread is at the end of the half that counts.
        let word = &seat(board.own(), 0)[SEQUENCES];
        word.store(((of + 1) << LIFE_SHIFT) - 2, Ordering::SeqCst);
        drop(enter(board.own(), 0, of, 0).unwrap());
        assert_eq!(word.load(Ordering::SeqCst), of << LIFE_SHIFT);
        drop(first);
        assert!(enter(board.own(), 0, of, 0).is_none(), "no connection");
        let second = board
            .seat(&Process::this(), Kept::from_words([2, 2, 3, 4]), None)
            .unwrap();
        assert_eq!(second.place()[0], 0);
        assert!(enter(board.own(), 0, of, 0).is_none(), "another connection");
        assert_eq!(word.load(Ordering::SeqCst) % 2, 0, "it has left no trace");
        let now = life(board.own(), 0);
        assert!(now != of && enter(board.own(), 0, now, 0).is_some());
    }

    #[test]
    fn seats_have_an_end_and_are_used_again() {
        let board = Board::new(5).unwrap();
        let take = || board.seat(&Process::this(), Kept::from_words([0, 0, 3, 4]), None);
        let mut all: Vec<Seat> = (0..SEATS).map(|_| take().unwrap()).collect();
        assert!(take().is_none());
        let last = all.pop().unwrap().place();
        assert_eq!(take().unwrap().place(), last);
        assert_eq!(kept_at(SEATS as u64), None);
        assert_eq!(kept_at(u64::MAX), None);
    }
}
