//! The configurations that are run, and the broken rules that must be caught.

use models::explore::search;

use super::{Config, Fault, Model};

const BASE: Config = Config {
    ranks: 3,
    joiners: 0,
    calls: 2,
    deaths: 1,
    suspicions: 0,
    aborts: 0,
    leavers: 0,
    fault: None,
};

#[test]
fn every_order_of_deaths_suspicions_aborts_and_joins_ends_in_one_view() {
    let quiet = Config { deaths: 0, ..BASE };
    let mut configs = vec![
        BASE,
        Config {
            calls: 1,
            suspicions: 1,
            ..quiet
        },
        Config {
            ranks: 2,
            suspicions: 1,
            aborts: 1,
            ..BASE
        },
        Config {
            joiners: 1,
            ..quiet
        },
        Config {
            calls: 1,
            leavers: 1,
            ..quiet
        },
        // All who were to go on without a rank may die.
        Config {
            calls: 1,
            deaths: 2,
            ..BASE
        },
        // Each says goodbye to the other; and one that wants to go meets one that comes.
        Config {
            ranks: 2,
            leavers: 2,
            ..quiet
        },
        Config {
            calls: 1,
            joiners: 1,
            leavers: 1,
            ..quiet
        },
        Config {
            ranks: 2,
            leavers: 1,
            ..BASE
        },
        // Nobody of the view lives: those who ask found the group anew.
        Config {
            joiners: 2,
            calls: 1,
            ..BASE
        },
    ];
    if std::env::var_os("WV_TEST_FULL").is_some() {
        configs.extend([
            Config {
                calls: 1,
                leavers: 1,
                ..BASE
            },
            Config {
                suspicions: 1,
                ..quiet
            },
            Config { aborts: 1, ..BASE },
            Config { joiners: 1, ..BASE },
            Config {
                leavers: 1,
                ..quiet
            },
            Config {
                joiners: 1,
                leavers: 1,
                ..quiet
            },
            Config {
                leavers: 2,
                ..quiet
            },
            Config {
                ranks: 2,
                calls: 3,
                aborts: 1,
                suspicions: 1,
                ..BASE
            },
            Config {
                ranks: 2,
                calls: 3,
                leavers: 1,
                suspicions: 1,
                ..BASE
            },
            Config {
                joiners: 1,
                calls: 3,
                aborts: 1,
                ..quiet
            },
        ]);
    }
    for config in configs {
        let start = std::time::Instant::now();
        let found = search(&Model(config));
        let states = found.states;
        eprintln!("{states} states in {:.1?}: {config:?}", start.elapsed());
        if let Some((broken, way)) = found.violation {
            panic!("{config:?}: {broken:?} after\n  {}", way.join("\n  "));
        }
    }
}

#[test]
fn every_broken_rule_is_caught_by_its_property() {
    let leaves = Config {
        calls: 1,
        deaths: 0,
        leavers: 1,
        ..BASE
    };
    // What is said in one view is heard in the next only if there is a next.
    let leaves_and_comes = Config {
        joiners: 1,
        ..leaves
    };
    for (fault, property, config) in [
        (Fault::DeviceLoadsLimitFirst, "E3", BASE),
        (Fault::FirstIsThePromise, "E3", BASE),
        (Fault::StartedReadBeforeClose, "E3", BASE),
        (Fault::NoFence, "E2", BASE),
        (Fault::CommitByMajority, "E2", BASE),
        (Fault::OpenBeforeView, "E3", BASE),
        (Fault::NotOpenedToFirst, "L", BASE),
        (Fault::GoodbyeForEver, "E2", leaves_and_comes),
        (Fault::LeaverFenced, "T", leaves),
        (Fault::LeaverForgotten, "T", leaves),
        (Fault::LeavesAtOnce, "T", leaves),
    ] {
        let config = Config {
            fault: Some(fault),
            ..config
        };
        let found = search(&Model(config));
        let broken = found.violation.map(|(broken, _)| broken);
        let broken = broken.map_or(("nothing", String::new()), |it| (it.property, it.text));
        eprintln!("{fault:?}: {} states: {broken:?}", found.states);
        assert_eq!(broken.0, property, "{fault:?} must break {property}");
    }
}
