//! Plan, account and slot together: workers pull the slices of a transfer, and each byte moves once.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::thread;

use warpverbs::internal::engine::{
    AtomicAccount, Change, Close, Cut, Kind, Local, Operation, Outcome, Plan, Region, Regions,
    Slots, Status, TransferId,
};

/// 16 registrations of 10,000 bytes that meet.
struct Tiles;

const TILE: u64 = 10_000;
const TILES: u64 = 16;

impl Regions for Tiles {
    fn region_of(&self, address: u64) -> Option<Region> {
        let tile = address / TILE;
        (tile < TILES).then(|| Region {
            number: u32::try_from(tile).unwrap(),
            address: tile * TILE,
            bytes: TILE,
        })
    }
}

/// Operations that follow each other at the peer, from anywhere in this side's memory. They cover all bytes of the region, or
/// fewer.
fn any_operations(random: &mut fastrand::Rng) -> Vec<Operation> {
    let mut operations = Vec::new();
    let mut remote = random.u64(0..5_000);
    while remote < TILE * TILES && random.u32(0..40) > 0 {
        let bytes = random.u64(0..12_000).min(TILE * TILES - remote);
        operations.push(Operation {
            kind: Kind::Write,
            local: random.u64(0..=TILE * TILES - bytes),
            remote,
            bytes,
        });
        remote += bytes;
    }
    operations
}

/// Returns what the byte at a local address is.
fn byte_of(local: u64) -> u8 {
    u8::try_from(local % 251).unwrap()
}

/// A byte at the peer that nothing was written to.
const UNTOUCHED: u8 = 255;

/// One transfer, as its workers share it.
struct Transfer<'a> {
    plan: &'a Plan,
    slots: &'a Slots,
    id: TransferId,
    account: AtomicAccount,
    landed: Vec<AtomicU8>,
    twice: AtomicU32,
}

impl Transfer<'_> {
    fn work(&self, chain: u32) {
        while let Some(numbers) = self.account.hand_out(chain, self.plan.slices()) {
            let count = numbers.end - numbers.start;
            for slice in self.plan.range(numbers) {
                let mut remote = slice.remote;
                for local in slice.locals() {
                    self.write(remote, local);
                    remote += u64::from(local.bytes);
                }
            }
            self.settle(self.account.finish(count, false));
        }
    }

    fn write(&self, remote: u64, local: Local) {
        for at in 0..u64::from(local.bytes) {
            let place = &self.landed[usize::try_from(remote + at).unwrap()];
            let before = place.swap(byte_of(local.address + at), Ordering::Relaxed);
            let is_second = u32::from(before != UNTOUCHED);
            self.twice.fetch_add(is_second, Ordering::Relaxed);
        }
    }

    fn settle(&self, change: Change) {
        if change.settles(self.plan.slices()) {
            self.conclude();
        }
    }

    fn conclude(&self) {
        let outcome = self.account.load().outcome(self.plan.slices());
        assert_eq!(self.slots.conclude(self.id, outcome), Ok(true));
    }
}

#[test]
fn workers_that_pull_slices_move_every_byte_of_a_done_transfer_once() {
    let first = fastrand::u64(..);
    let slots = Slots::new(1, 1).unwrap();
    let cut = Cut::new(4_096, 1_000, u32::MAX).unwrap();
    let mut plan = Plan::new(cut, 3).unwrap();
    for run in 0..200 {
        let seed = first.wrapping_add(run);
        let mut random = fastrand::Rng::with_seed(seed);
        let operations = any_operations(&mut random);
        if operations.is_empty() {
            continue;
        }
        plan.set(&operations, &Tiles, &Tiles).unwrap();
        let cancels = random.u32(0..4) == 0;
        let transfer = Transfer {
            plan: &plan,
            slots: &slots,
            id: slots.take().expect("the slot of the last run is free"),
            account: AtomicAccount::default(),
            landed: (0..TILE * TILES)
                .map(|_| AtomicU8::new(UNTOUCHED))
                .collect(),
            twice: AtomicU32::new(0),
        };
        let shared = &transfer;
        if plan.slices() == 0 {
            // No change settles it.
            shared.conclude();
        }
        thread::scope(|scope| {
            for chain in [1, 4, 16] {
                scope.spawn(move || shared.work(chain));
            }
            if cancels {
                scope.spawn(|| shared.settle(shared.account.close(Close::Cancelled)));
            }
        });
        check(transfer, &operations, cancels, seed);
    }
}

/// All that was handed out has landed, once; what is done has landed as a whole.
fn check(transfer: Transfer<'_>, operations: &[Operation], cancels: bool, seed: u64) {
    let Transfer {
        plan,
        slots,
        id,
        account,
        landed,
        twice,
    } = transfer;
    assert_eq!(twice.into_inner(), 0, "seed {seed}: bytes landed twice");
    let landed: Vec<u8> = landed.into_iter().map(AtomicU8::into_inner).collect();
    let handed = account.load().handed();
    let slices = plan.range(0..handed);
    let bytes: u64 = slices.map(|slice| u64::from(slice.bytes)).sum();
    let there = landed.iter().filter(|byte| **byte != UNTOUCHED).count();
    assert_eq!(there as u64, bytes, "seed {seed}");
    match slots.poll(id) {
        Ok(Status::Concluded(Outcome::Done)) => check_done(operations, &landed, seed),
        Ok(Status::Concluded(Outcome::Cancelled)) => {
            assert!(cancels && handed < plan.slices(), "seed {seed}");
        }
        other => panic!("seed {seed}: {other:?}"),
    }
    assert_eq!(slots.release(id), Ok(()));
}

fn check_done(operations: &[Operation], landed: &[u8], seed: u64) {
    for operation in operations {
        for at in 0..operation.bytes {
            let byte = landed[usize::try_from(operation.remote + at).unwrap()];
            let expected = byte_of(operation.local + at);
            assert_eq!(byte, expected, "seed {seed}: {operation:?} at {at}");
        }
    }
}
