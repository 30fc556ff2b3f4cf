//! An engine that ends and begins again at one address, under load: each life gets its bytes, and what ran is concluded.

use std::net::SocketAddr;

use test_support::counts::seeds;
use test_support::limits::HANG;
use warpverbs::internal::engine::{EngineAddress, Outcome, TransferId};

use crate::rig::{End, LOOPBACK, Side, config};

const MIB: u64 = 1 << 20;
/// Transfers that are under way when a life ends.
const LAST: u32 = 8;

/// Listens at this address, of which the port may be open.
fn listen_at(end: &Side, address: SocketAddr) -> SocketAddr {
    match end.engine.listen(address.into()).unwrap() {
        EngineAddress::Tcp(address) => address,
        other @ EngineAddress::Unix(_) => panic!("{other}"),
    }
}

#[test]
pub(crate) fn a_peer_that_restarts_at_one_address_gets_the_bytes_of_each_life() {
    let a = End::new(config("a"), MIB);
    let mut address = LOOPBACK;
    for life in seeds(10, 200) {
        let b = End::new(config("b"), MIB);
        address = listen_at(&b, address);
        let to_b = a.engine.connect(&address.to_string()).unwrap();
        let to_a = b.engine.accept(HANG).expect("it has connected");
        let descriptor = b.engine.descriptor(b.region).unwrap();
        to_b.import(&descriptor).unwrap();
        let sent = a.fill(life);
        let id = to_b.write(a.at(0), b.at(0), MIB).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done, "life {life}");
        assert!(b.bytes() == sent, "life {life}");
        a.engine.release(id).unwrap();
        let begin = |_| to_b.write(a.at(0), b.at(0), MIB).unwrap();
        let last: Vec<TransferId> = (0..LAST).map(begin).collect();
        let incarnation = b.engine.incarnation();
        if life % 2 == 0 {
            assert_eq!(
                b.engine.close().cut_off,
                0,
                "b has nothing of its own under way"
            );
        }
        drop((to_a, b));
        let gone = a.engine.peer_gone(HANG).expect("the life has ended");
        assert_eq!((&*gone.name, gone.incarnation), ("b", incarnation));
        assert!(!to_b.is_open(), "life {life}");
        for id in last {
            // Those that were done before the end stay done.
            let outcome = a.concluded(id);
            let is_known = matches!(outcome, Outcome::Done | Outcome::Failed);
            assert!(is_known, "life {life}: {outcome:?}");
            a.engine.release(id).unwrap();
        }
    }
    assert_eq!(a.engine.in_use(), 0);
}
