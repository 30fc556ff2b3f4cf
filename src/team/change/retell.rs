//! Records of this generation that another writer has spoiled are written again.
//!
//! A record whose value no rank writes counts as missing. A value that a rank could write may be another rank's, or an old one. The
//! other end of a pair waits then for the right record, and this end does not hear of that. So each end looks at its own records
//! now and then while the pair is being connected.

use crate::team::error::TeamError;
use crate::team::hello::Offer;
use crate::team::holder::Holder;
use crate::team::parts::Parts;

/// Writes again the records of this generation for all ranks, and those for generation `generation` of `peer`, where the store
/// holds another value.
pub(in crate::team) fn tell_again(
    own: &Parts,
    peer: u32,
    generation: u32,
) -> Result<(), TeamError> {
    let entry = own.peers.get(peer)?;
    let Some(_only) = entry.try_work() else {
        return Ok(());
    };
    let key = own.holder().hello_key();
    if let Some(text) = told_hello(own, &key)? {
        own.exchange.put_again(&key, &text)?;
    }
    let said = {
        let mut state = entry.state();
        // A record for another generation is forgotten: this rank has dropped that generation.
        state.said.take_if(|said| said.generation != generation);
        state.said.clone()
    };
    if let Some(said) = said {
        own.exchange.put_again(&said.key, &said.text)?;
    }
    welcome_again(own, peer, generation)
}

/// Writes again, into a store that has lost them, the records of this rank that newcomers read.
pub(in crate::team) fn tell_all_again(own: &Parts) -> Result<(), TeamError> {
    own.exchange.tell_all_again()?;
    let key = own.holder().hello_key();
    if let Some(text) = told_hello(own, &key)? {
        own.exchange.put_again(&key, &text)?;
    }
    Ok(())
}

/// Writes again the welcome to a generation with which the QPs were connected, if the store holds another value. The other end
/// reads it when the QPs have failed. Its packet numbers mean nothing any more.
fn welcome_again(own: &Parts, peer: u32, generation: u32) -> Result<(), TeamError> {
    let offer = {
        let state = own.peers.get(peer)?.state();
        let founded = own.config.members().contains(peer) && !own.config.joins();
        let founders = founded && own.config.generation == generation;
        if founders || state.connected != generation || state.told != generation {
            return Ok(());
        }
        state.offer(peer, own.windows.offers(peer))
    };
    let other = Holder::new(peer, generation);
    let key = own.holder().welcome_key(other);
    let stands = match own.exchange.read_versioned::<Offer>(own.config.rank, &key) {
        Err(error) if !error.counts_as_missing() => return Err(error),
        found => found.ok().flatten(),
    };
    if !stands.is_some_and(|stands| stands.leads_where(&offer)) {
        tracing::warn!("'{key}' was changed by another writer, and is written again");
        own.exchange.put(&key, &offer)?;
    }
    Ok(())
}

/// Returns the hello of this generation; none if it was not published yet.
fn told_hello(own: &Parts, key: &str) -> Result<Option<Vec<u8>>, TeamError> {
    if !own.config.joins() {
        return own.exchange.text(key, own.peers.hello()).map(Some);
    }
    Ok(own.peers.told())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rendezvous::{MemoryStore, Store};
    use softhca::Hca;

    use super::*;
    use crate::gpu::{self, GpuSelector};
    use crate::team::{JoinOptions, Team, TeamConfig};
    use crate::verbs::{Context, DeviceSelector};

    /// Rank 0 founds the team alone. No rank 1 has come yet.
    fn founder(store: &Arc<dyn Store>, hca: &Hca) -> Arc<Team> {
        let founders = [0].into_iter().collect();
        join(
            TeamConfig::new(0, 2).with_members(Some(founders)),
            store,
            hca,
        )
    }

    fn join(config: TeamConfig, store: &Arc<dyn Store>, hca: &Hca) -> Arc<Team> {
        let device = Context::open(&DeviceSelector::Name(hca.name().to_owned())).unwrap();
        let gpu = gpu::open(GpuSelector::Simt).unwrap();
        JoinOptions::new(config)
            .with_contexts([&device])
            .with_gpu(&gpu)
            .with_store(Arc::clone(store))
            .join()
            .unwrap()
    }

    fn stands(store: &Arc<dyn Store>, key: &str) -> Vec<u8> {
        store.try_get(key).unwrap().unwrap()
    }

    #[test]
    fn a_hello_that_was_replaced_by_another_valid_one_is_written_again() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let hca = Hca::new().unwrap();
        let founder = founder(&store, &hca);
        let members = [0].into_iter().collect();
        let config = TeamConfig::new(1, 2).joining(2, members);
        let newcomer = join(config, &store, &hca);
        newcomer.tell_again(0, 1).unwrap();
        assert_eq!(store.try_get("hello/1.2").unwrap(), None, "not told yet");
        newcomer.hello().unwrap();
        let own = stands(&store, "hello/1.2");
        let other = stands(&store, "hello/0.1");
        for garbage in [&other[..], &own, b"{", b""] {
            store.put("hello/1.2", garbage).unwrap();
            newcomer.tell_again(0, 1).unwrap();
            assert_eq!(stands(&store, "hello/1.2"), own);
            store.put("hello/0.1", garbage).unwrap();
            founder.tell_again(1, 2).unwrap();
            assert_eq!(stands(&store, "hello/0.1"), other);
        }
    }

    #[test]
    fn answers_to_a_generation_that_is_over_are_not_given_again() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let hca = Hca::new().unwrap();
        let founder = founder(&store, &hca);
        let members = [0].into_iter().collect();
        let newcomer = join(TeamConfig::new(1, 2).joining(2, members), &store, &hca);
        newcomer.hello().unwrap();
        let absent = founder.connect_peer(1, 2, Duration::ZERO).unwrap_err();
        assert!(matches!(absent, TeamError::Absent { .. }), "{absent}");
        let key = "welcome/0.1/1.2";
        let told = stands(&store, key);
        store.put(key, b"{").unwrap();
        founder.tell_again(1, 2).unwrap();
        assert_eq!(stands(&store, key), told);
        // Generation 2 was dropped.
        store.remove(key).unwrap();
        for _ in 0..2 {
            founder.tell_again(1, 3).unwrap();
            assert_eq!(store.try_get(key).unwrap(), None);
        }
    }
}
