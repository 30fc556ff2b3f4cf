//! Configurations of the modes: batches of a warp, block-owned, host queues, mailbox, exclusive.

use super::{check, new, same};
use models::posting::{Admission, Configuration, Mutant, Nic, Property, op, puts};

pub(crate) fn batches() -> Vec<Configuration> {
    let two = |name, count| new(name, 4, same(2, puts(count, 2))).quarter(2).lanes();
    let with_wait = || vec![vec![op(3, "w")], puts(2, 2)];
    vec![
        two("D4 2 warps of 2 lanes, twice", 2),
        two("D4 2 warps of 2 lanes, no record", 2).without_record(),
        two("D4 2 warps of 2 lanes, NIC samples", 2).nic(Nic::Samples),
        new("D8 3 lanes with ticket, 2 lanes twice", 8, with_wait())
            .quarter(4)
            .lanes(),
        new(
            "D4 2 lanes held back, flush; put",
            4,
            vec![vec![op(2, "m"), op(0, "f")], puts(1, 1)],
        )
        .quarter(4)
        .lanes(),
        two("no barrier behind the lanes", 2).mutant(Mutant::NoBarrier, Property::Due),
        two("fence before the barrier", 2).mutant(Mutant::BarrierAfterFence, Property::Due),
        two("no barrier, no record", 2)
            .without_record()
            .mutant(Mutant::NoBarrier, Property::Due),
    ]
}

#[test]
fn lanes_of_a_warp_write_and_the_leader_publishes_for_them() {
    check("batch", batches());
}

pub(crate) fn lanes_alone() -> Vec<Configuration> {
    let three = |name| new(name, 2, same(3, puts(2, 1))).warps();
    let two_warps = |name| {
        let programs = vec![puts(1, 1), puts(1, 1), puts(2, 1), puts(2, 1)];
        new(name, 2, programs).warps()
    };
    vec![
        three("D2 3 lanes, twice").live(),
        three("D2 3 lanes, twice, no record").without_record(),
        three("D2 3 lanes, twice, NIC samples").nic(Nic::Samples),
        two_warps("D2 2 warps of 2 lanes"),
        new(
            "D4 3 lanes, batches of two, deadline",
            4,
            same(3, vec![op(2, "d"); 2]),
        )
        .quarter(2)
        .warps(),
        new(
            "D2 3 lanes, put and wait",
            2,
            same(3, vec![op(1, "w"), op(1, "")]),
        )
        .warps(),
        three("lanes meet with their claims").mutant(Mutant::MeetsWithClaim, Property::Ends),
        two_warps("lanes of two warps meet with their claims")
            .mutant(Mutant::MeetsWithClaim, Property::Ends),
    ]
}

#[test]
fn lanes_that_post_alone_meet_behind_the_post_and_not_inside() {
    check("lanes", lanes_alone());
}

pub(crate) fn block_owned() -> Vec<Configuration> {
    let two = |name| new(name, 4, same(2, puts(3, 1))).block_owned();
    let three = |name| new(name, 2, same(3, puts(2, 1))).block_owned();
    // Three threads: one publishes, one hands over, one inherits.
    let ones = |name| new(name, 4, same(3, puts(1, 1))).block_owned();
    let held = |name| {
        let programs = vec![vec![op(1, "m"), op(0, "f")], vec![op(1, "mw")]];
        new(name, 4, programs).quarter(4).block_owned()
    };
    vec![
        two("D4 2x3"),
        ones("D4 3x1, NIC samples the record").nic(Nic::Samples),
        two("D4 2x3, no record").without_record(),
        three("D2 3x2"),
        three("D2 3x2, no record").without_record(),
        held("D4 hold-back, flush and wait"),
        held("D4 hold-back, flush and wait, no record").without_record(),
        three("D2 3x2, host queues").host_queues(),
        ones("D4 3x1, no record").without_record(),
        new("D4 2 warps of 2 lanes, twice", 4, same(2, puts(2, 2)))
            .quarter(2)
            .lanes()
            .block_owned(),
        new("recover D2 2x2", 2, same(2, puts(2, 1)))
            .block_owned()
            .recovering(),
        two("publisher without fence").mutant(Mutant::PublishFenceMissing, Property::Due),
        two("holder without acquire").mutant(Mutant::HolderWithoutAcquire, Property::Due),
        two("holder without acquire, no record")
            .without_record()
            .mutant(Mutant::HolderWithoutAcquire, Property::Due),
        ones("hand-over without acquire").mutant(Mutant::HandOverWithoutAcquire, Property::Due),
        held("hold-back without acquire").mutant(Mutant::HoldWithoutAcquire, Property::Due),
        held("hold-back without acquire, no record")
            .without_record()
            .mutant(Mutant::HoldWithoutAcquire, Property::Due),
        two("one gpu fence with a record")
            .nic(Nic::Samples)
            .mutant(Mutant::OneFenceWithRecord, Property::Due),
    ]
}

