//! Words between host and kernels of one rank while kernels run: which calls may start, how long they wait, for which ranks they
//! wait. Back: how far the calls are and what went wrong.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use bytemuck::Zeroable;

use crate::abi::{MoeBoard, MoeClock, MoeContext, MoeFault, MoePeer, MoeSignal, SIGNALS_PER_PEER};
use crate::config::setters;
use crate::gpu::{Gpu, GpuError, HostMapped};
use crate::moe::bits::{RankBits, ranks_of};
use crate::moe::members::view::newer;
use crate::moe::{Fault, Moe, MoeError};
use crate::team::Team;

/// Reads of the newest fault that meet a kernel which writes it; then the reader gives up.
const FAULT_READS: u32 = 1000;

// Kernels read both words of each dispatch in one load of 8 bytes.
const _: () = {
    const LIMITED: usize = std::mem::offset_of!(MoeBoard, limited);
    assert!(LIMITED.is_multiple_of(8) && std::mem::offset_of!(MoeBoard, alone) == LIMITED + 4);
};

/// The board and the clock of a layer.
#[derive(Debug)]
pub(in crate::moe) struct Board {
    gpu: Arc<dyn Gpu>,
    /// Ranks of the team.
    ranks: u32,
    words: HostMapped,
    at: Addresses,
    /// Longest time for which a phase may run, ns.
    longest_ns: AtomicU64,
}

/// Device addresses of what the host changes while a layer lives.
#[derive(Clone, Copy, Debug)]
pub(in crate::moe) struct Addresses {
    pub(in crate::moe) context: u64,
    pub(in crate::moe) clock: u64,
    pub(in crate::moe) active: u64,
    /// State per peer.
    pub(in crate::moe) peers: u64,
    /// What the peers tell.
    pub(in crate::moe) signals: u64,
}

/// Waiting times of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlines {
    /// Longest wait of a phase. It may be shorter than the time in which the HCA gives up on a peer
    /// ([`PathConfig::ack_timeout`](crate::config::PathConfig::ack_timeout), eight times). Calls go on meanwhile, and send that
    /// peer nothing.
    pub steady: Duration,
    /// The same in the first `warm_calls` calls.
    pub warm: Duration,
    /// Calls that are warm-up.
    pub warm_calls: u32,
    /// Longest time for which a call is held back, or clocks stand still, while a change is prepared. A call that is held for
    /// longer is lost at every rank. So it should not be less than the time in which a group finds out that a member does not
    /// answer. [`Deadlines::new`] takes [`CHANGE`](Self::CHANGE), or `steady` if that is longer.
    pub change: Duration,
}

setters! {
    const Deadlines {
        with_steady(steady: Duration),
        with_warm(warm: Duration),
        with_warm_calls(warm_calls: u32),
        with_change(change: Duration),
    }
}

impl Deadlines {
    /// How long a change of members may take where nothing else is said, 10 s. With leases of 2 s a member that has stopped
    /// answering is dropped in less.
    pub const CHANGE: Duration = Duration::from_secs(10);

    /// The same wait in every call.
    #[must_use]
    pub const fn new(steady: Duration) -> Self {
        let is_long = steady.as_nanos() > Self::CHANGE.as_nanos();
        Self {
            steady,
            warm: steady,
            warm_calls: 0,
            change: if is_long { steady } else { Self::CHANGE },
        }
    }
}

/// The bits of `set`, ranks of a team of `ranks`.
fn bits(set: &[u32], ranks: u32) -> Result<RankBits, MoeError> {
    let mut words = RankBits::default();
    for &rank in set {
        let place = words.get_mut(rank as usize / 32);
        let word = place.filter(|_| rank < ranks);
        *word.ok_or(MoeError::Rank { rank, ranks })? |= 1 << (rank % 32);
    }
    Ok(words)
}

/// Waiting times as kernels read them, and the longest time for which a phase may run, ns. A time that 64 bits of nanoseconds
/// do not hold counts as their end, 584 years.
fn clock_of(deadlines: &Deadlines) -> (MoeClock, u64) {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let clock = MoeClock {
        steady_ns: ns(deadlines.steady),
        warm_ns: ns(deadlines.warm),
        warm_calls: deadlines.warm_calls,
        change_ns: ns(deadlines.change),
        ..MoeClock::zeroed()
    };
    let longest = clock.steady_ns.max(clock.warm_ns);
    let phase = longest.saturating_mul(2).saturating_add(clock.change_ns);
    (clock, phase.saturating_mul(2))
}

