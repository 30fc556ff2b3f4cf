//! `./x sanitize`: runs kernels on the CPU under the checker of memory order and under AddressSanitizer (kernels/README.md).

use std::ffi::OsString;
use std::path::PathBuf;

use crate::failure::Result;
use crate::programs::Build;
use crate::runners::Profile;
use crate::steps::{Run, Wanted, wants_large_counts};
use crate::tree::prepare;

/// Tests whose kernels are compiled with a sanitizer. They have a target directory of their own, so that `wv` stays the program that was
/// tested.
struct Sanitized<'a> {
    feature: &'a str,
    package: &'a str,
    tests: &'a str,
    /// True if the tests run with some hundred seeds. Otherwise they run with few.
    many: bool,
    /// Words in the names of tests that are left out.
    left_out: &'a [&'a str],
}

/// Tests of planted defects and their repaired twins, under the checker of memory order. `PLANTED_MEMORY` has those under AddressSanitizer.
const PLANTED_ORDER: Sanitized<'_> = Sanitized {
    feature: "tsan",
    package: "simt-tests",
    tests: "order",
    many: false,
    left_out: &[],
};
const PLANTED_MEMORY: Sanitized<'_> = Sanitized {
    feature: "asan",
    tests: "memory",
    ..PLANTED_ORDER
};

/// Tests of the library under the checker of memory order: every operation at every scope, every kind of QP, every failure, signals,
/// guards, recovery, hold-back. Of MoE they test data, every order of phases, late and dead ranks, masks, held calls, views. These are left
/// out, by name:
/// - 70_000, 65534, more_than_a_gib: each byte would be noted;
/// - a_wrong_choice_is_seen_to_break: it plants signals that overtake their data and looks for them in bytes; the checker says so
///   first;
/// - the_protocol_itself_shows_none_of_this: its NIC is a thread of the test. The checker does not know the reads of that thread,
///   so the second lap of the ring looks like a race. `put` and `conformance` run the same kernels on softhca for many laps.
const ORDER: Sanitized<'_> = Sanitized {
    feature: "tsan",
    package: "warpverbs",
    tests: "order conformance failures ops put put_hold signal team ring_all_gather moe moe_data moe_faults",
    many: false,
    left_out: &[
        "70_000",
        "65534",
        "more_than_a_gib",
        "a_wrong_choice_is_seen_to_break",
        "the_protocol_itself_shows_none_of_this",
    ],
};

/// Tests of the library under AddressSanitizer, in one binary with the software HCA. A store outside of its memory ends the process and
/// shows its line.
const MEMORY: Sanitized<'_> = Sanitized {
    feature: "asan",
    package: "warpverbs",
    tests: "put_mutants put ops moe",
    many: false,
    left_out: &["more_than_a_gib"],
};

/// Runs `./x sanitize`. There is one package for each step: cargo would resolve other features for `-p simt-tests -p warpverbs`, and build
/// everything once more. Each sanitizer has only one step for the library, because a build costs much.
pub(crate) fn sanitize() -> Result {
    prepare("quick")?;
    let mut run = Run::start("sanitize")?;
    let many = wants_large_counts();
    run.part("order");
    let planted = Sanitized {
        many: true,
        ..PLANTED_ORDER
    };
    planted.step(&mut run, "order, planted and not")?;
    let order = Sanitized { many, ..ORDER };
    order.step(&mut run, "order in the library, planted and not")?;
    run.part("memory");
    PLANTED_MEMORY.step(&mut run, "wild accesses")?;
    let memory = Sanitized { many, ..MEMORY };
    memory.step(&mut run, "wild accesses in the library, planted and not")?;
    run.finish_parts();
    run.print_summary()
}

/// Runs one sample for `./x test`. The library itself needs a build of its own, which takes minutes: `./x sanitize` and `./x test full` do
/// that.
pub(crate) fn sample(run: &mut Run) -> Result {
    PLANTED_ORDER.step(run, "order of memory accesses")?;
    PLANTED_MEMORY.step(run, "wild accesses")?;
    let name = "order of memory accesses in puts";
    if !wants_large_counts() {
        println!("left out: {name}: it runs with ./x sanitize and ./x test full");
        return Ok(());
    }
    let order_of_puts = Sanitized {
        package: "warpverbs",
        ..PLANTED_ORDER
    };
    order_of_puts.step(run, name)
}

impl Sanitized<'_> {
    /// Builds and runs the tests.
    fn step(&self, run: &mut Run, name: &str) -> Result {
        run.step(name, |run| {
            let build = format!("{}-{}", self.feature, name.replace(' ', "-"));
            run.build_tests(&build, self.build())?;
            let wanted = Wanted {
                left_out: self.left_out,
                why: &format!("under {} (crates/xtask/src/sanitize.rs)", self.feature),
                ..Wanted::all_of(&build, self.profile())
            };
            run.run_tests(&format!("{build}.log"), &wanted)
        })?;
        Ok(())
    }

    fn build(&self) -> Build {
        let mut arguments = vec!["--features", self.feature, "-p", self.package];
        for test in self.tests.split(' ') {
            arguments.extend(["--test", test]);
        }
        let target = std::env::var_os("CARGO_TARGET_DIR").filter(|folder| !folder.is_empty());
        let target = PathBuf::from(target.unwrap_or_else(|| "target".into())).join("sanitize");
        let mut environment = vec![("CARGO_TARGET_DIR".to_owned(), target.into_os_string())];
        if self.many {
            environment.push(("WV_TEST_FULL".to_owned(), OsString::from("1")));
        }
        Build {
            arguments: arguments.into_iter().map(str::to_owned).collect(),
            label: self.feature.to_owned(),
            environment,
        }
    }

    /// Returns a profile with long bounds, because checked accesses take their time. A full run has hours.
    fn profile(&self) -> Profile {
        if self.many {
            Profile::Full
        } else {
            Profile::Sanitize
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sanitized_build_is_of_one_package_and_lies_apart() {
        let build = PLANTED_MEMORY.build();
        let arguments = "--features asan -p simt-tests --test memory";
        assert_eq!(build.arguments.join(" "), arguments);
        assert_eq!(build.label, "asan");
        let (name, target) = &build.environment[0];
        assert!(name == "CARGO_TARGET_DIR" && target.to_string_lossy().ends_with("/sanitize"));
        assert_eq!(build.environment.len(), 1);
        assert_eq!(
            Sanitized {
                many: true,
                ..ORDER
            }
            .build()
            .environment
            .len(),
            2
        );
    }
}
