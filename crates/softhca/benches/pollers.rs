//! Programs of others between two processes, as they come. Most of them busy-poll, so on two cores they and the engines of both
//! HCAs share each core. `cargo bench -p softhca --bench pollers [-- NAME..]`, where a NAME is a part of a row's name.
//!
//! Each figure is the median of [`RUNS`] runs with the least and the largest. As root every row runs a second time as an ordinary user.
//! `SOFTHCA_BENCH_LIBRARY` names another libsofthca.so, to compare two in one session.

use softhca_rig::tools::pair::{self, Places};
use softhca_rig::tools::programs::{self, Running, Scratch, is_installed, package_version};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

const RUNS: usize = 5;
const LIMIT: Duration = Duration::from_secs(120);
/// Ranks of the row on idle programs.
const RANKS: usize = 8;

/// A pair of programs and the figure that its client prints.
struct Row {
    name: &'static str,
    package: &'static str,
    program: &'static str,
    options: &'static [&'static str],
    unit: &'static str,
    figure: fn(&str) -> Option<f64>,
}

const PERFTEST: &str = "perftest";
const LATENCY: &[&str] = &["-d", "mlx5_0", "-x", "3", "-F", "-n", "1000"];

const ROWS: [Row; 6] = [
    Row {
        name: "ib_write_lat, typical",
        package: PERFTEST,
        program: "ib_write_lat",
        options: LATENCY,
        unit: "us",
        figure: |printed| column(printed, 4),
    },
    Row {
        name: "ib_send_lat, typical",
        package: PERFTEST,
        program: "ib_send_lat",
        options: LATENCY,
        unit: "us",
        figure: |printed| column(printed, 4),
    },
    Row {
        name: "ib_read_lat, typical",
        package: PERFTEST,
        program: "ib_read_lat",
        options: LATENCY,
        unit: "us",
        figure: |printed| column(printed, 4),
    },
    Row {
        name: "ibv_rc_pingpong -g 3, a round trip",
        package: "ibverbs-utils",
        program: "ibv_rc_pingpong",
        options: &["-d", "mlx5_0", "-g", "3", "-n", "1000"],
        unit: "us",
        figure: |printed| before(printed, " usec/iter"),
    },
    Row {
        name: "pyverbs fetch_add, median",
        package: "python3-pyverbs",
        program: "/usr/bin/python3",
        options: &[
            concat!(env!("CARGO_MANIFEST_DIR"), "/benches/fetch_add.py"),
            "-n",
            "1000",
        ],
        unit: "us",
        figure: |printed| after(printed, "median "),
    },
    Row {
        name: "ib_write_bw -s 65536, average",
        package: PERFTEST,
        program: "ib_write_bw",
        options: &["-d", "mlx5_0", "-x", "3", "-F", "-s", "65536", "-n", "5000"],
        unit: "MB/s",
        figure: |printed| column(printed, 3),
    },
];

/// Returns a column of the one line of results that perftest prints.
fn column(printed: &str, number: usize) -> Option<f64> {
    let row = printed.lines().find_map(|line| {
        let fields: Option<Vec<f64>> = line
            .split_whitespace()
            .map(|field| field.parse().ok())
            .collect();
        fields.filter(|fields| fields.len() >= 4)
    })?;
    row.get(number).copied()
}

fn before(printed: &str, end: &str) -> Option<f64> {
    let (start, _) = printed.split_once(end)?;
    start.split_whitespace().last()?.parse().ok()
}

fn after(printed: &str, start: &str) -> Option<f64> {
    let (_, rest) = printed.split_once(start)?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Returns how to become an ordinary user; nothing where this process is one.
fn users() -> Vec<(&'static str, Vec<String>)> {
    // The owner of a process's directory in /proc is its user.
    let is_root =
        fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !is_root {
        return vec![("user", Vec::new())];
    }
    let ordinary = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    vec![
        ("root", Vec::new()),
        ("user", ordinary.map(str::to_owned).to_vec()),
    ]
}

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    println!("{cores} cores, Linux {}", kernel.trim());
    for row in ROWS.iter().filter(|row| is_wanted(row.name)) {
        if package_version(row.package).is_none()
            || !is_installed(row.program, row.package, row.name)
        {
            continue;
        }
        for (user, prefix) in users() {
            let figures = (0..RUNS).map(|_| run(row, &prefix)).collect();
            report(row.name, user, figures, row.unit);
        }
    }
    let idle_row = "8 idle ranks after traffic, all engines";
    if is_wanted(idle_row) && package_version("python3-pyverbs").is_some() {
        for (user, prefix) in users() {
            report(idle_row, user, idle(&prefix), "% of a core");
        }
    }
}

