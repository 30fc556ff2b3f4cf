//! One rank dies under running calls: the others lose one bounded wait and go on.

use std::time::Duration;

use warpverbs::team::{GroupConfig, GroupState};

use crate::fleet::{Fleet, LONG};

const DEADLINE: Duration = Duration::from_secs(3);
const CONFIG: GroupConfig = GroupConfig {
    lease_ttl: Duration::from_secs(2),
    stall_bound: None,
    error_bound: Some(Duration::from_millis(500)),
    promise_bound: None,
    found_bound: None,
};

#[test]
fn a_rank_dies_and_the_others_go_on_without_it() {
    let mut fleet = Fleet::new(4, DEADLINE, CONFIG);
    for rank in &fleet.ranks {
        rank.group().wait(GroupState::Serving, LONG).unwrap();
    }
    fleet.until_whole(1, 5);
    let mut victim = fleet.remove(2);
    // Its process is gone: no calls, no lease, nothing on the wire.
    victim.stop_calls();
    victim.hca.set_port(false);
    victim.group = None;
    for rank in &fleet.ranks {
        let view = rank.group().wait_view(2, LONG).unwrap();
        let members: Vec<u32> = view.members.keys().copied().collect();
        assert_eq!(members, [0, 1, 3], "rank {}", rank.slot);
    }
    fleet.until_whole(2, 5);
    victim.join_caller();
    fleet.dead.push(victim);
    fleet.end();
}
