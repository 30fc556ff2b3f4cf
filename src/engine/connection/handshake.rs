//! How two engines connect: hello, offers of QPs, then Rtr at both ends, and only then Rts.

use std::io;

use rendezvous::Process;

use crate::config::{EngineConfig, EnginePairing, INBOX};
use crate::engine::connection::own_qps::{OwnLane, OwnQps};
use crate::engine::error::HostError;
use crate::engine::limits::{MOST_QPS, MOST_RAILS};
use crate::engine::route::crossing::{Crossing, RailCounts};
use crate::engine::route::local::{Local, LocalEnd, Tried, place_of};
use crate::engine::route::rails::Rails;
use crate::engine::text::{is_plain, printable, refusal};
use crate::engine::wire::ends::{BothEnds, Nonce};
use crate::engine::wire::error::{WireError, failed};
use crate::engine::wire::messages::{Greeting, Hello, Message, Wire};
use crate::engine::wire::seal::Role;
use crate::provider::{HostLane, HostOffer, HostPair, HostPort, HostTerms, ProviderError, RC};

/// The most messages that one end sends.
const STEPS: usize = 5;

/// This end of a connection, whose QPs can send.
#[derive(Debug)]
pub(in crate::engine) struct Connected {
    pub(in crate::engine) peer: Hello,
    pub(in crate::engine) pairs: Vec<HostPair>,
    /// The lanes by QP. A QP that failed before it could send has no lane; both ends reset its pair, as after any other failure.
    pub(in crate::engine) lanes: Vec<Option<HostLane>>,
    /// The settings of each lane's QP.
    pub(in crate::engine) terms: Vec<HostTerms>,
    pub(in crate::engine) own_qps: OwnQps,
    pub(in crate::engine) crossings: Vec<Crossing>,
    pub(in crate::engine) local: LocalEnd,
}

/// One end of a handshake.
pub(in crate::engine) struct Handshake<'a> {
    pub(in crate::engine) rails: &'a Rails,
    pub(in crate::engine) config: &'a EngineConfig,
    pub(in crate::engine) hello: &'a Hello,
    pub(in crate::engine) local: &'a Local,
    /// Refuses a peer that the engine does not take now, with the reason.
    pub(in crate::engine) takes: &'a dyn Fn(&Hello) -> Result<(), String>,
    /// The address by which errors name the peer.
    pub(in crate::engine) place: &'a str,
    /// Which end this is.
    pub(in crate::engine) role: Role,
}

/// What both ends have said of themselves.
struct Hellos {
    own: Hello,
    peer: Hello,
    /// The nonce of this end, then that of the other.
    nonces: [Nonce; 2],
}

impl Connected {
    /// Lets the next QP send. A QP that has failed already gets no lane.
    fn send_by(&mut self, pair: HostPair) -> Result<(), HostError> {
        let terms = self.terms[self.pairs.len()];
        let (pair, lane) = match pair.send(&terms) {
            Ok(sends) => sends,
            // The other end sends already, and this QP has refused its first request.
            Err((pair, _)) if pair.has_failed() => (pair, None),
            Err((_, error)) => return Err(error.into()),
        };
        self.pairs.push(pair);
        self.lanes.push(lane);
        Ok(())
    }
}

