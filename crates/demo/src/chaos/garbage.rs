//! Garbage in the keys of a group and of its team, as another program or a disk might leave it. Keys that ranks read only while they found
//! a team are not spoiled. Neither are keys of which only the name carries meaning.
//!
//! The garbage is never a valid value of its key. A reader could not tell a valid value that the rank did not write from one that it wrote.

use warpverbs::team::{Store, StoreError};

/// A family of keys of the store.
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
    /// The hello of a generation, for all ranks that connect with it.
    Hello,
    /// The welcome of a generation for one rank that connects with it.
    Welcome,
    /// What a generation tells a rank from which it is parted.
    Reunite,
    /// The mark that a generation of a slot was drawn.
    Generation,
    /// The mark that a rank has given up.
    Failed,
    /// The settings that all ranks of the team must have alike.
    Settings,
    /// The settings of the layer that all ranks must have alike.
    Layer,
    /// A key that no group has.
    Unknown,
}

impl KeyKind {
    pub(super) const ALL: [Self; 16] = [
        Self::Record,
        Self::Config,
        Self::Member,
        Self::Row,
        Self::Promise,
        Self::Leaves,
        Self::Over,
        Self::Taken,
        Self::Hello,
        Self::Welcome,
        Self::Reunite,
        Self::Generation,
        Self::Failed,
        Self::Settings,
        Self::Layer,
        Self::Unknown,
    ];

    /// Returns the key of this kind for generation `generation` of `rank`. For a kind with several keys, `name` chooses the one of the
    /// newest proposal, or of a pair of ranks, as [`KeyKind::names`] gives it.
    fn key(self, (rank, generation): (u32, u32), name: &str) -> String {
        let own = |kind: &str| format!("group/{kind}/{rank}.{generation}");
        match self {
            Self::Record => "group/record".to_owned(),
            Self::Config => "group/config".to_owned(),
            Self::Member => own("member"),
            Self::Row => own("row"),
            Self::Promise => own(&format!("promise/{name}")),
            Self::Leaves => own("leaves"),
            Self::Over => own("over"),
            Self::Taken => own("taken"),
            Self::Hello => format!("hello/{rank}.{generation}"),
            Self::Welcome => format!("welcome/{rank}.{generation}/{name}"),
            Self::Reunite => format!("reunite/{rank}.{generation}/{name}"),
            Self::Generation => format!("generation/{rank}/{name}"),
            Self::Failed => format!("failed/{rank}.{generation}-0badc0de"),
            Self::Settings => format!("config/{rank}"),
            Self::Layer => format!("moe-demo/{rank}"),
            Self::Unknown => format!("group/row/{rank}.0.{generation}"),
        }
    }

    /// Returns the prefix of the keys if one rank has several keys of this kind, or None if it has one.
    fn names(self, (rank, generation): (u32, u32)) -> Option<String> {
        match self {
            Self::Promise => Some("group/promise".to_owned()),
            Self::Welcome => Some(format!("welcome/{rank}.{generation}")),
            Self::Reunite => Some(format!("reunite/{rank}.{generation}")),
            Self::Generation => Some(format!("generation/{rank}")),
            _ => None,
        }
    }

    /// Returns whether the keys of this kind name a rank.
    fn has_slot(self) -> bool {
        !matches!(self, Self::Record | Self::Config)
    }

    /// Returns whether no rank would write the right value again. Then changes or newcomers wait until the value is restored.
    pub(super) fn has_no_holder(self) -> bool {
        matches!(self, Self::Record | Self::Settings | Self::Layer)
    }
}

/// The ways to spoil a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoil {
    /// The end of the value is missing.
    Cut,
    /// A byte of the value is no UTF-8.
    Flipped,
    /// The value is nearly as long as a value may be.
    Huge,
    /// The value is under the name of a slot that the team does not have.
    OtherSlot,
}

