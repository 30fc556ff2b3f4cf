//! Commands of the device model: what each takes, refuses, and returns.

use mlx5_prm::cmd::{CmdIn, CmdOut, Opcode, Status};
use mlx5_prm::cq::{Cqc, CreateCqIn, ModifyCqIn, QueryCqIn, QueryCqOut};
use mlx5_prm::hca_cap::{AtomicCaps, CapType, QueryHcaCapIn, QueryHcaCapOut};
use mlx5_prm::mkey::{CreateMkeyIn, Mkc};
use mlx5_prm::qp::{CreateQpIn, QpModifyIn, QpState, Qpc};
use mlx5_prm::roce::{QueryRoceAddressIn, QueryRoceAddressOut};
use softhca::device::{Context, DevxObject, syndrome};
use softhca::profile::Profile;
use softhca::{DeviceError, Hca, HcaConfig};
use softhca_rig::bringup::{bring_up, create_cq, create_qp, refused};
use softhca_rig::create;

#[test]
fn bad_queues_are_refused_by_what_is_wrong() {
    let hca = Hca::new().unwrap();
    let b = bring_up(&hca).unwrap();
    let eqn = b.context.eqn(0).unwrap();
    let good = create_cq(b.umem, b.page_id, eqn);
    let cq = |change: &dyn Fn(&mut CreateCqIn)| {
        let mut input = good;
        change(&mut input);
        refused(create(&b.context, input.as_bytes())).1
    };
    assert_eq!(cq(&|i| i.set_cq_umem_id(0xffff)), syndrome::NO_SUCH_UMEM);
    assert_eq!(
        cq(&|i| i.set_cq_umem_offset(65_536 - 255 + 63)),
        syndrome::QUEUE_OUTSIDE_UMEM
    );
    assert_eq!(
        cq(&|i| i.set_cq_umem_offset(u64::MAX - 63)),
        syndrome::QUEUE_OUTSIDE_UMEM
    );
    assert_eq!(
        cq(&|i| i.set_cq_umem_offset(4096 + 32)),
        syndrome::QUEUE_MISALIGNED
    );
    assert_eq!(
        cq(&|i| i.cqc_mut().set_log_cq_size(23)),
        syndrome::CQ_TOO_LONG
    );
    assert_eq!(cq(&|i| i.cqc_mut().set_cqe_sz(2)), syndrome::CQE_SIZE);
    assert_eq!(cq(&|i| i.cqc_mut().set_c_eqn(0)), syndrome::NO_SUCH_EQ);
    assert_eq!(
        cq(&|i| i.cqc_mut().set_uar_page(0xfff)),
        syndrome::NO_SUCH_UAR
    );
    assert_eq!(
        cq(&|i| i.cqc_mut().set_dbr_addr(65_536 - 7)),
        syndrome::DBR_OUTSIDE_UMEM
    );
    assert_eq!(
        cq(&|i| i.cqc_mut().set_dbr_addr(4)),
        syndrome::DBR_MISALIGNED
    );

    let good = create_qp(b.pdn, b.umem, b.page_id, b.cqn);
    let qp = |change: &dyn Fn(&mut CreateQpIn)| {
        let mut input = good;
        change(&mut input);
        refused(create(&b.context, input.as_bytes())).1
    };
    assert_eq!(qp(&|i| i.qpc_mut().set_st(5)), syndrome::QP_SERVICE);
    assert_eq!(qp(&|i| i.qpc_mut().set_pd(0)), syndrome::NO_SUCH_PD);
    assert_eq!(qp(&|i| i.qpc_mut().set_cqn_rcv(0)), syndrome::NO_SUCH_CQ);
    assert_eq!(qp(&|i| i.qpc_mut().set_rq_type(2)), syndrome::RQ_TYPE);
    assert_eq!(qp(&|i| i.qpc_mut().set_rq_type(1)), syndrome::NO_SUCH_SRQ);
    let xrc_with_receive_queue = |i: &mut CreateQpIn| {
        i.qpc_mut().set_st(Qpc::ST_XRC);
        i.qpc_mut().set_rq_type(Qpc::RQ_TYPE_REGULAR);
    };
    assert_eq!(qp(&xrc_with_receive_queue), syndrome::RQ_TYPE);
    let target_without_domain = |i: &mut CreateQpIn| {
        i.qpc_mut().set_st(Qpc::ST_XRC);
        i.qpc_mut().set_no_sq(1);
    };
    assert_eq!(qp(&target_without_domain), syndrome::NO_SUCH_XRCD);
    assert_eq!(
        qp(&|i| i.qpc_mut().set_send_dbr_mode(2)),
        syndrome::DBR_MODE
    );
    assert_eq!(
        qp(&|i| i.set_wq_umem_offset(65_536 - 1023 + 63)),
        syndrome::QUEUE_OUTSIDE_UMEM
    );
    // Exactly to the end of the UMEM is allowed.
    let mut input = good;
    input.set_wq_umem_offset(65_536 - 1024);
    let (object, _) = create(&b.context, input.as_bytes()).unwrap();
    b.context.devx_destroy(object).unwrap();
    // Too short an input is refused, too.
    let short = refused(create(&b.context, &good.as_bytes()[..0x10b]));
    assert_eq!(short, (Status::BAD_INP_LEN, syndrome::INPUT_TOO_SHORT));
}

