//! Send buffers that an HCA may still read: every order of the steps of one sender with a healthy peer H and sick peers X and Y.
//!
//! The sender makes calls without end. A call takes a buffer, fills it, and posts one item to each peer that may get data. The item
//! goes on the QP of the call's set. An HCA reads the buffer when it sends the item, and again whenever it repeats it. It stops when
//! the item is done, or when it has flushed the QP. HCAs may be patient for ever. So an item on a link that is not up ends only if
//! the link comes back or the host ends the QP. The host ends QPs on certain evidence, or since a view parts the two: never by a clock.
//!
//! `signals` has the same rules in the words of all ranks, `parted` across two lives of a pair, `epoch` who may end a QP. They have
//! no buffers: three ranks with buffers are too many states, and no rule about buffers asks for the words of others.

mod peer;
mod send;
mod state;
mod steps;

pub use state::Link;

/// What keeps bytes in flight apart from those of later calls, and the healthy apart from the sick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A call that finds its buffer in use takes another one of the pool. It neither waits nor stops for all peers.
    Pool,
    /// It takes one that no unfinished item names, of no peer.
    Free,
    /// Nor that of a call which this rank has not received yet: it reads its own rows there.
    Own,
    /// Data goes to a peer only if the peer has closed the last call of this set and the HCA has carried that call.
    Set,
    /// A suspect gets no data while any item to it is unfinished.
    Suspect,
    /// The QP goes by the set, never by the buffer.
    OneQp,
    /// The buffers of a QP that the host ends are free when the HCA has flushed it, not when the host has asked for that.
    Flushed,
    /// A reunited pair has new packet numbers, so nothing of the life before lands.
    Numbers,
    /// A peer whose work in flight was waited for in vain is not waited for again before the HCA has carried it, whatever it says.
    Once,
    /// A word to a peer with work in flight waits for no room in the ring, whether or not the peer is a suspect.
    Room,
    /// A call that finds no buffer leaves the mask as it was.
    Mask,
    /// Zero-copy memory is handed out only if no HCA reads it; else the combine copies.
    HandsOut,
}

/// Where rows lie that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// One buffer of a pool of so many for all peers: dispatch.
    Pool(u8),
    /// For each set and peer a place of its own: combine, by source rank.
    BySource,
    /// As `BySource`, and the caller writes there itself.
    ZeroCopy,
}

/// One configuration.
#[derive(Clone, Debug)]
pub struct Buffers {
    /// Where the rows lie.
    pub rows: Rows,
    /// Calls that a program sends before it receives the one before.
    pub ahead: u8,
    /// Sick peers: one or two.
    pub sick: usize,
    /// How their links may fail.
    pub kinds: &'static [Link],
    /// Calls at which links may fail.
    pub moments: u8,
    /// How often the link of one peer may fail.
    pub times: u8,
    /// QPs that the host may end.
    pub ends: u8,
    /// Peers, H too, that this rank may take for late although they are not.
    pub suspicions: u8,
    /// WQEs in the ring of a peer, beyond data; 0: words take no room.
    pub ring: u8,
    /// Links fail more often than the pool was made for: calls may find no buffer.
    pub exhausts: bool,
    /// Rules that are left out.
    pub leave: Vec<Rule>,
}

impl Buffers {
    /// One link that fails in any way, once, for ever or not.
    pub fn new(rows: Rows, ahead: u8) -> Self {
        Self {
            rows,
            ahead,
            sick: 1,
            kinds: &[Link::Stopped, Link::OneWay, Link::Dead],
            moments: 1,
            times: 1,
            ends: 0,
            suspicions: 0,
            ring: 0,
            exhausts: false,
            leave: Vec::new(),
        }
    }

    /// Without some rules.
    pub fn without(mut self, rules: &[Rule]) -> Self {
        self.leave.extend(rules);
        self
    }

    fn has(&self, rule: Rule) -> bool {
        !self.leave.contains(&rule)
    }

    /// Says all that makes it differ from others.
    pub fn name(&self) -> String {
        let mut name = format!(
            "buffers, {:?}, {} ahead, {} sick, {:?}",
            self.rows, self.ahead, self.sick, self.kinds
        );
        for (count, what) in [
            (self.moments, "moments"),
            (self.times, "times"),
            (self.ends, "ended QPs"),
            (self.suspicions, "false suspicions"),
            (self.ring, "WQEs in a ring"),
        ] {
            if count > 0 {
                name += &format!(", {count} {what}");
            }
        }
        if self.exhausts {
            name += ", pool may be exhausted";
        }
        if self.leave.is_empty() {
            name
        } else {
            format!("without {:?}: {name}", self.leave)
        }
    }
}
