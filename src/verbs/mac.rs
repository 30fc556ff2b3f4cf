//! The Ethernet address of a GID.
//!
//! The kernel knows the route and the neighbour. This module asks it by an address handle that it makes and destroys at once. DevX QPs need
//! the MAC in their context, and the kernel gives it to verbs QPs in the same way.

// UNSAFETY: calls into libibverbs and libmlx5.
#![expect(unsafe_code, reason = "calls into libibverbs and libmlx5")]

use std::ptr::NonNull;

use crate::sys::bindings::{
    MLX5DV_OBJ_AH, ibv_ah, ibv_ah_attr, ibv_gid, ibv_global_route, mlx5dv_ah, mlx5dv_obj,
};
use crate::verbs::error::{VerbsError, last_errno};
use crate::verbs::gid::Gid;
use crate::verbs::memory::pd::Pd;

/// An address handle. Its drop destroys it.
struct AddressHandle<'a> {
    pd: &'a Pd,
    raw: NonNull<ibv_ah>,
}

/// The question to the kernel: how packets go from an own GID to the GID of a peer.
pub(super) struct Way {
    /// The index of the own GID.
    pub(super) source_index: u8,
    pub(super) remote_gid: Gid,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) priority: u8,
}

/// Returns the MAC of the next hop to the peer. May take as long as ARP takes.
pub(super) fn resolve_mac(pd: &Pd, way: &Way) -> Result<[u8; 6], VerbsError> {
    let sgid_index = way.source_index;
    let mut attr = ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid {
                raw: way.remote_gid.0,
            },
            flow_label: 0,
            sgid_index,
            hop_limit: way.hop_limit,
            traffic_class: way.traffic_class,
        },
        dlid: 0,
        sl: way.priority,
        src_path_bits: 0,
        static_rate: 0,
        is_global: 1,
        port_num: pd.context().port().number,
    };
    let rdma = pd.context().rdma();
    // SAFETY: the domain is alive and `attr` lives through the call.
    let raw = unsafe { rdma.ibv_create_ah(pd.raw(), &raw mut attr) };
    let raw = NonNull::new(raw).ok_or_else(|| {
        let (context, errno) = (pd.context(), last_errno());
        VerbsError::NoMac {
            device: context.name().to_owned(),
            interface: context
                .info()
                .interface(context.port().number, sgid_index.into()),
            own: context.gid(sgid_index.into()).unwrap_or_default(),
            peer: way.remote_gid,
            errno,
        }
    })?;
    AddressHandle { pd, raw }.mac()
}

impl AddressHandle<'_> {
    fn mac(&self) -> Result<[u8; 6], VerbsError> {
        let context = self.pd.context();
        let mut out = mlx5dv_ah {
            av: std::ptr::null_mut(),
            comp_mask: 0,
        };
        // SAFETY: all fields are pointers, for which zero is null.
        let mut object: mlx5dv_obj = unsafe { std::mem::zeroed() };
        object.ah.in_ = self.raw.as_ptr();
        object.ah.out = &raw mut out;
        let kind = u64::from(MLX5DV_OBJ_AH);
        // SAFETY: the handle is alive and `out` lives through the call; no other kind of object is asked for.
        let errno = unsafe { context.rdma().mlx5dv_init_obj(&raw mut object, kind) };
        if errno != 0 {
            return Err(context.failed("mlx5dv_init_obj(AH)", errno));
        }
        let av = NonNull::new(out.av).ok_or_else(|| {
            context
                .device()
                .bad_reply("address vector", "null", "an address")
        })?;
        // SAFETY: the vector is part of the handle, which is alive.
        Ok(unsafe { av.as_ref().rmac })
    }
}

impl Drop for AddressHandle<'_> {
    fn drop(&mut self) {
        let context = self.pd.context();
        // SAFETY: the handle is alive, and only this call takes it down.
        let errno = unsafe { context.rdma().ibv_destroy_ah(self.raw.as_ptr()) };
        if errno != 0 {
            tracing::error!("leaked: {}", context.failed("ibv_destroy_ah", errno));
        }
    }
}
