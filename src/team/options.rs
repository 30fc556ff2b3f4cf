//! How a program joins a team: what it gives, and what is opened for it.

use std::sync::Arc;

use rendezvous::Store;

use super::config::TeamConfig;
use super::devices::Given;
use super::error::TeamError;
use super::start;
use super::team::Team;
use crate::config::Config;
use crate::gpu::Gpu;
use crate::verbs::{Context, Pd};

/// What a rank joins a team with. [`JoinOptions::new`] takes the rank and the settings of its team. Store, GPU and HCAs may be given;
/// [`JoinOptions::join`] opens the others.
///
/// ```
/// use warpverbs::config::Config;
/// use warpverbs::team::{JoinOptions, TeamConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let _hca = softhca::Hca::new()?; // where there is no ConnectX
/// // A program that a launcher has started calls `Config::from_env`.
/// let config = Config::default();
/// let team = JoinOptions::new(TeamConfig::of(&config)).with_config(&config).join()?;
/// assert_eq!((team.rank(), team.ranks()), (0, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct JoinOptions {
    team: TeamConfig,
    /// Names what is not given.
    config: Config,
    given: Given,
    /// The protection domains by rail. If empty, each rail makes its own.
    pds: Vec<Arc<Pd>>,
    store: Option<Arc<dyn Store>>,
}

impl JoinOptions {
    /// Returns what joins as rank `team.rank`: with `auto` devices of this machine, and in a store that must be given unless the team
    /// has one rank.
    pub fn new(team: TeamConfig) -> Self {
        Self {
            team,
            config: Config::default(),
            given: Given::default(),
            pds: Vec::new(),
            store: None,
        }
    }

    /// Opens store, GPU and HCAs as `config` names them, except for those that are given. The settings of the team are not taken from
    /// it: [`TeamConfig::of`] takes them.
    pub fn with_config(self, config: &Config) -> Self {
        Self {
            config: config.clone(),
            ..self
        }
    }

    /// Meets the other ranks in this store.
    pub fn with_store(self, store: Arc<dyn Store>) -> Self {
        Self {
            store: Some(store),
            ..self
        }
    }

    /// Runs kernels on this device.
    pub fn with_gpu(self, gpu: &Arc<dyn Gpu>) -> Self {
        let gpu = Some(Arc::clone(gpu));
        Self {
            given: Given { gpu, ..self.given },
            ..self
        }
    }

    /// Uses these HCAs, one for each rail. QP `i` to a peer runs on rail `i` mod rails, to the rail of the same number at the peer. All
    /// ranks have the same number of rails.
    pub fn with_contexts<'a>(self, contexts: impl IntoIterator<Item = &'a Arc<Context>>) -> Self {
        let contexts = contexts.into_iter().cloned().collect();
        self.on(contexts, Vec::new())
    }

    /// Uses these protection domains, which the caller goes on using, one for each rail, on the HCAs that they belong to. QPs of the
    /// caller in such a domain may use memory that the team registers, if they know its keys. The team's QPs may use memory that the
    /// caller registers.
    pub fn with_pds<'a>(self, pds: impl IntoIterator<Item = &'a Arc<Pd>>) -> Self {
        let pds: Vec<_> = pds.into_iter().cloned().collect();
        let contexts = pds.iter().map(|pd| Arc::clone(pd.context())).collect();
        self.on(contexts, pds)
    }

    fn on(self, contexts: Vec<Arc<Context>>, pds: Vec<Arc<Pd>>) -> Self {
        let contexts = Some(contexts);
        Self {
            given: Given {
                contexts,
                ..self.given
            },
            pds,
            ..self
        }
    }

    /// Joins the team. Collective: the founders meet here, and a rank that joins later waits for none. The store is opened first, then
    /// HCAs and GPU.
    ///
    /// # Errors
    /// [`TeamError::Device`] if a GPU or an HCA cannot be opened. An error of this rank, of another rank
    /// ([`TeamError::PeerFailed`]), or a difference between two ranks ([`TeamError::Mismatch`]). No device, or more than
    /// [`MAX_RAILS`](crate::abi::MAX_RAILS). Ranks do not come within `join_timeout`. Errors of the store. Everything that was made
    /// has been taken down again.
    pub fn join(self) -> Result<Arc<Team>, TeamError> {
        let Self {
            team,
            config,
            given,
            pds,
            store,
        } = self;
        let config = config.with_ranks(team.ranks);
        let store = match store {
            Some(store) => store,
            None => Team::open_store(&config)?,
        };
        let devices = start::open(&config, &team, given, &store)?;
        start::join(team, &devices, &pds, store).map(Team::new)
    }
}
