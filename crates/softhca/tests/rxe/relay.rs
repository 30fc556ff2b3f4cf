//! The wire between guest and HCA: carries frames both ways, and loses some on request.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// Ways of the wire, as indices.
pub(crate) const TO_GUEST: usize = 0;
pub(crate) const FROM_GUEST: usize = 1;

/// A wire that is carried by two threads until it is dropped.
pub(crate) struct Relay {
    state: Arc<State>,
    /// Where the guest's end and the HCA's end send to.
    pub(crate) for_guest: SocketAddr,
    pub(crate) for_hca: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    ended: AtomicBool,
    /// RoCE frames of a thousand that are lost, per way.
    loss: [AtomicU32; 2],
    carried: [AtomicU64; 2],
    lost: [AtomicU64; 2],
}

impl Relay {
    /// Between a guest that receives at `guest` and an HCA that receives at `hca`; `seed` decides what is lost.
    pub(crate) fn new(guest: SocketAddr, hca: SocketAddr, seed: u64) -> Self {
        let [near, far] = [(); 2].map(|()| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            // So that the threads see the end.
            let limit = Some(Duration::from_millis(50));
            socket.set_read_timeout(limit).unwrap();
            Arc::new(socket)
        });
        let state = Arc::new(State::default());
        let (for_guest, for_hca) = (far.local_addr().unwrap(), near.local_addr().unwrap());
        let ways = [
            (TO_GUEST, Arc::clone(&near), Arc::clone(&far), guest),
            (FROM_GUEST, far, near, hca),
        ];
        let threads = ways.map(|(way, from, out_of, to)| {
            let state = Arc::clone(&state);
            let random = fastrand::Rng::with_seed(seed + way as u64);
            std::thread::spawn(move || carry(&state, way, &from, &out_of, to, random))
        });
        Self {
            state,
            for_guest,
            for_hca,
            threads: threads.into(),
        }
    }

    /// Loses so many of a thousand RoCE frames, per way.
    pub(crate) fn lose(&self, per_thousand: [u32; 2]) {
        for (way, loss) in per_thousand.into_iter().enumerate() {
            self.state.loss[way].store(loss, Relaxed);
        }
    }

    /// RoCE frames carried and lost since the last call, per way.
    pub(crate) fn take_counts(&self) -> [(u64, u64); 2] {
        [TO_GUEST, FROM_GUEST].map(|way| {
            let carried = self.state.carried[way].swap(0, Relaxed);
            (carried, self.state.lost[way].swap(0, Relaxed))
        })
    }
}

fn carry(
    state: &State,
    way: usize,
    from: &UdpSocket,
    out_of: &UdpSocket,
    to: SocketAddr,
    mut random: fastrand::Rng,
) {
    let mut frame = vec![0; 1 << 16];
    while !state.ended.load(Relaxed) {
        let Ok(bytes) = from.recv(&mut frame) else {
            continue; // nothing for a while, or no receiver at the last send
        };
        let frame = &frame[..bytes];
        if is_roce(frame) {
            if random.u32(0..1000) < state.loss[way].load(Relaxed) {
                state.lost[way].fetch_add(1, Relaxed);
                continue;
            }
            state.carried[way].fetch_add(1, Relaxed);
        }
        // A missing receiver is not the wire's concern.
        let _ = out_of.send_to(frame, to);
    }
}

/// IPv4, UDP, port 4791.
fn is_roce(frame: &[u8]) -> bool {
    frame.len() > 42 && frame[12..14] == [8, 0] && frame[23] == 17 && frame[36..38] == [0x12, 0xb7]
}

/// Returns a UDP address of 127.0.0.1 that no process has.
pub(crate) fn free_udp_address() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap()
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.state.ended.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
