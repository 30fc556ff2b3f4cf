//! The device memory of a layer that kernels read: context, state per peer, views with their tables of experts, clock, board.

use std::mem::offset_of;
use std::sync::Arc;

use bytemuck::Zeroable;

use crate::abi::{DevicePtr, LayerContext, MoeBoard, MoeContext, MoeView, Window};
use crate::gpu::DeviceMemory;
use crate::moe::config::{MoeConfig, RowLayout};
use crate::moe::error::MoeError;
use crate::moe::layout::{Layout, StateLayout};
use crate::moe::members::board::Addresses;
use crate::moe::members::control::Control;
use crate::moe::members::rule::PlacementRule;
use crate::moe::members::views::ViewTables;
use crate::team::Team;

/// The windows of a layer.
#[derive(Clone, Copy, Debug)]
pub(in crate::moe) struct Windows {
    /// The slots that peers write into.
    pub(in crate::moe) slots: Window,
    /// The memory that the NIC sends from.
    pub(in crate::moe) staging: Window,
    pub(in crate::moe) signals: Window,
}

/// Makes the memory of a layer and fills it in. Its first view covers every call, with the first placement of `rule`.
pub(in crate::moe) fn write(
    team: &Arc<Team>,
    config: &MoeConfig,
    layout: &Layout,
    windows: &Windows,
    rule: PlacementRule,
) -> Result<(DeviceMemory, Control), MoeError> {
    let gpu = team.gpu();
    let places = StateLayout::new(config, team.ranks());
    let bytes = usize::try_from(places.bytes).expect("checked with the shape");
    let memory = gpu.alloc(bytes, 128)?;
    let board = gpu.map_host(size_of::<MoeBoard>())?;
    let at = |offset: u64| memory.addr() + offset;
    let layer = LayerContext {
        team: DevicePtr::new(team.context_addr()),
        peers: DevicePtr::new(at(places.peers)),
        views: DevicePtr::new(at(places.views)),
        data: windows.slots,
        clock: DevicePtr::new(at(places.clock)),
        signals: windows.signals,
        board: DevicePtr::new(board.addr()),
        order: team.signal_order().code(),
        joined: 1,
        ..LayerContext::zeroed()
    };
    let context = MoeContext {
        layer,
        staging: windows.staging,
        tiles: DevicePtr::new(match config.layout {
            RowLayout::ExpertMajor => at(places.tiles),
            RowLayout::RankMajor => 0,
        }),
        ..of_shape(config, layout, team.ranks())
    };
    gpu.write(memory.addr(), bytemuck::bytes_of(&context))?;
    let tables = std::array::from_fn(|place| {
        let [homes, experts, replicas] = places.tables[place].map(at);
        ViewTables {
            view: at(places.views) + (place * size_of::<MoeView>()) as u64,
            homes,
            experts,
            replicas,
        }
    });
    let addresses = Addresses {
        context: at(offset_of!(MoeContext, layer) as u64),
        clock: at(places.clock),
        active: at(places.active),
        peers: at(places.peers),
        signals: windows.signals.base,
    };
    let control = Control::new(team, board, addresses, tables, rule)?;
    Ok((memory, control))
}

/// Returns a context with what the shape says of slots and tokens; its other fields are zero.
fn of_shape(config: &MoeConfig, layout: &Layout, ranks: u32) -> MoeContext {
    let small = |value: u64| u32::try_from(value).expect("checked with the shape");
    MoeContext {
        combine_slots: layout.combine_slots,
        combine_staging: layout.combine_staging,
        zero_copy: layout.zero_copy,
        buffers: config.buffers(),
        slot_bytes: layout.slot_bytes,
        row_bytes: layout.row_bytes,
        combine_row_bytes: layout.combine_row_bytes,
        header_bytes: small(layout.header_bytes),
        hidden: config.hidden,
        experts: config.experts,
        top_k: config.top_k,
        max_tokens: config.max_tokens,
        format: config.format.code(),
        scales: config.format.scales_code(),
        scale_bytes: small(layout.scale_bytes),
        scales_at: small(layout.scales_at),
        layout: config.layout.code(),
        returns: config.returns.code(),
        max_local_experts: config.room(ranks),
        ..MoeContext::zeroed()
    }
}