#[test]
fn block_fences_suffice_if_the_holder_acquires_and_fences_for_the_nic() {
    check("block", block_owned());
}

pub(crate) fn host_queues() -> Vec<Configuration> {
    let two = |name| new(name, 4, same(2, puts(2, 1))).host_queues();
    vec![
        two("D4 2x2"),
        two("D4 2x2, no record").without_record(),
        two("D4 2x2, NIC samples the record").nic(Nic::Samples),
        two("publish fence of gpu scope").mutant(Mutant::PublishFenceOfGpu, Property::Due),
        two("doorbell fence of gpu scope").mutant(Mutant::DoorbellFenceOfGpu, Property::Record),
        two("doorbell fence of gpu scope, no record")
            .without_record()
            .mutant(Mutant::DoorbellFenceOfGpu, Property::Due),
    ]
}

#[test]
fn queues_in_host_memory_need_fences_of_system_scope() {
    check("host", host_queues());
}

pub(crate) fn mailboxes() -> Vec<Configuration> {
    let two = |name| new(name, 4, same(2, puts(2, 1))).mailbox();
    let held = || vec![vec![op(1, "m"), op(0, "f")], vec![op(1, "mw")]];
    vec![
        two("D4 2x2"),
        two("D4 2x2, no record").without_record(),
        two("D4 2x2, NIC samples the record").nic(Nic::Samples),
        two("D4 2x2, host queues").host_queues(),
        new("D2 2x3", 2, same(2, puts(3, 1))).mailbox(),
        new("D4 hold-back, flush and wait", 4, held())
            .quarter(2)
            .mailbox(),
        new("D4 hold-back, flush and wait, no record", 4, held())
            .quarter(2)
            .mailbox()
            .without_record(),
        two("D4 2x2, block-owned").block_owned(),
        new("D4 2 warps of 2 lanes", 4, same(2, puts(1, 2)))
            .quarter(2)
            .lanes()
            .mailbox(),
        new("recover D2 2x1", 2, same(2, puts(1, 1)))
            .mailbox()
            .persistent(),
        two("fence of gpu scope").mutant(Mutant::DoorbellFenceOfGpu, Property::Record),
        two("fence of gpu scope, no record")
            .without_record()
            .mutant(Mutant::DoorbellFenceOfGpu, Property::Due),
        two("stored, not a maximum").mutant(Mutant::MailboxStored, Property::NothingLost),
        new(
            "host thread not stopped for the reset",
            2,
            same(2, puts(1, 1)),
        )
        .mailbox()
        .persistent()
        .mutant(Mutant::AgentNotStopped, Property::Life),
    ]
}

#[test]
fn a_mailbox_and_its_host_thread_ring_for_everything() {
    check("mailbox", mailboxes());
}

pub(crate) fn exclusive() -> Vec<Configuration> {
    let alone = |name, ops| new(name, 4, vec![ops]).admission(Admission::Alone, 0);
    let puts = || puts(6, 1);
    let held = || vec![op(1, "m"), op(1, "m"), op(0, "f"), op(1, "mw"), op(1, "")];
    vec![
        alone("D4 6 puts", puts()),
        alone("D4 6 puts, NIC samples the record", puts()).nic(Nic::Samples),
        alone("D4 6 puts, no record", puts()).without_record(),
        alone("D4 6 puts, host queues", puts()).host_queues(),
        alone("D4 6 puts, mailbox", puts()).mailbox(),
        alone("D4 counter wraps, 12 puts", vec![op(1, ""); 12]).modulus(8),
        alone("D4 hold-back, flush and wait", held()).quarter(4),
        alone("D4 hold-back, no record", held())
            .quarter(4)
            .without_record(),
        alone("D4 batches of two lanes", vec![op(2, "w"); 3])
            .quarter(2)
            .lanes(),
        alone("D4 waits, any error", vec![op(1, "w"); 4]).any_error(),
        alone("one fence with a record", puts())
            .nic(Nic::Samples)
            .mutant(Mutant::OneFenceWithRecord, Property::Due),
        alone("no fence before the doorbell", puts())
            .mutant(Mutant::NoFenceBeforeDoorbell, Property::Record),
        alone("no fence before the doorbell, no record", puts())
            .without_record()
            .mutant(Mutant::NoFenceBeforeDoorbell, Property::Due),
        alone("flush does nothing", vec![op(1, "m"), op(0, "f")])
            .quarter(4)
            .mutant(Mutant::FlushDoesNothing, Property::NothingLost),
    ]
}

#[test]
fn an_exclusive_queue_needs_fences_but_no_atomics() {
    check("exclusive", exclusive());
}
