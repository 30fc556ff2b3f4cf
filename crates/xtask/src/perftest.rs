//! Measures `ib_write_bw` and `ib_read_bw` with four QPs beside the same transfers of the host engine, between two processes with a
//! software HCA each, by UDP. They take turns, so that other load of the machine falls on all. If `ucx_perftest` is installed (Debian's
//! package ucx-utils), its puts have a turn, too.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::failure::{At, Failure, Result};
use crate::process::{
    Ending, Running, answer, check_interrupted, command, is_installed, succeeded,
};
use crate::tree::target;

/// The number of runs of each program.
const RUNS: usize = 5;
/// The number of QPs of a connection.
const QPS: &str = "4";
/// The number of bytes that a run of perftest moves. A run of the engine moves about as many.
const BYTES: u64 = 1 << 28;
/// The longest time of a run; far more than any takes.
const LIMIT: Duration = Duration::from_secs(120);
/// The commands of a row, as the documents show them.
pub(crate) const SHOWN: &str = "ib_write_bw -q 4, ib_read_bw -q 4, wv bench p2p --pattern fill";

/// The variables of UCX, which choose the queues and the GID that perftest uses.
const UCX: [(&str, &str); 4] = [
    ("UCX_TLS", "rc_v,ud_v"),
    ("UCX_NET_DEVICES", "mlx5_0:1"),
    ("UCX_IB_GID_INDEX", "3"),
    ("UCX_WARN_UNUSED_ENV_VARS", "n"),
];

/// A length of messages that are written or read.
struct Case {
    program: &'static str,
    /// The arguments of `wv bench p2p` for reads; empty for writes.
    read: &'static [&'static str],
    bytes: u64,
}

const CASES: [Case; 4] = [
    Case {
        program: "ib_write_bw",
        read: &[],
        bytes: 1 << 16,
    },
    Case {
        program: "ib_write_bw",
        read: &[],
        bytes: 1 << 20,
    },
    Case {
        program: "ib_read_bw",
        read: &["--read"],
        bytes: 1 << 16,
    },
    Case {
        program: "ib_read_bw",
        read: &["--read"],
        bytes: 1 << 20,
    },
];

/// Runs all cases. Returns for each case the rates of the programs in GB/s, as median, lowest and highest, and the rate of the engine
/// divided by perftest's.
pub(crate) fn measure() -> Result<Value> {
    let mut rates = CASES.map(|_| [Vec::new(), Vec::new(), Vec::new()]);
    for _ in 0..RUNS {
        for (case, [perftest, engine, ucx]) in CASES.iter().zip(&mut rates) {
            perftest.push(case.perftest()?);
            engine.push(case.engine()?);
            if case.read.is_empty() && is_installed("ucx_perftest") {
                ucx.push(case.ucx()?);
            }
        }
    }
    let rows = CASES.iter().zip(rates).map(|(case, rates)| {
        let with_ucx = !rates[2].is_empty();
        let [perftest, engine, ucx] = rates.map(spread);
        let ratio = engine[0] / perftest[0];
        json!({
            "program": case.program,
            "bytes": case.bytes,
            "perftest": perftest,
            "engine": engine,
            "ratio": ratio,
            "ucx": with_ucx.then_some(ucx),
        })
    });
    Ok(json!({ "ran_on": "softhca", "qps": QPS, "runs": RUNS, "rows": rows.collect::<Vec<_>>() }))
}

impl Case {
    fn perftest(&self) -> Result<f64> {
        let port = free_port()?;
        let size = self.bytes.to_string();
        // The number of messages of each QP.
        let count = (BYTES / self.bytes / 4).to_string();
        let (number, gid) = (port.to_string(), "3");
        let words = [
            "-F", "-d", "mlx5_0", "-x", gid, "-q", QPS, "-s", &size, "-n", &count, "-p", &number,
        ];
        let program = |more: &[&str]| {
            let mut sim = simulated();
            sim.arg(self.program).args(words).args(more);
            sim
        };
        let server = serve(&mut program(&[]), port)?;
        let printed = printed(&mut program(&["127.0.0.1"]))?;
        end(server, self.program)?;
        let rate = average(&printed).ok_or_else(|| {
            let name = self.program;
            Failure::new(1, format!("{name} has printed no rate:\n{printed}"))
        })?;
        // perftest's megabytes are 2^20 bytes.
        Ok(rate * f64::from(1 << 20) / 1e9)
    }

    fn ucx(&self) -> Result<f64> {
        let port = free_port()?;
        let (size, count) = (self.bytes.to_string(), (BYTES / self.bytes).to_string());
        let number = port.to_string();
        let program = |words: &[&str]| {
            let mut sim = simulated();
            sim.args(["ucx_perftest", "-p", &number]).args(words);
            sim.envs(UCX);
            sim
        };
        let server = serve(&mut program(&[]), port)?;
        let put = ["127.0.0.1", "-t", "ucp_put_bw", "-s", &size, "-n", &count];
        let printed = printed(&mut program(&put))?;
        end(server, "ucx_perftest")?;
        let rate = overall(&printed).ok_or_else(|| {
            Failure::new(1, format!("ucx_perftest has printed no rate:\n{printed}"))
        })?;
        // UCX's megabytes are also 2^20 bytes.
        Ok(rate * f64::from(1 << 20) / 1e9)
    }

