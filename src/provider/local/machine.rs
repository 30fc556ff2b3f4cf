//! Another process of this machine. This process reads and writes its memory by the kernel, or maps it.

// UNSAFETY: system calls that copy between processes.
#![expect(unsafe_code, reason = "copies of memory")]

use std::sync::Arc;
use std::{fs, io};

use super::board::Shown;
use super::kept::{Kept, WORDS as KEPT_WORDS};
use super::user::YAMA;
use super::words::Words;
use crate::gpu::{FileName, Gpu, Mapping, MemoryHandle, OpenedMemory};

/// The most pieces of a copy by the kernel. The kernel takes 1,024 ranges; one of them is for what the peer keeps.
pub(super) const MOST_PIECES: usize = 1023;
pub(super) const UNPROVEN: &str = "its memory does not have what it is to keep there";

/// A range in this process, and a range of the same length at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) local: u64,
    /// The address in this process if the peer's memory is reached from here; the peer's address if the kernel copies.
    pub(super) remote: u64,
    pub(super) bytes: u64,
}

/// A range in the layout of `iovec`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: usize,
    bytes: usize,
}

const _: () = assert!(size_of::<Span>() == size_of::<libc::iovec>());
const _: () = assert!(align_of::<Span>() == align_of::<libc::iovec>());

/// Lists of ranges for the kernel. They are kept for their memory.
#[derive(Debug, Default)]
pub(super) struct Spans {
    local: Vec<Span>,
    remote: Vec<Span>,
}

/// Another process of this machine that is a peer.
#[derive(Debug)]
pub(super) struct Machine {
    pid: u32,
    /// The words of its board.
    words: Words,
    /// What the peer keeps for this connection, and at which of its addresses.
    kept: Kept,
    at: u64,
}

/// Memory of another process that this process reaches for as long as it holds this.
#[derive(Clone, Debug)]
pub(super) enum Held {
    Mapped(Arc<Mapping>),
    /// An allocation of a GPU, and the offset of the region in it.
    Opened(Arc<OpenedMemory>, u64),
}

impl Held {
    /// Returns the address in this process of the region's first byte.
    pub(super) fn first(&self) -> u64 {
        match self {
            Self::Mapped(mapping) => mapping.start().as_ptr().addr() as u64,
            Self::Opened(memory, offset) => memory.addr() + offset,
        }
    }

    /// Returns the number of bytes from the region's first byte to the end.
    pub(super) fn room(&self) -> u64 {
        match self {
            Self::Mapped(mapping) => mapping.bytes() as u64,
            Self::Opened(memory, offset) => memory.room().saturating_sub(*offset),
        }
    }
}

impl Machine {
    /// Returns the process `pid`, once it has shown that it keeps `kept` at address `at`.
    pub(super) fn open(pid: u32, words: Words, kept: Kept, at: u64) -> Result<Self, String> {
        let machine = Self {
            pid,
            words,
            kept,
            at,
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

    /// Returns the words of the peer's board.
    pub(super) fn words(&self) -> &Words {
        &self.words
    }

    /// Maps the file of a region, or opens its allocation on this GPU.
    pub(super) fn hold(&self, shown: &Shown, gpu: Option<&Arc<dyn Gpu>>) -> Result<Held, String> {
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

    /// Checks that the peer keeps what it should keep for this connection. ESRCH: its process is gone.
    pub(super) fn prove(&self) -> Result<(), i32> {
        let mut words = [0; KEPT_WORDS];
        self.read(&[into(&mut words)], &[self.kept()])?;
        self.judge(words)
    }

    pub(super) fn copy(
        &self,
        is_read: bool,
        pieces: &[Piece],
        spans: &mut Spans,
    ) -> Result<(), i32> {
        spans.set(pieces);
        let Spans { local, remote } = spans;
        if is_read {
            // What is kept is read last, so if it is right, the bytes before it came from the peer's memory.
            let mut words = [0; KEPT_WORDS];
            local.push(into(&mut words));
            remote.push(self.kept());
            self.read(local, remote)?;
            return self.judge(words);
        }
        // What is kept is right before and after the write, so all of the write went to the peer.
        self.prove()?;
        self.write(local, remote)?;
        self.prove()
    }

    /// Returns the range of memory in which the peer keeps the words by which this end knows it.
    fn kept(&self) -> Span {
        Span {
            first: address(self.at),
            bytes: size_of::<[u64; KEPT_WORDS]>(),
        }
    }

    /// Returns ESRCH if the words are wrong: the peer's process has ended and another one has its number, or it runs another program.
    fn judge(&self, words: [u64; KEPT_WORDS]) -> Result<(), i32> {
        if words == self.kept.words() {
            Ok(())
        } else {
            Err(libc::ESRCH)
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

/// Returns an error unless the kernel has copied all bytes. It stops without an error where memory ends.
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

/// Returns the range of the words that are to be read.
fn into(words: &mut [u64; KEPT_WORDS]) -> Span {
    Span {
        first: words.as_mut_ptr().expose_provenance(),
        bytes: size_of_val(words),
    }
}

/// Adds a range. A range that follows the last one is joined to it.
fn append(spans: &mut Vec<Span>, first: u64, bytes: u64) {
    let (first, bytes) = (address(first), address(bytes));
    match spans.last_mut() {
        Some(last) if last.first.checked_add(last.bytes) == Some(first) => last.bytes += bytes,
        _ => spans.push(Span { first, bytes }),
    }
}

/// Returns an address as `usize`. It fits: this machine has addresses of 64 bits.
fn address(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
pub(in crate::provider::local) mod tests {
    use rendezvous::Process;

    use super::super::board::{Board, Seat, WORDS, kept_at};
    use super::*;

    pub(in crate::provider::local) const KEPT: Kept = Kept::from_words([3, 4, 5, 6]);

    /// Returns this process as if it were another one: the kernel copies from it to itself.
    pub(in crate::provider::local) fn machine(board: &Arc<Board>, kept: Kept) -> (Machine, Seat) {
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
        // The last byte of each three is not copied.
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
        // The first addresses have no memory.
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
