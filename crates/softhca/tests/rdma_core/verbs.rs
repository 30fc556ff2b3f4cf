//! Queues through libibverbs: completion channels, completion queues, queue pairs.
//!
//! Posting and polling are inline functions of the header, which call through the table of the context; so does this.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;

use super::patience::wait_until;
use super::{Device, Memory, ibverbs, not_null, zero};
use libloading::Symbol;

/// Calls the function at `index` of the context's table (`struct ibv_context_ops`).
macro_rules! operation {
    ($object:expr, $index:expr, fn($($argument:ty),*) -> $result:ty) => {{
        // SAFETY: each verbs struct begins with its context, which begins with the device and the table; the
        // signature is that of the header.
        unsafe {
            let context = $object.cast::<*const *const c_void>().read();
            let function = context.add(1 + $index).read();
            std::mem::transmute::<*const c_void, unsafe extern "C" fn($($argument),*) -> $result>(function)
        }
    }};
}

pub(super) use operation;

const POLL_CQ: usize = 11;
const REQ_NOTIFY_CQ: usize = 12;

/// `struct ibv_comp_channel`; destroyed by [`Channel::destroy`].
pub(crate) struct Channel(pub(crate) *mut c_void);

impl Device {
    pub(crate) fn create_channel(&self) -> Channel {
        let create = symbol!(
            ibverbs(),
            "ibv_create_comp_channel",
            fn(*mut c_void) -> *mut c_void
        );
        // SAFETY: a live context.
        Channel(not_null(unsafe { create(self.context) }).unwrap())
    }

    pub(crate) fn create_cq(&self, entries: c_int, channel: Option<&Channel>) -> io::Result<Cq> {
        let create = symbol!(
            ibverbs(),
            "ibv_create_cq",
            fn(*mut c_void, c_int, *mut c_void, *mut c_void, c_int) -> *mut c_void
        );
        let channel = channel.map_or(ptr::null_mut(), |channel| channel.0);
        // SAFETY: a live context and channel.
        let cq = unsafe { create(self.context, entries, ptr::null_mut(), channel, 0) };
        Ok(Cq(not_null(cq)?))
    }

    /// Returns the next asynchronous event: what it is about (an object's address or a number), and its type.
    pub(crate) fn async_event(&self) -> (u64, u32) {
        let get = symbol!(
            ibverbs(),
            "ibv_get_async_event",
            fn(*mut c_void, *mut AsyncEvent) -> c_int
        );
        let acknowledge = symbol!(ibverbs(), "ibv_ack_async_event", fn(*mut AsyncEvent));
        let mut event = AsyncEvent {
            element: 0,
            kind: u32::MAX,
        };
        // SAFETY: a live context and a place for the event, which is then acknowledged.
        unsafe {
            zero(get(self.context, &mut event)).unwrap();
            acknowledge(&mut event);
        }
        (event.element, event.kind)
    }

    /// `struct ibv_context`: after the command's descriptor.
    pub(crate) fn async_fd(&self) -> c_int {
        // SAFETY: the context is a `struct ibv_context`.
        unsafe { self.context.cast::<c_int>().add(2 + 2 * 32 + 1).read() }
    }
}

#[repr(C)]
struct AsyncEvent {
    element: u64,
    kind: u32,
}

impl Channel {
    /// `struct ibv_comp_channel`: context, descriptor.
    pub(crate) fn fd(&self) -> c_int {
        // SAFETY: a live channel.
        unsafe { self.0.cast::<c_int>().add(2).read() }
    }

    /// Waits for the next event; the queue that it is about. To be acknowledged.
    pub(crate) fn wait(&self) -> *mut c_void {
        let get = symbol!(
            ibverbs(),
            "ibv_get_cq_event",
            fn(*mut c_void, *mut *mut c_void, *mut *mut c_void) -> c_int
        );
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a live channel and two places for pointers.
        zero(unsafe { get(self.0, &mut cq, &mut context) }).unwrap();
        cq
    }

