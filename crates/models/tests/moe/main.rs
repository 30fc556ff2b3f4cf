//! The MoE protocol, checked: every interleaving of small configurations of its signals, its membership, its rejoin, and of
//! two ranks that part and unite.
//!
//! `signals`, `epoch` and `rejoin` have the configurations of the three models and their mutants. An independent model has
//! checked all of these before. So the numbers of states must be the same where that model has counted them: encodings differ,
//! states do not. Calls count from 1 here, 0 is none.
//!
//! `buffers` has one sender and what HCAs still read of it, `waits` the looks of one thread at what it waits for.
//!
//! `parted` has two ranks that both live, part from each other and unite again. `ends` has the calls of one rank that are combined,
//! abandoned or left, while the host writes views over.
//!
//! `extended` has what the kernels do beyond those rules, and what those runs left out. It has skips that cover gaps, waits for all
//! peers at once, aborted and refused calls, callers' masks, numbers that wrap.
//!
//! A mutant does one thing wrong and must break the property named with it; every property has one.
//!
//! `cargo test -p models --test moe -- --nocapture` prints the table. What this proves and what not: docs/models.md.

mod buffers;
mod ends;
mod epoch;
mod extended;
mod parted;
mod rejoin;
mod signals;
mod waits;

use std::time::Instant;

use models::explore::{Found, Model, search};
use models::moe::Property;
use models::moe::buffers::Buffers;
use models::moe::ends::Ends;
use models::moe::epoch::Epoch;
use models::moe::parted::Parted;
use models::moe::rejoin::Rejoin;
use models::moe::signals::Signals;
use models::moe::waits::Waits;

/// A model that is checked in several configurations.
trait Checked: Model<Property = Property> {
    fn name(&self) -> String;
    /// States, where an independent model has counted them too.
    fn states(&self) -> Option<usize>;
}

impl Checked for Signals {
    fn name(&self) -> String {
        Self::name(self)
    }
    fn states(&self) -> Option<usize> {
        self.states
    }
}

impl Checked for Epoch {
    fn name(&self) -> String {
        Self::name(self)
    }
    fn states(&self) -> Option<usize> {
        self.states
    }
}

impl Checked for Ends {
    fn name(&self) -> String {
        Self::name(self)
    }
    fn states(&self) -> Option<usize> {
        None
    }
}

impl Checked for Buffers {
    fn name(&self) -> String {
        Self::name(self)
    }
    fn states(&self) -> Option<usize> {
        None
    }
}

impl Checked for Waits {
    fn name(&self) -> String {
        Self::name(self)
    }
    fn states(&self) -> Option<usize> {
        None
    }
}

impl Checked for Rejoin {
    fn name(&self) -> String {
        match self.mutant {
            None => format!("rejoin, {} calls", self.calls),
            Some(mutant) => format!("{mutant:?}: rejoin, {} calls", self.calls),
        }
    }
    fn states(&self) -> Option<usize> {
        (self.calls == 5 && self.mutant.is_none()).then_some(688_162)
    }
}

impl Checked for Parted {
    fn name(&self) -> String {
        Self::name(self)
    }
    fn states(&self) -> Option<usize> {
        None
    }
}

/// Prints the line of one configuration.
fn search_one<M: Checked>(model: &M) -> Found<Property> {
    let start = Instant::now();
    let found = search(model);
    let text = match &found.violation {
        None => "holds".to_owned(),
        Some((broken, _)) => format!("breaks {:?}: {}", broken.property, broken.text),
    };
    let (name, states) = (model.name(), found.states);
    println!("{name}: {states} states, {:.1?}, {text}", start.elapsed());
    found
}

