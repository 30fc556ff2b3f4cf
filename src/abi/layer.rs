//! What a layer of any kind needs of membership: state per peer, views, and the words that kernels share with the host. Nothing here
//! knows tokens or where a peer's rows lie.

use super::header::{Item, struct_item};
use super::moe_words::{MoeCause, MoeOrder};
use super::{DevicePtr, TeamContext, Window};

abi_struct! {
    /// The word of one peer about one (kind, set). 32 bytes in the receiver's memory, written only by that peer's NIC.
    align(32)
    pub struct MoeSignal {
        /// epoch:16 | call:32 | count+1:16, the newest data of this kind and set. 0: none yet.
        pub data: u64,
        /// dispatch released:32 | combine released:32, the newest calls that the peer has closed.
        pub credit: u64,
        /// first:32 | number:32: the `number` calls of this set from `first` were not and will not be sent.
        pub not_sent: u64,
        /// call:32 | beat:32: the peer is waiting in this call.
        pub alive: u64,
    }
}

abi_struct! {
    /// What this rank remembers of one peer. Device memory; changed by the send and receive phases, which run one at a time.
    align(128)
    pub struct MoePeer {
        /// By kind and set: newest call whose data was sent; valid only if the bit in `sent` is set.
        pub last: [u32; 4],
        /// By kind and set: first call of the newest run of calls that were not sent.
        pub skip_first: [u32; 4],
        /// By kind and set: length of that run; its last call is first + 2 * (number - 1).
        pub skip_number: [u32; 4],
        /// By kind and set: ticket of the last WQE that reads the staging rows; 0 none. Until the HCA has carried it, or its QP has
        /// failed, the peer gets no data of this kind and set.
        pub ticket: [u64; 4],
        /// Credits that the peer got last.
        pub told: u64,
        /// Sum of all that the peer's signals said when it became a suspect; another sum ends the suspicion.
        pub seen: u64,
        /// 1: it was waited for in vain. It is looked at, but not waited for.
        pub suspect: u32,
        /// Bit kind * SETS + set: data of this kind was sent in this set, so `last` is valid.
        pub sent: u32,
        /// 1: the phase that runs holds a guard of the peer, so that its QPs may be used.
        pub open: u32,
        /// Beats written to it so far.
        pub beat: u32,
        /// How its credit stands in the send phase that runs.
        pub credit: u32,
        /// Of dispatch, by set: the send buffer from which its last data went.
        pub buffer: [u32; 2],
        /// Bit kind * SETS + set: a send phase has waited in vain for the end of the work whose ticket stands in `ticket`.
        pub late: u32,
    }
}

abi_struct! {
    /// An expert slot: a place of an expert on a rank.
    pub struct ExpertHome {
        /// The rank that holds the slot.
        pub rank: u32,
        /// Its place among the expert slots of that rank.
        pub local: u32,
    }
}

abi_struct! {
    /// The expert slots that hold one expert: `count` of them from `first` in `MoeView::replicas`.
    pub struct ExpertSlots {
        /// Place of the first of them in `MoeView::replicas`.
        pub first: u32,
        /// How many; 0: no rank holds the expert now.
        pub count: u32,
    }
}

abi_struct! {
    /// The ranks that take part, and the ranks that hold each expert, from one call on. Written by the host while it is not the
    /// newest.
    align(128)
    pub struct MoeView {
        /// First call that it covers. It counts only until a call runs in the view.
        pub first: u32,
        /// Membership epoch, low 16 bits.
        pub epoch: u32,
        /// Expert slots of all ranks.
        pub expert_slots: u32,
        /// Expert slots of this rank.
        pub local_experts: u32,
        /// Expert slots by number.
        pub homes: DevicePtr<ExpertHome>,
        /// The slots of each expert, by its id.
        pub experts: DevicePtr<ExpertSlots>,
        /// Numbers of expert slots, grouped by expert.
        pub replicas: DevicePtr<u32>,
        /// Its place among all views that were written, in their order; 0: it is not written, or not whole.
        pub serial: u32,
        /// Reserved, zero.
        pub reserved: [u32; 21],
        /// Bit r: rank r is a member.
        pub members: [u32; 32],
    }
}

abi_struct! {
    /// How long calls wait. Device memory, written by the host.
    pub struct MoeClock {
        /// Longest wait of a phase, ns.
        pub steady_ns: u64,
        /// As `steady_ns`, for the calls up to `warm_calls`.
        pub warm_ns: u64,
        /// Calls up to this number are warm-up.
        pub warm_calls: u32,
        /// Reserved, zero.
        pub reserved: u32,
        /// Longest time for which a call is held back by a change that is being prepared, ns.
        pub change_ns: u64,
    }
}

