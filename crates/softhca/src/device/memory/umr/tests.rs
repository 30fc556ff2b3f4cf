//! Tests of windows and indirect keys through their life.

use crate::device::memory::tests_region;
use crate::device::memory::translation::tests::klm;
use crate::device::memory::umr::*;

const USER: KeyUser = KeyUser { pdn: 3, qpn: 0x40 };
const BIND: u64 = UmrCtrlSeg::MASK_FREE
    | UmrCtrlSeg::MASK_MKEY
    | UmrCtrlSeg::MASK_LEN
    | UmrCtrlSeg::MASK_START_ADDR
    | RIGHTS & !UmrCtrlSeg::MASK_LOCAL_READ;

fn region(access: Access) -> MemoryKey {
    MemoryKey {
        kind: Kind::Region,
        free: false,
        iova: 0x1000,
        bytes: 0x100,
        backing: Backing::Direct(tests_region(0x7000, 0x100)),
        access: access.with(Access::LOCAL_READ),
        ..new_window(0, 3, 0x11, false)
    }
}

/// Returns a table with a region (index 1) and a window (index 2), both of variant 0x11.
fn table(access: Access, type_2: bool) -> Table<MemoryKey> {
    let mut keys = Table::new(1, 16);
    keys.insert(region(access)).unwrap();
    keys.insert(new_window(0, 3, 0x11, type_2)).unwrap();
    keys
}

const REGION: u32 = 1 << 8 | 0x11;
const WINDOW: u32 = 2 << 8 | 0x11;

/// Returns the change that libmlx5 builds for a window over 0x20 bytes at 0x1010.
fn bind(tag: u32) -> Change {
    Change {
        flags: UmrCtrlSeg::FLAG_INLINE | UmrCtrlSeg::FLAG_TRANSLATION_OFFSET,
        mask: BIND,
        mkc: Mkc::default()
            .with_rw(1)
            .with_mkey_7_0(tag)
            .with_qpn(Mkc::ANY_QP)
            .with_start_addr(0x1010)
            .with_len(0x20),
        first: 0,
        entries: vec![
            klm(REGION, 0x1010, 0x20),
            klm(0, 0, 0),
            klm(0, 0, 0),
            klm(0, 0, 0),
        ],
    }
}

fn unbind() -> Change {
    Change {
        flags: UmrCtrlSeg::FLAG_CHECK_QPN,
        mask: UmrCtrlSeg::MASK_FREE | UmrCtrlSeg::MASK_MKEY | UmrCtrlSeg::MASK_QPN,
        mkc: Mkc::default().with_free(1).with_qpn(Mkc::ANY_QP),
        first: 0,
        entries: Vec::new(),
    }
}

fn write(keys: &Table<MemoryKey>, key: u32, user: KeyUser) -> Result<(), KeyError> {
    let mut out = Vec::new();
    keys::resolve(
        keys,
        key,
        user,
        0x1010,
        0x20,
        Access::REMOTE_WRITE,
        &mut out,
    )?;
    assert_eq!((out[0].address(), out[0].bytes()), (0x7010, 0x20));
    Ok(())
}

const FULL: Access = Access(Access::LOCAL_WRITE.0 | Access::MW_BIND.0);

#[test]
fn a_window_is_open_between_bind_and_unbind_under_its_newest_key() {
    let mut keys = table(FULL, false);
    assert_eq!(write(&keys, WINDOW, USER), Err(KeyError::Free));
    change(&mut keys, WINDOW, USER, &bind(0x12)).unwrap();
    let stale = KeyError::Stale { now: WINDOW + 1 };
    assert_eq!(write(&keys, WINDOW, USER), Err(stale));
    assert_eq!(write(&keys, WINDOW + 1, USER), Ok(()));
    // The next bind must name the key with its present low byte.
    let refused = change(&mut keys, WINDOW, USER, &bind(0x13)).unwrap_err();
    assert_eq!(refused, UmrError::Key(stale));
    change(&mut keys, WINDOW + 1, USER, &bind(0x13)).unwrap();
    assert_eq!(write(&keys, WINDOW + 2, USER), Ok(()));
    change(&mut keys, WINDOW + 2, USER, &unbind()).unwrap();
    assert_eq!(write(&keys, 2 << 8, USER), Err(KeyError::Free));
}

