//! A configuration of the model, and how often each disturbance comes in it.

use super::left_out::Rule;

/// How often each disturbance comes. A disturbance begins and ends at any moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Deaths of members and newcomers.
    pub die: u8,
    /// Times that one rank stands still.
    pub pause1: u8,
    /// Times that all ranks stand still.
    pub pauseall: u8,
    /// Times that all calls of the store hang and none fails, while leases age.
    pub stall: u8,
    /// Times that the store loses a lease.
    pub lose: u8,
    /// Times that the port of one rank is down.
    pub port1: u8,
    /// Times that the ports of all ranks are down.
    pub portall: u8,
    /// Times that no path to one rank carries.
    pub cut1: u8,
    /// Times that no path carries.
    pub cutall: u8,
    /// Times that the path between rank 0 and another does not carry.
    pub cutlink: u8,
    /// Times that ranks 0 and 1 are cut off from 2 and 3.
    pub cuthalf: u8,
    /// Times that one rank does not reach the store.
    pub xstall: u8,
    /// Times that a member wants to leave.
    pub leave: u8,
    /// Times that the newcomer comes.
    pub join: u8,
    /// Times that a key cannot be read.
    pub junkrow: u8,
    /// 1: a rank without a lease asks for the slot of a member. 2: it asks for the slot of the newcomer.
    pub junkask: u8,
    /// Times that a rank that a view parts has calls to make from before that view.
    pub behind: u8,
    /// Times that a rank waits for words before it proposes that ranks go or part (`doubt.rs`). [`ENDLESS`]: as often as it likes.
    pub doubt: u8,
}

/// A budget that is never spent.
pub const ENDLESS: u8 = 7;

/// A budget without any disturbance.
pub const NONE: Budget = Budget {
    die: 0,
    pause1: 0,
    pauseall: 0,
    stall: 0,
    lose: 0,
    port1: 0,
    portall: 0,
    cut1: 0,
    cutall: 0,
    cutlink: 0,
    cuthalf: 0,
    xstall: 0,
    leave: 0,
    join: 0,
    junkrow: 0,
    junkask: 0,
    behind: 0,
    doubt: 0,
};

/// One configuration of the model.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Number of members at the start.
    pub ranks: u32,
    /// True if calls are made, so that words arrive.
    pub traffic: bool,
    /// Number of calls that devices run, for E3.
    pub calls: u32,
    /// True if writes of record and promises land later than they were decided.
    pub split: bool,
    /// True if ends of processes are seen at once.
    pub witness: bool,
    /// The stall bound, in ticks.
    pub bound: u8,
    /// True if QPs fail pair by pair.
    pub onebyone: bool,
    /// True if contact is old. Then a pair counts as one that exchanges for the stall bound after its last word, unless a QP of it has
    /// failed. The QPs between 0 and 1 never fail.
    pub stale: bool,
    /// The properties that are checked; an empty list stands for all.
    pub only: &'static [&'static str],
    /// How often each disturbance may happen.
    pub budget: Budget,
    /// Rules that the ranks do not follow.
    pub left_out: &'static [Rule],
}
