//! `wv bench group`: ranks over a simulated fabric. Their store is in memory, or an etcd that the command starts.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use clap::{Args, ValueEnum};
use private_dir::{PrivateDir, standard_parent, sweep};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::finish::finish;
use crate::error::BenchError;
use crate::ranks::group::{GroupCase, GroupReport, GroupRow, Meeting, crash_loop, measure};
use warpverbs::team::open_store;
use warpverbs_cli::etcd::Etcd;
use warpverbs_cli::{number, output, tied};

/// The fewest and the most ranks.
const RANKS: std::ops::RangeInclusive<u32> = 3..=4096;

/// Options of `wv bench group`.
#[derive(Args, Debug)]
pub struct GroupArgs {
    /// Numbers of ranks, 3 to 4096 each [default: 4,64 in memory; 64 with an etcd]
    #[arg(long, value_delimiter = ',', value_parser = number::any::<u32>())]
    ranks: Vec<u32>,
    /// Where ranks meet: in the memory of this process, or in an etcd of one server that the command starts
    #[arg(long, value_enum, default_value_t = StoreKind::Memory)]
    store: StoreKind,
    /// Path or name of the etcd program
    #[arg(long, value_name = "FILE", default_value = "etcd")]
    etcd_program: PathBuf,
    /// Deaths, each with a return of the rank
    #[arg(long, default_value_t = 50, value_parser = number::any::<u32>())]
    deaths: u32,
    /// Time to live of a lease, in ms; an etcd counts it in whole seconds, 2 at least
    #[arg(long, default_value_t = 2000, value_parser = number::within(500_u64..=60_000))]
    lease_ms: u64,
    /// Seconds without an event, in which the command counts calls of the store
    #[arg(long, default_value_t = 10, value_parser = number::seconds())]
    peace: u64,
    /// Deaths of a newcomer that dies again and again, in memory; 0: none
    #[arg(long, default_value_t = 200, value_parser = number::any::<u32>())]
    crash_loops: u32,
    /// Where to write the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StoreKind {
    Memory,
    Etcd,
}

/// Runs `wv bench group`.
pub(super) fn run(args: &GroupArgs) -> ExitCode {
    finish(run_all(args), args.json.as_deref())
}

fn run_all(args: &GroupArgs) -> Result<GroupReport, BenchError> {
    let ranks = match (args.ranks.as_slice(), args.store) {
        ([], StoreKind::Memory) => &[4, 64][..],
        ([], StoreKind::Etcd) => &[64],
        (given, _) => given,
    };
    if ranks.iter().any(|ranks| !RANKS.contains(ranks)) {
        return Err(BenchError::Option {
            what: "--ranks",
            value: format!("{ranks:?}"),
            limit: format!("{} to {} each", RANKS.start(), RANKS.end()),
        });
    }
    if args.deaths == 0 {
        return Err(BenchError::Option {
            what: "--deaths",
            value: "0".to_owned(),
            limit: "at least 1".to_owned(),
        });
    }
    let (lease, peace) = (
        Duration::from_millis(args.lease_ms),
        Duration::from_secs(args.peace),
    );
    let mut rows = Vec::new();
    for &ranks in ranks {
        let case = GroupCase {
            ranks,
            deaths: args.deaths,
            lease,
            peace,
        };
        output::say(format_args!("measuring: {ranks} ranks"));
        rows.push(match args.store {
            StoreKind::Memory => measure(&case, &Meeting::in_memory())?,
            StoreKind::Etcd => with_etcd(args, &case)?,
        });
    }
    let loops = args.store == StoreKind::Memory && args.crash_loops > 0;
    if loops {
        output::say(format_args!(
            "measuring: a newcomer that dies again and again"
        ));
    }
    let crash_loop = loops.then(|| crash_loop(args.crash_loops, lease, peace));
    Ok(GroupReport {
        ran_on: match args.store {
            StoreKind::Memory => "threads+memory",
            StoreKind::Etcd => "threads+etcd",
        },
        deaths_are: match args.store {
            StoreKind::Memory => {
                "a rank's threads end, and all others see at once that it has ended"
            }
            StoreKind::Etcd => {
                "SIGKILL of the process that stands for a rank, seen by its pidfd; the rank's threads end"
            }
        },
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        lease_ms: lease.as_secs_f64() * 1e3,
        rows,
        crash_loop: crash_loop.transpose()?,
    })
}

/// Runs one case with an etcd of its own.
fn with_etcd(args: &GroupArgs, case: &GroupCase) -> Result<GroupRow, BenchError> {
    raise_descriptors();
    let refused = |reason: &dyn ToString| BenchError::Option {
        what: "--etcd-program",
        value: args.etcd_program.display().to_string(),
        limit: format!("an etcd that can be started: {}", reason.to_string()),
    };
    let parent = standard_parent();
    sweep(&parent);
    let name = format!("p{}-{:08x}", std::process::id(), fastrand::u32(..));
    let place = PrivateDir::create(&parent.join(name)).map_err(|error| refused(&error))?;
    let place = Removed(place);
    let etcd = Etcd::start(&args.etcd_program, 1, place.0.path());
    let etcd = etcd.map_err(|error| refused(&error.reason))?;
    let store = open_store(&etcd.url(), "bench")?;
    let helper: &dyn Fn() -> io::Result<Child> = &|| {
        let mut command = Command::new("sleep");
        tied::tie(&mut command);
        command.arg("86400").stdin(Stdio::null()).spawn()
    };
    let meeting = Meeting {
        store,
        servers: etcd.processes(),
        helper: Some(helper),
    };
    measure(case, &meeting)
}

/// The folder of the etcd's data, which is removed when this is dropped.
struct Removed(PrivateDir);

impl Drop for Removed {
    fn drop(&mut self) {
        self.0.remove();
    }
}

/// Allows this process as many descriptors as the system lets it have, because each rank watches the processes of all others.
fn raise_descriptors() {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(
            "the limit of descriptors stays at {:?}: {error}",
            limits.current
        );
    }
}
