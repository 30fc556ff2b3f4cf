//! The queues of this end of a connection, and a check of offers that name one of them. A stranger that sends back what this engine offers
//! has no queue of its own.

use crate::provider::{HostOffer, HostPort, OfiError};

/// The queues of this end, by lane.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct OwnQps(Vec<OwnLane>);

/// One lane of a connection.
#[derive(Clone, Debug)]
pub(in crate::engine) struct OwnLane {
    /// What this end has offered for the present life of its queue.
    pub(in crate::engine) offer: HostOffer,
    pub(in crate::engine) port: HostPort,
    /// The port of the other end.
    pub(in crate::engine) theirs: HostPort,
}

/// An offer that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::engine) enum BadOffer {
    /// It names a queue of this end.
    #[error("it offers {0}, which is this engine's own")]
    Own(HostOffer),
    /// It names no queue.
    #[error(transparent)]
    Wrong(#[from] OfiError),
}

impl OwnQps {
    pub(in crate::engine) fn new(lanes: impl Iterator<Item = OwnLane>) -> Self {
        Self(lanes.collect())
    }

    /// Takes what this end offers for the next life of a queue.
    pub(in crate::engine) fn renew(&mut self, lane: usize, offer: HostOffer) {
        if let Some(own) = self.0.get_mut(lane) {
            own.offer = offer;
        }
    }

    /// Refuses a queue of the other end that this lane may not have. The lanes whose bits are set in `closed` are between two lives of
    /// their queues. An address of libfabric may be the other end's as soon as this end has closed its endpoint.
    pub(in crate::engine) fn check(
        &self,
        lane: usize,
        offer: &HostOffer,
        closed: u32,
    ) -> Result<(), BadOffer> {
        let Some(at) = self.0.get(lane).map(|lane| &lane.theirs) else {
            return Ok(());
        };
        offer.check(at)?;
        let is_it = |(lane, own): (usize, &OwnLane)| {
            let is_given_back = closed & 1 << lane != 0 && own.offer.ends_with_its_life();
            !is_given_back && own.offer.is_of(&own.port, offer, at)
        };
        if self.0.iter().enumerate().any(is_it) {
            Err(BadOffer::Own(offer.clone()))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NONE_CLOSED: u32 = 0;

    fn domain() -> HostPort {
        let port = json!({
            "provider": "tcp", "fabric": "f", "domain": "lo", "addresses": 3, "mr_mode": 0,
            "speed_mbps": 0,
        });
        serde_json::from_value(port).unwrap()
    }

    fn endpoint(address: &str) -> HostOffer {
        let greets = json!({ "remote": 0, "key": 1 });
        let offer = json!({ "address": address, "tag": 0, "greets": greets });
        serde_json::from_value(offer).unwrap()
    }

    fn port() -> HostPort {
        let gid = [0u8; 16];
        let port = json!({
            "link_layer": "ethernet", "lid": 0, "gid": gid, "gid_index": 0, "mtu": 5,
            "speed_mbps": 0, "pkey": 0xffff, "log_reads": 4, "grh_required": false,
        });
        serde_json::from_value(port).unwrap()
    }

    fn qp(number: u32) -> HostOffer {
        serde_json::from_value(json!({ "qpn": number, "psn": 0, "ece": 0 })).unwrap()
    }

    fn two(offers: [HostOffer; 2], at: &HostPort) -> OwnQps {
        OwnQps::new(offers.into_iter().map(|offer| OwnLane {
            offer,
            port: at.clone(),
            theirs: at.clone(),
        }))
    }

    #[test]
    fn a_queue_of_any_lane_of_this_end_is_refused() {
        let qps = two([qp(5), qp(6)], &port());
        let endpoints = two([endpoint("05"), endpoint("06")], &domain());
        for lane in 0..2 {
            for own in [5, 6] {
                let bad = Err(BadOffer::Own(qp(own)));
                assert_eq!(qps.check(lane, &qp(own), NONE_CLOSED), bad);
                let own = endpoint(&format!("0{own}"));
                let bad = Err(BadOffer::Own(own.clone()));
                assert_eq!(endpoints.check(lane, &own, NONE_CLOSED), bad);
            }
            assert_eq!(qps.check(lane, &qp(7), NONE_CLOSED), Ok(()));
            assert_eq!(endpoints.check(lane, &endpoint("07"), NONE_CLOSED), Ok(()));
        }
    }

    #[test]
    fn an_address_may_be_theirs_once_it_is_given_back_and_a_qp_number_not() {
        let mut own = two([endpoint("05"), endpoint("06")], &domain());
        assert_eq!(own.check(0, &endpoint("06"), 1 << 1), Ok(()));
        let bad = Err(BadOffer::Own(endpoint("06")));
        assert_eq!(own.check(0, &endpoint("06"), 1 << 0), bad);
        own.renew(1, endpoint("08"));
        assert_eq!(own.check(0, &endpoint("06"), NONE_CLOSED), Ok(()));
        let bad = Err(BadOffer::Own(endpoint("08")));
        assert_eq!(own.check(0, &endpoint("08"), NONE_CLOSED), bad);
        let qps = two([qp(5), qp(6)], &port());
        let bad = Err(BadOffer::Own(qp(6)));
        assert_eq!(qps.check(0, &qp(6), 1 << 1), bad);
    }
}