abi_struct! {
    /// Words that host and kernels of one rank share while kernels run. Host-mapped memory.
    align(128)
    pub struct MoeBoard {
        /// Written by the host: the last call that may start now, if `limited`.
        pub limit: u32,
        /// Written by the host: 1 while calls end `aborted` as soon as they would be held.
        pub refuse: u32,
        /// Written by the host: 1 while a change is being prepared.
        pub preparing: u32,
        /// Reserved, zero.
        pub reserved0: u32,
        /// Written by the host: 1 while `limit` counts, 0 while any call may start. Kernels read it and `alone` in one load.
        pub limited: u32,
        /// Written by the host: 1 while this rank exchanges with no other member, so that its calls keep pace.
        pub alone: u32,
        /// Reserved, zero.
        pub reserved1: [u32; 26],
        /// Written by kernels: the last call that has taken its number.
        pub started: u32,
        /// Written by kernels: the last call all phases of which have ended, or that is closed.
        pub finished: u32,
        /// Written by kernels: number of times that `fault` was written so far, after it.
        pub faults: u32,
        /// Written by kernels: the same number, before `fault` is written. Equal numbers around a read: the read is whole.
        pub faults_begun: u32,
        /// Written by kernels: `serial` << 32 | first call of the newest view in which a call has run. The kernel moves that first
        /// call on, so that it stays within 2^30 of the newest call. 0: no call has run.
        pub in_force: u64,
        /// Written by kernels: `MoeContext::unbuffered`.
        pub unbuffered: u32,
        /// Reserved, zero.
        pub reserved2: [u32; 25],
        /// Written by kernels: the newest fault.
        pub fault: MoeFault,
        /// Written by the host, bit r: rank r has promised the change that is being prepared, so its clock stands still.
        pub promised: [u32; 32],
        /// Written by the host, bit r: do not wait for rank r.
        pub suspects: [u32; 32],
        /// Written by kernels, bit r: rank r is a suspect of this rank.
        pub suspected: [u32; 32],
    }
}

abi_struct! {
    /// Why a call is not complete: the first fault of the call, and all its suspects.
    align(128)
    pub struct MoeFault {
        /// Number of the call; 0: none.
        pub call: u32,
        /// Its epoch, low 16 bits.
        pub epoch: u32,
        /// Why.
        pub cause: MoeCause,
        /// The peer; NONE if it is this rank itself.
        pub peer: u32,
        /// Phase in which it showed: 0 to 3, in the order of `MoeHandle::phase`.
        pub phase: u32,
        /// Vendor syndrome << 8 | syndrome, if `cause` is `cqe_error`. If it is `shape`: the tag of the peer's shape << 16 | that of
        /// this rank's. Else 0.
        pub syndrome: u32,
        /// The expert slot concerned; NONE if all of the peer's.
        pub expert: u32,
        /// Reserved, zero.
        pub reserved: [u32; 25],
        /// Bit r: rank r is a suspect.
        pub suspects: [u32; 32],
    }
}

abi_struct! {
    /// A layer of any kind at one rank, as guards, waits for peers, beats, faults and signals need it. Device memory. It is the first
    /// member of the context of its kind, so a pointer to the one is a pointer to the other.
    align(64)
    pub struct LayerContext {
        /// The team whose QPs and windows the kernels use.
        pub team: DevicePtr<TeamContext>,
        /// State per peer, by rank.
        pub peers: DevicePtr<MoePeer>,
        /// `MoeView [MOE_VIEWS]`.
        pub views: DevicePtr<MoeView>,
        /// What peers write rows into. Signals go to a peer in the same way as rows: by a QP or by stores.
        pub data: Window,
        /// Waiting times.
        pub clock: DevicePtr<MoeClock>,
        /// `MoeSignal [writer][kind * SETS + set]`.
        pub signals: Window,
        /// Words shared with the host.
        pub board: DevicePtr<MoeBoard>,
        /// How signals are kept after data.
        pub order: MoeOrder,
        /// Number of the first call that this rank has a part in.
        pub joined: u32,

        /// Number of the last call that began. The fields before it are constant; phases change it and those after it.
        pub call: u32,
        /// Newest closed call, by kind.
        pub released: [u32; 2],
        /// Words of the expected call that named another epoch.
        pub foreign_epochs: u32,
        /// By set: newest call that has ended with its last phase.
        pub ended: [u32; 2],
        /// Peers that the running phase has not settled.
        pub waiting: u32,
        /// 1: a call was held in vain. While the limit is `refused_limit`, further ones end when another rank has begun them.
        pub refusing: u32,
        /// The limit at which that was.
        pub refused_limit: u32,
        /// 1: the suspects or the members have changed since the board was written.
        pub changed: u32,
        /// The view of the last call that ran: place in `views`.
        pub view: u32,
        /// Its `serial`; 0: no call has run.
        pub serial: u32,
        /// Its first call, or a later one, as in `MoeBoard::in_force`.
        pub first: u32,
        /// The newest calls in a row that have ended `aborted`, at most SETS.
        pub aborted: u32,
        /// So many calls before the last one that began ended `aborted`: its dispatch says so again.
        pub untold: u32,
        /// Blocks that have ended the receive phase that runs.
        pub left: u32,
        /// The newest call that a peer was found to have passed by 2 * SETS calls, or one at least three before the last that began.
        pub passed: u32,
        /// Reserved, zero.
        pub reserved0: u32,
        /// When the phase that runs began, device clock.
        pub began_ns: u64,
        /// Reserved, zero.
        pub reserved1: [u32; 4],
    }
}

const _: () = {
    assert!(size_of::<LayerContext>() == 192);
    // What phases change shares no sector of 32 bytes with what is constant.
    assert!(core::mem::offset_of!(LayerContext, call).is_multiple_of(32));
    assert!(size_of::<MoeSignal>() == 32);
    assert!(size_of::<MoePeer>() == 128);
    assert!(size_of::<MoeView>() == 256);
    assert!(size_of::<MoeFault>() == 256);
    assert!(size_of::<MoeBoard>() == 896);
};

/// Returns what the header holds of this file, in order.
pub(super) fn items() -> Vec<Item> {
    vec![
        struct_item::<MoeSignal>(),
        struct_item::<MoePeer>(),
        struct_item::<ExpertHome>(),
        struct_item::<ExpertSlots>(),
        struct_item::<MoeView>(),
        struct_item::<MoeFault>(),
        struct_item::<MoeClock>(),
        struct_item::<MoeBoard>(),
        struct_item::<LayerContext>(),
    ]
}
