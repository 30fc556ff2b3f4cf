//! The symbols of the shared library, and that it tells of itself.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;

use libfabric_abi::bindings::{FI_TYPE_INFO, FI_TYPE_VERSION};
use libfabric_abi::errors::{FI_EAGAIN, FI_EOVERRUN};
use libfabric_abi::{Functions, LATEST_API, LoadError, SYMBOLS};

use crate::rig::{softofi, watch};

/// An address by name and version, as a program looks it up.
fn lookup(name: &CStr, version: &CStr) -> bool {
    let path = ::softofi::library().unwrap();
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: texts that end with zero; the library is open for the life of the process.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null());
        !libc::dlvsym(library, name.as_ptr(), version.as_ptr()).is_null()
    }
}

#[test]
fn symbols_have_the_versions_of_debian_and_no_others() {
    for symbol in SYMBOLS {
        assert!(lookup(symbol.name, symbol.version), "{symbol:?}");
    }
    assert!(lookup(c"fi_tostr", c"FABRIC_1.0"));
    for (name, version) in [
        (c"fi_fabric", c"FABRIC_1.3"),
        (c"fi_getinfo", c"FABRIC_1.0"),
        (c"fi_getinfo", c"FABRIC_1.7"),
        (c"fi_open", c"FABRIC_1.5"),
        (c"softofi_anything", c"FABRIC_1.0"),
    ] {
        assert!(!lookup(name, version), "{name:?} {version:?}");
    }
}

#[test]
fn it_says_its_version_and_has_words_for_errors() {
    let functions = softofi();
    assert_eq!(functions.version(), LATEST_API);
    assert_eq!(functions.error_text(-FI_EOVERRUN), "a queue was overrun");
    let text = functions.error_text(FI_EAGAIN);
    assert_eq!(text, "Resource temporarily unavailable");
    assert_ne!(FI_TYPE_INFO, FI_TYPE_VERSION);
}

#[test]
fn only_softofi_lets_itself_be_watched() {
    drop(watch());
    match Functions::load("libfabric.so.1".as_ref()) {
        Ok(functions) => assert!(::softofi::watch::Watch::open(&functions).is_none()),
        Err(LoadError::NotOpened { .. }) => println!("left out: no libfabric is installed"),
        Err(error) => panic!("{error}"),
    }
}

/// What `Functions::load` says in a process with this configuration.
const SAYS: &str = "SOFTOFI";

#[test]
fn a_library_that_says_it_is_older_is_refused_with_its_version() {
    let says =
        |config| test_basics::process::Process::start("symbols::loads", (SAYS, config)).says();
    assert!(
        says("api=1.11").ends_with("is libfabric 1.11, and 1.17 is the least that can be used")
    );
    assert_eq!(says("api=1.17"), "1.17");
    assert_eq!(says("api=2.1"), "2.1");
}

#[test]
#[ignore = "is started by the test above"]
fn loads() {
    match Functions::load(&::softofi::library().unwrap()) {
        Ok(functions) => println!("said: {}", functions.api_version()),
        Err(error) => println!("said: {error}"),
    }
}
