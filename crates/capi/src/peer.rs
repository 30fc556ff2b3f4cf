//! The QPs to one rank: ended, brought up again, connected with the next process of it. Those to other ranks go on.
//!
//! A program that lets a group do this calls nothing here.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use warpverbs::team::Team;

use crate::handle::Handle;
use crate::sized::{place, sized};
use crate::status::{Failure, guard, put, wv_status};
use crate::team::{millis, wv_team};

/// The state of this rank's QPs to another rank. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_peer_info {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// Generation of the rank that the QPs are for, or were. 0: no process of it has ever come.
    pub generation: u32,
    /// 1: the QPs are connected with it, and have not been failed.
    pub connected: u32,
    /// 1: kernels get no guard of it, and post nothing to it.
    pub closed: u32,
    /// 1: kernels reach all its windows by load and store.
    pub direct: u32,
    /// Number of guards of it that kernels hold now.
    pub guards: u64,
}

sized!(wv_peer_info {
    generation,
    connected,
    closed,
    direct,
    guards
});

/// Gets the state of the QPs to `peer`. Never waits.
///
/// # Safety
/// `info` is a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_peer_get_info(
    team: *const wv_team,
    peer: u32,
    info: *mut wv_peer_info,
) -> wv_status {
    guard(|| {
        let team = &wv_team::behind("team", team)?.team;
        // SAFETY: the caller's promise.
        let place = unsafe { place("info", info) }?;
        place.fill(wv_peer_info {
            size: 0,
            generation: team.peer_generation(peer)?,
            connected: team.is_connected(peer)?.into(),
            closed: team.is_closed(peer)?.into(),
            direct: team.is_direct(peer)?.into(),
            guards: team.guards(peer)?,
        });
        Ok(())
    })
}

/// Work on the QPs to one peer.
fn of_peer(team: *const wv_team, body: impl FnOnce(&Team) -> Result<(), Failure>) -> wv_status {
    guard(|| {
        let team = wv_team::behind("team", team)?;
        body(&team.team)
    })
}

/// Ends everything with `peer` at once. Kernels get no guard of it any more, its QPs are in error, and every wait for them ends
/// `aborted`. Never waits, and needs no answer of the peer.
#[unsafe(no_mangle)]
pub extern "C" fn wv_peer_fail(team: *const wv_team, peer: u32) -> wv_status {
    of_peer(team, |team| Ok(team.fail_peer(peer)?))
}

/// Brings the QPs to `peer` up again, whatever state they are in. Collective between this rank and the same process of `peer`.
/// Requests in flight have an unknown outcome, and nothing is sent again. `times`, which may be NULL, gets the number of times that
/// these two have done it. Waits at most for join_timeout_ms: WV_PEER_ABSENT if the peer does not come, WV_BUSY if kernels keep
/// their guards.
///
/// # Safety
/// `times` is null or a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_peer_recover(
    team: *const wv_team,
    peer: u32,
    times: *mut u32,
) -> wv_status {
    of_peer(team, |team| {
        let number = team.recover(peer)?;
        if times.is_null() {
            Ok(())
        } else {
            // SAFETY: the caller's promise.
            unsafe { put("times", times, number) }
        }
    })
}

/// Connects the QPs to process `generation` of `peer`: the first in its place, or another than before. QPs and keys for the earlier
/// process end with this call. The peer makes the same call for this rank, after wv_team_announce. Waits at most `timeout_ms`.
/// After an error it may be called again, and goes on from the step that failed. The peer stays closed to kernels until
/// wv_peer_open.
#[unsafe(no_mangle)]
pub extern "C" fn wv_peer_connect(
    team: *const wv_team,
    peer: u32,
    generation: u32,
    timeout_ms: u32,
) -> wv_status {
    of_peer(team, |team| {
        Ok(team.connect_peer(peer, generation, millis(timeout_ms))?)
    })
}

/// Lets kernels post to `peer`, to which the QPs are connected.
#[unsafe(no_mangle)]
pub extern "C" fn wv_peer_open(team: *const wv_team, peer: u32) -> wv_status {
    of_peer(team, |team| Ok(team.open_peer(peer)?))
}

/// Publishes the addresses, settings and windows of this process, for the wv_peer_connect of the others. For a rank of wv_team_join
/// without a group, when all its windows and layers are made. A group does it by itself.
#[unsafe(no_mangle)]
pub extern "C" fn wv_team_announce(team: *const wv_team) -> wv_status {
    of_peer(team, |team| Ok(team.hello()?))
}
