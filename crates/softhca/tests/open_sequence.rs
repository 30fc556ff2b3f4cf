//! Unmodified libmlx5 opens a software HCA and makes DevX objects on it.

mod rdma_core;

use mlx5_prm::cmd::{CmdOut, Opcode, Status};
use mlx5_prm::cq::{Cqc, CreateCqIn, CreateCqOut};
use mlx5_prm::hca_cap::{CapType, CmdHcaCap, QueryHcaCapIn, QueryHcaCapOut};
use mlx5_prm::qp::{CreateQpIn, CreateQpOut, QpModifyIn, QpState, Qpc, QueryQpIn, QueryQpOut};
use rdma_core::patience::wait_until;
use rdma_core::{Device, Memory, Object, Uar, Umem, device_names};
use softhca::{FailCommand, Hca};

const LOCAL_WRITE: u32 = 1;
const QUEUE_BYTES: usize = 16 * 64;

fn opcode(opcode: Opcode) -> u32 {
    opcode.0.into()
}

fn hca() -> (Hca, Device) {
    let hca = Hca::new().unwrap();
    let device = Device::open(hca.name()).unwrap();
    (hca, device)
}

/// Returns a CQ of 16 entries at the start of `umem`, its doorbell record after it.
fn create_cq(device: &Device, umem: &Umem, uar: &Uar) -> std::io::Result<(Object, u32)> {
    let context = Cqc::default()
        .with_log_cq_size(4)
        .with_uar_page(uar.page_id)
        .with_c_eqn(device.eqn(0)?)
        .with_dbr_umem_id(umem.id())
        .with_dbr_addr(QUEUE_BYTES as u64);
    let input = CreateCqIn::default()
        .with_opcode(opcode(Opcode::CREATE_CQ))
        .with_cqc(context)
        .with_cq_umem_id(umem.id());
    let mut output = CreateCqOut::default();
    let cq = device.create(input.as_bytes(), output.as_bytes_mut())?;
    Ok((cq, output.cqn()))
}

/// An RC QP with a send queue of 16 blocks at the start of `umem` and no receive queue.
fn create_qp(
    device: &Device,
    pdn: u32,
    cqn: u32,
    umem: &Umem,
    uar: &Uar,
) -> std::io::Result<(Object, u32)> {
    const NO_RECEIVE_QUEUE: u32 = 3;
    let context = Qpc::default()
        .with_pd(pdn)
        .with_uar_page(uar.page_id)
        .with_log_sq_size(4)
        .with_rq_type(NO_RECEIVE_QUEUE)
        .with_cqn_snd(cqn)
        .with_cqn_rcv(cqn)
        .with_dbr_umem_id(umem.id())
        .with_dbr_addr(QUEUE_BYTES as u64);
    let input = CreateQpIn::default()
        .with_opcode(opcode(Opcode::CREATE_QP))
        .with_qpc(context)
        .with_wq_umem_id(umem.id());
    let mut output = CreateQpOut::default();
    let qp = device.create(input.as_bytes(), output.as_bytes_mut())?;
    Ok((qp, output.qpn()))
}

#[test]
fn libmlx5_opens_a_device_and_closing_it_leaves_nothing() {
    let (hca, device) = hca();
    assert!(device_names().contains(&hca.name().to_owned()));
    assert_eq!(device.gid(3).unwrap(), hca.gid());
    assert_eq!(hca.live_objects().context, 1);
    drop(device);
    assert_eq!(hca.live_objects().total(), 0, "{:?}", hca.live_objects());
}

