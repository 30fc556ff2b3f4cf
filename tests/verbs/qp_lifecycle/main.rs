//! QPs through unmodified libibverbs and libmlx5 on the software HCA: bring-up, refusal, reset, destruction, and what is left
//! behind when any step fails.

mod adopted;
mod bond;
mod events;
mod export;
mod lives;
mod mailbox;
mod modes;
mod poster;
mod pyverbs;

use std::collections::BTreeSet;

use mlx5_prm::cmd::{Opcode, Status};
use softhca::link::Link;
use softhca::{FailCommand, Hca, HcaConfig};
use test_support::hca::{hca, hca_with};
use test_support::limits::until;
use test_support::node::{Node, PSNS, connect, connect_reset};
use warpverbs::verbs::{
    Context, CqKind, DeviceSelector, Doorbell, InfinibandAddress, Mtu, PathAttr, QpConfig, QpState,
    Queues, RoceAddress, SendAttr, VerbsError,
};

const HEAP: usize = 1 << 20;

/// The next command with this opcode fails.
fn fail(hca: &Hca, opcode: Opcode, status: Status, syndrome: u32) {
    hca.fail_command(FailCommand {
        opcode: Some(opcode.0),
        nth: 1,
        status: status.0,
        syndrome,
    });
}

#[track_caller]
fn assert_nothing_left(hca: &Hca) {
    // Another test of this process may have the device open for a moment, to see which it wants.
    until("nothing is left on the HCA", || {
        hca.live_objects().total() == 0
    });
    let left = hca.live_objects();
    assert_eq!(left.total(), 0, "{left:?}");
    assert_eq!(hca.findings(), Vec::<String>::new());
}

#[test]
fn two_qps_reach_rts_and_leave_nothing_behind() {
    let hcas = [hca(), hca()];
    let nodes = [0, 1].map(|n| Node::open(&hcas[n], HEAP).unwrap());
    let qps = connect([&nodes[0], &nodes[1]], &QpConfig::default()).unwrap();
    for (n, qp) in qps.iter().enumerate() {
        let status = qp.query().unwrap();
        assert_eq!(status.state, QpState::RTS);
        assert_eq!(status.next_send_psn, PSNS[n]);
        assert_eq!(status.next_rcv_psn, PSNS[1 - n]);
        assert_eq!(status.hw_sq_wqebb_counter, 0);
        let live = hcas[n].live_objects();
        assert_eq!(
            (live.context, live.pd, live.umem, live.cq, live.qp),
            (1, 1, 1, 1, 1)
        );
        assert_eq!(nodes[n].heap.stats().live_blocks, 3);
    }
    drop(qps);
    for (n, node) in nodes.iter().enumerate() {
        let live = hcas[n].live_objects();
        assert_eq!((live.cq, live.qp), (0, 0));
        assert_eq!(node.heap.stats().live_blocks, 0);
    }
    drop(nodes);
    hcas.iter().for_each(assert_nothing_left);
}

/// Two ends whose devices have these options of enhanced connection establishment; what is in force at each.
fn options(own: [u32; 2]) -> [u32; 2] {
    let hcas = own.map(|ece| {
        hca_with(HcaConfig {
            ece,
            ..HcaConfig::default()
        })
    });
    let nodes = [0, 1].map(|n| Node::open(&hcas[n], HEAP).unwrap());
    let shape = QpConfig::default();
    let made = nodes.each_ref().map(|node| node.qp(&shape).unwrap());
    for (qp, own) in made.iter().zip(own) {
        assert_eq!(qp.ece(), own);
        assert_eq!(qp.query().unwrap().ece, own);
    }
    let ends = connect_reset([&nodes[0], &nodes[1]], made).unwrap();
    let found = ends.each_ref().map(|qp| qp.query().unwrap().ece);
    let again = ends.map(|qp| qp.reset().unwrap());
    assert_eq!(again.each_ref().map(|qp| qp.query().unwrap().ece), own);
    found
}

#[test]
fn options_of_connection_establishment_are_those_that_both_ends_have() {
    assert_eq!(options([0x3, 0x3]), [0x3; 2]);
    assert_eq!(options([0x3, 0x6]), [0x2; 2]);
    assert_eq!(options([0x8000_0001, 0xffff_ffff]), [0x8000_0001; 2]);
    assert_eq!(
        options([0, 0x3]),
        [0; 2],
        "a device without any is given none"
    );
    assert_eq!(options([0, 0]), [0; 2]);
}

