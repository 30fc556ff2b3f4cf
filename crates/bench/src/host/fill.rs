//! Pages at random places of a peer's memory, written by a host engine. The walkthrough of EFA calls this RANDOM_FILL.
//!
//! In each repeat every page of a set goes to a place of its own, which the seed chooses. Submitting and reaping take turns, as in a
//! program that has other work. The bench compares all bytes of the last repeat and of two that the seed chooses. Before such a repeat the
//! pages get new bytes. The clock stops for that and for the comparison. The other end (`served`) compares as soon as a notice comes, which
//! is after all bytes of the repeat. The other end is an engine of this process or of another machine. Each end has memory of the host or
//! of a GPU.

use std::collections::VecDeque;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use warpverbs::engine::{
    Engine, EngineConfig, EngineDevice, EngineError, EnginePath, HostError, Kind, Operation,
    Options, Outcome, Status, TransferId,
};

use super::memory::{EndMemory, Memories, MemoryChoice, ran_on};
pub use super::pages::FillOptions;
use super::pages::wrong;
use super::served::{Others, PATIENCE, Served, Server, Setting, written};
use super::spread::spread;
use crate::error::BenchError;

/// The number of operations between two lines of progress.
const PROGRESS: u64 = 16_384;
/// A run of all devices has this many times the repeats of a run on the faulty device alone, which would take long.
const ALONE: u32 = 10;
/// The number of runs of each set of devices where one of them has a fault.
const FAULTY_ROUNDS: u32 = 3;

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct FillReport {
    /// The names of the devices, or that they are software, and the GPUs whose memory an end uses.
    pub ran_on: String,
    /// The devices of the writing engine, each with its provider, and of libfabric with its fabric.
    pub devices: Vec<String>,
    /// How often each device has refused an operation, which was tried again.
    pub refusals: Vec<u64>,
    /// The memory that pages came from, and the memory that they went to.
    pub memory: Memories,
    /// The poster of the WRITEs.
    pub poster: &'static str,
    /// The setting of the run.
    pub options: FillOptions,
    /// The number of QPs of the connection.
    pub qps: u64,
    /// The number of bytes that each device of the writing engine has posted.
    pub posted_bytes: Vec<u64>,
    /// The number of pages that were written.
    pub operations: u64,
    /// Seconds for which the clock ran.
    pub seconds: f64,
    /// Bits of pages in a second, divided by 10^9.
    pub gbps: f64,
    /// The rate in percent of the port's speed; None if that speed is not known.
    pub percent_of_link: Option<f64>,
    /// The number of submissions that found all slots taken.
    pub blocked: u64,
    /// The number of bytes that were compared, each time after a notice had come.
    pub compared: u64,
    /// What a fault of one device costs; None in a run without a fault.
    pub faulty: Option<Faulty>,
}

/// Rates with a fault of the last device, each in Gb/s: the median, the lowest and the highest.
#[derive(Clone, Debug, Serialize)]
pub struct Faulty {
    /// The fault of the last device, as `--fault` gives it.
    pub fault: String,
    /// The rate of all devices together.
    pub all: [f64; 3],
    /// The rate of all devices but the last.
    pub others: [f64; 3],
    /// The rate of the last device alone.
    pub alone: [f64; 3],
    /// The rate of all devices divided by the sum of `others` and `alone`, in percent.
    pub percent: f64,
}

/// The engine that writes the pages.
struct Filler {
    server: Server,
    here: EndMemory,
    memories: Memories,
    engine: Engine,
    speed_mbps: u32,
    ran_on: String,
    devices: Vec<String>,
}

impl Filler {
    fn new(
        (from, memory): (&[EngineDevice], MemoryChoice),
        place: &str,
        options: &FillOptions,
    ) -> Result<Self, BenchError> {
        // Several engines may fill one end in turn, so each has a name of its own.
        let name = format!("fills-{:016x}", fastrand::u64(..));
        let config = EngineConfig::from_env(&name)?.with_engine_path(EnginePath::Nic);
        let engine = Engine::on(from, config)?;
        let bytes = options.pages * options.page;
        let here = EndMemory::new(&engine, memory, bytes)?;
        let (_, kind) = here.register(&engine)?;
        let setting = Setting::Fill(*options);
        let server = Server::begin((&engine, &mut Others::default()), place, setting)?;
        let memories = Memories {
            here: kind,
            peers: vec![server.memory.clone()],
        };
        Ok(Self {
            server,
            here,
            engine,
            speed_mbps: from.iter().map(EngineDevice::speed_mbps).sum(),
            devices: from.iter().map(ToString::to_string).collect(),
            ran_on: ran_on(from, &memories),
            memories,
        })
    }
}

