//! The host engine's protocols, checked: every interleaving of small configurations. They are a striped transfer, the ids of its
//! slots, notices in a ring and on streams, keys of peers, and counters.
//!
//! An independent model has checked all but the last three before. So the numbers of states must be the same: encodings differ,
//! states do not. A mutant does one thing wrong and must break the property named with it; every property has one.
//!
//! `cargo test -p models --test engine -- --nocapture` prints the table. What this proves and what not: docs/models.md.

mod checked;

use checked::{check, check_larger, check_mutants};
use models::engine::account::Fields;
use models::engine::counting;
use models::engine::keys;
use models::engine::notices;
use models::engine::slots::{self, Parts};
use models::engine::stream;
use models::engine::transfer::{self, Property};

/// Each property is broken by a mutant.
fn breaks_all<M, P: PartialEq + std::fmt::Debug>(all: &[P], mutants: &[(M, P)]) {
    for property in all {
        let breaks = mutants.iter().any(|(_, broken)| broken == property);
        assert!(breaks, "no mutant breaks {property:?}");
    }
}

#[test]
fn a_striped_transfer_is_concluded_once_and_with_nothing_under_way() {
    check("transfer", &transfer::configurations::<Fields>());
}

#[test]
fn larger_configurations_of_a_striped_transfer_hold() {
    check_larger("transfer", &transfer::larger::<Fields>());
}

#[test]
fn the_rules_that_the_reference_has_otherwise_are_harmless() {
    check("transfer, second lines", &transfer::harmless::<Fields>());
}

#[test]
fn every_mutant_of_a_striped_transfer_is_caught() {
    check_mutants("transfer", &transfer::mutants::<Fields>());
}

#[test]
fn an_old_id_gets_the_end_of_its_own_transfer_or_is_unknown() {
    check("slots", &[slots::three_uses::<Parts>()]);
}

#[test]
fn every_mutant_of_ids_is_caught() {
    check_mutants("slots", &slots::mutants::<Parts>());
}

#[test]
fn notices_are_delivered_once_in_order_and_none_is_lost() {
    check("notices", &notices::configurations());
}

#[test]
fn larger_configurations_of_notices_hold() {
    check_larger("notices", &notices::larger());
}

#[test]
fn what_absolute_numbers_make_harmless_may_be_left_out() {
    check("notices, second lines", &notices::harmless());
}

#[test]
fn every_mutant_of_notices_is_caught() {
    check_mutants("notices", &notices::mutants());
}

#[test]
fn every_property_of_transfers_is_broken_by_a_mutant() {
    let mut broken: Vec<Property> = Vec::new();
    let transfers = transfer::mutants::<Fields>();
    broken.extend(transfers.iter().map(|(_, property)| *property));
    broken.extend(
        slots::mutants::<Parts>()
            .iter()
            .map(|(_, property)| *property),
    );
    for property in Property::ALL {
        assert!(broken.contains(&property), "no mutant breaks {property:?}");
    }
    // What the reference has, and what has been added since, stays.
    let configurations = transfer::configurations::<Fields>().len();
    assert!(configurations >= 20 && broken.len() >= 22);
}

#[test]
fn every_property_of_notices_is_broken_by_a_mutant() {
    let mutants = notices::mutants();
    breaks_all(&notices::Property::ALL, &mutants);
    let configurations = notices::configurations().len() + notices::harmless().len();
    assert!(configurations >= 7 && mutants.len() >= 7);
}

#[test]
fn an_ended_key_gives_no_later_byte_and_no_byte_of_others() {
    check("keys", &keys::configurations());
}

#[test]
fn every_mutant_of_keys_is_caught() {
    let mutants = keys::mutants();
    breaks_all(&keys::Property::ALL, &mutants);
    check_mutants("keys", &mutants);
}

#[test]
fn notices_on_streams_are_delivered_once_and_in_order() {
    check("stream", &stream::configurations());
}

#[test]
fn larger_configurations_of_streams_hold() {
    check_larger("stream", &stream::larger());
}

#[test]
fn that_one_stream_carries_is_for_cost_alone() {
    check("stream, second line", &stream::harmless());
}

#[test]
fn every_mutant_of_streams_is_caught() {
    let mutants = stream::mutants();
    breaks_all(&stream::Property::ALL, &mutants);
    check_mutants("stream", &mutants);
}

#[test]
fn a_counter_says_what_has_landed_and_loses_nothing_that_is_done() {
    check("counting", &counting::configurations());
}

#[test]
fn every_mutant_of_counters_is_caught() {
    let mutants = counting::mutants();
    breaks_all(&counting::Property::ALL, &mutants);
    check_mutants("counting", &mutants);
}