#[test]
fn devx_makes_every_object_of_a_queue_pair() {
    let (hca, device) = hca();
    let pd = device.alloc_pd().unwrap();
    let uar = device.alloc_uar(0).unwrap();
    let (cq_memory, qp_memory) = (Memory::new(4096), Memory::new(4096));
    let cq_umem = device.reg_umem(&cq_memory, LOCAL_WRITE).unwrap();
    let qp_umem = device.reg_umem(&qp_memory, LOCAL_WRITE).unwrap();
    assert_ne!(cq_umem.id(), qp_umem.id());
    let (cq, cqn) = create_cq(&device, &cq_umem, &uar).unwrap();
    let (qp, qpn) = create_qp(&device, pd.pdn(), cqn, &qp_umem, &uar).unwrap();

    let input = QueryQpIn::default()
        .with_opcode(opcode(Opcode::QUERY_QP))
        .with_qpn(qpn);
    let mut output = QueryQpOut::default();
    qp.query(input.as_bytes(), output.as_bytes_mut()).unwrap();
    assert_eq!(output.qpc().state(), u32::from(QpState::RST.0));

    let memory = Memory::new(1 << 16);
    let mr = pd.reg_mr(&memory, LOCAL_WRITE).unwrap();
    assert_ne!(mr.lkey(), 0);
    let live = hca.live_objects();
    assert_eq!(
        (live.context, live.pd, live.mr, live.umem, live.cq, live.qp),
        (1, 1, 1, 2, 1, 1),
        "{live:?}"
    );

    // In use: the CQ by the QP, the PD by both of them.
    let (cq, error) = cq.destroy().err().unwrap();
    assert_eq!(error.raw_os_error(), Some(libc::EREMOTEIO));
    let (pd, error) = pd.dealloc().err().unwrap();
    assert_eq!(error.raw_os_error(), Some(libc::EBUSY));

    qp.destroy().ok().unwrap();
    cq.destroy().ok().unwrap();
    mr.dereg().unwrap();
    pd.dealloc().ok().unwrap();
    drop((cq_umem, qp_umem, uar));
    drop(device);
    assert_eq!(hca.live_objects().total(), 0, "{:?}", hca.live_objects());
}

#[test]
fn closing_a_device_ends_what_was_left_on_it() {
    let (hca, device) = hca();
    let pd = device.alloc_pd().unwrap();
    let uar = device.alloc_uar(0).unwrap();
    let (cq_memory, qp_memory) = (Memory::new(4096), Memory::new(4096));
    let cq_umem = device.reg_umem(&cq_memory, LOCAL_WRITE).unwrap();
    let qp_umem = device.reg_umem(&qp_memory, LOCAL_WRITE).unwrap();
    let (_cq, cqn) = create_cq(&device, &cq_umem, &uar).unwrap();
    let (_qp, _) = create_qp(&device, pd.pdn(), cqn, &qp_umem, &uar).unwrap();
    let _mr = pd.reg_mr(&qp_memory, LOCAL_WRITE).unwrap();
    assert!(hca.live_objects().total() >= 8, "{:?}", hca.live_objects());
    // As a program that forgets everything: no destructor runs.
    std::mem::forget((cq_umem, qp_umem, uar));
    drop(device);
    assert_eq!(hca.live_objects().total(), 0, "{:?}", hca.live_objects());
}

#[test]
fn doorbell_registers_are_mapped_two_to_a_page() {
    let (hca, device) = hca();
    let uars: Vec<_> = (0..4).map(|_| device.alloc_uar(0).unwrap()).collect();
    let places: Vec<_> = uars
        .iter()
        .map(|uar| (uar.page_id, uar.reg_addr.addr() - uar.base_addr.addr()))
        .collect();
    for place in &places {
        assert!([0x800, 0xa00].contains(&place.1), "{place:x?}");
        assert_eq!(places.iter().filter(|other| *other == place).count(), 1);
    }
    let shared = device.alloc_uar(1).unwrap();
    assert!(uars.iter().all(|uar| uar.page_id != shared.page_id));
    drop((uars, shared, device));
    assert_eq!(hca.live_objects().total(), 0);
}

#[test]
fn capabilities_reach_the_client() {
    let (_hca, device) = hca();
    let input = QueryHcaCapIn::default()
        .with_opcode(opcode(Opcode::QUERY_HCA_CAP))
        .with_op_mod(CapType::GENERAL.current());
    let mut output = vec![0; QueryHcaCapOut::BYTES];
    device.general(input.as_bytes(), &mut output).unwrap();
    let caps = CmdHcaCap::from_prefix(&output[16..]);
    assert_eq!((caps.rc(), caps.num_ports(), caps.port_type()), (1, 1, 1));
    assert_eq!(caps.log_bf_reg_size(), 9);
    assert!(caps.log_max_qp() >= 8);
}

