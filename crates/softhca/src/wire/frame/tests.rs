use super::*;

const HERE: (Ipv4Addr, Mac) = (Ipv4Addr::new(10, 0, 0, 1), [2, 0, 10, 0, 0, 1]);
const THERE: (Ipv4Addr, Mac) = (Ipv4Addr::new(10, 0, 0, 2), [0x52, 0x54, 0, 0, 0, 2]);

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

/// Returns Ether/IP/UDP/"abcde" as scapy 2.5 builds it: identification 0x1234, DF, ports 49152 and 4791.
fn datagram() -> Vec<u8> {
    bytes(
        "52540000000202000a00000108004500002112344000401114960a0000010a000002c00012b7000def526162636465",
    )
}

/// Ether/GRH/"abcde" as scapy 2.5 builds it, between link-local GIDs.
const V1: &str = "02000a00000202000a00000189156000000000051b40fe8000000000000000000afffe000001fe8000000000000000000afffe0000026162636465";

/// Ether/IPv6/UDP/"abcde" as scapy 2.5 builds it, between link-local addresses: ports 49152 and 4791.
const V2_IPV6: &str = "02000a00000202000a00000186dd60000000000d1140fe8000000000000000000afffe000001fe8000000000000000000afffe000002c00012b7000df4506162636465";

/// An ARP request ("who-has") as scapy 2.5 builds it.
const WHO_HAS: &str =
    "ffffffffffff02000a0000010806000108000604000102000a0000010a0000010000000000000a000002";

fn source() -> Source {
    Source {
        address: SocketAddrV4::new(HERE.0, 49152),
        envelope: Envelope::V2_IPV4,
        fragment_fields: [0x12, 0x34, 0x40, 0],
        path_bits: 0,
    }
}

#[test]
fn a_datagram_is_written_and_read_as_scapy_has_it() {
    let route = Route {
        source_mac: HERE.1,
        destination_mac: THERE.1,
        source: source(),
        destination: THERE.0,
    };
    let frame = [&headers(&route, b"abcde")[..], b"abcde"].concat();
    assert_eq!(frame, datagram());
    let expected = Frame::Roce {
        source: source(),
        destination: THERE.0,
        payload: b"abcde",
    };
    assert_eq!(Frame::parse(&frame), Ok(expected));
    let padded = [&frame[..], &[0; 13]].concat();
    assert_eq!(Frame::parse(&padded), Ok(expected), "Ethernet pads to 60");
}

#[test]
fn packets_between_link_local_gids_are_written_and_read_as_scapy_has_them() {
    let there = Ipv4Addr::new(10, 0, 0, 2);
    for (hex, version, port) in [(V1, Version::V1, ROCE_PORT), (V2_IPV6, Version::V2, 49152)] {
        let source = Source {
            envelope: Envelope {
                version,
                source: Name::LinkLocal,
                destination: Name::LinkLocal,
            },
            ..SocketAddrV4::new(HERE.0, port).into()
        };
        let route = Route::between(source, there);
        let frame = [&headers(&route, b"abcde")[..], b"abcde"].concat();
        assert_eq!(frame, bytes(hex), "{version:?}");
        let expected = Frame::Roce {
            source,
            destination: there,
            payload: b"abcde",
        };
        assert_eq!(Frame::parse(&frame), Ok(expected));
        let padded = [&frame[..], &[0; 13]].concat();
        assert_eq!(Frame::parse(&padded), Ok(expected), "Ethernet pads to 60");
    }
}

#[test]
fn a_grh_names_each_end_by_either_of_its_gids() {
    let there = Ipv4Addr::new(10, 0, 0, 2);
    for source in [Name::Ip, Name::LinkLocal] {
        for destination in [Name::Ip, Name::LinkLocal] {
            let source = Source {
                envelope: Envelope {
                    version: Version::V1,
                    source,
                    destination,
                },
                ..Source::of_hca(HERE.0)
            };
            let frame = headers(&Route::between(source, there), b"").to_vec();
            assert_eq!(frame[22..38], source.envelope.source.gid(HERE.0));
            assert_eq!(frame[38..54], destination.gid(there));
            let expected = Frame::Roce {
                source,
                destination: there,
                payload: b"",
            };
            assert_eq!(Frame::parse(&frame), Ok(expected));
        }
    }
}