    pub(crate) fn destroy(self) -> io::Result<()> {
        let destroy = symbol!(
            ibverbs(),
            "ibv_destroy_comp_channel",
            fn(*mut c_void) -> c_int
        );
        // SAFETY: a live channel.
        zero(unsafe { destroy(self.0) })
    }
}

/// How long a test waits for a descriptor that must become readable: `patience::HANG`, in milliseconds.
pub(crate) const LONG_MS: c_int = 100_000;

/// Returns whether a descriptor can be read within `milliseconds`.
pub(crate) fn is_readable(fd: c_int, milliseconds: c_int) -> bool {
    let mut polled = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry.
    unsafe { libc::poll(&mut polled, 1, milliseconds) == 1 }
}

/// `struct ibv_cq`; destroyed by [`Cq::destroy`].
pub(crate) struct Cq(pub(crate) *mut c_void);

/// `struct ibv_wc`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Completion {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) vendor_error: u32,
    pub(crate) bytes: u32,
    pub(crate) immediate: u32,
    pub(crate) qpn: u32,
    pub(crate) source_qpn: u32,
    pub(crate) flags: u32,
    pub(crate) pkey_index: u16,
    pub(crate) source_lid: u16,
    pub(crate) sl: u8,
    pub(crate) path_bits: u8,
}

impl Cq {
    /// `struct ibv_cq`: context, channel, application's pointer, handle, entries.
    pub(crate) fn entries(&self) -> c_int {
        // SAFETY: a live queue.
        unsafe { self.0.cast::<c_int>().add(7).read() }
    }

    pub(crate) fn handle(&self) -> u32 {
        // SAFETY: a live queue.
        unsafe { self.0.cast::<u32>().add(6).read() }
    }

    pub(crate) fn arm(&self, solicited_only: bool) {
        let notify = operation!(self.0, REQ_NOTIFY_CQ, fn(*mut c_void, c_int) -> c_int);
        // SAFETY: a live queue.
        assert_eq!(unsafe { notify(self.0, solicited_only.into()) }, 0);
    }

    pub(crate) fn acknowledge(&self, events: u32) {
        let acknowledge = symbol!(ibverbs(), "ibv_ack_cq_events", fn(*mut c_void, u32));
        // SAFETY: a live queue.
        unsafe { acknowledge(self.0, events) };
    }

    pub(crate) fn poll(&self) -> Option<Completion> {
        let poll = operation!(
            self.0,
            POLL_CQ,
            fn(*mut c_void, c_int, *mut Completion) -> c_int
        );
        let mut completion = Completion::default();
        // SAFETY: a live queue and room for one completion.
        match unsafe { poll(self.0, 1, &mut completion) } {
            0 => None,
            1 => Some(completion),
            error => panic!("ibv_poll_cq: {error}"),
        }
    }

    /// Polls until the CQ gives a completion.
    pub(crate) fn wait(&self) -> Completion {
        let mut completion = None;
        wait_until("a completion", || {
            completion = self.poll();
            completion.is_some()
        });
        completion.expect("it was waited for")
    }

    pub(crate) fn resize(&self, entries: c_int) -> io::Result<()> {
        let resize = symbol!(ibverbs(), "ibv_resize_cq", fn(*mut c_void, c_int) -> c_int);
        // SAFETY: a live queue.
        zero(unsafe { resize(self.0, entries) })
    }

    pub(crate) fn destroy(self) -> io::Result<()> {
        let destroy = symbol!(ibverbs(), "ibv_destroy_cq", fn(*mut c_void) -> c_int);
        // SAFETY: a live queue.
        zero(unsafe { destroy(self.0) })
    }
}

/// Address of the first byte of `memory`.
pub(crate) fn address(memory: &Memory) -> u64 {
    memory.address().expose_provenance() as u64
}
