//! Slices of a vector of operations, against a list that is made slice by slice; and every limit, one below and one beyond.

use std::cell::Cell;

use warpverbs::internal::engine::{
    Cut, EngineError, Kind, Local, MOST_GATHER, MOST_OPERATIONS, MOST_PIECES, MOST_SLICES,
    Operation, Plan, Region, Regions, Side, Slice,
};

const BLOCK: u32 = 4_096;

/// Registrations that do not overlap, sorted.
#[derive(Debug)]
struct List(Vec<Region>);

impl Regions for List {
    fn region_of(&self, address: u64) -> Option<Region> {
        let has =
            |region: &&Region| region.address <= address && address - region.address < region.bytes;
        self.0.iter().find(has).copied()
    }
}

/// One registration of all memory but the last byte.
struct All;

impl Regions for All {
    fn region_of(&self, _address: u64) -> Option<Region> {
        Some(Region {
            number: 0,
            address: 0,
            bytes: u64::MAX,
        })
    }
}

fn plan(block: u32, fragment: u32, gather: u32) -> Plan {
    Plan::new(Cut::new(block, fragment, u32::MAX).unwrap(), gather).unwrap()
}

fn write(local: u64, remote: u64, bytes: u64) -> Operation {
    Operation {
        kind: Kind::Write,
        local,
        remote,
        bytes,
    }
}

/// A slice with all that it has, as the plan or the oracle says it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    kind: Kind,
    region: u32,
    remote: u64,
    operations: std::ops::Range<u32>,
    locals: Vec<Local>,
}

impl From<Slice<'_>> for Told {
    fn from(slice: Slice<'_>) -> Self {
        let locals: Vec<Local> = slice.locals().collect();
        let bytes: u64 = locals.iter().map(|local| u64::from(local.bytes)).sum();
        assert_eq!(bytes, u64::from(slice.bytes));
        Self {
            kind: slice.kind,
            region: slice.remote_region,
            remote: slice.remote,
            operations: slice.operations.clone(),
            locals,
        }
    }
}

fn told(plan: &Plan) -> Vec<Told> {
    plan.range(0..u32::MAX).map(Told::from).collect()
}

/// Computes every slice by itself. The bytes up to the next border of either side are a piece, and a piece takes a block as long as
/// it can. A piece of one slice goes into the slice before if all conditions for that hold.
fn oracle(plan: (Cut, u32), operations: &[Operation], local: &List, remote: &List) -> Vec<Told> {
    let (cut, gather) = plan;
    let (block, most) = (u64::from(cut.block()), u64::from(cut.most()));
    let mut slices: Vec<Told> = Vec::new();
    // Whether the last slice is the only one of its piece or pieces.
    let mut is_alone = false;
    for (number, operation) in (0u32..).zip(operations) {
        let mut at = 0;
        while at < operation.bytes {
            let here = local.region_of(operation.local + at).unwrap();
            let there = remote.region_of(operation.remote + at).unwrap();
            let ends = [
                operation.bytes,
                here.address + here.bytes - operation.local,
                there.address + there.bytes - operation.remote,
            ];
            let end = ends.into_iter().min().unwrap();
            let mut pieces = Vec::new();
            while end - at > most {
                pieces.push((at, block));
                at += block;
            }
            pieces.push((at, end - at));
            at = end;
            for (start, bytes) in &pieces {
                let slice = Told {
                    kind: operation.kind,
                    region: there.number,
                    remote: operation.remote + start,
                    operations: number..number + 1,
                    locals: vec![Local {
                        region: here.number,
                        address: operation.local + start,
                        bytes: u32::try_from(*bytes).unwrap(),
                    }],
                };
                let last = slices.last_mut().filter(|_| is_alone && pieces.len() == 1);
                match last.and_then(|last| joined(last, &slice, block, gather)) {
                    Some(both) => *slices.last_mut().unwrap() = both,
                    None => {
                        slices.push(slice);
                        is_alone = pieces.len() == 1;
                    }
                }
            }
        }
    }
    slices
}

