//! What a device with an adversary shows to who polls memory, and what its capabilities say.

use crate::rig::{Pair, Shape, data, raddr};
use mlx5_prm::cmd::Opcode;
use mlx5_prm::hca_cap::{CapType, QueryHcaCapIn, QueryHcaCapOut};
use mlx5_prm::wqe::WqeOpcode;
use softhca::HcaConfig;
use softhca::device::{Access, Adversary, DataOrder};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const FLAG: usize = 8192;
const BYTES: u32 = 4096;

fn pair(order: DataOrder, relaxed: bool, seed: u64) -> Pair {
    let config = HcaConfig {
        order,
        adversary: Some(Adversary {
            longest: Duration::from_millis(20),
            ..Adversary::new(seed)
        }),
        ..HcaConfig::default()
    };
    let shape = Shape {
        access: 0xf
            | if relaxed {
                Access::RELAXED_ORDERING.0
            } else {
                0
            },
        ..Shape::default()
    };
    Pair::with(&config, Shape::default(), shape)
}

/// Writes the data, and asks for no completion: the device may hold it back until something else is told.
fn unsignalled(pair: &mut Pair, remote: u64, rkey: u32) {
    let segments = [
        raddr(remote, rkey),
        data(BYTES, pair.a.keys.lkey, pair.a.data.address()),
    ];
    let opcode = WqeOpcode::RDMA_WRITE;
    pair.a.write_wqe(opcode, 0, 0, 0, &segments.concat());
}

/// Writes data and behind it a flag, and polls for the flag: how often, of `rounds`, the data was not all there yet.
fn early_flags(order: DataOrder, seed: u64, rounds: u64) -> u64 {
    let mut pair = pair(order, false, seed);
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    let mut early = 0;
    for round in 1..=rounds {
        let what = u8::try_from(round).unwrap();
        pair.a.data.write(0, &[what; BYTES as usize]);
        unsignalled(&mut pair, remote, rkey);
        pair.a
            .write_inline(&round.to_ne_bytes(), remote + FLAG as u64, rkey);
        pair.a.post();
        let limit = Instant::now() + Duration::from_secs(30);
        while pair.b.data.word(FLAG).load(Ordering::Acquire) < round {
            assert!(Instant::now() < limit, "seed {seed} round {round}");
            std::hint::spin_loop();
        }
        let whole = |pair: &Pair| {
            let data = pair.b.data.read(0, BYTES as usize);
            data.iter().all(|byte| *byte == what)
        };
        early += u64::from(!whole(&pair));
        // A completion is one: everything before it is there.
        pair.a.completion();
        assert!(whole(&pair), "seed {seed} round {round}");
    }
    pair.assert_clean();
    early
}

#[test]
fn a_flag_behind_data_is_early_only_on_a_device_that_does_not_keep_the_order_of_writes() {
    assert_eq!(early_flags(DataOrder::InOrder, 1, 40), 0);
    for order in [DataOrder::AtomicsOrdered, DataOrder::FlushOnly] {
        let early: u64 = (0..5).map(|seed| early_flags(order, seed, 20)).sum();
        assert!(early > 0, "{order}");
    }
}

#[test]
fn a_look_by_command_finds_everything_placed() {
    let mut pair = pair(DataOrder::FlushOnly, true, 3);
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    for round in 1..=50u8 {
        pair.a.data.write(0, &[round; BYTES as usize]);
        let before = pair.hca_a.counters().wqes;
        pair.a.write(0, BYTES, remote, rkey);
        pair.a.post();
        while pair.hca_a.counters().wqes == before {
            std::thread::yield_now();
        }
        let _ = pair.hca_b.counters();
        assert_eq!(pair.b.data.read(0, BYTES as usize), [round; BYTES as usize]);
        pair.a.completion();
    }
}

#[test]
fn the_capabilities_say_which_orders_there_are() {
    for (order, force, want) in [
        (DataOrder::InOrder, false, (0, 0, 0)),
        (DataOrder::AtomicsOrdered, false, (1, 0, 0)),
        (DataOrder::FlushOnly, true, (1, 1, 1)),
    ] {
        let config = HcaConfig {
            order,
            order_force: force,
            ..HcaConfig::default()
        };
        let hca = softhca::Hca::with_config(config).unwrap();
        let context = hca.open().unwrap();
        let caps = |kind: CapType| {
            let input = QueryHcaCapIn::default()
                .with_opcode(Opcode::QUERY_HCA_CAP.0.into())
                .with_op_mod(kind.current());
            let mut out = vec![0; QueryHcaCapOut::BYTES];
            context.devx_general(input.as_bytes(), &mut out).unwrap();
            QueryHcaCapOut::from_prefix(&out)
        };
        let general = caps(CapType::GENERAL);
        let general = general.cmd_hca_cap();
        let second = caps(CapType::GENERAL_2);
        let seen = (
            general.dp_ordering_ooo_rw_rc(),
            general.dp_ordering_ooo_all_rc(),
            second.hca_cap_2().dp_ordering_force(),
        );
        assert_eq!(seen, want, "{order}");
    }
}
