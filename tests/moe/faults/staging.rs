//! Staging rows are written again only when nothing reads them any more (A11). The HCA has then completed the sends from them, or
//! has given these up. A call that finds the rows for one rank in use sends that rank none, and lets no caller write to them. It
//! makes and adds up those of all others.

use std::time::Duration;

use warpverbs::abi::{MoeCause, Outcome};
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

/// Call 3 of rank 0 uses the set of call 1, whose rows for rank 1 are still with the HCA.
fn goes_on(group: &mut Group, first: &[Batch], offers: bool) {
    group.receive_back(&[0], first, |_| vec![0]);
    let second = group.batches(71, 2);
    group.send(&[0], &second);
    group.receive(&[0], &second, |_| vec![0]);
    assert_eq!(group.report(0).offered, offers, "call 2 uses the other set");
    group.send_back(&[0]);
    group.receive_back(&[0], &second, |_| vec![0]);
    let third = group.batches(71, 3);
    group.send(&[0], &third);
    group.receive(&[0], &third, |_| vec![0]);
    assert!(!group.report(0).offered, "{}", group.report(0));
    group.send_back(&[0]);
    let report = group.report(0);
    let fault = report.fault.as_ref().unwrap();
    assert_eq!(
        (fault.cause, fault.peer),
        (MoeCause::TIMEOUT, Some(1)),
        "{report}"
    );
    assert_eq!(report.peers[1].combine_sent, Outcome::SKIPPED, "{report}");
    assert_eq!(report.peers[0].combine_sent, Outcome::SENT, "{report}");
    group.receive_back(&[0], &third, |_| vec![0]);
}

#[test]
fn a_zero_copy_call_copies_while_its_staging_is_still_being_sent() {
    let config = SHAPE.with_layout(RowLayout::RankMajor);
    let modes = CombineOptions::default().with_zero_copy(true);
    let (mut group, first) = stuck(config, &modes);
    goes_on(&mut group, &first, true);
    comes_back(&mut group, &first);
    group.settle();
    group.end();
}

#[test]
fn a_combine_that_copies_sends_none_to_a_rank_whose_rows_are_in_use() {
    let (mut group, first) = stuck(SHAPE, &CombineOptions::default());
    goes_on(&mut group, &first, false);
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
