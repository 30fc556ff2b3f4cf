//! What `fi_getinfo` says of one device and profile.

// UNSAFETY: fields of structures that are made here.
#![expect(unsafe_code, reason = "structures of C")]

use std::ffi::CString;

use libfabric_abi::bindings::{
    FI_ADDR_EFA, FI_AV_TABLE, FI_BUS_PCI, FI_CLASS_NIC, FI_COMPLETION, FI_DELIVERY_COMPLETE,
    FI_EP_RDM, FI_HMEM, FI_INJECT_COMPLETE, FI_LINK_UP, FI_LOCAL_COMM, FI_MR_HMEM,
    FI_ORDER_ATOMIC_RAR, FI_ORDER_ATOMIC_RAW, FI_ORDER_ATOMIC_WAR, FI_ORDER_ATOMIC_WAW,
    FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL, FI_PROTO_EFA, FI_READ, FI_REMOTE_COMM, FI_REMOTE_READ,
    FI_REMOTE_WRITE, FI_RM_ENABLED, FI_RMA, FI_THREAD_SAFE, FI_TRANSMIT_COMPLETE, FI_WRITE,
    fi_bus_attr, fi_device_attr, fi_domain_attr, fi_info, fi_link_attr, fid_nic,
};

use libfabric_abi::Version;

use super::copies::empty;
use super::memory::{text, zeroed};
use crate::calls;
use crate::config::{Config, Profile};
use crate::engine::ADDRESS_BYTES;

/// What a description has of the call, beside its profile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Of the device, from 0.
    pub(crate) nic: u32,
    /// Of the configuration in the table of the process.
    pub(crate) config: usize,
    /// That the program asks for: its objects go by it.
    pub(crate) api: Version,
}

impl Place {
    pub(crate) fn domain_name(self) -> String {
        match self.config {
            0 => format!("softofi{}-rdm", self.nic),
            config => format!("softofi{}-rdm.{config}", self.nic),
        }
    }
}

/// All that an endpoint of this profile may be asked for.
pub(crate) fn caps(config: &Config) -> u64 {
    let hmem = if config.hmem { FI_HMEM } else { 0 };
    FI_RMA | RIGHTS | FI_LOCAL_COMM | FI_REMOTE_COMM | hmem
}

/// What `FI_RMA` means without any of them.
pub(crate) const RIGHTS: u64 = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

/// A description. Null when there is no memory.
pub(crate) fn build(profile: Profile, config: &Config, place: Place) -> *mut fi_info {
    let pointer = empty();
    // SAFETY: made here, with its attributes; nobody else has it.
    let Some(info) = (unsafe { pointer.as_mut() }) else {
        return pointer;
    };
    info.caps = caps(config);
    info.mode = profile.mode();
    info.addr_format = FI_ADDR_EFA;
    info.src_addrlen = ADDRESS_BYTES;
    info.src_addr = zeroed::<[u8; ADDRESS_BYTES]>().cast();
    info.nic = nic(place.nic);
    // SAFETY: attributes of a description of our own, or null without memory.
    unsafe {
        if let Some(tx) = info.tx_attr.as_mut() {
            tx.caps = info.caps & !(FI_REMOTE_READ | FI_REMOTE_WRITE);
            tx.mode = info.mode;
            tx.op_flags =
                FI_COMPLETION | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_INJECT_COMPLETE;
            tx.msg_order = orders(profile);
            tx.inject_size = profile.inject_size();
            tx.size = config.queue;
            tx.iov_limit = profile.ranges();
            tx.rma_iov_limit = profile.ranges();
        }
        if let Some(rx) = info.rx_attr.as_mut() {
            rx.caps = info.caps & !(FI_READ | FI_WRITE);
            rx.mode = info.mode;
            rx.op_flags = FI_COMPLETION;
            rx.msg_order = orders(profile);
            rx.size = config.queue;
            rx.iov_limit = profile.ranges();
        }
        if let Some(ep) = info.ep_attr.as_mut() {
            ep.type_ = FI_EP_RDM;
            ep.protocol = FI_PROTO_EFA;
            ep.protocol_version = 1;
            ep.max_msg_size = profile.longest();
            ep.tx_ctx_cnt = 1;
            ep.rx_ctx_cnt = 1;
        }
        if let Some(domain) = info.domain_attr.as_mut() {
            fill_domain(domain, profile, config);
            domain.name = owned(&place.domain_name());
        }
        if let Some(fabric) = info.fabric_attr.as_mut() {
            fabric.name = owned(profile.fabric());
            fabric.prov_name = owned(&config.provider);
            fabric.prov_version = config.api.0;
            fabric.api_version = place.api.0;
        }
    }
    pointer
}

fn fill_domain(domain: &mut fi_domain_attr, profile: Profile, config: &Config) {
    let progress = if profile.is_manual() {
        FI_PROGRESS_MANUAL
    } else {
        FI_PROGRESS_AUTO
    };
    domain.threading = FI_THREAD_SAFE;
    domain.control_progress = progress;
    domain.data_progress = progress;
    domain.resource_mgmt = FI_RM_ENABLED;
    domain.av_type = FI_AV_TABLE;
    domain.mr_mode = profile.mr_mode() | if config.hmem { FI_MR_HMEM } else { 0 };
    domain.mr_key_size = 4;
    domain.cq_data_size = 4;
    domain.cq_cnt = config.endpoints;
    domain.ep_cnt = config.endpoints;
    domain.tx_ctx_cnt = config.endpoints;
    domain.rx_ctx_cnt = config.endpoints;
    domain.max_ep_tx_ctx = 1;
    domain.max_ep_rx_ctx = 1;
    domain.mr_iov_limit = 1;
    domain.mr_cnt = 1 << 20;
    domain.caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
}

/// Atomics in order on `efa`, nothing else anywhere. softofi has no atomics, so this is what a program reads and no more.
fn orders(profile: Profile) -> u64 {
    match profile {
        Profile::EfaDirect => 0,
        Profile::Efa => {
            FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW
        }
    }
}

fn owned(words: &str) -> *mut std::ffi::c_char {
    text(&CString::new(words).unwrap_or_default())
}

/// A device at a place that no machine has.
fn nic(number: u32) -> *mut fid_nic {
    let pointer: *mut fid_nic = zeroed();
    // SAFETY: new, with parts that are made here or null.
    unsafe {
        let Some(nic) = pointer.as_mut() else {
            return pointer;
        };
        nic.fid.fclass = FI_CLASS_NIC as usize;
        nic.fid.ops = calls::nic_ops();
        nic.device_attr = zeroed::<fi_device_attr>();
        if let Some(device) = nic.device_attr.as_mut() {
            device.name = owned(&format!("softofi{number}"));
            device.device_id = owned("0xefa2");
            device.vendor_id = owned("0x1d0f");
            device.driver = owned("softofi");
            device.firmware = owned("0.0.0.0");
        }
        nic.bus_attr = zeroed::<fi_bus_attr>();
        if let Some(bus) = nic.bus_attr.as_mut() {
            bus.bus_type = FI_BUS_PCI;
            bus.attr.pci.domain_id = 0xffff;
            bus.attr.pci.bus_id = u8::try_from(number).unwrap_or(u8::MAX);
        }
        nic.link_attr = zeroed::<fi_link_attr>();
        if let Some(link) = nic.link_attr.as_mut() {
            link.address = owned(&format!("SOFTOFI-{number}"));
            link.mtu = 8928;
            link.speed = 100_000_000_000;
            link.state = FI_LINK_UP;
            link.network_type = owned("Ethernet");
        }
    }
    pointer
}
