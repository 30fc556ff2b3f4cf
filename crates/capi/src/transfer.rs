//! Transfers of host engines: vectors of writes and reads, and what became of them.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::sync::Arc;

use warpverbs::engine::{
    EngineError, Kind, Operation, OperationStatus, Options, Outcome, Peer, Prepared, Remote,
    Report, Status, TransferId,
};

use crate::engine::{wv_engine, wv_engine_peer};
use crate::handle::{Handle, handle};
use crate::sized::{place, read, sized};
use crate::status::{Failure, array, guard, put, room, wv_status};
use crate::team::millis;

/// Kind of an operation: from here to the peer.
pub const WV_WRITE: u32 = 0;
/// Kind of an operation: from the peer to here.
pub const WV_READ: u32 = 1;

/// State of a transfer: it is not concluded yet.
pub const WV_TRANSFER_PENDING: u32 = 0;
/// State of a transfer: all bytes have landed.
pub const WV_TRANSFER_DONE: u32 = 1;
/// State of a transfer: a part has failed for good.
pub const WV_TRANSFER_FAILED: u32 = 2;
/// State of a transfer: wv_engine_cancel has ended it.
pub const WV_TRANSFER_CANCELLED: u32 = 3;
/// State of a transfer: its deadline has passed before.
pub const WV_TRANSFER_TIMED_OUT: u32 = 4;
/// State of a transfer: it was released.
pub const WV_TRANSFER_UNKNOWN: u32 = 5;

/// What became of an operation: all its bytes have landed.
pub const WV_OPERATION_DONE: u8 = 0;
/// What became of an operation: a part has failed. Other parts may have landed.
pub const WV_OPERATION_FAILED: u8 = 1;
/// What became of an operation: a part was never posted, and no part has failed.
pub const WV_OPERATION_NOT_POSTED: u8 = 2;

/// Names a transfer. No other transfer of this process ever has the same. It stays so, and has no size.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_transfer {
    /// Engine and slot.
    pub place: u64,
    /// Number of the use of the slot.
    pub generation: u64,
}

/// One operation of a transfer. It stays so, and has no size.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_operation {
    /// WV_WRITE or WV_READ.
    pub kind: u32,
    /// Zero.
    pub reserved: u32,
    /// First byte here: an address of a region of this engine.
    pub local: u64,
    /// First byte at the peer: an address of a region that was imported.
    pub remote: u64,
    /// Number of bytes. An operation of 0 bytes is done without a WQE.
    pub bytes: u64,
}

/// Options of a transfer. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_transfer_options {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// Deadline, ms: after it no slice is handed out any more. 0: that of the engine's configuration, which has none by default.
    pub deadline_ms: u32,
    /// Longest wait for a free slot, and for room for the notice, ms. 0: WV_WOULD_BLOCK at once.
    pub wait_ms: u32,
    /// A notice for the peer's program. It arrives after the last byte of the transfer, or with the state of a transfer that is not
    /// done. NULL with `notice_bytes` 0: none; not NULL with 0: one without bytes.
    pub notice: *const u8,
    /// Its bytes, at most WV_NOTICE_BYTES.
    pub notice_bytes: usize,
    /// 1: each operation, a WRITE, counts once at `counter` of the peer, after its last byte. It is posted only once, because a
    /// WRITE that failed may have counted.
    pub counts: u32,
    /// The counter, below WV_COUNTERS.
    pub counter: u32,
}

sized!(wv_transfer_options {
    deadline_ms,
    wait_ms,
    notice,
    notice_bytes,
    counts,
    counter
});

