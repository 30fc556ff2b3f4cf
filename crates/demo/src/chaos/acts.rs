//! The acts of chaos: how each deed is begun and ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpverbs::team::{Store, open_store};

use super::deeds::Deed;
use super::fleet::{Fleet, milliseconds};
use super::garbage::{self, Spoiled};
use super::processes::RankGeneration;
use crate::error::DemoError;
use crate::rank::disturbed_store::{Late, StoreFault};
use crate::rank::instructions::{Instruction, Threads};
use crate::record::{Begun, Disturbance, RecordKind};
use crate::run::Run;
use warpverbs_cli::etcd::Etcd;

/// How late a rank that comes back may be started.
const STARTED: Duration = Duration::from_millis(100);

/// The longest call of the store. A call holds up everything else that is to be done.
const CALL: Duration = Duration::from_millis(500);
/// How long it may take until one of two processes for one rank serves.
const TWO_COME: Duration = Duration::from_secs(20);
/// How long servers that were started may take to serve, or to have another leader.
const ELECTION: Duration = Duration::from_secs(5);

/// The deeds that are under way, and the faults of the ranks' HCAs.
pub(super) struct Acts {
    /// A connection of its own to the ranks' store, whose calls end soon.
    store: Arc<dyn Store>,
    /// The servers of the store, if it has any.
    etcd: Option<Etcd>,
    /// The `SOFTHCA_FAULT` of every rank, without what deeds add.
    faults: String,
    under_way: Vec<UnderWay>,
    /// How many deeds disturb each process now.
    busy: BTreeMap<RankGeneration, u32>,
    /// How many deeds have stopped each process and not yet resumed it.
    stopped: BTreeMap<RankGeneration, u32>,
    hcas: BTreeMap<RankGeneration, HcaFaults>,
    pub(super) done: u32,
}

/// A deed that has begun.
struct UnderWay {
    deed: u32,
    left: Vec<(Instant, Ending)>,
}

/// What is still to be done for a deed.
enum Ending {
    /// The deed no longer disturbs this process. If the flag is set, the deed had stopped the process, which goes on.
    Calm(RankGeneration, bool),
    /// The process that runs as this rank is killed, and another one starts after the time.
    Kill(u32, Duration),
    /// A spoiled key is written as it was.
    Mend(Spoiled),
    /// These servers of the store are started again.
    StartServers(Vec<usize>),
    /// These servers of the store, which were stopped, go on.
    ResumeServers(Vec<usize>),
    /// Another process is started for the place of this rank.
    Rival(u32),
    /// Of two processes for this rank the one that does not serve is killed; at the given time one is killed in any case.
    OneStays(u32, Instant),
    /// Nothing, but the deed lasts until this time.
    Nothing,
}

/// The faults of one HCA that deeds have asked for, with the times at which they end.
#[derive(Default)]
struct HcaFaults {
    /// The items of a fault spec without their times, each with its end.
    parts: Vec<(Instant, String)>,
    port: Option<Instant>,
}

impl HcaFaults {
    /// Returns the faults as a spec whose times count from `now`.
    fn spec(&mut self, now: Instant) -> String {
        self.parts.retain(|(until, _)| *until > now);
        let left = |until: &Instant| milliseconds(until.saturating_duration_since(now));
        let parts = self.parts.iter();
        let mut spec: String = parts
            .map(|(until, item)| format!(",{item}@..{}ms", left(until)))
            .collect();
        // A new spec replaces the earlier one with its end. So every spec brings up a port that was once down.
        if let Some(until) = &self.port {
            if *until > now {
                spec += ",port-down@0ms";
            }
            spec += &format!(",port-up@{}ms", left(until));
        }
        spec
    }
}

