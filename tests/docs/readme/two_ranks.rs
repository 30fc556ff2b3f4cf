use std::{error::Error, sync::Arc, thread, time::Duration};
use warpverbs::gpu::{self, GpuSelector};
use warpverbs::moe::{Batch, Moe, MoeConfig, Workspace, bf16};
use warpverbs::team::{JoinOptions, MemoryStore, Store, TeamConfig};
use warpverbs::verbs::{Context, DeviceSelector};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn one_rank(rank: u32, store: Arc<dyn Store>) -> Outcome<f32> {
    let device = Context::open(&DeviceSelector::Auto)?;
    let gpu = gpu::open(GpuSelector::Auto)?;
    // A rank that the others wait for longer than the deadline is left out of the call.
    let config = TeamConfig::new(rank, 2).with_deadline(Duration::from_secs(20));
    let team = JoinOptions::new(config).with_contexts([&device]).with_gpu(&gpu).with_store(store).join()?;
    let shape = MoeConfig::BF16.with_hidden(64).with_experts(4).with_top_k(2).with_max_tokens(16);
    let moe = Moe::new(&team, "layer0", shape)?;

    // One token, for expert 0 (which lives at rank 0) and expert 3 (which lives at rank 1).
    let x = vec![bf16::from_f32(1.0 + rank as f32); 64];
    let batch = Batch { x, experts: vec![0, 3], weights: vec![0.75, 0.25] };
    let mut work = Workspace::new(&moe)?;
    work.send(&batch)?; // dispatch: this rank's tokens leave
    work.receive()?; //    dispatch: the tokens of all ranks for this rank's experts are here
    work.experts(|expert, x, y| {
        let scaled = x.iter().map(|&x| bf16::from_f32(bf16::to_f32(x) * (expert + 1) as f32));
        y.iter_mut().zip(scaled).for_each(|(y, scaled)| *y = scaled);
    })?;
    work.send_back()?; // combine
    let combined = work.receive_back()?;
    team.barrier("done")?; // no rank frees memory that the other still writes
    Ok(bf16::to_f32(combined.out[0]))
}

fn main() -> Outcome<()> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let rank_1 = thread::spawn({ let store = store.clone(); move || one_rank(1, store) });
    assert_eq!(one_rank(0, store)?, 1.0 * (0.75 * 1.0 + 0.25 * 4.0));
    assert_eq!(rank_1.join().expect("thread")?, 2.0 * (0.75 * 1.0 + 0.25 * 4.0));
    Ok(())
}
