//! The answers of an etcd, as its JSON gateway writes them: numbers of 64 bits as text, bytes in base64, and no field for a zero.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};

/// Returns bytes in the encoding of the gateway.
pub(super) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// The keys that were found.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Range {
    pub(super) header: Header,
    pub(super) kvs: Vec<KeyValue>,
    /// The number of all keys in the range, however many of them were asked for.
    #[serde(deserialize_with = "number")]
    pub(super) count: u64,
}

/// The header of each answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Header {
    /// The revision of the whole store.
    #[serde(deserialize_with = "number")]
    pub(super) revision: u64,
}

/// A key that was found.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeyValue {
    #[serde(deserialize_with = "bytes")]
    pub(super) key: Vec<u8>,
    #[serde(deserialize_with = "bytes")]
    pub(super) value: Vec<u8>,
    /// Revision of the whole store at the key's newest change.
    #[serde(deserialize_with = "number")]
    pub(super) mod_revision: u64,
    /// Revision of the whole store at the change that set the key when it was not set.
    #[serde(deserialize_with = "number")]
    pub(super) create_revision: u64,
    #[serde(deserialize_with = "number")]
    pub(super) lease: u64,
}

/// The answer to a transaction.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Committed {
    pub(super) header: Header,
    pub(super) succeeded: bool,
    pub(super) responses: Vec<Operated>,
}

/// The result of one operation of a transaction.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Operated {
    pub(super) response_range: Range,
    pub(super) response_delete_range: Deleted,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Deleted {
    #[serde(deserialize_with = "number")]
    pub(super) deleted: u64,
}

/// A lease, granted or kept alive. A time to live of 0 means that the lease is gone.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Granted {
    #[serde(rename = "ID", deserialize_with = "number")]
    pub(super) id: u64,
    #[serde(rename = "TTL", deserialize_with = "number")]
    pub(super) ttl: u64,
}

/// An answer whose fields are not needed.
#[derive(Debug, Deserialize)]
pub(super) struct Nothing {}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Authenticated {
    pub(super) token: String,
}

/// One line of an answer that is a stream.
#[derive(Debug, Deserialize)]
pub(super) struct Streamed<T> {
    pub(super) result: Option<T>,
    pub(super) error: Option<Refusal>,
}

/// A line of a watch.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Watched {
    /// True if this line says that the watch stands.
    pub(super) created: bool,
    pub(super) canceled: bool,
    pub(super) cancel_reason: String,
    /// The earliest revision whose changes the etcd still knows. 0 unless the watch was asked for earlier ones.
    #[serde(deserialize_with = "number")]
    pub(super) compact_revision: u64,
    pub(super) events: Vec<Event>,
}

/// A change of a watched key.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    /// The kind of the change: `DELETE`, or `PUT`, which the gateway leaves out.
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) kv: KeyValue,
}

/// The reason of a refusal. The code is gRPC's.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Refusal {
    #[serde(alias = "grpc_code")]
    pub(super) code: u32,
    pub(super) message: String,
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    STANDARD.decode(text).map_err(serde::de::Error::custom)
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_etcd_writes_them() {
        let range: Range = serde_json::from_str(
            r#"{"header":{"revision":"5"},"kvs":[{"key":"d3Yvaw==","mod_revision":"18446744073709551615",
                "version":"1","value":"aGVsbG8=","lease":"9041998789691974158"},{"key":"aw=="}],"count":"1"}"#,
        )
        .unwrap();
        assert_eq!(range.kvs[0].key, b"wv/k");
        assert_eq!(range.kvs[0].value, b"hello");
        assert_eq!(range.kvs[0].mod_revision, u64::MAX);
        assert_eq!(range.kvs[0].lease, 9_041_998_789_691_974_158);
        assert_eq!((range.kvs[1].value.len(), range.kvs[1].lease), (0, 0));
        let gone: Streamed<Granted> =
            serde_json::from_str(r#"{"result":{"header":{},"ID":"77"}}"#).unwrap();
        assert_eq!(gone.result.unwrap().ttl, 0);
        let refused: Streamed<Granted> =
            serde_json::from_str(r#"{"error":{"grpc_code":14,"message":"no leader"}}"#).unwrap();
        assert_eq!(refused.error.unwrap().code, 14);
    }

    #[test]
    fn garbage_is_an_error() {
        for text in [
            r#"{"kvs":[{"key":"*"}]}"#,
            r#"{"kvs":[{"mod_revision":"-1"}]}"#,
            r#"{"kvs":{}}"#,
            "[",
            "",
        ] {
            assert!(serde_json::from_str::<Range>(text).is_err(), "{text}");
        }
    }
}
