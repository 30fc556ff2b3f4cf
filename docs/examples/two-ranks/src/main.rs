//! `two-ranks RANK DIRECTORY`: one of two ranks, which meet in a directory. Expert e multiplies a token by e + 1.

use std::error::Error;
use std::time::Duration;

use warpverbs::gpu::{self, GpuSelector};
use warpverbs::moe::{Batch, Moe, MoeConfig, Workspace, bf16};
use warpverbs::team::{JoinOptions, TeamConfig, open_store};
use warpverbs::verbs::{Context, DeviceSelector};

const HIDDEN: u32 = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [rank, directory] = words.as_slice() else {
        return Err("usage: two-ranks RANK DIRECTORY".into());
    };
    let rank: u32 = rank.parse()?;
    let store = open_store(&format!("file://{directory}"), "two-ranks")?;

    let device = Context::open(&DeviceSelector::Auto)?;
    let gpu = gpu::open(GpuSelector::Auto)?;
    let config = TeamConfig::new(rank, 2).with_deadline(Duration::from_secs(60));
    let team = JoinOptions::new(config)
        .with_contexts([&device])
        .with_gpu(&gpu)
        .with_store(store)
        .join()?;
    let shape = MoeConfig::BF16
        .with_hidden(HIDDEN)
        .with_experts(4)
        .with_top_k(2)
        .with_max_tokens(16);
    let moe = Moe::new(&team, "layer0", shape)?;

    // One token of ones, for expert 0 of rank 0 and expert 3 of rank 1.
    let batch = Batch {
        x: vec![bf16::from_f32(1.0); HIDDEN as usize],
        experts: vec![0, 3],
        weights: vec![0.75, 0.25],
    };
    let mut work = Workspace::new(&moe)?;
    work.send(&batch)?;
    work.receive()?;
    work.experts(|expert, x, y| {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = bf16::from_f32(bf16::to_f32(x) * (expert + 1) as f32);
        }
    })?;
    work.send_back()?;
    let combined = work.receive_back()?;
    println!("rank {rank}: {}", bf16::to_f32(combined.out[0]));
    team.barrier("done")?; // no rank frees memory that the other still writes
    Ok(())
}
