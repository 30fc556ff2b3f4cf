//! `own-kernel RANK RANKS DIRECTORY`: launches the kernel of this crate at one rank, and prints what came from the previous one.

// UNSAFETY: launches a kernel.
#![expect(unsafe_code, reason = "launches a kernel")]

use std::error::Error;
use std::time::Duration;

use bytemuck::{Pod, Zeroable};
use warpverbs::abi::{Status, Window};
use warpverbs::gpu::{self, GpuSelector, Launch};
use warpverbs::team::{JoinOptions, TeamConfig, open_store};
use warpverbs::verbs::{Context, DeviceSelector};

warpverbs::kernels! { static KERNELS }

const LANES: usize = 32;
const LIMIT: Duration = Duration::from_secs(60);

/// `SquaresParams` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct SquaresParams {
    team: u64,
    window: Window,
    status: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [rank, ranks, directory] = words.as_slice() else {
        return Err("usage: own-kernel RANK RANKS DIRECTORY".into());
    };
    let (rank, ranks): (u32, u32) = (rank.parse()?, ranks.parse()?);
    let store = open_store(&format!("file://{directory}"), "own-kernel")?;

    let device = Context::open(&DeviceSelector::Auto)?;
    let gpu = gpu::open(GpuSelector::Auto)?;
    gpu.add_kernels(&KERNELS)?;
    let config = TeamConfig::new(rank, ranks).with_deadline(LIMIT);
    let team = JoinOptions::new(config)
        .with_contexts([&device])
        .with_gpu(&gpu)
        .with_store(store)
        .join()?;
    let window = team.window(2 * 4 * LANES as u64 + 8)?;
    let status = gpu.alloc(4, 4)?;
    team.barrier("windows")?;

    let params = SquaresParams {
        team: team.context_addr(),
        window,
        status: status.addr(),
    };
    // SAFETY: the parameters are those of the kernel; team, window and status live until the event is done.
    let event = unsafe {
        gpu.launch(
            &Launch::new("own_squares", 1, 32),
            bytemuck::bytes_of(&params),
        )
    }?;
    gpu.wait(&event, 2 * LIMIT)?;

    let mut ended = [0; 4];
    gpu.read(status.addr(), &mut ended)?;
    let ended = Status(u32::from_ne_bytes(ended));
    if ended != Status::OK {
        return Err(format!("the kernel ended with {ended:?}").into());
    }
    let mut received = [0_u32; LANES];
    gpu.read(
        window.base + 4 * LANES as u64,
        bytemuck::bytes_of_mut(&mut received),
    )?;
    println!(
        "rank {rank}: {} {} .. {}",
        received[0],
        received[1],
        received[LANES - 1]
    );
    team.barrier("done")?;
    Ok(())
}