impl Acts {
    /// # Errors
    /// A store that cannot be opened.
    pub(super) fn new(run: &Run, etcd: Option<Etcd>, faults: String) -> Result<Self, DemoError> {
        let store = open_store(&run.spec.store, &run.spec.run_id)?;
        Ok(Self {
            store: store.bounded(CALL),
            etcd,
            faults,
            under_way: Vec::new(),
            busy: BTreeMap::new(),
            stopped: BTreeMap::new(),
            hcas: BTreeMap::new(),
            done: 0,
        })
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Returns when the next thing is to be done.
    pub(super) fn next(&self) -> Option<Instant> {
        let all = self.under_way.iter().flat_map(|deed| &deed.left);
        all.map(|(at, _)| *at).min()
    }

    /// Returns whether a deed kills every process that runs as `rank`, or lets two come for its place.
    pub(super) fn is_looping(&self, rank: u32) -> bool {
        let all = self.under_way.iter().flat_map(|deed| &deed.left);
        all.into_iter().any(|(_, ending)| match ending {
            Ending::Kill(of, _) | Ending::Rival(of) | Ending::OneStays(of, _) => *of == rank,
            _ => false,
        })
    }

    /// Begins `deed`.
    pub(super) fn begin(
        &mut self,
        fleet: &mut Fleet<'_>,
        addresses: &[Vec<String>],
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
            Deed::NoPidfd { rank, back } => {
                begun.how = Disturbance::NoPidfd;
                begun.ranks = vec![rank];
                note(fleet, begun);
                left.push((now, Ending::Kill(rank, back)));
                left.push((now + back + STARTED, Ending::Nothing));
            }
            Deed::Host { ranks: two, back } => {
                begun.how = Disturbance::Host;
                begun.ranks.clone_from(&two);
                note(fleet, begun);
                left.extend(two.iter().map(|rank| (now, Ending::Kill(*rank, back))));
                left.push((now + back + STARTED, Ending::Nothing));
            }
            Deed::LinkJoiner { rank, back, time } => {
                begun.how = Disturbance::LinkJoiner;
                begun.ranks = vec![rank];
                begun.words = format!("for {time:?}");
                note(fleet, begun);
                fleet.loses_link(rank, now + back + time);
                left.push((now, Ending::Kill(rank, back)));
                left.push((now + back + time.max(STARTED), Ending::Nothing));
            }
            Deed::Twice { rank, back, apart } => {
                begun.how = Disturbance::Twice;
                begun.ranks = vec![rank];
                begun.words = format!("{apart:?} apart");
                note(fleet, begun);
                let second = now + back + apart;
                left.push((now, Ending::Kill(rank, back)));
                left.push((second, Ending::Rival(rank)));
                left.push((second + CALL, Ending::OneStays(rank, second + TWO_COME)));
            }
            Deed::Late { rank, time } => {
                begun.how = Disturbance::Late;
                begun.ranks = vec![rank];
                begun.words = format!("by {time:?}");
                note(fleet, begun);
                if let Some(who) = self.disturb(fleet, rank, Disturbance::Late) {
                    let late = Instruction::Late(milliseconds(time));
                    fleet.processes.instruct(rank, &late);
                    left.push((now + time, Ending::Calm(who, false)));
                }
            }
            Deed::Arguments { rank } => {
                begun.how = Disturbance::Arguments;
                begun.ranks = vec![rank];
                note(fleet, begun);
                if let Some(who) = self.disturb(fleet, rank, Disturbance::Arguments) {
                    fleet.processes.instruct(rank, &Instruction::Arguments);
                    left.push((now + CALL, Ending::Calm(who, false)));
                }
            }
            Deed::OneWay {
                rank,
                other,
                out,
                time,
            } => {
                let (item, way) = if out {
                    ("partition-out", "to")
                } else {
                    ("partition-in", "from")
                };
                begun.how = Disturbance::OneWay;
                begun.ranks = vec![rank];
                begun.pairs = vec![(rank.min(other), rank.max(other))];
                begun.words = format!("nothing passes {way} rank {other}");
                note(fleet, begun);
                if let Some(who) = self.disturb(fleet, rank, Disturbance::OneWay) {
                    let known = addresses[other as usize].iter();
                    let parts = known.map(|address| (now + time, format!("{item}={address}")));
                    self.hcas.entry(who).or_default().parts.extend(parts);
                    self.tell_hca(fleet, who);
                    left.push((now + time, Ending::Calm(who, false)));
                }
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
                        .flat_map(|other| addresses[*other as usize].clone());
                    let parts = known.map(|address| (now + time, format!("partition={address}")));
                    self.hcas.entry(who).or_default().parts.extend(parts);
                    self.tell_hca(fleet, who);
                    left.push((now + time, Ending::Calm(who, false)));
                }
            }
            Deed::Rail { rank, rail, time } => {
                begun.how = Disturbance::Rail;
                begun.ranks = vec![rank];
                begun.words = format!("rail {rail}");
                note(fleet, begun);
                if let Some(who) = self.disturb(fleet, rank, Disturbance::Rail) {
                    // HCAs talk only to HCAs of their own rail.
                    let others = (0..).zip(addresses).filter(|(other, _)| *other != rank);
                    let ends = others.filter_map(|(_, rails): (u32, _)| rails.get(rail).cloned());
                    let parts = ends.map(|address| (now + time, format!("partition={address}")));
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
                        fleet.loses_port(who);
                        self.tell_hca(fleet, who);
                        left.push((now + time, Ending::Calm(who, false)));
                    }
                }
            }
            Deed::StorePause { time } => {
                begun.how = Disturbance::StorePause;
                match &mut self.etcd {
                    None => {
                        note(fleet, begun);
                        let (ms, late) = (milliseconds(time), None);
                        fleet.disturb_store(StoreFault { ms, late });
                        left.push((now + time, Ending::Nothing));
                    }
                    Some(etcd) => {
                        begun.words = "SIGSTOP to all servers".to_owned();
                        note(fleet, begun);
                        let all = etcd.all();
                        all.iter().for_each(|server| etcd.stop(*server));
                        fleet.be_lenient(now + time);
                        left.push((now + time, Ending::ResumeServers(all)));
                    }
                }
            }
            Deed::StoreRestart { time } => {
                begun.how = Disturbance::StoreRestart;
                if let Some(etcd) = &mut self.etcd {
                    let all = etcd.all();
                    begun.words = format!("SIGKILL to {} servers", all.len());
                    note(fleet, begun);
                    all.iter().for_each(|server| etcd.kill(*server));
                    fleet.be_lenient(now + time + ELECTION);
                    left.push((now + time, Ending::StartServers(all)));
                }
            }
            Deed::LeaderLoss { time, stands } => {
                begun.how = Disturbance::LeaderLoss;
                if let Some(etcd) = &mut self.etcd {
                    // If no server leads, another deed is under way, and server 0 is taken.
                    let leader = etcd.leader().unwrap_or_default();
                    let how = if stands { "SIGSTOP" } else { "SIGKILL" };
                    begun.words = format!("{how} to server {leader}");
                    note(fleet, begun);
                    fleet.be_lenient(now + time + ELECTION);
                    left.push((
                        now + time,
                        if stands {
                            etcd.stop(leader);
                            Ending::ResumeServers(vec![leader])
                        } else {
                            etcd.kill(leader);
                            Ending::StartServers(vec![leader])
                        },
                    ));
                }
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
                let who = (rank, generation);
                begun.how = Disturbance::Garbage;
                match garbage::write(self.store.as_ref(), who, key, how, seed) {
                    Ok(spoiled) => {
                        begun.words = format!("in '{}', {how:?}", spoiled.key);
                        left.push((now + time, Ending::Mend(spoiled)));
                    }
                    // Another deed disturbs the store, so this one does nothing.
                    Err(error) if error.is_unanswered() => {
                        begun.words = format!("that the store does not take: {error}");
                        left.push((now, Ending::Nothing));
                    }
                    Err(error) => return Err(error.into()),
                }
                note(fleet, begun);
                if key.has_no_holder() {
                    fleet.be_lenient(now + time);
                }
            }
        }
        let deed = self.done;
        self.under_way.push(UnderWay { deed, left });
        Ok(())
    }

    /// Does what is due, and notes which deeds are over.
    pub(super) fn turn(&mut self, fleet: &mut Fleet<'_>) -> Result<(), DemoError> {
        let now = Instant::now();
        let mut due = Vec::new();
        for (place, deed) in self.under_way.iter_mut().enumerate() {
            let endings = deed.left.extract_if(.., |(at, _)| *at <= now);
            due.extend(endings.map(|(at, ending)| (at, place, ending)));
        }
        due.sort_by_key(|(at, ..)| *at);
        for (_, place, ending) in due {
            match ending {
                Ending::Calm(who, stopped) => self.calm(fleet, who, stopped),
                // A rank that the others dropped meanwhile comes back as well.
                Ending::Kill(rank, back) => {
                    if let Some(generation) = fleet.processes.generation(rank) {
                        fleet.kill(rank);
                        fleet.rejoin((rank, generation), back);
                    }
                }
                Ending::Mend(spoiled) => match spoiled.mend(self.store.as_ref()) {
                    Ok(()) => {}
                    // The store does not answer now, so this is tried again.
                    Err(error) if error.is_unanswered() => {
                        let again = (Instant::now() + CALL, Ending::Mend(spoiled));
                        self.under_way[place].left.push(again);
                    }
                    Err(error) => return Err(error.into()),
                },
                Ending::StartServers(servers) => {
                    for server in servers {
                        if let Some(etcd) = &mut self.etcd {
                            etcd.start_again(server)?;
                        }
                    }
                }
                Ending::ResumeServers(servers) => {
                    for server in servers {
                        if let Some(etcd) = &mut self.etcd {
                            etcd.resume(server);
                        }
                    }
                }
                Ending::Rival(rank) => fleet.start_rival(rank)?,
                Ending::OneStays(rank, last) => {
                    if !fleet.keeps_one(rank, Instant::now() >= last) {
                        let again = (Instant::now() + CALL, Ending::OneStays(rank, last));
                        self.under_way[place].left.push(again);
                    }
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

    /// Notes that a deed disturbs the process that runs as `rank`. Returns that process, if there is one.
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

    /// Ends what one deed does to `who`. The process goes on when no other deed has stopped it, and is calm when no deed is left.
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
        let link = fleet.link_fault(who.0);
        let spec = format!("{}{more}{link}", self.faults);
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
    fn faults_of_overlapping_deeds_are_set_together_and_end_one_by_one() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut faults = HcaFaults::default();
        assert_eq!(faults.spec(now), "");
        let item = |name: &str| name.to_owned();
        faults
            .parts
            .push((now + second, item("partition=127.0.0.1")));
        faults.port = Some(now + 2 * second);
        assert_eq!(
            faults.spec(now),
            ",partition=127.0.0.1@..1000ms,port-down@0ms,port-up@2000ms"
        );
        faults
            .parts
            .push((now + 3 * second, item("partition-out=127.0.0.2")));
        assert_eq!(
            faults.spec(now + second),
            ",partition-out=127.0.0.2@..2000ms,port-down@0ms,port-up@1000ms"
        );
        // The new spec brings the port up, whatever became of the earlier spec.
        assert_eq!(faults.spec(now + 3 * second), ",port-up@0ms");
    }
}