impl Spoil {
    pub(super) const ALL: [Self; 4] = [Self::Cut, Self::Flipped, Self::Huge, Self::OtherSlot];

    /// Returns `value`, which is not empty, spoiled in this way.
    fn spoil(self, value: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
        let mut bytes = value.to_vec();
        match self {
            // A JSON object without its end is not valid.
            Self::Cut => bytes.truncate(random.usize(..value.len())),
            // This byte occurs in no UTF-8 text.
            Self::Flipped => bytes[random.usize(..value.len())] = 0xff,
            Self::Huge => bytes.resize(HUGE, b'['),
            Self::OtherSlot => {}
        }
        bytes
    }
}

/// The number of bytes of a huge value, which is below the limit of any store.
const HUGE: usize = 1 << 19;

/// The value to spoil where the key has none.
const SOMETHING: &[u8] = b"{\"nothing\":1}";

/// A key that contains garbage now.
#[derive(Clone, Debug)]
pub(super) struct Spoiled {
    pub(super) key: String,
    garbage: Vec<u8>,
    before: Option<Vec<u8>>,
    mend: bool,
}

/// Spoils a key of `kind` in the store, if possible one of `who`.
pub(super) fn write(
    store: &dyn Store,
    who: (u32, u32),
    kind: KeyKind,
    how: Spoil,
    seed: u64,
) -> Result<Spoiled, StoreError> {
    let mut random = fastrand::Rng::with_seed(seed);
    let names = match kind.names(who) {
        Some(below) => store.list(&below)?,
        None => Vec::new(),
    };
    let name = match kind {
        KeyKind::Promise | KeyKind::Generation => names.last(),
        _ => random.choice(&names),
    };
    let name = name.map_or("1.1", String::as_str);
    // The slot 4095 is beyond all slots. A key without a slot keeps its name, and its value is cut.
    let (who, how) = match (how, kind.has_slot()) {
        (Spoil::OtherSlot, false) => (who, Spoil::Cut),
        (Spoil::OtherSlot, true) => ((4095, who.1), how),
        _ => (who, how),
    };
    let key = kind.key(who, name);
    let before = store.try_get(&key)?;
    let base = match before.as_deref() {
        Some(value) if !value.is_empty() => value.to_vec(),
        // The garbage follows the line with which each value of the run begins.
        _ => {
            let record = store.try_get(&KeyKind::Record.key(who, name))?;
            let record = record.unwrap_or_default();
            let lines = record.split_inclusive(|byte| *byte == b'\n');
            let header = lines.take(1).flatten().copied();
            header.chain(SOMETHING.iter().copied()).collect()
        }
    };
    let garbage = how.spoil(&base, &mut random);
    // Ranks change the record only by compare-and-set, so the value that is put back later is the newest.
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
    /// Restores the value, if no rank would write it again.
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
    fn every_kind_of_key_is_spoiled_in_place_and_mended_if_it_has_no_holder() {
        let place = tempfile::tempdir().unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(place.path(), mode).unwrap();
        let store = FileStore::open(place.path(), "run").unwrap();
        for kind in KeyKind::ALL {
            let key = kind.key((2, 1), "7");
            store.put(&key, VALUE).unwrap();
            for how in Spoil::ALL {
                let spoiled = write(&store, (2, 1), kind, how, 9).unwrap();
                let found = store.try_get(&spoiled.key).unwrap().unwrap();
                assert_eq!(found, spoiled.garbage);
                assert_ne!(found, VALUE);
                let other = how == Spoil::OtherSlot && kind.has_slot();
                assert_eq!(spoiled.key == key, !other, "{key} {}", spoiled.key);
                spoiled.mend(&store).unwrap();
                let mended = store.try_get(&key).unwrap().unwrap() == VALUE;
                assert_eq!(mended, kind.has_no_holder() || other, "{key} {how:?}");
                store.put(&key, VALUE).unwrap();
            }
        }
    }
}