#[test]
fn more_qps_than_a_page_has_registers_share_them() {
    let hca = Hca::new().unwrap();
    let b = bring_up(&hca).unwrap();
    let input = create_qp(b.pdn, b.umem, b.page_id, b.cqn);
    for _ in 0..3 {
        create(&b.context, input.as_bytes()).unwrap();
    }
}

#[test]
fn a_handle_and_the_number_in_its_command_must_agree() {
    let hca = Hca::new().unwrap();
    let b = bring_up(&hca).unwrap();
    let (qp, qpn) = create(
        &b.context,
        create_qp(b.pdn, b.umem, b.page_id, b.cqn).as_bytes(),
    )
    .unwrap();
    let input = QpModifyIn::default()
        .with_opcode(Opcode::TO_ERR_QP.0.into())
        .with_qpn(qpn + 1);
    let error = b
        .context
        .devx_modify(qp, input.as_bytes(), &mut [0; 16])
        .unwrap_err();
    assert_eq!(
        error,
        DeviceError::WrongCommand {
            opcode: Opcode::TO_ERR_QP
        }
    );
    // Nor may a command go through a call of another kind.
    let create = create_qp(b.pdn, b.umem, b.page_id, b.cqn);
    let error = b
        .context
        .devx_general(create.as_bytes(), &mut [0; 16])
        .unwrap_err();
    assert_eq!(error.errno(), libc::EINVAL);
}

/// Linux hands them to the firmware, and firmware that lacks them says so in the output.
#[test]
fn commands_that_the_kernel_passes_on_are_unknown_to_the_device() {
    let hca = Hca::new().unwrap();
    let context = Context::open(hca.name()).unwrap();
    let input = |opcode: Opcode| CmdIn::default().with_opcode(opcode.0.into());
    let unknown = (Status::BAD_OP, syndrome::UNKNOWN_OPCODE);
    for opcode in [
        Opcode::CREATE_SRQ,
        Opcode::CREATE_DCT,
        Opcode::CREATE_XRQ,
        Opcode::CREATE_SCHEDULING_ELEMENT,
        Opcode::ATTACH_TO_MCG,
        Opcode::ALLOC_TRANSPORT_DOMAIN,
        Opcode::ADD_VXLAN_UDP_DPORT,
        Opcode::SET_L2_TABLE_ENTRY,
        Opcode::CREATE_TIR,
        Opcode::CREATE_SQ,
        Opcode::CREATE_RQ,
        Opcode::CREATE_TIS,
        Opcode::CREATE_RQT,
        Opcode::CREATE_FLOW_TABLE,
        Opcode::CREATE_FLOW_GROUP,
        Opcode::SET_FLOW_TABLE_ENTRY,
        Opcode::ALLOC_FLOW_COUNTER,
        Opcode::ALLOC_PACKET_REFORMAT_CONTEXT,
        Opcode::ALLOC_MODIFY_HEADER_CONTEXT,
        Opcode::CREATE_GENERAL_OBJECT,
    ] {
        let mut output = [0xff; 16];
        let error = context
            .devx_create(input(opcode).as_bytes(), &mut output)
            .unwrap_err();
        assert_eq!(error.errno(), libc::EREMOTEIO, "{opcode}");
        assert_eq!(CmdOut::from_prefix(&output).result(), unknown.0, "{opcode}");
        assert_eq!(refused::<DevxObject>(Err(error)), unknown, "{opcode}");
    }
    for opcode in [
        Opcode::QUERY_ADAPTER,
        Opcode::QUERY_VPORT_STATE,
        Opcode::QUERY_VPORT_COUNTER,
        Opcode::NOP,
        Opcode(0xb00),
    ] {
        let outcome = context.devx_general(input(opcode).as_bytes(), &mut [0xff; 16]);
        assert_eq!(refused(outcome), unknown, "{opcode}");
    }
    // What the kernel does not pass on.
    for opcode in [Opcode::ACCESS_REG, Opcode::CREATE_UMEM, Opcode(0xfff)] {
        let made = context.devx_create(input(opcode).as_bytes(), &mut [0; 16]);
        assert_eq!(made.unwrap_err(), DeviceError::WrongCommand { opcode });
        let said = context.devx_general(input(opcode).as_bytes(), &mut [0; 16]);
        assert_eq!(said.unwrap_err(), DeviceError::WrongCommand { opcode });
    }
    assert_eq!(context.live_objects().total(), 1, "the context");
}

