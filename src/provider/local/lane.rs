//! A queue of copies. The thread that uses it makes the copies, a bounded part at a time, so that its other queues do not wait long.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mlx5_prm::cqe::Syndrome;

use super::board::Shown;
use super::machine::{Held, MOST_PIECES, Piece, Spans};
use super::reach::Reach;
use crate::gpu::CopyPiece;
use crate::provider::{
    Cause, Chain, Completed, Completion, Lane, LocalRange, Posted, Stop, Tag, Verb,
};

/// The most WQEs that wait.
const DEPTH: usize = 256;
/// The number of waiting bytes from which on the lane reports no room.
const WAITING: u64 = 1 << 22;
/// The number of bytes of one part.
const PART: u64 = 1 << 20;
/// About how many times as fast as a thread a GPU copies: so many times more bytes may wait for a GPU, and are one part.
const OF_GPU: u64 = 8;
/// The cause of a failure: the peer does not have such a region, or has taken it away.
const NO_ACCESS: Cause = Cause::of_hca(Syndrome::REMOTE_ACCESS_ERR.0, 0);

/// The cause of a failure: the peer does not have such a counter.
const NO_COUNTER: Cause = Cause::of_hca(Syndrome::REMOTE_INVAL_REQ_ERR.0, 0);

/// The number of the next lane. No QP has a number from 2^31 on.
static NUMBERS: AtomicU32 = AtomicU32::new(1 << 31);

/// One queue of copies.
#[derive(Debug)]
pub(crate) struct LocalLane {
    number: u32,
    /// The number of this side's thread that uses the lane, for the peer.
    copier: usize,
    reach: Arc<Reach>,
    jobs: VecDeque<Job>,
    /// The local ranges of all jobs, in order.
    ranges: VecDeque<LocalRange>,
    finished: VecDeque<(Tag, Option<Cause>)>,
    retired: u64,
    /// The sum of the weights of all jobs.
    waiting: u64,
    /// The regions of the peer that were found, by key.
    known: HashMap<u32, Shown>,
    /// The number of jobs that are still to be copied one by one, because a copy of several together has failed.
    alone: usize,
    /// Why the lane takes no more WQEs, if it has failed.
    failed: Option<Cause>,
    /// Lists that are kept for their memory.
    pieces: Vec<Piece>,
    spans: Spans,
    copies: Vec<CopyPiece>,
}

/// A WQE that waits.
#[derive(Clone, Copy, Debug)]
struct Job {
    verb: Verb,
    remote: u64,
    key: u32,
    tag: Tag,
    bytes: u64,
    done: u64,
    ranges: usize,
    /// The number of the GPU that copies it; 0: this thread does.
    copier: u8,
}

impl Job {
    /// Returns how many bytes the job counts as in `waiting`.
    fn weight(&self) -> u64 {
        match self.copier {
            0 => self.bytes,
            _ => self.bytes / OF_GPU,
        }
    }
}

/// What one copy does: jobs that are complete after it, and some bytes of the next job.
#[derive(Debug)]
struct Part {
    is_read: bool,
    copier: u8,
    held: Option<Held>,
    whole: usize,
    rest: u64,
}

