//! The regions of this side: the registration of each, and the regions that share one.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use crate::engine::error::{EngineError, HostError};
use crate::engine::ids::RegionId;
use crate::engine::memory::flush::{Flushed, Flushes};
use crate::engine::memory::numbers::RegionIds;
use crate::engine::memory::regions::{Descriptor, Users};
use crate::engine::memory::table::{LocalTable, Mapped};
use crate::engine::route::rails::{Rails, Registrations};
use crate::provider::AnyMemory;
use crate::provider::local::{Board, LEAVING, MemoryName, ShownRegion, Unshown};

/// The regions of this side.
pub(in crate::engine) struct Registry {
    pub(in crate::engine) table: Arc<LocalTable>,
    /// The address of the registration of each region. Several regions may share one.
    regions: HashMap<RegionId, u64>,
    registrations: HashMap<u64, Shared>,
    ids: RegionIds,
    /// The board that shows regions to peers of this machine.
    board: Option<Arc<Board>>,
    flushes: Arc<Flushes>,
    /// The number of registrations that are being taken away.
    leaving: usize,
}

struct Shared {
    registrations: Registrations,
    users: Arc<Users>,
    bytes: u64,
    regions: u32,
    /// The memory, which this keeps.
    memory: AnyMemory,
    #[expect(dead_code, reason = "held for its drop")]
    flushed: Option<Flushed>,
    /// The place of the registration on the board.
    place: Option<usize>,
    /// The mark of a registration without a place on the board. The mark goes when this is dropped.
    unshown: Option<Unshown>,
    /// True if the last region of the registration is being taken away.
    is_leaving: bool,
}

/// The result of a step that takes a region away.
pub(in crate::engine) enum Step {
    /// The region is gone.
    Done,
    /// Another thread is taking the region away.
    Taken,
    /// The caller waits by [`Leaving::wait`], without the lock of the regions. Then [`Registry::finish`] does the rest.
    Waits(Leaving),
}

/// A region that is being taken away: no transfer has it, and no copy begins in it.
pub(in crate::engine) struct Leaving {
    region: RegionId,
    first: u64,
    shown: Option<(Arc<Board>, usize)>,
}

impl Leaving {
    /// Waits until no peer of this machine copies any more. The error is the number of threads of peers that do not end a copy.
    pub(in crate::engine) fn wait(&self) -> Result<(), u32> {
        match &self.shown {
            Some((board, place)) => board.leave(&[*place], LEAVING),
            None => Ok(()),
        }
    }
}

impl Registry {
    /// Returns an empty registry of the engine that this process numbers `engine`. It shows regions on this board.
    pub(in crate::engine) fn new(
        engine: u32,
        board: Option<Arc<Board>>,
        flushes: &Arc<Flushes>,
    ) -> Self {
        Self {
            table: Arc::default(),
            regions: HashMap::new(),
            registrations: HashMap::new(),
            ids: RegionIds::new(engine),
            board,
            flushes: Arc::clone(flushes),
            leaving: 0,
        }
    }

    /// Registers all of `memories`, or none. The error has the index of the first memory that cannot be registered. Memory inside a region,
    /// or inside another one of `memories`, shares its registration.
    pub(in crate::engine) fn register(
        &mut self,
        rails: &Rails,
        memories: &[AnyMemory],
    ) -> Result<Vec<RegionId>, (usize, HostError)> {
        let left = self.ids.check_left(memories.len());
        left.map_err(|(place, error)| (place, error.into()))?;
        let (firsts, news) = self.parted(memories)?;
        // All lengths are checked before any rail registers a memory.
        for place in &news {
            let checked = rails.check_bytes(memories[*place].bytes());
            checked.map_err(|error| (*place, error.into()))?;
        }
        let mut made = Vec::new();
        for place in news {
            let memory = &memories[place];
            // The flushes of the GPU begin before any peer can have a key of the memory.
            let flushed = self.flushes.enter(memory);
            let registrations = rails.register(memory);
            // On an error `made` is dropped, with the registrations of earlier memories.
            let registrations = registrations.map_err(|error| (place, error.into()))?;
            made.push((memory, registrations, flushed));
        }
        for (memory, registrations, flushed) in made {
            self.add(memory, registrations, flushed);
        }
        let ids = firsts.into_iter().map(|first| {
            if let Some(shared) = self.registrations.get_mut(&first) {
                shared.regions += 1;
            }
            let region = self.ids.give();
            self.regions.insert(region, first);
            region
        });
        Ok(ids.collect())
    }

