//! How packets reach the port of a peer, as libibverbs takes it.

use crate::sys::bindings::{ibv_ah_attr, ibv_gid, ibv_global_route};
use crate::verbs::address::{AddressVector, GlobalRoute, InfinibandAddress, RoceAddress};
use crate::verbs::device::own_port::OwnPort;
use crate::verbs::error::VerbsError;
use crate::verbs::gid::Gid;

/// Returns the address of a peer's port, to which packets leave by the port `own`. The kernel finds the Ethernet address of a peer.
///
/// # Errors
///
/// [`VerbsError::BadArgument`]: an address of the other link layer, or a GID, path bits or a missing GRH that the own port does not have.
pub(super) fn address(own: &OwnPort, address: &AddressVector) -> Result<ibv_ah_attr, VerbsError> {
    address.check()?;
    let (layer, has) = (address.link_layer(), own.port().link_layer);
    if layer != has {
        let limit = format!("{has}, the link layer of the own port");
        return Err(VerbsError::argument("link layer of the peer", layer, limit));
    }
    match address {
        AddressVector::RoceV2(address) => roce(own, address),
        AddressVector::InfiniBand(address) => infiniband(own, address),
    }
}

fn roce(own: &OwnPort, address: &RoceAddress) -> Result<ibv_ah_attr, VerbsError> {
    let source = match address.gid_index {
        Some(index) => own.source_gid(Some(index))?,
        None => own.roce_v2_gid_towards(&address.remote_gid)?,
    };
    let route = GlobalRoute::new(address.remote_gid)
        .with_gid_index(source.index)
        .with_hop_limit(address.hop_limit)
        .with_traffic_class(address.traffic_class);
    Ok(ibv_ah_attr {
        grh: global(&route)?,
        is_global: 1,
        sl: address.priority,
        ..local(own)
    })
}

fn infiniband(own: &OwnPort, address: &InfinibandAddress) -> Result<ibv_ah_attr, VerbsError> {
    let port = own.port();
    port.lid_with(address.path_bits)?;
    let path = ibv_ah_attr {
        dlid: address.remote_lid,
        sl: address.service_level,
        src_path_bits: address.path_bits,
        ..local(own)
    };
    match &address.grh {
        Some(route) => {
            own.source_gid(Some(route.gid_index))?;
            Ok(ibv_ah_attr {
                grh: global(route)?,
                is_global: 1,
                ..path
            })
        }
        None if port.grh_required => {
            let limit = "a GRH, which the own port demands";
            Err(VerbsError::argument("GRH", "none", limit))
        }
        None => Ok(path),
    }
}

/// Returns an address within the subnet, without a LID.
fn local(own: &OwnPort) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid {
                raw: Gid::default().0,
            },
            flow_label: 0,
            sgid_index: 0,
            hop_limit: 0,
            traffic_class: 0,
        },
        dlid: 0,
        sl: 0,
        src_path_bits: 0,
        static_rate: 0,
        is_global: 0,
        port_num: own.port().number,
    }
}

fn global(route: &GlobalRoute) -> Result<ibv_global_route, VerbsError> {
    let index = route.gid_index;
    let sgid_index =
        u8::try_from(index).map_err(|_| VerbsError::argument("GID index", index, u8::MAX))?;
    Ok(ibv_global_route {
        dgid: ibv_gid {
            raw: route.remote_gid.0,
        },
        // 0: the kernel makes the label, and the UDP port with it, of the numbers of both QPs.
        flow_label: 0,
        sgid_index,
        hop_limit: route.hop_limit,
        traffic_class: route.traffic_class,
    })
}
