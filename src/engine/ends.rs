//! What tells the two ends of one connection from a stranger that sends back, or passes on, what engines say.
//!
//! Each end draws a nonce for the connection and says which end it is. An end refuses its own nonce, and its own end. What an engine
//! keeps in its memory for the other is a digest of both nonces, of the end that keeps it, and of both TCP addresses as it sees
//! them. A relay between two connections has other addresses at each, so it proves nothing. The same goes for a proxy and for NAT: the
//! two are then reached by the NIC.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};

use serde::{Deserialize, Serialize};

use super::seal::Role;
use crate::provider::local::{Kept, draw};

/// What the digest is for.
const PURPOSE: &[u8; 20] = b"warpverbs: a machine";

/// Words that one end draws for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Nonce([u64; 4]);

impl Nonce {
    pub(super) fn fresh() -> io::Result<Self> {
        draw().map(Self)
    }
}

/// What one end knows of both.
#[derive(Clone, Copy, Debug)]
pub(super) struct BothEnds {
    own: End,
    theirs: End,
    role: Role,
}

/// An end, as this one knows it.
#[derive(Clone, Copy, Debug)]
struct End {
    nonce: Nonce,
    address: SocketAddr,
}

impl BothEnds {
    /// Those of this stream. The nonce of this end stands first.
    pub(super) fn new(stream: &TcpStream, role: Role, nonces: [Nonce; 2]) -> io::Result<Self> {
        let addresses = [stream.local_addr()?, stream.peer_addr()?];
        let end = |of: usize| End {
            nonce: nonces[of],
            address: addresses[of],
        };
        Ok(Self {
            own: end(0),
            theirs: end(1),
            role,
        })
    }

    /// What this end keeps for the other.
    pub(super) fn kept_here(&self) -> Kept {
        kept(self.role, &self.own, &self.theirs)
    }

    /// What the other keeps for this one.
    pub(super) fn kept_there(&self) -> Kept {
        kept(self.role.other(), &self.theirs, &self.own)
    }
}

/// What the end with this role keeps for the other.
fn kept(keeper: Role, own: &End, theirs: &End) -> Kept {
    let nonces = [own, theirs].map(|end| end.nonce.0.map(u64::to_le_bytes));
    let addresses = [own, theirs].map(|end| address(end.address));
    Kept::of(&[
        PURPOSE,
        &[keeper as u8],
        nonces.as_flattened().as_flattened(),
        addresses.as_flattened(),
    ])
}

/// An address as either end of a connection sees it: one end may call it an IPv4 address, and the other end the IPv6 address of that.
fn address(address: SocketAddr) -> [u8; 18] {
    let ip: Ipv6Addr = match address.ip().to_canonical() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut all = [0; 18];
    all[..16].copy_from_slice(&ip.octets());
    all[16..].copy_from_slice(&address.port().to_le_bytes());
    all
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Both ends of a connection of this machine.
    fn connection(listener: &TcpListener) -> [TcpStream; 2] {
        let to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [to, listener.accept().unwrap().0]
    }

    #[test]
    fn ends_of_one_connection_agree_and_those_of_two_do_not() {
        let nonces = [(); 2].map(|()| Nonce::fresh().unwrap());
        let [first, second] = nonces;
        assert_ne!(first, second);
        let listeners = ["127.0.0.1:0", "[::1]:0", "[::]:0"].map(TcpListener::bind);
        let mut tried = 0;
        // A machine may have no IPv6.
        for listener in listeners.into_iter().flatten() {
            let ends = |[to, from]: [&TcpStream; 2]| {
                [
                    BothEnds::new(to, Role::Connects, nonces).unwrap(),
                    BothEnds::new(from, Role::Accepts, [second, first]).unwrap(),
                ]
            };
            let [one, other] = [(); 2].map(|()| connection(&listener));
            let [to, from] = ends([&one[0], &one[1]]);
            assert_eq!(to.kept_here(), from.kept_there());
            assert_eq!(to.kept_there(), from.kept_here());
            assert_ne!(to.kept_here(), to.kept_there());
            // A relay passes on all that two ends say, each of another connection.
            let [to, from] = ends([&one[0], &other[1]]);
            assert_ne!(to.kept_here(), from.kept_there());
            assert_ne!(to.kept_there(), from.kept_here());
            tried += 1;
        }
        assert!(tried > 0, "no listener");
    }

    #[test]
    fn an_address_is_the_same_for_both_families() {
        let [four, six] = ["192.0.2.1:7", "[::ffff:192.0.2.1]:7"].map(|it| it.parse().unwrap());
        assert_eq!(address(four), address(six));
        assert_ne!(address(four), address("192.0.2.1:8".parse().unwrap()));
    }
}
