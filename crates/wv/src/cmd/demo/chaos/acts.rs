//! How each deed is begun and ended.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::super::disturbed_store::{Late, StoreFault};
use super::super::instructions::{Instruction, Threads};
use super::super::{DemoError, Run};
use super::deeds::Deed;
use super::event::{Begun, Disturbance, RecordKind};
use super::fleet::{Fleet, milliseconds};
use super::garbage::{self, Spoiled};
use super::processes::RankGeneration;

/// Who comes back is started within so long behind its time.
const STARTED: Duration = Duration::from_millis(100);

/// What is done now, and what was done to the ranks' HCAs.
pub(super) struct Acts<'a> {
    run: &'a Run,
    /// `SOFTHCA_FAULT` of every rank, without what deeds add.
    faults: String,
    under_way: Vec<UnderWay>,
    /// How many deeds are done to each.
    busy: BTreeMap<RankGeneration, u32>,
    /// How many deeds have stopped each process.
    stopped: BTreeMap<RankGeneration, u32>,
    hcas: BTreeMap<RankGeneration, HcaFaults>,
    pub(super) done: u32,
}

/// A deed that has begun.
struct UnderWay {
    deed: u32,
    left: Vec<(Instant, Ending)>,
}

/// Something that is still to be done in it.
enum Ending {
    /// It is done to this one no more. It is stopped, and goes on.
    Calm(RankGeneration, bool),
    /// The one that runs as this rank is killed, and another comes after the time.
    Kill(u32, Duration),
    /// A key is as it was.
    Mend(Spoiled),
    /// Until then.
    Nothing,
}

/// Faults of one HCA that deeds have asked for, until their times.
#[derive(Default)]
struct HcaFaults {
    parts: Vec<(Instant, String)>,
    port: Option<Instant>,
}

impl HcaFaults {
    /// As a spec whose times count from `now`.
    fn spec(&mut self, now: Instant) -> String {
        self.parts.retain(|(until, _)| *until > now);
        let left = |until: &Instant| milliseconds(until.saturating_duration_since(now));
        let parts = self.parts.iter();
        let mut spec: String = parts
            .map(|(until, address)| format!(",partition={address}@..{}ms", left(until)))
            .collect();
        // A new spec replaces the end of an earlier one, so a port that was down once comes up by each.
        if let Some(until) = &self.port {
            if *until > now {
                spec += ",port-down@0ms";
            }
            spec += &format!(",port-up@{}ms", left(until));
        }
        spec
    }
}

