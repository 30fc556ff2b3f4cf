//! Memory as long as a region of a device can be, and longer.

// UNSAFETY: registers memory of a test.
#![expect(unsafe_code, reason = "a registration by address")]

use std::sync::Arc;

use softhca::HcaConfig;
use warpverbs::internal::engine::{Engine, EngineError, HostError, HostMemory};
use warpverbs::verbs::{Access, Mr, Pd, VerbsError};

use crate::rig::{config, device};

const MIB: u64 = 1 << 20;

fn of(log_max_mr: u8) -> HcaConfig {
    HcaConfig {
        log_max_mr,
        ..HcaConfig::default()
    }
}

fn memory(bytes: u64) -> Arc<HostMemory> {
    Arc::new(HostMemory::new(bytes).unwrap())
}

#[test]
fn the_longest_region_is_taken_and_one_byte_more_is_on_no_rail() {
    // The second rail takes half of what the first one does.
    let (first, wide) = device(of(21));
    let (second, narrow) = device(of(20));
    let name = narrow.name().to_owned();
    let engine = Engine::on(&[wide, narrow], config("a").with_qps(2)).unwrap();
    let registered = || [&first, &second].map(|hca| hca.live_objects().mr);
    let before = registered();
    let longest = memory(MIB);
    let region = engine.register(&longest).unwrap();
    assert_eq!(registered(), before.map(|count| count + 1));
    // What lies inside has the same registration.
    let part = Arc::new(HostMemory::part(&longest, 4096, MIB / 2).unwrap());
    engine.register(&part).unwrap();
    assert_eq!(registered(), before.map(|count| count + 1));
    let long = memory(MIB + 1);
    let refused = engine.register(&long).unwrap_err();
    let HostError::Refused(error) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(
        error,
        EngineError::RegionBytes {
            bytes: MIB + 1,
            most: MIB,
            device: name.clone(),
        }
    );
    let said = error.to_string();
    assert!(
        said.contains("1048577 bytes") && said.contains(&format!("{name} takes at most 1048576")),
        "{said}"
    );
    // All or none of a list.
    let listed = engine.register_all(&[memory(MIB), long]).unwrap_err();
    assert!(
        matches!(listed, HostError::Listed { element: 1, .. }),
        "{listed:?}"
    );
    assert_eq!(registered(), before.map(|count| count + 1));
    engine.deregister(region).unwrap();
}

#[test]
fn a_region_that_is_too_long_is_refused_with_both_numbers() {
    let (hca, context) = device(of(20));
    let pd = Pd::new(&context).unwrap();
    let own = memory(MIB + 1);
    for (bytes, is_taken) in [(MIB, true), (MIB + 1, false)] {
        // SAFETY: `own` outlives the region, and nobody has a reference to its bytes.
        let made = unsafe { Mr::register(&pd, own.address(), bytes, Access::LOCAL_READ) };
        assert_eq!(made.is_ok(), is_taken, "{bytes}");
        if let Err(error) = made {
            assert!(matches!(error, VerbsError::BadArgument { .. }), "{error:?}");
            let said = error.to_string();
            assert!(
                said.contains("1048577") && said.contains("at most 1048576"),
                "{said}"
            );
        }
    }
    assert_eq!(hca.live_objects().mr, 0);
}