/// The result of a transfer. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_transfer_report {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// WV_TRANSFER_...
    pub state: u32,
    /// 1: the peer has not said that its QPs are reset, so bytes may land in its memory until it does. Memory of this side is
    /// quiet.
    pub remote_unknown: u32,
    /// Bytes that are known to have landed.
    pub bytes_landed: u64,
    /// How many operations the transfer has.
    pub operations: u64,
    /// 1: the fields below describe the first failure.
    pub has_failure: u32,
    /// The operation, from 0 on.
    pub operation: u32,
    /// Address in the peer's memory at which the WQE would have begun.
    pub remote: u64,
    /// The QP; 0: no QP was left.
    pub qp: u32,
    /// `syndrome` of the CQE; 0: it was never posted.
    pub syndrome: u32,
    /// `vendor_err_synd` of the CQE.
    pub vendor: u32,
    /// Zero.
    pub reserved: u32,
    /// 1: `rail` holds the rail of that WQE.
    pub has_rail: u32,
    /// The rail, from 0 on, see wv_engine_get_rail.
    pub rail: u32,
}

sized!(wv_transfer_report {
    state,
    remote_unknown,
    bytes_landed,
    operations,
    has_failure,
    operation,
    remote,
    qp,
    syndrome,
    vendor,
    reserved,
    has_rail,
    rail
});

impl wv_transfer {
    fn of(id: TransferId) -> Self {
        let [place, generation] = id.to_words();
        Self { place, generation }
    }

    pub(crate) fn id(self) -> TransferId {
        TransferId::from_words([self.place, self.generation])
    }
}

impl wv_operation {
    fn read(&self, number: usize) -> Result<Operation, Failure> {
        if self.reserved != 0 {
            let name = format!("reserved of operation {number}");
            return Err(Failure::argument(&name, self.reserved, "0"));
        }
        let kind = match self.kind {
            WV_WRITE => Kind::Write,
            WV_READ => Kind::Read,
            other => {
                let name = format!("kind of operation {number}");
                return Err(Failure::argument(&name, other, "WV_WRITE or WV_READ"));
            }
        };
        Ok(Operation {
            kind,
            local: self.local,
            remote: self.remote,
            bytes: self.bytes,
        })
    }
}

fn state_of(status: Status) -> u32 {
    match status {
        Status::Pending => WV_TRANSFER_PENDING,
        Status::Concluded(outcome) => state_of_outcome(outcome),
        Status::Unknown => WV_TRANSFER_UNKNOWN,
    }
}

pub(crate) fn state_of_outcome(outcome: Outcome) -> u32 {
    match outcome {
        Outcome::Done => WV_TRANSFER_DONE,
        Outcome::Failed => WV_TRANSFER_FAILED,
        Outcome::Cancelled => WV_TRANSFER_CANCELLED,
        Outcome::TimedOut => WV_TRANSFER_TIMED_OUT,
    }
}

impl wv_transfer_report {
    fn of(report: &Report) -> Self {
        let first = report.first;
        let cause = first.and_then(|first| first.cause);
        let rail = first.and_then(|first| first.rail);
        Self {
            size: 0,
            state: state_of_outcome(report.outcome),
            remote_unknown: (report.remote == Remote::Unknown).into(),
            bytes_landed: report.bytes_landed,
            operations: report.operations.len() as u64,
            has_failure: first.is_some().into(),
            operation: first.map_or(0, |first| first.operation),
            remote: first.map_or(0, |first| first.remote),
            qp: first.and_then(|first| first.qp).unwrap_or(0),
            syndrome: cause.map_or(0, |cause| cause.syndrome.into()),
            vendor: cause.map_or(0, |cause| cause.vendor.into()),
            reserved: 0,
            has_rail: rail.is_some().into(),
            rail: rail.unwrap_or(0),
        }
    }
}

/// A transfer that was planned once, to be posted many times.
#[derive(Debug)]
pub struct wv_engine_prepared {
    prepared: Arc<Prepared>,
}

handle!(wv_engine_prepared);

/// The operations that C gives.
///
/// # Safety
/// `operations` holds `count` of them, or is null.
unsafe fn operations_of(
    operations: *const wv_operation,
    count: usize,
) -> Result<Vec<Operation>, Failure> {
    // SAFETY: the caller's promise.
    let given = unsafe { array("operations", operations, count) }?;
    let operations = (0..).zip(given).map(|(number, one)| one.read(number));
    operations.collect()
}

