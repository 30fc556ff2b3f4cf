//! One warp: which of its lanes may run, and the meetings at which lanes wait for each other.
//!
//! A lane takes part in at most one meeting at a time. So the values that lanes bring and get are in arrays indexed by lane, which all
//! meetings of the warp share. The last lane to come computes the results of all lanes.

// UNSAFETY: points back to its worker's turns, its seat and its lanes.
#![expect(
    unsafe_code,
    reason = "threads, warps and worker point at each other; all live as long as the seat"
)]

mod converge;
pub(crate) mod op;
mod points;

use std::cell::{Cell, RefCell};
use std::ptr;

use crate::error::LaunchError;
use crate::thread::Thread;
use crate::turns::Turns;
use converge::Parts;
use op::{Lanes, Op};

/// A meeting: lanes of one mask that wait for each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meeting {
    pub(crate) op: Op,
    pub(crate) mask: u32,
    /// The lanes that have come, a proper subset of `mask`.
    pub(crate) arrived: u32,
}

/// One warp of a seat. Bit masks have a bit for each of its lanes. `S` is the type of seats, which know their warps.
pub(crate) struct Warp<S> {
    /// The lanes that may run in this turn.
    ready: Cell<u32>,
    /// The lanes that gave way (yield, poll) and may run in the next turn.
    later: Cell<u32>,
    /// The lanes that have not exited.
    alive: Cell<u32>,
    /// The lanes at a barrier of the block.
    at_barrier: Cell<u32>,
    /// The lanes at a barrier of the grid.
    at_grid: Cell<u32>,
    /// True if the worker's queue holds this warp.
    queued: Cell<bool>,
    /// The lanes that polled in the worker's present quiet spell, if `marked_in` is the number of that spell.
    marks: Cell<u32>,
    marked_in: Cell<u64>,
    /// The lanes that exist: all 32 except in the last warp of a block.
    lanes: u32,
    /// The index of the warp in the block.
    index: u32,
    turns: Cell<*const Turns<Self>>,
    seat: Cell<*const S>,
    /// The thread of lane 0 in the seat's table of threads.
    first: Cell<*const Thread<Self>>,
    meetings: Cell<usize>,
    pending: [Cell<Meeting>; 32],
    lane_data: Lanes,
    /// The divergent parts that lanes are in. Empty unless the launch reconverges.
    parts: RefCell<Parts>,
}

impl<S> Warp<S> {
    pub(crate) fn new(index: u32, lanes: u32) -> Self {
        let nothing = Meeting {
            op: Op::SYNC_WARP,
            mask: 0,
            arrived: 0,
        };
        Self {
            ready: Cell::new(0),
            later: Cell::new(0),
            alive: Cell::new(0),
            at_barrier: Cell::new(0),
            at_grid: Cell::new(0),
            queued: Cell::new(false),
            marks: Cell::new(0),
            marked_in: Cell::new(0),
            lanes,
            index,
            turns: Cell::new(ptr::null()),
            seat: Cell::new(ptr::null()),
            first: Cell::new(ptr::null()),
            meetings: Cell::new(0),
            pending: std::array::from_fn(|_| Cell::new(nothing)),
            lane_data: Lanes::new(),
            parts: RefCell::default(),
        }
    }

    /// Ties the warp to the turns of its worker, to its seat and to the threads of that seat. It is called once, when the seat is built.
    pub(crate) fn set_owner(&self, turns: &Turns<Self>, seat: &S, threads: &[Thread<Self>]) {
        assert!(
            threads.len() == self.lanes.count_ones() as usize,
            "a thread per lane"
        );
        self.turns.set(turns);
        self.seat.set(seat);
        self.first.set(threads.as_ptr());
    }

    /// Returns the thread of a lane that exists.
    #[inline(always)]
    pub(crate) fn thread(&self, lane: u32) -> &Thread<Self> {
        debug_assert!(
            self.lanes >> lane & 1 == 1,
            "lane {lane} of {:#x}",
            self.lanes
        );
        // SAFETY: `set_owner` checked that the table holds a thread for each lane of `self.lanes`, which starts at lane 0.
        unsafe { &*self.first.get().add(lane as usize) }
    }

    #[inline]
    pub(crate) fn turns(&self) -> &Turns<Self> {
        // SAFETY: set by `set_owner`; the worker owns these turns, and the seat that owns this warp.
        unsafe { &*self.turns.get() }
    }