#[test]
fn a_type_2_window_belongs_to_the_qp_that_bound_it() {
    let mut keys = table(FULL, true);
    let mut first = bind(0x12);
    first.flags |= UmrCtrlSeg::FLAG_FAIL_IF_NOT_FREE;
    first.mask |= UmrCtrlSeg::MASK_QPN;
    first.mkc.set_qpn(USER.qpn);
    change(&mut keys, WINDOW, USER, &first).unwrap();
    let key = WINDOW + 1;
    let stranger = KeyUser { qpn: 0x41, ..USER };
    assert_eq!(write(&keys, key, USER), Ok(()));
    let refused = KeyError::OtherQp {
        own: 0x41,
        key: 0x40,
    };
    assert_eq!(write(&keys, key, stranger), Err(refused));
    assert_eq!(
        change(&mut keys, key, USER, &first).unwrap_err(),
        UmrError::InUse
    );
    assert_eq!(
        change(&mut keys, key, stranger, &unbind()).unwrap_err(),
        UmrError::Key(refused)
    );
    assert_eq!(
        invalidate_remotely(&mut keys, key, stranger).unwrap_err(),
        UmrError::Key(refused)
    );
    invalidate_remotely(&mut keys, key, USER).unwrap();
    assert_eq!(write(&keys, key, USER), Err(KeyError::Free));
    assert_eq!(
        invalidate_remotely(&mut keys, key, USER).unwrap_err(),
        UmrError::IsFree
    );
    change(&mut keys, key, USER, &first).unwrap();
}

#[test]
fn a_window_needs_a_writable_region_that_covers_it_and_allows_windows() {
    let outcome = |access, entries: Vec<RawEntry>| {
        let mut keys = table(access, false);
        let wanted = Change { entries, ..bind(1) };
        change(&mut keys, WINDOW, USER, &wanted)
    };
    let good = || vec![klm(REGION, 0x1010, 0x20)];
    assert_eq!(outcome(FULL, good()), Ok(()));
    assert_eq!(
        outcome(Access::LOCAL_WRITE, good()),
        Err(UmrError::NoWindows { key: REGION })
    );
    let behind = |error| Err(UmrError::Behind { key: REGION, error });
    assert_eq!(
        outcome(Access::MW_BIND, good()),
        behind(KeyError::Right(Access::LOCAL_WRITE))
    );
    let outside = KeyError::Outside {
        start: 0x1000,
        bytes: 0x100,
    };
    assert_eq!(
        outcome(FULL, vec![klm(REGION, 0x10f0, 0x20)]),
        behind(outside)
    );
    assert!(outcome(FULL, vec![klm(0x999, 0, 1)]).is_err());
}

#[test]
fn only_windows_and_keys_made_for_umr_are_changed_and_by_their_own_domain() {
    let mut keys = table(FULL, false);
    let refused = change(&mut keys, REGION, USER, &unbind()).unwrap_err();
    assert_eq!(refused, UmrError::Kind);
    let stranger = KeyUser { pdn: 9, ..USER };
    let refused = change(&mut keys, WINDOW, stranger, &bind(1)).unwrap_err();
    let other = KeyError::OtherDomain { own: 9, key: 3 };
    assert_eq!(refused, UmrError::Key(other));
    let refused = invalidate_remotely(&mut keys, REGION, USER).unwrap_err();
    assert_eq!(refused, UmrError::NotByPeers);
    let mut domain = bind(1);
    domain.mask |= UmrCtrlSeg::MASK_PD;
    let refused = change(&mut keys, WINDOW, USER, &domain).unwrap_err();
    assert_eq!(refused, UmrError::Fields(UmrCtrlSeg::MASK_PD));
}

#[test]
fn a_refused_change_leaves_the_key_as_it_was() {
    let mut keys = table(FULL, false);
    change(&mut keys, WINDOW, USER, &bind(0x12)).unwrap();
    let mut wrong = bind(0x13);
    wrong.entries = vec![klm(REGION, 0x10f0, 0x20)];
    change(&mut keys, WINDOW + 1, USER, &wrong).unwrap_err();
    assert_eq!(write(&keys, WINDOW + 1, USER), Ok(()));
}
