//! A pair of several rails of which some carry nothing goes round them, and uses them again when it is connected anew.

use std::time::Duration;

use serde_json::json;
use test_support::fleet::{Hcas, Setup};
use test_support::node::Node;
use warpverbs::abi::{PEER_DIRECT, PeerEntry, RAIL_SHIFT, Status};
use warpverbs::team::{Doorbell, Sharing, TeamError};

use crate::rank::{Put, seed, setup, until};
use crate::reunite::{Pair, impatient, with};

/// Four rails, and two QPs of each.
fn four_rails(setup: Setup) -> Setup {
    let mut setup = setup;
    setup.rails = 4;
    setup.team.qps_per_peer = 8;
    setup.team.modes.doorbell = Some(Doorbell::Record);
    setup
}

impl Pair<'_> {
    fn carriers(&self) -> [Vec<u32>; 2] {
        [0, 1].map(|rank| self.fleet.rank(rank).team.carriers(1 - rank).unwrap())
    }

    /// Entries of one window by rail, as a rank reaches the other.
    fn entries(&self, rank: u32, window: u32) -> Vec<PeerEntry> {
        let row = |rail| self.fleet.entry(rank, 1 - rank, 4 * window + rail);
        (0..4).map(row).collect()
    }

    /// Sets the ports of these HCAs, by rank and rail.
    fn set_ports(&self, ports: &[(u32, usize)], up: bool) {
        for &(rank, rail) in ports {
            self.fleet.hcas.of(rank)[rail].set_port(up);
        }
    }

    /// Opens the HCAs of these rails, of both ranks.
    fn nodes(&self, rails: &[usize]) -> Vec<Node> {
        let open = |rank| {
            let hcas = self.fleet.hcas.of(rank);
            rails
                .iter()
                .map(|rail| Node::open(&hcas[*rail], 1 << 16).unwrap())
        };
        [0, 1].into_iter().flat_map(open).collect()
    }

    /// Bytes that each HCA has sent, by rank and rail.
    fn sent(&self) -> [[u64; 4]; 2] {
        let of = |rank: u32, rail: usize| self.fleet.hcas.of(rank)[rail].counters().bytes_sent;
        [0, 1].map(|rank| [0, 1, 2, 3].map(|rail| of(rank, rail)))
    }
}

#[test]
fn a_pair_goes_round_rails_that_are_down_and_uses_them_when_reconnected() {
    let setup = four_rails(impatient());
    let hcas = Hcas::new(&setup);
    let pair = Pair::new(&setup, &hcas);
    let all = [0, 1, 2, 3, 0, 1, 2, 3];
    let captured = [0, 1].map(|rank| pair.fleet.captured(rank, 1 - rank));
    let keys = |rank| -> Vec<u32> { pair.entries(rank, 0).iter().map(|it| it.rkey_be).collect() };
    let home = [0, 1].map(keys);
    // One rail; one of each end; all but one at one end, and at both.
    let cases = [
        (vec![(0, 1)], [0, 0, 2, 3]),
        (vec![(0, 0), (1, 2)], [1, 1, 3, 3]),
        (vec![(1, 0), (1, 1), (1, 3)], [2; 4]),
        (vec![(0, 1), (0, 2), (1, 2), (1, 3)], [0; 4]),
    ];
    for (down, by) in cases {
        pair.set_ports(&down, false);
        for round in 0..2 {
            pair.fail(0);
            pair.fail(1);
            pair.meet(round);
            let expected: Vec<u32> = by.iter().chain(&by).copied().collect();
            assert_eq!(pair.carriers(), [expected.clone(), expected]);
            pair.open();
            let before = pair.sent();
            pair.fleet.talk(0, 1);
            for ((rank, after), before) in (0u32..).zip(pair.sent()).zip(before) {
                for (rail, (after, before)) in (0u32..).zip(after.into_iter().zip(before)) {
                    assert_eq!(
                        after > before,
                        by.contains(&rail),
                        "rank {rank}, rail {rail}"
                    );
                }
                let there = home[rank as usize].clone();
                let round: Vec<u32> = by.iter().map(|rail| there[*rail as usize]).collect();
                assert_eq!(keys(rank), round, "{by:?}");
                let rails = pair.entries(rank, 0).into_iter();
                let rails: Vec<u32> = rails
                    .map(|entry| (entry.rail_life & !PEER_DIRECT) >> RAIL_SHIFT)
                    .collect();
                assert_eq!(rails, by);
            }
        }
        pair.set_ports(&down, true);
        // A pair that works is left alone.
        pair.fleet.talk(0, 1);
        pair.fail(0);
        pair.fail(1);
        pair.meet_and_talk(0);
        assert_eq!(pair.carriers(), [all.to_vec(), all.to_vec()]);
        assert_eq!([0, 1].map(keys), home);
        let now = [0, 1].map(|rank| pair.fleet.captured(rank, 1 - rank));
        assert_eq!(now, captured);
    }
    drop(pair);
    hcas.check();
}

