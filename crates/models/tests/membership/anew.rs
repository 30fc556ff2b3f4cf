//! The worlds that are run, and the rules that are left out and must be missed.

use std::time::Instant;

use models::explore::{Found, search};
use models::membership::anew::{AnewRule, Config, World};

fn run(config: Config) -> Found<&'static str> {
    let start = Instant::now();
    let found = search(&World(config));
    eprintln!(
        "{:>9} states in {:>7.1?}: {config:?}",
        found.states,
        start.elapsed()
    );
    found
}

const BASE: Config = Config {
    gone: 0,
    dies: 0,
    cuts: 0,
    long: 0,
    changes: 0,
    loses: 1,
    returns: 0,
    joins: 0,
    left_out: &[],
};

const WORLDS: [Config; 7] = [
    Config {
        dies: 1,
        changes: 1,
        ..BASE
    },
    Config {
        cuts: 1,
        changes: 2,
        ..BASE
    },
    Config {
        dies: 1,
        cuts: 1,
        changes: 1,
        ..BASE
    },
    Config {
        loses: 0,
        returns: 1,
        cuts: 1,
        changes: 1,
        ..BASE
    },
    Config {
        joins: 1,
        changes: 1,
        ..BASE
    },
    Config {
        joins: 2,
        changes: 1,
        ..BASE
    },
    Config {
        loses: 2,
        cuts: 1,
        changes: 1,
        ..BASE
    },
];

/// What is missed without one rule, and where.
const LEFT_OUT: [(&str, Config); 5] = [
    (
        "V",
        Config {
            cuts: 3,
            changes: 2,
            left_out: &[AnewRule::AllSpeak],
            ..BASE
        },
    ),
    (
        "V",
        Config {
            cuts: 3,
            changes: 2,
            left_out: &[AnewRule::Certain],
            ..BASE
        },
    ),
    (
        "R",
        Config {
            dies: 1,
            cuts: 1,
            changes: 1,
            left_out: &[AnewRule::Newest],
            ..BASE
        },
    ),
    (
        "R",
        Config {
            cuts: 1,
            changes: 1,
            left_out: &[AnewRule::NewNumber],
            ..BASE
        },
    ),
    (
        "G",
        Config {
            joins: 2,
            changes: 1,
            left_out: &[AnewRule::Namesake],
            ..BASE
        },
    ),
];

/// The same, with many states.
const LEFT_OUT_FULL: [(&str, Config); 2] = [
    (
        "V",
        Config {
            joins: 1,
            gone: 2,
            cuts: 2,
            long: 1,
            changes: 2,
            left_out: &[AnewRule::Touched],
            ..BASE
        },
    ),
    (
        "V",
        Config {
            joins: 1,
            cuts: 1,
            changes: 2,
            left_out: &[AnewRule::NewcomersSpeak],
            ..BASE
        },
    ),
];

#[test]
fn every_rule_of_a_record_written_anew_is_needed() {
    each_is_missed(&LEFT_OUT);
}

#[test]
fn rules_of_a_record_written_anew_that_take_many_states_are_needed() {
    if std::env::var_os("WV_TEST_FULL").is_some() {
        each_is_missed(&LEFT_OUT_FULL);
    }
}

fn each_is_missed(all: &[(&str, Config)]) {
    let mut wrong = Vec::new();
    for &(property, config) in all {
        let found = run(config).violation;
        let broken = found.as_ref().map_or("nothing", |it| it.0.property);
        let way = found.as_ref().map(|it| it.1.join(", "));
        eprintln!("{:?} breaks {broken}: {way:?}", config.left_out);
        if broken != property {
            wrong.push(format!("{config:?} must break {property}, breaks {broken}"));
        }
        let whole = Config {
            left_out: &[],
            ..config
        };
        if let Some((broken, way)) = run(whole).violation {
            wrong.push(format!(
                "{whole:?}: {broken:?} after\n  {}",
                way.join("\n  ")
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_record_that_was_lost_is_written_anew_and_makes_no_second_group() {
    for config in WORLDS {
        if let Some((broken, way)) = run(config).violation {
            panic!("{config:?}: {broken:?} after\n  {}", way.join("\n  "));
        }
    }
}
