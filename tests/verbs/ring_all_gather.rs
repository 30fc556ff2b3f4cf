//! The example kernel of a user, `kernels/example/ring_all_gather.cu`, with its host side as a user would write it. One process
//! holds all ranks as threads.

// UNSAFETY: launches the kernel.
#![expect(unsafe_code, reason = "launches a kernel")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::{Pod, Zeroable};
use softhca::HcaConfig;
use test_support::limits::HANG;
use test_support::ranks::{self, Meeting};
use warpverbs::abi::{Status, Window};
use warpverbs::gpu::{DeviceMemory, Launch};
use warpverbs::team::{Team, TeamConfig};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// `AllGatherParams` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct AllGatherParams {
    team: u64,
    window: Window,
    chunk_bytes: u64,
    call: u64,
    status: u64,
}

/// One rank's side of an all-gather that can be called again and again.
struct AllGather {
    window: Window,
    chunk_bytes: usize,
    calls: u64,
    status: DeviceMemory,
    team: Arc<Team>,
}

impl AllGather {
    /// Collective.
    fn new(team: Arc<Team>, chunk_bytes: usize) -> Outcome<Self> {
        let ranks = team.ranks() as usize;
        let window = team.window((ranks * chunk_bytes + 8 * ranks) as u64)?;
        let status = team.gpu().alloc(size_of::<Status>(), 4)?;
        Ok(Self {
            window,
            chunk_bytes,
            calls: 0,
            status,
            team,
        })
    }

    /// Collective: `chunk` of every rank, by rank; or how the kernel ended. All ranks have taken what they gathered before
    /// any calls again.
    fn call(&mut self, chunk: &[u8]) -> Outcome<Result<Vec<u8>, Status>> {
        let gpu = self.team.gpu();
        self.calls += 1;
        let own = u64::from(self.team.rank()) * self.chunk_bytes as u64;
        gpu.write(self.window.base + own, chunk)?;
        let params = AllGatherParams {
            team: self.team.context_addr(),
            window: self.window,
            chunk_bytes: self.chunk_bytes as u64,
            call: self.calls,
            status: self.status.addr(),
        };
        let warp = Launch::new("ring_all_gather", 1, 32);
        // SAFETY: the parameters are the kernel's; team, window and status live until its event is done.
        let event = unsafe { gpu.launch(&warp, bytemuck::bytes_of(&params)) }?;
        gpu.wait(&event, HANG)?;
        let mut ended = [0; 4];
        gpu.read(self.status.addr(), &mut ended)?;
        let ended = Status(u32::from_ne_bytes(ended));
        if ended != Status::OK {
            return Ok(Err(ended));
        }
        let mut gathered = vec![0; self.team.ranks() as usize * self.chunk_bytes];
        gpu.read(self.window.base, &mut gathered)?;
        Ok(Ok(gathered))
    }
}

/// Runs `side(team, meet)` for `ranks` ranks, each with a software HCA of its own, and checks that these have nothing to say.
fn for_ranks<T: Send>(
    ranks: u32,
    side: impl Fn(Arc<Team>, &Meeting) -> Outcome<T> + Sync,
) -> Vec<T> {
    let hcas = ranks::hcas(ranks as usize, &HcaConfig::default());
    let meet = Meeting::new(ranks);
    let ended = ranks::on_threads(ranks, |rank, store| {
        let _attendance = meet.attend();
        let config = TeamConfig::new(rank, ranks)
            .with_deadline(HANG)
            .with_join_timeout(HANG);
        let team = ranks::join(config, [&*hcas[rank as usize]], store).unwrap();
        side(team, &meet).unwrap()
    });
    ranks::check(&hcas);
    ended
}

fn chunk(rank: u32, call: u64, bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(u64::from(rank) << 32 | call);
    (0..bytes).map(|_| random.u8(..)).collect()
}

#[test]
fn every_rank_gathers_the_chunks_of_all_in_every_call() {
    for (ranks, bytes) in [(1, 8), (2, 8), (3, 4096), (4, 100_000)] {
        for_ranks(ranks, |team, meet| {
            let rank = team.rank();
            let mut all_gather = AllGather::new(Arc::clone(&team), bytes)?;
            for call in 1..=4 {
                let gathered = all_gather.call(&chunk(rank, call, bytes))?;
                let expected: Vec<u8> = (0..ranks)
                    .flat_map(|rank| chunk(rank, call, bytes))
                    .collect();
                assert!(
                    gathered == Ok(expected),
                    "rank {rank} of {ranks}, call {call}"
                );
                meet.wait();
            }
            team.barrier("done")?;
            Ok(())
        });
    }
}

#[test]
fn a_neighbour_that_does_not_call_is_a_timeout_and_not_a_hang() {
    let ended = for_ranks(2, |team, meet| {
        team.set_deadline(Duration::from_millis(500))?;
        let mut all_gather = AllGather::new(Arc::clone(&team), 64)?;
        let ended = match team.rank() {
            0 => all_gather.call(&[1; 64])?,
            _ => Err(Status::OK),
        };
        meet.wait();
        team.barrier("done")?;
        Ok(ended)
    });
    assert_eq!(ended, [Err(Status::TIMEOUT), Err(Status::OK)]);
}
