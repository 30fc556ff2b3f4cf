//! Queues through libibverbs: completion channels, completion queues, queue pairs.
//!
//! Posting and polling are inline functions of the header, which call through the table of the context; so does this.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;

use super::{Device, Memory, Mr, Pd, ibverbs, not_null, zero};
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

const POLL_CQ: usize = 11;
const REQ_NOTIFY_CQ: usize = 12;
const POST_SEND: usize = 25;
const POST_RECV: usize = 26;

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

    /// The next asynchronous event: what it is about (an object's address or a number), and its type.
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

    /// `struct ibv_context`: behind the command's descriptor.
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

/// Whether a descriptor can be read within `milliseconds`.
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

    /// Polls until there is a completion, at most five seconds.
    pub(crate) fn wait(&self) -> Completion {
        let start = std::time::Instant::now();
        loop {
            if let Some(completion) = self.poll() {
                return completion;
            }
            assert!(start.elapsed().as_secs() < 5, "no completion");
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
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

/// `struct ibv_qp`; destroyed by [`Qp::destroy`].
pub(crate) struct Qp(pub(crate) *mut c_void);

/// `enum ibv_qp_type`.
pub(crate) const RC: u32 = 2;

/// `struct ibv_qp_cap`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Cap {
    pub(crate) send_wr: u32,
    pub(crate) recv_wr: u32,
    pub(crate) send_sge: u32,
    pub(crate) recv_sge: u32,
    pub(crate) inline: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(crate) struct InitAttr {
    pub(crate) context: *mut c_void,
    pub(crate) send_cq: *mut c_void,
    pub(crate) recv_cq: *mut c_void,
    pub(crate) srq: *mut c_void,
    pub(crate) cap: Cap,
    pub(crate) kind: u32,
    pub(crate) signal_all: c_int,
}

/// `struct ibv_ah_attr`, its `ibv_global_route` included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub(crate) struct Path {
    pub(crate) gid: [u8; 16],
    pub(crate) flow_label: u32,
    pub(crate) gid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) lid: u16,
    pub(crate) sl: u8,
    pub(crate) path_bits: u8,
    pub(crate) rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port: u8,
}

/// `struct ibv_qp_attr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct QpAttr {
    pub(crate) state: u32,
    pub(crate) current_state: u32,
    pub(crate) mtu: u32,
    pub(crate) migration: u32,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) remote_qpn: u32,
    pub(crate) access: u32,
    pub(crate) cap: Cap,
    pub(crate) path: Path,
    pub(crate) alternate: Path,
    pub(crate) pkey_index: u16,
    pub(crate) alternate_pkey_index: u16,
    pub(crate) drained_notice: u8,
    pub(crate) draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alternate_port: u8,
    pub(crate) alternate_timeout: u8,
    pub(crate) rate_limit: u32,
}
const _: () = assert!(size_of::<QpAttr>() == 144 && size_of::<Path>() == 32);

/// Masks of the three steps of a reliable connection.
pub(crate) mod steps {
    /// State, access, partition key, port.
    pub(crate) const INIT: c_int = 0x1 | 0x8 | 0x10 | 0x20;
    /// State, path, MTU, remote QP, PSN, depth, RNR timer.
    pub(crate) const RTR: c_int = 0x1 | 0x80 | 0x100 | 0x10_0000 | 0x1000 | 0x2_0000 | 0x8000;
    /// State, timeout, retries, PSN, depth.
    pub(crate) const RTS: c_int = 0x1 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x2000;

    use std::ffi::c_int;
}

/// `struct ibv_sge`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Sge {
    address: u64,
    bytes: u32,
    lkey: u32,
}

/// `struct ibv_recv_wr`.
#[repr(C)]
struct RecvWr {
    wr_id: u64,
    next: *mut RecvWr,
    sge: *const Sge,
    sges: c_int,
}

/// `struct ibv_send_wr`, as far as RDMA needs it.
#[repr(C)]
struct SendWr {
    wr_id: u64,
    next: *mut SendWr,
    sge: *const Sge,
    sges: c_int,
    opcode: u32,
    flags: u32,
    immediate: u32,
    remote_address: u64,
    rkey: u32,
    rest: [u32; 13],
}
const _: () = assert!(size_of::<SendWr>() <= 128);

/// What to send.
#[derive(Clone, Copy)]
pub(crate) struct Send<'a> {
    pub(crate) wr_id: u64,
    pub(crate) from: &'a Mr,
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    /// `enum ibv_wr_opcode`: 0 RDMA WRITE, 2 SEND.
    pub(crate) opcode: u32,
    /// Solicited event.
    pub(crate) solicited: bool,
    /// Remote address and key of a WRITE.
    pub(crate) remote: (u64, u32),
}

