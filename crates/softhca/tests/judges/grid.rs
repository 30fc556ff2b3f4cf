//! The grid of perftest runs: which options go together, and a sample of it that has every pair of option values.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use softhca_rig::tools::programs::package_version;

/// One of the eight tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tool {
    pub(crate) verb: &'static str,
    pub(crate) is_latency: bool,
}

impl Tool {
    pub(crate) fn name(self) -> String {
        format!(
            "ib_{}_{}",
            self.verb,
            if self.is_latency { "lat" } else { "bw" }
        )
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let measures = |verb| [false, true].map(|is_latency| Self { verb, is_latency });
        ["write", "read", "send", "atomic"]
            .into_iter()
            .flat_map(measures)
    }

    /// The values that each option can have with this tool. An option that means nothing to this tool has the empty value only.
    fn axes(self) -> [&'static [&'static str]; 8] {
        const NONE: &[&str] = &[""];
        let is_bandwidth = !self.is_latency;
        let only = |condition: bool, values: &'static [&'static str]| {
            if condition { values } else { NONE }
        };
        let (services, sizes, extras): (&[_], &[_], &[_]) = match self.verb {
            "send" => (
                &["-c RC", "-c UC", "-c UD", "-c XRC"],
                &["-s 2", "-s 65536", "-a"],
                if is_bandwidth {
                    &[
                        "",
                        "-m 256",
                        "-m 1024",
                        "--use-srq",
                        "-l 8",
                        "-Q 1",
                        "-r 16",
                        "--mr_per_qp",
                    ]
                } else {
                    &["", "-m 256", "-m 1024", "--use-srq"]
                },
            ),
            "write" => (
                &["-c RC", "-c UC", "-c XRC"],
                &["-s 2", "-s 65536", "-a"],
                if is_bandwidth {
                    &["", "-m 256", "-m 1024", "-l 8", "-Q 1", "--mr_per_qp"]
                } else {
                    &["", "-m 256", "-m 1024"]
                },
            ),
            "read" => (
                &["-c RC", "-c XRC"],
                &["-s 2", "-s 65536", "-a"],
                if is_bandwidth {
                    &["", "-m 256", "-m 1024", "-o 1", "-l 8", "--mr_per_qp"]
                } else {
                    &["", "-m 256", "-m 1024"]
                },
            ),
            _ => (
                &["-c RC", "-c XRC"],
                &["-A FETCH_AND_ADD", "-A CMP_AND_SWAP"],
                if is_bandwidth {
                    &["", "-o 1", "-l 8"]
                } else {
                    NONE
                },
            ),
        };
        let is_inlined = matches!(self.verb, "write" | "send");
        [
            services,
            sizes,
            only(is_bandwidth, &["", "-q 4"]),
            only(is_bandwidth, &["", "-b"]),
            only(is_inlined, &["", "-I 64"]),
            only(self.verb != "write", &["", "-e"]),
            &["", "--use_old_post_send"],
            extras,
        ]
    }
}

/// One run: a tool and its options, one of each axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) tool: Tool,
    options: [&'static str; 8],
}

impl Cell {
    pub(crate) fn options(&self) -> impl Iterator<Item = &'static str> {
        self.options
            .iter()
            .flat_map(|option| option.split_whitespace())
    }

    pub(crate) fn has(&self, option: &str) -> bool {
        self.options.contains(&option)
    }

    /// As a person would type it, less device and port.
    pub(crate) fn line(&self) -> String {
        let options: Vec<_> = self.options().collect();
        format!("{} {}", self.tool.name(), options.join(" "))
    }

    /// All values of this cell in pairs, the tool being one of them. An option that is left out is a value.
    fn pairs(&self) -> BTreeSet<(usize, String, usize, &'static str)> {
        let mut pairs = BTreeSet::new();
        for (first, value) in self.options.iter().enumerate() {
            pairs.insert((usize::MAX, self.tool.name(), first, *value));
            for (second, other) in self.options.iter().enumerate().skip(first + 1) {
                pairs.insert((first, (*value).to_owned(), second, *other));
            }
        }
        pairs
    }
}

/// All cells that a tool and a device can run.
pub(crate) fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for tool in Tool::all() {
        let mut rows = vec![[""; 8]];
        for (axis, values) in tool.axes().into_iter().enumerate() {
            let with_each = |row: [&'static str; 8]| {
                values.iter().map(move |value| {
                    let mut row = row;
                    row[axis] = value;
                    row
                })
            };
            rows = rows.into_iter().flat_map(with_each).collect();
        }
        let new = |options| Cell { tool, options };
        cells.extend(rows.into_iter().map(new).filter(is_possible));
    }
    cells
}