/// Both as one slice, if that may be.
fn joined(one: &Told, other: &Told, block: u64, gather: u32) -> Option<Told> {
    let length = |told: &Told| -> u64 { told.locals.iter().map(|l| u64::from(l.bytes)).sum() };
    let mut both = one.clone();
    both.operations.end = other.operations.end;
    let last = both.locals.last_mut()?;
    let next = other.locals[0];
    if last.region == next.region && last.address + u64::from(last.bytes) == next.address {
        last.bytes += next.bytes;
    } else {
        both.locals.push(next);
    }
    let follows = one.kind == other.kind
        && one.region == other.region
        && one.remote + length(one) == other.remote;
    let fits = length(one) + length(other) <= block && both.locals.len() <= gather as usize;
    (follows && fits).then_some(both)
}

/// A few registrations, some of which meet.
fn any_regions(random: &mut fastrand::Rng) -> List {
    let mut address = random.u64(0..1 << 40);
    let mut number = 100;
    let mut next = || {
        address += [0, 0, 1, 10_000][random.usize(0..4)];
        let bytes = random.u64(1..40_000);
        let region = Region {
            number,
            address,
            bytes,
        };
        address += bytes;
        number += 1;
        region
    };
    List((0..6).map(|_| next()).collect())
}

/// Bytes that are registered from `address` on, without a gap.
fn room(regions: &List, address: u64) -> u64 {
    let mut at = address;
    while let Some(region) = regions.region_of(at) {
        at = region.address + region.bytes;
    }
    at - address
}

fn any_place(random: &mut fastrand::Rng, regions: &List) -> u64 {
    let region = regions.0[random.usize(0..regions.0.len())];
    region.address + random.u64(0..region.bytes)
}

/// Operations within the registrations; often one goes on where the one before ends, here, at the peer or on both sides.
fn any_operations(random: &mut fastrand::Rng, local: &List, remote: &List) -> Vec<Operation> {
    let mut operations: Vec<Operation> = Vec::new();
    for _ in 0..random.usize(1..30) {
        let mut next = write(any_place(random, local), any_place(random, remote), 0);
        if random.u32(0..6) == 0 {
            next.kind = Kind::Read;
        }
        if let Some(before) = operations.last() {
            let follows = [random.bool(), random.u32(0..4) > 0];
            if follows[0] && local.region_of(before.local + before.bytes).is_some() {
                next.local = before.local + before.bytes;
            }
            if follows[1] && remote.region_of(before.remote + before.bytes).is_some() {
                next.remote = before.remote + before.bytes;
                next.kind = before.kind;
            }
        }
        let most = room(local, next.local).min(room(remote, next.remote));
        let wanted = [0, 1, 700, 4_096, 5_000, 40_000][random.usize(0..6)];
        next.bytes = most
            .min(wanted + random.u64(0..3))
            .saturating_sub(random.u64(0..3));
        operations.push(next);
    }
    operations
}

#[test]
fn slices_are_those_of_a_list_that_is_made_slice_by_slice() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut gathered, mut cut_at_borders) = (0, 0);
    for run in 0..4_000 {
        let cut = Cut::new(BLOCK, random.u32(0..=BLOCK), u32::MAX).unwrap();
        let gather = random.u32(1..=MOST_GATHER);
        let mut plan = Plan::new(cut, gather).unwrap();
        let (local, remote) = (any_regions(&mut random), any_regions(&mut random));
        // The same plan for one transfer after the other.
        for _ in 0..2 {
            let operations = any_operations(&mut random, &local, &remote);
            let place = format!("seed {seed}, run {run}: {operations:?}, {local:?}, {remote:?}");
            plan.set(&operations, &local, &remote).unwrap();
            let expected = oracle((cut, gather), &operations, &local, &remote);
            assert_eq!(told(&plan), expected, "{place}");
            assert_eq!(plan.slices() as usize, expected.len(), "{place}");
            let bytes: u64 = operations.iter().map(|operation| operation.bytes).sum();
            assert_eq!(plan.bytes(), bytes, "{place}");
            assert_eq!(plan.is_small(), bytes < 8_192, "{place}");
            let [one, other] = [0; 2].map(|_| random.usize(0..=expected.len()));
            let (start, end) = (one.min(other), one.max(other));
            let numbers = u32::try_from(start).unwrap()..u32::try_from(end).unwrap();
            let some: Vec<Told> = plan.range(numbers).map(Told::from).collect();
            assert_eq!(some, expected[start..end], "{place}");
            check_bytes(&expected, &operations, &place);
            check_limits(&expected, cut, gather, &local, &remote, &place);
            gathered += expected.iter().filter(|told| told.locals.len() > 1).count();
            let crosses = |operation: &&Operation| {
                let last = operation.bytes.saturating_sub(1);
                local.region_of(operation.local) != local.region_of(operation.local + last)
                    || remote.region_of(operation.remote)
                        != remote.region_of(operation.remote + last)
            };
            cut_at_borders += operations.iter().filter(crosses).count();
        }
    }
    assert!(gathered > 1_000 && cut_at_borders > 1_000);
}