/// For how long a launch may run whose phase may run for `phase_ns`, or whose call has the deadline `own`, or zero.
fn longest_launch(phase_ns: u64, own: Duration) -> Duration {
    let longest = Duration::from_nanos(phase_ns).max(own.saturating_mul(6));
    longest.saturating_add(Duration::from_secs(60))
}

impl Board {
    pub(in crate::moe) fn new(
        team: &Team,
        words: HostMapped,
        at: Addresses,
    ) -> Result<Self, MoeError> {
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

    fn set_deadlines(&self, deadlines: &Deadlines) -> Result<(), MoeError> {
        let (clock, phase_ns) = clock_of(deadlines);
        self.longest_ns.fetch_max(phase_ns, Ordering::Relaxed);
        Ok(self.gpu.write(self.at.clock, bytemuck::bytes_of(&clock))?)
    }

    /// A launch that runs for longer is broken: each wait ends by itself. `deadline` is the call's own, or zero. A later, shorter
    /// deadline of the layer does not lower it.
    pub(in crate::moe) fn longest_launch(&self, deadline: Duration) -> Duration {
        longest_launch(self.longest_ns.load(Ordering::Relaxed), deadline)
    }

    /// The words that say which ranks take part.
    pub(in crate::moe) fn active_addr(&self) -> u64 {
        self.at.active
    }

    fn set_active(&self, active: &[bool]) -> Result<(), MoeError> {
        let words: Vec<u32> = active.iter().map(|&active| active.into()).collect();
        Ok(self
            .gpu
            .write(self.at.active, bytemuck::cast_slice(&words))?)
    }

    fn begin_at(&self, first: u32) -> Result<(), MoeError> {
        self.write_context(std::mem::offset_of!(MoeContext, joined), &[first])?;
        self.write_context(std::mem::offset_of!(MoeContext, serial), &[0])?;
        self.in_force().store(0, Ordering::Release);
        self.next_is(first)
    }

    /// The next call has number `call`, and all before it have ended.
    fn next_is(&self, call: u32) -> Result<(), MoeError> {
        let before = call.wrapping_sub(1);
        self.write_context(std::mem::offset_of!(MoeContext, call), &[before; 3])?;
        let mut ended = [before, before.wrapping_sub(1)];
        ended.rotate_right(before as usize % 2);
        self.write_context(std::mem::offset_of!(MoeContext, ended), &ended)?;
        self.write_context(std::mem::offset_of!(MoeContext, aborted), &[0])?;
        for offset in [
            std::mem::offset_of!(MoeBoard, started),
            std::mem::offset_of!(MoeBoard, finished),
        ] {
            self.word(offset).store(before, Ordering::Release);
        }
        Ok(())
    }

    /// Calls up to `call` are left out. Open ones stay open.
    fn skip_to(&self, call: u32) -> Result<(), MoeError> {
        self.write_context(std::mem::offset_of!(MoeContext, call), &[call])?;
        let ended = std::mem::offset_of!(MoeContext, ended) + 4 * (call as usize % 2);
        self.write_context(ended, &[call])?;
        let started = std::mem::offset_of!(MoeBoard, started);
        self.word(started).store(call, Ordering::Release);
        Ok(())
    }

    /// Forgets that kernels have waited for `peer` in vain.
    fn trust(&self, peer: u32) -> Result<(), MoeError> {
        let of_peer = u64::from(peer) * size_of::<MoePeer>() as u64;
        let at = self.at.peers + of_peer + std::mem::offset_of!(MoePeer, suspect) as u64;
        self.gpu.write(at, &0u32.to_ne_bytes())?;
        self.write_context(std::mem::offset_of!(MoeContext, changed), &[1])?;
        Ok(())
    }

    fn write_context(&self, offset: usize, words: &[u32]) -> Result<(), GpuError> {
        let at = self.at.context + offset as u64;
        self.gpu.write(at, bytemuck::cast_slice(words))
    }

    fn in_force(&self) -> &AtomicU64 {
        self.words.u64_at(std::mem::offset_of!(MoeBoard, in_force))
    }

    /// Serial of the newest view in which a call has run, with its first call. A later call that is within 2^30 of the newest may
    /// stand for the first. `None` if no call has run yet.
    pub(in crate::moe) fn view_in_force(&self) -> Option<(u32, u32)> {
        let word = self.in_force().load(Ordering::Relaxed);
        let half = |at: u32| u32::try_from(word >> at & u64::from(u32::MAX)).expect("32 bits");
        (word != 0).then(|| (half(32), half(0)))
    }

    /// Zeroes what kernels keep of `peer` and its words, and does not ask them any more not to wait for it. No kernel may use any
    /// of that now.
    pub(in crate::moe) fn clear_peer(&self, peer: u32) -> Result<(), MoeError> {
        const OF_PEER: usize = SIGNALS_PER_PEER as usize;
        let place = u64::from(peer);
        let signals = [MoeSignal::zeroed(); OF_PEER];
        let at = self.at.signals + place * size_of_val(&signals) as u64;
        self.gpu.write(at, bytemuck::cast_slice(&signals))?;
        let at = self.at.peers + place * size_of::<MoePeer>() as u64;
        self.gpu.write(at, bytemuck::bytes_of(&MoePeer::zeroed()))?;
        let suspects = std::mem::offset_of!(MoeBoard, suspects) + 4 * (peer as usize / 32);
        self.word(suspects)
            .fetch_and(!(1 << (peer % 32)), Ordering::Release);
        Ok(())
    }

    /// By rank a number that is another one when a word of it has arrived.
    pub(in crate::moe) fn words(&self) -> Result<Vec<u64>, MoeError> {
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
            self.word(offset + 4 * place).store(word, Ordering::Release);
        }
        Ok(())
    }