    #[inline]
    pub(crate) fn seat(&self) -> &S {
        // SAFETY: set by `set_owner` to the boxed seat that owns this warp.
        unsafe { &*self.seat.get() }
    }

    /// Returns the index of the warp in the block.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Returns the lanes that have not exited.
    pub(crate) fn alive(&self) -> u32 {
        self.alive.get()
    }

    /// Returns the lanes at a barrier of the block.
    pub(crate) fn at_barrier(&self) -> u32 {
        self.at_barrier.get()
    }

    /// Returns the lanes at a barrier of the grid.
    pub(crate) fn at_grid(&self) -> u32 {
        self.at_grid.get()
    }

    /// Makes all lanes ready and alive, for the start of a block.
    pub(crate) fn reset(&self) {
        self.ready.set(self.lanes);
        self.alive.set(self.lanes);
        for mask in [&self.later, &self.at_barrier, &self.at_grid, &self.marks] {
            mask.set(0);
        }
        self.meetings.set(0);
        self.queued.set(false);
        self.parts.replace(Parts::default());
    }

    /// Returns the lanes that wait in a barrier or a meeting.
    fn blocked(&self) -> u32 {
        let met = self
            .meetings()
            .fold(0, |all, meeting| all | meeting.arrived);
        self.at_barrier.get() | self.at_grid.get() | met
    }