/// Searches each; all must hold, with as many states as an independent model has counted.
fn check<M: Checked>(group: &str, models: &[M]) {
    let begin = Instant::now();
    let mut wrong = Vec::new();
    let (mut states, mut largest) = (0, 0);
    for model in models {
        let (found, name) = (search_one(model), model.name());
        states += found.states;
        largest = largest.max(found.states);
        if let Some((broken, way)) = &found.violation {
            wrong.push(format!("{name}: {broken:?} after\n  {}", way.join("\n  ")));
        } else if model.states().is_some_and(|count| count != found.states) {
            let (got, want) = (found.states, model.states());
            wrong.push(format!("{name}: {got} states, expected {want:?}"));
        }
    }
    let count = models.len();
    let took = begin.elapsed();
    println!("| {group} | {count} | {states} states | largest {largest} | {took:.1?} |");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Searches each; each must break its property.
fn check_mutants<M: Checked>(group: &str, mutants: &[(M, Property)]) {
    let mut wrong = Vec::new();
    for (model, property) in mutants {
        let found = search_one(model);
        let broken = found.violation.map(|(broken, _)| broken.property);
        if broken != Some(*property) {
            wrong.push(format!(
                "{}: breaks {broken:?}, not {property:?}",
                model.name()
            ));
        }
    }
    println!("| {group} | {} mutants |", mutants.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Those only with `WV_TEST_FULL=1`.
fn check_larger<M: Checked>(group: &str, models: &[M]) {
    match std::env::var_os("WV_TEST_FULL") {
        Some(_) => check(group, models),
        None => println!(
            "skipped: {} larger configurations of the MoE model ({group}), for their time: they run with WV_TEST_FULL=1",
            models.len()
        ),
    }
}

#[test]
fn without_clocks_no_rank_is_stuck() {
    check("no clock", &signals::without_clock());
}

#[test]
fn fused_calls_survive_a_timeout_of_any_rank_at_any_moment() {
    check("timeouts, fused", &signals::with_timeouts_fused());
}

#[test]
fn every_order_survives_a_timeout_of_any_rank_at_any_moment() {
    check("timeouts", &signals::with_timeouts());
}

#[test]
fn a_slow_or_dead_rank_is_the_only_one_given_up() {
    check("one slow", &signals::one_slow());
}

#[test]
fn two_micro_batches_survive_a_slow_or_dead_rank() {
    check(
        "one slow, micro-batches",
        &signals::one_slow_micro_batches(),
    );
}

#[test]
fn larger_configurations_of_signals_hold() {
    check_larger("signals", &signals::larger());
}

#[test]
fn every_mutant_of_signals_is_caught() {
    check_mutants("signals", &signals::mutants());
}

#[test]
fn skips_over_gaps_and_parallel_waits_hold() {
    check("gaps, parallel", &extended::gaps_and_parallel());
}

#[test]
fn calls_that_do_not_run_leave_no_rank_stuck() {
    check("stopped calls, no clock", &extended::stopped_calls());
}

#[test]
fn calls_that_do_not_run_survive_timeouts() {
    check(
        "stopped calls, timeouts",
        &extended::stopped_calls_and_timeouts(),
    );
}

#[test]
fn calls_that_do_not_run_cost_no_rank_a_deadline() {
    check(
        "stopped calls, one slow",
        &extended::stopped_calls_and_one_slow(),
    );
}

#[test]
fn a_rank_that_awaits_no_member_begins_a_call_in_a_deadline() {
    check("keeps pace", &extended::keeps_pace());
}

#[test]
fn work_in_flight_is_a_missing_credit() {
    check("work in flight", &extended::work_in_flight());
}

#[test]
fn a_rank_that_is_cut_off_costs_the_others_nothing() {
    check("cut off", &extended::cut());
}

#[test]
fn larger_configurations_of_cuts_hold() {
    check_larger("cut off", &extended::larger_cut());
}

#[test]
fn every_mutant_of_work_in_flight_is_caught() {
    check_mutants("work in flight", &extended::mutants_of_work_in_flight());
}

#[test]
fn no_rank_that_is_well_is_taken_for_passed() {
    check("passed", &extended::passed_calls());
}

#[test]
fn larger_configurations_of_passed_calls_hold() {
    check_larger("passed", &extended::larger_passed_calls());
}

#[test]
fn every_mutant_of_passed_calls_is_caught() {
    check_mutants("passed", &extended::mutants_of_passed_calls());
}

#[test]
fn numbers_that_wrap_change_nothing() {
    check("wrap", &extended::wraps());
}

#[test]
fn larger_configurations_of_calls_that_do_not_run_hold() {
    check_larger("stopped calls", &extended::larger_stopped_calls());
}

#[test]
fn every_mutant_of_calls_that_do_not_run_is_caught() {
    check_mutants("stopped calls", &extended::mutants_of_stopped_calls());
}

#[test]
fn deaths_and_suspicions_leave_one_view_per_call() {
    check("epoch, deaths", &epoch::deaths());
}

#[test]
fn aborts_and_joins_leave_one_view_per_call() {
    check("epoch, aborts and joins", &epoch::aborts_and_joins());
}

#[test]
fn larger_configurations_of_membership_hold() {
    check_larger("epoch", &epoch::larger());
}

#[test]
fn every_mutant_of_membership_is_caught() {
    check_mutants("epoch", &epoch::mutants());
}

#[test]
fn a_view_is_written_over_when_all_calls_in_it_have_ended() {
    check("ends", &ends::holds());
}

#[test]
fn every_mutant_of_ends_is_caught() {
    check_mutants("ends", &ends::mutants());
}

#[test]
fn a_joiner_finds_nothing_of_its_predecessor() {
    let rejoin = Rejoin {
        calls: 5,
        mutant: None,
    };
    check("rejoin", &[rejoin]);
}

#[test]
fn every_mutant_of_rejoin_is_caught() {
    check_mutants("rejoin", &rejoin::mutants());
}

#[test]
fn two_that_part_and_unite_find_nothing_of_before() {
    check("parted", &parted::holds());
}

#[test]
fn what_is_a_second_line_only_may_be_left_out() {
    check("parted, second lines", &parted::second_lines());
}

#[test]
fn larger_configurations_of_two_that_part_hold() {
    check_larger("parted", &parted::larger());
}

#[test]
fn every_mutant_of_parting_is_caught() {
    check_mutants("parted", &parted::mutants());
}

#[test]
fn work_in_flight_costs_no_healthy_peer_anything() {
    check("buffers", &buffers::holds());
}

#[test]
fn one_buffer_less_is_too_few() {
    check_mutants("buffers, one less", &buffers::too_few());
}

#[test]
fn larger_configurations_of_buffers_hold() {
    check_larger("buffers", &buffers::larger());
}

#[test]
fn every_rule_of_buffers_is_needed() {
    check_mutants("buffers", &buffers::mutants());
}

#[test]
fn what_has_come_in_time_is_not_late() {
    check("waits", &waits::holds());
}

#[test]
fn every_mutant_of_waits_is_caught() {
    check_mutants("waits", &waits::mutants());
}

#[test]
fn every_property_is_broken_by_a_mutant() {
    let mut properties: Vec<Property> = Vec::new();
    properties.extend(signals::mutants().iter().map(|(_, property)| *property));
    let stopped = extended::mutants_of_stopped_calls();
    properties.extend(stopped.iter().map(|(_, property)| *property));
    let flight = extended::mutants_of_work_in_flight();
    properties.extend(flight.iter().map(|(_, property)| *property));
    let passed = extended::mutants_of_passed_calls();
    properties.extend(passed.iter().map(|(_, property)| *property));
    properties.extend(epoch::mutants().iter().map(|(_, property)| *property));
    properties.extend(ends::mutants().iter().map(|(_, property)| *property));
    properties.extend(rejoin::mutants().iter().map(|(_, property)| *property));
    properties.extend(parted::mutants().iter().map(|(_, property)| *property));
    properties.extend(buffers::mutants().iter().map(|(_, property)| *property));
    properties.extend(waits::mutants().iter().map(|(_, property)| *property));
    for property in Property::ALL {
        assert!(
            properties.contains(&property),
            "no mutant breaks {property:?}"
        );
    }
    // What the protocol's own suite has, and what has been added since, stays.
    assert!(
        properties.len() >= FEWEST_MUTANTS,
        "{} mutants",
        properties.len()
    );
}

const FEWEST_MUTANTS: usize = 91;
