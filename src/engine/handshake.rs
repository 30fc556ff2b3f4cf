//! How two engines connect: hello, offers of QPs, then Rtr at both ends, and only then Rts.

use std::sync::Arc;

use rendezvous::Process;

use super::error::HostError;
use super::link::MOST_QPS;
use super::wire::{Hello, Message, Wire, WireError};
use crate::config::{EngineConfig, INBOX};
use crate::fabric::{PortRecord, any_psn, patience};
use crate::provider::mlx5::{Mlx5Lane, Mlx5Rail, Pair};
use crate::verbs::{PathAttr, SendAttr};

/// Messages of one end.
const STEPS: usize = 3;

/// Two engines that are connected.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) peer: Hello,
    pub(super) pairs: Vec<Pair>,
    pub(super) lanes: Vec<Mlx5Lane>,
    pub(super) terms: Terms,
}

/// How the QPs of a connection are set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) path: PathAttr,
    pub(super) send: SendAttr,
}

/// One end of a handshake.
pub(super) struct Handshake<'a> {
    pub(super) rail: &'a Arc<Mlx5Rail>,
    pub(super) config: &'a EngineConfig,
    pub(super) hello: &'a Hello,
    /// Whether the engine takes this peer, or why not.
    pub(super) takes: &'a dyn Fn(&Hello) -> Result<(), String>,
    /// By which the peer is told in errors.
    pub(super) place: &'a str,
}

impl Handshake<'_> {
    /// Connects. After an error the other end knows that it was refused, if it can be told, and nothing is left of it here.
    pub(super) fn run(&self, wire: &mut Wire) -> Result<Connected, HostError> {
        let connected = self.steps(wire);
        if let Err(error) = &connected {
            // It may be gone, or have refused first.
            let reason = match error {
                HostError::Connection { reason, .. } => reason.clone(),
                error => error.to_string(),
            };
            let _ = wire.send(&Message::Refused(reason));
        }
        connected
    }

    fn steps(&self, wire: &mut Wire) -> Result<Connected, HostError> {
        self.tell(wire, &Message::Hello(self.hello.clone()))?;
        let Message::Hello(peer) = self.hear(wire)? else {
            return Err(self.refused("it did not begin with a hello"));
        };
        let qps = self.check(&peer)?;
        let mut pairs = Vec::new();
        for number in 0..qps {
            let cq = number as usize % self.config.workers as usize;
            pairs.push(self.rail.pair(cq, number, any_psn())?);
        }
        let offers = pairs.iter().filter_map(Pair::offer).collect();
        self.tell(wire, &Message::Offers(offers))?;
        let Message::Offers(theirs) = self.hear(wire)? else {
            return Err(self.refused("it has not offered its QPs"));
        };
        if theirs.len() != pairs.len() {
            let reason = format!("it offers {} QPs: expected {qps}", theirs.len());
            return Err(self.refused(reason));
        }
        let (own, class) = (&self.hello.port, self.rail.context());
        let class = class.traffic_class(self.config.path.traffic_class).value;
        let path = own.path(&peer.port, &self.config.path, class, 0);
        let terms = self.terms(&peer, path);
        let received = pairs.into_iter().zip(theirs);
        let pairs = received.map(|(pair, theirs)| pair.receive(&terms.path, theirs));
        let pairs: Vec<Pair> = pairs.collect::<Result<_, _>>()?;
        self.tell(wire, &Message::Ready)?;
        if self.hear(wire)? != Message::Ready {
            return Err(self.refused("it is not ready to receive"));
        }
        let mut connected = Connected {
            peer,
            pairs: Vec::new(),
            lanes: Vec::new(),
            terms,
        };
        for pair in pairs {
            let (pair, lane) = pair.send(&terms.send)?;
            connected.pairs.push(pair);
            connected.lanes.extend(lane);
        }
        Ok(connected)
    }

    fn terms(&self, peer: &Hello, path: PathAttr) -> Terms {
        let soft = self.rail.context().info().is_soft();
        let reads = self.hello.port.reads_with(&peer.port);
        Terms {
            path,
            send: patience(&self.config.path, soft).with_log_peer_reads(Some(reads)),
        }
    }

    /// How many QPs the connection has.
    fn check(&self, peer: &Hello) -> Result<u32, HostError> {
        if !(1..=255).contains(&peer.name.len()) {
            let reason = format!("its name has {} bytes: expected 1 to 255", peer.name.len());
            return Err(self.refused(reason));
        }
        if !(1..=MOST_QPS as u64).contains(&peer.qps) {
            let reason = format!("it wants {} QPs: expected 1 to {MOST_QPS}", peer.qps);
            return Err(self.refused(reason));
        }
        let [least, most] = INBOX;
        if !(least..=most).contains(&peer.inbox) {
            let found = peer.inbox;
            let reason = format!("its inbox has {found} bytes: expected {least} to {most}");
            return Err(self.refused(reason));
        }
        peer.port.check().map_err(|reason| self.refused(reason))?;
        let fits = self.hello.port.fits(&peer.port, &self.config.path);
        fits.map_err(|unfit| {
            let (what, own, theirs) = (unfit.what, unfit.own, unfit.theirs);
            self.refused(format!("its {what} is {theirs}: this one's is {own}"))
        })?;
        (self.takes)(peer).map_err(|reason| self.refused(reason))?;
        let qps = peer.qps.min(self.config.qps.into());
        Ok(u32::try_from(qps).unwrap_or(1))
    }

    fn tell(&self, wire: &mut Wire, message: &Message) -> Result<(), HostError> {
        let Err(error) = wire.send(message) else {
            return Ok(());
        };
        // It may have refused, and gone before it has read this.
        for _ in 0..STEPS {
            match wire.receive() {
                Ok(Message::Refused(reason)) => {
                    return Err(self.refused(format!("it refuses: {reason}")));
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        Err(self.failed(&error))
    }

    fn hear(&self, wire: &mut Wire) -> Result<Message, HostError> {
        match wire.receive().map_err(|error| self.failed(&error))? {
            Message::Refused(reason) => Err(self.refused(format!("it refuses: {reason}"))),
            message => Ok(message),
        }
    }

    fn failed(&self, error: &WireError) -> HostError {
        self.refused(error.to_string())
    }

    fn refused(&self, reason: impl ToString) -> HostError {
        HostError::Connection {
            peer: self.place.to_owned(),
            reason: reason.to_string(),
        }
    }
}

/// What an engine tells of itself.
pub(super) fn hello(
    rail: &Mlx5Rail,
    config: &EngineConfig,
    incarnation: u64,
) -> Result<Hello, HostError> {
    Ok(Hello {
        name: config.name.clone(),
        incarnation,
        port: PortRecord::of(rail.context(), &config.path)?,
        qps: config.qps.into(),
        inbox: config.inbox.into(),
        process: Process::this(),
    })
}
