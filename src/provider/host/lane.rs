//! A lane of an engine: a queue of a NIC, or copies for a peer of this machine.

use std::ops::Range;

use crate::provider::local::LocalLane;
use crate::provider::mlx5::Mlx5Lane;
use crate::provider::ofi::OfiLane;
use crate::provider::verbs::VerbsLane;
use crate::provider::{Cause, Chain, Completion, Lane, Posted, Tag};

/// A lane of any kind. The reaper sees only those of NICs: copies complete in their own lanes.
#[derive(Debug)]
pub(crate) enum HostLane {
    /// A QP of an mlx5 HCA.
    Mlx5(Mlx5Lane),
    /// A QP of another NIC, by libibverbs.
    Verbs(Box<VerbsLane>),
    /// An endpoint of libfabric.
    Ofi(Box<OfiLane>),
    /// Copies for a peer of this machine.
    Local(Box<LocalLane>),
}

/// Makes the call on the lane inside, of whichever kind it is.
macro_rules! either {
    ($lane:expr, $it:ident => $call:expr) => {
        match $lane {
            HostLane::Mlx5($it) => $call,
            HostLane::Verbs($it) => $call,
            HostLane::Ofi($it) => $call,
            HostLane::Local($it) => $call,
        }
    };
}

impl Lane for HostLane {
    fn number(&self) -> u32 {
        either!(self, it => it.number())
    }

    fn room(&self, ranges: u32) -> u32 {
        either!(self, it => it.room(ranges))
    }

    fn post(&mut self, chain: &Chain, which: Range<usize>) -> Posted {
        either!(self, it => it.post(chain, which))
    }

    fn ring(&mut self) {
        either!(self, it => it.ring());
    }

    fn retire(&mut self, completion: &Completion, each: impl FnMut(Tag, Option<Cause>)) {
        either!(self, it => it.retire(completion, each));
    }

    fn in_flight(&self) -> u32 {
        either!(self, it => it.in_flight())
    }

    fn open(&mut self) {
        either!(self, it => it.open());
    }

    fn receive(&mut self, completion: &Completion) {
        either!(self, it => it.receive(completion));
    }

    fn receives(&self) -> u32 {
        either!(self, it => it.receives())
    }

    fn holds(&self, slot: u32) -> bool {
        either!(self, it => it.holds(slot))
    }

    fn copies(&self) -> bool {
        either!(self, it => it.copies())
    }

    fn has_turn(&self) -> bool {
        either!(self, it => it.has_turn())
    }

    fn advance(&mut self) -> Option<Completion> {
        either!(self, it => it.advance())
    }

    fn flush(&mut self, slot: Option<u32>) -> bool {
        either!(self, it => it.flush(slot))
    }
}