/// The slices move the bytes of the operations in their order: each from where to where the operation says.
fn check_bytes(slices: &[Told], operations: &[Operation], place: &str) {
    let mut moved = slices.iter().flat_map(|told| {
        let mut remote = told.remote;
        told.locals.iter().map(move |local| {
            let there = remote;
            remote += u64::from(local.bytes);
            (told, local.address, there, u64::from(local.bytes))
        })
    });
    let mut left: Option<(&Told, u64, u64, u64)> = None;
    for (number, operation) in (0u32..).zip(operations) {
        let mut at = 0;
        while at < operation.bytes {
            let (told, local, remote, bytes) = left.take().or_else(|| moved.next()).expect(place);
            let expected = (operation.kind, operation.local + at, operation.remote + at);
            assert_eq!((told.kind, local, remote), expected, "{place}");
            assert!(told.operations.contains(&number), "{place}");
            let here = bytes.min(operation.bytes - at);
            at += here;
            left = (here < bytes).then_some((told, local + here, remote + here, bytes - here));
        }
    }
    assert!(left.is_none() && moved.next().is_none(), "{place}");
}

/// No range leaves its registration, no slice is empty, too long or of too many ranges.
fn check_limits(slices: &[Told], cut: Cut, gather: u32, local: &List, remote: &List, place: &str) {
    let is_inside = |regions: &List, number, address, bytes| {
        let first = regions.region_of(address).expect(place);
        first.number == number && address + bytes <= first.address + first.bytes
    };
    for told in slices {
        let bytes: u64 = told.locals.iter().map(|one| u64::from(one.bytes)).sum();
        assert!((1..=u64::from(cut.most())).contains(&bytes), "{place}");
        assert!(
            (1..=gather as usize).contains(&told.locals.len()),
            "{place}"
        );
        assert!(
            is_inside(remote, told.region, told.remote, bytes),
            "{place}"
        );
        for one in &told.locals {
            assert!(one.bytes > 0, "{place}");
            let inside = is_inside(local, one.region, one.address, one.bytes.into());
            assert!(inside, "{place}");
        }
    }
}

#[test]
fn pieces_that_follow_each_other_at_the_peer_are_one_slice() {
    let operation = |number: u64| write(10_000 * number, 1_000 * number, 1_000);
    let nine: Vec<Operation> = (0..9).map(operation).collect();
    let ranges = |gather| {
        let mut plan = plan(BLOCK, 0, gather);
        plan.set(&nine, &All, &All).unwrap();
        told(&plan)
            .iter()
            .map(|told| told.locals.len())
            .collect::<Vec<_>>()
    };
    assert_eq!(ranges(1), [1; 9]);
    assert_eq!(ranges(3), [3; 3]);
    // A block has room for four of 1,000 bytes.
    assert_eq!(ranges(16), [4, 4, 1]);
    // Those that follow each other here too are one range.
    let pages: Vec<Operation> = (0..8)
        .map(|number| write(512 * number, 512 * number, 512))
        .collect();
    let mut plan = plan(BLOCK, 0, 1);
    plan.set(&pages, &All, &All).unwrap();
    let slices = told(&plan);
    assert_eq!(slices.len(), 1);
    assert_eq!(
        (slices[0].operations.clone(), slices[0].locals.len()),
        (0..8, 1)
    );
    // A read is no part of a write.
    let mut mixed = pages;
    mixed[4].kind = Kind::Read;
    plan.set(&mixed, &All, &All).unwrap();
    assert_eq!(plan.slices(), 3);
}

