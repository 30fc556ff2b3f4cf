//! Regions in lists: all or none, what shares a registration, and what the HCA is asked for.

use std::sync::Arc;

use warpverbs::internal::engine::{Descriptor, EngineError, HostError, HostMemory, Outcome};

use crate::rig::{End, config, pair};

const MIB: u64 = 1 << 20;

fn part(buffer: &Arc<HostMemory>, offset: u64, bytes: u64) -> Arc<HostMemory> {
    Arc::new(HostMemory::part(buffer, offset, bytes).unwrap())
}

/// Tensors of random lengths that fill a buffer from its first byte on.
fn tensors(buffer: &Arc<HostMemory>, count: u64) -> Vec<Arc<HostMemory>> {
    let mut random = fastrand::Rng::with_seed(18);
    let each = buffer.bytes() / count;
    let parts = (0..count).map(|nth| part(buffer, nth * each, random.u64(1..=each)));
    parts.collect()
}

fn listed(error: &HostError) -> (usize, &HostError) {
    match error {
        HostError::Listed { element, error } => (*element, error),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_1265_tensors_of_one_buffer_have_one_registration() {
    for is_first in [true, false] {
        let (a, b, [to_b, _]) = pair(4 * MIB);
        let buffer = Arc::new(HostMemory::new(4 * MIB).unwrap());
        let before = b.hca.live_objects().mr;
        let mut memories = tensors(&buffer, 1265);
        // Its place in the list says nothing.
        memories.insert(if is_first { 0 } else { 700 }, Arc::clone(&buffer));
        let regions = b.engine.register_all(&memories).unwrap();
        assert_eq!(regions.len(), 1266);
        assert_eq!(b.hca.live_objects().mr, before + 1, "at the HCA");
        let descriptors: Vec<Descriptor> = regions
            .iter()
            .map(|region| b.engine.descriptor(*region).unwrap())
            .collect();
        assert!(descriptors.iter().all(|it| *it == descriptors[0]));
        assert_eq!(descriptors[0].bytes, 4 * MIB);
        // Those that come later have it too, in a list or alone.
        let later = b.engine.register_all(&memories[..40]).unwrap();
        let alone = b.engine.register(&memories[3]).unwrap();
        assert_eq!(b.hca.live_objects().mr, before + 1);
        to_b.import(&descriptors[0]).unwrap();
        a.fill(1);
        let id = to_b.write(a.at(0), buffer.address(), 4 * MIB).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        let mut came = vec![0; 4 << 20];
        buffer.read(0, &mut came).unwrap();
        assert!(came == a.bytes());
        // It goes with the last of them, whichever that is.
        for region in regions.into_iter().chain(later) {
            b.engine.deregister(region).unwrap();
        }
        assert_eq!(b.hca.live_objects().mr, before + 1);
        b.engine.deregister(alone).unwrap();
        assert_eq!(b.hca.live_objects().mr, before);
    }
}

#[test]
fn tensors_apart_have_a_registration_each_and_regions_in_their_order() {
    let end = End::new(config("a"), 4096);
    let before = end.hca.live_objects().mr;
    let buffer = Arc::new(HostMemory::new(MIB).unwrap());
    let mut memories = tensors(&buffer, 50);
    memories.reverse();
    memories.push(Arc::clone(&memories[7]));
    let regions = end.engine.register_all(&memories).unwrap();
    assert_eq!(end.hca.live_objects().mr, before + 50);
    for (region, memory) in regions.iter().zip(&memories) {
        let descriptor = end.engine.descriptor(*region).unwrap();
        let found = (descriptor.address, descriptor.bytes);
        assert_eq!(found, (memory.address(), memory.bytes()));
    }
    assert!(
        end.engine
            .register_all(&[] as &[Arc<HostMemory>])
            .unwrap()
            .is_empty()
    );
    // The buffer has more than these, so it overlaps them all.
    let refused = end.engine.register(&buffer).unwrap_err();
    assert!(
        matches!(&refused, HostError::Refused(EngineError::Overlap { .. })),
        "{refused}"
    );
}

#[test]
fn a_list_with_one_that_cannot_be_registers_none_and_names_it() {
    let end = End::new(config("a"), 4096);
    let buffer = Arc::new(HostMemory::new(MIB).unwrap());
    let good = |nth: u64| part(&buffer, nth * 4096, 4096);
    // Half of it is in another of the list, or in a region.
    let half = part(&buffer, 3 * 4096 + 2048, 4096);
    let own = part(&end.memory, 2048, 2048);
    let wide = Arc::new(HostMemory::new(8192).unwrap());
    let inner = end.engine.register(&part(&wide, 2048, 2048)).unwrap();
    let before = end.hca.live_objects().mr;
    let beyond = part(&wide, 0, 4096);
    for (list, element) in [
        (vec![good(0), good(3), good(1), half.clone()], 3),
        // Of two of the list that overlap the error names the one that begins later.
        (vec![half, good(5), good(4)], 2),
        (vec![own.clone(), good(0), beyond], 2),
    ] {
        let refused = end.engine.register_all(&list).unwrap_err();
        let (found, cause) = listed(&refused);
        let is_overlap = matches!(cause, HostError::Refused(EngineError::Overlap { .. }));
        assert!(is_overlap, "{refused}");
        assert_eq!(found, element, "{refused}");
        let begin = format!("element {element} of the list: 4096 bytes at 0x");
        assert!(refused.to_string().starts_with(&begin), "{refused}");
        assert_eq!(end.hca.live_objects().mr, before);
    }
    // Nothing of them stands: all can be registered now.
    let all: Vec<_> = (0..8).map(good).chain([own]).collect();
    let regions = end.engine.register_all(&all).unwrap();
    assert_eq!(end.hca.live_objects().mr, before + 8);
    for region in regions {
        end.engine.deregister(region).unwrap();
    }
    assert_eq!(end.hca.live_objects().mr, before);
    end.engine.deregister(inner).unwrap();
}

#[test]
fn a_part_of_memory_lies_inside_it_and_keeps_it() {
    let buffer = Arc::new(HostMemory::new(4096).unwrap());
    let tensor = part(&buffer, 100, 50);
    buffer.write(99, &[1, 2, 3]).unwrap();
    let mut bytes = [0; 3];
    tensor.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [2, 3, 0]);
    let inner = part(&tensor, 1, 49);
    assert_eq!(inner.address(), buffer.address() + 101);
    let still = Arc::downgrade(&buffer);
    drop((buffer, tensor));
    assert!(still.upgrade().is_some(), "a part of a part keeps it");
    inner.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [3, 0, 0]);
    for (offset, bytes, reason) in [
        (0, 0, "0 bytes of host memory"),
        (0, 50, "50 bytes at offset 0"),
        (49, 1, "1 bytes at offset 49"),
        (u64::MAX, 2, "2 bytes at offset 18446744073709551615"),
        (2, u64::MAX, "18446744073709551615 bytes at offset 2"),
    ] {
        let refused = HostMemory::part(&inner, offset, bytes).unwrap_err();
        assert!(refused.to_string().contains(reason), "{refused}");
    }
    drop(inner);
    assert!(still.upgrade().is_none());
}

