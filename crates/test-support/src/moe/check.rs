//! The experts of the tests, and checks of what a call has received.

use warpverbs::moe::{Batch, Combined, Moe, Source, Workspace, bf16};

use crate::reference;

/// Computes what the experts of the tests make of a token. It depends on the expert and the token.
pub fn expert(id: u32, x: &[u16], y: &mut [u16]) {
    let scale = 0.5 + id as f32 / 64.0;
    for (y, &x) in y.iter_mut().zip(x) {
        *y = bf16::from_f32(bf16::to_f32(x) * scale + 0.25);
    }
}

/// Checks M1: the rows of each expert are those of the reference implementation, in its order, with every element.
pub fn check_dispatch(
    moe: &Moe,
    batches: &[Batch],
    work: &Workspace,
    got: &[Vec<Source>],
    what: &str,
) {
    let config = moe.config();
    let want = reference::dispatch(config, work.placement(), batches, moe.team().rank());
    assert_eq!(got, want, "{what}: sources");
    for (local, sources) in want.iter().enumerate() {
        for (row, source) in sources.iter().enumerate() {
            let x = work.received(local, row).unwrap();
            let sent = batches[source.rank as usize].token(config, source.token as usize);
            assert_eq!(x, sent, "{what}: expert {local} row {row} from {source:?}");
        }
    }
}

/// Checks M2: the sums equal those of the reference implementation bit for bit, and every token is valid.
pub fn check_combine(moe: &Moe, batch: &Batch, got: &Combined, what: &str) {
    let rank = moe.team().rank();
    let want = reference::combine(moe.config(), &moe.placement(), rank, batch, expert);
    assert_eq!(got.out, want, "{what}");
    assert!(
        got.token_valid.iter().all(|valid| *valid),
        "{what}: {:?}",
        got.token_valid
    );
}
