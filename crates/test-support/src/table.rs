//! The table of tests: every kind of QP with every scope that posts to it. Samples of it have every pair of values.

use std::fmt;

use crate::grid::{self, Point};
use warpverbs::verbs::{CqKind, Doorbell, QpConfig, Queues, Sharing};

/// The threads that post together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One thread.
    Thread,
    /// All threads of a warp, 32.
    Warp,
    /// All threads of a block.
    Block,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Which scopes use the QP at the same time.
    pub sharing: Sharing,
    /// The scope that posts.
    pub scope: Scope,
    /// How the NIC hears of new work.
    pub doorbell: Doorbell,
    /// The memory of the queues.
    pub queues: Queues,
    /// The kind of CQ: one CQE that is overwritten, or a ring of CQEs.
    pub cq: CqKind,
}

/// The blocks and threads of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The number of blocks of the launch.
    pub blocks: u32,
    /// The number of threads of a block.
    pub threads: u32,
    /// The number of threads of a scope.
    pub size: u32,
}

impl Shape {
    /// Returns the number of all scopes.
    pub fn scopes(&self) -> u32 {
        self.blocks * self.threads / self.size
    }

    /// Returns the number of all threads.
    pub fn all(&self) -> u32 {
        self.blocks * self.threads
    }
}

/// The number of threads of a block where the block is the scope. It is more than a warp, no multiple of a warp, and fewer than a quarter
/// of the ring.
const BLOCK: u32 = 40;

/// The number of values of each column.
const SIZES: [usize; 5] = [3, 3, 3, 2, 2];

impl Cell {
    /// Returns all rows.
    pub fn all() -> Vec<Self> {
        let points = grid::all(&SIZES, |_| true);
        points.iter().map(Self::at).collect()
    }

    /// Returns a few rows that together have every pair of values that two columns can have.
    pub fn sample(seed: u64) -> Vec<Self> {
        let points = grid::sample(&grid::all(&SIZES, |_| true), seed);
        points.iter().map(Self::at).collect()
    }

    fn at(point: &Point) -> Self {
        Self {
            sharing: [Sharing::Shared, Sharing::Exclusive, Sharing::Cta][point[0]],
            scope: [Scope::Thread, Scope::Warp, Scope::Block][point[1]],
            doorbell: [Doorbell::Record, Doorbell::NoRecord, Doorbell::Mailbox][point[2]],
            queues: [Queues::Device, Queues::Host][point[3]],
            cq: [CqKind::Collapsed, CqKind::Wide][point[4]],
        }
    }

    /// Returns the configuration of the QP of this row, with the shortest ring that a QP may have, and receive WQEs for immediates.
    pub fn config(&self) -> QpConfig {
        QpConfig::default()
            .with_log_depth(8)
            .with_log_recv_depth(Some(6))
            .with_sharing(self.sharing)
            .with_doorbell(self.doorbell)
            .with_queues(self.queues)
            .with_cq(self.cq)
    }

    /// Returns the name of the kernel for this sharing and scope.
    pub fn kernel(&self) -> String {
        let (sharing, scope) = (self.sharing, self.scope);
        format!("wv_test_conformance_{sharing:?}_{scope:?}").to_lowercase()
    }

    /// Returns a launch with as many scopes as may share the QP.
    pub fn shape(&self) -> Shape {
        let one = self.solo();
        let (blocks, times) = match (self.sharing, self.scope) {
            (Sharing::Exclusive, _) => (1, 1),
            (Sharing::Shared, Scope::Thread) => (2, 4),
            (Sharing::Shared, Scope::Warp) => (2, 2),
            (Sharing::Shared, Scope::Block) => (3, 1),
            (Sharing::Cta, Scope::Thread) => (1, 8),
            (Sharing::Cta, Scope::Warp) => (1, 3),
            (Sharing::Cta, Scope::Block) => (1, 1),
        };
        Shape {
            blocks,
            threads: one.size * times,
            ..one
        }
    }

    /// Returns a launch with one scope.
    pub fn solo(&self) -> Shape {
        let size = match self.scope {
            Scope::Thread => 1,
            Scope::Warp => 32,
            Scope::Block => BLOCK,
        };
        Shape {
            blocks: 1,
            threads: size,
            size,
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sharing,
            scope,
            doorbell,
            queues,
            cq,
        } = self;
        write!(f, "{sharing:?} {scope:?} {doorbell:?} {queues:?} {cq:?}")
    }
}
