//! `fi_dupinfo` and `fi_freeinfo`.

// UNSAFETY: structures of C programs are followed by their pointers.
#![expect(unsafe_code, reason = "structures of C")]

use std::ptr::null_mut;

use libfabric_abi::bindings::{fi_bus_attr, fi_device_attr, fi_info, fi_link_attr, fid_nic};

use super::memory::{bytes, copy_of, free, shallow, zeroed};

/// An empty description with all its attributes: hints that a program fills.
pub(crate) fn empty() -> *mut fi_info {
    let info: *mut fi_info = zeroed();
    if info.is_null() {
        return info;
    }
    // SAFETY: new, and of the right size; its pointers are null until then.
    unsafe {
        (*info).tx_attr = zeroed();
        (*info).rx_attr = zeroed();
        (*info).ep_attr = zeroed();
        (*info).domain_attr = zeroed();
        (*info).fabric_attr = zeroed();
    }
    info
}

/// A copy of one description, with all that it names. Without memory the copy has nulls.
///
/// # Safety
///
/// It is a description of this library, or one made like it.
pub(crate) unsafe fn duplicate(other: &fi_info) -> *mut fi_info {
    // SAFETY: a reference is valid, and by the caller's word so is what it points to: attributes, texts, addresses with their lengths.
    unsafe {
        let copy = shallow(other);
        let Some(info) = copy.as_mut() else {
            return copy;
        };
        info.next = null_mut();
        info.src_addr = bytes(other.src_addr.cast(), other.src_addrlen).cast();
        info.dest_addr = bytes(other.dest_addr.cast(), other.dest_addrlen).cast();
        info.tx_attr = shallow(other.tx_attr);
        info.rx_attr = shallow(other.rx_attr);
        info.ep_attr = shallow(other.ep_attr);
        if let Some(ep) = info.ep_attr.as_mut() {
            ep.auth_key = bytes(ep.auth_key, ep.auth_key_size);
        }
        info.domain_attr = shallow(other.domain_attr);
        if let Some(domain) = info.domain_attr.as_mut() {
            domain.name = copy_of(domain.name);
            domain.auth_key = bytes(domain.auth_key, domain.auth_key_size);
        }
        info.fabric_attr = shallow(other.fabric_attr);
        if let Some(fabric) = info.fabric_attr.as_mut() {
            fabric.name = copy_of(fabric.name);
            fabric.prov_name = copy_of(fabric.prov_name);
        }
        info.nic = duplicate_nic(other.nic);
        copy
    }
}

/// # Safety
///
/// As [`duplicate`]; null is no device.
unsafe fn duplicate_nic(other: *const fid_nic) -> *mut fid_nic {
    // SAFETY: the caller's word.
    unsafe {
        let copy = shallow(other);
        let Some(nic) = copy.as_mut() else {
            return copy;
        };
        nic.device_attr = shallow::<fi_device_attr>(nic.device_attr);
        if let Some(device) = nic.device_attr.as_mut() {
            device.name = copy_of(device.name);
            device.device_id = copy_of(device.device_id);
            device.device_version = copy_of(device.device_version);
            device.vendor_id = copy_of(device.vendor_id);
            device.driver = copy_of(device.driver);
            device.firmware = copy_of(device.firmware);
        }
        nic.bus_attr = shallow::<fi_bus_attr>(nic.bus_attr);
        nic.link_attr = shallow::<fi_link_attr>(nic.link_attr);
        if let Some(link) = nic.link_attr.as_mut() {
            link.address = copy_of(link.address);
            link.network_type = copy_of(link.network_type);
        }
        nic.prov_attr = null_mut();
        copy
    }
}

/// Frees a list of descriptions.
///
/// # Safety
///
/// They are of this library, or texts and addresses in them are of C's allocator; nobody uses them any more. Null is none.
pub(crate) unsafe fn free_all(mut info: *mut fi_info) {
    while !info.is_null() {
        // SAFETY: the caller's word.
        unsafe {
            let next = (*info).next;
            free_one(info);
            info = next;
        }
    }
}

/// # Safety
///
/// As [`free_all`], and not null.
unsafe fn free_one(info: *mut fi_info) {
    // SAFETY: the caller's word.
    unsafe {
        let all = *info;
        free(all.src_addr);
        free(all.dest_addr);
        free(all.tx_attr);
        free(all.rx_attr);
        if let Some(ep) = all.ep_attr.as_ref() {
            free(ep.auth_key);
        }
        free(all.ep_attr);
        if let Some(domain) = all.domain_attr.as_ref() {
            free(domain.name);
            free(domain.auth_key);
        }
        free(all.domain_attr);
        if let Some(fabric) = all.fabric_attr.as_ref() {
            free(fabric.name);
            free(fabric.prov_name);
        }
        free(all.fabric_attr);
        free_nic(all.nic);
        free(info);
    }
}

/// # Safety
///
/// As [`free_all`].
pub(crate) unsafe fn free_nic(nic: *mut fid_nic) {
    // SAFETY: the caller's word; null is passed over.
    unsafe {
        let Some(all) = nic.as_ref() else {
            return;
        };
        if let Some(device) = all.device_attr.as_ref() {
            free(device.name);
            free(device.device_id);
            free(device.device_version);
            free(device.vendor_id);
            free(device.driver);
            free(device.firmware);
        }
        free(all.device_attr);
        free(all.bus_attr);
        if let Some(link) = all.link_attr.as_ref() {
            free(link.address);
            free(link.network_type);
        }
        free(all.link_attr);
        free(nic);
    }
}