/// Options from C; null: the defaults.
///
/// # Safety
/// `options` is null or a struct whose notice has as many bytes as it says, for as long as the result is used.
unsafe fn options_of<'a>(options: *const wv_transfer_options) -> Result<Options<'a>, Failure> {
    if options.is_null() {
        return Ok(Options::default());
    }
    // SAFETY: the caller's promise.
    let options = unsafe { read("options", options) }?;
    let (notice, bytes) = (options.notice, options.notice_bytes);
    let deadline = (options.deadline_ms != 0).then(|| millis(options.deadline_ms));
    let counter = match options.counts {
        0 => None,
        1 => Some(options.counter),
        other => return Err(Failure::argument("counts", other, "0 or 1")),
    };
    let notice = if notice.is_null() && bytes == 0 {
        None
    } else {
        // SAFETY: the caller's promise.
        Some(unsafe { array("notice", notice, bytes) }?)
    };
    Ok(Options::default()
        .with_deadline(deadline)
        .with_counter(counter)
        .with_notice(notice)
        .with_wait(millis(options.wait_ms)))
}

fn submit(
    peer: *const wv_engine_peer,
    operations: &[Operation],
    options: &Options<'_>,
) -> Result<wv_transfer, Failure> {
    let peer = &wv_engine_peer::behind("peer", peer)?.peer;
    Ok(wv_transfer::of(peer.submit(operations, options)?))
}

fn submit_one(
    peer: *const wv_engine_peer,
    kind: Kind,
    (local, remote, bytes): (u64, u64, u64),
) -> Result<wv_transfer, Failure> {
    let one = Operation {
        kind,
        local,
        remote,
        bytes,
    };
    submit(peer, &[one], &Options::default())
}

/// Begins a transfer that writes `bytes` bytes from `local`, here, to `remote`, at the peer. Never waits.
///
/// # Safety
/// `transfer` is where its name goes. No thread writes the local bytes before the transfer is concluded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_write(
    peer: *const wv_engine_peer,
    local: u64,
    remote: u64,
    bytes: u64,
    transfer: *mut wv_transfer,
) -> wv_status {
    guard(|| {
        room("transfer", transfer)?;
        let begun = submit_one(peer, Kind::Write, (local, remote, bytes))?;
        // SAFETY: checked above.
        unsafe { put("transfer", transfer, begun) }
    })
}

/// Begins a transfer that reads `bytes` bytes from `remote`, at the peer, to `local`, here. Never waits.
///
/// # Safety
/// `transfer` is where its name goes. No thread uses the local bytes before the transfer is concluded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_read(
    peer: *const wv_engine_peer,
    local: u64,
    remote: u64,
    bytes: u64,
    transfer: *mut wv_transfer,
) -> wv_status {
    guard(|| {
        room("transfer", transfer)?;
        let begun = submit_one(peer, Kind::Read, (local, remote, bytes))?;
        // SAFETY: checked above.
        unsafe { put("transfer", transfer, begun) }
    })
}

/// Begins a transfer of `count` operations, 1 to 65,536, in no order among each other. `options` NULL: the defaults, no wait, no
/// notice. WV_WOULD_BLOCK: no slot is free, or the peer has no room for the notice; nothing was posted.
///
/// # Safety
/// `operations` holds `count` of them; `options` is null or a struct whose notice has its bytes; `transfer` is where the name goes.
/// Before the transfer is concluded, no thread uses local bytes that a READ fills, or writes those that a WRITE sends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_submit(
    peer: *const wv_engine_peer,
    operations: *const wv_operation,
    count: usize,
    options: *const wv_transfer_options,
    transfer: *mut wv_transfer,
) -> wv_status {
    guard(|| {
        room("transfer", transfer)?;
        // SAFETY: the caller's promise.
        let operations = unsafe { operations_of(operations, count) }?;
        // SAFETY: the caller's promise.
        let options = unsafe { options_of(options) }?;
        // SAFETY: checked above.
        unsafe { put("transfer", transfer, submit(peer, &operations, &options)?) }
    })
}

