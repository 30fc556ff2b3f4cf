//! A model of a NIC in a thread, which knows one send queue. It follows the doorbell register or the record, runs the WQEs in the ring byte
//! by byte, and reports everything that silicon would not report.
//!
//! It shares no code with softhca, and it can do what softhca does not: read the record late, or follow it without a doorbell.

// UNSAFETY: the model NIC reads and writes the memory that kernels use, by address, and kernels are launched.
#![expect(unsafe_code, reason = "a device model in plain memory")]
#![expect(clippy::cast_possible_truncation, reason = "small test numbers")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::thread::JoinHandle;

use mlx5_prm::doorbell::{doorbell_index, doorbell_qpn};

/// What makes the NIC run WQEs. All three kinds are seen on silicon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// The NIC runs up to the index of the doorbell.
    Doorbell,
    /// A doorbell makes the NIC read the record, some time later.
    RecordAfterDoorbell,
    /// The NIC follows the record, with or without a doorbell.
    Record,
}

/// The send queue, as addresses in this process.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// The address of the ring.
    pub sq: u64,
    /// The number of WQEBBs of the ring.
    pub depth: u32,
    /// The address of the doorbell record.
    pub dbrec: u64,
    /// The address of the first CQE.
    pub cqe: u64,
    /// The address of the doorbell register.
    pub doorbell: u64,
    /// The QP number that doorbells name.
    pub qpn: u32,
    /// The index of the first WQE.
    pub first: u64,
    /// True if the send queue has a doorbell record.
    pub has_record: bool,
    /// True if the CQ is a ring of `depth` CQEs, of which `consumed` counts those that were taken. Otherwise one CQE is overwritten.
    pub wide_cq: bool,
    /// The address of the word that counts the CQEs that were taken.
    pub consumed: u64,
    /// The address of a mailbox: a word of host memory from which a host thread rings the register.
    pub mailbox: Option<u64>,
}

/// How the NIC behaves.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// What makes the NIC run WQEs.
    pub follow: Follow,
    /// The seed of the NIC's pauses.
    pub seed: u64,
    /// The index of a WQE that fails with `syndrome`. The WQEs after it are flushed.
    pub fail_at: Option<u64>,
}

impl Behaviour {
    /// Returns a behaviour in which no WQE fails.
    pub fn new(follow: Follow, seed: u64) -> Self {
        Self {
            follow,
            seed,
            fail_at: None,
        }
    }
}

/// What a NIC has seen and done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What breaks the protocol, in words.
    pub findings: Vec<String>,
    /// The number of WQEs that ran.
    pub wqes: u64,
    /// The number of doorbells that came.
    pub doorbells: u64,
    /// The number of CQEs that the NIC wrote.
    pub cqes: u64,
}

/// A running NIC.
#[derive(Debug)]
pub struct Nic {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Report>,
    ringer: Option<JoinHandle<()>>,
}

/// The syndrome of a WQE that makes no sense: local QP operation error.
const SYNDROME_BAD_WQE: u8 = 0x02;

/// The syndrome of the WQE that fails: remote access error.
pub const SYNDROME: u8 = 0x13;

impl Nic {
    /// Starts the NIC.
    ///
    /// # Safety
    ///
    /// The addresses of `queue`, and whatever the WQEs in its ring name, are memory of this process that outlives the NIC.
    pub unsafe fn start(queue: Queue, behaviour: Behaviour) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut engine = Engine {
            queue,
            rng: fastrand::Rng::with_seed(behaviour.seed),
            behaviour,
            run: queue.first,
            target: queue.first,
            record: queue.first,
            sample_in: None,
            dead: false,
            report: Report::default(),
        };
        let ringer = queue.mailbox.map(|mailbox| {
            let stopped = Arc::clone(&stop);
            std::thread::spawn(move || ring_from_mailbox(mailbox, queue, &stopped))
        });
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                engine.step();
            }
            // WQEs that were rung before the end are still run.
            for _ in 0..2 * queue.depth {
                engine.step();
            }
            engine.report
        });
        Self {
            stop,
            thread,
            ringer,
        }
    }

    /// Runs the WQEs that were rung, then stops. Returns what the NIC has seen and done.
    pub fn stop(self) -> Report {
        self.stop.store(true, Ordering::Release);
        if let Some(ringer) = self.ringer {
            ringer.join().expect("the ringer does not panic");
        }
        self.thread.join().expect("the NIC does not panic")
    }
}

