//! The reaper of a worker: takes completions off its CQs, and sleeps on all of them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use mlx5_prm::cqe::Syndrome;

use super::name::Name;
use super::stock::Stock;
use crate::provider::{Cause, Completed, Completion, ProviderError, Reaper, Wake, Watched};
use crate::verbs::{PlainCompletion, PlainCq, PlainFailure, VerbsError};

/// The most completions that the look before a sleep takes from a CQ.
const LOOK: usize = 16;

/// The place where the WQEs of one thread's lanes complete.
#[derive(Debug)]
pub(crate) struct VerbsReaper {
    stock: Arc<Stock>,
    /// The CQs that the stock had at the last look.
    cqs: Vec<Arc<PlainCq>>,
    /// The CQ that comes first at the next look. It changes each time, so that no CQ starves another.
    first: usize,
    /// What the look before a sleep has found.
    found: VecDeque<Completion>,
    /// The error of a CQ that was told last. It is told once.
    told: bool,
}

impl VerbsReaper {
    pub(super) fn new(stock: &Arc<Stock>) -> Self {
        Self {
            stock: Arc::clone(stock),
            cqs: Vec::new(),
            first: 0,
            found: VecDeque::new(),
            told: false,
        }
    }

    /// Adds the CQs that were made since the last look. A CQ is made before any lane that completes in it.
    fn look_for_more(&mut self) {
        if self.stock.count() > self.cqs.len() {
            self.cqs.extend(self.stock.cqs(self.cqs.len()));
        }
    }

    /// Tells once that a CQ cannot be read. Its QPs are broken then, which the peers and the alarms of transfers find.
    fn tell(&mut self, polled: Result<(), VerbsError>) {
        if let Err(error) = polled
            && !std::mem::replace(&mut self.told, true)
        {
            tracing::error!("{error}");
        }
    }

    /// Arms all CQs: a completion from here on raises an event. Returns whether no completion waits.
    fn arm(&mut self) -> Result<bool, ProviderError> {
        self.look_for_more();
        let Self { cqs, found, .. } = self;
        let mut polled = Ok(());
        // Every CQ is armed, even after one that holds a completion.
        for cq in cqs.iter() {
            cq.arm()?;
            polled = polled.and(cq.poll(LOOK, |it| found.extend(completion(&it))));
        }
        self.tell(polled);
        Ok(self.found.is_empty())
    }
}

impl Reaper for VerbsReaper {
    fn reap(&mut self, found: &mut Vec<Completion>, most: usize) {
        self.look_for_more();
        let kept = self.found.len().min(most.saturating_sub(found.len()));
        found.extend(self.found.drain(..kept));
        self.first = match self.first + 1 {
            next if next < self.cqs.len() => next,
            _ => 0,
        };
        let (before, from) = self.cqs.split_at(self.first);
        let mut polled = Ok(());
        for cq in from.iter().chain(before) {
            // What the last look has left comes first, and is more than enough.
            let left = most.saturating_sub(found.len());
            polled = polled.and(cq.poll(left, |it| found.extend(completion(&it))));
        }
        self.tell(polled);
    }

    fn sleep(&mut self, wake: &Wake, most: Option<Duration>) -> Result<(), ProviderError> {
        if self.arm()? {
            wake.sleep(Some(Watched::read(self.stock.channel().fd())), most)?;
        }
        Ok(self.stock.channel().take_events()?)
    }
}

/// Returns the completion as workers know it. Returns None for one that nobody awaits.
fn completion(of: &PlainCompletion) -> Option<Completion> {
    let (what, index) = match Name::of(of) {
        Name::Send(index) => (Completed::Sends, index),
        Name::Receive(index) => (Completed::Receive(of.immediate), index),
        Name::Mark => return None,
    };
    Some(Completion {
        lane: of.qpn,
        what,
        index,
        cause: of.failed.map(cause),
    })
}

/// Returns the cause that has this status of verbs, with the number by which an HCA names it in a completion.
fn cause(of: PlainFailure) -> Cause {
    let syndrome = match of.status {
        status::LOC_LEN_ERR => Syndrome::LOCAL_LENGTH_ERR,
        status::LOC_QP_OP_ERR => Syndrome::LOCAL_QP_OP_ERR,
        status::LOC_PROT_ERR => Syndrome::LOCAL_PROT_ERR,
        status::WR_FLUSH_ERR => Syndrome::WR_FLUSH_ERR,
        status::MW_BIND_ERR => Syndrome::MW_BIND_ERR,
        status::BAD_RESP_ERR => Syndrome::BAD_RESP_ERR,
        status::LOC_ACCESS_ERR => Syndrome::LOCAL_ACCESS_ERR,
        status::REM_INV_REQ_ERR => Syndrome::REMOTE_INVAL_REQ_ERR,
        status::REM_ACCESS_ERR => Syndrome::REMOTE_ACCESS_ERR,
        status::REM_OP_ERR => Syndrome::REMOTE_OP_ERR,
        status::RETRY_EXC_ERR => Syndrome::TRANSPORT_RETRY_EXC_ERR,
        status::RNR_RETRY_EXC_ERR => Syndrome::RNR_RETRY_EXC_ERR,
        status::REM_ABORT_ERR => Syndrome::REMOTE_ABORTED_ERR,
        _ => return Cause::of_system(libc::EIO),
    };
    let [vendor, ..] = of.vendor.to_le_bytes();
    Cause {
        syndrome: syndrome.0,
        vendor,
        libfabric: None,
    }
}

/// `enum ibv_wc_status`.
mod status {
    pub(super) const LOC_LEN_ERR: u32 = 1;
    pub(super) const LOC_QP_OP_ERR: u32 = 2;
    pub(super) const LOC_PROT_ERR: u32 = 4;
    pub(super) const WR_FLUSH_ERR: u32 = 5;
    pub(super) const MW_BIND_ERR: u32 = 6;
    pub(super) const BAD_RESP_ERR: u32 = 7;
    pub(super) const LOC_ACCESS_ERR: u32 = 8;
    pub(super) const REM_INV_REQ_ERR: u32 = 9;
    pub(super) const REM_ACCESS_ERR: u32 = 10;
    pub(super) const REM_OP_ERR: u32 = 11;
    pub(super) const RETRY_EXC_ERR: u32 = 12;
    pub(super) const RNR_RETRY_EXC_ERR: u32 = 13;
    pub(super) const REM_ABORT_ERR: u32 = 16;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_of_verbs_is_the_syndrome_of_the_same_failure() {
        let of = |status| {
            cause(PlainFailure {
                status,
                vendor: 0x1_f981,
            })
        };
        let refused = of(status::REM_ACCESS_ERR);
        assert!(refused.is_of_the_request() && !refused.is_flush());
        assert_eq!((refused.syndrome, refused.vendor), (0x13, 0x81));
        assert!(of(status::WR_FLUSH_ERR).is_flush());
        assert_eq!(of(status::RETRY_EXC_ERR).syndrome, 0x15);
        for unknown in [3, 14, 19, 21, 1 << 20] {
            assert_eq!(of(unknown).errno(), Some(libc::EIO));
        }
    }
}
