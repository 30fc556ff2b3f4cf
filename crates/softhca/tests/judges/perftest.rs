//! perftest's `ib_{write,read,send,atomic}_{bw,lat}` between two processes: a sample of the grid of their options that
//! has every pair of values, or the whole grid with `WV_TEST_FULL=1`.
//!
//! These tools do not look at the data (the pingpongs and the pyverbs tests do): they count completions, and every error
//! completion ends them.

use std::time::Duration;

use super::grid::{self, Cell, Tool};
use super::namespace::Namespaces;
use softhca_rig::tools::pair::{self, Places};
use softhca_rig::tools::programs::{LIMIT, Scratch, is_installed, seed};

const COMPLAINTS: &[&str] = &["rror", "ailed", "ouldn't", "nable to"];

/// Numbers of messages, such that no run takes long. They are multiples of the lists of `-l 8`.
fn iterations(cell: &Cell) -> &'static str {
    let is_unreliable = cell.has("-c UC") || cell.has("-c UD");
    match (cell.tool.is_latency, cell.has("-a")) {
        (_, true) => "8",
        (true, false) => "200",
        // What a socket has room for, since no QP repeats the rest.
        (false, false) if is_unreliable => "16",
        (false, false) if cell.has("-s 65536") => "200",
        (false, false) => "800",
    }
}

fn run(places: &Places, scratch: &Scratch, cell: &Cell) -> Result<Duration, String> {
    run_by(&["-x", "3"], places, scratch, cell)
}

/// With these options about the GID.
fn run_by(
    gid: &[&'static str],
    places: &Places,
    scratch: &Scratch,
    cell: &Cell,
) -> Result<Duration, String> {
    let mut options = vec!["-d", "mlx5_0", "-F", "-n", iterations(cell)];
    options.extend(gid);
    options.extend(cell.options());
    let ended = pair::run(scratch, places, &cell.tool.name(), &options, LIMIT);
    ended.check(COMPLAINTS)?;
    let rows = ended
        .client
        .printed
        .lines()
        .filter(|line| is_row(line))
        .count();
    let expected = match (cell.has("-a"), cell.has("-c UD")) {
        (true, false) => 23, // 2 bytes to 8 MiB
        _ => 1,
    };
    if rows < expected {
        return Err(format!(
            "{rows} rows of results, not {expected}:\n{}",
            ended.client.report()
        ));
    }
    Ok(ended.took())
}

/// Size, iterations and figures.
/// A line that begins with the numbers of a result. A tool that finds the clock of the CPU odd writes so after the last of them.
fn is_row(line: &str) -> bool {
    let fields = line.split_whitespace();
    let numbers = fields.take_while(|field| field.parse::<f64>().is_ok());
    numbers.count() >= 4
}

#[test]
fn a_row_of_results_counts_with_a_remark_of_the_tool_behind_it() {
    let remark = "Correlation coefficient r^2: 0.862897 < 0.9";
    let row = " 64         8                0.40               0.40      0.006619";
    assert!(is_row(row) && is_row(&format!("{row}{remark}")));
    for line in [
        "",
        remark,
        "1 2 3",
        " #bytes     #iterations    BW peak[MB/sec]",
    ] {
        assert!(!is_row(line), "{line}");
    }
}

fn check(verb: &'static str, is_latency: bool) {
    let tool = Tool { verb, is_latency };
    if !is_installed(&tool.name(), "perftest", &tool.name()) {
        return;
    }
    let seed = seed();
    let cells = grid::cells();
    let existing = cells.iter().filter(|cell| cell.tool == tool).count();
    let is_full = std::env::var_os("WV_TEST_FULL").is_some();
    let mut cells = if is_full {
        cells
    } else {
        grid::sample(&cells, seed)
    };
    cells.retain(|cell| cell.tool == tool);

    let (scratch, places) = (Scratch::new(), Places::here());
    let mut failures = Vec::new();
    let mut slowest = (Duration::ZERO, String::new());
    for cell in &cells {
        match run(&places, &scratch, cell) {
            Ok(took) => slowest = slowest.max((took, cell.line())),
            Err(report) => failures.push(report),
        }
    }
    println!(
        "{}: {} cells run of {existing} cells existing, seed {seed}",
        tool.name(),
        cells.len()
    );
    println!("slowest: {:.2} s, {}", slowest.0.as_secs_f64(), slowest.1);
    assert!(
        failures.is_empty(),
        "{} of {} cells failed (SEED={seed}):\n{}",
        failures.len(),
        cells.len(),
        failures.join("\n")
    );
}

#[test]
fn ib_write_bw_runs_with_all_pairs_of_options() {
    check("write", false);
}

#[test]
fn ib_write_lat_runs_with_all_pairs_of_options() {
    check("write", true);
}

#[test]
fn ib_read_bw_runs_with_all_pairs_of_options() {
    check("read", false);
}

#[test]
fn ib_read_lat_runs_with_all_pairs_of_options() {
    check("read", true);
}

#[test]
fn ib_send_bw_runs_with_all_pairs_of_options() {
    check("send", false);
}

#[test]
fn ib_send_lat_runs_with_all_pairs_of_options() {
    check("send", true);
}

#[test]
fn ib_atomic_bw_runs_with_all_pairs_of_options() {
    check("atomic", false);
}

#[test]
fn ib_atomic_lat_runs_with_all_pairs_of_options() {
    check("atomic", true);
}

/// Without `-x` a tool chooses a GID by itself. Two tools run so, and two services run by the first entry; with `WV_TEST_FULL=1`
/// all tools, and all services by every entry.
#[test]
fn tools_run_by_the_gid_that_they_choose_and_by_others() {
    if !is_installed("ib_write_bw", "perftest", "perftest by every GID") {
        return;
    }
    let is_full = std::env::var_os("WV_TEST_FULL").is_some();
    let (scratch, places) = (Scratch::new(), Places::here());
    let cells = grid::cells();
    for tool in Tool::all() {
        if is_full || ["ib_write_lat", "ib_send_bw"].contains(&tool.name().as_str()) {
            let cell = cells.iter().find(|cell| cell.tool == tool).unwrap();
            run_by(&[], &places, &scratch, cell).unwrap_or_else(|report| panic!("{report}"));
        }
    }
    let (services, indices): (&[_], &[_]) = if is_full {
        (&["-c RC", "-c UC", "-c UD", "-c XRC"], &["0", "1", "2"])
    } else {
        (&["-c UD", "-c XRC"], &["0"])
    };
    for service in services {
        let of_service = |cell: &&Cell| cell.tool.name() == "ib_send_lat" && cell.has(service);
        let cell = cells.iter().find(of_service).unwrap();
        for index in indices {
            let gid = ["-x", index];
            run_by(&gid, &places, &scratch, cell).unwrap_or_else(|report| panic!("{report}"));
        }
    }
}

#[test]
fn each_tool_runs_between_two_network_namespaces() {
    if !is_installed(
        "ib_write_bw",
        "perftest",
        "perftest between network namespaces",
    ) {
        return;
    }
    let Some(namespaces) = Namespaces::new("perftest between network namespaces") else {
        return;
    };
    let scratch = Scratch::new();
    let cells = grid::cells();
    for tool in Tool::all() {
        let cell = cells.iter().find(|cell| cell.tool == tool).unwrap();
        run(&namespaces.places(), &scratch, cell).unwrap_or_else(|report| panic!("{report}"));
    }
}