#[test]
fn operations_without_bytes_have_no_slices() {
    let mut plan = plan(65_536, 4_096, 4);
    // Nor an address that must be registered.
    plan.set(&[write(u64::MAX, u64::MAX, 0); 3], &List(Vec::new()), &All)
        .unwrap();
    assert_eq!(
        (plan.slices(), plan.bytes(), told(&plan)),
        (0, 0, Vec::new())
    );
    plan.set(
        &[write(5, 5, 0), write(5, 5, 1), write(5, 5, 0)],
        &All,
        &All,
    )
    .unwrap();
    assert_eq!(plan.slices(), 1);
    assert_eq!(told(&plan)[0].operations, 1..2);
}

#[test]
fn a_vector_has_one_operation_or_more_up_to_its_limit() {
    let mut plan = plan(65_536, 4_096, 4);
    for count in [0, MOST_OPERATIONS + 1] {
        let refused = plan.set(&vec![write(0, 0, 1); count], &All, &All);
        let refused = refused.unwrap_err();
        assert_eq!(refused, EngineError::Operations { count });
        assert!(refused.to_string().contains("1 to 65536"), "{refused}");
    }
    let scattered = |number| write(0, 70_000 * number, 70_000);
    let most: Vec<Operation> = (0..MOST_OPERATIONS as u64).map(scattered).collect();
    plan.set(&most, &All, &All).unwrap();
    assert_eq!(plan.slices() as usize, 2 * MOST_OPERATIONS);
    let last = plan.range(plan.slices() - 1..plan.slices()).next().unwrap();
    assert_eq!(last.operations, 65_535..65_536);
    assert_eq!(last.remote + u64::from(last.bytes), 70_000 * 65_536);
}

#[test]
fn lengths_beyond_32_bits_are_whole() {
    let mut plan = plan(65_536, 4_096, 4);
    let before = plan.memory();
    for (bytes, slices) in [
        ((1 << 32) - 1, 65_536),
        (1 << 32, 65_536),
        ((1 << 32) + 1, 65_536),
        ((1 << 32) + 4_097, 65_537),
        (1 << 40, 1 << 24),
    ] {
        plan.set(&[write(1, 1 << 50, bytes)], &All, &All).unwrap();
        assert_eq!(plan.bytes(), bytes);
        assert_eq!(plan.slices(), slices);
        let last = plan.range(plan.slices() - 1..u32::MAX).last().unwrap();
        assert_eq!(last.remote + u64::from(last.bytes), (1 << 50) + bytes);
        let locals: Vec<Local> = last.locals().collect();
        assert_eq!(locals[0].address + u64::from(locals[0].bytes), 1 + bytes);
    }
    let grown = plan.memory() - before;
    assert!(grown < 1_000, "1 TiB takes {grown} bytes");
}

/// Each piece is in a registration of its own, so none is gathered.
#[test]
fn pieces_are_counted_up_to_their_limit() {
    struct Crumbs;
    impl Regions for Crumbs {
        fn region_of(&self, address: u64) -> Option<Region> {
            let number = u32::try_from(address).ok()?;
            Some(Region {
                number,
                address,
                bytes: 1,
            })
        }
    }
    let most = MOST_PIECES as u64;
    let mut plan = plan(BLOCK, 0, 4);
    plan.set(&[write(0, 0, most)], &All, &Crumbs).unwrap();
    assert_eq!(plan.slices() as usize, MOST_PIECES);
    assert!(plan.memory() <= 16 << 20, "{} bytes", plan.memory());
    let beyond = plan.set(&[write(0, 0, most + 1)], &All, &Crumbs);
    assert_eq!(beyond, Err(EngineError::Pieces));
    assert!(beyond.unwrap_err().to_string().contains("262144"));
}

