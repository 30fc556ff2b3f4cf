//! The target's side of an endpoint: parts of peers arrive, wait and land.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libfabric_abi::bindings::{FI_REMOTE_CQ_DATA, FI_REMOTE_WRITE, FI_RMA};
use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, bind, listen, socket_with};

use super::address::Address;
use super::dice::{Purpose, dice, up_to};
use super::frame::{HAS_DATA, Head, kind};
use super::link::Link;
use super::memory;
use crate::counts::Count;
use crate::failure::Failure;
use crate::objects::{Access, Domain, Entry, Queue, Vector, Wish};

/// Peers that wait to be let in.
const BACKLOG: i32 = 128;

pub(crate) struct Receiver {
    host: Host,
    socket: OwnedFd,
    guests: BTreeMap<u64, Guest>,
    /// Of the next guest, of the next part, and of the next write whose data waits.
    number: u64,
    held: BTreeMap<Slot, Held>,
    /// Data of writes that have landed, for the queue.
    told: BTreeMap<Slot, Entry>,
}

/// Whose memory it is, and who is told.
pub(crate) struct Host {
    pub(crate) domain: Arc<Domain>,
    pub(crate) vector: Arc<Vector>,
    pub(crate) queue: Option<Arc<Queue>>,
    /// Of the endpoint, whose close drops completions.
    pub(crate) ordinal: u32,
    pub(crate) may_be_read: bool,
    pub(crate) may_be_written: bool,
}

/// A peer that has connected.
struct Guest {
    /// None: it is gone, and parts of it may still be here.
    link: Option<Link>,
    name: Option<Name>,
    /// Parts that wait.
    held: usize,
    /// Of operations with data: parts that have landed.
    landed: HashMap<u64, u32>,
}

/// What a guest says of itself.
#[derive(Clone, Copy)]
struct Name {
    address: Address,
    ordinal: u32,
}

/// When a part lands, or data comes. The number tells apart what is due at once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Slot {
    due: Instant,
    number: u64,
}

/// A part that waits.
struct Held {
    guest: u64,
    head: Head,
    bytes: Vec<u8>,
}

impl Receiver {
    pub(crate) fn new(host: Host, address: &Address, ready: &OwnedFd) -> Result<Self, c_int> {
        let open = || -> rustix::io::Result<OwnedFd> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            bind(&socket, &address.socket()?)?;
            listen(&socket, BACKLOG)?;
            let data = epoll::EventData::new_u64(0);
            epoll::add(ready, &socket, data, epoll::EventFlags::IN)?;
            Ok(socket)
        };
        Ok(Self {
            host,
            socket: open().map_err(rustix::io::Errno::raw_os_error)?,
            guests: BTreeMap::new(),
            number: 0,
            held: BTreeMap::new(),
            told: BTreeMap::new(),
        })
    }

    /// Does all that can be done now.
    pub(crate) fn step(&mut self, ready: &OwnedFd, now: Instant) {
        self.let_in(ready);
        let guests: Vec<u64> = self.guests.keys().copied().collect();
        for guest in &guests {
            self.listen(*guest, now);
        }
        while let Some(first) = self.held.first_entry() {
            if first.key().due > now {
                break;
            }
            let held = first.remove();
            self.land(&held, now);
        }
        while let Some(first) = self.told.first_entry() {
            if first.key().due > now {
                break;
            }
            let entry = first.remove();
            self.host.announce(entry);
        }
        for number in guests {
            let Some(guest) = self.guests.get_mut(&number) else {
                continue;
            };
            if let Some(link) = &mut guest.link {
                link.flush(ready);
            } else if guest.held == 0 {
                self.guests.remove(&number);
            }
        }
    }

    /// When the next part lands, or the next data comes.
    pub(crate) fn next_work(&self) -> Option<Instant> {
        let next = [self.held.keys().next(), self.told.keys().next()];
        next.into_iter().flatten().map(|slot| slot.due).min()
    }

    /// What has not landed never will, and what was not told of never is.
    pub(crate) fn close(self) {
        Count::DroppedPieces.add_many(self.held.len());
        Count::DroppedCompletions.add_many(self.told.len());
    }

    fn let_in(&mut self, ready: &OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Ok(socket) = accept_with(&self.socket, flags) {
            let Ok(link) = Link::new(socket, ready) else {
                continue;
            };
            self.number += 1;
            let guest = Guest {
                link: Some(link),
                name: None,
                held: 0,
                landed: HashMap::new(),
            };
            self.guests.insert(self.number, guest);
        }
    }

    /// Takes what a guest has sent. Each part gets the time at which it lands.
    fn listen(&mut self, number: u64, now: Instant) {
        let Some(guest) = self.guests.get_mut(&number) else {
            return;
        };
        let Some(mut link) = guest.link.take() else {
            return;
        };
        link.fill();
        let mut is_rude = false;
        let mut arrivals = Vec::new();
        while let Some((head, bytes)) = link.next() {
            match (head.kind, guest.name) {
                (kind::HELLO, None) => {
                    guest.name = Address::of(bytes).map(|address| Name {
                        address,
                        ordinal: u32::try_from(head.data).unwrap_or(u32::MAX),
                    });
                    is_rude = guest.name.is_none();
                }
                (kind::WRITE | kind::READ, Some(name)) => {
                    let config = &self.host.domain.config;
                    let part = head.operation << 20 | u64::from(head.part);
                    let mut dice = dice(config.seed, Purpose::Landing, name.ordinal, part);
                    self.number += 1;
                    let slot = Slot {
                        due: now + up_to(&mut dice, config.late),
                        number: self.number,
                    };
                    let held = Held {
                        guest: number,
                        head,
                        bytes: bytes.to_vec(),
                    };
                    guest.held += 1;
                    self.held.insert(slot, held);
                }
                _ => is_rude = true,
            }
            if is_rude {
                break;
            }
            if head.kind == kind::WRITE {
                arrivals.push(head.answer(kind::ARRIVED));
            }
        }
        for arrival in arrivals {
            link.say(arrival);
        }
        if !is_rude && !link.has_ended() {
            guest.link = Some(link);
        }
    }

    fn land(&mut self, held: &Held, now: Instant) {
        let Some(guest) = self.guests.get_mut(&held.guest) else {
            return;
        };
        guest.held -= 1;
        let head = &held.head;
        let landed = match guest.name {
            Some(name) => self.host.copy(guest, name, held),
            None => Err(Failure::UnknownPeer),
        };
        match landed {
            Ok(()) => {
                Count::Pieces.add();
                if guest.link.is_none() {
                    Count::Orphans.add();
                }
                if head.kind == kind::WRITE {
                    if let Some(link) = &mut guest.link {
                        link.say(head.answer(kind::LANDED));
                    }
                    if let Some(entry) = self.host.data(guest, head) {
                        self.number += 1;
                        let slot = Slot {
                            due: now + self.host.lateness(guest, head),
                            number: self.number,
                        };
                        self.told.insert(slot, entry);
                    }
                }
            }
            Err(failure) => {
                if let Some(link) = &mut guest.link {
                    let mut answer = head.answer(kind::FAILED);
                    answer.data = failure as u64;
                    link.say(answer);
                }
            }
        }
    }
}