    /// Returns the divergent parts that the lanes of the warp are in.
    pub(crate) fn parts(&self) -> std::cell::Ref<'_, Parts> {
        self.parts.borrow()
    }

    /// Returns the meetings that wait for lanes.
    pub(crate) fn meetings(&self) -> impl Iterator<Item = Meeting> {
        self.pending[..self.meetings.get()].iter().map(Cell::get)
    }

    /// Lets the calling lane take part in the meeting (`op`, `mask`). Returns its result when all lanes of `mask` have come.
    #[inline(always)]
    pub(crate) fn meet(
        &self,
        me: &Thread<Self>,
        op: Op,
        mask: u32,
        value: u64,
        source: u32,
    ) -> u64 {
        let lane = me.lane();
        let bit = 1 << lane;
        // A mask may name lanes that do not exist: code for full warps does so in a partial warp too.
        let mask = mask & self.lanes;
        if mask & bit == 0 || mask & !self.alive.get() != 0 || !op.is_warp() {
            self.refuse(me, op, mask);
        }
        self.turns().count_meeting();
        self.lane_data.values[lane as usize].set(value);
        self.lane_data.sources[lane as usize].set(source);
        let (index, meeting) = self.join(
            me,
            Meeting {
                op,
                mask,
                arrived: bit,
            },
        );
        if meeting.arrived != mask {
            self.pending[index].set(meeting);
            self.block(me);
            me.suspend();
        } else {
            self.complete(index, op, mask, bit);
        }
        self.lane_data.results[lane as usize].get()
    }

    /// Ends a meeting to which the last lane has come: computes the results of all lanes, and lets the other lanes go on.
    fn complete(&self, index: usize, op: Op, mask: u32, last: u32) {
        let end = self.meetings.get() - 1;
        self.pending[index].set(self.pending[end].get());
        self.meetings.set(end);
        op.combine(mask, &self.lane_data);
        #[cfg(feature = "tsan")]
        crate::check::meet_warp(&self.slots(mask), op == Op::SYNC_WARP);
        self.unblock(mask & !last);
    }

    /// Returns the numbers that the threads of these lanes have for the checker.
    #[cfg(feature = "tsan")]
    fn slots(&self, lanes: u32) -> Vec<u32> {
        let lanes = op::lanes_of(lanes).map(|lane| lane.try_into().unwrap_or(0));
        lanes.filter_map(|lane| self.thread(lane).slot()).collect()
    }

    /// Returns the meeting of this mask and operation with `come.arrived` added, and its index. Refuses a meeting that can never take
    /// place.
    #[inline(always)]
    fn join(&self, me: &Thread<Self>, come: Meeting) -> (usize, Meeting) {
        let bit = come.arrived;
        let count = self.meetings.get();
        let mut found = (count, come);
        for (index, cell) in self.pending[..count].iter().enumerate() {
            let there = cell.get();
            if there.mask == come.mask && there.op == come.op {
                found = (
                    index,
                    Meeting {
                        arrived: there.arrived | bit,
                        ..there
                    },
                );
            } else if there.mask & bit != 0 && there.arrived & come.mask != 0 {
                // These lanes wait for the calling lane, which would wait for one of them.
                self.mismatch(me, come, there);
            }
        }
        if found.0 == count {
            self.meetings.set(count + 1);
        }
        found
    }

    #[cold]
    fn mismatch(&self, me: &Thread<Self>, come: Meeting, there: Meeting) -> ! {
        let (thread, operation) = (me.id(), come.op.name());
        self.fail(me, move || {
            let Meeting { op, mask, arrived } = there;
            let conflict = format!(
                "lanes {arrived:#010x} wait in {} with mask {mask:#010x}",
                op.name()
            );
            LaunchError::MaskMismatch {
                thread,
                operation,
                mask: come.mask,
                conflict,
            }
        })
    }

    #[cold]
    fn refuse(&self, me: &Thread<Self>, op: Op, mask: u32) -> ! {
        let (thread, operation) = (me.id(), op.name());
        let (named, gone) = (mask & 1 << me.lane() != 0, mask & !self.alive.get());
        self.fail(me, move || {
            if !op.is_warp() {
                LaunchError::Panic {
                    thread,
                    message: format!("simt_warp_op {} does not exist", op.0),
                }
            } else if !named {
                let conflict = "the mask lacks the calling lane".to_owned();
                LaunchError::MaskMismatch {
                    thread,
                    operation,
                    mask,
                    conflict,
                }
            } else {
                let gone = format!("waits for lanes {gone:#010x}, which have exited");
                LaunchError::Deadlock {
                    report: format!("{thread}: {operation} with mask {mask:#010x} {gone}"),
                }
            }
        })
    }

    /// Notes that lane `lane` has exited. A meeting that waits for it is an error, since it would wait for ever.
    pub(crate) fn exit(&self, lane: u32) -> Result<(), LaunchError> {
        let bit = 1 << lane;
        self.alive.set(self.alive.get() & !bit);
        if self.turns().reconverges() {
            let (alive, blocked) = (self.alive.get(), self.blocked());
            let released = self.parts.borrow_mut().exits(lane, alive, blocked);
            self.unblock(released);
        }
        let Some(Meeting { op, mask, arrived }) =
            self.meetings().find(|meeting| meeting.mask & bit != 0)
        else {
            return Ok(());
        };
        let thread = self.thread(lane).id();
        let operation = op.name();
        let report = format!(
            "{thread} has exited, but lanes {arrived:#010x} wait for it in {operation} with mask {mask:#010x}"
        );
        Err(LaunchError::Deadlock { report })
    }

    /// Puts the warp, which has something to run, into the queue, unless it is there or has its turn.
    pub(crate) fn enqueue(&self) {
        if !self.queued.replace(true) {
            self.turns().enqueue(self);
        }
    }

    /// Takes all lanes that may run in this turn.
    #[inline]
    pub(crate) fn take_ready(&self) -> u32 {
        self.ready.replace(0)
    }

    /// Lets lanes that gave way run in this turn. Returns the lanes that may run.
    #[inline]
    pub(crate) fn gather(&self) -> u32 {
        let ready = self.ready.get() | self.later.replace(0);
        self.ready.set(ready);
        ready
    }

    /// Takes one of the lanes that may run.
    #[inline]
    pub(crate) fn take(&self, lane: u32) {
        self.ready.set(self.ready.get() & !(1 << lane));
    }

    /// Ends the turn of the warp. It gets another if it has something to run.
    #[inline]
    pub(crate) fn end_turn(&self) {
        let ready = self.gather();
        self.queued.set(false);
        if ready != 0 {
            self.enqueue();
        }
    }

    /// Marks a lane as polling in quiet spell `spell`. Returns false if it was marked already.
    #[inline]
    fn mark(&self, lane: u32, spell: u64) -> bool {
        let marks = self.marked(spell);
        self.marks.set(marks | 1 << lane);
        self.marked_in.set(spell);
        marks >> lane & 1 == 0
    }

    /// Removes the mark of a lane. Returns true if it had one.
    #[inline]
    fn unmark(&self, lane: u32, spell: u64) -> bool {
        let marks = self.marked(spell);
        self.marks.set(marks & !(1 << lane));
        self.marked_in.set(spell);
        marks >> lane & 1 == 1
    }

    /// Returns the lanes that are marked in quiet spell `spell`.
    #[inline]
    pub(crate) fn marked(&self, spell: u64) -> u32 {
        if self.marked_in.get() == spell {
            self.marks.get()
        } else {
            0
        }
    }
}
