//! Objects of the device model: which uses which, which ends with which, and failures on request.

use mlx5_prm::cmd::{Opcode, Status};
use softhca::device::{Access, Context, DevxObject, syndrome};
use softhca::{DeviceError, FailCommand, Hca};
use softhca_rig::bringup::{bring_up, create_cq, create_qp, refused};
use softhca_rig::{End, Shape, create};

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
