//! A rank that alone fails is expelled, and comes back by itself. It learns that the others have dropped it, and its program starts its
//! next generation. Each test prints how long that takes beside the bound, because the time depends on the machine.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rendezvous::MemoryStore;

use super::held::{CONFIG, TTL, all_pairs, cut, world_over};
use super::worlds::LONG;
use crate::membership::GroupState;
use crate::membership::layer::Layer;
use crate::membership::sim::{Rank, World, lock};

/// Makes `slots` of a group of `ranks` ill, waits until the others go on without them, makes them well, and waits until they are back.
fn goes_and_comes_back(
    what: &str,
    (ranks, slots): (u32, &[u32]),
    ill: impl Fn(&World),
    well: impl Fn(&World, &[Rank]),
) {
    let mut world = world_over(Arc::new(MemoryStore::new()), ranks, ranks);
    let since = Instant::now();
    ill(&world);
    let remove = |slot: &u32| world.ranks.remove(slot).unwrap();
    let gone: Vec<Rank> = slots.iter().map(remove).collect();
    world.until_whole(3, &format!("{what}: without {slots:?}"));
    let bound = CONFIG.stall_bound.unwrap() + 3 * TTL;
    let took = since.elapsed();
    well(&world, &gone);
    let mended = Instant::now();
    for rank in &gone {
        let heard = rank.group().wait(GroupState::Expelled, LONG);
        assert!(heard.is_ok(), "{what}: {heard:?}: {}", rank.story());
    }
    drop(gone);
    for slot in slots {
        world.join(*slot).unwrap();
    }
    world.until_whole(3, &format!("{what}: all again"));
    println!(
        "{what}: gone within {took:.1?} (stall bound + 3 leases are {bound:?}), back {:.1?} after its end",
        mended.elapsed()
    );
    world.check(what);
}

#[test]
fn a_rank_whose_nic_is_lost_goes_and_comes_back() {
    goes_and_comes_back(
        "a lost NIC",
        (4, &[0]),
        |world| {
            lock(&world.wire.cut).insert((0, 1));
        },
        |world, _| {
            lock(&world.wire.cut).remove(&(0, 1));
        },
    );
}

#[test]
fn a_rank_whose_driver_thread_hangs_goes_and_comes_back() {
    goes_and_comes_back(
        "a hung driver thread",
        (3, &[1]),
        |world| {
            let layer = &world.ranks[&1].layer;
            // Words of this rank would be signs of life, so it makes no more calls.
            layer.last.store(layer.started(), Ordering::Relaxed);
            *lock(&layer.stands_on) = Some("group 1".to_owned());
        },
        |_, gone| *lock(&gone[0].layer.stands_on) = None,
    );
}

#[test]
fn a_host_that_is_stopped_goes_and_comes_back() {
    goes_and_comes_back(
        "a stopped host",
        (3, &[2]),
        |world| world.ranks[&2].layer.stands.store(true, Ordering::Relaxed),
        |_, gone| gone[0].layer.stands.store(false, Ordering::Relaxed),
    );
}

#[test]
fn the_smaller_side_of_two_goes_and_comes_back() {
    let sides = || {
        let pairs = all_pairs(5).into_iter();
        let between = pairs.filter(|(a, b)| (*a < 2) != (*b < 2));
        between.collect::<Vec<(u32, u32)>>()
    };
    goes_and_comes_back(
        "a smaller side",
        (5, &[0, 1]),
        |world| cut(world, &sides(), true),
        |world, _| cut(world, &sides(), false),
    );
}
