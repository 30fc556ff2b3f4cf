//! A QP of type RC: its states, and posts to it.
//!
//! The caller knows the QP's state. The kernel refuses a step that the state does not have.

// UNSAFETY: calls into libibverbs with the QP.
#![expect(unsafe_code, reason = "calls into libibverbs")]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::sys::bindings::{
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS,
    IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_RETRY_CNT,
    IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT, IBV_QPS_ERR,
    IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RC, ibv_qp, ibv_qp_attr,
    ibv_qp_init_attr, ibv_recv_wr,
};
use crate::sys::{self, inline};
use crate::verbs::error::{VerbsError, last_errno};
use crate::verbs::plain::context::PlainContext;
use crate::verbs::plain::cq::{PlainCq, Share};
use crate::verbs::plain::domain::PlainPd;
use crate::verbs::plain::path;
use crate::verbs::plain::requests::RequestList;
use crate::verbs::qp::attr::{PathAttr, SendAttr};

/// The sizes of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainQpShape {
    /// The most requests of the send queue.
    pub(crate) sends: u32,
    /// The most requests of the receive queue.
    pub(crate) receives: u32,
    /// The most local ranges of a request.
    pub(crate) ranges: u32,
    /// The most bytes that a request carries. A QP carries none if the device refuses so many.
    pub(crate) inline: u32,
    /// The partition key. None: the first key of the port.
    pub(crate) pkey: Option<u16>,
}

impl PlainQpShape {
    /// Returns the entries of a CQ that the QP takes.
    pub(crate) const fn entries(&self) -> u32 {
        self.sends.saturating_add(self.receives)
    }
}

/// What the device says of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainStatus {
    /// True if the QP is in the error state.
    pub(crate) has_failed: bool,
    /// The number of the next packet that it sends.
    pub(crate) next_send_psn: u32,
}

/// A post that was not taken whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainRefusal {
    /// How many of its requests were taken.
    pub(crate) taken: usize,
    /// The error number of the provider.
    pub(crate) errno: i32,
}

/// A QP. One thread posts to it.
pub(crate) struct PlainQp {
    raw: NonNull<ibv_qp>,
    qpn: u32,
    inline: u32,
    pkey_index: u16,
    pd: Arc<PlainPd>,
    /// Given back after the QP is destroyed.
    share: Share,
}

// SAFETY: providers of libibverbs lock their QPs, so any thread may use them.
unsafe impl Send for PlainQp {}
// SAFETY: as for Send.
unsafe impl Sync for PlainQp {}

impl PlainQp {
    /// Makes a QP in Reset whose requests complete in `cq`.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] for sizes that the device or the CQ does not have, or a partition key that the port does not have;
    /// [`VerbsError::Call`].
    pub(crate) fn create(
        pd: &Arc<PlainPd>,
        cq: &Arc<PlainCq>,
        shape: &PlainQpShape,
    ) -> Result<Self, VerbsError> {
        let context = pd.context();
        check(context, shape)?;
        let (pkey_index, _) = context.port().pkey(shape.pkey)?;
        let share = cq.share(shape.entries())?;
        // No verb asks how much a request may carry, so a refused QP is tried again without that.
        let made = create(pd, &share, shape).or_else(|error| {
            if shape.inline == 0 {
                return Err(error);
            }
            let without = PlainQpShape {
                inline: 0,
                ..*shape
            };
            let made = create(pd, &share, &without)?;
            tracing::debug!("WRITEs of {} carry no bytes: {error}", context.name());
            Ok(made)
        })?;
        Ok(Self {
            raw: made.raw,
            qpn: made.qpn,
            inline: made.inline.min(shape.inline),
            pkey_index,
            pd: Arc::clone(pd),
            share,
        })
    }

    /// Returns the number of the QP.
    pub(crate) fn qpn(&self) -> u32 {
        self.qpn
    }

    /// Returns the most bytes that a request carries.
    pub(crate) fn inline(&self) -> u32 {
        self.inline
    }

    /// Takes the QP from Reset to Init.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Call`].
    pub(crate) fn init(&self) -> Result<(), VerbsError> {
        let mut attr = no_attributes();
        let mut rights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        if self.context().limits().atomics {
            rights |= IBV_ACCESS_REMOTE_ATOMIC;
        }
        attr.qp_state = IBV_QPS_INIT;
        attr.pkey_index = self.pkey_index;
        attr.port_num = self.context().port().number;
        attr.qp_access_flags = rights;
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        self.modify("ibv_modify_qp (to Init)", attr, mask)
    }

