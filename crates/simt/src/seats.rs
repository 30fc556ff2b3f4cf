//! The seats of a worker. A seat is made when a block needs one, and used again when its block has ended.

mod report;
pub(crate) mod seat;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::config::Shape;
use crate::error::LaunchError;
use crate::thread::stack::{Slab, SlabStack};
use crate::turns::Turns;
use seat::{Seat, SeatedWarp};

/// All seats of a worker, and the slabs from which their stacks are cut.
pub(crate) struct Seats {
    shape: Shape,
    all: RefCell<Vec<Rc<Seat>>>,
    free: RefCell<Vec<Rc<Seat>>>,
    slabs: RefCell<Vec<Slab>>,
    /// The number of stacks of the newest slab that no seat has.
    spare: Cell<usize>,
}

impl Seats {
    pub(crate) fn new(shape: Shape) -> Self {
        let (all, free, slabs) = (RefCell::default(), RefCell::default(), RefCell::default());
        Self {
            shape,
            all,
            free,
            slabs,
            spare: Cell::new(0),
        }
    }

    /// Returns the number of seats made so far.
    pub(crate) fn count(&self) -> usize {
        self.all.borrow().len()
    }

    /// Returns a free seat. `wanted` is how many seats the worker may need from now on, with this one.
    pub(crate) fn take(
        &self,
        turns: &Turns<SeatedWarp>,
        wanted: u64,
    ) -> Result<Rc<Seat>, LaunchError> {
        if let Some(seat) = self.free.borrow_mut().pop() {
            return Ok(seat);
        }
        let seat = Rc::new(Seat::new(self.shape, self.stacks(wanted)?));
        seat.set_owner(turns);
        self.all.borrow_mut().push(Rc::clone(&seat));
        Ok(seat)
    }

    /// Returns stacks for one seat. Slabs double in size, so that mappings are few and little is mapped in vain.
    fn stacks(&self, wanted: u64) -> Result<Box<[SlabStack]>, LaunchError> {
        let threads = self.shape.threads as usize;
        let mut slabs = self.slabs.borrow_mut();
        if self.spare.get() < threads {
            let seats = usize::try_from(wanted)
                .unwrap_or(usize::MAX)
                .min(self.count().max(1));
            let slab = Slab::take(threads, seats * threads, self.shape.stack_bytes)?;
            self.spare.set(slab.len());
            slabs.push(slab);
        }
        let spare = self.spare.get();
        self.spare.set(spare - threads);
        let newest = slabs.last().into_iter();
        Ok(newest
            .flat_map(|slab| (0..threads).map(|i| slab.stack(slab.len() - spare + i)))
            .collect())
    }

    /// Notes that the block of this seat has ended.
    pub(crate) fn put_back(&self, seat: &Seat) {
        let all = self.all.borrow();
        self.free.borrow_mut().extend(
            all.iter()
                .find(|other| std::ptr::eq(&raw const ***other, seat))
                .map(Rc::clone),
        );
    }

    /// Calls `f` for each seat with a block.
    pub(crate) fn for_each_taken(&self, f: impl FnMut(&Seat)) {
        self.all
            .borrow()
            .iter()
            .map(|seat| &**seat)
            .filter(|seat| seat.is_taken())
            .for_each(f);
    }

    /// Returns what the threads of all blocks are doing.
    pub(crate) fn report(&self) -> String {
        let all = self.all.borrow();
        report::describe(
            all.iter()
                .map(|seat| &**seat)
                .filter(|seat| seat.is_taken()),
        )
    }

    /// Abandons all threads that have not ended. Returns damage that explains why a launch failed.
    pub(crate) fn abandon(&self) -> Option<LaunchError> {
        let mut damage = None;
        self.for_each_taken(|seat| damage = damage.take().or(seat.abandon()));
        damage
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        // A second call does nothing. Without this call, dropping a coroutine would unwind its kernel.
        self.abandon();
        self.free.get_mut().clear();
        self.all.get_mut().clear();
        self.slabs.get_mut().drain(..).for_each(Slab::put_back);
    }
}