impl Host {
    /// Lets a part land, or sends what it asks for.
    fn copy(&self, guest: &mut Guest, name: Name, held: &Held) -> Result<(), Failure> {
        let head = &held.head;
        let is_write = head.kind == kind::WRITE;
        if self.domain.profile.knows_its_peers() && !self.vector.has(&name.address) {
            return Err(Failure::UnknownPeer);
        }
        if !(if is_write {
            self.may_be_written
        } else {
            self.may_be_read
        }) {
            return Err(Failure::NoRight);
        }
        let bytes = head.bytes as usize;
        let wish = Wish {
            key: head.key,
            address: head.address,
            bytes,
            access: if is_write {
                Access::Write
            } else {
                Access::Read
            },
        };
        if bytes == 0 && !is_write {
            guest.say(head.answer(kind::BYTES));
            return Ok(());
        }
        if bytes == 0 {
            return Ok(());
        }
        self.domain.keys.with(wish, |at| {
            let copied = if is_write {
                memory::write(&held.bytes, at)
            } else {
                let link = guest.link.as_mut();
                link.map_or(Ok(()), |link| {
                    link.put(head.answer(kind::BYTES), bytes, |room| {
                        memory::read(at, room)
                    })
                })
            };
            copied.map_err(|_| Failure::TargetMemory)
        })
    }

    /// Returns what the queue is to be told of a write with data, when all of its parts have landed.
    fn data(&self, guest: &mut Guest, head: &Head) -> Option<Entry> {
        if head.flags & HAS_DATA == 0 {
            return None;
        }
        let landed = guest.landed.entry(head.operation).or_default();
        *landed += 1;
        if *landed < head.parts {
            return None;
        }
        guest.landed.remove(&head.operation);
        Some(Entry {
            endpoint: self.ordinal,
            context: 0,
            flags: FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA,
            bytes: usize::try_from(head.total).unwrap_or(usize::MAX),
            data: head.data,
            failure: None,
            releases: false,
        })
    }

    /// Returns how much later the data of a write comes. Its initiator may know by then that the write is done: the manual gives the two
    /// completions no order.
    fn lateness(&self, guest: &Guest, head: &Head) -> Duration {
        let config = &self.domain.config;
        let endpoint = guest.name.map_or(0, |name| name.ordinal);
        let mut dice = dice(config.seed, Purpose::Data, endpoint, head.operation);
        up_to(&mut dice, config.data)
    }

    /// Tells the queue.
    fn announce(&self, entry: Entry) {
        if let Some(queue) = &self.queue {
            Count::RemoteData.add();
            queue.push(entry);
        }
    }
}

impl Guest {
    fn say(&mut self, head: Head) {
        if let Some(link) = &mut self.link {
            link.say(head);
        }
    }
}
