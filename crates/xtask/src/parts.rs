//! The parts of `./x test`: how long each may take, and which tests it runs.

use crate::failure::{Failure, Result};
use crate::programs::{Chosen, Test, Tree};

/// The seconds that each part may take on 2 cores. The time that a part took is printed beside it. On a machine that does other work it
/// takes longer.
const BUDGETS: &[(&str, u32)] = &[
    ("builds", 480),
    ("tests", 180),
    ("judges", 345),
    ("sanitizers", 60),
    ("sass", 120),
    ("control", 90),
    ("device", 150),
    ("engine", 120),
    ("moe", 150),
    ("python", 240),
    ("interop", 180),
    ("membership", 150),
];

/// The test programs of each part, by the names that cargo-nextest gives them. `program.module::` means some tests of a program, and `*`
/// stands for any text. A test that no line names is in part `tests`. `./x test` fails if two parts have the same test, or if no program
/// has a name of the table.
/// - judges: suites and tools from outside that judge the software HCA, and comparisons with them.
/// - control: what brings queues up before a kernel posts: commands and lives of QPs, places of GPUs and NICs, the ladders, doctor.
/// - device: the device library: every operation in every mode, every failure, the posting protocol's model.
/// - engine: the host engine, and the models of its protocols.
/// - moe: dispatch and combine: data, orders, faults, models, and the C interface.
/// - membership: ranks that die and come back, and the stores in which they meet. These tests wait more than they work.
const PARTS: &str = "
judges      softhca::judges softhca::rxe softhca::capture_processes wv::rxe
control     warpverbs::qp_lifecycle warpverbs::golden warpverbs::bindings warpverbs::memheap warpverbs::topology
control     warpverbs::cuda_fake warpverbs::moe.ladders:: wv::doctor
device      warpverbs::conformance warpverbs::failures warpverbs::ops warpverbs::order simt-tests::order
device      models::posting warpverbs::peer_defects warpverbs::put_hold warpverbs::put_model warpverbs::put_modes
device      warpverbs::put_mutants warpverbs::team
engine      models::engine warpverbs::engine
moe         models::moe moe-reference warpverbs::moe.faults:: warpverbs::moe.graphs:: warpverbs::moe.grid:: warpverbs::moe.layers::
moe         warpverbs::moe.arguments:: warpverbs::moe.options:: warpverbs::moe.orders:: warpverbs::moe.team:: warpverbs::moe_* warpverbs-capi*
membership  warpverbs::membership warpverbs.membership::scenarios:: rendezvous::store wv::demo.members::
";

/// The number of tests of a part that run at the same time on a machine with fewer cores. Most tests wait for deadlines most of their time.
const THREADS: &[(&str, u32)] = &[
    ("tests", 4),
    ("control", 4),
    ("device", 4),
    ("engine", 4),
    ("moe", 6),
    ("membership", 8),
];

/// The name of the part with the tests that no line names.
const REST: &str = "tests";
/// The name that stands for the tests of all parts.
pub(crate) const ALL: &str = "all";

pub(crate) fn budget_of(part: &str) -> Option<u32> {
    let row = BUDGETS.iter().find(|(name, _)| *name == part);
    row.map(|(_, seconds)| *seconds)
}

pub(crate) fn threads_of(part: &str) -> Option<u32> {
    let row = THREADS.iter().find(|(name, _)| *name == part);
    row.map(|(_, threads)| (*threads).max(cores()))
}

pub(crate) fn cores() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(cores).unwrap_or(u32::MAX)
}

/// The table that says which part of a run has which tests.
pub(crate) struct Parts {
    rows: Vec<Row>,
}

struct Row {
    part: String,
    program: String,
    /// The begin of the names of the tests; empty: all tests of the program.
    tests: String,
}

impl Parts {
    /// Returns the parts of `./x test`.
    pub(crate) fn of_the_tests() -> Self {
        Self::read(PARTS)
    }

    /// Reads a table. A line has the name of a part, then patterns.
    fn read(table: &str) -> Self {
        let row = |part: &str, pattern: &str| {
            let (program, tests) = pattern.split_once('.').unwrap_or((pattern, ""));
            Row {
                part: part.to_owned(),
                program: program.to_owned(),
                tests: tests.to_owned(),
            }
        };
        let mut rows = Vec::new();
        for line in table.lines() {
            let mut words = line.split_whitespace();
            if let Some(part) = words.next() {
                rows.extend(words.map(|pattern| row(part, pattern)));
            }
        }
        Self { rows }
    }

