//! Fault specs: what shall go wrong, as data that a program composes or that is read from text.

use crate::wire::faults::{Mishap, PacketFault, When};
use std::net::Ipv4Addr;
use std::time::Duration;

/// The faults of one HCA. Equal specs and equal traffic give equal faults.
///
/// As text (`SOFTHCA_FAULT`, `wv sim --fault`, [`str::parse`]) it is a list with commas:
///
/// | item | what happens |
/// |---|---|
/// | `seed=7` | the seed of all chances, 0 if it is not given |
/// | `drop=1%` | 1 % of the packets are lost |
/// | `dup=0.5%` | 0.5 % of the packets come twice |
/// | `reorder=1%` | 1 % of the packets are overtaken by up to 4 others |
/// | `corrupt=0.1%` | 0.1 % of the packets get an inverted bit and keep their ICRC |
/// | `delay=50us..2ms@5%` | 5 % of the packets are late by 50 us to 2 ms; `delay=1ms` delays all of them |
/// | `partition=127.9.0.2` | nothing passes to or from this address; `*` is all addresses |
/// | `cmd=CREATE_QP#2:status=0x5:syndrome=0x1234` | the second such command fails with this status and syndrome; `any` is any command |
/// | `enomem=CREATE_CQ#1` | the first such call finds no memory in the kernel |
/// | `cqe=wqe#100:syndrome=0x15` | the 100th send WQE that would succeed fails with this syndrome |
/// | `cqe=drop#50` | the 50th completion is never written |
/// | `cqe=delay#50:10ms` | the 50th completion is late, and the later ones of its queue with it |
/// | `port-down@2s`, `port-up@3s` | port 1 goes down, comes up; `port-down=2@2s` is port 2 |
/// | `freeze@1s+200ms` | the HCA does nothing for 200 ms |
/// | `fatal@5s` | the HCA fails for good |
///
/// Packet items: `drop-in`, `drop-out` and so on for one direction. A `=#3` in place of a chance takes the third packet alone.
/// `:peer=127.9.0.2` limits an item to one peer, `@1s..2s` (`@1s..`, `@..2s`) to a time. Completion items: `:qp=0x40` for one QP. Times
/// count from the moment when the faults are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultSpec {
    /// Seed of all chances.
    pub seed: u64,
    /// Faults of packets.
    pub packets: Vec<PacketFault>,
    /// Commands that fail.
    pub commands: Vec<CommandFault>,
    /// Faults of completions.
    pub completions: Vec<CompletionFault>,
    /// Faults that happen at a certain time.
    pub timed: Vec<(Duration, TimedFault)>,
}

/// A command that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandFault {
    /// The opcode of the commands that count; `None` is any opcode. See [`crate::device::faults::command::FailCommand`] for calls that are
    /// no commands.
    pub opcode: Option<u16>,
    /// The number of the command that fails: 1 (or 0) is the next that counts.
    pub nth: u32,
    /// The way in which the command fails.
    pub outcome: CommandOutcome,
}

/// The way in which a command fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    /// The device refuses the command.
    Refused {
        /// Status byte of the answer, not 0.
        status: u8,
        /// Syndrome of the answer.
        syndrome: u32,
    },
    /// The kernel has no memory for the command: the device does not see it.
    NoMemory,
}

/// What goes wrong with which completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionFault {
    /// The mishap of the completion.
    pub what: CompletionMishap,
    /// The number of the completion that it happens to: 1 (or 0) is the next that counts.
    pub nth: u64,
    /// The QP whose completions count; `None`: completions of all QPs of the HCA count.
    pub qpn: Option<u32>,
}

/// What may happen to a completion that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionMishap {
    /// A send WQE that would succeed, signalled or not, fails with this syndrome, and its QP goes to the error state. The operation itself
    /// has been carried out, as when its acknowledgement gets lost.
    Fail(u8),
    /// The completion is never written.
    Drop,
    /// The completion is written later by this time. Later completions of its queue wait for it.
    Delay(Duration),
}

/// A fault that happens at a certain time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedFault {
    /// The port with this number goes down.
    PortDown(u8),
    /// The port with this number comes up.
    PortUp(u8),
    /// The HCA does nothing for this time.
    Freeze(Duration),
    /// The HCA fails for good.
    Fatal,
}

impl FaultSpec {
    /// Returns a spec without faults, with this seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }

    /// Adds the fault that `what` happens to `per_million` of a million packets.
    #[must_use]
    pub fn packets(self, what: Mishap, per_million: u32) -> Self {
        self.packet(PacketFault::new(what, When::PerMillion(per_million)))
    }

    /// Adds a fault of packets.
    #[must_use]
    pub fn packet(mut self, fault: PacketFault) -> Self {
        self.packets.push(fault);
        self
    }

    /// Adds the fault that no packet passes to or from `peer`.
    #[must_use]
    pub fn partition(self, peer: Ipv4Addr) -> Self {
        self.packet(PacketFault {
            peer: Some(peer),
            ..PacketFault::new(Mishap::Drop, When::ALWAYS)
        })
    }

    /// Adds a command that fails.
    #[must_use]
    pub fn command(mut self, fault: CommandFault) -> Self {
        self.commands.push(fault);
        self
    }

    /// Adds a fault of a completion.
    #[must_use]
    pub fn completion(mut self, fault: CompletionFault) -> Self {
        self.completions.push(fault);
        self
    }

    /// Adds a fault that happens `after` the faults were set.
    #[must_use]
    pub fn at(mut self, after: Duration, fault: TimedFault) -> Self {
        self.timed.push((after, fault));
        self
    }
}