#[test]
fn every_transition_in_every_state_follows_the_table() {
    let hca = Hca::new().unwrap();
    let b = bring_up(&hca).unwrap();
    let (qp, qpn) = create(
        &b.context,
        create_qp(b.pdn, b.umem, b.page_id, b.cqn).as_bytes(),
    )
    .unwrap();
    let send = |opcode: Opcode| {
        let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];
        let path = mlx5_prm::qp::Ads::default()
            .with_rgid_rip(gid)
            .with_src_addr_index(3);
        let qpc = Qpc::default().with_mtu(1).with_primary_address_path(path);
        let input = QpModifyIn::default()
            .with_opcode(opcode.0.into())
            .with_qpn(qpn)
            .with_qpc(qpc);
        b.context.devx_modify(qp, input.as_bytes(), &mut [0; 16])
    };
    let (init, rtr, rts) = (Opcode::RST2INIT_QP, Opcode::INIT2RTR_QP, Opcode::RTR2RTS_QP);
    let ways: [(QpState, &[Opcode]); 6] = [
        (QpState::RST, &[]),
        (QpState::INIT, &[init]),
        (QpState::RTR, &[init, rtr]),
        (QpState::RTS, &[init, rtr, rts]),
        (QpState::SQD, &[init, rtr, rts, Opcode::RTS2SQD_QP]),
        (QpState::ERR, &[Opcode::TO_ERR_QP]),
    ];
    let mut allowed = Vec::new();
    for (state, way) in ways {
        for opcode in 0x502..=0x50e {
            let opcode = Opcode(opcode);
            if opcode == Opcode::QUERY_QP {
                continue;
            }
            send(Opcode::TO_RST_QP).unwrap();
            way.iter().for_each(|step| send(*step).unwrap());
            match send(opcode) {
                Ok(()) => allowed.push((state, opcode)),
                Err(DeviceError::Refused { status, .. }) => {
                    assert_eq!(status, Status::BAD_QP_STATE)
                }
                Err(error) => assert!(opcode.name().is_none(), "{opcode} in {state}: {error}"),
            }
        }
    }
    let always = [Opcode::TO_ERR_QP, Opcode::TO_RST_QP];
    let extra = [
        (QpState::RST, vec![Opcode::RST2INIT_QP]),
        (
            QpState::INIT,
            vec![Opcode::INIT2RTR_QP, Opcode::INIT2INIT_QP],
        ),
        (QpState::RTR, vec![Opcode::RTR2RTS_QP]),
        (QpState::RTS, vec![Opcode::RTS2RTS_QP, Opcode::RTS2SQD_QP]),
        (QpState::SQD, vec![Opcode::SQD2RTS_QP, Opcode::SQD_RTS_QP]),
        (QpState::ERR, vec![]),
    ];
    let mut expected: Vec<(QpState, Opcode)> = Vec::new();
    for (state, mut opcodes) in extra {
        opcodes.extend(always);
        opcodes.sort();
        expected.extend(opcodes.into_iter().map(|opcode| (state, opcode)));
    }
    assert_eq!(allowed, expected);
}

#[test]
fn queues_and_keys_can_be_queried_and_changed() {
    let hca = Hca::new().unwrap();
    let b = bring_up(&hca).unwrap();
    let cq = DevxObject::Cq(b.cqn);
    let mut input = ModifyCqIn::default()
        .with_opcode(Opcode::MODIFY_CQ.0.into())
        .with_cqn(b.cqn)
        .with_modify_field_select(0b111);
    *input.cqc_mut() = Cqc::default()
        .with_oi(1)
        .with_cq_period(7)
        .with_cq_max_count(9);
    b.context
        .devx_modify(cq, input.as_bytes(), &mut [0; 16])
        .unwrap();
    let input = QueryCqIn::default()
        .with_opcode(Opcode::QUERY_CQ.0.into())
        .with_cqn(b.cqn);
    let mut output = [0xff; QueryCqOut::BYTES];
    b.context
        .devx_query(cq, input.as_bytes(), &mut output)
        .unwrap();
    let cqc = *QueryCqOut::from_bytes(&output).unwrap().cqc();
    assert_eq!((cqc.oi(), cqc.cq_period(), cqc.cq_max_count()), (1, 7, 9));
    assert_eq!(cqc.log_cq_size(), 2);

    let mkc = Mkc::default()
        .with_access_mode_1_0(Mkc::ACCESS_MODE_MTT)
        .with_rw(1)
        .with_mkey_7_0(0x42)
        .with_pd(b.pdn)
        .with_start_addr(0x5000)
        .with_len(0x1000);
    let mut input = CreateMkeyIn::default()
        .with_opcode(Opcode::CREATE_MKEY.0.into())
        .with_mkc(mkc)
        .with_mkey_umem_id(b.umem)
        .with_mkey_umem_offset(0xf000);
    let (key, index) = create(&b.context, input.as_bytes()).unwrap();
    assert_eq!(hca.live_objects().mkey, 1);
    let query = QueryCqIn::default()
        .with_opcode(Opcode::QUERY_MKEY.0.into())
        .with_cqn(index);
    let mut output = [0xff; 16 + Mkc::BYTES];
    b.context
        .devx_query(key, query.as_bytes(), &mut output)
        .unwrap();
    let found = *Mkc::from_bytes(&output[16..]).unwrap();
    assert_eq!(
        (found.start_addr(), found.len(), found.rw(), found.rr()),
        (0x5000, 0x1000, 1, 0)
    );
    assert_eq!(
        b.context.dereg_umem(b.umem).unwrap_err().errno(),
        libc::EBUSY
    );
    b.context.devx_destroy(key).unwrap();
    input.set_mkey_umem_offset(0xf001);
    assert_eq!(
        refused(create(&b.context, input.as_bytes())).1,
        syndrome::MKEY_RANGE
    );
}