/// A scratch directory that an ordinary user may write to.
fn scratch() -> Scratch {
    let scratch = Scratch::new();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).unwrap();
    scratch
}

/// Returns the library that is measured.
fn library() -> String {
    std::env::var("SOFTHCA_BENCH_LIBRARY")
        .unwrap_or_else(|_| programs::library().to_string_lossy().into_owned())
}

fn run(row: &Row, prefix: &[String]) -> f64 {
    let scratch = scratch();
    let mut places = Places::here();
    for (name, place) in [
        ("server", &mut places.server),
        ("client", &mut places.client),
    ] {
        place.prefix = prefix.to_vec();
        let trees = scratch.path().join(format!("{name}-trees"));
        fs::create_dir(&trees).unwrap();
        fs::set_permissions(&trees, fs::Permissions::from_mode(0o777)).unwrap();
        place.environment = vec![
            ("LD_PRELOAD", library()),
            ("XDG_RUNTIME_DIR", trees.to_string_lossy().into_owned()),
        ];
    }
    let ended = pair::run(&scratch, &places, row.program, row.options, LIMIT);
    if let Err(report) = ended.check(&[]) {
        panic!("{report}");
    }
    (row.figure)(&ended.client.printed)
        .unwrap_or_else(|| panic!("no figure in:\n{}", ended.client.report()))
}

/// Each of [`RANKS`] programs sends itself something and then sleeps. Five samples of the share of a core that their engines take
/// from then on, in percent.
fn idle(prefix: &[String]) -> Vec<f64> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/idle.py");
    let scratch = scratch();
    let ranks: Vec<Running> = (0..RANKS)
        .map(|rank| {
            let mut command = scratch.preloaded(prefix, "/usr/bin/python3");
            command.arg(&script).env("LD_PRELOAD", library());
            Running::start(command, &scratch, &format!("rank{rank}"))
        })
        .collect();
    let is_ready = |rank: usize| {
        let printed = fs::read_to_string(scratch.path().join(format!("rank{rank}")));
        printed.is_ok_and(|printed| printed.contains("idle"))
    };
    let start = Instant::now();
    while !(0..RANKS).all(is_ready) {
        assert!(start.elapsed() < LIMIT, "the ranks did not come up");
        std::thread::sleep(Duration::from_millis(10));
    }
    (0..RUNS)
        .map(|_| {
            let (before, start) = (engines(&ranks), Instant::now());
            std::thread::sleep(Duration::from_millis(500));
            (engines(&ranks) - before).as_secs_f64() / start.elapsed().as_secs_f64() * 100.0
        })
        .collect()
}

/// Processor time of all engine threads.
fn engines(ranks: &[Running]) -> Duration {
    let times = ranks.iter().map(|rank| {
        let tasks = fs::read_dir(format!("/proc/{}/task", rank.id())).expect("a rank runs");
        let engine = tasks
            .filter_map(Result::ok)
            .map(|task| task.path())
            .find(|task| {
                fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "softhca")
            })
            .expect("a rank has an engine thread");
        let times = fs::read_to_string(engine.join("schedstat")).unwrap();
        Duration::from_nanos(times.split_whitespace().next().unwrap().parse().unwrap())
    });
    times.sum()
}

/// Prints a row: the median of `figures`, the least and the largest.
fn report(name: &str, user: &str, mut figures: Vec<f64>, unit: &str) {
    figures.sort_by(f64::total_cmp);
    let (least, middle, largest) = (
        figures[0],
        figures[figures.len() / 2],
        figures[figures.len() - 1],
    );
    println!("{name:<42} {user}  {middle:10.2} {unit} ({least:.2} to {largest:.2})");
}