    fn read_bits(&self, offset: usize) -> RankBits {
        std::array::from_fn(|place| self.word(offset + 4 * place).load(Ordering::Relaxed))
    }

    fn fault(&self) -> Option<MoeFault> {
        const AT: usize = std::mem::offset_of!(MoeBoard, fault);
        const WORDS: usize = size_of::<MoeFault>() / 4;
        for _ in 0..FAULT_READS {
            // Acquire. Pairs with the kernel's release fence before `faults`: the record is as new as its number.
            let number = self
                .word(std::mem::offset_of!(MoeBoard, faults))
                .load(Ordering::Acquire);
            let words: [u32; WORDS] =
                std::array::from_fn(|place| self.word(AT + 4 * place).load(Ordering::Relaxed));
            // Acquire. Pairs with the kernel's release fence behind `faults_begun`: a thread that read a word of a newer record
            // sees its begin.
            fence(Ordering::Acquire);
            let begun = self.word(std::mem::offset_of!(MoeBoard, faults_begun));
            if begun.load(Ordering::Relaxed) == number {
                return (number != 0).then(|| bytemuck::cast(words));
            }
            std::thread::sleep(Duration::from_micros(10));
        }
        None
    }
}

impl Moe {
    /// Sets the waiting times of calls that begin from now on, and of holds and stops from now on.
    ///
    /// # Errors
    /// The device's.
    pub fn set_deadlines(&self, deadlines: &Deadlines) -> Result<(), MoeError> {
        self.board().set_deadlines(deadlines)
    }

    /// The ranks that take part in calls that begin from now on, as the caller sees it. The others get only a word that says so,
    /// and no call waits for them. All take part at the begin. Other ranks need not agree.
    ///
    /// # Errors
    /// An array whose length is not the number of ranks; the device's.
    pub fn set_active(&self, active: &[bool]) -> Result<(), MoeError> {
        let want = self.team().ranks() as usize;
        match active.len() == want {
            true => self.board().set_active(active),
            false => Err(MoeError::Length {
                what: "the mask of the ranks",
                got: active.len(),
                want,
            }),
        }
    }

