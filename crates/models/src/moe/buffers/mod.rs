//! A model of send buffers that an HCA may still read: every order of the steps of one sender with a healthy peer H and sick peers X and Y.
//!
//! The sender makes calls without end. A call takes a buffer, fills it, and posts one item to each peer that may get data. The item goes on
//! the QP of the call's set. An HCA reads the buffer when it sends the item, and again whenever it repeats it. It stops when the item is
//! done, or when it has flushed the QP. HCAs may be patient for ever. So an item on a link that is not up ends only if the link comes back
//! or the host ends the QP. The host ends QPs on certain evidence, or because a view parts the two ranks, but never by a clock.
//!
//! Model `signals` has the same rules with the words of all ranks, `parted` has them across two lives of a pair, and `epoch` says who may
//! end a QP. These models have no buffers: three ranks with buffers have too many states, and no rule about buffers needs the words of
//! other ranks.

mod peer;
mod send;
mod state;
mod steps;

pub use state::Link;

/// A rule that keeps bytes in flight apart from those of later calls, and healthy peers apart from sick ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A call that finds its buffer in use takes another buffer of the pool. It neither waits for a peer nor stops sending to all peers.
    Pool,
    /// A call takes a buffer that no unfinished item names, whatever its peer.
    Free,
    /// A call does not take the buffer of a call that this rank has not received yet, because this rank reads its own rows there.
    Own,
    /// Data goes to a peer only if the peer has closed the last call of this set and the HCA has carried that call.
    Set,
    /// A suspect gets no data while any item to it is unfinished.
    Suspect,
    /// The QP of a call is chosen by its set, never by its buffer.
    OneQp,
    /// The buffers of a QP that the host ends are free only when the HCA has flushed the QP, not when the host has asked for that.
    Flushed,
    /// A reunited pair has new packet numbers, so no packet of the life before lands.
    Numbers,
    /// If the work in flight to a peer was waited for in vain, no call waits for it again before the HCA has carried it, whatever the peer
    /// says.
    Once,
    /// A word to a peer with work in flight waits for no room in the ring, whether or not the peer is a suspect.
    Room,
    /// A call that finds no buffer does not change the mask.
    Mask,
    /// Zero-copy memory is handed out only if no HCA reads it. Otherwise the combine copies.
    HandsOut,
}

/// The memory of rows that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// One buffer for all peers, of a pool of so many: dispatch.
    Pool(u8),
    /// A place for each set and peer: combine, by source rank.
    BySource,
    /// As `BySource`, but the caller writes the rows there itself.
    ZeroCopy,
}

/// A configuration of the model.
#[derive(Clone, Debug)]
pub struct Buffers {
    /// The memory of the rows.
    pub rows: Rows,
    /// How many calls a program sends before it receives the one before them.
    pub ahead: u8,
    /// The number of sick peers, one or two.
    pub sick: usize,
    /// How their links may fail.
    pub kinds: &'static [Link],
    /// The number of calls at which links may fail.
    pub moments: u8,
    /// How often the link of one peer may fail.
    pub times: u8,
    /// The number of QPs that the host may end.
    pub ends: u8,
    /// The number of peers, H included, that this rank may wrongly take for late.
    pub suspicions: u8,
    /// The number of WQEs in the ring of a peer besides data; 0: words take no room.
    pub ring: u8,
    /// True if links fail more often than the pool was made for, so that calls may find no buffer.
    pub exhausts: bool,
    /// The rules that are left out.
    pub leave: Vec<Rule>,
}

impl Buffers {
    /// Returns a configuration with one link that fails once, in any way.
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

    /// Leaves out these rules.
    pub fn without(mut self, rules: &[Rule]) -> Self {
        self.leave.extend(rules);
        self
    }

    fn has(&self, rule: Rule) -> bool {
        !self.leave.contains(&rule)
    }

    /// Returns a name with all that makes this configuration differ from others.
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
