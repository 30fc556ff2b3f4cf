//! Two processes that take one place, with all rules and without each.

use models::explore::search;
use models::membership::Rule;
use models::membership::successors::Successors;

/// Deaths, and leases that the store loses.
const WORLDS: [(u8, u8); 5] = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1)];

fn found(left_out: &'static [Rule]) -> Vec<&'static str> {
    let mut all = Vec::new();
    for world @ (deaths, losses) in WORLDS {
        let found = search(&Successors::new(deaths, losses, left_out));
        eprintln!("{:>7} states, deaths and losses {world:?}", found.states);
        if let Some((broken, way)) = found.violation {
            eprintln!("{left_out:?}: {broken:?} after\n  {}", way.join("\n  "));
            all.push(broken.property);
        }
    }
    all
}

#[test]
fn one_of_two_successors_comes_in_and_no_rank_gives_its_qps_to_the_other() {
    assert_eq!(found(&[]), [""; 0]);
}

#[test]
fn every_rule_of_successors_is_needed() {
    let breaks = |left_out, property| {
        let broken = found(left_out);
        assert!(broken.contains(&property), "{left_out:?}: {broken:?}");
    };
    breaks(&[Rule::OneSuccessor], "S1");
    breaks(&[Rule::ProposedKeeps], "S1");
    breaks(&[Rule::Overtaken], "S2");
    breaks(&[Rule::GoesBack], "S2");
}