    /// Returns for each memory the address of the registration that it is to have, and the indices of memories that need a new
    /// registration.
    fn parted(&self, memories: &[AnyMemory]) -> Result<(Vec<u64>, Vec<usize>), (usize, HostError)> {
        // A memory that contains another comes before it.
        let mut order: Vec<usize> = (0..memories.len()).collect();
        order.sort_by_key(|place| {
            (
                memories[*place].address(),
                Reverse(memories[*place].bytes()),
            )
        });
        let (mut firsts, mut news) = (vec![0; memories.len()], Vec::new());
        let mut last = 0..0;
        for place in order {
            let memory = &memories[place];
            let (address, bytes) = (memory.address(), memory.bytes());
            let known = self.table.covering(address, bytes);
            firsts[place] = match known {
                Some(region) => region.address,
                None if address < last.end && address + bytes <= last.end => last.start,
                None if address < last.end || self.table.overlaps(address, bytes) => {
                    self.check_freed(memory).map_err(|error| (place, error))?;
                    return Err((place, EngineError::Overlap { address, bytes }.into()));
                }
                None => {
                    last = address..address + bytes;
                    news.push(place);
                    address
                }
            };
            let shared = match (known, news.last()) {
                (Some(_), _) => {
                    self.check_freed(memory).map_err(|error| (place, error))?;
                    let shared = self.registrations.get(&firsts[place]);
                    shared.map_or(memory, |shared| &shared.memory)
                }
                (None, Some(new)) => &memories[*new],
                (None, None) => memory,
            };
            check_kind(memory, shared).map_err(|error| (place, error.into()))?;
        }
        Ok((firsts, news))
    }

    /// Refuses memory that overlaps a region whose own memory was freed.
    fn check_freed(&self, memory: &AnyMemory) -> Result<(), HostError> {
        let (address, bytes) = (memory.address(), memory.bytes());
        let meets = |(first, shared): &(&u64, &Shared)| {
            **first < address + bytes && address < **first + shared.bytes
        };
        let met: Vec<(&u64, &Shared)> = match self.table.covering(address, bytes) {
            Some(region) => {
                let shared = self.registrations.get(&region.address);
                shared
                    .map(|shared| (&region.address, shared))
                    .into_iter()
                    .collect()
            }
            None => self.registrations.iter().filter(meets).collect(),
        };
        for (first, shared) in met {
            let is_there = shared.memory.gpu().map_or(Ok(true), |it| it.is_there());
            if !is_there? {
                let of_it = self.regions.iter().filter(|(_, of)| *of == first);
                let number = of_it.map(|(region, _)| region.number()).min();
                let region = number.unwrap_or(u64::MAX);
                let freed = EngineError::Freed {
                    address,
                    bytes,
                    region,
                };
                return Err(freed.into());
            }
        }
        Ok(())
    }

    /// Lets transfers use this registered memory.
    fn add(&mut self, memory: &AnyMemory, registrations: Registrations, flushed: Option<Flushed>) {
        let (address, bytes) = (memory.address(), memory.bytes());
        let copier = memory.gpu().and_then(|it| it.copier()).cloned();
        let users = Arc::new(Users::of(copier));
        let is_new = Arc::make_mut(&mut self.table).insert(Mapped {
            address,
            bytes,
            keys: registrations.lkeys(),
            owner: Arc::clone(&users),
        });
        debug_assert!(is_new, "`parted` has looked");
        let mut shared = Shared {
            registrations,
            users,
            bytes,
            regions: 0,
            memory: memory.clone(),
            flushed,
            place: None,
            unshown: None,
            is_leaving: false,
        };
        shared.show(self.board.as_ref());
        self.registrations.insert(address, shared);
    }

    /// Returns whether part of this memory is being taken away. Then the caller waits, and soon learns whether it can be registered.
    pub(in crate::engine) fn is_leaving(&self, memory: &AnyMemory) -> bool {
        let (address, end) = (memory.address(), memory.address() + memory.bytes());
        let overlaps = |(first, shared): (&u64, &Shared)| {
            shared.is_leaving && *first < end && address < *first + shared.bytes
        };
        self.leaving > 0 && self.registrations.iter().any(overlaps)
    }