/// Not what perftest refuses, cannot do on any NIC, or does wrong by itself.
fn is_possible(cell: &Cell) -> bool {
    let tool = cell.tool.name();
    // Before 23.07 this tool waits for completions of its two CQs on one channel. It takes the event of a received message for that
    // of its own send, and goes on with a work completion that it never read. Source: "Use separate completion channels for send
    // and receive", commit 2209cf8 of perftest. It ends so on any device that is quick enough.
    let is_broken = tool == "ib_send_lat" && cell.has("-e") && is_before_23_07();
    // Nor do the bandwidth tools poll all completions before they wait for the next event. They poll 16 of a send queue, as many as
    // one receive queue has; these options bring more. Source: "Fix BW tests stuck pending completion event", commit 14955fe.
    let is_stuck = cell.has("-e")
        && (cell.has("-Q 1") || cell.has("-l 8") || tool == "ib_send_bw" && cell.has("-b"))
        && is_before_23_07();
    // Messages of UD are single packets; perftest knows it, unless an option sets a size.
    let is_too_long = cell.has("-c UD") && cell.has("-s 65536");
    // Nothing repeats what comes before its receive is posted: with these options perftest posts fewer than it sends.
    let is_unreliable = cell.has("-c UC") || cell.has("-c UD");
    let is_overrun =
        is_unreliable && (cell.has("-r 16") || cell.has("--use-srq") && cell.has("-q 4"));
    // Nor what a socket has no room for, and 8 MiB are more than a socket takes. WRITEs that are lost are missed only
    // by the tool that looks for them in memory.
    let is_drowned = cell.has("-c UC") && cell.has("-a") && tool != "ib_write_bw";
    // XRC brings an SRQ of its own.
    let is_double = cell.has("-c XRC") && cell.has("--use-srq");
    !(is_broken || is_stuck || is_too_long || is_overrun || is_drowned || is_double)
}

/// Debian 12 has 4.5, which came before 23.01.
fn is_before_23_07() -> bool {
    static ANSWER: LazyLock<bool> = LazyLock::new(|| {
        let version = package_version("perftest").unwrap_or_default();
        let mut numbers = version
            .split(|c: char| !c.is_ascii_digit())
            .map(|number| number.parse::<u32>().unwrap_or(0));
        let (year, month) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        (year, month) < (23, 7)
    });
    *ANSWER
}

/// Cells that have all pairs of values which any cell has; which ones is up to the seed.
pub(crate) fn sample(cells: &[Cell], seed: u64) -> Vec<Cell> {
    let mut order: Vec<_> = cells.iter().collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut order);
    // Pairs by number.
    let mut numbers = BTreeMap::new();
    let mut open: Vec<bool> = Vec::new();
    let mut candidates = Vec::new();
    for cell in order {
        let mut pairs = Vec::new();
        for pair in cell.pairs() {
            let number = *numbers.entry(pair).or_insert(open.len());
            if number == open.len() {
                open.push(true);
            }
            pairs.push(number);
        }
        candidates.push((cell, pairs));
    }
    let mut sample = Vec::new();
    loop {
        for (_, pairs) in &mut candidates {
            pairs.retain(|pair| open[*pair]);
        }
        candidates.retain(|(_, pairs)| !pairs.is_empty());
        let Some((cell, pairs)) = candidates.iter().max_by_key(|(_, pairs)| pairs.len()) else {
            return sample;
        };
        pairs.iter().for_each(|pair| open[*pair] = false);
        sample.push((*cell).clone());
    }
}

#[test]
fn a_sample_has_all_pairs_and_is_small() {
    let cells = cells();
    let pairs = |cells: &[Cell]| -> BTreeSet<_> { cells.iter().flat_map(Cell::pairs).collect() };
    for seed in 0..3 {
        let sample = sample(&cells, seed);
        assert_eq!(pairs(&sample), pairs(&cells), "seed {seed}");
        assert!(
            sample.len() < 100,
            "seed {seed}: {} of {}",
            sample.len(),
            cells.len()
        );
        assert!(
            sample.iter().all(|cell| cells.contains(cell)),
            "seed {seed}"
        );
    }
}
