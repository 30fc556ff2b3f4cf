//! Staging rows are written again only when nothing reads them any more (A11). The HCA has then completed the sends from them, or
//! has given these up. A call that finds them in use sends nothing, and lets no caller write to them.

use std::time::Duration;

use warpverbs::abi::{MoeCause, Outcome, Status};
use warpverbs::internal::moe_abi::KIND_COMBINE;
use warpverbs::moe::{Batch, CombineOptions, Deadlines, MoeConfig, RowLayout};

use crate::group::{Group, SHAPE};

const SHORT: Duration = Duration::from_secs(3);
const ALL: [u32; 2] = [0, 1];
/// The HCA repeats a send for longer than the test runs: 4.096 us * 2^20 * 8 is 34 s. The deadline of rank 0 is 3 s.
const PATIENT: u8 = 20;

/// Two ranks that have made call 1 up to the experts; then rank 1's port is down, and rank 0 has combined. What it has sent
/// stays with its HCA.
fn stuck(config: MoeConfig, modes: &CombineOptions) -> (Group, Vec<Batch>) {
    let mut group = Group::with(2, Duration::from_secs(20), Some(PATIENT), config);
    for work in &mut group.works {
        work.set_combine_options(modes.clone());
    }
    group.moes[0].set_deadlines(&Deadlines::new(SHORT)).unwrap();
    let batches = group.batches(71, 1);
    group.send(&ALL, &batches);
    // Rank 0 finds rank 1's rows at its first look, so its short deadline never runs.
    group.settle();
    group.receive(&ALL, &batches, |_| ALL.to_vec());
    group.settle();
    group.unplug(1);
    group.send_back(&[0]);
    (group, batches)
}

/// Rank 1 is back: what rank 0 sent in call 1 arrives, and is what its experts made of call 1's rows.
fn comes_back(group: &mut Group, batches: &[Batch]) {
    group.plug(1);
    group.send_back(&[1]);
    group.receive_back(&[1], batches, |_| ALL.to_vec());
}

#[test]
fn a_zero_copy_call_gets_no_rows_while_its_staging_is_still_being_sent() {
    let config = SHAPE.with_layout(RowLayout::RankMajor);
    let modes = CombineOptions::default().with_zero_copy(true);
    let (mut group, first) = stuck(config, &modes);
    group.receive_back(&[0], &first, |_| vec![0]);
    let second = group.batches(71, 2);
    group.send(&[0], &second);
    group.receive(&[0], &second, |_| vec![0]);
    group.send_back(&[0]);
    group.receive_back(&[0], &second, |_| vec![0]);
    // Call 3 uses the memory of call 1. Not even its own rows are given out: a rank without rows writes none.
    let third = group.batches(71, 3);
    group.send(&[0], &third);
    group.receive(&[0], &third, |_| Vec::new());
    let report = group.report(0);
    assert_eq!(report.phases[1], Status::TIMEOUT, "{report}");
    let fault = report.fault.as_ref().unwrap();
    assert_eq!(
        (fault.cause, fault.peer),
        (MoeCause::TIMEOUT, Some(1)),
        "{report}"
    );
    assert_eq!(group.works[0].arrived().unwrap(), [false, false]);
    group.send_back(&[0]);
    group.receive_back(&[0], &third, |_| Vec::new());
    comes_back(&mut group, &first);
    group.settle();
    group.end();
}

#[test]
fn a_combine_that_copies_sends_nothing_while_its_staging_is_in_use() {
    let (mut group, first) = stuck(SHAPE, &CombineOptions::default());
    group.receive_back(&[0], &first, |_| vec![0]);
    let second = group.batches(71, 2);
    group.send(&[0], &second);
    group.receive(&[0], &second, |_| vec![0]);
    group.send_back(&[0]);
    group.receive_back(&[0], &second, |_| vec![0]);
    let third = group.batches(71, 3);
    group.send(&[0], &third);
    group.receive(&[0], &third, |_| vec![0]);
    group.send_back(&[0]);
    let report = group.report(0);
    assert_eq!(report.phases[2], Status::TIMEOUT, "{report}");
    assert_eq!(report.peers[0].combine_sent, Outcome::SKIPPED, "{report}");
    group.receive_back(&[0], &third, |_| Vec::new());
    comes_back(&mut group, &first);
    group.settle();
    let word = group.signal(1, 0, KIND_COMBINE, 3);
    assert_eq!(
        word.data >> 16 & 0xffff_ffff,
        1,
        "only that of call 1 was sent"
    );
    group.end();
}