/// Runs the bench between two engines of this process on these devices, each with its memory. It calls `tell` with each line of progress.
///
/// # Errors
/// As [`measure_to`].
pub(crate) fn measure(
    [from, to]: [Vec<EngineDevice>; 2],
    [here, there]: [MemoryChoice; 2],
    options: &FillOptions,
    tell: impl FnMut(&str),
) -> Result<FillReport, BenchError> {
    options.check()?;
    let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let config = EngineConfig::from_env("is-filled")?;
    let served = Served::listen(&to, any.into(), config, (there, options.bytes))?;
    thread::scope(|scope| {
        let serves = scope.spawn(|| served.serve(None, |_| {}));
        let place = served.address().to_string();
        let report = measure_to((&from, here), &place, options, tell);
        served.close();
        match serves.join() {
            Ok(()) => report,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Measures as [`measure`] does, with a fault of the last device. It also measures without that device, and with that device alone. `set`
/// sets the fault, which is one item of packets as `wv sim --fault` takes it.
///
/// # Errors
/// As [`measure`]; less than two devices; what `set` refuses.
pub(crate) fn measure_faulty(
    [from, to]: [Vec<EngineDevice>; 2],
    memories: [MemoryChoice; 2],
    options: &FillOptions,
    (fault, set): (&str, impl FnOnce(&str) -> Result<(), String>),
    mut tell: impl FnMut(&str),
) -> Result<FillReport, BenchError> {
    options.check()?;
    let refused = |limit: String| BenchError::Option {
        what: "--fault",
        value: fault.to_owned(),
        limit,
    };
    let (Some(last), true) = (to.last(), from.len() == to.len() && to.len() > 1) else {
        return Err(refused("with at least two --rails".to_owned()));
    };
    let context = last.context();
    let context = context.ok_or_else(|| refused("of an mlx5 device".to_owned()))?;
    let address = context.own_gid()?.gid.ipv4();
    let address = address.ok_or_else(|| refused("of a device with an IPv4 address".to_owned()))?;
    let one = "one fault of packets, as delay=1ms..2ms@100%";
    if fault.contains(',') {
        return Err(refused(one.to_owned()));
    }
    set(&format!("{fault}:peer={address}"))
        .map_err(|reason| refused(format!("{one}: {reason}")))?;
    let (all, count) = (0..from.len(), from.len());
    let mut rates = [const { Vec::new() }; 3];
    let mut report = None;
    for _ in 0..FAULTY_ROUNDS {
        // The sets of devices take turns, so that other load of the machine falls on all of them.
        let which = [0..count - 1, count - 1..count, all.clone()];
        for (rates, which) in rates.iter_mut().zip(which) {
            let ends = [&from, &to].map(|it| it[which.clone()].to_vec());
            let mut options = *options;
            if which.len() == 1 {
                // The faulty device alone would take most of the time.
                options.repeats = options.repeats.div_ceil(ALONE);
            }
            let measured = measure(ends, memories, &options, &mut tell)?;
            rates.push(measured.gbps);
            report = Some(measured);
        }
    }
    let [others, alone, all] = rates.map(spread);
    let mut report = report.ok_or_else(|| wrong("no run".to_owned()))?;
    report.faulty = Some(Faulty {
        fault: fault.to_owned(),
        all,
        others,
        alone,
        percent: 100.0 * all[0] / (others[0] + alone[0]),
    });
    Ok(report)
}

/// Runs the bench from an engine of this process on these devices, with such memory, to a [`Served`] that listens at `place`, as
/// `host:port`.
///
/// # Errors
/// An option out of its range; memory that an end cannot have; a transfer that does not end well; bytes that arrived wrong.
pub fn measure_to(
    from: (&[EngineDevice], MemoryChoice),
    place: &str,
    options: &FillOptions,
    tell: impl FnMut(&str),
) -> Result<FillReport, BenchError> {
    options.check()?;
    let filler = Filler::new(from, place, options)?;
    let mut run = Run {
        filler: &filler,
        options,
        under_way: VecDeque::new(),
        submitted: 0,
        finished: 0,
        blocked: 0,
        time: Duration::ZERO,
        told: 0,
        tell,
    };
    // Pages that no thread has written are all mapped to one page of zeros, which stays in a cache.
    run.fresh(0)?;
    run.warm_up()?;
    let to_compare = options.compared();
    let mut compared = 0;
    for repeat in 0..options.repeats {
        let is_compared = to_compare.contains(&repeat);
        if is_compared {
            run.clocked(Run::drain)?;
            run.fresh(repeat)?;
        }
        let places = options.places(repeat);
        let behind = is_compared.then(|| written(repeat)).transpose()?;
        run.clocked(|run| run.repeat(&places, behind.as_deref()))?;
        if is_compared {
            run.clocked(Run::drain)?;
            compared += filler
                .server
                .compared(&filler.engine, &mut Others::default())?;
        }
    }
    let seconds = run.time.as_secs_f64();
    let (gbps, percent_of_link) = run.rates();
    let rails = filler.engine.rails();
    Ok(FillReport {
        devices: filler.devices.clone(),
        refusals: rails.iter().map(|it| it.refusals).collect(),
        poster: "host",
        options: *options,
        qps: filler.server.peer.qps(),
        posted_bytes: rails.iter().map(|it| it.slices.posted_bytes).collect(),
        operations: run.finished,
        seconds,
        gbps,
        percent_of_link,
        blocked: run.blocked,
        compared,
        faulty: None,
        ran_on: filler.ran_on.clone(),
        memory: filler.memories.clone(),
    })
}

struct Run<'a, Tell> {
    filler: &'a Filler,
    options: &'a FillOptions,
    /// The transfers in flight and how many pages each has, oldest first.
    under_way: VecDeque<(TransferId, u64)>,
    submitted: u64,
    finished: u64,
    blocked: u64,
    /// The time for which the clock ran.
    time: Duration,
    /// The number of lines of progress told until now.
    told: u64,
    tell: Tell,
}

impl<Tell: FnMut(&str)> Run<'_, Tell> {
    /// Lets every QP send before the clock starts.
    fn warm_up(&mut self) -> Result<(), BenchError> {
        for repeat in 0..self.filler.server.peer.qps() {
            // Small transfers go to the workers, and their lanes, in turn; large ones go to all.
            let places = self.options.places(u32::try_from(repeat).unwrap_or(0));
            self.repeat(&places, None)?;
        }
        self.drain()?;
        (self.submitted, self.finished, self.blocked) = (0, 0, 0);
        Ok(())
    }

    fn clocked(
        &mut self,
        does: impl FnOnce(&mut Self) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let begin = Instant::now();
        does(self)?;
        self.time += begin.elapsed();
        let lines = self.finished / PROGRESS;
        if lines > self.told {
            self.told = lines;
            let line = self.progress();
            (self.tell)(&line);
        }
        Ok(())
    }

    /// Submits one repeat, and between submissions reaps finished transfers. The transfer of the last pages carries `notice`, if given, and
    /// is submitted after all other transfers have landed, because transfers have no order among each other.
    fn repeat(&mut self, places: &[u64], notice: Option<&[u8]>) -> Result<(), BenchError> {
        let (from, to) = (self.filler.here.address(), self.filler.server.address);
        let page = self.options.page;
        let operation = |(nth, place): (u64, &u64)| Operation {
            kind: Kind::Write,
            local: from + nth * page,
            remote: to + place * page,
            bytes: page,
        };
        let operations: Vec<Operation> = (0..).zip(places).map(operation).collect();
        let mut batches = operations.chunks(self.options.batch as usize);
        let last = notice.and_then(|notice| Some((batches.next_back()?, notice)));
        for batch in batches {
            self.submit(batch, None)?;
            self.reap()?;
        }
        if let Some((batch, notice)) = last {
            self.drain()?;
            self.submit(batch, Some(notice))?;
        }
        Ok(())
    }

    fn submit(&mut self, batch: &[Operation], notice: Option<&[u8]>) -> Result<(), BenchError> {
        while self.under_way.len() >= self.options.in_flight as usize {
            self.finish_oldest()?;
        }
        let id = loop {
            let options = Options::default().with_notice(notice);
            match self.filler.server.peer.submit(batch, &options) {
                Ok(id) => break id,
                Err(EngineError::WouldBlock { .. }) if !self.under_way.is_empty() => {
                    self.blocked += 1;
                    self.finish_oldest()?;
                }
                Err(error) => return Err(HostError::from(error).into()),
            }
        };
        self.under_way.push_back((id, batch.len() as u64));
        self.submitted += batch.len() as u64;
        Ok(())
    }

    /// Takes the oldest transfers as long as they are finished, without waiting.
    fn reap(&mut self) -> Result<(), BenchError> {
        while let Some((id, pages)) = self.under_way.front().copied() {
            let status = self.filler.engine.poll(id).map_err(HostError::from)?;
            if status == Status::Pending {
                break;
            }
            self.take(id, pages, status)?;
        }
        Ok(())
    }

    fn finish_oldest(&mut self) -> Result<(), BenchError> {
        let Some((id, pages)) = self.under_way.front().copied() else {
            return Ok(());
        };
        let status = self.filler.engine.wait(id, PATIENCE);
        self.take(id, pages, status.map_err(HostError::from)?)
    }

    fn take(&mut self, id: TransferId, pages: u64, status: Status) -> Result<(), BenchError> {
        if status != Status::Concluded(Outcome::Done) {
            let report = self.filler.engine.report(id);
            return Err(wrong(format!("a transfer is {status:?}: {report:?}")));
        }
        self.filler.engine.release(id).map_err(HostError::from)?;
        self.under_way.pop_front();
        self.finished += pages;
        Ok(())
    }

    fn drain(&mut self) -> Result<(), BenchError> {
        while !self.under_way.is_empty() {
            self.finish_oldest()?;
        }
        Ok(())
    }

    /// Gives the pages bytes that no other repeat has.
    fn fresh(&self, repeat: u32) -> Result<(), BenchError> {
        self.filler.here.write(0, &self.options.sent(repeat))
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn rates(&self) -> (f64, Option<f64>) {
        let bits = (self.finished * self.options.page * 8) as f64;
        let gbps = bits / self.time.as_secs_f64().max(f64::MIN_POSITIVE) / 1e9;
        let link = f64::from(self.filler.speed_mbps) / 1e3;
        (gbps, (link > 0.0).then(|| 100.0 * gbps / link))
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn progress(&self) -> String {
        let (gbps, percent) = self.rates();
        let (finished, submitted) = (self.finished, self.submitted);
        let all = self.options.operations();
        let seconds = self.time.as_secs_f64();
        let rate = finished as f64 / seconds.max(f64::MIN_POSITIVE) / 1e6;
        let gigabytes = (finished * self.options.page) as f64 / 1e9;
        let link = percent.map_or_else(String::new, |it| format!(", {it:.1}% of the link"));
        format!(
            "{seconds:.3} s, {}%: {finished} of {submitted} submitted pages done, {gigabytes:.3} GB, {gbps:.2} Gb/s{link}, {rate:.3} M pages/s",
            100 * finished / all
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn shares(posted: &[u64]) -> impl Iterator<Item = String> {
    let all = posted.iter().sum::<u64>().max(1);
    let share = move |bytes: &u64| format!("{:.1}%", 100.0 * *bytes as f64 / all as f64);
    posted.iter().map(share)
}

impl fmt::Display for FillReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FillOptions {
            bytes,
            page,
            pages,
            repeats,
            seed,
            ..
        } = self.options;
        writeln!(
            f,
            "{}, posted by the {}: {repeats} repeats of {pages} pages of {page} bytes to random places of {bytes} bytes, {} QPs, seed {seed}",
            self.ran_on, self.poster, self.qps
        )?;
        for (device, refusals) in self.devices.iter().zip(&self.refusals) {
            writeln!(f, "from {device}, {refusals} operations tried again")?;
        }
        writeln!(f, "{}", self.memory)?;
        let link = match self.percent_of_link {
            Some(percent) => format!("{percent:.3}% of the link"),
            None => "the port does not tell its speed".to_owned(),
        };
        writeln!(
            f,
            "{} pages in {:.3} s: {:.3} Gb/s, {link}; {} submissions found all slots taken; {} bytes compared",
            self.operations, self.seconds, self.gbps, self.blocked, self.compared
        )?;
        if self.posted_bytes.len() > 1 {
            let shares: Vec<String> = shares(&self.posted_bytes).collect();
            writeln!(f, "of which the devices have posted {}", shares.join(", "))?;
        }
        if let Some(Faulty {
            fault,
            all,
            others,
            alone,
            percent,
        }) = &self.faulty
        {
            let [all, others, alone] = [all, others, alone]
                .map(|[median, least, most]| format!("{median:.2} Gb/s ({least:.2}..{most:.2})"));
            writeln!(
                f,
                "with {fault} of the last device: {all}, {percent:.1}% of what the others carry alone, {others}, and it alone, {alone}"
            )?;
        }
        Ok(())
    }
}