#[test]
fn an_account_can_count_the_slices_of_every_plan() {
    let mut plan = plan(BLOCK, 0, 4);
    let most = u64::from(MOST_SLICES) * u64::from(BLOCK);
    plan.set(&[write(0, 0, most)], &All, &All).unwrap();
    assert_eq!(plan.slices(), MOST_SLICES);
    let refused = EngineError::Slices { block: BLOCK };
    let beyond = plan.set(&[write(0, 0, most + 1)], &All, &All);
    assert_eq!(beyond, Err(refused.clone()));
    // Nothing of it stays.
    assert_eq!(
        (plan.slices(), plan.bytes(), told(&plan)),
        (0, 0, Vec::new())
    );
    let beyond = plan.set(&[write(0, 0, most), write(0, 0, 1)], &All, &All);
    assert_eq!(beyond, Err(refused.clone()));
    assert_eq!(plan.set(&[write(0, 0, u64::MAX)], &All, &All), Err(refused));
    plan.set(&[write(0, 0, 1)], &All, &All).unwrap();
    assert_eq!(plan.slices(), 1);
}

#[test]
fn wrapping_or_unregistered_ranges_are_refused_by_their_first_bad_byte() {
    let mut plan = plan(BLOCK, 0, 4);
    let top = List(vec![Region {
        number: 1,
        address: u64::MAX - 99,
        bytes: 100,
    }]);
    // The last byte of all is one.
    plan.set(&[write(u64::MAX - 99, 0, 100)], &top, &All)
        .unwrap();
    for (local, remote, side) in [
        (u64::MAX - 99, 0, Side::Local),
        (0, u64::MAX - 99, Side::Remote),
    ] {
        let refused = plan.set(&[write(0, 0, 1), write(local, remote, 101)], &All, &All);
        let (operation, address, bytes) = (1, u64::MAX - 99, 101);
        let wraps = EngineError::Wraps {
            operation,
            side,
            address,
            bytes,
        };
        assert_eq!(refused, Err(wraps));
    }
    let [first, second] =
        [(1, 1_000, 500), (2, 1_500, 500)].map(|(number, address, bytes)| Region {
            number,
            address,
            bytes,
        });
    let list = List(vec![first, second]);
    plan.set(&[write(1_000, 7, 1_000)], &list, &All).unwrap();
    let regions: Vec<u32> = told(&plan)[0].locals.iter().map(|one| one.region).collect();
    assert_eq!(regions, [1, 2], "it crosses a border");
    for (address, bytes, bad) in [(999, 2, 999), (1_000, 1_001, 2_000), (2_000, 1, 2_000)] {
        let missing = |side| EngineError::NotRegistered {
            operation: 0,
            side,
            address: bad,
        };
        let here = plan.set(&[write(address, 7, bytes)], &list, &All);
        assert_eq!(here, Err(missing(Side::Local)));
        let there = plan.set(&[write(7, address, bytes)], &All, &list);
        assert_eq!(there, Err(missing(Side::Remote)));
        assert_eq!(plan.slices(), 0);
    }
}

/// A table of registrations comes from a peer: one that says what cannot be leads to an error, in bounded time and memory.
#[test]
fn a_table_of_registrations_that_lies_is_refused() {
    /// Whatever it is asked for.
    struct Liar(Box<dyn Fn(u64) -> Region>, Cell<usize>);
    impl Regions for Liar {
        fn region_of(&self, address: u64) -> Option<Region> {
            self.1.set(self.1.get() + 1);
            Some((self.0)(address))
        }
    }
    let liar = |says: fn(u64) -> (u64, u64)| {
        let region = move |at| {
            let (address, bytes) = says(at);
            Region {
                number: 3,
                address,
                bytes,
            }
        };
        Liar(Box::new(region), Cell::new(0))
    };
    let mut plan = plan(BLOCK, 0, 1);
    let elsewhere = EngineError::NotRegistered {
        operation: 0,
        side: Side::Remote,
        address: 1_000,
    };
    for says in [
        |at| (at + 1, 100),
        |at| (at, 0),
        |at| (at - 10, 10),
        |at| (at - 10, 3),
    ] {
        let refused = plan.set(&[write(0, 1_000, 10)], &All, &liar(says));
        assert_eq!(refused, Err(elsewhere.clone()));
    }
    // Registrations of one byte each, which no transfer needs.
    let crumbs = liar(|at| (at, 1));
    let refused = plan.set(&[write(0, 0, 1 << 40)], &All, &crumbs);
    assert_eq!(refused, Err(EngineError::Pieces));
    assert!(crumbs.1.get() < 300_000);
    assert!(plan.memory() <= 16 << 20, "{} bytes", plan.memory());
    // One whose end would wrap is only as long as the operation.
    plan.set(&[write(0, 1_000, 10)], &All, &liar(|at| (at, u64::MAX)))
        .unwrap();
    assert_eq!(plan.slices(), 1);
}

