//! How a program hears of changes without asking again and again: by a number to wait for, and by a descriptor for its event loop.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::worlds::{LONG, memory};
use crate::membership::{Group, GroupState};

fn serves_with(group: &Group, members: &[u32]) -> bool {
    let view = group.view();
    let there = view.is_some_and(|view| view.members.into_keys().eq(members.iter().copied()));
    there && group.state() == GroupState::Serving
}

/// Waits by the descriptor, as an event loop does, until the group serves in a view of `members`.
fn hear(group: &Group, eventfd: &OwnedFd, members: &[u32]) {
    let longest = Timespec::try_from(LONG).unwrap();
    loop {
        let mut polled = [PollFd::new(eventfd, PollFlags::IN)];
        let ready = poll(&mut polled, Some(&longest)).unwrap();
        assert_eq!(ready, 1, "{:?}, {:?}", group.state(), group.view());
        let _ = group.clear_changes();
        if serves_with(group, members) {
            return;
        }
    }
}

/// Waits by the number of changes, as a thread does, until the group serves in a view of `members`.
fn wait(group: &Group, mut seen: u64, members: &[u32]) {
    while !serves_with(group, members) {
        let now = group.wait_change(seen, LONG);
        assert_ne!(now, seen, "{:?}, {:?}", group.state(), group.view());
        seen = now;
    }
}

#[test]
fn a_rank_that_dies_and_comes_back_is_heard_of_by_descriptor_and_number() {
    let mut world = memory(3, 3);
    let eventfd = world.ranks[&0].group().eventfd().unwrap();
    // All changes before the descriptor was made count as news.
    hear(world.ranks[&0].group(), &eventfd, &[0, 1, 2]);
    wait(world.ranks[&2].group(), 0, &[0, 1, 2]);
    let seen = world.ranks[&2].group().changes();
    drop(world.kill(1));
    hear(world.ranks[&0].group(), &eventfd, &[0, 2]);
    wait(world.ranks[&2].group(), seen, &[0, 2]);
    let seen = world.ranks[&2].group().changes();
    world.join(1).unwrap();
    hear(world.ranks[&0].group(), &eventfd, &[0, 1, 2]);
    wait(world.ranks[&2].group(), seen, &[0, 1, 2]);
    world.until_whole(3, "with its next generation");
    world.check("changes are told");
}

#[test]
fn nobody_waits_for_a_change_of_a_generation_that_is_over() {
    let world = memory(2, 2);
    let group = world.ranks[&1].group();
    group.wait(GroupState::Serving, LONG).unwrap();
    let eventfd = group.eventfd().unwrap();
    let before = group.clear_changes();
    group.leave(LONG).unwrap();
    let now = group.wait_change(before, LONG);
    assert_ne!(now, before);
    // If the end of the generation did not end the wait, this call would not return.
    let last = group.changes();
    assert_eq!(group.wait_change(last, std::time::Duration::MAX), last);
    let mut polled = [PollFd::new(&eventfd, PollFlags::IN)];
    let ready = poll(&mut polled, Some(&Timespec::default())).unwrap();
    assert_eq!(ready, 1, "its end is told");
}

#[test]
fn the_descriptor_of_a_group_that_is_dropped_is_readable() {
    let mut world = memory(2, 2);
    let group = world.ranks[&1].group();
    group.wait(GroupState::Serving, LONG).unwrap();
    let eventfd = group.eventfd().unwrap();
    let _ = group.clear_changes();
    drop(world.kill(1));
    let longest = Timespec::try_from(LONG).unwrap();
    let mut polled = [PollFd::new(&eventfd, PollFlags::IN)];
    assert_eq!(poll(&mut polled, Some(&longest)).unwrap(), 1);
}