#[test]
fn an_attempt_keeps_the_rails_that_it_leaves_out() {
    let setup = four_rails(impatient());
    with(&setup, |pair| {
        pair.fail(0);
        pair.fail(1);
        assert!(!pair.call(1).unwrap());
        let good = pair.told(1).unwrap();
        assert!(!pair.call(0).unwrap());
        let mut other = good.clone();
        other["without"] = json!(2);
        pair.tell(1, &other);
        let error = pair.call(0).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, TeamError::Record { rank: 1, .. }), "{text}");
        let words = "attempt 1 leaves out rails [1]; it left out [] before";
        assert!(text.contains(words), "{text}");
        pair.tell(1, &good);
        pair.meet_and_talk(0);
    });
}

#[test]
fn a_pair_without_a_working_rail_stays_apart_until_its_rails_carry_again() {
    let setup = four_rails(impatient());
    let hcas = Hcas::new(&setup);
    let pair = Pair::new(&setup, &hcas);
    // Two at each end, and none is left.
    let down = [(0, 0), (0, 1), (1, 2), (1, 3)];
    pair.set_ports(&down, false);
    pair.fail(0);
    pair.fail(1);
    until("three attempts come to nothing", || {
        assert!(!(pair.try_call(0) | pair.try_call(1)));
        pair.unreached.borrow().iter().map(Vec::len).sum::<usize>() >= 3
    });
    pair.set_ports(&down, true);
    pair.meet_and_talk(0);
    pair.fail(0);
    pair.fail(1);
    pair.meet_and_talk(1);
    let all = vec![0, 1, 2, 3, 0, 1, 2, 3];
    assert_eq!(pair.carriers(), [all.clone(), all]);
    drop(pair);
    hcas.check();
}

#[test]
fn any_order_of_rails_calls_and_failures_unites_both_on_rails_that_carry() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    println!("seed {seed}");
    let setup = four_rails(impatient());
    let hcas = Hcas::new(&setup);
    let pair = Pair::new(&setup, &hcas);
    let set = |end: u32, up: u8| {
        for rail in 0..4 {
            hcas.of(end)[rail].set_port(up >> rail & 1 != 0);
        }
    };
    for _ in 0..12 {
        for _ in 0..random.u32(0..30) {
            let end = u32::from(random.bool());
            match random.u32(0..8) {
                0 => pair.fail(end),
                1 => set(end, random.u8(0..16)),
                _ => drop(pair.try_call(end)),
            }
        }
        // At least one rail carries.
        let common = 1 << random.u8(0..4);
        let up = [0, 1].map(|_| random.u8(0..16) | common);
        set(0, up[0]);
        set(1, up[1]);
        for end in [0, 1] {
            if !pair.fleet.rank(end).team.is_closed(1 - end).unwrap() {
                pair.fail(end);
            }
        }
        pair.fail(u32::from(random.bool()));
        pair.meet_and_talk(0);
        let [one, other] = pair.carriers();
        assert_eq!(one, other);
        let carries = |rail: &u32| (up[0] & up[1]) >> rail & 1 != 0;
        assert!(one.iter().all(carries), "{one:?}, up {up:?}");
    }
    set(0, 15);
    set(1, 15);
    drop(pair);
    hcas.check();
}

