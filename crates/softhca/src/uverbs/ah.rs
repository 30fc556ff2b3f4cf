//! Address handles: how the owner of a queue pair learns the MAC behind a GID.
//!
//! The kernel resolves route and neighbour when a handle is made and tells libmlx5 the destination MAC in the driver's part
//! of the reply (libmlx5 asks for that where `cmds_supp_uhw` says so, and does its own ARP otherwise, which software addresses
//! do not answer). Here every MAC follows from the IP address, in any process.

use std::net::Ipv6Addr;

use bytemuck::Zeroable;

use super::frame::{Call, Method, Spec};
use super::handles::Object;
use super::structs::{CreateAh, CreateAhResp};
use crate::device::Context as DeviceContext;
use crate::errno::Errno;
use crate::sysfs::Identity;

const AH: u16 = 6;
const CORE_IN: u16 = 0;
const CORE_OUT: u16 = 1;
const UHW_OUT: u16 = 0x1001;
const PORT: u8 = 1;

pub(super) const METHODS: &[Method] = &[Method {
    object: AH,
    method: 0,
    attributes: &[Spec::object(0)],
    run: destroy,
}];

/// `CREATE_AH` of the interface before ioctls.
pub(super) fn create(call: &Call<'_>, _device: &DeviceContext) -> Result<(), Errno> {
    let request: CreateAh = call.read(CORE_IN)?;
    call.context.handles().pd(request.pd_handle)?;
    let known = call.context.identity.gids.len();
    let infiniband = call.context.identity.link.is_infiniband();
    let global = request.is_global != 0;
    if request.port_num != PORT
        || request.is_global > 1
        || !(global || infiniband)
        || (global && usize::from(request.sgid_index) >= known)
    {
        return Err(Errno::EINVAL);
    }
    let dmac = if infiniband {
        [0; 6]
    } else {
        mac(request.dgid).ok_or(Errno::EHOSTUNREACH)?
    };
    let reply = CreateAhResp {
        response_length: 16,
        dmac,
        ..CreateAhResp::zeroed()
    };
    call.context.publish(Object::Ah, |handle| {
        call.put_pod(UHW_OUT, &reply)?;
        call.put_pod(CORE_OUT, &handle)
    })
}

fn destroy(call: &Call<'_>) -> Result<(), Errno> {
    let handle = call.object(0)?;
    call.context.handles().ah(handle)?;
    call.context.handles().remove(handle);
    Ok(())
}

/// The MAC of the software HCA that has this GID, if one can have it.
pub(super) fn mac(gid: [u8; 16]) -> Option<[u8; 6]> {
    if let Some(ip) = Ipv6Addr::from(gid).to_ipv4_mapped() {
        return (!ip.is_unspecified() && !ip.is_multicast()).then(|| Identity::new(0, ip).mac);
    }
    // A link-local GID holds the EUI-64 of its MAC.
    let [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, 0xff, 0xfe, d, e, f] = gid else {
        return None;
    };
    Some([a ^ 0x02, b, c, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn every_gid_of_an_hca_leads_to_its_mac() {
        let identity = Identity::new(3, Ipv4Addr::new(127, 1, 2, 3));
        for (_, gid) in identity.gids {
            assert_eq!(mac(gid), Some(identity.mac));
        }
    }

    #[test]
    fn addresses_that_no_hca_has_are_unreachable() {
        for address in [
            "::",
            "::ffff:0.0.0.0",
            "::ffff:224.0.0.1",
            "2001:db8::1",
            "fe80::1",
        ] {
            let gid = address.parse::<Ipv6Addr>().unwrap().octets();
            assert_eq!(mac(gid), None, "{address}");
        }
    }
}
