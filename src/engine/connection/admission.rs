//! How a connection becomes a peer: it is accepted or made, shakes hands, and is admitted.

use std::cell::Cell;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use crate::engine::connection::control::{Control, THREAD};
use crate::engine::connection::core::{Core, Listening};
use crate::engine::connection::handshake::{Connected, Handshake};
use crate::engine::connection::peers::{Arrived, Life, Peers, Running};
use crate::engine::connection::recovery::Pairs;
use crate::engine::error::{EngineError, HostError};
use crate::engine::lock::lock;
use crate::engine::route::crossing::Crossing;
use crate::engine::route::link::Link;
use crate::engine::route::local::LocalWay;
use crate::engine::wire::error::failed;
use crate::engine::wire::frames::Stage;
use crate::engine::wire::listener::{Accepted, Listener, Shortage};
use crate::engine::wire::messages::{Hello, Message, Wire};
use crate::engine::wire::seal::Role;
use crate::engine::wire::shake::{Purpose, shake};
use crate::engine::wire::streams::Stream;
use crate::engine::worker::Held;
use crate::error::OwnThread;
use crate::provider::local::{LocalLane, MOST_COPIERS};
use crate::provider::{HostLane, HostPort, ProviderError, Wake, Watched};

/// The most turns with small transfers that a QP has for each turn of the QP with the slowest port.
const MOST_TURNS: u32 = 16;
/// The most connections that shake hands at a time.
const MOST_GREETED: usize = 64;

/// The place of a peer that shakes hands. It is given back even if the handshake panics.
struct Entering<'a> {
    peers: &'a Mutex<Peers>,
    own: Cell<Option<Life>>,
}

impl Entering<'_> {
    fn take(&self, peers: &mut Peers, own: Life) {
        peers.enter(own.clone());
        self.own.set(Some(own));
    }

    fn give_back(&self, peers: &mut Peers) {
        if let Some(own) = self.own.take() {
            peers.leave(&own);
        }
    }
}

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        // If the place was given back already, the caller may hold the lock.
        if self.own.get_mut().is_some() {
            self.give_back(&mut lock(self.peers));
        }
    }
}

/// Connections that shake hands, each in a thread of its own. So a silent connection holds up no other.
#[derive(Default)]
struct Greeting {
    all: Vec<Greeted>,
    /// The threads whose connection was ended here.
    ending: Vec<OwnThread>,
}

struct Greeted {
    from: String,
    stream: Arc<Mutex<Option<Stream>>>,
    heard: Arc<Mutex<Instant>>,
    thread: OwnThread,
}

/// The stream by which another thread can end a connection, until this thread has shaken hands. A connection ends with its last descriptor.
/// So this descriptor is dropped at the end of the handshake.
struct Handle(Arc<Mutex<Option<Stream>>>);

impl Drop for Handle {
    fn drop(&mut self) {
        lock(&self.0).take();
    }
}

impl Greeting {
    /// Begins a handshake. If too many connections shake hands, ends the one that has been silent for longest.
    fn begin(&mut self, core: &Weak<Core>, accepted: Accepted) -> io::Result<()> {
        let Accepted { stream, from } = accepted;
        self.all.retain(|it| !it.thread.is_finished());
        self.ending.retain(|thread| !thread.is_finished());
        if self.all.len() >= MOST_GREETED {
            self.end_silent();
        }
        let Some(strong) = core.upgrade() else {
            return Ok(());
        };
        let own = Arc::new(Mutex::new(Some(stream.try_clone()?)));
        let handle = Handle(Arc::clone(&own));
        let wire = Wire::new(stream, strong.config.connect_timeout);
        let heard = wire.last_heard();
        let core = Weak::clone(core);
        let place = from.clone();
        let body = move || {
            let Some(core) = core.upgrade() else {
                return;
            };
            let connected = connect_over(&core, wire, &place, Role::Accepts);
            drop(handle);
            match connected {
                Ok(peer) => {
                    lock(&core.peers).arrive(peer, core.config.peers as usize);
                    core.arrived.notify_all();
                }
                Err(error) => tracing::warn!("not connected: {error}"),
            }
        };
        let thread = OwnThread::spawn("wv-engine-hello", body, |_| {})?;
        self.all.push(Greeted {
            from,
            stream: own,
            heard,
            thread,
        });
        Ok(())
    }

    fn end_silent(&mut self) {
        let all = self.all.iter().enumerate();
        let Some((at, _)) = all.min_by_key(|(_, it)| *lock(&it.heard)) else {
            return;
        };
        let silent = self.all.swap_remove(at);
        let from = &silent.from;
        tracing::warn!(
            "{from}: ended, since {MOST_GREETED} connections shake hands, and it was silent for longest"
        );
        self.end(silent);
    }

