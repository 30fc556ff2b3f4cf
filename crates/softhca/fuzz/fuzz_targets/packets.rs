#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| softhca_rig::fuzzing::packets(data));