impl Handshake<'_> {
    /// Connects. After an error this side keeps nothing of the connection, and tells the other end why, if the wire still carries.
    pub(in crate::engine) fn run(&self, wire: &mut Wire) -> Result<Connected, HostError> {
        let connected = self.steps(wire);
        if let Err(error) = &connected {
            // The peer may be gone, or have refused first.
            let reason = match error {
                HostError::Connection { reason, .. } => reason.clone(),
                error => error.to_string(),
            };
            let _ = wire.send(&Message::Refused(reason.into()));
        }
        connected
    }

    fn steps(&self, wire: &mut Wire) -> Result<Connected, HostError> {
        let Hellos { own, peer, nonces } = self.greet(wire)?;
        let crossings = self.check(&peer)?;
        let local = self.meet(wire, &own, &peer, nonces)?;
        let mut pairs = Vec::new();
        for (number, crossing) in (0..).zip(&crossings) {
            let rail = &self.rails.all()[crossing.own];
            let worker = self.rails.place_of(number as usize);
            pairs.push(rail.pair(worker, number)?);
        }
        let offers: Vec<HostOffer> = pairs.iter().filter_map(HostPair::offer).collect();
        let lanes = offers
            .iter()
            .zip(&crossings)
            .map(|(offer, crossing)| OwnLane {
                offer: offer.clone(),
                port: own.ports[crossing.own].clone(),
                theirs: peer.ports[crossing.theirs].clone(),
            });
        let own_qps = OwnQps::new(lanes);
        self.tell(wire, &Message::Offers(offers))?;
        let theirs = self.hear_offers(wire, pairs.len(), &own_qps)?;
        let terms = crossings.iter().map(|it| self.terms(&peer, *it));
        let terms: Vec<HostTerms> = terms.collect();
        let received = pairs.into_iter().zip(&terms).zip(&theirs);
        let pairs = received.map(|((pair, terms), theirs)| pair.receive(terms, theirs));
        let pairs: Vec<HostPair> = pairs.collect::<Result<_, _>>()?;
        self.tell(wire, &Message::Ready)?;
        if self.hear(wire)? != Message::Ready {
            return Err(self.refused("it is not ready to receive"));
        }
        let mut connected = Connected {
            peer,
            pairs: Vec::new(),
            lanes: Vec::new(),
            terms,
            own_qps,
            crossings,
            local,
        };
        for pair in pairs {
            connected.send_by(pair)?;
        }
        Ok(connected)
    }

    /// Exchanges hellos.
    fn greet(&self, wire: &mut Wire) -> Result<Hellos, HostError> {
        let own = Greeting {
            end: self.role,
            nonce: Nonce::fresh().map_err(system("getrandom"))?,
            engine: Hello {
                local: self.local.offer(),
                ..self.hello.clone()
            },
        };
        self.tell(wire, &Message::Hello(own.clone()))?;
        let Message::Hello(theirs) = self.hear(wire)? else {
            return Err(self.refused("it did not begin with a hello"));
        };
        self.check_end(&own, &theirs)?;
        Ok(Hellos {
            nonces: [own.nonce, theirs.nonce],
            own: own.engine,
            peer: theirs.engine,
        })
    }

    /// Receives the QPs that the other end offers: `qps` of them, none of which is this end's.
    fn hear_offers(
        &self,
        wire: &mut Wire,
        qps: usize,
        own: &OwnQps,
    ) -> Result<Vec<HostOffer>, HostError> {
        let Message::Offers(theirs) = self.hear(wire)? else {
            return Err(self.refused("it has not offered its QPs"));
        };
        if theirs.len() != qps {
            let reason = format!("it offers {} QPs; they must be {qps}", theirs.len());
            return Err(self.refused(reason));
        }
        for (lane, offer) in theirs.iter().enumerate() {
            own.check(lane, offer, 0)
                .map_err(|reason| self.refused(reason))?;
        }
        Ok(theirs)
    }

    /// Refuses a peer that sends back what this end says.
    fn check_end(&self, own: &Greeting, theirs: &Greeting) -> Result<(), HostError> {
        if theirs.nonce == own.nonce {
            return Err(self.refused("it sends back what this engine says: it is no engine"));
        }
        if theirs.end == own.end {
            let end = match own.end {
                Role::Connects => "connected",
                Role::Accepts => "accepted the connection",
            };
            let reason = format!("it says that it {end}, as this engine did");
            return Err(self.refused(reason));
        }
        Ok(())
    }

    /// Finds out whether the two engines reach each other within their machine. Both ends decide alike whether they try. Before the peer
    /// has shown that its board is its own, it gets no seat, and the system is not asked to let its process do anything.
    fn meet(
        &self,
        wire: &mut Wire,
        own: &Hello,
        peer: &Hello,
        nonces: [Nonce; 2],
    ) -> Result<LocalEnd, HostError> {
        if let Some(reason) = Local::refuses(own, peer) {
            let tried = Tried {
                seat: None,
                reach: Err(reason.to_owned()),
                is_likely: false,
            };
            return Ok(self.local.choose(peer, tried)?);
        }
        let ends = BothEnds::new(wire.stream(), self.role, nonces);
        let vouch = ends.as_ref().ok().and_then(|ends| self.local.vouch(ends));
        self.tell(wire, &Message::Vouch(vouch))?;
        let Message::Vouch(shown) = self.hear(wire)? else {
            return Err(self.refused("it has not shown that its board is its own"));
        };
        // A peer that has ended the connection has said why.
        let ends = &ends.map_err(system("getpeername"))?;
        let shown = Local::check_vouch(peer, ends, shown);
        let is_shown = shown.is_ok();
        let seat = is_shown.then(|| self.local.seat(peer, ends)).flatten();
        self.tell(wire, &Message::Seat(seat.as_ref().map(place_of)))?;
        let Message::Seat(place) = self.hear(wire)? else {
            return Err(
                self.refused("it has not named the place of its messages within the machine")
            );
        };
        let tried = Tried {
            seat,
            reach: shown.and_then(|()| self.local.reach(peer, ends, place)),
            is_likely: true,
        };
        Ok(self.local.choose(peer, tried)?)
    }

    /// Returns the settings of the QP of a lane with this crossing, for rails that both ends have.
    fn terms(&self, peer: &Hello, crossing: Crossing) -> HostTerms {
        let [own, theirs] = [
            &self.hello.ports[crossing.own],
            &peer.ports[crossing.theirs],
        ];
        self.rails.all()[crossing.own].terms(own, theirs, self.config)
    }

    /// Checks the hello of the peer. Returns the crossing of each QP that the connection has.
    fn check(&self, peer: &Hello) -> Result<Vec<Crossing>, HostError> {
        if !(1..=255).contains(&peer.name.len()) {
            let reason = format!(
                "its name has {} bytes; they must be 1 to 255",
                peer.name.len()
            );
            return Err(self.refused(reason));
        }
        if !peer.name.chars().all(is_plain) {
            let name = printable(&peer.name);
            return Err(self.refused(format!("its name '{name}' has a control character")));
        }
        if !(1..=MOST_QPS as u64).contains(&peer.qps) {
            let reason = format!("it wants {} QPs; they must be 1 to {MOST_QPS}", peer.qps);
            return Err(self.refused(reason));
        }
        let [least, most] = INBOX;
        if !(least..=most).contains(&peer.inbox) {
            let found = peer.inbox;
            let reason = format!("its inbox has {found} bytes; they must be {least} to {most}");
            return Err(self.refused(reason));
        }
        if !(1..=MOST_RAILS).contains(&peer.ports.len()) {
            let found = peer.ports.len();
            let reason = format!("it has {found} ports; they must be 1 to {MOST_RAILS}");
            return Err(self.refused(reason));
        }
        self.check_wire(peer)?;
        for port in &peer.ports {
            port.check().map_err(|reason| self.refused(reason))?;
        }
        let qps = peer.qps.min(self.config.qps.into());
        let qps = usize::try_from(qps).unwrap_or(1);
        let rails = RailCounts {
            own: self.hello.ports.len(),
            theirs: peer.ports.len(),
        };
        let crossings = (0..qps).map(|lane| {
            if self.hello.near || peer.near {
                Crossing::of_near_lane(lane, rails, self.role == Role::Connects)
            } else {
                Crossing::of_lane(lane, rails)
            }
        });
        let crossings: Vec<Crossing> = crossings.collect();
        for crossing in &crossings {
            self.check_ports(peer, *crossing)?;
        }
        (self.takes)(peer).map_err(|reason| self.refused(reason))?;
        Ok(crossings)
    }

    /// Refuses an engine whose ports speak another wire.
    fn check_wire(&self, peer: &Hello) -> Result<(), HostError> {
        let (own, theirs) = (self.hello.wire(), peer.wire());
        if own != theirs {
            let theirs = printable(theirs);
            return Err(self.refused(format!("its wire is '{theirs}': this one's is '{own}'")));
        }
        match peer.ports.iter().find(|port| port.wire() != own) {
            None => Ok(()),
            Some(port) => {
                let (found, own) = (port.wire(), printable(own));
                let found = printable(&found);
                Err(self.refused(format!("a port of its wire '{own}' speaks '{found}'")))
            }
        }
    }

    /// Refuses two ports between which no packets go.
    fn check_ports(&self, peer: &Hello, crossing: Crossing) -> Result<(), HostError> {
        let (own, theirs) = (crossing.own, crossing.theirs);
        let fits = self.hello.ports[own].fits(&peer.ports[theirs], &self.config.path);
        fits.map_err(|unfit| {
            let own = match self.hello.ports.len() {
                1 => "this one's".to_owned(),
                _ => format!("that of this one's port {own}"),
            };
            let of = match peer.ports.len() {
                1 => String::new(),
                _ => format!(" of port {theirs}"),
            };
            let (what, ours, theirs) = (unfit.what, unfit.own, unfit.theirs);
            self.refused(format!("its {what}{of} is {theirs}: {own} is {ours}"))
        })
    }

    fn tell(&self, wire: &mut Wire, message: &Message) -> Result<(), HostError> {
        let Err(error) = wire.send(message) else {
            return Ok(());
        };
        // The peer may have refused, and gone before it has read this.
        for _ in 0..STEPS {
            match wire.receive() {
                Err(error @ WireError::Distrust(_)) => return Err(self.failed(&error)),
                Ok(Message::Refused(reason)) => {
                    return Err(self.refused(refusal(&reason)));
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        Err(self.failed(&error))
    }

    fn hear(&self, wire: &mut Wire) -> Result<Message, HostError> {
        match wire.receive().map_err(|error| self.failed(&error))? {
            Message::Refused(reason) => Err(self.refused(refusal(&reason))),
            message => Ok(message),
        }
    }

    fn failed(&self, error: &WireError) -> HostError {
        failed(self.place, error)
    }

    fn refused(&self, reason: impl ToString) -> HostError {
        HostError::Connection {
            peer: self.place.to_owned(),
            reason: reason.to_string(),
        }
    }
}

/// Returns a function that makes the error of a system call.
fn system(call: &'static str) -> impl FnOnce(io::Error) -> HostError {
    move |source| ProviderError::System { call, source }.into()
}

/// Returns what an engine tells of itself.
pub(in crate::engine) fn hello(
    rails: &Rails,
    config: &EngineConfig,
    incarnation: u64,
) -> Result<Hello, HostError> {
    let rails = rails.all().iter();
    let ports = rails.map(|rail| rail.described(&config.path));
    let ports = ports.collect::<Result<Vec<_>, _>>()?;
    // An engine of before refuses a hello that names a wire, and speaks none but RC.
    let wire = ports.first().map(HostPort::wire).filter(|wire| wire != RC);
    Ok(Hello {
        name: config.name.clone(),
        incarnation,
        ports,
        wire,
        qps: config.qps.into(),
        inbox: config.inbox.into(),
        near: config.pairing == EnginePairing::Near,
        process: Process::this(),
        local: None,
    })
}
