//! The board of a layer: words by which host and kernels of one rank talk while kernels run. The host says which calls may start,
//! how long they wait, and for which ranks. The kernels say how far the calls are and what went wrong.

use std::hash::{DefaultHasher, Hasher};
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use bytemuck::Zeroable;

use crate::abi::{LayerContext, MoeBoard, MoeFault, MoePeer, MoeSignal, SIGNALS_PER_PEER};
use crate::gpu::{Gpu, GpuError, HostMapped};
use crate::moe::bits::{RankBits, ranks_of};
use crate::moe::error::MoeError;
use crate::moe::fault::Fault;
use crate::moe::members::deadlines::{Deadlines, clock_of, longest_launch};
use crate::team::Team;

/// Number of reads of the newest fault after which the reader gives up, if a kernel writes the record at each of them.
const FAULT_READS: u32 = 1000;

// Kernels read `limited` and `alone` in one load of 8 bytes at each dispatch.
const _: () = {
    const LIMITED: usize = offset_of!(MoeBoard, limited);
    assert!(LIMITED.is_multiple_of(8) && offset_of!(MoeBoard, alone) == LIMITED + 4);
};

/// The board and the clock of a layer.
#[derive(Debug)]
pub struct Board {
    gpu: Arc<dyn Gpu>,
    /// The number of ranks of the team.
    ranks: u32,
    words: HostMapped,
    at: Addresses,
    /// The longest time for which a phase may run, ns.
    longest_ns: AtomicU64,
}

/// Device addresses of the words that the host changes while a layer lives.
#[derive(Clone, Copy, Debug)]
pub(in crate::moe) struct Addresses {
    /// The address of the [`LayerContext`].
    pub(in crate::moe) context: u64,
    pub(in crate::moe) clock: u64,
    pub(in crate::moe) active: u64,
    /// The address of the state per peer.
    pub(in crate::moe) peers: u64,
    /// The address of the signals from the peers.
    pub(in crate::moe) signals: u64,
}

/// Returns the bits of `set`, which holds ranks of a team of `ranks` ranks.
fn bits(set: &[u32], ranks: u32) -> Result<RankBits, MoeError> {
    let mut words = RankBits::default();
    for &rank in set {
        let place = words.get_mut(rank as usize / 32);
        let word = place.filter(|_| rank < ranks);
        *word.ok_or(MoeError::Rank { rank, ranks })? |= 1 << (rank % 32);
    }
    Ok(words)
}