/// One whole life on one device: from opening it to two QPs in Rts, and through Err and Reset to Rts again. When QPs are not
/// made, nothing of them may be left in the heaps.
fn bring_up(hca: &Hca, shape: &QpConfig) -> Result<(), VerbsError> {
    let mut node = Node::open(hca, HEAP)?;
    if *shape != QpConfig::default() {
        node = node.with_host(HEAP)?;
    }
    lives(&node, shape)
}

/// The part after the opening of the device.
fn lives(node: &Node, shape: &QpConfig) -> Result<(), VerbsError> {
    let _window = node.window(HEAP)?;
    let qps = connect([node, node], shape);
    if qps.is_err() {
        let heaps = [Some(&node.heap), node.host.as_ref()];
        for heap in heaps.into_iter().flatten() {
            let left = heap.stats().live_blocks;
            assert_eq!(left, 0, "blocks of a QP that does not exist");
        }
    }
    let qps = qps?;
    for qp in &qps {
        qp.to_error()?;
    }
    let [a, b] = qps;
    let reset = [a.reset()?, b.reset()?];
    for qp in &reset {
        node.write_image(qp, 65_536);
    }
    let qps = connect_reset([node, node], reset)?;
    // The first command after them: fails when all before it have had their turn.
    qps[0].query().map(|_| ())
}

#[test]
fn each_command_of_a_bring_up_fails_in_turn_and_everything_is_taken_down() {
    every_command_fails(&QpConfig::default(), &[]);
}

#[test]
fn commands_fail_in_turn_with_host_queues_mailbox_wide_cq_and_receives() {
    let shape = QpConfig::default()
        .with_log_depth(8)
        .with_doorbell(Doorbell::Mailbox)
        .with_queues(Queues::Host)
        .with_cq(CqKind::Wide)
        .with_log_recv_depth(Some(4));
    every_command_fails(&shape, &["QUERY_CQ (0x402)"]);
}

#[test]
fn each_command_fails_in_turn_without_a_record() {
    let shape = QpConfig::default()
        .with_log_depth(8)
        .with_doorbell(Doorbell::NoRecord)
        .with_log_recv_depth(Some(4));
    every_command_fails(&shape, &["QUERY_CQ (0x402)"]);
}

#[test]
fn each_command_fails_in_turn_on_infiniband() {
    commands_fail((infiniband(), Status::NO_RES), &QpConfig::default(), &[]);
}

/// The status that libibverbs reports as ENOMEM.
#[test]
fn each_command_fails_in_turn_for_want_of_memory() {
    for config in [HcaConfig::default(), infiniband()] {
        commands_fail((config, Status::LIM_ERR), &QpConfig::default(), &[]);
    }
}

pub(crate) fn infiniband() -> HcaConfig {
    HcaConfig {
        link: Link::InfiniBand,
        ..HcaConfig::default()
    }
}

fn every_command_fails(shape: &QpConfig, more: &[&str]) {
    commands_fail((HcaConfig::default(), Status::NO_RES), shape, more);
}

/// Each command of a life fails in turn with `status`, on devices made by `config`.
fn commands_fail((config, status): (HcaConfig, Status), shape: &QpConfig, more: &[&str]) {
    let (mut failed, mut ignored) = (BTreeSet::new(), 0);
    for nth in 1..200 {
        let hca = hca_with(config.clone());
        let syndrome = 0x5eed_0000 + nth;
        hca.fail_command(FailCommand {
            opcode: None,
            nth,
            status: status.0,
            syndrome,
        });
        let result = bring_up(&hca, shape);
        assert_nothing_left(&hca);
        match result {
            // libmlx5 asks some things whose answer it can do without, and a drop goes on when a command is refused.
            Ok(()) => ignored += 1,
            Err(VerbsError::Command { source, .. }) => {
                assert_eq!((source.status, source.syndrome), (status, syndrome));
                if source.opcode == Opcode::QUERY_QP {
                    println!("{nth} commands: {failed:?} failed, {ignored} did not");
                    assert_all_tried(&failed, more);
                    return;
                }
                failed.insert(source.opcode.to_string());
            }
            Err(VerbsError::Call { call, .. }) => {
                failed.insert(call.to_owned());
            }
            Err(VerbsError::NoDevice { found, .. }) => panic!("{found:?}"),
            Err(other) => panic!("command {nth}: {other}"),
        }
    }
    panic!("the bring-up does not end: {failed:?}");
}

