//! Proof of the two ends of one connection, against a stranger that sends back, or passes on, what engines say.
//!
//! Each end draws a nonce for the connection and says which end it is. An end refuses its own nonce, and its own end. An engine
//! keeps a digest for the other in its memory. The digest is of both nonces, of the end that keeps it, and of both TCP addresses
//! as that end sees them. Over a Unix socket the process ids that the kernel has seen take the place of the addresses. A relay
//! between two connections has other addresses or processes at each, so it proves nothing. Through a proxy or NAT two engines
//! prove nothing either, and go by the NIC.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::engine::wire::seal::Role;
use crate::engine::wire::streams::{Stream, Whereabouts};
use crate::provider::local::{Kept, draw};

/// The first bytes of the digested text. They say what the digest is for.
const PURPOSE: &[u8; 20] = b"warpverbs: a machine";

/// Random words that one end draws for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::engine) struct Nonce([u64; 4]);

impl Nonce {
    pub(in crate::engine) fn fresh() -> io::Result<Self> {
        draw().map(Self)
    }
}

/// The ends of a connection, as one of them knows both.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct BothEnds {
    own: End,
    theirs: End,
    role: Role,
}

/// An end of a connection, as this end knows it.
#[derive(Clone, Copy, Debug)]
struct End {
    nonce: Nonce,
    at: Whereabouts,
}

impl BothEnds {
    /// Returns both ends of this stream. The first nonce is that of this end.
    pub(in crate::engine) fn new(
        stream: &Stream,
        role: Role,
        nonces: [Nonce; 2],
    ) -> io::Result<Self> {
        let both = stream.both()?;
        let end = |of: usize| End {
            nonce: nonces[of],
            at: both[of],
        };
        Ok(Self {
            own: end(0),
            theirs: end(1),
            role,
        })
    }

    /// Returns what this end keeps for the other.
    pub(in crate::engine) fn kept_here(&self) -> Kept {
        kept(self.role, &self.own, &self.theirs)
    }

    /// Returns what the other end keeps for this one.
    pub(in crate::engine) fn kept_there(&self) -> Kept {
        kept(self.role.other(), &self.theirs, &self.own)
    }
}

/// Returns what the end with this role keeps for the other.
fn kept(keeper: Role, own: &End, theirs: &End) -> Kept {
    let nonces = [own, theirs].map(|end| end.nonce.0.map(u64::to_le_bytes));
    let both = [own, theirs].map(|end| bytes(end.at));
    Kept::of(&[
        PURPOSE,
        &[keeper as u8],
        nonces.as_flattened().as_flattened(),
        both.as_flattened(),
    ])
}

/// Returns an end in a form that is the same at both ends of the connection. One end may see an IPv4 address, and the other the IPv6
/// address that stands for it.
fn bytes(at: Whereabouts) -> [u8; 19] {
    let mut all = [0; 19];
    match at {
        Whereabouts::Tcp(address) => {
            let ip: Ipv6Addr = match address.ip().to_canonical() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            all[1..17].copy_from_slice(&ip.octets());
            all[17..].copy_from_slice(&address.port().to_le_bytes());
        }
        Whereabouts::Process(process) => {
            all[0] = 1;
            all[1..5].copy_from_slice(&process.to_le_bytes());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Returns both ends of a connection of this machine.
    fn connection(listener: &TcpListener) -> [Stream; 2] {
        let to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [to.into(), listener.accept().unwrap().0.into()]
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
            let ends = |[to, from]: [&Stream; 2]| {
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
            // A relay passes on all that the ends of two different connections say.
            let [to, from] = ends([&one[0], &other[1]]);
            assert_ne!(to.kept_here(), from.kept_there());
            assert_ne!(to.kept_there(), from.kept_here());
            tried += 1;
        }
        assert!(tried > 0, "no listener");
    }

    #[test]
    fn over_a_unix_socket_the_processes_take_the_place_of_addresses() {
        let pair = UnixStream::pair().unwrap();
        let [to, from] = [Stream::from(pair.0), Stream::from(pair.1)];
        let nonces = [(); 2].map(|()| Nonce::fresh().unwrap());
        let [first, second] = nonces;
        let to = BothEnds::new(&to, Role::Connects, nonces).unwrap();
        let mut from = BothEnds::new(&from, Role::Accepts, [second, first]).unwrap();
        assert_eq!(to.kept_here(), from.kept_there());
        assert_eq!(to.kept_there(), from.kept_here());
        // A relay is another process, at one end or the other.
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(from.theirs.at, Whereabouts::Process(own));
        from.theirs.at = Whereabouts::Process(own + 1);
        assert_ne!(to.kept_here(), from.kept_there());
        assert_ne!(to.kept_there(), from.kept_here());
    }

    #[test]
    fn an_address_is_the_same_for_both_families() {
        let of = |text: &str| bytes(Whereabouts::Tcp(text.parse::<SocketAddr>().unwrap()));
        assert_eq!(of("192.0.2.1:7"), of("[::ffff:192.0.2.1]:7"));
        assert_ne!(of("192.0.2.1:7"), of("192.0.2.1:8"));
    }
}