    /// Takes the QP from Init to Rtr. It has no options of enhanced connection establishment, so those of the peer's QP do not count.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] for a path that the port does not have; [`VerbsError::Call`].
    pub(crate) fn ready_to_receive(&self, path: &PathAttr) -> Result<(), VerbsError> {
        let own = self.context().own_port();
        let mtu = path.check(own.port())?;
        let mut attr = no_attributes();
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = mtu as u32;
        attr.dest_qp_num = path.remote_qpn;
        attr.rq_psn = path.psn;
        attr.max_dest_rd_atomic = 1 << own.log_reads();
        attr.min_rnr_timer = path.min_rnr_timer;
        attr.ah_attr = path::address(own, &path.address)?;
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        self.modify("ibv_modify_qp (to RTR)", attr, mask)
    }

    /// Takes the QP from Rtr to Rts.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`]; [`VerbsError::Call`].
    pub(crate) fn ready_to_send(&self, send: &SendAttr) -> Result<(), VerbsError> {
        send.check()?;
        let most = self.context().limits().log_own_reads;
        let mut attr = no_attributes();
        attr.qp_state = IBV_QPS_RTS;
        attr.sq_psn = send.psn;
        attr.timeout = send.timeout;
        attr.retry_cnt = send.retry;
        attr.rnr_retry = send.rnr_retry;
        attr.max_rd_atomic = 1 << send.log_peer_reads.unwrap_or(most).min(most);
        let mask = IBV_QP_STATE
            | IBV_QP_SQ_PSN
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify("ibv_modify_qp (to RTS)", attr, mask)
    }

    /// Puts the QP into the error state: all requests that are posted complete, in error if they are not done.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Call`].
    pub(crate) fn to_error(&self) -> Result<(), VerbsError> {
        let mut attr = no_attributes();
        attr.qp_state = IBV_QPS_ERR;
        self.modify("ibv_modify_qp (to error)", attr, IBV_QP_STATE)
    }

    /// Resets the QP: no packet of its life lands or is sent any more.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Call`].
    pub(crate) fn reset(&self) -> Result<(), VerbsError> {
        let mut attr = no_attributes();
        attr.qp_state = IBV_QPS_RESET;
        self.modify("ibv_modify_qp (to Reset)", attr, IBV_QP_STATE)
    }

    /// Returns what the device says of the QP.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Call`].
    pub(crate) fn query(&self) -> Result<PlainStatus, VerbsError> {
        let mut attr = no_attributes();
        // SAFETY: all fields are integers and pointers, for which zero is a value.
        let mut init: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        let mask = mask_of(IBV_QP_STATE | IBV_QP_SQ_PSN);
        let rdma = self.context().rdma();
        // SAFETY: the QP is alive, and both structures live through the call.
        let errno = unsafe { rdma.ibv_query_qp(self.raw(), &raw mut attr, mask, &raw mut init) };
        match errno {
            0 => Ok(PlainStatus {
                has_failed: attr.qp_state == IBV_QPS_ERR,
                next_send_psn: attr.sq_psn,
            }),
            errno => Err(self.context().failed("ibv_query_qp", errno.abs())),
        }
    }

    /// Posts all requests of a list, in order. The device may execute them from now on.
    ///
    /// # Errors
    ///
    /// How many were taken, and why the next one was not.
    pub(crate) fn post(&self, list: &mut RequestList) -> Result<(), PlainRefusal> {
        if list.is_empty() {
            return Ok(());
        }
        let first = list.linked();
        let mut bad = std::ptr::null_mut();
        // SAFETY: the QP is alive. The list is linked, and neither changes nor moves during the call. The bytes that it carries lie in it.
        let errno = unsafe { inline::ibv_post_send(self.raw(), first, &mut bad) };
        kick();
        match errno {
            0 => Ok(()),
            errno => Err(PlainRefusal {
                taken: list.place_of(bad).unwrap_or(0),
                errno: errno.abs(),
            }),
        }
    }