/// Is the host thread of a QP with a mailbox. It rings each index that it finds in the mailbox, and once more after it was told to stop.
fn ring_from_mailbox(mailbox: u64, queue: Queue, stop: &AtomicBool) {
    // SAFETY: aligned words of the queue, which outlive the NIC (contract of `start`); others use them atomically too.
    let (mailbox, register) = unsafe {
        (
            AtomicU64::from_ptr(mailbox as *mut u64),
            AtomicU64::from_ptr(queue.doorbell as *mut u64),
        )
    };
    let mut rung = queue.first;
    loop {
        let last = stop.load(Ordering::Acquire);
        let end = mailbox.load(Ordering::Acquire);
        if end > rung {
            let next = ((end & 0xffff) as u32) << 8;
            let bell = u64::from((queue.qpn << 8).to_be()) << 32 | u64::from(next.to_be());
            register.store(bell, Ordering::Release);
            rung = end;
        } else if last {
            return;
        }
        std::thread::yield_now();
    }
}

struct Engine {
    queue: Queue,
    behaviour: Behaviour,
    rng: fastrand::Rng,
    /// The next index to run, and the index up to which WQEs may be run.
    run: u64,
    target: u64,
    /// The newest value of the doorbell record.
    record: u64,
    /// The number of steps until the record is read.
    sample_in: Option<u32>,
    dead: bool,
    report: Report,
}

impl Engine {
    fn step(&mut self) {
        let bell = self.word64(self.queue.doorbell).swap(0, Ordering::AcqRel);
        if self.queue.has_record {
            self.read_record();
        }
        if bell != 0 {
            self.take_doorbell(bell);
        }
        match (self.behaviour.follow, self.sample_in) {
            (Follow::Record, _) | (Follow::RecordAfterDoorbell, Some(0)) => {
                self.target = self.target.max(self.record);
                self.sample_in = None;
            }
            (_, Some(steps)) => self.sample_in = Some(steps - 1),
            _ => {}
        }
        if self.run < self.target {
            self.run_one();
        } else {
            std::thread::yield_now();
        }
        if self.rng.u32(0..64) == 0 {
            std::thread::yield_now();
        }
    }

    fn take_doorbell(&mut self, bell: u64) {
        self.report.doorbells += 1;
        if doorbell_qpn(bell) != self.queue.qpn {
            self.find(format!("doorbell {bell:#x} is for another QP"));
        }
        let index = self.widen(doorbell_index(bell));
        if self.queue.has_record && index > self.record {
            self.find(format!(
                "doorbell {index} is ahead of the record {}",
                self.record
            ));
        }
        if index > self.run + u64::from(self.queue.depth) {
            self.find(format!(
                "doorbell {index} is more than a ring ahead of {}",
                self.run
            ));
        }
        match self.behaviour.follow {
            Follow::Doorbell => self.target = self.target.max(index),
            Follow::RecordAfterDoorbell if self.sample_in.is_none() => {
                self.sample_in = Some(self.rng.u32(0..8));
            }
            _ => {}
        }
    }

    fn read_record(&mut self) {
        let word = self.word32(self.queue.dbrec + 4).load(Ordering::Acquire);
        let value = u32::from_be(word);
        if value > 0xffff {
            self.find(format!("the record holds {value:#x}"));
        }
        let record = self.widen((value & 0xffff) as u16);
        if record < self.record {
            self.find(format!(
                "the record went back from {} to {record}",
                self.record
            ));
        }
        self.record = self.record.max(record);
    }

    /// Returns the index near `run` with these low bits.
    fn widen(&self, low: u16) -> u64 {
        let ahead = low.wrapping_sub(self.run as u16) as i16;
        self.run.wrapping_add_signed(i64::from(ahead))
    }

