//! What a version of a key holds.

use super::leases::LeaseRecord;
use crate::StoreError;
use crate::check::check_value;

/// The content that a change gave the key.
#[derive(Debug)]
pub(super) enum Content {
    Value(Vec<u8>),
    Leased(LeaseRecord, Vec<u8>),
    Removed,
}

impl Content {
    /// Returns a line with the kind of the content and the change that has created the key, and after it the value.
    pub(super) fn bytes(&self, created: u64) -> Vec<u8> {
        match self {
            Self::Value(value) => [format!("value {created}\n").as_bytes(), value].concat(),
            Self::Leased(record, value) => {
                let line = format!("lease {created} {}\n", record.line());
                [line.as_bytes(), value].concat()
            }
            Self::Removed => b"removed\n".to_vec(),
        }
    }

    /// Returns the content that `bytes` write, and the change that has created the key.
    pub(super) fn parse(key: &str, mut bytes: Vec<u8>) -> Result<(u64, Self), StoreError> {
        let garbage = || StoreError::NotARecord {
            key: key.to_owned(),
            bytes: bytes.len(),
        };
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let end = end.ok_or_else(garbage)?;
        let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
        if line == "removed" {
            return Ok((0, Self::Removed));
        }
        let (kind, rest) = line.split_once(' ').ok_or_else(garbage)?;
        let (created, record) = rest.split_once(' ').unwrap_or((rest, ""));
        let created = created.parse().map_err(|_| garbage())?;
        let record = match (kind, record) {
            ("value", "") => None,
            ("lease", record) => Some(LeaseRecord::parse(record).ok_or_else(garbage)?),
            _ => return Err(garbage()),
        };
        bytes.drain(..=end);
        check_value(key, &bytes)?;
        let content = match record {
            None => Self::Value(bytes),
            Some(record) => Self::Leased(record, bytes),
        };
        Ok((created, content))
    }
}
