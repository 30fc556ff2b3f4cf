//! Ranks and their generations, by slot.

use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The generation of each member, by slot: a map whose clones share their memory until one of them changes.
///
/// A rank keeps the members of its view at several places: in the record, in its events, for its kernels. With 1,024 members each
/// copy takes 10 KB.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Members(Arc<BTreeMap<u32, u32>>);

impl Members {
    /// The slots, in their order.
    pub fn into_keys(self) -> impl Iterator<Item = u32> {
        Arc::unwrap_or_clone(self.0).into_keys()
    }

    /// Shares the memory of `other` if both are equal.
    pub(crate) fn share(&mut self, other: &Self) {
        if self == other {
            self.0 = Arc::clone(&other.0);
        }
    }
}

impl Deref for Members {
    type Target = BTreeMap<u32, u32>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Members {
    fn deref_mut(&mut self) -> &mut Self::Target {
        Arc::make_mut(&mut self.0)
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<BTreeMap<u32, u32>> for Members {
    fn from(members: BTreeMap<u32, u32>) -> Self {
        Self(Arc::new(members))
    }
}

impl<const N: usize> From<[(u32, u32); N]> for Members {
    fn from(members: [(u32, u32); N]) -> Self {
        BTreeMap::from(members).into()
    }
}

impl FromIterator<(u32, u32)> for Members {
    fn from_iter<T: IntoIterator<Item = (u32, u32)>>(members: T) -> Self {
        members.into_iter().collect::<BTreeMap<_, _>>().into()
    }
}

impl<'a> IntoIterator for &'a Members {
    type Item = (&'a u32, &'a u32);
    type IntoIter = btree_map::Iter<'a, u32, u32>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_shares_its_memory_until_it_changes() {
        let shares = |a: &Members, b: &Members| Arc::ptr_eq(&a.0, &b.0);
        let members = Members::from([(0, 1), (3, 2)]);
        let mut other = members.clone();
        assert!(shares(&members, &other));
        other.insert(4, 1);
        assert!(!shares(&members, &other));
        assert_eq!(members, [(0, 1), (3, 2)].into());
        other.share(&members);
        assert!(!shares(&members, &other), "they differ");
        other.remove(&4);
        other.share(&members);
        assert!(shares(&members, &other));
    }
}
