//! Descriptors that one process of a test says to another.

use warpverbs::internal::engine::Descriptor;

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The descriptor that another process has said in hexadecimal digits.
pub(crate) fn descriptor(hex: &str) -> Descriptor {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    Descriptor::from_bytes(&bytes).unwrap()
}
