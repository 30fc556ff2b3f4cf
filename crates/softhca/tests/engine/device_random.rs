//! Commands of any bytes: each is answered, none panics.

use mlx5_prm::cmd::CmdOut;
use proptest::prelude::*;
use softhca::device::DevxObject;
use softhca::{DeviceError, Hca};
use softhca_rig::bringup::{bring_up, create_qp};
use softhca_rig::create;
use softhca_rig::shared::{SharedKind, Xrc, input};

fn any_command() -> impl Strategy<Value = Vec<u8>> {
    let opcodes = [
        0x100u16, 0x200, 0x201, 0x202, 0x400, 0x401, 0x402, 0x403, 0x500, 0x501, 0x502, 0x503,
        0x504, 0x505, 0x506, 0x507, 0x508, 0x509, 0x50a, 0x50b, 0x50c, 0x50e, 0x754, 0x760, 0x800,
        0x801, 0x842, 0x705, 0x706, 0x707, 0x708, 0x80e, 0x80f, 0x90c, 0x90d, 0x90e, 0x90f,
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
        let domain = b.context.open_xrcd(None, true, false).unwrap();
        let xrc = Xrc { xrcd: domain, cqn: b.cqn, user_index: 1 };
        let (rmp, rmpn) = create(&b.context, &input(b.pdn, b.umem, 4, SharedKind::List)).unwrap();
        let (xrc_srq, srqn) = create(&b.context, &input(b.pdn, b.umem, 4, SharedKind::Xrc(xrc))).unwrap();
        for mut input in commands {
            let object = match input.first() {
                Some(4) => DevxObject::Cq(b.cqn),
                Some(7) => xrc_srq,
                Some(9) => rmp,
                _ => qp,
            };
            // Half of them name the object that they come with.
            if input.len() > 12 && input[12] & 1 == 0 {
                let number = match object {
                    DevxObject::Rmp(_) => rmpn,
                    DevxObject::XrcSrq(_) => srqn,
                    DevxObject::Qp(_) => qpn,
                    _ => b.cqn,
                };
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
    fn a_good_queue_with_flipped_bytes_is_answered(kind in 0..3u8, flips in proptest::collection::vec((0usize..272, any::<u8>()), 1..6)) {
        let hca = Hca::new().unwrap();
        let b = bring_up(&hca).unwrap();
        let domain = b.context.open_xrcd(None, true, false).unwrap();
        let kind = match kind {
            0 => SharedKind::List,
            1 => SharedKind::Ring,
            _ => SharedKind::Xrc(Xrc { xrcd: domain, cqn: b.cqn, user_index: 1 }),
        };
        let mut bytes = input(b.pdn, b.umem, 4, kind);
        for (at, value) in flips {
            bytes[at] = value;
        }
        let before = b.context.live_objects();
        if let Ok(object) = b.context.devx_create(&bytes, &mut [0xff; 16]) {
            prop_assert_ne!(b.context.live_objects(), before);
            b.context.devx_destroy(object).unwrap();
        }
        prop_assert_eq!(b.context.live_objects(), before);
        b.context.close_xrcd(domain).unwrap();
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
