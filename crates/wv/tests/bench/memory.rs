//! The memory of a rank of a group over a simulated fabric: what ranks have taken from the allocator and not given back. The stacks
//! of threads do not count, and neither does what the allocator keeps for later.

// UNSAFETY: counts what the allocator of this program gives out and gets back.
#![expect(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use warpverbs::membership::GroupConfig;
use warpverbs::membership::sim::{World, WorldConfig};
use warpverbs::team::MemoryStore;

struct Counting;

/// Bytes that are in use.
static USED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands everything to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        USED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

/// Most bytes of a rank in peace: its driver, its row, its events, its part of the store and of the simulated QPs, and the newest record as
/// it stood in the store, which a rank writes anew where the store has lost it.
const RANK: usize = 16 << 10;
/// Most bytes that a rank keeps of each other rank.
const PEER: usize = 8;
/// Bound of every wait.
const LONG: Duration = Duration::from_secs(120);

/// Waits until each of `ranks` has given back what it took for `what`. What was in use before them is `before`.
fn until_in_bounds(ranks: u32, before: usize, what: &str) {
    let most = RANK + PEER * ranks as usize;
    let start = Instant::now();
    loop {
        let used = USED.load(Ordering::Relaxed).saturating_sub(before) / ranks as usize;
        if used <= most {
            println!("{ranks} ranks, {what}: {used} bytes a rank, at most {most}");
            return;
        }
        assert!(
            start.elapsed() < LONG,
            "{ranks} ranks, {what}: {used} bytes a rank, at most {most}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn memory_of_a_rank_hardly_grows_with_the_number_of_ranks() {
    let (few, lease) = (&[64, 256][..], Duration::from_secs(2));
    let (all, lease) = match std::env::var_os("WV_TEST_FULL") {
        Some(_) => (&[64, 256, 1024][..], 2 * lease),
        None => (few, lease),
    };
    for &ranks in all {
        let config = WorldConfig {
            calls: false,
            watch: Duration::from_millis(200),
            ..WorldConfig::new(ranks, GroupConfig::default().with_lease_ttl(lease))
        };
        let before = USED.load(Ordering::Relaxed);
        let mut world = World::new(Arc::new(MemoryStore::new()), config).unwrap();
        world.settle(Instant::now(), LONG).unwrap();
        until_in_bounds(ranks, before, "begin");
        drop(world.kill(1));
        world.settle(Instant::now(), LONG).unwrap();
        world.join(1).unwrap();
        world.settle(Instant::now(), LONG).unwrap();
        until_in_bounds(ranks, before, "a death and a join");
    }
}