fn assert_all_tried(failed: &BTreeSet<String>, more: &[&str]) {
    let wanted = [
        "ibv_alloc_pd",
        "ibv_reg_mr",
        "mlx5dv_devx_umem_reg_ex",
        "mlx5dv_devx_alloc_uar",
        "mlx5dv_devx_query_eqn",
        "QUERY_HCA_CAP (0x100)",
        "CREATE_CQ (0x400)",
        "CREATE_QP (0x500)",
        "RST2INIT_QP (0x502)",
        "INIT2RTR_QP (0x503)",
        "RTR2RTS_QP (0x504)",
        "TO_ERR_QP (0x507)",
        "TO_RST_QP (0x50a)",
    ];
    for step in wanted.iter().chain(more) {
        assert!(failed.contains(*step), "{step} never failed: {failed:?}");
    }
}

#[test]
fn a_device_that_gives_no_context_is_an_error_with_the_kernels_answer() {
    let hca = hca();
    // libmlx5 tries again by itself.
    for _ in 0..4 {
        fail(&hca, Opcode(FailCommand::ALLOC_UCTX), Status::NO_RES, 1);
    }
    let selector = DeviceSelector::Name(hca.name().to_owned());
    let error = Context::open(&selector).unwrap_err();
    assert!(matches!(error, VerbsError::Call { .. }), "{error}");
    assert!(
        error
            .to_string()
            .starts_with("mlx5dv_open_device (with DevX) on "),
        "{error}"
    );
    assert_nothing_left(&hca);
}

#[test]
fn a_refused_command_is_an_error_with_opcode_status_and_syndrome() {
    let hca = hca();
    let node = Node::open(&hca, HEAP).unwrap();
    fail(&hca, Opcode::CREATE_QP, Status::BAD_PARAM, 0x00ab_cdef);
    let error = node.qp(&QpConfig::default()).unwrap_err();
    let command = error.command().unwrap();
    assert_eq!(
        (command.opcode, command.status, command.syndrome),
        (Opcode::CREATE_QP, Status::BAD_PARAM, 0x00ab_cdef)
    );
    let text = error.to_string();
    assert!(
        text.contains(hca.name()) && text.contains("CREATE_QP (0x500)"),
        "{text}"
    );
    assert_eq!(
        (hca.live_objects().cq, node.heap.stats().live_blocks),
        (0, 0)
    );
}

#[test]
fn a_refused_transition_gives_the_qp_back_and_it_can_go_on() {
    let hca = hca();
    let node = Node::open(&hca, HEAP).unwrap();
    let [a, b] = [0, 1].map(|_| node.qp(&QpConfig::default()).unwrap());
    let path = PathAttr::new(b.qpn(), node.gid(), 1);
    let qpn = a.qpn();
    fail(&hca, Opcode::RST2INIT_QP, Status::BAD_RES, 1);
    let a = a.init().unwrap_err().qp.init().unwrap();
    fail(&hca, Opcode::INIT2RTR_QP, Status::BAD_RES, 2);
    let refused = a.ready_to_receive(&path).unwrap_err();
    let text = refused.to_string();
    assert!(
        text.starts_with(&format!("QP {qpn:#x} stays in Init: ")),
        "{text}"
    );
    let a = refused.qp.ready_to_receive(&path).unwrap();
    fail(&hca, Opcode::RTR2RTS_QP, Status::BAD_RES, 3);
    let a = a.ready_to_send(&SendAttr::new(0)).unwrap_err().qp;
    assert_eq!(a.query().unwrap().state, QpState::RTR);
    let a = a.ready_to_send(&SendAttr::new(0)).unwrap();
    assert_eq!((a.qpn(), a.query().unwrap().state), (qpn, QpState::RTS));
}