impl LocalLane {
    pub(crate) fn new(reach: &Arc<Reach>, copier: usize) -> Self {
        Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed) | 1 << 31,
            copier,
            reach: Arc::clone(reach),
            jobs: VecDeque::with_capacity(DEPTH),
            ranges: VecDeque::with_capacity(DEPTH),
            finished: VecDeque::with_capacity(DEPTH),
            retired: 0,
            waiting: 0,
            known: HashMap::new(),
            alone: 0,
            failed: None,
            pieces: Vec::new(),
            spans: Spans::default(),
            copies: Vec::new(),
        }
    }

    /// Copies one part.
    fn step(&mut self) {
        let reach = Arc::clone(&self.reach);
        let Some(_inside) = reach.enter(self.copier) else {
            // The connection has ended.
            return self.fail(reach.cause_of_end().unwrap_or(Cause::FLUSHED));
        };
        let part = match self.next(&reach) {
            Ok(part) => part,
            Err(_) if reach.is_crowded() => return self.fail(Cause::of_system(libc::ENOSPC)),
            Err(cause) => return self.finish(Some(cause)),
        };
        let (is_read, pieces) = (part.is_read, &self.pieces);
        let copied = match (reach.gpu(part.copier), part.held) {
            (Some(gpu), _) => reach.copy_by_gpu(is_read, pieces, &gpu, &mut self.copies),
            (None, Some(_)) => reach.copy(is_read, pieces),
            (None, None) => reach.copy_by_kernel(is_read, pieces, &mut self.spans),
        };
        match copied {
            Ok(()) => {
                (0..part.whole).for_each(|_| self.count(&reach));
                if let Some(job) = self.jobs.front_mut() {
                    job.done += part.rest;
                }
            }
            Err(libc::EFAULT | libc::EIO) if part.whole + usize::from(part.rest > 0) > 1 => {
                self.alone = part.whole + 1;
            }
            Err(errno @ (libc::EFAULT | libc::EIO)) => self.finish(Some(Cause::of_system(errno))),
            Err(errno) => self.fail(Cause::of_system(errno)),
        }
    }

    /// Notes that the first job is copied, and adds to the peer's counter if the job has one.
    fn count(&mut self, reach: &Reach) {
        let counter = match self.jobs.front() {
            Some(Job {
                verb: Verb::WriteImmediate(counter),
                ..
            }) => Some(*counter),
            _ => None,
        };
        match counter {
            Some(counter) if !reach.count(counter) => self.finish(Some(NO_COUNTER)),
            _ => self.finish(None),
        }
    }

    /// Returns the part to copy next, and puts its pieces into `pieces`. An error is why the first job cannot be copied.
    fn next(&mut self, reach: &Reach) -> Result<Part, Cause> {
        self.pieces.clear();
        let first = *self.jobs.front().ok_or(Cause::FLUSHED)?;
        let of_first = self.find(reach, &first)?;
        let mut part = Part {
            is_read: first.verb == Verb::Read,
            copier: first.copier,
            held: reach.hold(&of_first, reach.gpu(first.copier).as_ref()),
            whole: 0,
            rest: 0,
        };
        // A GPU cannot use an address of another process. What follows in this part is of the same region.
        if part.copier > 0 && part.held.is_none() && !reach.is_of_process() {
            return Err(NO_ACCESS);
        }
        let (mut bytes, mut first_range) = (0, 0);
        let most = if self.alone > 0 { 1 } else { self.jobs.len() };
        let most_bytes = match part.copier {
            0 => PART,
            _ => OF_GPU * PART,
        };
        for at in 0..most {
            let job = self.jobs[at];
            let Ok(shown) = self.find(reach, &job) else {
                break;
            };
            let is_other = (job.verb == Verb::Read, job.copier) != (part.is_read, part.copier);
            let is_apart = part.held.is_some() && !shown.is_same(&of_first);
            if is_apart || is_other || bytes >= most_bytes {
                break;
            }
            let first = part.held.as_ref().map_or(shown.first, Held::first);
            // The sum may wrap. The kernel refuses a wrapped address of another process, and a wrapped address of this process is right.
            let remote = first.wrapping_add(job.remote - shown.address);
            let taken = self.take(&job, first_range, remote, most_bytes - bytes);
            if taken < job.bytes - job.done {
                part.rest = taken;
                break;
            }
            bytes += taken;
            first_range += job.ranges;
            part.whole += 1;
        }
        Ok(part)
    }

    /// Adds pieces for what is left of a job, up to `most` bytes and [`MOST_PIECES`]. Returns the number of bytes added.
    fn take(&mut self, job: &Job, first_range: usize, remote: u64, most: u64) -> u64 {
        let (mut skipped, mut at, mut taken) = (job.done, 0, 0);
        for range in self.ranges.range(first_range..first_range + job.ranges) {
            let bytes = u64::from(range.bytes);
            let from = skipped.min(bytes);
            skipped -= from;
            let count = (bytes - from).min(most - taken);
            if count > 0 {
                if self.pieces.len() == MOST_PIECES {
                    break;
                }
                self.pieces.push(Piece {
                    local: range.address + from,
                    remote: remote.wrapping_add(at + from),
                    bytes: count,
                });
                taken += count;
            }
            at += bytes;
        }
        taken
    }

    /// Returns the peer's region that contains all bytes of the job.
    fn find(&mut self, reach: &Reach, job: &Job) -> Result<Shown, Cause> {
        let known = self.known.get(&job.key);
        let shown = match known.copied().filter(|shown| reach.is_there(shown)) {
            Some(shown) => shown,
            None => {
                self.known.remove(&job.key);
                let mut shown = reach.find(job.key).ok_or(NO_ACCESS)?;
                // A file that cannot be mapped is not tried again.
                if !shown.is_of_gpu && reach.hold(&shown, None).is_none() {
                    shown.file = None;
                }
                self.known.insert(job.key, shown);
                shown
            }
        };
        let is_reached = job.copier > 0 || !shown.is_of_gpu;
        let skipped = job.remote.checked_sub(shown.address);
        let room = skipped.and_then(|skipped| shown.bytes.checked_sub(skipped));
        let may = match job.verb {
            Verb::Read => shown.may_read,
            _ => shown.may_write,
        };
        match room {
            Some(room) if may && is_reached && room >= job.bytes => Ok(shown),
            _ => Err(NO_ACCESS),
        }
    }

    /// Accounts for the first job, with this cause if it has failed.
    fn finish(&mut self, cause: Option<Cause>) {
        let Some(job) = self.jobs.pop_front() else {
            return;
        };
        self.ranges.drain(..job.ranges);
        self.waiting -= job.weight();
        self.alone = self.alone.saturating_sub(1);
        self.finished.push_back((job.tag, cause));
    }

    /// Notes that the lane has failed: it takes no more WQEs, and all that wait fail.
    fn fail(&mut self, cause: Cause) {
        self.reach.say(cause);
        self.failed = Some(cause);
        while !self.jobs.is_empty() {
            self.finish(Some(cause));
        }
    }
}

