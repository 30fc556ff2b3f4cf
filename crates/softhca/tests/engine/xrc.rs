//! XRC domains: shared by file, used across contexts, and the queues in them.

use mlx5_prm::cmd::Status;
use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::wqe::{CtrlSeg, WqeOpcode};
use softhca::device::{Context, DeviceError, Event, XrcFile};
use softhca::{Hca, HcaConfig};
use softhca_rig::patience::wait_until;
use softhca_rig::segments::xrc;
use softhca_rig::{End, Kind, Shape, inline, raddr};

const FILE: XrcFile = XrcFile {
    device: 7,
    inode: 42,
};

fn target(file: Option<XrcFile>) -> Shape {
    Shape {
        kind: Kind::XrcTarget,
        log_srq: Some(4),
        xrc_file: file,
        ..Shape::default()
    }
}

fn initiator() -> Shape {
    Shape {
        kind: Kind::XrcInitiator,
        ..Shape::default()
    }
}

fn post(end: &mut End) -> u16 {
    let (lkey, address) = (end.keys.lkey, end.data.address());
    end.srq.as_mut().unwrap().post(&[(64, lkey, address)])
}

fn send(end: &mut End, srqn: u32, text: &[u8]) {
    let rest = [xrc(srqn).as_slice(), &inline(text)].concat();
    end.write_wqe(WqeOpcode::SEND, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
}

#[test]
fn a_file_stands_for_one_domain_as_long_as_a_context_has_it_open() {
    let hca = Hca::new().unwrap();
    let first = Context::open(hca.name()).unwrap();
    let second = Context::open(hca.name()).unwrap();
    let errno = |outcome: Result<u32, DeviceError>| outcome.unwrap_err().errno();
    assert_eq!(
        errno(first.open_xrcd(Some(FILE), false, false)),
        libc::EAGAIN
    );
    let domain = first.open_xrcd(Some(FILE), true, true).unwrap();
    assert_eq!(
        errno(second.open_xrcd(Some(FILE), true, true)),
        libc::EINVAL
    );
    assert_eq!(second.open_xrcd(Some(FILE), false, false), Ok(domain));
    let other = XrcFile { inode: 43, ..FILE };
    assert_ne!(second.open_xrcd(Some(other), true, false), Ok(domain));
    assert_ne!(second.open_xrcd(None, true, false), Ok(domain));
    first.close_xrcd(domain).unwrap();
    assert_eq!(first.close_xrcd(domain).unwrap_err().errno(), libc::ENOENT);
    assert_eq!(first.open_xrcd(Some(FILE), false, false), Ok(domain));
    first.close();
    second.close_xrcd(domain).unwrap();
    assert_eq!(hca.live_objects().xrcd, 2);
    second.close();
    assert_eq!(hca.live_objects().total(), 0);
}

#[test]
fn a_target_of_one_context_feeds_a_queue_of_another_in_the_same_domain() {
    for loopback in [true, false] {
        let config = HcaConfig {
            loopback,
            ..HcaConfig::default()
        };
        let hca_a = Hca::with_config(config.clone()).unwrap();
        let hca_b = Hca::with_config(config).unwrap();
        let mut a = End::new(&hca_a, initiator());
        let near = End::new(&hca_b, target(Some(FILE)));
        let mut far = End::new(&hca_b, target(Some(FILE)));
        let stranger = End::new(&hca_b, target(None));
        assert_eq!(near.xrcd, far.xrcd);
        a.connect(hca_b.gid(), near.qpn, 9);
        near.connect(hca_a.gid(), a.qpn, 9);
        let [number, strange] = [&far, &stranger].map(|end| end.srq.as_ref().unwrap().number);
        let index = post(&mut far);
        send(&mut a, number, b"across");
        // Keys are those of the queue's context, of memory that the target's has no key for.
        let (remote, rkey) = (far.data.address() + 64, far.keys.rkey);
        let rest = [
            xrc(number).as_slice(),
            &raddr(remote, rkey),
            &inline(b"write"),
        ]
        .concat();
        a.write_wqe(WqeOpcode::RDMA_WRITE, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
        for cqe in a.run(2) {
            assert_eq!(cqe.opcode(), CqeOpcode::REQ);
        }
        let cqe = far.completion();
        assert_eq!(
            (cqe.opcode(), cqe.wqe_counter.get()),
            (CqeOpcode::RESP_SEND, index)
        );
        assert_eq!(cqe.sop_drop_qpn.get() & 0xff_ffff, near.qpn);
        assert_eq!(far.data.read(0, 6), b"across");
        assert_eq!(far.data.read(64, 5), b"write");

        // The domain outlives a context that has it; memory of another domain is out of reach.
        let domain = near.xrcd.unwrap();
        assert_eq!(
            near.context.close_xrcd(domain).unwrap_err().errno(),
            libc::EBUSY
        );
        let (remote, rkey) = (stranger.data.address(), stranger.keys.rkey);
        let rest = [
            xrc(strange).as_slice(),
            &raddr(remote, rkey),
            &inline(b"write"),
        ]
        .concat();
        a.write_wqe(WqeOpcode::RDMA_WRITE, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
        let cqe = a.run(1)[0];
        assert_eq!(cqe.as_error().reason(), Syndrome::REMOTE_ACCESS_ERR);
        assert_eq!(stranger.data.read(0, 5), [0; 5]);
    }
}

#[test]
fn a_queue_of_a_domain_has_a_limit_too_and_keeps_its_completion_queue() {
    let hca_a = Hca::new().unwrap();
    let hca_b = Hca::new().unwrap();
    let mut a = End::new(&hca_a, initiator());
    let mut b = End::new(&hca_b, target(None));
    a.connect(hca_b.gid(), b.qpn, 9);
    b.connect(hca_a.gid(), a.qpn, 9);
    post(&mut b);
    post(&mut b);
    let srq = b.srq.as_ref().unwrap();
    let (number, object) = (srq.number, srq.object);
    srq.arm(2).unwrap();
    let outcome = b
        .context
        .devx_destroy(softhca::device::DevxObject::Cq(b.cqn));
    let Err(DeviceError::Refused { status, .. }) = outcome else {
        panic!("{outcome:?} is not a refusal");
    };
    assert_eq!(status, Status::RES_BUSY);
    send(&mut a, number, b"one");
    assert_eq!(a.run(1)[0].opcode(), CqeOpcode::REQ);
    wait_until("the event of the limit arrives", || {
        b.events.lock().unwrap().contains(&Event::SrqLimit(number))
    });
    b.context.devx_destroy(object).unwrap();

    // What names it now is refused.
    send(&mut a, number, b"gone");
    let cqe = a.run(1)[0];
    assert_eq!(cqe.as_error().reason(), Syndrome::REMOTE_INVAL_REQ_ERR);
}
