//! A peer that is lost: its transfers end, the report says what is not known, and transfers to others do not fail.

use softhca::HcaConfig;
use softhca::device::FaultSpec;
use test_basics::limits::until;
use test_support::limits::HANG;
use warpverbs::internal::engine::{OperationStatus, Outcome, Peer, Remote, Status};

use crate::cable::Cable;
use crate::rig::{End, SHORT, config, connect, listens};

const MIB: u64 = 1 << 20;

fn by_udp(name: &str) -> End {
    let hca = HcaConfig {
        loopback: false,
        ..HcaConfig::default()
    };
    End::on(hca, config(name), MIB)
}

fn import(peer: &Peer, end: &End) {
    let descriptor = end.engine.descriptor(end.region).unwrap();
    peer.import(&descriptor).unwrap();
}

#[test]
pub(crate) fn transfers_to_a_lost_peer_fail_and_report_the_remote_end_as_unknown() {
    let (a, b, c) = (by_udp("a"), by_udp("b"), by_udp("c"));
    let [to_c, _] = connect(&a, &c);
    let at_b = listens(&b.engine).to_string();
    let cable = Cable::to(&at_b);
    let to_b = a.engine.connect(&cable.address).unwrap();
    let from_a = b.engine.accept(HANG).expect("it has connected");
    import(&to_b, &b);
    // No packet reaches the peer, whose process is gone then.
    b.hca
        .set_faults(&"partition=*".parse::<FaultSpec>().unwrap());
    let write = to_b.write(a.at(0), b.at(0), MIB).unwrap();
    let read = to_b.read(a.at(0), b.at(0), 8).unwrap();
    until("both are posted", || {
        let counters = a.hca.counters();
        counters.write_requests > 0 && counters.read_requests > 0
    });
    assert_eq!(a.engine.wait(write, SHORT), Ok(Status::Pending));
    cable.cut();
    for id in [write, read] {
        assert_eq!(a.concluded(id), Outcome::Failed);
        let report = a.engine.report(id).unwrap();
        assert_eq!(report.operations, [OperationStatus::Failed]);
        assert_eq!((report.remote, report.bytes_landed), (Remote::Unknown, 0));
        assert!(
            report.first.unwrap().cause.unwrap().is_flush(),
            "{report:?}"
        );
    }
    assert!(!to_b.is_open());
    let others = to_c.write(a.at(0), c.at(0), MIB).unwrap();
    assert_eq!(a.concluded(others), Outcome::Done);
    // The other end has found out too; both connect again, and all goes on.
    b.hca.set_faults(&FaultSpec::default());
    let to_b = a.engine.connect(&at_b).unwrap();
    until("the other end has found out", || !from_a.is_open());
    import(&to_b, &b);
    let expected = a.fill(7);
    let id = to_b.write(a.at(0), b.at(0), MIB).unwrap();
    assert_eq!(a.concluded(id), Outcome::Done);
    assert!(b.bytes() == expected);
}

#[test]
pub(crate) fn what_was_done_stays_done_when_the_peer_is_lost() {
    let (a, b) = (End::new(config("a"), MIB), End::new(config("b"), MIB));
    let address = listens(&b.engine).to_string();
    let cable = Cable::to(&address);
    let to_b = a.engine.connect(&cable.address).unwrap();
    import(&to_b, &b);
    let whole = to_b.write(a.at(0), b.at(0), MIB).unwrap();
    assert_eq!(a.concluded(whole), Outcome::Done);
    cable.cut();
    assert_eq!(a.engine.poll(whole), Ok(Status::Concluded(Outcome::Done)));
    assert_eq!(a.engine.report(whole).unwrap().remote, Remote::Quiet);
    assert_eq!(a.engine.close().cut_off, 0);
}
