//! The faults of one HCA that are still to come.

use crate::device::faults::command::FailCommand;
use crate::device::faults::spec::{
    CommandFault, CommandOutcome, CompletionFault, CompletionMishap, FaultSpec, TimedFault,
};
use mlx5_prm::cmd::{Opcode, Status};
use std::collections::VecDeque;

/// The way in which a command fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strike {
    /// The device refuses the command with this status and syndrome.
    Refused(Status, u32),
    /// The kernel finds no memory, so the device does not see the command.
    NoMemory,
}

/// The fate of a completion entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryFate {
    Write,
    Drop,
    /// The entry is not written before this time, and later entries of its CQ neither.
    Hold(u64),
}

/// The faults of one HCA that are still to come.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    commands: Vec<CommandFault>,
    completions: Vec<CompletionFault>,
    /// The faults that happen at a time of the fabric's clock, sorted by time.
    timed: Vec<(u64, TimedFault)>,
    held: VecDeque<HeldEntry>,
}

/// A completion entry that is late, or that comes after a late entry of its CQ.
#[derive(Debug)]
struct HeldEntry {
    due_ns: u64,
    cqn: u32,
    entry: [u8; 64],
}

impl Faults {
    /// Takes over the faults of `spec` besides those of packets, from `now_ns` on. The faults of an earlier spec are dropped.
    pub(crate) fn set(&mut self, spec: &FaultSpec, now_ns: u64) {
        self.commands.clone_from(&spec.commands);
        self.completions.clone_from(&spec.completions);
        self.timed = spec
            .timed
            .iter()
            .map(|(after, fault)| {
                let after = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
                (now_ns.saturating_add(after), *fault)
            })
            .collect();
        // Sorted by time. The sort is stable: faults with the same time keep the order of the spec.
        self.timed.sort_by_key(|(at_ns, _)| *at_ns);
    }

    pub(crate) fn add(&mut self, fault: CommandFault) {
        self.commands.push(fault);
    }

    /// Counts a command. Returns how the command shall fail, if it shall.
    pub(crate) fn strike(&mut self, opcode: Opcode) -> Option<Strike> {
        let mut struck = None;
        for (at, fault) in self.commands.iter_mut().enumerate() {
            let is_meant = match fault.opcode {
                Some(only) => only == opcode.0,
                None => opcode.0 != FailCommand::DEVX,
            };
            if is_meant {
                fault.nth = fault.nth.saturating_sub(1);
                if fault.nth == 0 && struck.is_none() {
                    struck = Some(at);
                }
            }
        }
        let fault = self.commands.remove(struck?);
        Some(match fault.outcome {
            CommandOutcome::Refused { status, syndrome } => {
                Strike::Refused(Status(status), syndrome)
            }
            CommandOutcome::NoMemory => Strike::NoMemory,
        })
    }

    /// Counts a send WQE of `qpn` that succeeds. Returns the syndrome with which it shall fail instead, if it shall.
    pub(crate) fn fail_send(&mut self, qpn: u32) -> Option<u8> {
        let fault = self.next_completion(qpn, |what| matches!(what, CompletionMishap::Fail(_)))?;
        match fault.what {
            CompletionMishap::Fail(syndrome) => Some(syndrome),
            CompletionMishap::Drop | CompletionMishap::Delay(_) => None,
        }
    }

    /// Counts a completion entry that `qpn` writes to `cqn`. Returns the fate of the entry.
    pub(crate) fn judge_entry(&mut self, now_ns: u64, cqn: u32, qpn: u32) -> EntryFate {
        let fault = self.next_completion(qpn, |what| !matches!(what, CompletionMishap::Fail(_)));
        let behind = self.held.iter().rfind(|held| held.cqn == cqn);
        let behind_ns = behind.map_or(0, |held| held.due_ns);
        match fault.map(|fault| fault.what) {
            Some(CompletionMishap::Drop) => EntryFate::Drop,
            Some(CompletionMishap::Delay(time)) => {
                let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                EntryFate::Hold(now_ns.saturating_add(time).max(behind_ns))
            }
            _ if behind.is_some() => EntryFate::Hold(behind_ns),
            _ => EntryFate::Write,
        }
    }

    /// Counts down the faults that `kind` selects. Returns a fault whose turn it is.
    fn next_completion(
        &mut self,
        qpn: u32,
        kind: impl Fn(&CompletionMishap) -> bool,
    ) -> Option<CompletionFault> {
        let mut struck = None;
        for (at, fault) in self.completions.iter_mut().enumerate() {
            if kind(&fault.what) && fault.qpn.is_none_or(|only| only == qpn) {
                fault.nth = fault.nth.saturating_sub(1);
                if fault.nth == 0 && struck.is_none() {
                    struck = Some(at);
                }
            }
        }
        Some(self.completions.remove(struck?))
    }

    /// Returns whether all completion entries are written as they come: no fault of entries is pending and no entry is held.
    pub(crate) fn spare_entries(&self) -> bool {
        self.held.is_empty() && self.completions.is_empty()
    }

