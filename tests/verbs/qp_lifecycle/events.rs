//! What an HCA reports by itself, through libmlx5: its port, its end.

use softhca::HcaConfig;
use test_support::limits::until;
use warpverbs::verbs::{Events, HcaEvent};

use test_support::hca::{hca, hca_with};
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
fn the_port_and_the_end_of_a_device_are_reported_in_their_order() {
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

#[test]
fn the_events_of_a_port_are_told_to_those_who_use_it() {
    let config = HcaConfig {
        ports: 2,
        ..HcaConfig::default()
    };
    let hca = hca_with(config);
    let nodes = [1, 2].map(|port| Node::open_port(&hca, port, 4096).unwrap());
    let events = nodes.each_ref().map(|node| {
        let ports = node.context.gids().iter().map(|entry| entry.index);
        assert!(ports.eq(0..4), "the table of its port");
        Events::open(&node.context).unwrap()
    });
    for (down, other) in [(2, 1), (1, 2)] {
        hca.set_port_of(down, false);
        hca.set_port_of(down, true);
        let [told, silent] = [down, other].map(|port| &events[usize::from(port) - 1]);
        assert_eq!(next(told), HcaEvent::PortDown);
        assert_eq!(next(told), HcaEvent::PortUp);
        assert_eq!(silent.next().unwrap(), None, "of port {other}");
    }
    hca.die();
    for events in &events {
        assert_eq!(next(events), HcaEvent::Fatal);
    }
}
