//! What an HCA reports by itself, through libmlx5: its port, its end.

use test_support::limits::until;
use warpverbs::verbs::{Events, HcaEvent};

use test_support::hca::hca;
use test_support::node::Node;

/// The next event, which must come.
fn next(events: &Events) -> HcaEvent {
    let mut next = None;
    until("the HCA reports an event", || {
        next = events.next().unwrap();
        next.is_some()
    });
    next.unwrap()
}

#[test]
fn the_port_and_the_end_of_a_device_are_told_in_their_order() {
    let hca = hca();
    let node = Node::open(&hca, 4096).unwrap();
    let events = Events::open(&node.context).unwrap();
    assert_eq!(events.next().unwrap(), None);
    hca.set_port(false);
    hca.set_port(true);
    assert_eq!(next(&events), HcaEvent::PortDown);
    assert_eq!(next(&events), HcaEvent::PortUp);
    hca.die();
    assert_eq!(next(&events), HcaEvent::Fatal);
    assert_eq!(events.next().unwrap(), None);
}
