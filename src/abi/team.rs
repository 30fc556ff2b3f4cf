//! What a kernel knows of the team: peers, windows, QPs.

use super::{DevicePtr, QpContext};

abi_const! {
    /// `PeerEntry::rail_life` >> RAIL_SHIFT, without PEER_DIRECT = rail, 7 bits; below it 24 bits of the life of the QPs to the peer.
    pub const RAIL_SHIFT: u32 = 24;
    /// Bit of `PeerEntry::rail_life`: kernels of this rank may load from and store to the window, at the address that stands
    /// in `TeamContext::direct`.
    pub const PEER_DIRECT: u32 = 1 << 31;
    /// Most rails of a team.
    pub const MAX_RAILS: u32 = 16;
}

abi_struct! {
    /// Where one window lies at one peer. 16 bytes, read by one relaxed 16-byte load; replaced only inside the peer's grace
    /// period. All zero: the peer has no such window.
    align(16)
    pub struct PeerEntry {
        /// Address of the window at the peer, in the address space of `rkey_be`.
        pub base: u64,
        /// Remote key, big-endian.
        pub rkey_be: u32,
        /// PEER_DIRECT | rail << RAIL_SHIFT | life of the QPs to the peer (24 bits).
        pub rail_life: u32,
    }
}

abi_struct! {
    /// A symmetric window: the same number of bytes at every rank. Passed by value; nothing in it changes while the team lives.
    pub struct Window {
        /// Its row in the peer table.
        pub id: u32,
        /// Local key, big-endian.
        pub lkey_be: u32,
        /// Local address.
        pub base: u64,
        /// Length at every rank.
        pub bytes: u64,
    }
}

abi_struct! {
    /// How many guards of a peer are held at this rank. A line of its own.
    align(128)
    pub struct PeerGuard {
        /// Guards taken and not yet dropped.
        pub readers: u64,
        /// Reserved, zero.
        pub reserved: [u64; 15],
    }
}

abi_struct! {
    /// Settings that every kernel of a team reads. Device memory, written by the host.
    pub struct DeviceConfig {
        /// Longest wait of a call, ns.
        pub deadline_ns: u64,
        /// Nonzero: every wait of every call ends `aborted`.
        pub abort: u32,
        /// Reserved, zero.
        pub reserved: u32,
    }
}

abi_struct! {
    /// The team of a rank. Device memory; constant while the team lives.
    pub struct TeamContext {
        /// The rank of this process, from 0 on.
        pub rank: u32,
        /// Ranks of the team.
        pub ranks: u32,
        /// Rank slots: length of a row of the tables.
        pub max_ranks: u32,
        /// QPs to each peer.
        pub qps_per_peer: u32,
        /// Rows of the peer table.
        pub max_windows: u32,
        /// Rails: HCAs of each rank. QP i to a peer is of rail i mod rails at both ends.
        pub rails: u32,
        /// QP i to a peer: qps[peer * qps_per_peer + i]. Null without a QP; so is the rank itself, if it has no loopback QP. Where
        /// the pair goes round the rail of i it is a QP of another rail. Changes only inside the peer's grace period.
        pub qps: DevicePtr<DevicePtr<QpContext>>,
        /// Window w at a peer for QPs of rail r: peers[(w * rails + r) * max_ranks + peer]. The entry says by which rail they go.
        pub peers: DevicePtr<PeerEntry>,
        /// Settings.
        pub config: DevicePtr<DeviceConfig>,
        /// Guards by peer.
        pub guards: DevicePtr<PeerGuard>,
        /// By peer, in host memory: nonzero while no guard is given out.
        pub closed: DevicePtr<u32>,
        /// Local key of window w for rail r, big-endian: lkeys[w * rails + r].
        pub lkeys: DevicePtr<u32>,
        /// Where kernels of this rank reach window w at a peer by load and store: direct[w * max_ranks + peer]; 0: not at all.
        pub direct: DevicePtr<u64>,
    }
}

const _: () = {
    assert!(size_of::<PeerEntry>() == 16 && align_of::<PeerEntry>() == 16);
    assert!(size_of::<Window>() == 24);
    assert!(size_of::<TeamContext>() == 80);
};
