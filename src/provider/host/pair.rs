//! This side's end of the pair of queues of one lane, through all states of its life.

use super::lane::HostLane;
use super::offer::HostOffer;
use crate::provider::mlx5::Pair;
use crate::provider::ofi::{OfiError, OfiPair};
use crate::provider::rc::RcTerms;
use crate::provider::verbs::VerbsPair;
use crate::provider::{LaneCounts, ProviderError};

/// The settings of the queue of a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostTerms {
    /// Those of a QP of type RC.
    Rc(RcTerms),
    /// An endpoint of libfabric has none.
    Ofi,
}

impl HostTerms {
    /// Returns whether the ends of a lane tell each other what has counted in each life of it. They do where a queue that is closed drops
    /// completions.
    pub(crate) const fn tells_counts(&self) -> bool {
        matches!(self, Self::Ofi)
    }
}

/// A queue of a connection, by its state.
#[derive(Debug)]
pub(crate) enum HostPair {
    /// A QP of an mlx5 HCA.
    Mlx5(Pair),
    /// A QP of another NIC, by libibverbs.
    Verbs(VerbsPair),
    /// An endpoint of libfabric.
    Ofi(Box<OfiPair>),
}

impl HostPair {
    /// Returns what the other end needs. Returns None for a queue that is connected.
    pub(crate) fn offer(&self) -> Option<HostOffer> {
        match self {
            Self::Mlx5(pair) => pair.offer().map(HostOffer::Rc),
            Self::Verbs(pair) => pair.offer().map(HostOffer::Rc),
            Self::Ofi(pair) => pair.offer().map(HostOffer::Ofi),
        }
    }

    /// Makes the queue ready to receive what the peer's queue sends.
    pub(crate) fn receive(
        self,
        terms: &HostTerms,
        theirs: &HostOffer,
    ) -> Result<Self, ProviderError> {
        match (self, terms, theirs) {
            (Self::Mlx5(pair), HostTerms::Rc(terms), HostOffer::Rc(theirs)) => {
                Ok(Self::Mlx5(pair.receive(&terms.path, *theirs)?))
            }
            (Self::Verbs(pair), HostTerms::Rc(terms), HostOffer::Rc(theirs)) => {
                Ok(Self::Verbs(pair.receive(&terms.path, theirs)?))
            }
            (Self::Ofi(pair), HostTerms::Ofi, HostOffer::Ofi(theirs)) => {
                Ok(Self::Ofi(Box::new(pair.receive(theirs)?)))
            }
            (_, _, other) => {
                let found = other.to_string();
                Err(OfiError::Offer { found }.into())
            }
        }
    }

    /// Makes the queue ready to send, by the lane that is returned. If the NIC refuses, the pair is returned as it was.
    pub(crate) fn send(
        self,
        terms: &HostTerms,
    ) -> Result<(Self, Option<HostLane>), (Self, ProviderError)> {
        match (self, terms) {
            (Self::Mlx5(pair), HostTerms::Rc(terms)) => match pair.send(&terms.send) {
                Ok((pair, lane)) => {
                    let lane = lane.map(|lane| HostLane::Mlx5(lane.with_inline(terms.inline)));
                    Ok((Self::Mlx5(pair), lane))
                }
                Err((pair, error)) => Err((Self::Mlx5(pair), error.into())),
            },
            (Self::Verbs(pair), HostTerms::Rc(terms)) => match pair.send(&terms.send) {
                Ok((pair, lane)) => {
                    let lane = lane.map(|lane| Box::new(lane.with_inline(terms.inline)));
                    Ok((Self::Verbs(pair), lane.map(HostLane::Verbs)))
                }
                Err((pair, error)) => Err((Self::Verbs(pair), error.into())),
            },
            (Self::Ofi(pair), _) => {
                let (pair, lane) = pair.send();
                let lane = lane.map(|lane| HostLane::Ofi(Box::new(lane)));
                Ok((Self::Ofi(Box::new(pair)), lane))
            }
            // The rail of a pair has made its terms.
            (pair @ (Self::Mlx5(_) | Self::Verbs(_)), HostTerms::Ofi) => Ok((pair, None)),
        }
    }

    /// Returns whether the NIC has failed the queue.
    pub(crate) fn has_failed(&self) -> bool {
        match self {
            Self::Mlx5(pair) => pair.has_failed(),
            Self::Verbs(pair) => pair.has_failed(),
            Self::Ofi(pair) => pair.has_failed(),
        }
    }

    /// Lets all WQEs that the lane has posted complete, in error if they are not done.
    pub(crate) fn end(&self) -> Result<(), ProviderError> {
        match self {
            Self::Mlx5(pair) => Ok(pair.end()?),
            Self::Verbs(pair) => Ok(pair.end()?),
            Self::Ofi(pair) => Ok(pair.end()?),
        }
    }

    /// Returns what has counted in this life of a queue whose lane is dropped, if the ends tell each other that. Nothing of this life is done
    /// or counted later. A WRITE that has consumed a receive WQE of a QP is counted before the lane is dry, so QPs have nothing to tell.
    pub(crate) fn counts(&self) -> Result<Option<LaneCounts>, ProviderError> {
        match self {
            Self::Mlx5(_) | Self::Verbs(_) => Ok(None),
            Self::Ofi(pair) => Ok(pair.counts()?),
        }
    }

    /// Begins the next life of a queue whose lane is dropped: no packet of this life lands or is sent any more, and the pair has an offer.
    pub(crate) fn renew(self) -> Result<Self, ProviderError> {
        match self {
            Self::Mlx5(pair) => {
                let psn = pair.next_psn()?;
                Ok(Self::Mlx5(Pair::new(pair.into_reset()?, psn)?))
            }
            Self::Verbs(pair) => Ok(Self::Verbs(pair.renew()?)),
            Self::Ofi(pair) => Ok(Self::Ofi(Box::new(pair.renew()?))),
        }
    }

    /// Ends the queue, whose lane is dropped: no packet of its life lands or is sent any more.
    pub(crate) fn reset(self) -> Result<(), ProviderError> {
        match self {
            Self::Mlx5(pair) => {
                pair.into_reset()?;
                Ok(())
            }
            Self::Verbs(pair) => {
                pair.into_reset()?;
                Ok(())
            }
            Self::Ofi(pair) => Ok(pair.reset()?),
        }
    }
}