#[test]
fn a_rail_is_gone_round_at_the_deadline_if_its_hca_has_not_given_up() {
    // The HCAs try for half a minute.
    let mut setup = four_rails(setup(2));
    setup.team.path.ack_timeout = Some(20);
    setup.team.deadline = Duration::from_millis(50);
    let hcas = Hcas::new(&setup);
    let pair = Pair::new(&setup, &hcas);
    pair.set_ports(&[(1, 3)], false);
    pair.fail(0);
    pair.fail(1);
    pair.meet_and_talk(0);
    for carriers in pair.carriers() {
        assert!(!carriers.contains(&3), "{carriers:?}");
    }
    assert!(pair.unreached.borrow().iter().all(Vec::is_empty));
    pair.set_ports(&[(1, 3)], true);
    drop(pair);
    hcas.check();
}

#[test]
fn a_pair_that_goes_round_a_rail_has_stale_tickets_and_new_window_keys() {
    let mut setup = four_rails(impatient());
    // A kernel that fills a short ring waits for an HCA's thread each time, and a busy machine gives that one a core late.
    setup.team.log_depth = 12;
    let hcas = Hcas::new(&setup);
    let pair = Pair::new(&setup, &hcas);
    let nodes = pair.nodes(&[1, 2]);
    // QP 1 posts more than one life of the others holds. Each kernel has a deadline of its own, which only a hang meets.
    for _ in 0..22 {
        let put = Put {
            qp: 1,
            each: 0,
            rounds: 10,
            ..Put::new(1, 300)
        };
        let seen = pair.fleet.rank(0).put(&put).finish()[0];
        assert_eq!((seen.status, seen.done), (Status::OK, 3_000));
    }
    pair.fleet.talk(0, 1);
    let last = pair.fleet.rank(0).qp(1, 1).resv;
    assert!(last > 1 << 16 && pair.fleet.rank(0).qp(1, 0).resv < 1 << 16);
    pair.set_ports(&[(0, 1)], false);
    pair.fail(0);
    pair.fail(1);
    pair.meet(0);
    pair.open();
    // QP 0, in the place of QP 1, posts up to the same index.
    assert_eq!(
        pair.fleet.rank(0).qp_addr(1, 1),
        pair.fleet.rank(0).qp_addr(1, 0)
    );
    assert_eq!(pair.fleet.rank(0).wait_for(1, 1, last), Status::STALE_LIFE);
    assert!(pair.fleet.rank(0).qp(1, 1).base >= last);
    let window = || {
        std::thread::scope(|scope| {
            let make = |rank: u32| {
                let team = &pair.fleet.rank(rank).team;
                scope.spawn(move || team.window(4096).unwrap().id)
            };
            let made = [make(0), make(1)];
            made.map(|one| one.join().unwrap())[0]
        })
    };
    // HCAs that have made as many keys make the same numbers. Before each window those of rails 1 and 2 make more keys than that of rail 0.
    let windows = [(); 4].map(|()| {
        nodes
            .iter()
            .for_each(|node| drop(node.window(4096).unwrap()));
        window()
    });
    let has_another_key = |rank: u32, of: usize| {
        let differs = |window: &u32| {
            let entries = pair.entries(rank, *window);
            entries[of].rkey_be != entries[0].rkey_be
        };
        windows.iter().any(differs)
    };
    for rank in [0, 1] {
        assert!(!has_another_key(rank, 1));
        assert!(has_another_key(rank, 2));
    }
    pair.set_ports(&[(0, 1)], true);
    pair.fail(0);
    pair.fail(1);
    pair.meet_and_talk(0);
    for rank in [0, 1] {
        assert!(has_another_key(rank, 1));
    }
    drop(nodes);
    drop(pair);
    hcas.check();
}

#[test]
fn qps_that_have_one_user_each_go_round_nothing() {
    let mut setup = four_rails(impatient());
    setup.team.modes.sharing = Sharing::Exclusive;
    let hcas = Hcas::new(&setup);
    let pair = Pair::new(&setup, &hcas);
    pair.set_ports(&[(0, 1)], false);
    pair.fail(0);
    pair.fail(1);
    until("two attempts come to nothing", || {
        assert!(!(pair.try_call(0) | pair.try_call(1)));
        pair.unreached.borrow().iter().map(Vec::len).sum::<usize>() >= 2
    });
    pair.set_ports(&[(0, 1)], true);
    pair.meet(0);
    drop(pair);
    hcas.check();
}