impl Lane for LocalLane {
    fn number(&self) -> u32 {
        self.number
    }

    fn room(&self, _ranges: u32) -> u32 {
        let left = if self.waiting < WAITING {
            DEPTH.saturating_sub(self.jobs.len() + self.finished.len())
        } else {
            0
        };
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    fn post(&mut self, chain: &Chain, which: Range<usize>) -> Posted {
        let mut count = 0;
        for (work, ranges) in chain.range(which) {
            let stop = match self.failed {
                Some(_) => Some(Stop::Failed),
                None if self.jobs.len() + self.finished.len() >= DEPTH => Some(Stop::Full),
                None => None,
            };
            if stop.is_some() {
                return Posted { count, stop };
            }
            let bytes = ranges.iter().map(|range| u64::from(range.bytes)).sum();
            self.ranges.extend(ranges);
            let job = Job {
                verb: work.verb,
                remote: work.remote,
                key: work.key,
                tag: work.tag,
                bytes,
                done: 0,
                ranges: ranges.len(),
                copier: work.copier(),
            };
            self.waiting += job.weight();
            self.jobs.push_back(job);
            count += 1;
        }
        Posted { count, stop: None }
    }

    fn ring(&mut self) {}

    fn retire(&mut self, _completion: &Completion, mut each: impl FnMut(Tag, Option<Cause>)) {
        self.retired += self.finished.len() as u64;
        self.finished
            .drain(..)
            .for_each(|(tag, cause)| each(tag, cause));
    }

    fn in_flight(&self) -> u32 {
        u32::try_from(self.jobs.len() + self.finished.len()).unwrap_or(u32::MAX)
    }

    fn holds(&self, slot: u32) -> bool {
        self.jobs.iter().any(|job| job.tag.slot == slot)
    }

    fn copies(&self) -> bool {
        true
    }

    fn has_turn(&self) -> bool {
        self.in_flight() > 0
    }

    fn advance(&mut self) -> Option<Completion> {
        if !self.jobs.is_empty() {
            self.step();
        }
        let last = (self.finished.len() as u64).checked_sub(1)? + self.retired;
        let [a, b, ..] = last.to_le_bytes();
        Some(Completion {
            lane: self.number,
            what: Completed::Sends,
            index: u16::from_le_bytes([a, b]),
            cause: self.failed,
        })
    }

    fn flush(&mut self, slot: Option<u32>) -> bool {
        if self.jobs.is_empty() {
            return true;
        }
        let cause = match slot {
            Some(_) => Cause::FLUSHED,
            None => self.reach.cause_of_end().unwrap_or(Cause::FLUSHED),
        };
        // Each job is taken from the front and, if it stays, put at the back once. So their order stays.
        for _ in 0..self.jobs.len() {
            let Some(job) = self.jobs.pop_front() else {
                break;
            };
            if slot.is_none_or(|slot| job.tag.slot == slot) {
                self.ranges.drain(..job.ranges);
                self.waiting -= job.weight();
                self.finished.push_back((job.tag, Some(cause)));
                continue;
            }
            self.ranges.rotate_left(job.ranges);
            self.jobs.push_back(job);
        }
        self.alone = self.alone.min(self.jobs.len());
        true
    }
}
