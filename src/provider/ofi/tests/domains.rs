//! Which domains are found, and what is refused by name.

use std::sync::Arc;

use super::rig::library;
use crate::provider::ofi::choice::find;
use crate::provider::ofi::library::Library;
use crate::provider::ofi::{OfiDevice, OfiError, OfiWish};

#[test]
fn what_a_provider_lacks_is_named() {
    let library = match Library::open(None) {
        Ok(library) => Arc::new(library),
        Err(error) => return println!("left out: {error}"),
    };
    let refused = |provider: &str, domains: &[&str]| {
        let wish = OfiWish {
            library: None,
            provider: Some(provider.to_owned()),
            without: Vec::new(),
            domains: domains.iter().map(|it| (*it).to_owned()).collect(),
            gpus: false,
        };
        find(&library, &wish).unwrap_err()
    };
    let none = refused("nosuch", &[]);
    assert!(matches!(none, OfiError::NoProvider { .. }), "{none}");
    assert!(
        none.to_string()
            .contains("no provider 'nosuch' here; it has"),
        "{none}"
    );
    let domain = refused("tcp;ofi_rxm", &["nosuch"]);
    assert!(matches!(domain, OfiError::NoDomain { .. }), "{domain}");
    // Datagrams have no RMA.
    let udp = refused("udp", &[]);
    assert!(matches!(udp, OfiError::Lacks { .. }), "{udp}");
    let absent = Library::open(Some(std::path::Path::new("/nowhere/libfabric.so.1")));
    let text = absent.unwrap_err().to_string();
    assert!(
        text.contains("/nowhere/libfabric.so.1") && text.contains("WARPVERBS_LIBFABRIC"),
        "{text}"
    );
}

/// Returns what an engine takes that wants libfabric and names no provider.
fn unnamed(run: &str) -> Result<Vec<OfiDevice>, OfiError> {
    let wish = OfiWish {
        library: None,
        provider: None,
        domains: Vec::new(),
        without: Vec::new(),
        gpus: false,
    };
    find(&Arc::new(library(run)?), &wish)
}

#[test]
fn a_provider_that_is_not_named_drives_a_nic_and_efa_direct_comes_first() {
    let found = unnamed("softofi:profile=both").unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|it| (it.provider(), it.fabric()))
        .collect();
    assert_eq!(found, [("efa", "efa-direct")]);
    let found = unnamed("softofi:profile=efa").unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|it| (it.provider(), it.fabric()))
        .collect();
    assert_eq!(found, [("efa", "efa")]);
    // Providers over sockets and shared memory drive no NIC.
    match unnamed("") {
        Err(OfiError::NoNic { known, .. }) => assert!(known.contains("tcp"), "{known}"),
        Err(OfiError::Library(error)) => println!("left out: {error}"),
        Err(error) => assert!(error.is_of_a_nic(), "{error}"),
        Ok(found) => assert!(found.iter().all(|it| it.facts().is_over_nic())),
    }
}