/// Returns whether call `a` is newer than call `b`. Numbers of calls wrap.
pub(super) fn newer(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

impl Board {
    pub(super) fn new(team: &Team, words: HostMapped, at: Addresses) -> Result<Self, MoeError> {
        let board = Self {
            gpu: Arc::clone(team.gpu()),
            ranks: team.ranks(),
            words,
            at,
            longest_ns: AtomicU64::new(0),
        };
        board.set_deadlines(&Deadlines::new(team.config().deadline))?;
        Ok(board)
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        self.words.u32_at(offset)
    }

    fn acquire(&self, offset: usize) -> u32 {
        self.word(offset).load(Ordering::Acquire)
    }

    fn release(&self, offset: usize, value: u32) {
        self.word(offset).store(value, Ordering::Release);
    }

    /// Sets the waiting times of calls that begin from now on.
    pub(in crate::moe) fn set_deadlines(&self, deadlines: &Deadlines) -> Result<(), MoeError> {
        let (clock, phase_ns) = clock_of(deadlines);
        self.longest_ns.fetch_max(phase_ns, Ordering::Relaxed);
        Ok(self.gpu.write(self.at.clock, bytemuck::bytes_of(&clock))?)
    }

    /// Returns the time after which a launch that still runs is broken, since each of its waits ends by itself. `deadline` is the
    /// call's own deadline, or zero. A later, shorter deadline of the layer does not lower the time.
    pub(in crate::moe) fn longest_launch(&self, deadline: Duration) -> Duration {
        longest_launch(self.longest_ns.load(Ordering::Relaxed), deadline)
    }

    /// Returns the device address of the words that say which ranks take part.
    pub(in crate::moe) fn active_addr(&self) -> u64 {
        self.at.active
    }

    /// Sets the ranks that take part in calls that begin from now on: a `bool` for each rank of the team.
    pub(in crate::moe) fn set_active(&self, active: &[bool]) -> Result<(), MoeError> {
        let want = self.ranks as usize;
        if active.len() != want {
            return Err(MoeError::Length {
                what: "the mask of the ranks",
                got: active.len(),
                want,
            });
        }
        let words: Vec<u32> = active.iter().map(|&active| active.into()).collect();
        self.gpu
            .write(self.at.active, bytemuck::cast_slice(&words))?;
        Ok(())
    }

    /// Makes `first` the number of the first call.
    pub(super) fn begin_at(&self, first: u32) -> Result<(), MoeError> {
        self.write_context(offset_of!(LayerContext, joined), &[first])?;
        self.write_context(offset_of!(LayerContext, serial), &[0])?;
        self.in_force().store(0, Ordering::Release);
        self.next_is(first)
    }

    /// Makes `call` the number of the next call. All earlier calls count as ended.
    pub(super) fn next_is(&self, call: u32) -> Result<(), MoeError> {
        let before = call.wrapping_sub(1);
        self.write_context(offset_of!(LayerContext, call), &[before; 3])?;
        let mut ended = [before, before.wrapping_sub(1)];
        ended.rotate_right(before as usize % 2);
        self.write_context(offset_of!(LayerContext, ended), &ended)?;
        self.write_context(offset_of!(LayerContext, aborted), &[0])?;
        self.release(offset_of!(MoeBoard, started), before);
        self.release(offset_of!(MoeBoard, finished), before);
        Ok(())
    }

    /// Leaves out calls up to `call`. Calls that are open stay open.
    pub(super) fn skip_to(&self, call: u32) -> Result<(), MoeError> {
        self.write_context(offset_of!(LayerContext, call), &[call])?;
        let ended = offset_of!(LayerContext, ended) + 4 * (call as usize % 2);
        self.write_context(ended, &[call])?;
        self.release(offset_of!(MoeBoard, started), call);
        Ok(())
    }

    /// Forgets that kernels have waited for `peer` in vain.
    pub(in crate::moe) fn trust(&self, peer: u32) -> Result<(), MoeError> {
        bits(&[peer], self.ranks)?;
        let of_peer = u64::from(peer) * size_of::<MoePeer>() as u64;
        let at = self.at.peers + of_peer + offset_of!(MoePeer, suspect) as u64;
        self.gpu.write(at, &0u32.to_ne_bytes())?;
        self.write_context(offset_of!(LayerContext, changed), &[1])?;
        Ok(())
    }

    fn write_context(&self, offset: usize, words: &[u32]) -> Result<(), GpuError> {
        let at = self.at.context + offset as u64;
        self.gpu.write(at, bytemuck::cast_slice(words))
    }

    fn in_force(&self) -> &AtomicU64 {
        self.words.u64_at(offset_of!(MoeBoard, in_force))
    }

    /// Returns the serial of the newest view in which a call has run, and the first call of that view. A later call that is within
    /// 2^30 of the newest may stand for the first. Returns `None` if no call has run yet.
    pub(super) fn view_in_force(&self) -> Option<(u32, u32)> {
        let word = self.in_force().load(Ordering::Relaxed);
        let half = |at: u32| u32::try_from(word >> at & u64::from(u32::MAX)).expect("32 bits");
        (word != 0).then(|| (half(32), half(0)))
    }

    /// Zeroes what kernels keep of `peer` and the signals from it, and lets kernels wait for it again. No kernel may use any of
    /// this memory now.
    pub(super) fn clear_peer(&self, peer: u32) -> Result<(), MoeError> {
        const OF_PEER: usize = SIGNALS_PER_PEER as usize;
        let place = u64::from(peer);
        let signals = [MoeSignal::zeroed(); OF_PEER];
        let at = self.at.signals + place * size_of_val(&signals) as u64;
        self.gpu.write(at, bytemuck::cast_slice(&signals))?;
        let at = self.at.peers + place * size_of::<MoePeer>() as u64;
        self.gpu.write(at, bytemuck::bytes_of(&MoePeer::zeroed()))?;
        let without = !(1 << (peer % 32));
        self.suspects_of(peer).fetch_and(without, Ordering::Release);
        Ok(())
    }

    /// Returns the word with the bit that keeps kernels from waiting for `peer`.
    fn suspects_of(&self, peer: u32) -> &AtomicU32 {
        let word = 4 * (peer as usize / 32);
        self.word(offset_of!(MoeBoard, suspects) + word)
    }

    /// Lets kernels wait no more for `peer`, a rank of the team.
    pub(super) fn suspect(&self, peer: u32) {
        self.suspects_of(peer)
            .fetch_or(1 << (peer % 32), Ordering::Release);
    }

    /// Returns for each rank a number that changes when a signal from that rank arrives.
    pub(in crate::moe) fn heard(&self) -> Result<Vec<u64>, MoeError> {
        const OF_PEER: usize = SIGNALS_PER_PEER as usize * size_of::<MoeSignal>();
        let mut signals = vec![0u8; OF_PEER * self.ranks as usize];
        self.gpu.read(self.at.signals, &mut signals)?;
        let digest = |of_peer: &[u8]| {
            let mut hasher = DefaultHasher::new();
            hasher.write(of_peer);
            hasher.finish()
        };
        Ok(signals.chunks_exact(OF_PEER).map(digest).collect())
    }

    fn write_bits(&self, offset: usize, set: &[u32]) -> Result<(), MoeError> {
        for (place, word) in bits(set, self.ranks)?.into_iter().enumerate() {
            self.release(offset + 4 * place, word);
        }
        Ok(())
    }

    fn read_bits(&self, offset: usize) -> RankBits {
        std::array::from_fn(|place| self.word(offset + 4 * place).load(Ordering::Relaxed))
    }

    /// Returns the last call that has taken its number.
    pub(in crate::moe) fn started(&self) -> u32 {
        self.acquire(offset_of!(MoeBoard, started))
    }

    /// Returns the last call such that it and all calls before it have ended.
    pub(in crate::moe) fn finished(&self) -> u32 {
        // Pairs with the kernel's release fence before the word: what the calls did comes before what follows here.
        self.acquire(offset_of!(MoeBoard, finished))
    }

    /// Lets no call start whose number is above `limit`; without a limit, every call may start. Returns the last call that has
    /// started: no later call starts, unless it is at most `limit`.
    pub(in crate::moe) fn set_limit(&self, limit: Option<u32>) -> u32 {
        if let Some(limit) = limit {
            self.release(offset_of!(MoeBoard, limit), limit);
        }
        // Pairs with the acquire fence of the kernel that finds itself limited, which sees the limit, and with the one after the
        // look of a kernel that does not, which sees the views that were written before.
        self.release(offset_of!(MoeBoard, limited), limit.is_some().into());
        // Sequentially consistent. Pairs with the kernel's fence between its store of `started` and its look at the limit.
        fence(Ordering::SeqCst);
        self.started()
    }

    /// Returns whether the limit keeps `call` from starting.
    pub(super) fn is_held(&self, call: u32) -> bool {
        let limited = self.acquire(offset_of!(MoeBoard, limited)) != 0;
        limited && newer(call, self.acquire(offset_of!(MoeBoard, limit)))
    }

    /// Sets whether calls that the limit would hold end `aborted` at once instead.
    pub fn set_refuse(&self, refuse: bool) {
        self.release(offset_of!(MoeBoard, refuse), refuse.into());
    }

    /// Marks that this rank exchanges with no other member. Calls of such a rank wait until their deadline or until the mark is
    /// removed. So the rank does not run ahead of the others.
    pub fn set_alone(&self, alone: bool) {
        self.release(offset_of!(MoeBoard, alone), alone.into());
    }

    /// Notes that a change is prepared, and which ranks have promised it: until it is made, the clocks against these ranks stand
    /// still. None: no change is prepared.
    ///
    /// # Errors
    /// [`MoeError::Rank`] for a rank that the team does not have.
    pub fn set_preparing(&self, promised: Option<&[u32]>) -> Result<(), MoeError> {
        let ranks = promised.unwrap_or(&[]);
        self.write_bits(offset_of!(MoeBoard, promised), ranks)?;
        self.release(offset_of!(MoeBoard, preparing), promised.is_some().into());
        Ok(())
    }

    /// Sets the ranks that kernels do not wait for, even if signals come from them. Kernels send words and rows to these ranks as
    /// before.
    ///
    /// # Errors
    /// [`MoeError::Rank`] for a rank that the team does not have.
    pub fn set_suspects(&self, ranks: &[u32]) -> Result<(), MoeError> {
        self.write_bits(offset_of!(MoeBoard, suspects), ranks)
    }

    /// Returns the ranks that kernels have waited for in vain, and that have sent nothing new since.
    pub(in crate::moe) fn suspected(&self) -> Vec<u32> {
        ranks_of(&self.read_bits(offset_of!(MoeBoard, suspected)))
    }

    /// Returns how many calls so far found no free send buffer. Wraps.
    pub(in crate::moe) fn unbuffered(&self) -> u32 {
        self.word(offset_of!(MoeBoard, unbuffered))
            .load(Ordering::Relaxed)
    }

    /// Returns how many records of faults kernels have written so far; wraps.
    pub(in crate::moe) fn faults(&self) -> u32 {
        // Pairs with the kernel's release fence before the word: a thread that sees the number finds the record, or a newer one.
        self.acquire(offset_of!(MoeBoard, faults))
    }

    /// Returns the newest fault; none if there is none so far, or if kernels overwrite the record all the time.
    pub(in crate::moe) fn last_fault(&self) -> Option<Fault> {
        self.fault_record().and_then(|fault| Fault::new(&fault))
    }

    fn fault_record(&self) -> Option<MoeFault> {
        const AT: usize = offset_of!(MoeBoard, fault);
        const WORDS: usize = size_of::<MoeFault>() / 4;
        for _ in 0..FAULT_READS {
            // The number is read first: the record is as new as the number, or newer.
            let number = self.faults();
            let words: [u32; WORDS] =
                std::array::from_fn(|place| self.word(AT + 4 * place).load(Ordering::Relaxed));
            // Acquire. Pairs with the kernel's release fence after `faults_begun`: a thread that read a word of a newer record
            // sees its begin.
            fence(Ordering::Acquire);
            let begun = self.word(offset_of!(MoeBoard, faults_begun));
            if begun.load(Ordering::Relaxed) == number {
                return (number != 0).then(|| bytemuck::cast(words));
            }
            std::thread::sleep(Duration::from_micros(10));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::team::MAX_RANKS;

    #[test]
    fn a_rank_beyond_those_of_the_team_is_refused_with_their_number() {
        for ranks in [1, 2, 31, 32, 33, 1023, 1024] {
            let last = ranks - 1;
            assert_eq!(
                ranks_of(&bits(&[last, 0, last], ranks).unwrap()).last(),
                Some(&last)
            );
            for rank in [ranks, ranks + 1, MAX_RANKS, u32::MAX] {
                let error = bits(&[0, rank], ranks).unwrap_err();
                assert!(
                    matches!(error, MoeError::Rank { rank: one, ranks: of } if one == rank && of == ranks)
                );
                assert_eq!(
                    error.to_string(),
                    format!("rank {rank}; the layer has {ranks} ranks")
                );
            }
        }
        assert!(ranks_of(&bits(&[], 1).unwrap()).is_empty());
    }
}
