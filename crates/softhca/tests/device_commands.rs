//! The device model by itself: objects that use each other, commands of any bytes, failures on request.

mod rig;

use mlx5_prm::cmd::{CmdOut, Opcode, Status};
use mlx5_prm::cq::{Cqc, CreateCqIn, ModifyCqIn, QueryCqIn, QueryCqOut};
use mlx5_prm::hca_cap::{CapType, QueryHcaCapIn, QueryHcaCapOut};
use mlx5_prm::mkey::{CreateMkeyIn, Mkc};
use mlx5_prm::qp::{CreateQpIn, QpModifyIn, QpState, Qpc};
use mlx5_prm::roce::{QueryRoceAddressIn, QueryRoceAddressOut};
use proptest::prelude::*;
use rig::{End, Memory, Shape, create};
use softhca::device::{Access, Context, DevxObject, syndrome};
use softhca::{DeviceError, FailCommand, Hca, HcaConfig};

/// What a QP needs, made step by step; any step may fail.
struct Bringup {
    context: Context,
    memory: Memory,
    pdn: u32,
    umem: u32,
    page_id: u32,
    cqn: u32,
}

#[expect(
    unsafe_code,
    reason = "registers memory that outlives the registration"
)]
fn bring_up(hca: &Hca) -> Result<Bringup, DeviceError> {
    let memory = Memory::new(1 << 16);
    let context = Context::open(hca.name())?;
    let pdn = context.alloc_pd()?;
    // SAFETY: the context goes before the memory: as local variables and as fields.
    let mr = unsafe {
        context.reg_mr(
            pdn,
            memory.address(),
            memory.bytes(),
            memory.address(),
            Access(15),
        )
    };
    let mr = mr?;
    // SAFETY: as above.
    let umem = unsafe { context.reg_umem(memory.address(), memory.bytes(), Access(1)) }?;
    let page_id = context.alloc_uar()?.page_id;
    let eqn = context.eqn(0)?;
    let (_, cqn) = create(&context, create_cq(umem, page_id, eqn).as_bytes())?;
    let (object, qpn) = create(&context, create_qp(pdn, umem, page_id, cqn).as_bytes())?;
    for opcode in [Opcode::RST2INIT_QP, Opcode::TO_ERR_QP, Opcode::TO_RST_QP] {
        let input = QpModifyIn::default()
            .with_opcode(opcode.0.into())
            .with_qpn(qpn);
        context.devx_modify(object, input.as_bytes(), &mut [0; 16])?;
    }
    context.devx_destroy(object)?;
    context.dereg_mr(mr.lkey)?;
    Ok(Bringup {
        context,
        memory,
        pdn,
        umem,
        page_id,
        cqn,
    })
}

fn create_cq(umem: u32, page_id: u32, eqn: u32) -> CreateCqIn {
    let cqc = Cqc::default()
        .with_dbr_umem_id(umem)
        .with_uar_page(page_id)
        .with_c_eqn(eqn)
        .with_log_cq_size(2);
    CreateCqIn::default()
        .with_opcode(Opcode::CREATE_CQ.0.into())
        .with_cqc(cqc)
        .with_cq_umem_offset(4096)
        .with_cq_umem_id(umem)
}

fn create_qp(pdn: u32, umem: u32, page_id: u32, cqn: u32) -> CreateQpIn {
    let qpc = Qpc::default()
        .with_pd(pdn)
        .with_log_sq_size(4)
        .with_rq_type(Qpc::RQ_TYPE_NONE)
        .with_uar_page(page_id)
        .with_cqn_snd(cqn)
        .with_cqn_rcv(cqn)
        .with_dbr_umem_id(umem)
        .with_dbr_addr(64);
    CreateQpIn::default()
        .with_opcode(Opcode::CREATE_QP.0.into())
        .with_qpc(qpc)
        .with_wq_umem_offset(8192)
        .with_wq_umem_id(umem)
}

fn refused(outcome: Result<(DevxObject, u32), DeviceError>) -> (Status, u32) {
    match outcome {
        Err(DeviceError::Refused {
            status, syndrome, ..
        }) => (status, syndrome),
        other => panic!("{other:?} is not a refusal"),
    }
}