    /// Makes `first` the number of the first call: of a layer that joins others, or in a test of what happens when numbers
    /// wrap. Before the first call, and at all ranks.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn begin_at(&self, first: u32) -> Result<(), MoeError> {
        self.views().begin_at(self.team().gpu().as_ref(), first)?;
        self.arguments().launches().next_is(first);
        self.board().begin_at(first)
    }

    /// As if all calls up to `call` had been made in the present view, and ranks had sent each other no word since. For tests of
    /// numbers that no test reaches by calls: between two calls, at all ranks.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn leap_to(&self, call: u32) -> Result<(), MoeError> {
        for peer in 0..self.team().ranks() {
            self.board().clear_peer(peer)?;
        }
        self.arguments().launches().next_is(call.wrapping_add(1));
        self.board().next_is(call.wrapping_add(1))
    }

    /// `rank` was waited for in vain and lives, so later calls wait for it: for example where its arguments were others
    /// ([`Difference::missed`](crate::moe::Difference::missed)). No kernel of the layer runs meanwhile.
    ///
    /// # Errors
    /// [`MoeError::Rank`]; the device's.
    pub fn trust(&self, rank: u32) -> Result<(), MoeError> {
        bits(&[rank], self.team().ranks())?;
        self.board().trust(rank)
    }

    /// This rank leaves out calls up to `call`, which the other ranks have made without it, and takes part in the next one. A call that
    /// has begun here already is not left out. No kernel of the layer runs meanwhile.
    ///
    /// # Errors
    /// The device's.
    pub fn skip_to(&self, call: u32) -> Result<(), MoeError> {
        if !newer(call, self.started()) {
            return Ok(());
        }
        self.arguments().launches().next_is(call.wrapping_add(1));
        self.board().skip_to(call)
    }

    /// `rank` is known dead: its QPs go to Err, which ends every wait for it, and no call waits for it any more. The next view
    /// says which calls have it as a member.
    ///
    /// # Errors
    /// The team's.
    pub fn mark_dead(&self, rank: u32) -> Result<(), MoeError> {
        let board = self.board();
        let at = std::mem::offset_of!(MoeBoard, suspects) + 4 * (rank as usize / 32);
        self.team().fail_peer(rank)?;
        board.word(at).fetch_or(1 << (rank % 32), Ordering::Release);
        Ok(())
    }

    /// The last call that has taken its number.
    #[must_use]
    pub fn started(&self) -> u32 {
        self.board()
            .word(std::mem::offset_of!(MoeBoard, started))
            .load(Ordering::Acquire)
    }

    /// The last call that has ended, and all before it: its last phase has, or it is closed since a call two later has begun.
    #[must_use]
    pub fn finished(&self) -> u32 {
        // Acquire. Pairs with the kernel's release fence before the word: what the calls did comes before what follows here.
        self.board()
            .word(std::mem::offset_of!(MoeBoard, finished))
            .load(Ordering::Acquire)
    }

    /// Lets no call start whose number is above `limit`; with none, every call may. A call above it waits for the change
    /// deadline, then ends `aborted`. Until the limit changes, further ones end when another rank has begun them, or at that
    /// deadline: this rank neither runs ahead of the others nor holds them up. Returns the last call that has started: no later
    /// one starts, unless it is at most `limit`.
    pub fn set_limit(&self, limit: Option<u32>) -> u32 {
        let board = self.board();
        let limited = board.word(std::mem::offset_of!(MoeBoard, limited));
        match limit {
            Some(limit) => {
                let word = board.word(std::mem::offset_of!(MoeBoard, limit));
                word.store(limit, Ordering::Release);
                // Release. Pairs with the acquire fence of the kernel that finds itself limited: it sees the limit.
                limited.store(1, Ordering::Release);
            }
            // Release. The views that were written before: pairs with the acquire fence behind the kernel's look.
            None => limited.store(0, Ordering::Release),
        }
        // Sequentially consistent. Pairs with the kernel's fence between its store of `started` and its look at the limit.
        fence(Ordering::SeqCst);
        self.started()
    }

    /// Whether the limit keeps `call` from starting.
    pub(in crate::moe) fn is_held(&self, call: u32) -> bool {
        let word = |offset: usize| self.board().word(offset).load(Ordering::Acquire);
        let limited = word(std::mem::offset_of!(MoeBoard, limited)) != 0;
        limited && newer(call, word(std::mem::offset_of!(MoeBoard, limit)))
    }

    /// Whether calls that would be held end `aborted` at once instead.
    pub(crate) fn set_refuse(&self, refuse: bool) {
        self.board()
            .word(std::mem::offset_of!(MoeBoard, refuse))
            .store(refuse.into(), Ordering::Release);
    }

    /// Marks that this rank exchanges with no other member. Calls of such a rank wait until their deadline or until the mark is
    /// removed. So the rank does not run ahead of the others.
    pub(crate) fn set_alone(&self, alone: bool) {
        self.board()
            .word(std::mem::offset_of!(MoeBoard, alone))
            .store(alone.into(), Ordering::Release);
    }

    /// While a change is prepared, the clocks against those ranks that have promised it stand still. None: no change is.
    ///
    /// # Errors
    /// [`MoeError::Rank`]: one that the team does not have.
    pub(crate) fn set_preparing(&self, promised: Option<&[u32]>) -> Result<(), MoeError> {
        let board = self.board();
        board.write_bits(
            std::mem::offset_of!(MoeBoard, promised),
            promised.unwrap_or(&[]),
        )?;
        board
            .word(std::mem::offset_of!(MoeBoard, preparing))
            .store(promised.is_some().into(), Ordering::Release);
        Ok(())
    }

    /// The ranks that kernels do not wait for, whatever they say. They get words and rows as before.
    ///
    /// # Errors
    /// [`MoeError::Rank`]: one that the team does not have.
    pub(crate) fn set_suspects(&self, ranks: &[u32]) -> Result<(), MoeError> {
        let board = self.board();
        board.write_bits(std::mem::offset_of!(MoeBoard, suspects), ranks)
    }

    /// The ranks that kernels have waited for in vain, and that have said nothing new since.
    #[must_use]
    pub fn suspected(&self) -> Vec<u32> {
        let board = self.board();
        ranks_of(&board.read_bits(std::mem::offset_of!(MoeBoard, suspected)))
    }

    /// How many records of faults kernels have written so far; wraps. It is one load of the host's own memory. A caller that
    /// keeps the last answer knows before each launch whether [`Moe::last_fault`] has news, without waiting.
    #[must_use]
    pub fn faults(&self) -> u32 {
        // Acquire. Pairs with the kernel's release fence before the word: a thread that sees the number finds the record, or a
        // newer one.
        self.board()
            .word(std::mem::offset_of!(MoeBoard, faults))
            .load(Ordering::Acquire)
    }

    /// How many calls so far found no free send buffer, and so sent nothing: links to more ranks than the layer was made for
    /// ([`MoeConfig::failing_links`](crate::moe::MoeConfig::failing_links)) failed within the patience of the HCA. Wraps. One load of
    /// the host's own memory.
    #[must_use]
    pub fn unbuffered(&self) -> u32 {
        self.board()
            .word(std::mem::offset_of!(MoeBoard, unbuffered))
            .load(Ordering::Relaxed)
    }

    /// The newest fault; none so far, or a kernel writes one all the time.
    #[must_use]
    pub fn last_fault(&self) -> Option<Fault> {
        self.board().fault().and_then(|fault| Fault::new(&fault))
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

    #[test]
    fn a_change_may_take_longer_than_a_short_deadline() {
        for (steady, change) in [(0, 10), (1, 10), (10, 10), (11, 11)] {
            let deadlines = Deadlines::new(Duration::from_secs(steady));
            assert_eq!(deadlines.change, Duration::from_secs(change));
        }
    }

    #[test]
    fn times_beyond_every_clock_count_as_its_end_and_none_as_none() {
        let (clock, phase_ns) = clock_of(&Deadlines::new(Duration::MAX));
        assert_eq!(
            [clock.steady_ns, clock.warm_ns, clock.change_ns, phase_ns],
            [u64::MAX; 4]
        );
        assert_eq!(longest_launch(0, Duration::MAX), Duration::MAX);
        let longest = longest_launch(phase_ns, Duration::ZERO);
        assert_eq!(
            longest,
            Duration::from_nanos(u64::MAX) + Duration::from_secs(60)
        );
        let all = |time| Deadlines::new(time).with_change(time);
        let (clock, phase_ns) = clock_of(&all(Duration::ZERO));
        assert_eq!((clock.steady_ns, phase_ns), (0, 0));
        let (_, phase_ns) = clock_of(&all(Duration::from_nanos(7)));
        assert_eq!(phase_ns, 2 * (2 * 7 + 7));
    }
}