#[test]
fn where_the_hca_refuses_one_of_a_list_it_keeps_none() {
    let end = End::new(config("a"), 4096);
    let before = end.hca.live_objects().mr;
    let buffer = Arc::new(HostMemory::new(MIB).unwrap());
    let memories = tensors(&buffer, 10);
    for nth in 1..=10 {
        let fault = format!("cmd=REG_MR#{nth}");
        end.hca.set_faults(&fault.parse().unwrap());
        let refused = end.engine.register_all(&memories).unwrap_err();
        let (element, cause) = listed(&refused);
        assert_eq!(element, nth - 1, "{refused}");
        assert!(matches!(cause, HostError::Provider(_)), "{refused}");
        assert_eq!(end.hca.live_objects().mr, before, "{nth}");
    }
    end.hca.set_faults(&"".parse().unwrap());
    assert_eq!(end.engine.register_all(&memories).unwrap().len(), 10);
    assert_eq!(end.hca.live_objects().mr, before + 10);
}

#[test]
fn a_closed_engine_takes_no_list() {
    let end = End::new(config("a"), 4096);
    let _ = end.engine.close();
    let refused = end.engine.register_all(&[Arc::clone(&end.memory)]);
    let refused = refused.unwrap_err();
    let (element, cause) = listed(&refused);
    let is_closing = matches!(cause, HostError::Refused(EngineError::Closing));
    assert!(element == 0 && is_closing, "{refused}");
}
