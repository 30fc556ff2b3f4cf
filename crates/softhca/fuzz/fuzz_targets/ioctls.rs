#![no_main]

#[path = "../../tests/fuzzing/mod.rs"]
mod fuzzing;
#[path = "../../tests/rig/mod.rs"]
mod rig;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::ioctls(data));
