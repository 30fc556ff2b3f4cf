//! Values with a header that names version and run of their writer.

use std::sync::Arc;
use std::time::Duration;

use crate::check::check_value;
use crate::limits::MAX_RUN;
use crate::{
    AroundStore, Changed, Entry, KeyChange, KeyWatch, MAX_VALUE, Store, StoreAnswer, StoreCall,
    StoreError,
};

/// Version of what ranks write to a store. Ranks of different versions do not work together.
pub const RECORD_VERSION: u32 = 3;
const MAGIC: &str = "warpverbs";

/// A store whose values name version and run, `warpverbs 3 RUN` on a line before the value. A value of another run or version is refused
/// when it is read.
#[derive(Debug)]
pub struct Records {
    store: Arc<dyn Store>,
    header: String,
}

impl Records {
    /// Returns a store that reads and writes records of the run `run_id` in `store`.
    ///
    /// # Errors
    /// A run id that is empty, longer than 128 bytes or of several lines.
    pub fn new(store: Arc<dyn Store>, run_id: &str) -> Result<Self, StoreError> {
        if run_id.is_empty() || run_id.len() > MAX_RUN || run_id.contains('\n') {
            return Err(StoreError::Run {
                run: run_id.chars().take(MAX_RUN).collect(),
                limit: MAX_RUN,
            });
        }
        Ok(Self {
            store,
            header: format!("{MAGIC} {RECORD_VERSION} {run_id}"),
        })
    }

    fn wrap(&self, key: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        check_value(key, value)?;
        let record = [self.header.as_bytes(), b"\n", value].concat();
        if record.len() <= MAX_VALUE {
            Ok(record)
        } else {
            Err(StoreError::TooLong {
                what: "the value of",
                key: key.to_owned(),
                bytes: value.len(),
                limit: MAX_VALUE - self.header.len() - 1,
            })
        }
    }

    fn unwrap(&self, key: &str, record: Option<Vec<u8>>) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(mut record) = record else {
            return Ok(None);
        };
        let garbage = StoreError::NotARecord {
            key: key.to_owned(),
            bytes: record.len(),
        };
        let Some(end) = record.iter().position(|&byte| byte == b'\n') else {
            return Err(garbage);
        };
        if record[..end] != *self.header.as_bytes() {
            let Some(found) = describe(&record[..end]) else {
                return Err(garbage);
            };
            return Err(StoreError::OtherRecord {
                key: key.to_owned(),
                found,
                wanted: describe(self.header.as_bytes()).unwrap_or_default(),
            });
        }
        record.drain(..=end);
        Ok(Some(record))
    }

    fn unwrap_all(&self, mut changed: Changed) -> Changed {
        for entry in std::mem::take(&mut changed.entries) {
            match self.unwrap(&entry.key, Some(entry.value)) {
                Ok(value) => changed.entries.push(Entry {
                    value: value.unwrap_or_default(),
                    ..entry
                }),
                Err(error) => changed.unreadable.push(error),
            }
        }
        changed
    }
}

/// Returns `of version 1 of run 'x'` for a header, and None for other bytes.
fn describe(header: &[u8]) -> Option<String> {
    let mut words = std::str::from_utf8(header).ok()?.splitn(3, ' ');
    let (magic, version, run) = (words.next()?, words.next()?, words.next()?);
    let version: u32 = version.parse().ok()?;
    (magic == MAGIC).then(|| format!("of version {version} of run '{run}'"))
}

impl AroundStore for Records {
    fn inner(&self) -> &dyn Store {
        self.store.as_ref()
    }

    fn with_bound(&self, bound: Duration) -> Arc<dyn Store> {
        Arc::new(Self {
            store: self.store.bounded(bound),
            header: self.header.clone(),
        })
    }

    fn around(&self, call: &StoreCall<'_>) -> Result<StoreAnswer, StoreError> {
        let mut wrapped = call.clone();
        for value in [&mut wrapped.expected, &mut wrapped.value]
            .into_iter()
            .flatten()
        {
            *value = self.wrap(&call.key, value)?.into();
        }
        Ok(match wrapped.make(self.store.as_ref())? {
            StoreAnswer::Value(value) => StoreAnswer::Value(self.unwrap(call.key(), value)?),
            StoreAnswer::Changed(changed) => StoreAnswer::Changed(self.unwrap_all(changed)),
            other => other,
        })
    }

    fn next_around(
        &self,
        watch: &mut KeyWatch,
        since: u64,
        timeout: Duration,
    ) -> Result<KeyChange, StoreError> {
        let entry = match self.store.next_change(watch, since, timeout)? {
            KeyChange::Set(entry) => entry,
            other => return Ok(other),
        };
        // The caller then looks at the key, and the look shows what is wrong with the value.
        Ok(match self.unwrap(&entry.key, Some(entry.value)) {
            Ok(Some(value)) => KeyChange::Set(Entry { value, ..entry }),
            Ok(None) | Err(_) => KeyChange::Unknown,
        })
    }
}
