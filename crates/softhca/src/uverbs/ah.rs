//! Address handles, by which the owner of a QP learns the MAC of a GID.
//!
//! The kernel resolves route and neighbour when a program makes a handle. It returns the destination MAC to libmlx5 in the driver's part of
//! the reply. libmlx5 asks for that if `cmds_supp_uhw` has the bit of `CREATE_AH`. Otherwise libmlx5 does its own ARP, which software
//! addresses do not answer. In this model every MAC follows from the IP address, in any process.

use bytemuck::Zeroable;

use super::frame::{Call, Method, Spec};
use super::handles::Object;
use super::structs::{CreateAh, CreateAhResp};
use crate::device::Context as DeviceContext;
use crate::envelope::{Gid, Name};
use crate::errno::Errno;
use crate::link::mac_of;
use crate::sysfs::{GidType, PortIdentity};

const AH: u16 = 6;
const CORE_IN: u16 = 0;
const CORE_OUT: u16 = 1;
const UHW_OUT: u16 = 0x1001;

pub(super) const METHODS: &[Method] = &[Method {
    object: AH,
    method: 0,
    attributes: &[Spec::object(0)],
    run: destroy,
}];

/// Handles `CREATE_AH`, a command of the interface before ioctls.
pub(super) fn create(call: &Call<'_>, _device: &DeviceContext) -> Result<(), Errno> {
    let request: CreateAh = call.read(CORE_IN)?;
    call.context.handles().pd(request.pd_handle)?;
    let own = call.context.identity().port(request.port_num);
    let own = own.ok_or(Errno::EINVAL)?;
    let infiniband = own.link.is_infiniband();
    let global = request.is_global != 0;
    if request.is_global > 1
        || !(global || infiniband)
        || (global && usize::from(request.sgid_index) >= own.gids.len())
    {
        return Err(Errno::EINVAL);
    }
    let dmac = if infiniband {
        [0; 6]
    } else {
        mac(own, request.sgid_index, request.dgid)?
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

/// Returns the MAC of the software HCA that has `gid`, for packets from entry `index` of the GID table of `own`.
///
/// The rules are those of `ib_resolve_unicast_gid_dmac` in Linux. `RoCE` v1 finds the MAC in a link-local GID itself. For all other GIDs
/// the IP stack resolves the MAC, and both GIDs must be of one IP version.
pub(super) fn mac(own: &PortIdentity, index: u8, gid: Gid) -> Result<[u8; 6], Errno> {
    let (kind, source) = own.gids.get(usize::from(index)).ok_or(Errno::EINVAL)?;
    let (ip, name) = Name::of(&gid).ok_or(Errno::EHOSTUNREACH)?;
    let by_itself = *kind == GidType::RoceV1 && name == Name::LinkLocal;
    let has_source = Name::of(source).is_some_and(|(_, source)| source == name);
    if by_itself || has_source {
        Ok(mac_of(ip))
    } else {
        Err(Errno::EINVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysfs::Identity;
    use std::net::Ipv6Addr;

    fn port(ip: [u8; 4]) -> PortIdentity {
        Identity::new(3, ip.into()).first().clone()
    }

    fn own() -> PortIdentity {
        port([127, 1, 2, 3])
    }

    #[test]
    fn every_gid_of_an_hca_leads_to_its_mac_from_each_entry_that_linux_takes() {
        let far = port([127, 1, 2, 4]);
        let reached: Vec<Vec<usize>> = (0..4)
            .map(|index| {
                let gids = far.gids.iter().enumerate();
                gids.filter(|(_, (_, gid))| match mac(&own(), index, *gid) {
                    Ok(mac) => mac == far.mac,
                    Err(errno) => {
                        assert_eq!(errno, Errno::EINVAL);
                        false
                    }
                })
                .map(|(to, _)| to)
                .collect()
            })
            .collect();
        let all = vec![0, 1, 2, 3];
        assert_eq!(reached, [vec![0, 1], vec![0, 1], all, vec![2, 3]]);
        assert_eq!(mac(&own(), 4, far.gids[3].1), Err(Errno::EINVAL));
    }

    #[test]
    fn addresses_that_no_hca_has_are_unreachable() {
        for address in [
            "::",
            "::ffff:0.0.0.0",
            "::ffff:224.0.0.1",
            "ff02::1",
            "2001:db8::1",
            "fe80::1",
        ] {
            let gid = address.parse::<Ipv6Addr>().unwrap().octets();
            for index in 0..4 {
                let found = mac(&own(), index, gid);
                assert_eq!(found, Err(Errno::EHOSTUNREACH), "{address}");
            }
        }
    }
}