/// Plans a transfer of `count` operations once, to be posted many times: it looks up ranges and cuts slices now. Moves no byte.
///
/// # Safety
/// `operations` holds `count` of them; `prepared` is where the handle goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_prepare(
    peer: *const wv_engine_peer,
    operations: *const wv_operation,
    count: usize,
    prepared: *mut *mut wv_engine_prepared,
) -> wv_status {
    // SAFETY: the caller's promise.
    guard(|| unsafe { prepare(peer, (operations, count), prepared, Peer::prepare) })
}

/// As wv_engine_prepare, for WRITEs that may be posted with `counts`: each is one WRITE of the HCA.
///
/// # Safety
/// As for wv_engine_prepare.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_prepare_counting(
    peer: *const wv_engine_peer,
    operations: *const wv_operation,
    count: usize,
    prepared: *mut *mut wv_engine_prepared,
) -> wv_status {
    // SAFETY: the caller's promise.
    guard(|| unsafe { prepare(peer, (operations, count), prepared, Peer::prepare_counting) })
}

/// Plans by `plan`.
///
/// # Safety
/// As for [`wv_engine_prepare`].
unsafe fn prepare(
    peer: *const wv_engine_peer,
    (operations, count): (*const wv_operation, usize),
    prepared: *mut *mut wv_engine_prepared,
    plan: impl FnOnce(&Peer, &[Operation]) -> Result<Arc<Prepared>, EngineError>,
) -> Result<(), Failure> {
    room("prepared", prepared)?;
    // SAFETY: the caller's promise.
    let operations = unsafe { operations_of(operations, count) }?;
    let peer = &wv_engine_peer::behind("peer", peer)?.peer;
    let made = plan(peer, &operations)?;
    let handle = wv_engine_prepared { prepared: made }.hand_out();
    // SAFETY: checked above.
    unsafe { put("prepared", prepared, handle) }
}

/// Begins a transfer that was prepared for this peer, over this connection or an earlier one to the same life of the peer. It may
/// be posted again while earlier posts run. `options` as for wv_engine_submit.
///
/// # Safety
/// `options` is null or a struct whose notice has its bytes; `transfer` is where the name goes. Memory is used as by wv_engine_submit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_post(
    peer: *const wv_engine_peer,
    prepared: *const wv_engine_prepared,
    options: *const wv_transfer_options,
    transfer: *mut wv_transfer,
) -> wv_status {
    guard(|| {
        room("transfer", transfer)?;
        let peer = &wv_engine_peer::behind("peer", peer)?.peer;
        let prepared = &wv_engine_prepared::behind("prepared", prepared)?.prepared;
        // SAFETY: the caller's promise.
        let options = unsafe { options_of(options) }?;
        let id = peer.post(prepared, &options)?;
        // SAFETY: checked above.
        unsafe { put("transfer", transfer, wv_transfer::of(id)) }
    })
}

/// Gives a plan back. Transfers that were posted go on. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn wv_engine_prepared_destroy(prepared: *mut wv_engine_prepared) -> wv_status {
    guard(|| wv_engine_prepared::take_back("prepared", prepared))
}

/// Gets the state of a transfer: WV_TRANSFER_... Any number of polls return the same, until it is released. Never waits.
///
/// # Safety
/// `state` is a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_poll(
    engine: *const wv_engine,
    transfer: wv_transfer,
    state: *mut u32,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        let status = engine.poll(transfer.id())?;
        // SAFETY: the caller's promise.
        unsafe { put("state", state, state_of(status)) }
    })
}

/// Gets the states of `count` transfers, in their order. It releases none.
///
/// # Safety
/// `transfers` and `states` hold `count` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_poll_many(
    engine: *const wv_engine,
    transfers: *const wv_transfer,
    count: usize,
    states: *mut u32,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        // SAFETY: the caller's promise.
        let given = unsafe { array("transfers", transfers, count) }?;
        if count > 0 {
            room("states", states)?;
        }
        let ids: Vec<TransferId> = given.iter().map(|one| one.id()).collect();
        let mut found = Vec::new();
        engine.poll_many(&ids, &mut found)?;
        for (number, status) in found.into_iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { put("states", states.add(number), state_of(status)) }?;
        }
        Ok(())
    })
}

