//! Where experts are in the views of a group: by a policy, and by tables that were made before.

use std::slice;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use test_support::hca::hca_with;
use test_support::moe::small::{SHAPE, TRAFFIC};
use test_support::moe::{Setup, batch, expert, join};
use test_support::reference;
use warpverbs::membership::{Group, GroupState, next_generation};
use warpverbs::moe::{Moe, MoeConfig, Placement, PlacementPolicy, Workspace};
use warpverbs::team::{MemoryStore, RankSet, Store};

use crate::deaths::CONFIG;
use crate::fleet::LONG;

const SLOTS: u32 = 3;
const FOUNDERS: [u32; 2] = [0, 1];
const ALL: [u32; 3] = [0, 1, 2];

/// One call among `members`, each token of which is what the experts of `moe`'s placement make of it.
fn one_call(moe: &Arc<Moe>, work: &mut Workspace, members: &[u32], number: u32) {
    let rank = moe.team().rank();
    let own = batch(moe.config(), TRAFFIC, 3, number, rank);
    work.send(&own).unwrap();
    work.receive().unwrap();
    work.experts(expert).unwrap();
    work.send_back().unwrap();
    let got = work.receive_back().unwrap();
    let report = work.call().check().unwrap();
    assert_eq!(report.call, number, "{report}");
    let there = |rank: u32| members.contains(&rank);
    let placement = moe.placement();
    let want = reference::combine_seen(moe.config(), &placement, rank, &own, there, expert);
    let what = format!("call {number}, rank {rank}: {placement:?}");
    assert_eq!(got.token_valid, want.token_valid, "{what}");
    assert_eq!(got.out, want.out, "{what}");
}

/// Two ranks found a group, with the experts where they were when their layers were made; a third one comes, and goes. `choose` says
/// at each rank how experts are placed, `three` and `two` where they are to be among all and among those that are left.
fn placed(config: MoeConfig, choose: fn(&Moe), two: &Placement, three: &Placement) {
    let mut setup = Setup::adverse(SLOTS);
    setup.team.path.ack_timeout = Some(15);
    setup.team.deadline = Duration::from_secs(20);
    setup.team.members = Some(RankSet::first(2));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let [called, served, ended] = [3, 3, 3].map(Barrier::new);
    let body = |rank: u32| {
        let mut team = setup.team.with_rank(rank);
        let founds = FOUNDERS.contains(&rank);
        if !founds {
            called.wait();
            let generation = next_generation(store.as_ref(), rank).unwrap();
            team = team.joining(generation, RankSet::first(2));
        }
        let hca = Arc::new(hca_with(softhca::HcaConfig {
            adversary: setup.hca.adversary,
            ..softhca::HcaConfig::default()
        }));
        let team = join(team, slice::from_ref(&hca), Arc::clone(&store)).unwrap();
        let moe = Moe::new(&team, "layer", config).unwrap();
        choose(&moe);
        let group = Group::start(&team, moe.clone(), &CONFIG).unwrap();
        let mut work = Workspace::new(&moe).unwrap();
        if founds {
            group.wait(GroupState::Serving, LONG).unwrap();
            assert_eq!(moe.placement(), Placement::blocks(8, SLOTS));
            for number in 1..=3 {
                one_call(&moe, &mut work, &FOUNDERS, number);
            }
            called.wait();
        }
        let view = group.wait_view(2, LONG).unwrap();
        assert_eq!(view.members.into_keys().collect::<Vec<_>>(), ALL);
        assert_eq!(moe.placement(), *three, "rank {rank}");
        for number in 4..=6 {
            one_call(&moe, &mut work, &ALL, number);
        }
        // No rank goes while another waits for its words.
        served.wait();
        if founds {
            group.wait_view(3, LONG).unwrap();
            assert_eq!(moe.placement(), *two, "rank {rank}");
            for number in 7..=9 {
                one_call(&moe, &mut work, &FOUNDERS, number);
            }
        } else {
            group.leave(LONG).unwrap();
        }
        ended.wait();
    };
    std::thread::scope(|scope| {
        let body = &body;
        for rank in ALL {
            scope.spawn(move || body(rank));
        }
    });
}

/// The experts in blocks, each a rank further.
fn turned() -> Placement {
    Placement::from_slots(8, vec![vec![5, 6, 7], vec![0, 1, 2], vec![3, 4]]).unwrap()
}

#[test]
fn a_policy_spreads_the_experts_over_all_members() {
    // Room for three at each rank: two founders hold six of eight.
    let narrow = Placement::from_slots(8, vec![vec![0, 1, 2], vec![3, 4, 5], vec![]]).unwrap();
    let all = Placement::blocks(8, SLOTS);
    let spread = |moe: &Moe| moe.set_placement_policy(PlacementPolicy::Spread);
    placed(SHAPE, spread, &narrow, &all);
    let wide = Placement::from_slots(8, vec![vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![]]).unwrap();
    placed(SHAPE.with_local_experts(4), spread, &wide, &all);
}

#[test]
fn a_table_places_the_experts_for_the_members_that_it_is_for() {
    let first = Placement::blocks(8, SLOTS);
    let choose = |moe: &Moe| {
        moe.set_placement_of(&[2, 0, 1], Some(turned())).unwrap();
    };
    placed(SHAPE, choose, &first, &turned());
    let before_the_policy = |moe: &Moe| {
        moe.set_placement_policy(PlacementPolicy::Fixed);
        moe.set_placement_of(&[0, 1], Some(turned())).unwrap();
        let taken_back = [0, 1, 2];
        moe.set_placement_of(&taken_back, Some(turned())).unwrap();
        moe.set_placement_of(&taken_back, None).unwrap();
    };
    placed(SHAPE, before_the_policy, &turned(), &first);
}

#[test]
fn a_table_that_does_not_fit_is_refused_when_it_is_given() {
    test_support::moe::run(&Setup::adverse(1), |team| {
        let moe = Moe::new(team, "layer", SHAPE).unwrap();
        let fits = Placement::blocks(8, 1);
        let refused = |members: &[u32], placement: &Placement| {
            let result = moe.set_placement_of(members, Some(placement.clone()));
            result.unwrap_err().to_string()
        };
        assert_eq!(
            refused(&[], &fits),
            "number of members of a placement is 0; it must be 1 to 1"
        );
        assert_eq!(refused(&[0, 1], &fits), "rank 1; the layer has 1 ranks");
        assert_eq!(
            refused(&[0], &Placement::blocks(9, 1)),
            "the placement has 9 experts on 1 ranks; the layer has 8 on 1"
        );
        assert_eq!(
            refused(&[0], &Placement::blocks(8, 2)),
            "the placement has 8 experts on 2 ranks; the layer has 8 on 1"
        );
        moe.set_placement_of(&[0], Some(fits)).unwrap();
    });
}