#[test]
fn an_arp_question_is_written_and_read_as_scapy_has_it() {
    let question = Arp {
        is_request: true,
        sender: HERE,
        target: (THERE.0, [0; 6]),
    };
    assert_eq!(question.frame()[..], bytes(WHO_HAS));
    assert_eq!(Frame::parse(&bytes(WHO_HAS)), Ok(Frame::Arp(question)));
    let answer = Arp {
        is_request: false,
        sender: THERE,
        target: HERE,
    };
    assert_eq!(answer.frame()[..6], HERE.1);
    assert_eq!(Frame::parse(&answer.frame()), Ok(Frame::Arp(answer)));
}

#[test]
fn what_is_not_a_whole_rocev2_datagram_is_refused_by_reason() {
    let with = |at: usize, value: u8| {
        let mut frame = datagram();
        frame[at] = value;
        Frame::parse(&frame).err()
    };
    assert_eq!(with(12, 0x88), Some(FrameError::Protocol), "MPLS");
    assert_eq!(with(14, 0x46), Some(FrameError::Shape), "options");
    assert_eq!(with(20, 0x20), Some(FrameError::Shape), "more fragments");
    assert_eq!(with(21, 1), Some(FrameError::Shape), "not the first one");
    assert_eq!(with(23, 6), Some(FrameError::Protocol), "TCP");
    assert_eq!(with(22, 63), Some(FrameError::Checksum));
    assert_eq!(with(36, 0), Some(FrameError::Protocol), "another port");
    assert_eq!(with(38, 1), Some(FrameError::Short), "UDP length");
    assert_eq!(with(40, 0), None, "the UDP checksum is not looked at");
    let with = |hex: &str, at: usize, value: u8| {
        let mut frame = bytes(hex);
        frame[at] = value;
        Frame::parse(&frame).err()
    };
    for hex in [V1, V2_IPV6] {
        assert_eq!(with(hex, 14, 0x40), Some(FrameError::Shape), "version");
        assert_eq!(with(hex, 19, 0xff), Some(FrameError::Short), "length");
        assert_eq!(with(hex, 20, 6), Some(FrameError::Protocol), "TCP");
        assert_eq!(with(hex, 22, 0x40), Some(FrameError::Gid), "source");
        assert_eq!(with(hex, 38, 0xff), Some(FrameError::Gid), "destination");
        assert_eq!(with(hex, 15, 0xff), None, "the traffic class may be any");
    }
    assert_eq!(with(V1, 20, UDP), Some(FrameError::Protocol), "UDP in v1");
    assert_eq!(
        with(V2_IPV6, 20, 0x1b),
        Some(FrameError::Protocol),
        "v1 in IP"
    );
    assert_eq!(with(V2_IPV6, 56, 0), Some(FrameError::Protocol), "port");
    assert_eq!(with(V2_IPV6, 59, 1), Some(FrameError::Short), "UDP length");
}

#[test]
fn any_bytes_and_any_part_of_a_frame_are_read_without_panic() {
    let kinds = [datagram(), bytes(WHO_HAS), bytes(V1), bytes(V2_IPV6)];
    for whole in &kinds {
        for len in 0..whole.len() {
            assert_eq!(
                Frame::parse(&whole[..len]),
                Err(FrameError::Short),
                "{len} bytes"
            );
        }
    }
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..20_000 {
        let mut frame = kinds[random.usize(..kinds.len())].clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(0..frame.len());
            frame[at] = random.u8(..);
        }
        frame.truncate(random.usize(0..=frame.len()));
        let _ = Frame::parse(&frame);
    }
}

#[test]
fn a_checksum_that_comes_out_as_zero_is_sent_as_all_ones() {
    let route = Route::between(Source::of_hca(HERE.0), THERE.0);
    // This payload word brings the sum to zero.
    let sum = |payload: [u8; 2]| headers(&route, &payload)[40..42].to_vec();
    let zeroed = [0, 0];
    let found = sum(zeroed);
    assert_eq!(sum([found[0], found[1]]), [0xff, 0xff]);
}

#[test]
fn the_mac_address_follows_from_the_ip_address() {
    assert_eq!(mac_of(HERE.0), HERE.1);
}
