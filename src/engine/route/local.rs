//! Peers of this machine: whether copies reach them, what each end tells the other about that, and by which path transfers go.

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
    /// The board of this engine. None: all peers are reached by the NIC.
    pub(in crate::engine) board: Option<Arc<Board>>,
}

/// What a connection has for a peer of this machine.
#[derive(Debug)]
pub(in crate::engine) struct LocalEnd {
    /// The seat from which the peer copies to and from this engine.
    pub(in crate::engine) seat: Option<Seat>,
    /// The way by which this engine copies to and from the peer.
    pub(in crate::engine) way: Option<LocalWay>,
}

/// The way by which this engine reaches a peer's memory.
#[derive(Clone, Debug)]
pub(in crate::engine) struct LocalWay {
    pub(in crate::engine) reach: Arc<Reach>,
    /// True if the NIC must not take the place of copies that cannot be made.
    pub(in crate::engine) is_only: bool,
}

/// The result of an attempt to reach a peer within the machine.
pub(in crate::engine) struct Tried {
    /// The seat that the peer has got.
    pub(in crate::engine) seat: Option<Seat>,
    /// The way to the peer, or why none exists.
    pub(in crate::engine) reach: Result<Reach, String>,
    /// True if both ends have said that they may be on one machine.
    pub(in crate::engine) is_likely: bool,
}

impl LocalWay {
    /// Returns the path of its copies.
    pub(in crate::engine) fn path(&self) -> PeerPath {
        if self.reach.is_of_process() {
            PeerPath::Process
        } else {
            PeerPath::Machine
        }
    }
}

impl Local {
    /// Returns what the engine of the life `incarnation` has for peers of its machine.
    ///
    /// # Errors
    /// [`HostError::Provider`]: the path is `local`, and the system has no memory that processes share.
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

    /// Returns what the hello of this engine offers to peers of its machine.
    pub(in crate::engine) fn offer(&self) -> Option<LocalOffer> {
        self.board.as_deref().map(LocalOffer::new)
    }

    /// Returns why the two engines, by their hellos, do not try to reach each other within the machine. None if they try.
    pub(in crate::engine) fn refuses(own: &Hello, peer: &Hello) -> Option<&'static str> {
        match (&own.local, &peer.local) {
            (None, _) => Some("this engine's path is nic"),
            (_, None) => Some(NOT_LOCAL),
            (Some(offer), Some(theirs)) => offer.far_from(&own.process, theirs, &peer.process),
        }
    }

    /// Returns the code by which the peer sees that the board of this engine is its own.
    pub(in crate::engine) fn vouch(&self, ends: &BothEnds) -> Option<Vouch> {
        Some(self.board.as_ref()?.vouch(ends.kept_here()))
    }

    /// Refuses a peer that has not shown that its board is its own. Before this check the peer gets nothing of this engine.
    pub(in crate::engine) fn check_vouch(
        peer: &Hello,
        ends: &BothEnds,
        shown: Option<Vouch>,
    ) -> Result<(), String> {
        let shown = shown.ok_or(NOT_LOCAL)?;
        claim(peer, ends).ok_or(NOT_LOCAL)?.check(shown)
    }

    /// Returns a seat for the peer. Returns None if all seats are taken.
    pub(in crate::engine) fn seat(&self, peer: &Hello, ends: &BothEnds) -> Option<Seat> {
        let board = self.board.as_ref()?;
        board.seat(&peer.process, ends.kept_here(), admit(&peer.process))
    }

    /// Returns the way to a peer that has told the place of this engine's seat, or why none exists.
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

    /// Returns what the connection to `peer` has for copies within the machine. Logs a warning if the peer is likely to be on this machine
    /// and the NIC moves the bytes nevertheless.
    ///
    /// # Errors
    /// [`EngineError::NotLocal`]: the path of this engine is `local`, and the peer is not reached within the machine.
    pub(in crate::engine) fn choose(
        &self,
        peer: &Hello,
        tried: Tried,
    ) -> Result<LocalEnd, EngineError> {
        let is_only = self.path == EnginePath::Local;
        let way = match tried.reach {
            Ok(reach) => Some(LocalWay {
                reach: Arc::new(reach),
                is_only,
            }),
            Err(reason) if is_only => {
                let peer = peer.name.clone();
                return Err(EngineError::NotLocal { peer, reason });
            }
            Err(reason) => {
                // No warning is due for a peer that is not likely to be on this machine: an end has chosen the NIC, or the peer is far
                // away.
                if tried.is_likely {
                    let peer = &peer.name;
                    tracing::warn!("{peer} is on this machine, and reached by the NIC: {reason}");
                }
                None
            }
        };
        let seat = tried.seat;
        Ok(LocalEnd { seat, way })
    }
}

const NOT_LOCAL: &str = "its path is nic";

/// Returns what a peer says of itself, if its hello offers a board.
fn claim<'a>(peer: &'a Hello, ends: &BothEnds) -> Option<Claim<'a>> {
    Some(Claim {
        incarnation: peer.incarnation,
        process: &peer.process,
        offer: peer.local.as_ref()?,
        kept: ends.kept_there(),
    })
}

/// Returns the place of a seat, as a peer learns it.
pub(in crate::engine) fn place_of(seat: &Seat) -> Place {
    let [seat, board] = seat.place();
    Place { seat, board }
}