#[test]
fn the_hca_refuses_an_edge_that_the_types_cannot_see_and_reset_leads_out() {
    let hca = hca();
    let node = Node::open(&hca, HEAP).unwrap();
    let [a, b] = connect([&node, &node], &QpConfig::default()).unwrap();
    let layout = *a.layout();
    a.to_error().unwrap();
    assert_eq!(a.query().unwrap().state, QpState::ERR);
    // To the types it is in Rts; in truth it is in Err, where only Reset leads on.
    let [a, b] = [a.reset().unwrap(), b.reset().unwrap()];
    let a = a.init().unwrap();
    a.to_error().unwrap();
    let refused = a
        .ready_to_receive(&PathAttr::new(b.qpn(), node.gid(), 0))
        .unwrap_err();
    let command = *refused.source.command().unwrap();
    assert_eq!(
        (command.opcode, command.status),
        (Opcode::INIT2RTR_QP, Status::BAD_QP_STATE)
    );
    let a = refused.qp.reset().unwrap();
    for qp in [&a, &b] {
        node.write_image(qp, 65_536);
    }
    let [a, _b] = connect_reset([&node, &node], [a, b]).unwrap();
    assert_eq!(a.query().unwrap().state, QpState::RTS);
    assert_eq!(*a.layout(), layout, "a reset moves nothing");
}

#[test]
fn what_a_peer_says_is_checked_before_it_reaches_a_command() {
    let hca = hca();
    let node = Node::open(&hca, HEAP).unwrap();
    let mut qp = node.qp(&QpConfig::default()).unwrap().init().unwrap();
    let roce = RoceAddress::new(node.gid());
    let good = PathAttr::new(qp.qpn(), roce, 0);
    let bad = [
        (
            good.with_remote_qpn(1 << 24),
            "remote QPN is 0x1000000; it must be a number of 24 bits",
        ),
        (
            good.with_psn(u32::MAX),
            "PSN is 0xffffffff; it must be a number of 24 bits",
        ),
        (
            good.with_address(roce.with_gid_index(Some(77)).into()),
            "GID index is 77; it must be one of",
        ),
        (
            good.with_address(roce.with_hop_limit(0).into()),
            "hop limit is 0; it must be 1 to 255",
        ),
        (
            good.with_address(InfinibandAddress::new(7).into()),
            "link layer of the peer is InfiniBand; it must be Ethernet, the link layer of the own port",
        ),
    ];
    for (path, reason) in bad {
        let refused = qp.ready_to_receive(&path).unwrap_err();
        let text = refused.source.to_string();
        assert!(text.starts_with(reason), "{text}");
        qp = refused.qp;
    }
    let path = good
        .with_mtu(Some(Mtu::B256))
        .with_address(roce.with_traffic_class(0xa0).with_priority(5).into());
    let qp = qp.ready_to_receive(&path).unwrap();
    let refused = qp
        .ready_to_send(&SendAttr::new(0).with_timeout(31))
        .unwrap_err();
    assert_eq!(
        refused.source.to_string(),
        "timeout is 31; it must be 12 to 20"
    );
}

#[test]
fn a_qp_that_the_hca_will_not_destroy_keeps_its_memory() {
    let hca = hca();
    let node = Node::open(&hca, HEAP).unwrap();
    let qp = node.qp(&QpConfig::default()).unwrap();
    let taken = *qp.layout();
    fail(&hca, Opcode::DESTROY_QP, Status::BAD_RES_STATE, 9);
    let error = qp.destroy().unwrap_err().to_string();
    assert!(error.contains("mlx5dv_devx_obj_destroy"), "{error}");
    assert_eq!(
        node.heap.stats().live_blocks,
        3,
        "the HCA may still write there"
    );
    let next = node.qp(&QpConfig::default()).unwrap();
    assert_ne!(next.layout().context_addr, taken.context_addr);
    next.destroy().unwrap();
    assert_eq!(node.heap.stats().live_blocks, 3);
    // Not even the region under the heap is freed.
    let gpu = std::sync::Arc::clone(&node.gpu);
    drop(node);
    gpu.read(taken.context_addr, &mut [0; 768]).unwrap();
}

#[test]
fn every_qp_has_a_register_of_its_own_two_on_a_page() {
    let hca = hca();
    let node = Node::open(&hca, HEAP).unwrap();
    let qps: Vec<_> = (0..8)
        .map(|_| node.qp(&QpConfig::default()).unwrap())
        .collect();
    let registers: BTreeSet<_> = qps.iter().map(|qp| qp.layout().doorbell_addr).collect();
    let pages: BTreeSet<_> = qps
        .iter()
        .map(|qp| qp.layout().doorbell_page_addr)
        .collect();
    assert_eq!((registers.len(), pages.len()), (8, 4));
    let shared = QpConfig::default().with_share_doorbell_register(true);
    let error = node.qp(&shared).unwrap_err().to_string();
    assert!(error.contains("one register per QP"), "{error}");
    // Given back and taken again.
    drop(qps);
    let again = node.qp(&QpConfig::default()).unwrap();
    assert!(registers.contains(&again.layout().doorbell_addr));
}