impl Pd {
    pub(crate) fn create_qp(&self, kind: u32, cap: Cap, send: &Cq, recv: &Cq) -> io::Result<Qp> {
        let create = symbol!(
            ibverbs(),
            "ibv_create_qp",
            fn(*mut c_void, *mut InitAttr) -> *mut c_void
        );
        let mut attr = InitAttr {
            context: ptr::null_mut(),
            send_cq: send.0,
            recv_cq: recv.0,
            srq: ptr::null_mut(),
            cap,
            kind,
            signal_all: 0,
        };
        // SAFETY: a live PD and attributes.
        Ok(Qp(not_null(unsafe { create(self.0, &mut attr) })?))
    }
}

impl Qp {
    /// `struct ibv_qp`: six pointers, handle, number.
    pub(crate) fn qpn(&self) -> u32 {
        // SAFETY: a live queue pair.
        unsafe { self.0.cast::<u32>().add(13).read() }
    }

    pub(crate) fn handle(&self) -> u32 {
        // SAFETY: a live queue pair.
        unsafe { self.0.cast::<u32>().add(12).read() }
    }

    pub(crate) fn modify(&self, attr: &QpAttr, mask: c_int) -> io::Result<()> {
        let modify = symbol!(
            ibverbs(),
            "ibv_modify_qp",
            fn(*mut c_void, *const QpAttr, c_int) -> c_int
        );
        // SAFETY: a live queue pair and attributes.
        zero(unsafe { modify(self.0, attr, mask) })
    }

    pub(crate) fn query(&self) -> QpAttr {
        let query = symbol!(
            ibverbs(),
            "ibv_query_qp",
            fn(*mut c_void, *mut QpAttr, c_int, *mut InitAttr) -> c_int
        );
        let mut attr = QpAttr::default();
        // SAFETY: an all-zero InitAttr is one of null pointers and zeros.
        let mut init: InitAttr = unsafe { std::mem::zeroed() };
        // SAFETY: a live queue pair and places for the answers.
        zero(unsafe { query(self.0, &mut attr, 0xf_ffff, &mut init) }).unwrap();
        attr
    }

    /// Reset to ready-to-send, towards `remote_qpn` at `gid`.
    pub(crate) fn connect(&self, gid: [u8; 16], remote_qpn: u32) {
        let mut attr = QpAttr {
            state: 1,
            access: 0xf,
            port: 1,
            ..QpAttr::default()
        };
        self.modify(&attr, steps::INIT).unwrap();
        attr = QpAttr {
            state: 2,
            mtu: 5,
            remote_qpn,
            rq_psn: 77,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 12,
            path: Path {
                gid,
                gid_index: 3,
                hop_limit: 64,
                is_global: 1,
                port: 1,
                ..Path::default()
            },
            ..attr
        };
        self.modify(&attr, steps::RTR).unwrap();
        attr = QpAttr {
            state: 3,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            sq_psn: 77,
            max_rd_atomic: 4,
            ..attr
        };
        self.modify(&attr, steps::RTS).unwrap();
    }

    pub(crate) fn post_recv(&self, wr_id: u64, mr: &Mr, address: u64, bytes: u32) {
        let post = operation!(
            self.0,
            POST_RECV,
            fn(*mut c_void, *mut RecvWr, *mut *mut RecvWr) -> c_int
        );
        let sge = Sge {
            address,
            bytes,
            lkey: mr.lkey(),
        };
        let mut request = RecvWr {
            wr_id,
            next: ptr::null_mut(),
            sge: &sge,
            sges: 1,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair and one request.
        zero(unsafe { post(self.0, &mut request, &mut bad) }).unwrap();
    }

    pub(crate) fn post_send(&self, send: Send<'_>) {
        const SIGNALED: u32 = 2;
        const SOLICITED: u32 = 4;
        let post = operation!(
            self.0,
            POST_SEND,
            fn(*mut c_void, *mut SendWr, *mut *mut SendWr) -> c_int
        );
        let sge = Sge {
            address: send.address,
            bytes: send.bytes,
            lkey: send.from.lkey(),
        };
        let mut request = SendWr {
            wr_id: send.wr_id,
            next: ptr::null_mut(),
            sge: &sge,
            sges: 1,
            opcode: send.opcode,
            flags: SIGNALED | if send.solicited { SOLICITED } else { 0 },
            immediate: 0,
            remote_address: send.remote.0,
            rkey: send.remote.1,
            rest: [0; 13],
        };
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair and one request.
        zero(unsafe { post(self.0, &mut request, &mut bad) }).unwrap();
    }

    pub(crate) fn destroy(self) -> io::Result<()> {
        let destroy = symbol!(ibverbs(), "ibv_destroy_qp", fn(*mut c_void) -> c_int);
        // SAFETY: a live queue pair.
        zero(unsafe { destroy(self.0) })
    }
}

/// Address of the first byte of `memory`.
pub(crate) fn address(memory: &Memory) -> u64 {
    memory.address().expose_provenance() as u64
}