    /// Begins to take a region away.
    pub(in crate::engine) fn leave(&mut self, region: RegionId) -> Result<Step, HostError> {
        self.ids.check(region)?;
        let number = region.number();
        let unknown = EngineError::UnknownRegion { number };
        let first = *self.regions.get(&region).ok_or(unknown.clone())?;
        let shared = self.registrations.get_mut(&first).ok_or(unknown)?;
        if shared.regions > 1 {
            shared.regions -= 1;
            self.regions.remove(&region);
            return Ok(Step::Done);
        }
        if shared.is_leaving {
            return Ok(Step::Taken);
        }
        let busy = |users| EngineError::Busy { number, users };
        shared.users.close().map_err(busy)?;
        let board = self.board.as_ref();
        let shown = board.and_then(|board| Some((Arc::clone(board), shared.place?)));
        if let Some((board, place)) = &shown {
            board.mark(*place);
        }
        shared.is_leaving = true;
        self.leaving += 1;
        Ok(Step::Waits(Leaving {
            region,
            first,
            shown,
        }))
    }

    /// Takes a region away. If threads of peers have not ended their copies, the region stays.
    pub(in crate::engine) fn finish(
        &mut self,
        leaving: &Leaving,
        left: Result<(), u32>,
    ) -> Result<(), HostError> {
        let (number, first) = (leaving.region.number(), leaving.first);
        let left = left.map_err(|users| EngineError::Busy { number, users });
        // Without an entry the engine was closed meanwhile.
        let Some(shared) = self.registrations.get_mut(&first) else {
            return Ok(left?);
        };
        shared.is_leaving = false;
        self.leaving -= 1;
        if let Err(busy) = left {
            if let Some((board, place)) = &leaving.shown {
                board.unmark(*place);
            }
            shared.users.open();
            return Err(busy.into());
        }
        shared.place = None;
        if let Err(kept) = shared.registrations.deregister() {
            // If one rail has ended its registration already, no transfer may use the memory any more.
            if kept.is_whole {
                shared.show(self.board.as_ref());
                shared.users.open();
            }
            return Err(kept.error.into());
        }
        self.regions.remove(&leaving.region);
        self.registrations.remove(&first);
        Arc::make_mut(&mut self.table).remove(first);
        Ok(())
    }

    /// Returns the descriptor of a region of the engine with this life.
    pub(in crate::engine) fn descriptor(
        &self,
        region: RegionId,
        incarnation: u64,
    ) -> Result<Descriptor, HostError> {
        let (first, shared) = self.shared(region)?;
        Ok(Descriptor {
            incarnation,
            address: first,
            bytes: shared.bytes,
            rkeys: shared.registrations.rkeys(),
        })
    }

    /// Returns how each rail has registered the memory of a region, in words.
    pub(in crate::engine) fn ways(&self, region: RegionId) -> Result<Vec<String>, HostError> {
        Ok(self.shared(region)?.1.registrations.ways())
    }

    /// Returns the registration of a region, with its first address.
    fn shared(&self, region: RegionId) -> Result<(u64, &Shared), EngineError> {
        self.ids.check(region)?;
        let number = region.number();
        let first = self.regions.get(&region);
        let shared = first.and_then(|first| Some((*first, self.registrations.get(first)?)));
        shared.ok_or(EngineError::UnknownRegion { number })
    }
}

/// Refuses memory that is registered as memory of another kind.
fn check_kind(memory: &AnyMemory, registered: &AnyMemory) -> Result<(), EngineError> {
    let kind = |memory: &AnyMemory| match memory.gpu() {
        Some(_) => "a GPU",
        None => "the host",
    };
    if kind(memory) == kind(registered) {
        return Ok(());
    }
    Err(EngineError::OtherKind {
        address: memory.address(),
        bytes: memory.bytes(),
        registered: kind(registered),
    })
}

impl Shared {
    /// Shows the memory to peers of this machine, which may then copy to and from it. Memory of a GPU that makes no copies is not shown.
    fn show(&mut self, board: Option<&Arc<Board>>) {
        let Some(board) = board else {
            return;
        };
        let (name, gpu) = match &self.memory {
            AnyMemory::Host(memory) => (memory.file().map(MemoryName::File), None),
            AnyMemory::Gpu(memory) => match memory.copier() {
                Some(gpu) => (memory.name(), Some(gpu)),
                None => return,
            },
        };
        let address = self.memory.address();
        let region = ShownRegion {
            address,
            bytes: self.bytes,
            key: self.registrations.rkeys().of(0),
            place: address,
            may_read: true,
            may_write: true,
        };
        (self.place, self.unshown) = match board.show(&region, name.as_ref(), gpu) {
            Ok(place) => (Some(place), None),
            Err(unshown) => (None, Some(unshown)),
        };
    }
}
