//! What any libfabric does: one body for softofi's profiles and for providers of the installed library.

use libfabric_abi::bindings::{FI_REMOTE_CQ_DATA, FI_REMOTE_WRITE, FI_RMA, FI_WRITE};

use crate::rig::{End, Fabric, Kind, Memory, Seen, Work, bytes, until};

/// Runs a body on everything that is here.
fn on_all(body: impl Fn(&Kind, &Fabric)) {
    let mut ran = 0;
    for kind in Kind::all() {
        if let Some(fabric) = Fabric::open(&kind) {
            body(&kind, &fabric);
            ran += 1;
        }
    }
    assert!(ran >= 2, "softofi is here in any case");
}

const BYTES: usize = 300_000;

#[test]
fn bytes_of_writes_and_reads_are_those_that_were_there() {
    on_all(|kind, fabric| {
        let seed = fastrand::u64(..);
        let mut dice = fastrand::Rng::with_seed(seed);
        let (here, there) = (End::new(fabric), End::new(fabric));
        let peer = here.meet(&there);
        let (near, far) = (Memory::new(fabric, BYTES), Memory::new(fabric, BYTES));
        let mut seen = Seen::new(&[&here, &there]);
        for round in 0..20 {
            // shm of 1.17 never tells of a write of no bytes.
            let is_empty = round == 0 && kind.provider != "shm";
            let count = if is_empty { 0 } else { dice.usize(1..BYTES) };
            let offset = dice.usize(..=BYTES - count);
            let work = Work {
                memory: &near,
                offset: 0,
                bytes: count,
                peer,
                remote: far.remote(offset),
                data: None,
            };
            let sent = bytes(&mut dice, count);
            near.set(&sent);
            let context = here.write(&work, &mut seen);
            let done = seen.wait(0, context);
            assert_eq!(done.error, 0, "{kind:?}, seed {seed}");
            assert_eq!(
                done.flags & (FI_RMA | FI_WRITE),
                FI_RMA | FI_WRITE,
                "{kind:?}"
            );
            let landed = &far.bytes()[offset..offset + count];
            assert!(landed == sent, "{kind:?}, seed {seed}: a write");
            let other = bytes(&mut dice, BYTES);
            far.set(&other);
            let context = here.read(&work, &mut seen);
            assert_eq!(seen.wait(0, context).error, 0, "{kind:?}, seed {seed}");
            let read = &near.bytes()[..count];
            assert!(
                read == &other[offset..offset + count],
                "{kind:?}, seed {seed}: a read"
            );
        }
        drop((here, there));
    });
}

#[test]
fn data_of_a_write_comes_after_all_of_its_bytes() {
    on_all(|kind, fabric| {
        let mut dice = fastrand::Rng::with_seed(7);
        let (here, there) = (End::new(fabric), End::new(fabric));
        let peer = here.meet(&there);
        let (near, far) = (Memory::new(fabric, BYTES), Memory::new(fabric, BYTES));
        let mut seen = Seen::new(&[&here, &there]);
        for data in [1, 2, 0xffff_ffff] {
            let sent = bytes(&mut dice, BYTES);
            near.set(&sent);
            let work = Work {
                memory: &near,
                offset: 0,
                bytes: BYTES,
                peer,
                remote: far.remote(0),
                data: Some(data),
            };
            let context = here.write(&work, &mut seen);
            until("data comes", || {
                seen.look();
                (!seen.done[1].is_empty()).then_some(())
            });
            assert!(far.bytes() == sent, "{kind:?}: the bytes are there by then");
            let told = seen.done[1].remove(0);
            assert_eq!(told.data, data, "{kind:?}");
            assert_eq!(
                told.flags & FI_REMOTE_CQ_DATA,
                FI_REMOTE_CQ_DATA,
                "{kind:?}"
            );
            assert_eq!(told.flags & FI_REMOTE_WRITE, FI_REMOTE_WRITE, "{kind:?}");
            assert_eq!(seen.wait(0, context).error, 0, "{kind:?}");
        }
    });
}

#[test]
fn a_key_that_the_target_does_not_have_is_an_error_and_no_more() {
    on_all(|kind, fabric| {
        if kind.provider == "shm" {
            return println!("left out: shm of 1.17 never tells of it");
        }
        let (here, there) = (End::new(fabric), End::new(fabric));
        let peer = here.meet(&there);
        let (near, far) = (Memory::new(fabric, 64), Memory::new(fabric, 64));
        let mut seen = Seen::new(&[&here, &there]);
        let mut work = Work {
            memory: &near,
            offset: 0,
            bytes: 64,
            peer,
            remote: far.remote(0),
            data: None,
        };
        near.set(&[9; 64]);
        work.remote.key ^= 0x5555;
        let context = here.write(&work, &mut seen);
        let done = seen.wait(0, context);
        assert!(done.error > 0, "{kind:?}: {done:?}");
        assert_eq!(far.bytes(), [0; 64], "{kind:?}");
        work.remote = far.remote(0);
        if kind.provider == "tcp;ofi_rxm" {
            return println!("left out: tcp;ofi_rxm of 1.17 gives the connection up");
        }
        let context = here.write(&work, &mut seen);
        assert_eq!(seen.wait(0, context).error, 0, "{kind:?}");
        assert_eq!(far.bytes(), [9; 64], "{kind:?}");
    });
}

#[test]
fn after_the_close_of_the_target_nothing_lands() {
    on_all(|kind, fabric| {
        if kind.provider == "shm" {
            return println!("left out: shm of 1.17 crashes when a peer of its process is gone");
        }
        for _ in 0..5 {
            let (here, there) = (End::new(fabric), End::new(fabric));
            let peer = here.meet(&there);
            let (near, far) = (Memory::new(fabric, BYTES), Memory::new(fabric, BYTES));
            let mut seen = Seen::new(&[&here, &there]);
            near.set(&[1; 64]);
            let mut work = Work {
                memory: &near,
                offset: 0,
                bytes: 64,
                peer,
                remote: far.remote(0),
                data: None,
            };
            let context = here.write(&work, &mut seen);
            assert_eq!(seen.wait(0, context).error, 0, "{kind:?}");
            near.set(&vec![3; BYTES]);
            work.bytes = BYTES;
            for _ in 0..8 {
                let _ = here.try_write(&work);
                seen.look();
            }
            there.close();
            let landed = far.bytes();
            for _ in 0..50 {
                here.completions();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            assert!(
                far.bytes() == landed,
                "{kind:?}: bytes landed after the close"
            );
            here.close();
        }
    });
}