#[test]
fn a_slice_has_one_local_range_or_more_up_to_its_limit() {
    let cut = Cut::new(BLOCK, 0, u32::MAX).unwrap();
    for gather in [0, MOST_GATHER + 1] {
        let refused = Plan::new(cut, gather).unwrap_err();
        assert_eq!(refused, EngineError::Gather { gather });
    }
}

#[test]
fn an_operation_that_counts_is_one_slice_or_is_refused() {
    const MOST: u64 = 1 << 30;
    let region = |number: u32, address| Region {
        number,
        address,
        bytes: 100,
    };
    // Three that follow each other, and one after a gap.
    let list = || {
        let all = [(1, 0), (2, 100), (3, 200), (4, 1000)];
        List(all.map(|(number, at)| region(number, at)).into())
    };
    let mut plan = plan(BLOCK, 0, 2);
    // Neither is cut, and neither gathers the next, though they follow each other at both ends.
    let long = [
        write(0, 0, MOST),
        write(MOST, MOST, 1),
        write(MOST + 1, MOST + 1, MOST),
    ];
    plan.set_counting(&long, &All, &All).unwrap();
    let slices = told(&plan);
    assert_eq!(plan.slices(), 3);
    for (slice, (operation, number)) in slices.iter().zip(long.iter().zip(0..)) {
        assert_eq!(slice.operations, number..number + 1);
        assert_eq!(slice.remote, operation.remote);
        let bytes: u64 = slice
            .locals
            .iter()
            .map(|local| u64::from(local.bytes))
            .sum();
        assert_eq!(bytes, operation.bytes);
    }
    // Two local ranges are gathered.
    plan.set_counting(&[write(50, 7, 100)], &list(), &All)
        .unwrap();
    let locals = told(&plan).remove(0).locals;
    let found: Vec<(u32, u32)> = locals.iter().map(|it| (it.region, it.bytes)).collect();
    assert_eq!(found, [(1, 50), (2, 50)]);
    let parts = |operation, bytes| EngineError::CountedParts {
        operation,
        bytes,
        gather: 2,
    };
    let good = write(0, 0, 8);
    for (refused, bytes) in [
        (plan.set_counting(&[good, write(0, 0, 0)], &All, &All), 0),
        (
            plan.set_counting(&[good, write(0, 0, MOST + 1)], &All, &All),
            MOST + 1,
        ),
        (
            plan.set_counting(&[good, write(50, 0, 200)], &list(), &All),
            200,
        ),
        (
            plan.set_counting(&[good, write(0, 99, 2)], &All, &list()),
            2,
        ),
    ] {
        assert_eq!(refused, Err(parts(1, bytes)));
    }
    let read = Operation {
        kind: Kind::Read,
        ..good
    };
    let refused = plan.set_counting(&[good, good, read], &All, &All);
    assert_eq!(refused, Err(EngineError::CountedRead { operation: 2 }));
    assert_eq!((plan.slices(), plan.bytes()), (0, 0));
    // As before, for one that does not count.
    plan.set(&[write(0, 0, 2 * u64::from(BLOCK))], &All, &All)
        .unwrap();
    assert_eq!(plan.slices(), 2);
}