#[test]
fn a_qp_without_a_record_has_its_own_page_between_any_neighbours() {
    let hca = hca();
    let node = Node::open(&hca, HEAP).unwrap();
    let plain = || node.qp(&QpConfig::default()).unwrap();
    let lone = || {
        let shape = QpConfig::default().with_doorbell(Doorbell::NoRecord);
        node.qp(&shape).unwrap()
    };
    for _ in 0..3 {
        let shared = [plain(), lone(), plain(), lone(), plain()];
        let layouts = shared.each_ref().map(|qp| *qp.layout());
        for own in [layouts[1], layouts[3]] {
            // No record, and rung at a place of its own.
            let offset = own.doorbell_addr - own.doorbell_page_addr;
            assert_eq!((offset, own.dbrec_addr), (0x600, 0));
            let page = own.doorbell_page_addr;
            let users = layouts.iter().filter(|l| l.doorbell_page_addr == page);
            assert_eq!(users.count(), 1);
        }
    }
    drop(node);
    assert_nothing_left(&hca);
}

/// H2 on the device: the same blocks and registers serve every next QP.
#[test]
fn a_qp_destroyed_and_made_again_lies_where_it_lay() {
    let hca = hca();
    let node = Node::open(&hca, HEAP).unwrap();
    let keep = node.qp(&QpConfig::default()).unwrap();
    let first = *node.qp(&QpConfig::default()).unwrap().layout();
    for _ in 0..50 {
        let again = *node.qp(&QpConfig::default()).unwrap().layout();
        let place = |l: &warpverbs::verbs::QpLayout| (l.context_addr, l.flags_addr, l.sq_addr);
        assert_eq!(place(&again), place(&first));
    }
    drop(keep);
    let stats = node.heap.stats();
    assert_eq!((stats.live_blocks, stats.free_extents), (0, 1));
    drop(node);
    assert_nothing_left(&hca);
}

#[test]
fn eight_ranks_with_four_qps_per_peer_fit_in_four_mib_of_control_heap() {
    let hca = hca();
    let node = Node::open(&hca, 4 << 20).unwrap();
    let config = QpConfig::default();
    assert_eq!(config.depth(), 1024);
    // All eight, this rank included: loopback QPs cost the same.
    let qps: Vec<_> = (0..8 * 4).map(|_| node.qp(&config).unwrap()).collect();
    let stats = node.heap.stats();
    println!(
        "{} bytes of control memory per QP of depth {}; {} QPs take {} of {} bytes",
        qps[0].control_bytes(),
        config.depth(),
        qps.len(),
        stats.live_bytes,
        stats.size
    );
    assert_eq!(qps[0].control_bytes(), config.control_bytes());
    assert_eq!(stats.live_bytes, 32 * config.control_bytes());
    assert!(qps[0].control_bytes() < 75 << 10);
}

#[test]
fn an_unknown_device_is_refused_with_what_there_is() {
    let hca = hca();
    let selector = DeviceSelector::Name("mlx5_4711".to_owned());
    let error = Context::open(&selector).unwrap_err().to_string();
    assert!(error.starts_with("no RDMA device mlx5_4711: "), "{error}");
    assert!(
        error.contains(&format!("{}: has another name", hca.name())),
        "{error}"
    );
}

#[test]
fn auto_takes_a_device_and_a_full_heap_leaves_no_half_qp() {
    let hca = hca();
    Context::open(&DeviceSelector::Auto).unwrap();
    let node = Node::open(&hca, 64 << 10).unwrap();
    let error = node.qp(&QpConfig::default()).unwrap_err();
    assert!(matches!(error, VerbsError::Heap(_)), "{error}");
    assert!(
        error
            .to_string()
            .contains("65536 bytes aligned to 128 do not fit"),
        "{error}"
    );
    assert_eq!(node.heap.stats().live_blocks, 0);
    let live = hca.live_objects();
    assert_eq!((live.cq, live.qp), (0, 0));
    let small = QpConfig::default().with_log_depth(8);
    node.qp(&small).unwrap();
}