    /// Posts a receive request of no bytes for each of these names.
    ///
    /// # Errors
    ///
    /// How many were taken, and why the next one was not.
    pub(crate) fn post_receives(&self, ids: impl Iterator<Item = u64>) -> Result<(), PlainRefusal> {
        for (taken, wr_id) in ids.enumerate() {
            let mut request = ibv_recv_wr {
                wr_id,
                next: std::ptr::null_mut(),
                sg_list: std::ptr::null_mut(),
                num_sge: 0,
            };
            let mut bad = std::ptr::null_mut();
            // SAFETY: the QP is alive, and the request lives through the call.
            let errno = unsafe { inline::ibv_post_recv(self.raw(), &raw mut request, &mut bad) };
            if errno != 0 {
                let errno = errno.abs();
                return Err(PlainRefusal { taken, errno });
            }
        }
        Ok(())
    }

    fn modify(
        &self,
        call: &'static str,
        mut attr: ibv_qp_attr,
        mask: u32,
    ) -> Result<(), VerbsError> {
        let rdma = self.context().rdma();
        // SAFETY: the QP is alive, and `attr` lives through the call.
        let errno = unsafe { rdma.ibv_modify_qp(self.raw(), &raw mut attr, mask_of(mask)) };
        match errno {
            0 => Ok(()),
            errno => Err(self.context().failed(call, errno.abs())),
        }
    }

    fn context(&self) -> &Arc<PlainContext> {
        self.pd.context()
    }

    fn raw(&self) -> *mut ibv_qp {
        self.raw.as_ptr()
    }
}

/// Refuses sizes that no QP of the device has.
fn check(context: &PlainContext, shape: &PlainQpShape) -> Result<(), VerbsError> {
    let limits = context.limits();
    for (what, value, most) in [
        ("requests of a send queue", shape.sends, limits.requests),
        (
            "requests of a receive queue",
            shape.receives,
            limits.requests,
        ),
        ("local ranges of a request", shape.ranges, limits.ranges),
    ] {
        if value > most {
            let limit = format!("at most {most}, the most of {}", context.name());
            return Err(VerbsError::argument(what, value, limit));
        }
    }
    Ok(())
}

/// A QP of libibverbs.
struct Made {
    raw: NonNull<ibv_qp>,
    qpn: u32,
    inline: u32,
}

fn create(pd: &PlainPd, share: &Share, shape: &PlainQpShape) -> Result<Made, VerbsError> {
    let context = pd.context();
    // SAFETY: all fields are integers and pointers, for which zero is a value.
    let mut init: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
    init.send_cq = share.cq().raw();
    init.recv_cq = share.cq().raw();
    init.qp_type = IBV_QPT_RC;
    init.cap.max_send_wr = shape.sends;
    init.cap.max_recv_wr = shape.receives;
    init.cap.max_send_sge = shape.ranges;
    init.cap.max_recv_sge = 1;
    init.cap.max_inline_data = shape.inline;
    // SAFETY: domain and CQ are alive and of one context; `init` lives through the call.
    let raw = unsafe { context.rdma().ibv_create_qp(pd.raw(), &raw mut init) };
    let raw = NonNull::new(raw).ok_or_else(|| context.failed("ibv_create_qp", last_errno()))?;
    Ok(Made {
        // SAFETY: libibverbs returned a QP, whose number does not change.
        qpn: unsafe { raw.as_ref().qp_num },
        raw,
        inline: init.cap.max_inline_data,
    })
}

fn no_attributes() -> ibv_qp_attr {
    // SAFETY: all fields are integers, or unions and structures of integers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

fn mask_of(mask: u32) -> i32 {
    mask.cast_signed()
}

/// Announces a post to a software HCA of this process.
fn kick() {
    if let Some(kick) = sys::softhca_kick() {
        kick();
    }
}

impl Drop for PlainQp {
    fn drop(&mut self) {
        // SAFETY: the QP is alive, and no code names it again.
        let errno = unsafe { self.context().rdma().ibv_destroy_qp(self.raw()) };
        if errno != 0 {
            tracing::error!("leaked: {}", self.context().failed("ibv_destroy_qp", errno));
            // The device still has the QP, so its CQ and its domain stay.
            std::mem::forget((Arc::clone(self.share.cq()), Arc::clone(&self.pd)));
        }
    }
}

impl fmt::Debug for PlainQp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlainQp({:#x})", self.qpn)
    }
}