    /// Keeps an entry until `due_ns`.
    pub(crate) fn hold(&mut self, due_ns: u64, cqn: u32, entry: [u8; 64]) {
        self.held.push_back(HeldEntry { due_ns, cqn, entry });
    }

    /// Returns an entry whose time has come, and its CQ. Entries of one CQ come in their order.
    pub(crate) fn due_entry(&mut self, now_ns: u64) -> Option<(u32, [u8; 64])> {
        let at = self.held.iter().position(|held| held.due_ns <= now_ns)?;
        self.held.remove(at).map(|held| (held.cqn, held.entry))
    }

    /// Returns the next timed fault whose time has come.
    pub(crate) fn due_event(&mut self, now_ns: u64) -> Option<TimedFault> {
        let (at_ns, fault) = *self.timed.first()?;
        if at_ns > now_ns {
            return None;
        }
        self.timed.remove(0);
        Some(fault)
    }

    /// Returns the time of the next fault that needs no traffic.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let event = self.timed.first().map(|(at_ns, _)| *at_ns);
        let entry = self.held.iter().map(|held| held.due_ns).min();
        [event, entry].into_iter().flatten().min()
    }

    /// Forgets the entries that are held for CQ `cqn`, which is gone.
    pub(crate) fn forget_cq(&mut self, cqn: u32) {
        self.held.retain(|held| held.cqn != cqn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn fault(opcode: Option<u16>, nth: u32) -> CommandFault {
        FailCommand {
            opcode,
            nth,
            status: 5,
            syndrome: 77,
        }
        .into()
    }

    #[test]
    fn the_nth_matching_command_fails_once() {
        let mut faults = Faults::default();
        faults.add(fault(Some(0x500), 2));
        let seen: Vec<bool> = [0x500, 0x400, 0x500, 0x500]
            .map(|opcode| faults.strike(Opcode(opcode)).is_some())
            .to_vec();
        assert_eq!(seen, [false, false, true, false]);
    }

    #[test]
    fn any_opcode_matches_where_none_is_named() {
        let mut faults = Faults::default();
        faults.add(fault(None, 1));
        assert_eq!(
            faults.strike(Opcode(0x1234)),
            Some(Strike::Refused(Status(5), 77))
        );
        assert_eq!(faults.strike(Opcode(0x1234)), None);
    }

    #[test]
    fn late_entries_keep_the_order_of_their_queue_and_leave_others_alone() {
        let mut faults = Faults::default();
        let spec = "cqe=delay#2:1ms,cqe=drop#5".parse().unwrap();
        faults.set(&spec, 0);
        let fates: Vec<EntryFate> = (0..3)
            .map(|at| {
                let fate = faults.judge_entry(at, 7, 1);
                if let EntryFate::Hold(due_ns) = fate {
                    faults.hold(due_ns, 7, [u8::try_from(at).unwrap(); 64]);
                }
                fate
            })
            .collect();
        let due_ns = 1_000_001;
        assert_eq!(
            fates,
            [
                EntryFate::Write,
                EntryFate::Hold(due_ns),
                EntryFate::Hold(due_ns)
            ]
        );
        assert_eq!(faults.judge_entry(5, 8, 1), EntryFate::Write);
        assert_eq!(faults.judge_entry(5, 8, 1), EntryFate::Drop);
        assert_eq!(faults.deadline_ns(), Some(due_ns));
        assert_eq!(faults.due_entry(due_ns - 1), None);
        assert_eq!(faults.due_entry(due_ns), Some((7, [1; 64])));
        assert_eq!(faults.judge_entry(due_ns, 7, 1), EntryFate::Hold(due_ns));
        faults.forget_cq(7);
        assert_eq!(faults.due_entry(u64::MAX), None);
        assert_eq!(faults.deadline_ns(), None);
    }

    #[test]
    fn the_nth_wqe_of_one_qp_fails() {
        let mut faults = Faults::default();
        faults.set(&"cqe=wqe#2:syndrome=0x15:qp=9".parse().unwrap(), 0);
        let struck = [8, 9, 8, 9, 9].map(|qpn| faults.fail_send(qpn));
        assert_eq!(struck, [None, None, None, Some(0x15), None]);
    }

    #[test]
    fn timed_faults_come_in_the_order_of_time() {
        let mut faults = Faults::default();
        let spec = "port-up@3ms,port-down@2ms".parse().unwrap();
        faults.set(&spec, 5);
        assert_eq!(faults.deadline_ns(), Some(2_000_005));
        assert_eq!(faults.due_event(2_000_004), None);
        assert_eq!(faults.due_event(9_000_000), Some(TimedFault::PortDown(1)));
        assert_eq!(faults.due_event(9_000_000), Some(TimedFault::PortUp(1)));
        assert_eq!(faults.due_event(u64::MAX), None);
        assert_eq!(spec.timed[0].0, Duration::from_millis(3));
    }
}
