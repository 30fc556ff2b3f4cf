//! Whether a peer is reached within the machine, what each end tells the other for that, and by which path transfers go.

use std::fmt;
use std::sync::Arc;

use crate::config::EnginePath;
use crate::engine::error::{EngineError, HostError};
use crate::engine::wire::ends::BothEnds;
use crate::engine::wire::messages::Hello;
use crate::provider::ProviderError;
use crate::provider::local::{Board, Claim, LocalOffer, Place, Reach, Seat, Vouch, Wanted, admit};

/// How transfers go to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerPath {
    /// By WQEs of the NIC.
    Nic,
    /// By copies within this process.
    Process,
    /// By copies between two processes of this machine and user.
    Machine,
}

impl fmt::Display for PeerPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nic => "nic",
            Self::Process => "process",
            Self::Machine => "machine",
        })
    }
}

/// What an engine has for peers of its machine.
#[derive(Debug)]
pub(in crate::engine) struct Local {
    path: EnginePath,
    /// None where all peers are reached by the NIC.
    pub(in crate::engine) board: Option<Arc<Board>>,
}

/// What a connection has for a peer of this machine.
#[derive(Debug)]
pub(in crate::engine) struct LocalEnd {
    /// The peer's, to copy to and from this engine.
    pub(in crate::engine) seat: Option<Seat>,
    /// By which this engine copies to and from the peer.
    pub(in crate::engine) way: Option<LocalWay>,
}

/// How this engine gets at a peer's memory.
#[derive(Clone, Debug)]
pub(in crate::engine) struct LocalWay {
    pub(in crate::engine) reach: Arc<Reach>,
    /// The NIC does not take its place.
    pub(in crate::engine) is_only: bool,
}

impl Local {
    /// That of the engine of this life.
    ///
    /// # Errors
    /// `local` is asked for, and the system has no memory that processes share.
    pub(in crate::engine) fn new(path: EnginePath, incarnation: u64) -> Result<Self, HostError> {
        let board = match path {
            EnginePath::Nic => None,
            EnginePath::Auto | EnginePath::Local => match Board::new(incarnation) {
                Ok(board) => Some(board),
                Err(error) if path == EnginePath::Auto => {
                    tracing::warn!("peers of this machine are reached by the NIC: {error}");
                    None
                }
                Err(source) => {
                    let call = "memfd_create";
                    return Err(ProviderError::System { call, source }.into());
                }
            },
        };
        Ok(Self { path, board })
    }

    /// What a peer gets at the beginning of a connection.
    pub(in crate::engine) fn offer(&self) -> Option<LocalOffer> {
        self.board.as_deref().map(LocalOffer::new)
    }

    /// Why the peer, as it says of itself, is not tried at all.
    pub(in crate::engine) fn refuses(own: &Hello, peer: &Hello) -> Option<&'static str> {
        match (&own.local, &peer.local) {
            (None, _) => Some("this engine's path is nic"),
            (_, None) => Some(NOT_LOCAL),
            (Some(offer), Some(theirs)) => offer.far_from(&own.process, theirs, &peer.process),
        }
    }

    /// By which the peer learns that this engine has its board.
    pub(in crate::engine) fn vouch(&self, ends: &BothEnds) -> Option<Vouch> {
        Some(self.board.as_ref()?.vouch(ends.kept_here()))
    }

    /// Refuses a peer that has not shown that its board is its own. Before that it gets nothing of this engine.
    pub(in crate::engine) fn check_vouch(
        peer: &Hello,
        ends: &BothEnds,
        shown: Option<Vouch>,
    ) -> Result<(), String> {
        let shown = shown.ok_or(NOT_LOCAL)?;
        claim(peer, ends).ok_or(NOT_LOCAL)?.check(shown)
    }

    /// A seat for the peer, and where it is. None: too many have one.
    pub(in crate::engine) fn seat(&self, peer: &Hello, ends: &BothEnds) -> Option<Seat> {
        let board = self.board.as_ref()?;
        board.seat(&peer.process, ends.kept_here(), admit(&peer.process))
    }

    /// The way to a peer that has published its place, or why none exists.
    pub(in crate::engine) fn reach(
        &self,
        peer: &Hello,
        ends: &BothEnds,
        place: Option<Place>,
    ) -> Result<Reach, String> {
        let place = place.ok_or("it has given this engine no seat")?;
        let (Some(claim), Some(board)) = (claim(peer, ends), &self.board) else {
            return Err(NOT_LOCAL.to_owned());
        };
        Reach::open(&Wanted {
            name: &peer.name,
            claim,
            place,
            own: board,
        })
    }

    /// What the connection to `peer` has then. Where the NIC is to take the place of what cannot be, that is said.
    ///
    /// # Errors
    /// `local` is asked for, and cannot be.
    pub(in crate::engine) fn choose(
        &self,
        peer: &Hello,
        (seat, reach): (Option<Seat>, Result<Reach, String>),
        is_tried: bool,
    ) -> Result<LocalEnd, EngineError> {
        let is_only = self.path == EnginePath::Local;
        let way = match reach {
            Ok(reach) => Some(LocalWay {
                reach: Arc::new(reach),
                is_only,
            }),
            Err(reason) if is_only => {
                let peer = peer.name.clone();
                return Err(EngineError::NotLocal { peer, reason });
            }
            Err(reason) => {
                // Of the others each end has said, or it is far away.
                if is_tried {
                    let peer = &peer.name;
                    tracing::warn!("{peer} is on this machine, and reached by the NIC: {reason}");
                }
                None
            }
        };
        Ok(LocalEnd { seat, way })
    }
}

const NOT_LOCAL: &str = "its path is nic";

/// What a peer says of itself, if it may be of this machine.
fn claim<'a>(peer: &'a Hello, ends: &BothEnds) -> Option<Claim<'a>> {
    Some(Claim {
        incarnation: peer.incarnation,
        process: &peer.process,
        offer: peer.local.as_ref()?,
        kept: ends.kept_there(),
    })
}

/// The place of a seat, as a peer learns it.
pub(in crate::engine) fn place_of(seat: &Seat) -> Place {
    let [seat, board] = seat.place();
    Place { seat, board }
}