/// Returns the device's answer to QUERY_HCA_CAP.
fn capabilities(context: &Context, kind: CapType) -> Result<Vec<u8>, DeviceError> {
    let input = QueryHcaCapIn::default()
        .with_opcode(Opcode::QUERY_HCA_CAP.0.into())
        .with_op_mod(kind.current());
    let mut output = vec![0xff; QueryHcaCapOut::BYTES];
    context
        .devx_general(input.as_bytes(), &mut output)
        .map(|()| output)
}

#[test]
fn the_least_card_has_atomics_and_no_masked_ones() {
    let hca = Hca::with_config(HcaConfig {
        profile: Profile::ConnectX5,
        ..HcaConfig::default()
    })
    .unwrap();
    let context = Context::open(hca.name()).unwrap();
    let ask = |kind: CapType| {
        let output = capabilities(&context, kind).unwrap();
        *QueryHcaCapOut::from_bytes(&output).unwrap()
    };
    let general = ask(CapType::GENERAL);
    let general = general.cmd_hca_cap();
    assert_eq!((general.atomic(), general.log_max_ra_req_qp()), (1, 0));
    let atomics = ask(CapType::ATOMIC);
    let atomics = atomics.atomic_caps();
    assert_eq!(
        atomics.atomic_operations(),
        AtomicCaps::OP_CMP_SWAP | AtomicCaps::OP_FETCH_ADD
    );
    assert_eq!((atomics.atomic_size_qp(), atomics.atomic_size_dc()), (8, 0));
}

#[test]
fn capabilities_and_addresses_are_reported() {
    let hca = Hca::new().unwrap();
    let context = Context::open(hca.name()).unwrap();
    let ask = |kind: CapType| capabilities(&context, kind);
    let output = ask(CapType::GENERAL).unwrap();
    let caps = *QueryHcaCapOut::from_bytes(&output).unwrap().cmd_hca_cap();
    assert_eq!(
        (caps.port_type(), caps.rc(), caps.uc(), caps.cqe_version()),
        (1, 1, 1, 1)
    );
    assert_eq!(caps.max_wqe_sz_sq(), 1024);
    let output = ask(CapType::ATOMIC).unwrap();
    let caps = *QueryHcaCapOut::from_bytes(&output).unwrap().atomic_caps();
    assert_eq!(caps.atomic_operations(), 15);
    // UCX judges masked atomics by the sizes that both have.
    assert_eq!((caps.atomic_size_qp(), caps.atomic_size_dc()), (12, 12));
    assert!(ask(CapType(0x55)).is_err());
    let output = ask(CapType::ROCE).unwrap();
    let caps = *QueryHcaCapOut::from_bytes(&output).unwrap().roce_caps();
    // `MLX5_ROCE_VERSION_{1,2}_CAP` and `MLX5_ROCE_L3_TYPE_IPV{4,6}_CAP` of Linux.
    assert_eq!((caps.roce_version(), caps.l3_type()), (0b101, 0b110));

    let input = QueryRoceAddressIn::default()
        .with_opcode(Opcode::QUERY_ROCE_ADDRESS.0.into())
        .with_roce_address_index(3);
    let mut output = [0xff; QueryRoceAddressOut::BYTES];
    context.devx_general(input.as_bytes(), &mut output).unwrap();
    let entry = *QueryRoceAddressOut::from_bytes(&output)
        .unwrap()
        .roce_address();
    assert_eq!(entry.source_l3_address(), hca.gid());
    assert_eq!((entry.roce_version(), entry.roce_l3_type()), (2, 1));
}