    fn run_one(&mut self) {
        let index = self.run;
        self.run += 1;
        let wqe = self.read_wqe(index);
        let ctrl = be32(&wqe, 0);
        let (opcode, ds) = (ctrl & 0xff, be32(&wqe, 4) & 0x3f);
        let named = (ctrl >> 8 & 0xffff) as u16;
        let bad = named != index as u16
            || be32(&wqe, 4) >> 8 != self.queue.qpn
            || !matches!(opcode, 0 | 8);
        if bad {
            self.find(format!(
                "fetched {:02x?} where index {index} was due",
                &wqe[..16]
            ));
        }
        if self.dead || bad || self.behaviour.fail_at == Some(index) {
            let syndrome = match (self.dead, bad) {
                (true, _) => 0x05,
                (_, true) => SYNDROME_BAD_WQE,
                _ => SYNDROME,
            };
            self.dead = true;
            self.write_cqe(index, 13, syndrome);
            return;
        }
        if opcode == 8 {
            self.write_memory(&wqe, ds);
        }
        // This is checked before the CQE is written, which lets the poster write the slot again.
        if self.read_wqe(index) != wqe {
            self.find(format!("WQE {index} changed while it ran"));
        }
        self.report.wqes += 1;
        if wqe[11] & 0xc == 8 {
            self.write_cqe(index, 0, 0);
        }
    }

    fn write_memory(&mut self, wqe: &[u8; 64], ds: u32) {
        let target = be64(wqe, 16) as *mut u8;
        let length = be32(wqe, 32);
        let inline = length >> 31 == 1;
        let bytes = (length & 0x7fff_ffff) as usize;
        let source = if inline {
            wqe[36..].as_ptr()
        } else {
            be64(wqe, 40) as *const u8
        };
        let wanted = if inline {
            2 + (4 + bytes).div_ceil(16)
        } else {
            3
        };
        if ds as usize != wanted {
            self.find(format!("ds {ds} in a WQE of {wanted} segments"));
        }
        // SAFETY: the WQE names memory that outlives the NIC (contract of `start`). Words are moved whole, as a NIC does.
        unsafe {
            if bytes.is_multiple_of(8)
                && (target as usize).is_multiple_of(8)
                && (source as usize).is_multiple_of(4)
            {
                for at in (0..bytes).step_by(8) {
                    let word = source.add(at).cast::<u64>().read_unaligned();
                    AtomicU64::from_ptr(target.add(at).cast()).store(word, Ordering::Release);
                }
            } else {
                target.copy_from_nonoverlapping(source, bytes);
            }
        }
    }

    fn write_cqe(&mut self, index: u64, opcode: u8, syndrome: u8) {
        let (mut cqe, mut owner) = (self.queue.cqe, 0);
        let written = self.report.cqes;
        self.report.cqes += 1;
        if self.queue.wide_cq {
            let depth = u64::from(self.queue.depth);
            cqe += (written & (depth - 1)) * 64;
            owner = (written & depth != 0).into();
            let consumed = self.word64(self.queue.consumed).load(Ordering::Acquire);
            if written > consumed + depth {
                self.find(format!(
                    "CQE {written} overwrites one that was not taken: {consumed} were"
                ));
            }
        }
        self.word32(cqe + 52)
            .store(u32::from(syndrome) << 24, Ordering::Relaxed);
        // The counter and the opcode are one dword, so that no reader sees one without the other.
        let counter = (index as u16).to_be_bytes();
        let last = u32::from_le_bytes([counter[0], counter[1], 0, opcode << 4 | owner]);
        fence(Ordering::Release);
        self.word32(cqe + 60).store(last, Ordering::Release);
    }

    fn read_wqe(&self, index: u64) -> [u8; 64] {
        let at = self.queue.sq + (index & u64::from(self.queue.depth - 1)) * 64;
        let mut bytes = [0; 64];
        for (place, chunk) in bytes.chunks_exact_mut(8).enumerate() {
            let word = self.word64(at + place as u64 * 8).load(Ordering::Relaxed);
            chunk.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    fn find(&mut self, finding: String) {
        if self.report.findings.len() < 16 {
            self.report.findings.push(finding);
        }
    }

    fn word64(&self, addr: u64) -> &AtomicU64 {
        // SAFETY: aligned words of the queue, which outlive the NIC (contract of `start`); others use them atomically too.
        unsafe { AtomicU64::from_ptr(addr as *mut u64) }
    }

    fn word32(&self, addr: u64) -> &AtomicU32 {
        // SAFETY: as in `word64`.
        unsafe { AtomicU32::from_ptr(addr as *mut u32) }
    }
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
