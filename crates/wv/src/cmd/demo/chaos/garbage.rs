//! Garbage in the keys of a group, as another program, or a disk, might leave it there.
//!
//! What is written can never be read as what belongs there: a value that could would be a lie, and nobody can tell a lie of a rank
//! from its word.

use warpverbs::team::{Store, StoreError};

/// A family of keys below `group/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    Record,
    Config,
    Member,
    Row,
    Promise,
    Leaves,
    Over,
    Taken,
    /// One that no group has.
    Unknown,
}

impl KeyKind {
    pub(super) const ALL: [Self; 9] = [
        Self::Record,
        Self::Config,
        Self::Member,
        Self::Row,
        Self::Promise,
        Self::Leaves,
        Self::Over,
        Self::Taken,
        Self::Unknown,
    ];

    /// The key of this kind that belongs to generation `generation` of `rank`; `proposal` is the newest one.
    fn key(self, (rank, generation): (u32, u32), proposal: &str) -> String {
        let own = |kind: &str| format!("group/{kind}/{rank}.{generation}");
        match self {
            Self::Record => "group/record".to_owned(),
            Self::Config => "group/config".to_owned(),
            Self::Member => own("member"),
            Self::Row => own("row"),
            Self::Promise => own(&format!("promise/{proposal}")),
            Self::Leaves => own("leaves"),
            Self::Over => own("over"),
            Self::Taken => own("taken"),
            Self::Unknown => format!("group/row/{rank}.0.{generation}"),
        }
    }

    /// Whether nobody would write the right value again: changes, or newcomers, wait until it is there.
    pub(super) fn has_no_holder(self) -> bool {
        matches!(self, Self::Record | Self::Config)
    }
}

/// How a value is spoiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoil {
    /// Its end is missing.
    Cut,
    /// A byte of it is no text any more.
    Flipped,
    /// It is nearly as long as a value may be.
    Huge,
    /// It is under the name of a slot that the team has not.
    OtherSlot,
}

impl Spoil {
    pub(super) const ALL: [Self; 4] = [Self::Cut, Self::Flipped, Self::Huge, Self::OtherSlot];

    /// `value`, which is not empty, spoiled.
    fn spoil(self, value: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
        let mut bytes = value.to_vec();
        match self {
            // What is left of a JSON object without its end is none.
            Self::Cut => bytes.truncate(random.usize(..value.len())),
            // No UTF-8 has this byte.
            Self::Flipped => bytes[random.usize(..value.len())] = 0xff,
            Self::Huge => bytes.resize(HUGE, b'['),
            Self::OtherSlot => {}
        }
        bytes
    }
}

/// Bytes of a huge value: below the limit of any store.
const HUGE: usize = 1 << 19;

/// Where nothing is to be spoiled yet.
const SOMETHING: &[u8] = b"{\"nothing\":1}";

/// A key that holds garbage now.
#[derive(Clone, Debug)]
pub(super) struct Spoiled {
    pub(super) key: String,
    garbage: Vec<u8>,
    before: Option<Vec<u8>>,
    mend: bool,
}

/// Spoils a key of `kind` in the store, at best one of `who`.
pub(super) fn write(
    store: &dyn Store,
    who: (u32, u32),
    kind: KeyKind,
    how: Spoil,
    seed: u64,
) -> Result<Spoiled, StoreError> {
    let mut random = fastrand::Rng::with_seed(seed);
    let numbers = store.list("group/promise")?;
    let proposal = numbers.last().map_or("1", String::as_str);
    // Beyond all slots; a key that is of no slot keeps its name and is cut.
    let (who, how) = match (how, kind.key((0, 1), "1") == kind.key((1, 1), "1")) {
        (Spoil::OtherSlot, true) => (who, Spoil::Cut),
        (Spoil::OtherSlot, false) => ((4095, who.1), how),
        _ => (who, how),
    };
    let key = kind.key(who, proposal);
    let before = store.try_get(&key)?;
    let base = match before.as_deref() {
        Some(value) if !value.is_empty() => value.to_vec(),
        // Below the line that each value of the run begins with.
        _ => {
            let record = store.try_get(&KeyKind::Record.key(who, proposal))?;
            let record = record.unwrap_or_default();
            let lines = record.split_inclusive(|byte| *byte == b'\n');
            let header = lines.take(1).flatten().copied();
            header.chain(SOMETHING.iter().copied()).collect()
        }
    };
    let garbage = how.spoil(&base, &mut random);
    // The record is changed by compare-and-set only, and the value that is put back is the newest.
    let mend = kind.has_no_holder();
    let wrote = match &before {
        Some(before) if mend => store.compare_and_set(&key, Some(before), &garbage)?,
        _ => store.put(&key, &garbage).map(|()| true)?,
    };
    Ok(Spoiled {
        key,
        garbage,
        before,
        mend: mend && wrote,
    })
}

impl Spoiled {
    /// Puts back what nobody else would write again.
    pub(super) fn mend(&self, store: &dyn Store) -> Result<(), StoreError> {
        if let (true, Some(before)) = (self.mend, &self.before) {
            store.compare_and_set(&self.key, Some(&self.garbage), before)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpverbs::team::FileStore;

    const VALUE: &[u8] = b"{\"epoch\":3}";

    #[test]
    fn no_spoiled_value_is_json_again() {
        let mut random = fastrand::Rng::with_seed(4);
        for how in [Spoil::Cut, Spoil::Flipped, Spoil::Huge] {
            for _ in 0..100 {
                let value = how.spoil(VALUE, &mut random);
                assert_ne!(value, VALUE);
                let parsed = serde_json::from_slice::<serde_json::Value>(&value);
                assert!(parsed.is_err(), "{how:?}: {value:?}");
            }
        }
    }

    #[test]
    fn every_kind_of_key_is_spoiled_in_its_place_and_what_has_no_holder_is_mended() {
        let place = tempfile::tempdir().unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(place.path(), mode).unwrap();
        let store = FileStore::open(place.path(), "run").unwrap();
        for kind in KeyKind::ALL {
            let key = kind.key((2, 1), "7");
            assert!(key.starts_with("group/"), "{key}");
            store.put(&key, VALUE).unwrap();
            for how in Spoil::ALL {
                let spoiled = write(&store, (2, 1), kind, how, 9).unwrap();
                let found = store.try_get(&spoiled.key).unwrap().unwrap();
                assert_eq!(found, spoiled.garbage);
                assert_ne!(found, VALUE);
                let other = how == Spoil::OtherSlot && !kind.has_no_holder();
                assert_eq!(spoiled.key == key, !other, "{key} {}", spoiled.key);
                spoiled.mend(&store).unwrap();
                let mended = store.try_get(&key).unwrap().unwrap() == VALUE;
                assert_eq!(mended, kind.has_no_holder() || other, "{key} {how:?}");
                store.put(&key, VALUE).unwrap();
            }
        }
    }
}