#[test]
fn objects_in_use_are_busy_and_closing_the_context_ends_all_of_them() {
    let hca = Hca::new().unwrap();
    let b = bring_up(&hca).unwrap();
    let (qp, _) = create(
        &b.context,
        create_qp(b.pdn, b.umem, b.page_id, b.cqn).as_bytes(),
    )
    .unwrap();
    let live = hca.live_objects();
    assert_eq!(
        (
            live.context,
            live.pd,
            live.mr,
            live.umem,
            live.uar,
            live.cq,
            live.qp
        ),
        (1, 1, 0, 1, 1, 1, 1)
    );
    for busy in [
        b.context.dealloc_pd(b.pdn),
        b.context.dereg_umem(b.umem),
        b.context.free_uar(b.page_id),
    ] {
        assert_eq!(busy.unwrap_err().errno(), libc::EBUSY);
    }
    let cq = DevxObject::Cq(b.cqn);
    let error = b.context.devx_destroy(cq).unwrap_err();
    assert!(matches!(
        error,
        DeviceError::Refused {
            status: Status::RES_BUSY,
            syndrome: syndrome::CQ_IN_USE,
            ..
        }
    ));
    b.context.devx_destroy(qp).unwrap();
    b.context.devx_destroy(cq).unwrap();
    assert!(b.context.devx_destroy(cq).is_err());
    b.context.dealloc_pd(b.pdn).unwrap();

    let end = End::new(&hca, Shape::default());
    assert_eq!(hca.live_objects().qp, 1);
    end.context.close();
    b.context.close();
    assert_eq!(hca.live_objects().total(), 0);
    assert_eq!(end.context.alloc_pd().unwrap_err().errno(), libc::ENOENT);
}

#[test]
fn whichever_command_fails_nothing_is_left_behind() {
    let hca = Hca::new().unwrap();
    let mut failures = 0;
    for nth in 1.. {
        hca.fail_command(FailCommand {
            opcode: None,
            nth,
            status: Status::NO_RES.0,
            syndrome: 0x1234,
        });
        let outcome = bring_up(&hca);
        let done = outcome.is_ok();
        match outcome {
            Ok(b) => drop((b.context, b.memory)),
            Err(
                DeviceError::Refused {
                    status, syndrome, ..
                }
                | DeviceError::Failed {
                    status, syndrome, ..
                },
            ) => {
                assert_eq!(
                    (status, syndrome),
                    (Status::NO_RES, 0x1234),
                    "command {nth}"
                );
                failures += 1;
            }
            Err(other) => panic!("command {nth}: {other}"),
        }
        assert_eq!(hca.live_objects().total(), 0, "command {nth}");
        if done {
            break;
        }
    }
    assert_eq!(failures, 13);
}

