//! A configuration of the model, and the rules that it may leave out.

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

/// The state of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// The link carries everything.
    #[default]
    Up,
    /// The link carries nothing, for a while or for ever.
    Stopped,
    /// The link carries nothing to the peer. The words of the peer arrive.
    OneWay,
    /// The link carries nothing, for ever.
    Dead,
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

    pub(super) fn has(&self, rule: Rule) -> bool {
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