#[test]
fn a_refused_command_shows_status_and_syndrome() {
    let (hca, device) = hca();
    let pd = device.alloc_pd().unwrap();
    let uar = device.alloc_uar(0).unwrap();
    let memory = Memory::new(4096);
    let umem = device.reg_umem(&memory, LOCAL_WRITE).unwrap();
    let (cq, cqn) = create_cq(&device, &umem, &uar).unwrap();
    let (qp, qpn) = create_qp(&device, pd.pdn(), cqn, &umem, &uar).unwrap();
    let input = QpModifyIn::default()
        .with_opcode(opcode(Opcode::RTR2RTS_QP)) // the QP is in Reset
        .with_qpn(qpn);
    let mut output = CmdOut::default();
    let error = qp
        .modify(input.as_bytes(), output.as_bytes_mut())
        .unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EREMOTEIO));
    assert_eq!(output.result(), Status::BAD_QP_STATE);
    assert_ne!(output.syndrome(), 0);

    // A failure that the test asks for arrives as it was asked for.
    hca.fail_command(FailCommand {
        opcode: Some(Opcode::QUERY_HCA_CAP.0),
        nth: 1,
        status: Status::LIM_ERR.0,
        syndrome: 0x1234_5678,
    });
    let input = QueryHcaCapIn::default()
        .with_opcode(opcode(Opcode::QUERY_HCA_CAP))
        .with_op_mod(CapType::GENERAL.current());
    let mut reply = vec![0; QueryHcaCapOut::BYTES];
    let error = device.general(input.as_bytes(), &mut reply).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EREMOTEIO));
    let reply = CmdOut::from_bytes(&reply).unwrap();
    assert_eq!(
        (reply.result(), reply.syndrome()),
        (Status::LIM_ERR, 0x1234_5678)
    );
    qp.destroy().ok().unwrap();
    cq.destroy().ok().unwrap();
    pd.dealloc().ok().unwrap();
}

#[test]
fn commands_that_do_not_fit_their_call_are_refused() {
    let (_hca, device) = hca();
    let mut output = [0; 16];
    for wrong in [Opcode::CREATE_QP, Opcode::DESTROY_QP, Opcode::RST2INIT_QP] {
        let input = CreateQpIn::default().with_opcode(opcode(wrong));
        let error = device.general(input.as_bytes(), &mut output).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{wrong:?}");
    }
    let input = QueryHcaCapIn::default().with_opcode(opcode(Opcode::QUERY_HCA_CAP));
    let error = device.create(input.as_bytes(), &mut output).err().unwrap();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
}

#[test]
fn memory_that_is_not_there_cannot_be_registered() {
    let (hca, device) = hca();
    let pd = device.alloc_pd().unwrap();
    let memory = Memory::new(4096);
    let errno = |outcome: std::io::Result<rdma_core::Mr>| outcome.err().unwrap().raw_os_error();
    let beyond = pd.reg_range(memory.address(), 1 << 45, LOCAL_WRITE);
    assert_eq!(errno(beyond), Some(libc::EFAULT));
    let nowhere = pd.reg_range(std::ptr::without_provenance_mut(4096), 4096, LOCAL_WRITE);
    assert_eq!(errno(nowhere), Some(libc::EFAULT));
    const REMOTE_WRITE: u32 = 2;
    let rights = pd.reg_mr(&memory, REMOTE_WRITE);
    assert_eq!(errno(rights), Some(libc::EINVAL));
    assert_eq!(hca.live_objects().mr, 0);
    pd.dealloc().ok().unwrap();
}

#[test]
fn devices_appear_and_disappear_while_the_program_runs() {
    let first = Hca::new().unwrap();
    let second = Hca::new().unwrap();
    assert_ne!(first.name(), second.name());
    assert_ne!(first.gid(), second.gid());
    let names = device_names();
    for hca in [&first, &second] {
        assert!(names.contains(&hca.name().to_owned()), "{names:?}");
    }
    let gone = first.name().to_owned();
    drop(first);
    let names = device_names();
    assert!(!names.contains(&gone), "{names:?}");
    assert!(names.contains(&second.name().to_owned()), "{names:?}");
}

#[test]
fn counter_files_are_current_when_they_are_opened() {
    let (hca, device) = hca();
    let counter = |name: &str| {
        let path = format!(
            "/sys/class/infiniband/{}/ports/1/hw_counters/{name}",
            hca.name()
        );
        std::fs::read_to_string(path).unwrap()
    };
    assert_eq!(counter("doorbells"), "0\n");
    let uar = device.alloc_uar(0).unwrap();
    // A doorbell of a QP that does not exist: taken and counted all the same.
    uar.ring(0x00ab_cd01_0000_0000);
    wait_until("the doorbell is counted", || counter("doorbells") == "1\n");
    assert_eq!(counter("tx_wqes"), "0\n");
}

#[test]
fn two_contexts_of_one_device_keep_their_objects_apart() {
    let (hca, one) = hca();
    let two = Device::open(hca.name()).unwrap();
    let pd = one.alloc_pd().unwrap();
    two.alloc_pd().unwrap().dealloc().ok().unwrap();
    assert_eq!(hca.live_objects().context, 2);
    drop(two);
    assert_eq!((hca.live_objects().context, hca.live_objects().pd), (1, 1));
    pd.dealloc().ok().unwrap();
    drop(one);
    assert_eq!(hca.live_objects().total(), 0);
}