    fn end(&mut self, greeted: Greeted) {
        if let Some(stream) = &*lock(&greeted.stream) {
            // A stream that has been dropped has ended too.
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.ending.push(greeted.thread);
    }

    /// Ends all handshakes, and waits for their threads.
    fn close(mut self) {
        for greeted in std::mem::take(&mut self.all) {
            self.end(greeted);
        }
        for thread in self.ending {
            thread.join();
        }
    }
}

/// Takes connections until it is told to stop. Then it ends the running handshakes.
pub(in crate::engine) fn accept_all(core: &Weak<Core>, listener: &Listener, own: &Listening) {
    let mut greeting = Greeting::default();
    let mut shortage = Shortage::default();
    loop {
        own.wake.begin();
        if !own.stops.load(Ordering::SeqCst) {
            // After a shortage the thread first waits for a while and does not look for connections.
            let pause = shortage.pause();
            let comes = pause.is_none().then(|| Watched::read(listener.as_fd()));
            if let Err(error) = own.wake.sleep(comes, pause) {
                tracing::error!("an engine does not listen any more: {error}");
                break;
            }
        }
        own.wake.end();
        if own.stops.load(Ordering::SeqCst) {
            break;
        }
        let begun = listener.accept().and_then(|accepted| match accepted {
            Some(accepted) => greeting.begin(core, accepted),
            None => Ok(()),
        });
        if let Some(error) = shortage.after(begun) {
            tracing::warn!("an engine takes no connection for now: {error}");
        }
    }
    greeting.close();
}

/// Shakes hands over a stream, at either end, and admits the connection.
pub(in crate::engine) fn connect_over(
    core: &Arc<Core>,
    mut wire: Wire,
    place: &str,
    role: Role,
) -> Result<Arrived, HostError> {
    wire.stream().keep_alive().map_err(|source| {
        let call = "setsockopt";
        ProviderError::System { call, source }
    })?;
    if let Some(key) = &core.config.key {
        let shaken = shake(&mut wire, key, role, Purpose::Engine);
        shaken.map_err(|error| failed(place, &error))?;
    }
    wire.expect(Stage::Hello);
    if let Err(panicked) = core.pool.check() {
        let error = EngineError::from(panicked);
        // The peer may be gone.
        let _ = wire.send(&Message::Refused(error.to_string().into()));
        return Err(error.into());
    }
    let entering = Entering {
        peers: &core.peers,
        own: Cell::new(None),
    };
    let takes = |hello: &Hello| {
        let mut peers = lock(&core.peers);
        may_enter(core, &mut peers, hello)?;
        entering.take(&mut peers, Life::of(hello));
        Ok(())
    };
    let handshake = Handshake {
        rails: &core.rails,
        config: &core.config,
        hello: &core.hello,
        local: &core.local,
        takes: &takes,
        place,
        role,
    };
    let connected = handshake.run(&mut wire);
    let mut peers = lock(&core.peers);
    entering.give_back(&mut peers);
    admit(core, &mut peers, connected?, wire, place)
}

/// Returns whether the engine admits the peer now, or why not.
fn may_enter(core: &Core, peers: &mut Peers, hello: &Hello) -> Result<(), String> {
    if core.is_closing.load(Ordering::Acquire) {
        return Err(EngineError::Closing.to_string());
    }
    let allow = &core.config.allow;
    if !allow.is_empty() && !allow.contains(&hello.name) {
        return Err(format!(
            "'{}' is none of the engines that '{}' connects with",
            hello.name, core.config.name
        ));
    }
    let most = core.config.peers as usize;
    if peers.count() >= most {
        return Err(format!("this engine has {most} peers, its most"));
    }
    if peers.has_rival(&Life::of(hello)) {
        return Err(format!(
            "another engine with the name '{}' is connected",
            hello.name
        ));
    }
    Ok(())
}

/// Returns the speed of the port by which each lane leaves.
fn speeds(core: &Core, crossings: &[Crossing]) -> Vec<u32> {
    let ports = &core.hello.ports;
    let speed = |it: &Crossing| ports.get(it.own).map_or(0, HostPort::speed);
    crossings.iter().map(speed).collect()
}

/// Returns the workers in the order in which they take small transfers. Each QP has as many turns as its port is faster than the
/// slowest, in whole times. A speed of 0 is unknown, and counts as the slowest.
fn turns(owners: &[u32], speeds: &[u32]) -> Vec<u32> {
    let known = speeds.iter().copied().filter(|speed| *speed > 0);
    let least = known.min().unwrap_or(1);
    let times = speeds.iter().map(|it| (it / least).clamp(1, MOST_TURNS));
    let times: Vec<u32> = times.collect();
    let rounds = times.iter().copied().max().unwrap_or(0);
    let all = (0..rounds).flat_map(|round| {
        let of_round = owners
            .iter()
            .zip(&times)
            .filter(move |(_, times)| round < **times);
        of_round.map(|(owner, _)| *owner).collect::<Vec<_>>()
    });
    all.collect()
}

/// The lanes of a connection, and the worker that gets each.
struct NewLanes {
    owners: Vec<u32>,
    /// A lane is none if its QP has failed already.
    lanes: Vec<Option<HostLane>>,
}

impl NewLanes {
    /// Returns the lanes of the QPs, and after them the lanes that copy to a peer of this machine.
    fn new(
        core: &Core,
        qps: Vec<Option<HostLane>>,
        crossings: &[Crossing],
        way: Option<&LocalWay>,
    ) -> Self {
        let owners = crossings.iter().enumerate();
        let owners = owners.map(|(lane, crossing)| core.rails.worker_of(lane, crossing.own));
        let mut owners: Vec<u32> = owners.collect();
        let mut lanes = qps;
        if let Some(way) = way {
            for (copier, worker) in (0..core.rails.workers()).enumerate().take(MOST_COPIERS) {
                let lane = LocalLane::new(&way.reach, copier);
                lanes.push(Some(HostLane::Local(Box::new(lane))));
                owners.push(worker);
            }
        }
        Self { owners, lanes }
    }