/// Waits until a transfer is concluded, and says what became of it. WV_TIMEOUT: it still runs after `timeout_ms`; wv_engine_waits_for,
/// wv_engine_stalled, and the words of the error, say what it waits for and whether something completes.
///
/// # Safety
/// `state` is a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_wait(
    engine: *const wv_engine,
    transfer: wv_transfer,
    timeout_ms: u32,
    state: *mut u32,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        room("state", state)?;
        let status = engine.wait(transfer.id(), millis(timeout_ms))?;
        if status == Status::Pending {
            let waits_for = engine.waits_for(transfer.id())?;
            let waits_for = waits_for.map(|what| format!("; it waits for {what}"));
            let rails = engine.stalled(transfer.id())?;
            let rails = rails.iter().map(|rail| format!("; {rail}"));
            return Err(late(
                timeout_ms,
                &waits_for.into_iter().chain(rails).collect::<String>(),
            ));
        }
        // SAFETY: checked above.
        unsafe { put("state", state, state_of(status)) }
    })
}

/// Waits until one of `count` transfers is concluded or unknown; `which` gets its index. WV_TIMEOUT: all still run after
/// `timeout_ms`.
///
/// # Safety
/// `transfers` holds `count` of them; `which` is a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_wait_any(
    engine: *const wv_engine,
    transfers: *const wv_transfer,
    count: usize,
    timeout_ms: u32,
    which: *mut usize,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        room("which", which)?;
        // SAFETY: the caller's promise.
        let given = unsafe { array("transfers", transfers, count) }?;
        if count == 0 {
            return Err(Failure::argument("count", 0, "at least 1"));
        }
        let ids: Vec<TransferId> = given.iter().map(|one| one.id()).collect();
        let found = engine.wait_any(&ids, millis(timeout_ms))?;
        // SAFETY: checked above.
        unsafe { put("which", which, found.ok_or_else(|| late(timeout_ms, ""))?) }
    })
}

fn late(timeout_ms: u32, why: &str) -> Failure {
    let words = format!("nothing was concluded for {timeout_ms} ms{why}");
    Failure::new(wv_status::WV_TIMEOUT, words)
}

/// Cancels a transfer: no slice of it is posted any more. It is concluded when the HCA holds none of its slices; wait for that.
#[unsafe(no_mangle)]
pub extern "C" fn wv_engine_cancel(engine: *const wv_engine, transfer: wv_transfer) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        Ok(engine.cancel(transfer.id())?)
    })
}

/// Gets the result of a transfer that is concluded and not released; WV_BUSY if it still runs. `operations` may be NULL. It gets
/// one WV_OPERATION_... byte for each operation, at most `count`.
///
/// # Safety
/// `report` is a struct; `operations` is null or has room for `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_report(
    engine: *const wv_engine,
    transfer: wv_transfer,
    report: *mut wv_transfer_report,
    operations: *mut u8,
    count: usize,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        // SAFETY: the caller's promise.
        let place = unsafe { place("report", report) }?;
        let found = engine.report(transfer.id())?;
        place.fill(wv_transfer_report::of(&found));
        if operations.is_null() {
            return Ok(());
        }
        for (number, status) in found.operations.iter().take(count).enumerate() {
            let byte = match status {
                OperationStatus::Done => WV_OPERATION_DONE,
                OperationStatus::Failed => WV_OPERATION_FAILED,
                OperationStatus::NotPosted => WV_OPERATION_NOT_POSTED,
            };
            // SAFETY: the caller's promise: below `count`.
            unsafe { put("operations", operations.add(number), byte) }?;
        }
        Ok(())
    })
}

/// Gives the slot of a concluded transfer back; after that its name is unknown. WV_BUSY if it still runs. Releasing it twice does
/// no harm.
#[unsafe(no_mangle)]
pub extern "C" fn wv_engine_release(engine: *const wv_engine, transfer: wv_transfer) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        Ok(engine.release(transfer.id())?)
    })
}
