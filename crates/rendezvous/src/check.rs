//! What every store refuses before it does anything: keys, values and times to live beyond the limits.

use std::time::Duration;

use crate::{LEASE_TTL, MAX_KEY, MAX_LOOK, MAX_VALUE, StoreError};

/// Refuses a key that could leave the store's directory, has an empty name, or is too long.
pub(crate) fn check_key(key: &str) -> Result<(), StoreError> {
    let name_ok = |name: &str| {
        !name.is_empty()
            && !name.starts_with('.')
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    if key.len() > MAX_KEY {
        return Err(StoreError::TooLong {
            what: "the key",
            key: key.chars().take(32).collect(),
            bytes: key.len(),
            limit: MAX_KEY,
        });
    }
    if key.split('/').all(name_ok) {
        return Ok(());
    }
    Err(StoreError::Key {
        key: key.to_owned(),
    })
}

/// Refuses a value that is too long.
pub(crate) fn check_value(key: &str, value: &[u8]) -> Result<(), StoreError> {
    if value.len() <= MAX_VALUE {
        Ok(())
    } else {
        Err(StoreError::TooLong {
            what: "the value of",
            key: key.to_owned(),
            bytes: value.len(),
            limit: MAX_VALUE,
        })
    }
}

/// Refuses a look that names too many keys, or a text that is no key.
pub(crate) fn check_look(keys: &[&str], below: Option<&str>) -> Result<(), StoreError> {
    if keys.len() > MAX_LOOK {
        return Err(StoreError::TooMany {
            keys: keys.len(),
            limit: MAX_LOOK,
        });
    }
    keys.iter().copied().chain(below).try_for_each(check_key)
}

/// Refuses a time to live that no backend can keep.
pub(crate) fn check_ttl(key: &str, ttl: Duration) -> Result<(), StoreError> {
    if LEASE_TTL.contains(&ttl) {
        Ok(())
    } else {
        Err(StoreError::Ttl {
            key: key.to_owned(),
            ttl,
            least: *LEASE_TTL.start(),
            most: *LEASE_TTL.end(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_cannot_leave_the_store() {
        for key in ["", "/", "a/", "/a", "../a", "a/../b", "a b", "a/.hidden"] {
            assert!(
                matches!(check_key(key), Err(StoreError::Key { .. })),
                "{key}"
            );
        }
        assert!(check_key("window-3/rank_1.json").is_ok());
        assert!(check_key(&"k".repeat(MAX_KEY)).is_ok());
        let error = check_key(&"k".repeat(MAX_KEY + 1)).unwrap_err().to_string();
        assert!(
            error.ends_with("has 257 bytes; at most 256 are kept"),
            "{error}"
        );
    }
}
