//! What a device with an adversary shows to a thread that polls memory, and what its capabilities say.

use mlx5_prm::cmd::Opcode;
use mlx5_prm::hca_cap::{CapType, QueryHcaCapIn, QueryHcaCapOut};
use mlx5_prm::wqe::WqeOpcode;
use softhca::HcaConfig;
use softhca::device::{Access, Adversary, DataOrder, Simulation};
use softhca::wire::memory::Network;
use softhca_rig::patience::wait_until;
use softhca_rig::{End, Pair, Shape, data, raddr, simulated_pair};
use std::sync::atomic::Ordering;
use std::time::Duration;

const FLAG: usize = 8192;
const BYTES: u32 = 4096;

fn config(order: DataOrder, seed: u64) -> HcaConfig {
    HcaConfig {
        order,
        adversary: Some(Adversary {
            longest: Duration::from_millis(20),
            ..Adversary::new(seed)
        }),
        ..HcaConfig::default()
    }
}

fn receiver(relaxed: bool) -> Shape {
    Shape {
        access: 0xf
            | if relaxed {
                Access::RELAXED_ORDERING.0
            } else {
                0
            },
        ..Shape::default()
    }
}

/// Writes the data, and asks for no completion: the device may hold it back until it reports something else.
fn unsignalled(end: &mut End, remote: u64, rkey: u32) {
    let segments = [
        raddr(remote, rkey),
        data(BYTES, end.keys.lkey, end.data.address()),
    ];
    let opcode = WqeOpcode::RDMA_WRITE;
    end.write_wqe(opcode, 0, 0, 0, &segments.concat());
}

/// Writes data and after it a flag, and looks for the flag after each turn of the devices. Returns in how many of `rounds` the
/// flag came before all data. The clock is the test's, so that no look comes too late.
fn early_flags(order: DataOrder, seed: u64, rounds: u64) -> u64 {
    let simulation = Simulation::new();
    let network = Network::with_latency(1000);
    let hcas = simulated_pair(&simulation, &network, &config(order, seed));
    let mut a = End::new(&hcas[0], Shape::default());
    let b = End::new(&hcas[1], receiver(false));
    a.connect(hcas[1].gid(), b.qpn, 7);
    b.connect(hcas[0].gid(), a.qpn, 7);
    let (remote, rkey) = (b.data.address(), b.keys.rkey);
    let mut now_ns = simulation.now_ns();
    let mut early = 0;
    for round in 1..=rounds {
        let what = u8::try_from(round).unwrap();
        a.data.write(0, &[what; BYTES as usize]);
        unsignalled(&mut a, remote, rkey);
        a.write_inline(&round.to_ne_bytes(), remote + FLAG as u64, rkey);
        a.post();
        let whole = || {
            let data = b.data.read(0, BYTES as usize);
            data.iter().all(|byte| *byte == what)
        };
        let (mut flagged, mut completed) = (false, false);
        loop {
            let step = simulation.step(now_ns);
            if !flagged && b.data.word(FLAG).load(Ordering::Acquire) == round {
                flagged = true;
                early += u64::from(!whole());
            }
            // A completion is a signal: all data before it is in memory.
            if !completed && a.poll_for(Duration::ZERO, |_| true).is_some() {
                completed = true;
                assert!(whole(), "seed {seed} round {round}");
            }
            if flagged && completed {
                break;
            }
            if !step.busy {
                let what = format!("seed {seed} round {round}: nothing is under way");
                now_ns = step.deadline_ns.expect(&what);
            }
        }
    }
    for hca in &hcas {
        assert_eq!(hca.findings(), [""; 0], "seed {seed}");
    }
    early
}

#[test]
fn a_flag_overtakes_its_data_only_on_a_device_that_reorders_writes() {
    assert_eq!(early_flags(DataOrder::InOrder, 1, 40), 0);
    for order in [DataOrder::AtomicsOrdered, DataOrder::FlushOnly] {
        let early: u64 = (0..5).map(|seed| early_flags(order, seed, 20)).sum();
        assert!(early > 0, "{order}");
    }
}

#[test]
fn a_look_by_command_finds_everything_placed() {
    let mut pair = Pair::with(
        &config(DataOrder::FlushOnly, 3),
        Shape::default(),
        receiver(true),
    );
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    for round in 1..=50u8 {
        pair.a.data.write(0, &[round; BYTES as usize]);
        let before = pair.hca_a.counters().wqes;
        pair.a.write(0, BYTES, remote, rkey);
        pair.a.post();
        wait_until("the WQE is fetched", || pair.hca_a.counters().wqes > before);
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