    /// Gives the lanes to their workers.
    fn give(self, core: &Core, link: &Arc<Link>) {
        for (nth, (owner, lane)) in self.owners.into_iter().zip(self.lanes).enumerate() {
            match lane {
                Some(lane) => core.pool.add(owner, Held::new(link, nth, 1, lane)),
                // The control thread connects it anew.
                None => {
                    link.end_lane(nth);
                    link.lane_is_gone(nth);
                }
            }
        }
    }
}

/// Admits a connection whose QPs can send.
fn admit(
    core: &Arc<Core>,
    peers: &mut Peers,
    connected: Connected,
    mut wire: Wire,
    place: &str,
) -> Result<Arrived, HostError> {
    let Connected {
        peer,
        pairs,
        lanes,
        terms,
        own_qps,
        crossings,
        local,
    } = connected;
    let hello = Arc::new(peer);
    // The engine may have been closed since the first check.
    if let Err(reason) = may_enter(core, peers, &hello) {
        let _ = wire.send(&Message::Refused(reason.clone().into()));
        let peer = place.to_owned();
        return Err(HostError::Connection { peer, reason });
    }
    let qps = lanes.len();
    let lanes = NewLanes::new(core, lanes, &crossings, local.way.as_ref());
    let number = core.links.fetch_add(1, Ordering::Relaxed);
    let wake = Some(Wake::new()?);
    let turns = turns(&lanes.owners[..qps], &speeds(core, &crossings));
    let link = Link::new(number, hello.incarnation, &lanes.owners, wake)
        .with_local(local.way, qps)
        .with_crossings(&crossings, turns)
        .with_near(core.hello.near || hello.near)
        .with_seat(local.seat.is_some())
        .with_counters(&core.counters);
    let link = Arc::new(link);
    lanes.give(core, &link);
    let rooms = [hello.inbox, core.hello.inbox];
    let known = core
        .known
        .enter(&hello.name, hello.incarnation, rooms, &link);
    wire.expect(Stage::Peer);
    let pairs = Pairs::new(pairs, terms, own_qps, core.config.connect_timeout);
    let control =
        Control::new(core, &link, &known, hello.name.clone(), pairs, wire).with_seat(local.seat);
    let control = OwnThread::spawn(THREAD, || control.run(), |_| {});
    let control = control.map_err(|refused| {
        link.break_off();
        core.known.leave(&known, &link, None);
        ProviderError::from(refused)
    })?;
    peers.run(Running {
        link: Arc::clone(&link),
        hello: Arc::clone(&hello),
        control,
    });
    Ok(Arrived { link, hello, known })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ThreadPanicked;

    #[test]
    fn one_whose_handshake_panics_gives_its_place_back() {
        let all = Mutex::new(Peers::default());
        let life = |nth: u64| Life {
            name: format!("peer {nth}"),
            incarnation: nth,
        };
        let panicked = ThreadPanicked::catch("test", || {
            let own = Cell::new(None);
            let entering = Entering { peers: &all, own };
            entering.take(&mut lock(&all), life(1));
            lock(&all).enter(life(2));
            panic!("planted");
        });
        assert!(panicked.is_err());
        assert_eq!(lock(&all).entering(), [life(2)]);
    }

    #[test]
    fn a_faster_port_has_its_turn_as_many_whole_times_as_it_is_faster() {
        let of = |speeds: [u32; 2]| turns(&[3, 5], &speeds);
        assert_eq!(of([100_000, 100_000]), [3, 5]);
        assert_eq!(of([400_000, 100_000]), [3, 5, 3, 3, 3]);
        assert_eq!(of([100_000, 299_999]), [3, 5, 5]);
        assert_eq!(of([0, 0]), [3, 5]);
        // A port of unknown speed is not starved by the other.
        assert_eq!(of([0, 400_000]), [3, 5]);
        let most = of([1, u32::MAX]);
        assert_eq!(most.iter().filter(|owner| **owner == 5).count(), 16);
        assert_eq!(turns(&[0, 1, 2], &[200, 0, 100]), [0, 1, 2, 0]);
        assert!(turns(&[], &[]).is_empty());
    }
}
