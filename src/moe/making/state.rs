//! The device memory that kernels know a layer by: context, state per peer, views with their tables of experts, clock, board.

use bytemuck::Zeroable;

use crate::abi::{DevicePtr, MoeBoard, MoeContext, MoeView, Window};
use crate::gpu::DeviceMemory;
use crate::moe::layout::{Layout, StateLayout};
use crate::moe::members::board::{Addresses, Board};
use crate::moe::members::view::{View, ViewTables, Views};
use crate::moe::{MoeConfig, MoeError, Placement, RowLayout};
use crate::team::Team;

/// The epoch of a team that never changes.
const FIRST_EPOCH: u32 = 1;

/// Fills the memory of a layer whose experts lie as `placement` says and whose first view covers every call.
pub(in crate::moe) fn write(
    team: &Team,
    config: &MoeConfig,
    placement: &Placement,
    layout: &Layout,
    [slots, staging, signals]: [Window; 3],
) -> Result<(DeviceMemory, Board, Views), MoeError> {
    let gpu = team.gpu();
    let places = StateLayout::new(config, team.ranks());
    let bytes = usize::try_from(places.bytes).expect("checked with the shape");
    let memory = gpu.alloc(bytes, 128)?;
    let board = gpu.map_host(size_of::<MoeBoard>())?;
    let at = |offset: u64| memory.addr() + offset;
    let small = |value: u64| u32::try_from(value).expect("checked with the shape");
    let context = MoeContext {
        team: DevicePtr::new(team.context_addr()),
        peers: DevicePtr::new(at(places.peers)),
        views: DevicePtr::new(at(places.views)),
        slots,
        staging,
        signals,
        combine_slots: layout.combine_slots,
        combine_staging: layout.combine_staging,
        zero_copy: layout.zero_copy,
        buffers: config.buffers(),
        slot_bytes: layout.slot_bytes,
        row_bytes: layout.row_bytes,
        combine_row_bytes: layout.combine_row_bytes,
        clock: DevicePtr::new(at(places.clock)),
        board: DevicePtr::new(board.addr()),
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
        max_local_experts: config.room(team.ranks()),
        order: team.signal_order().code(),
        joined: 1,
        tiles: match config.layout {
            RowLayout::ExpertMajor => DevicePtr::new(at(places.tiles)),
            RowLayout::RankMajor => DevicePtr::new(0),
        },
        ..MoeContext::zeroed()
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
    let first = View {
        first: 1,
        epoch: FIRST_EPOCH,
        // A rank that joins later is alone until a group takes it in.
        members: match team.config().joins() {
            true => vec![team.rank()],
            false => team.config().members().iter().collect(),
        },
        placement: placement.clone(),
    };
    let views = Views::new(gpu.as_ref(), tables, team.rank(), first)?;
    let active = vec![1u32; team.ranks() as usize];
    gpu.write(at(places.active), bytemuck::cast_slice(&active))?;
    let addresses = Addresses {
        context: memory.addr(),
        clock: at(places.clock),
        active: at(places.active),
        peers: at(places.peers),
        signals: signals.base,
    };
    Ok((memory, Board::new(team, board, addresses)?, views))
}
