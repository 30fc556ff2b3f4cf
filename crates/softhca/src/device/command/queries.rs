//! Queries of the device that concern no object.

use super::syndrome;
use crate::device::command::call::{Call, Outcome, Refusal};
use crate::profile::Lag;
use crate::sysfs::GidType;
use mlx5_prm::roce::{
    QueryLagOut, QueryNicVportContextOut, QueryRoceAddressIn, QueryRoceAddressOut, RoceAddrLayout,
};

pub(super) fn roce_address(call: &mut Call<'_>) -> Outcome {
    let index = QueryRoceAddressIn::from_prefix(call.input).roce_address_index();
    let [.., number] = QueryRoceAddressIn::from_prefix(call.input)
        .vhca_port_num()
        .to_be_bytes();
    let port = call.hca()?.identity.port(number.max(1));
    let port = port.ok_or(Refusal::bad_param(syndrome::QP_PORT))?;
    let (kind, gid) = port
        .gids
        .get(index as usize)
        // Ports of InfiniBand do not have this table.
        .filter(|(kind, _)| *kind != GidType::InfiniBand)
        .ok_or(Refusal::bad_param(syndrome::NO_SUCH_GID))?;
    let [a, b, c, d, e, f] = port.mac;
    let is_ipv4 = gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let entry = RoceAddrLayout::default()
        .with_source_l3_address(*gid)
        .with_source_mac_47_32(u32::from_be_bytes([0, 0, a, b]))
        .with_source_mac_31_0(u32::from_be_bytes([c, d, e, f]))
        .with_roce_l3_type(match (kind, is_ipv4) {
            (GidType::RoceV1 | GidType::InfiniBand, _) => 0,
            (GidType::RoceV2, true) => 1,
            (GidType::RoceV2, false) => 2,
        })
        .with_roce_version(match kind {
            GidType::RoceV1 | GidType::InfiniBand => 0,
            GidType::RoceV2 => 2,
        });
    call.reply(
        QueryRoceAddressOut::default()
            .with_roce_address(entry)
            .as_bytes(),
    );
    Ok(None)
}

pub(super) fn vport_context(call: &mut Call<'_>) -> Outcome {
    let roce = u32::from(!call.hca()?.identity.link.is_infiniband());
    call.reply(
        QueryNicVportContextOut::default()
            .with_roce_en(roce)
            .as_bytes(),
    );
    Ok(None)
}

/// Replies whether and how the ports are aggregated.
pub(super) fn lag(call: &mut Call<'_>) -> Outcome {
    let (state, mode) = match call.hca()?.identity.lag() {
        None => (0, 0),
        Some(Lag::QueueAffinity) => (1, QueryLagOut::QUEUE_AFFINITY),
        Some(Lag::Hash) => (1, QueryLagOut::FLOW_TABLE),
    };
    let out = QueryLagOut::default().with_lag_state(state);
    call.reply(out.with_port_select_mode(mode).as_bytes());
    Ok(None)
}
