//! What shall go wrong, as data: composed by a program, or read from text.

use crate::wire::faults::{Mishap, PacketFault, When};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Faults of one HCA. The same spec and the same traffic give the same faults.
///
/// As text (`SOFTHCA_FAULT`, `wv sim --fault`, [`str::parse`]) it is a list with commas:
///
/// | item | what happens |
/// |---|---|
/// | `seed=7` | the seed of all chances, 0 if it is not given |
/// | `drop=1%` | so many packets are lost |
/// | `dup=0.5%` | so many come twice |
/// | `reorder=1%` | so many are overtaken by up to 4 others |
/// | `corrupt=0.1%` | so many get an inverted bit and keep their ICRC |
/// | `delay=50us..2ms@5%` | so many are late by so long; `delay=1ms` is all of them |
/// | `partition=127.9.0.2` | nothing passes to or from this address; `*` is all addresses |
/// | `cmd=CREATE_QP#2:status=0x5:syndrome=0x1234` | the second such command fails so; `any` is any command |
/// | `enomem=CREATE_CQ#1` | the first such call finds no memory in the kernel |
/// | `cqe=wqe#100:syndrome=0x15` | the 100th send WQE that would end well fails so |
/// | `cqe=drop#50` | the 50th completion is never written |
/// | `cqe=delay#50:10ms` | the 50th completion is late, and those after it in its queue with it |
/// | `port-down@2s`, `port-up@3s` | port 1 goes down, comes up; `port-down=2@2s` is port 2 |
/// | `freeze@1s+200ms` | the HCA does nothing for 200 ms |
/// | `fatal@5s` | the HCA fails for good |
///
/// Packet items: `drop-in`, `drop-out` and so on for one direction. A `=#3` in place of a chance takes the third packet alone.
/// `:peer=127.9.0.2` limits an item to one peer, `@1s..2s` (`@1s..`, `@..2s`) to a time. Completion items: `:qp=0x40` for one QP.
/// Times count from the moment in which the faults are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultSpec {
    /// Seed of all chances.
    pub seed: u64,
    /// What happens to packets.
    pub packets: Vec<PacketFault>,
    /// Commands that fail.
    pub commands: Vec<CommandFault>,
    /// What happens to completions.
    pub completions: Vec<CompletionFault>,
    /// What happens at a certain time.
    pub timed: Vec<(Duration, TimedFault)>,
}

/// A command that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandFault {
    /// Only commands with this opcode; `None` is any. See [`crate::device::faults::command::FailCommand`] for calls that are no command.
    pub opcode: Option<u16>,
    /// Which of them: 1 (or 0) is the next.
    pub nth: u32,
    /// How it fails.
    pub outcome: CommandOutcome,
}

/// How a command fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    /// The device refuses it.
    Refused {
        /// Status byte of the answer, not 0.
        status: u8,
        /// Syndrome of the answer.
        syndrome: u32,
    },
    /// The kernel has no memory for it: the device does not see it.
    NoMemory,
}

/// Something that happens to completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionFault {
    /// What happens.
    pub what: CompletionMishap,
    /// To which of those selected: 1 (or 0) is the next.
    pub nth: u64,
    /// Only those of this QP; `None` is all of the HCA.
    pub qpn: Option<u32>,
}

/// What happens to a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionMishap {
    /// A send WQE that would end well, signalled or not, fails with this syndrome, and its QP goes to the error state. The
    /// operation itself has been carried out, as when its acknowledgement gets lost.
    Fail(u8),
    /// The completion is never written.
    Drop,
    /// The completion is written so much later; those after it in its queue wait for it.
    Delay(Duration),
}

/// What happens at a certain time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedFault {
    /// The port with this number goes down.
    PortDown(u8),
    /// The port with this number comes up.
    PortUp(u8),
    /// The HCA does nothing for so long.
    Freeze(Duration),
    /// The HCA fails for good.
    Fatal,
}

impl FaultSpec {
    /// Nothing yet, with this seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }

    /// `what` happens to so many of a million packets.
    #[must_use]
    pub fn packets(self, what: Mishap, per_million: u32) -> Self {
        self.packet(PacketFault::new(what, When::PerMillion(per_million)))
    }

    /// Something happens to packets.
    #[must_use]
    pub fn packet(mut self, fault: PacketFault) -> Self {
        self.packets.push(fault);
        self
    }

    /// Nothing passes to or from `peer`.
    #[must_use]
    pub fn partition(self, peer: Ipv4Addr) -> Self {
        self.packet(PacketFault {
            peer: Some(peer),
            ..PacketFault::new(Mishap::Drop, When::ALWAYS)
        })
    }

    /// A command fails.
    #[must_use]
    pub fn command(mut self, fault: CommandFault) -> Self {
        self.commands.push(fault);
        self
    }

    /// Something happens to a completion.
    #[must_use]
    pub fn completion(mut self, fault: CompletionFault) -> Self {
        self.completions.push(fault);
        self
    }

    /// Something happens `after` the faults were asked for.
    #[must_use]
    pub fn at(mut self, after: Duration, fault: TimedFault) -> Self {
        self.timed.push((after, fault));
        self
    }
}