impl<'a> Acts<'a> {
    pub(super) fn new(run: &'a Run, faults: String) -> Self {
        Self {
            run,
            faults,
            under_way: Vec::new(),
            busy: BTreeMap::new(),
            stopped: BTreeMap::new(),
            hcas: BTreeMap::new(),
            done: 0,
        }
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// When the next thing is to be done.
    pub(super) fn next(&self) -> Option<Instant> {
        let all = self.under_way.iter().flat_map(|deed| &deed.left);
        all.map(|(at, _)| *at).min()
    }

    /// Whether a deed kills whoever runs as `rank`, again and again.
    pub(super) fn is_looping(&self, rank: u32) -> bool {
        let all = self.under_way.iter().flat_map(|deed| &deed.left);
        all.into_iter()
            .any(|(_, ending)| matches!(ending, Ending::Kill(of, _) if *of == rank))
    }

    /// Begins `deed`.
    pub(super) fn begin(
        &mut self,
        fleet: &mut Fleet<'_>,
        addresses: &[Option<String>],
        ranks: u32,
        deed: Deed,
    ) -> Result<(), DemoError> {
        self.done += 1;
        let now = Instant::now();
        let mut begun = Begun {
            deed: self.done,
            how: Disturbance::Kill,
            ranks: Vec::new(),
            pairs: Vec::new(),
            words: String::new(),
        };
        let mut left = Vec::new();
        match deed {
            Deed::Kill { rank, back } => {
                begun.ranks = vec![rank];
                note(fleet, begun);
                left.push((now, Ending::Kill(rank, back)));
                left.push((now + back + STARTED, Ending::Nothing));
            }
            Deed::CrashLoop { rank, back, lives } => {
                begun.how = Disturbance::CrashLoop;
                begun.ranks = vec![rank];
                begun.words = format!("and at {} that come after it", lives.len());
                note(fleet, begun);
                let mut at = now;
                left.push((at, Ending::Kill(rank, back)));
                for life in lives {
                    at += back + STARTED + life;
                    left.push((at, Ending::Kill(rank, back)));
                }
                left.push((at + back + STARTED, Ending::Nothing));
            }
            Deed::Part { rank, from, time } => {
                begun.how = Disturbance::Partition;
                begun.ranks = vec![rank];
                begun.pairs = from
                    .iter()
                    .map(|other| (rank.min(*other), rank.max(*other)))
                    .collect();
                note(fleet, begun);
                if let Some(who) = self.disturb(fleet, rank, Disturbance::Partition) {
                    let known = from
                        .iter()
                        .filter_map(|other| addresses[*other as usize].clone());
                    let parts = known.map(|address| (now + time, address));
                    self.hcas.entry(who).or_default().parts.extend(parts);
                    self.tell_hca(fleet, who);
                    left.push((now + time, Ending::Calm(who, false)));
                }
            }
            Deed::Disturb { rank, how, time } => {
                begun.how = how;
                begun.ranks = vec![rank];
                note(fleet, begun);
                if let Some(who) = self.disturb(fleet, rank, how) {
                    let ms = milliseconds(time);
                    let threads = match how {
                        Disturbance::HostFreeze => Some(Threads::Host),
                        Disturbance::KernelFreeze => Some(Threads::Kernels),
                        _ => None,
                    };
                    match threads {
                        Some(threads) => {
                            let freeze = Instruction::Freeze { threads, ms };
                            fleet.processes.instruct(rank, &freeze);
                        }
                        None => self.stop(fleet, who),
                    }
                    left.push((now + time, Ending::Calm(who, threads.is_none())));
                }
            }
            Deed::PauseAll { time, apart } => {
                begun.how = Disturbance::PauseAll;
                begun.ranks = (0..ranks).collect();
                begun.words = format!("go on within {apart:?}");
                note(fleet, begun);
                let all = fleet.processes.running();
                let last = u32::try_from(all.len()).unwrap_or(u32::MAX).max(2) - 1;
                for (place, rank) in (0u32..).zip(all) {
                    if let Some(who) = self.disturb(fleet, rank, Disturbance::PauseAll) {
                        self.stop(fleet, who);
                        let at = now + time + apart * place / last;
                        left.push((at, Ending::Calm(who, true)));
                    }
                }
            }
            Deed::Port { rank, time } => {
                let those = match rank {
                    Some(rank) => vec![rank],
                    None => (0..ranks).collect(),
                };
                begun.how = match rank {
                    Some(_) => Disturbance::PortOne,
                    None => Disturbance::PortsAll,
                };
                let how = begun.how;
                begun.ranks.clone_from(&those);
                note(fleet, begun);
                for rank in those {
                    if let Some(who) = self.disturb(fleet, rank, how) {
                        let port = &mut self.hcas.entry(who).or_default().port;
                        *port = (*port).max(Some(now + time));
                        self.tell_hca(fleet, who);
                        left.push((now + time, Ending::Calm(who, false)));
                    }
                }
            }
            Deed::StorePause { time } => {
                begun.how = Disturbance::StorePause;
                note(fleet, begun);
                let (ms, late) = (milliseconds(time), None);
                fleet.disturb_store(StoreFault { ms, late });
                left.push((now + time, Ending::Nothing));
            }
            Deed::StoreSlow { time, most, seed } => {
                begun.how = Disturbance::StoreSlow;
                begun.words = format!("by up to {most:?}");
                note(fleet, begun);
                let late = Late {
                    most_ms: milliseconds(most),
                    seed,
                };
                let (ms, late) = (milliseconds(time), Some(late));
                fleet.disturb_store(StoreFault { ms, late });
                left.push((now + time, Ending::Nothing));
            }
            Deed::Garbage {
                rank,
                key,
                how,
                seed,
                time,
            } => {
                let generation = fleet.group_generation(rank);
                let (directory, run_id) = (self.run.place.store(), &self.run.spec.run_id);
                let who = (rank, generation);
                let spoiled = garbage::write(&directory, run_id, who, key, how, seed)?;
                begun.how = Disturbance::Garbage;
                begun.words = format!("in '{}', {how:?}", spoiled.key);
                note(fleet, begun);
                if key.has_no_holder() {
                    fleet.be_lenient(now + time);
                }
                left.push((now + time, Ending::Mend(spoiled)));
            }
        }
        let deed = self.done;
        self.under_way.push(UnderWay { deed, left });
        Ok(())
    }

    /// Does what is due, and says of which deeds nothing is left.
    pub(super) fn turn(&mut self, fleet: &mut Fleet<'_>) -> Result<(), DemoError> {
        let now = Instant::now();
        let mut due = Vec::new();
        for deed in &mut self.under_way {
            due.extend(deed.left.extract_if(.., |(at, _)| *at <= now));
        }
        due.sort_by_key(|(at, _)| *at);
        for (_, ending) in due {
            match ending {
                Ending::Calm(who, stopped) => self.calm(fleet, who, stopped),
                // One that was dropped by the others meanwhile comes back all the same.
                Ending::Kill(rank, back) => {
                    if let Some(generation) = fleet.processes.generation(rank) {
                        fleet.kill(rank);
                        fleet.rejoin((rank, generation), back);
                    }
                }
                Ending::Mend(spoiled) => {
                    spoiled.mend(&self.run.place.store(), &self.run.spec.run_id)?;
                }
                Ending::Nothing => {}
            }
        }
        for over in self.under_way.extract_if(.., |deed| deed.left.is_empty()) {
            let deed = over.deed;
            fleet.processes.note_all(RecordKind::DeedOver { deed });
        }
        Ok(())
    }

    /// Something is done to whoever runs as `rank`.
    fn disturb(
        &mut self,
        fleet: &mut Fleet<'_>,
        rank: u32,
        how: Disturbance,
    ) -> Option<RankGeneration> {
        let who = (rank, fleet.processes.generation(rank)?);
        *self.busy.entry(who).or_default() += 1;
        fleet.processes.note(rank, RecordKind::Disturbed { how });
        Some(who)
    }

    fn stop(&mut self, fleet: &Fleet<'_>, who: RankGeneration) {
        *self.stopped.entry(who).or_default() += 1;
        fleet.processes.stop(who.0);
    }

    /// A deed leaves `who` alone. It goes on when no other deed has stopped it, and is calm when none is left.
    fn calm(&mut self, fleet: &mut Fleet<'_>, who: RankGeneration, stopped: bool) {
        let is_last = |counts: &mut BTreeMap<RankGeneration, u32>| {
            let count = counts.entry(who).or_default();
            *count = count.saturating_sub(1);
            *count == 0
        };
        let goes_on = stopped && is_last(&mut self.stopped);
        let calm = is_last(&mut self.busy);
        if fleet.processes.generation(who.0) != Some(who.1) {
            return;
        }
        if goes_on {
            fleet.processes.resume(who.0);
        }
        if calm {
            fleet.processes.note(who.0, RecordKind::Calm);
        }
    }

    fn tell_hca(&mut self, fleet: &mut Fleet<'_>, who: RankGeneration) {
        let more = self.hcas.entry(who).or_default().spec(Instant::now());
        let spec = format!("{}{more}", self.faults);
        fleet.processes.instruct(who.0, &Instruction::Faults(spec));
    }
}

fn note(fleet: &mut Fleet<'_>, begun: Begun) {
    fleet.processes.note_all(RecordKind::Deed(begun));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_deeds_that_overlap_are_told_together_and_end_by_themselves() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut faults = HcaFaults::default();
        assert_eq!(faults.spec(now), "");
        faults.parts.push((now + second, "127.0.0.1".to_owned()));
        faults.port = Some(now + 2 * second);
        assert_eq!(
            faults.spec(now),
            ",partition=127.0.0.1@..1000ms,port-down@0ms,port-up@2000ms"
        );
        faults
            .parts
            .push((now + 3 * second, "127.0.0.2".to_owned()));
        assert_eq!(
            faults.spec(now + second),
            ",partition=127.0.0.2@..2000ms,port-down@0ms,port-up@1000ms"
        );
        // The port comes up whatever became of the earlier spec.
        assert_eq!(faults.spec(now + 3 * second), ",port-up@0ms");
    }
}