#[test]
fn a_chosen_command_fails_with_its_status_and_only_once() {
    let hca = Hca::new().unwrap();
    hca.fail_command(FailCommand {
        opcode: Some(Opcode::CREATE_QP.0),
        nth: 1,
        status: 0x77,
        syndrome: 9,
    });
    let error = bring_up(&hca).err().unwrap();
    assert!(matches!(
        error,
        DeviceError::Refused {
            opcode: Opcode::CREATE_QP,
            status: Status(0x77),
            syndrome: 9
        }
    ));
    bring_up(&hca).unwrap();
}

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
    assert_eq!(qp(&|i| i.qpc_mut().set_st(2)), syndrome::QP_SERVICE);
    assert_eq!(qp(&|i| i.qpc_mut().set_pd(0)), syndrome::NO_SUCH_PD);
    assert_eq!(qp(&|i| i.qpc_mut().set_cqn_rcv(0)), syndrome::NO_SUCH_CQ);
    assert_eq!(qp(&|i| i.qpc_mut().set_rq_type(1)), syndrome::RQ_TYPE);
    assert_eq!(
        qp(&|i| i.qpc_mut().set_send_dbr_mode(1)),
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
fn strict_mode_has_one_register_per_qp() {
    for strict in [true, false] {
        let hca = Hca::with_config(HcaConfig {
            strict,
            ..HcaConfig::default()
        })
        .unwrap();
        let b = bring_up(&hca).unwrap();
        let input = create_qp(b.pdn, b.umem, b.page_id, b.cqn);
        create(&b.context, input.as_bytes()).unwrap();
        create(&b.context, input.as_bytes()).unwrap();
        let third = create(&b.context, input.as_bytes());
        if strict {
            assert_eq!(refused(third).1, syndrome::SHARED_REGISTER);
        } else {
            third.unwrap();
        }
    }
}

#[test]
fn objects_of_one_context_are_nothing_to_another() {
    let hca = Hca::new().unwrap();
    let b = bring_up(&hca).unwrap();
    let other = Context::open(hca.name()).unwrap();
    assert_eq!(other.dealloc_pd(b.pdn).unwrap_err().errno(), libc::ENOENT);
    assert_eq!(other.dereg_umem(b.umem).unwrap_err().errno(), libc::ENOENT);
    assert_eq!(other.free_uar(b.page_id).unwrap_err().errno(), libc::ENOENT);
    assert!(other.devx_destroy(DevxObject::Cq(b.cqn)).is_err());
    let input = create_cq(b.umem, b.page_id, 1);
    assert_eq!(
        refused(create(&other, input.as_bytes())).1,
        syndrome::NO_SUCH_UAR
    );
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

#[test]
fn capabilities_and_addresses_are_told() {
    let hca = Hca::new().unwrap();
    let context = Context::open(hca.name()).unwrap();
    let ask = |kind: CapType| {
        let input = QueryHcaCapIn::default()
            .with_opcode(Opcode::QUERY_HCA_CAP.0.into())
            .with_op_mod(kind.current());
        let mut output = vec![0xff; QueryHcaCapOut::BYTES];
        context
            .devx_general(input.as_bytes(), &mut output)
            .map(|()| output)
    };
    let output = ask(CapType::GENERAL).unwrap();
    let caps = *QueryHcaCapOut::from_bytes(&output).unwrap().cmd_hca_cap();
    assert_eq!(
        (caps.port_type(), caps.rc(), caps.uc(), caps.cqe_version()),
        (1, 1, 0, 1)
    );
    assert_eq!(caps.max_wqe_sz_sq(), 1024);
    let output = ask(CapType::ATOMIC).unwrap();
    let caps = *QueryHcaCapOut::from_bytes(&output).unwrap().atomic_caps();
    assert_eq!(caps.atomic_operations(), 15);
    assert!(ask(CapType(0x55)).is_err());

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

#[test]
fn memory_that_is_not_there_is_refused() {
    let hca = Hca::new().unwrap();
    let context = Context::open(hca.name()).unwrap();
    let pdn = context.alloc_pd().unwrap();
    #[expect(unsafe_code, reason = "refused registrations promise nothing")]
    // SAFETY: both calls are refused before the memory counts as registered.
    let errors = unsafe {
        [
            context.reg_mr(pdn, 0x1000, 4096, 0, Access(15)).map(|_| ()),
            context.reg_umem(u64::MAX - 5, 100, Access(1)).map(|_| ()),
        ]
    };
    for error in errors {
        assert_eq!(error.unwrap_err().errno(), libc::EFAULT);
    }
    assert_eq!(hca.live_objects().total(), 2);
}

#[test]
fn a_device_without_owner_stays_until_its_last_context_is_closed() {
    let hca = Hca::new().unwrap();
    let name = hca.name().to_owned();
    let context = Context::open(&name).unwrap();
    drop(hca);
    assert!(!softhca::device::device_names().contains(&name));
    assert!(matches!(Context::open(&name), Err(DeviceError::NoDevice)));
    context.alloc_pd().unwrap();
    drop(context);
    assert_eq!(softhca::device::counters(&name), None);
}

fn any_command() -> impl Strategy<Value = Vec<u8>> {
    let opcodes = [
        0x100u16, 0x200, 0x201, 0x202, 0x400, 0x401, 0x402, 0x403, 0x500, 0x501, 0x502, 0x503,
        0x504, 0x505, 0x506, 0x507, 0x508, 0x509, 0x50a, 0x50b, 0x50c, 0x50e, 0x754, 0x760, 0x800,
        0x801, 0x842,
    ];
    let opcode = prop_oneof![4 => proptest::sample::select(opcodes.to_vec()), 1 => any::<u16>()];
    (opcode, proptest::collection::vec(any::<u8>(), 0..400)).prop_map(|(opcode, mut bytes)| {
        let head = opcode.to_be_bytes();
        let n = bytes.len().min(2);
        bytes[..n].copy_from_slice(&head[..n]);
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_bytes_are_answered(commands in proptest::collection::vec(any_command(), 60)) {
        let hca = Hca::new().unwrap();
        let b = bring_up(&hca).unwrap();
        let (qp, qpn) = create(&b.context, create_qp(b.pdn, b.umem, b.page_id, b.cqn).as_bytes()).unwrap();
        for mut input in commands {
            let object = match input.first() {
                Some(4) => DevxObject::Cq(b.cqn),
                _ => qp,
            };
            // Half of them name the object that they come with.
            if input.len() > 12 && input[12] & 1 == 0 {
                let number = if object == qp { qpn } else { b.cqn };
                input[8..12].copy_from_slice(&number.to_be_bytes());
            }
            let mut output = vec![0xff; input.len() % 300];
            let outcomes = [
                b.context.devx_general(&input, &mut output),
                b.context.devx_query(object, &input, &mut output),
                b.context.devx_modify(object, &input, &mut output),
                b.context.devx_create(&input, &mut output).map(|_| ()),
            ];
            if let Some(DeviceError::Refused { status, .. }) = outcomes[3].err() {
                prop_assert_eq!(CmdOut::from_bytes(&output).unwrap().result(), status);
            }
        }
        b.context.close();
        prop_assert_eq!(hca.live_objects().total(), 0);
    }

    #[test]
    fn a_good_command_with_flipped_bytes_is_answered(flips in proptest::collection::vec((0usize..272, any::<u8>()), 1..6)) {
        let hca = Hca::new().unwrap();
        let b = bring_up(&hca).unwrap();
        let mut bytes = create_qp(b.pdn, b.umem, b.page_id, b.cqn).as_bytes().to_vec();
        for (at, value) in flips {
            bytes[at] = value;
        }
        let mut output = [0xff; 16];
        if let Ok(object) = b.context.devx_create(&bytes, &mut output) {
            prop_assert_eq!(output[0], 0);
            b.context.devx_destroy(object).unwrap();
        }
        b.context.devx_destroy(DevxObject::Cq(b.cqn)).unwrap();
        b.context.dealloc_pd(b.pdn).unwrap();
    }
}