    fn engine(&self) -> Result<f64> {
        let port = free_port()?;
        let place = format!("127.0.0.1:{port}");
        let (size, file) = (self.bytes.to_string(), json_file());
        let wv = |words: &[&str]| {
            let mut sim = simulated();
            sim.arg(target().join("wv")).args(["bench", "p2p"]);
            sim.args(["--qps", QPS]).args(words);
            sim
        };
        let server = serve(&mut wv(&["--serve", &place, "--runs", "1"]), port)?;
        let mut client = wv(&["--pattern", "fill", "--block", &size, "--rounds", "8"]);
        client.args(["--to", &place]).args(self.read);
        printed(client.arg("--json").arg(&file))?;
        end(server, "wv bench p2p --serve")?;
        let text = fs::read_to_string(&file).at(&file)?;
        let report: Value = serde_json::from_str(&text).unwrap_or_default();
        let number = |name: &str| report[name].as_f64();
        let rounds = report["options"]["rounds"].as_f64();
        let rate = (number("bytes"), rounds, number("total_seconds"));
        match rate {
            (Some(bytes), Some(rounds), Some(seconds)) => Ok(bytes * rounds / seconds / 1e9),
            _ => Err(Failure::new(1, format!("wv has reported no rate: {text}"))),
        }
    }
}

fn json_file() -> PathBuf {
    target().join("perftest.json")
}

/// Returns the begin of a command that runs another one with a software HCA.
fn simulated() -> Command {
    command(target().join("wv"), ["sim", "--"])
}

/// Starts a server, and waits until it listens on `port`.
fn serve(program: &mut Command, port: u16) -> Result<Running> {
    let program = program.stdin(Stdio::null()).stdout(Stdio::null());
    let mut server = Running::start(program, Ending::Asked)?;
    let start = Instant::now();
    while !is_listening(port)? {
        check_interrupted()?;
        if server.ended()?.is_some() || start.elapsed() > LIMIT {
            return Err(Failure::new(1, format!("no server listens at port {port}")));
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(server)
}

fn end(mut server: Running, name: &str) -> Result {
    match server.wait(Some(LIMIT))? {
        Some(status) => succeeded(status),
        None => Err(Failure::new(1, format!("the server of {name} goes on"))),
    }
}

fn printed(program: &mut Command) -> Result<String> {
    let answer = answer(program, Some(LIMIT))?;
    succeeded(answer.status)?;
    Ok(answer.text)
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).at("a port")?;
    Ok(listener.local_addr().at("a port")?.port())
}

/// Returns whether a program listens on `port`, by the tables of the system. A connection to the server would be taken for the client's.
fn is_listening(port: u16) -> Result<bool> {
    let mut tables = String::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        // A system without IPv6 has only one of the tables.
        tables += &fs::read_to_string(table).unwrap_or_default();
    }
    Ok(listens(&tables, port))
}

fn listens(tables: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let suffix = format!(":{port:04X}");
    tables.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().unwrap_or_default();
        local.ends_with(&suffix) && fields.nth(1) == Some(LISTEN)
    })
}

/// Returns the average rate in the one line of results that perftest prints: bytes, iterations, peak and average.
fn average(printed: &str) -> Option<f64> {
    let numbers = |line: &str| -> Option<Vec<f64>> {
        let fields = line.split_whitespace();
        fields.map(|field| field.parse().ok()).collect()
    };
    let mut lines = printed.lines().filter_map(numbers);
    let row = lines.find(|fields| fields.len() >= 4)?;
    row.get(3).copied()
}

/// Returns the rate of all iterations in the last line that `ucx_perftest` prints: iterations, three overheads, average and overall
/// bandwidth.
fn overall(printed: &str) -> Option<f64> {
    let mut lines = printed.lines();
    let last = lines.find_map(|line| line.strip_prefix("Final:"))?;
    last.split_whitespace().nth(5)?.parse().ok()
}

/// Returns the median, the lowest and the highest.
fn spread(mut rates: Vec<f64>) -> [f64; 3] {
    rates.sort_by(f64::total_cmp);
    let at = |place: usize| rates.get(place).copied().unwrap_or(f64::NAN);
    [
        at(rates.len() / 2),
        at(0),
        at(rates.len().saturating_sub(1)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_is_in_the_line_of_numbers() {
        let printed = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
                       65536      4096             1234.56            987.65            0.015802\n";
        assert_eq!(average(printed), Some(987.65));
        assert_eq!(average("#bytes\n 1 2 3\n"), None);
    }

    #[test]
    fn the_overall_rate_of_ucx_is_in_its_last_line() {
        let printed = "[thread 0]  1687  0.091  588.594  588.594  106.19  106.19  1699  1699\n\
                       Final:      4000  0.091  377.116  466.307  165.73  134.03  2652  2145\n";
        assert_eq!(overall(printed), Some(134.03));
        assert_eq!(overall("Waiting for connection...\n"), None);
    }

    #[test]
    fn a_port_has_a_listener_where_the_table_says_so() {
        let table = "  sl  local_address rem_address   st\n   \
                     0: 0100007F:1F90 00000000:0000 0A 00000000\n   \
                     1: 0100007F:1F91 00000000:0000 01 00000000\n";
        assert!(listens(table, 8080));
        assert!(!listens(table, 8081));
        assert!(!listens(table, 80));
    }

    #[test]
    fn rates_are_summed_up_by_their_median_and_ends() {
        assert_eq!(spread(vec![3.0, 1.0, 2.0]), [2.0, 1.0, 3.0]);
    }
}