    /// Returns the names of the parts, each once; the part of the rest is first.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names = vec![REST];
        for row in &self.rows {
            if !names.contains(&row.part.as_str()) {
                names.push(&row.part);
            }
        }
        names
    }

    /// Returns the parts that have a test. If the table has no fault, there is one.
    fn having<'a>(&'a self, program: &str, test: &str) -> Vec<&'a str> {
        let rows = self.rows.iter().filter(|row| row.has(program, test));
        rows.map(|row| row.part.as_str()).collect()
    }

    fn part_of(&self, program: &str, test: &str) -> &str {
        self.having(program, test).first().copied().unwrap_or(REST)
    }

    /// Returns the programs with the tests of a part. Programs without a test of the part are left out.
    pub(crate) fn select<'a>(&self, tree: &'a Tree, part: &str) -> Result<Vec<Chosen<'a>>> {
        if part == ALL {
            return Ok(tree.all());
        }
        let names = self.names();
        if !names.contains(&part) {
            let told = format!("no such part: {part}. Parts: {}", names.join(" "));
            return Err(Failure::new(1, told));
        }
        let mut chosen = tree.all();
        for Chosen { program, tests } in &mut chosen {
            tests.retain(|test: &Test| self.part_of(&program.id, &test.name) == part);
        }
        chosen.retain(|one| !one.tests.is_empty());
        Ok(chosen)
    }

    /// Returns the faults of the table: tests in two parts, and names that no test has.
    pub(crate) fn faults(&self, tree: &Tree) -> Vec<String> {
        let mut found = Vec::new();
        for program in &tree.programs {
            for test in &program.tests {
                let parts = self.having(&program.id, &test.name);
                if parts.len() > 1 {
                    let parts = parts.join(" and ");
                    found.push(format!(
                        "{} {} is in the parts {parts}",
                        program.id, test.name
                    ));
                }
            }
        }
        for Row {
            part,
            program,
            tests,
        } in &self.rows
        {
            let matches = |name: &str| is_like(name, program);
            let programs: Vec<_> = tree.programs.iter().filter(|p| matches(&p.id)).collect();
            let mut every = programs.iter().flat_map(|program| &program.tests);
            if programs.is_empty() {
                found.push(format!(
                    "part {part} names {program}, which is no test program"
                ));
            } else if !tests.is_empty() && !every.any(|test| test.name.starts_with(tests)) {
                found.push(format!(
                    "part {part} names {program}.{tests}, of which there is no test"
                ));
            }
        }
        found
    }
}

impl Row {
    fn has(&self, program: &str, test: &str) -> bool {
        is_like(program, &self.program) && test.starts_with(&self.tests)
    }
}

/// Returns whether a name fits a pattern, in which `*` stands for any text.
fn is_like(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            let mut ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            ends.any(|at| is_like(&name[at..], rest))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runners::filter_of;
    use crate::test_trees::tree;

    const TABLE: &str = "judges p::judges\nmoe p::moe_*\nlate p::demo.members::";

    fn sample() -> Tree {
        tree(&[
            ("p::demo", &["members::die", "direct"]),
            ("p::judges", &["a"]),
            ("p::moe_data", &["b"]),
            ("p::new", &["c"]),
        ])
    }

    #[test]
    fn every_test_is_in_one_part_and_what_is_new_in_the_rest() {
        let (parts, tree) = (Parts::read(TABLE), sample());
        assert_eq!(parts.names(), ["tests", "judges", "moe", "late"]);
        let chosen = |part: &str| -> Vec<String> {
            let chosen = parts.select(&tree, part).unwrap().into_iter();
            let named = chosen.flat_map(|one| {
                let id = one.program.id.clone();
                one.tests
                    .into_iter()
                    .map(move |test| format!("{id} {}", test.name))
            });
            named.collect()
        };
        assert_eq!(chosen("tests"), ["p::demo direct", "p::new c"]);
        assert_eq!(chosen("judges"), ["p::judges a"]);
        assert_eq!(chosen("moe"), ["p::moe_data b"]);
        assert_eq!(chosen("late"), ["p::demo members::die"]);
        assert_eq!(chosen("all").len(), 5);
        assert_eq!(parts.faults(&tree), Vec::<String>::new());
    }

    #[test]
    fn a_test_in_two_parts_and_names_of_nothing_are_faults() {
        let table = format!("{TABLE}\nother p::moe_data p::gone p::demo.gone::");
        let faults = Parts::read(&table).faults(&sample());
        assert_eq!(faults.len(), 3, "{faults:?}");
        for (fault, text) in faults
            .iter()
            .zip(["moe and other", "p::gone", "p::demo.gone::"])
        {
            assert!(fault.contains(text), "{fault}");
        }
    }

    #[test]
    fn a_part_that_the_table_lacks_is_refused() {
        assert!(Parts::read(TABLE).select(&sample(), "typo").is_err());
    }

    #[test]
    fn nextest_is_given_single_tests_where_a_program_has_others() {
        let tree = sample();
        let selection = Parts::read(TABLE).select(&tree, "tests").unwrap();
        assert_eq!(
            filter_of(&selection),
            "(binary_id(=p::demo) and (test(=direct))) or binary_id(=p::new)"
        );
    }

    #[test]
    fn a_star_stands_for_anything() {
        assert!(is_like("p::moe_data", "p::moe_*") && is_like("p::moe_", "p::moe_*"));
        assert!(is_like("a-capi::x", "*capi*") && is_like("x", "x"));
        assert!(!is_like("p::moe", "p::moe_*") && !is_like("xy", "x") && !is_like("xy", "*x"));
    }

    #[test]
    fn every_budget_and_bound_is_of_a_part_with_a_line_or_a_step() {
        let parts = Parts::of_the_tests();
        let of_steps = ["builds", "sanitizers", "sass", "python", "interop"];
        for (part, _) in BUDGETS.iter().chain(THREADS) {
            assert!(
                parts.names().contains(part) || of_steps.contains(part),
                "{part}"
            );
        }
    }
}
