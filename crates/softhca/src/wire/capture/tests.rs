use super::*;
use crate::wire::memory::Network;
use std::fs;

const HERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// A path in a directory that is removed with this value.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        let directory =
            std::env::temp_dir().join(format!("softhca-capture-{:x}", fastrand::u64(..)));
        fs::create_dir(&directory).unwrap();
        Self(directory)
    }

    fn file(&self) -> PathBuf {
        self.0.join("wire.pcapng")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the frames in a capture file with their directions. It finds them by the lengths of the blocks.
fn frames(file: &Path) -> Vec<(Direction, Vec<u8>)> {
    let bytes = fs::read(file).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut frames) = (0, vec![]);
    while at < bytes.len() {
        let length = word(at + 4) as usize;
        assert_eq!((length % 4, word(at + length - 4) as usize), (0, length));
        if word(at) == PACKET {
            let size = word(at + 20) as usize;
            let direction = match word(at + 28 + size.next_multiple_of(4) + 4) {
                1 => Direction::Inbound,
                2 => Direction::Outbound,
                other => panic!("direction {other}"),
            };
            frames.push((direction, bytes[at + 28..at + 28 + size].to_vec()));
        }
        at += length;
    }
    frames
}

fn tapped(network: &Network, address: Ipv4Addr, file: &Path) -> Tap {
    let capture = Capture::create(file, "test").unwrap();
    Tap::new(Box::new(network.plug(address).unwrap()), capture, address)
}

fn send(carrier: &mut dyn Carrier, destination: Ipv4Addr, payload: &[u8]) {
    let sink = carrier.sink();
    sink.slot().unwrap()[..payload.len()].copy_from_slice(payload);
    sink.commit(payload.len(), destination.into());
    carrier.flush(0);
}

fn framed(source: Ipv4Addr, destination: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let route = Route::between(Source::of_hca(source), destination);
    [&headers(&route, payload), payload].concat()
}

#[test]
fn what_is_sent_and_received_is_in_the_file_of_each_end_once() {
    let (place, network) = (Place::new(), Network::default());
    let mut here = tapped(&network, HERE, &place.file());
    let mut there = tapped(&network, THERE, &place.file());
    send(&mut here, THERE, b"question");
    there.receive(0, &mut |_, _| {}).unwrap();
    send(&mut there, HERE, b"no");
    here.receive(0, &mut |_, _| {}).unwrap();
    let (question, answer) = (framed(HERE, THERE, b"question"), framed(THERE, HERE, b"no"));
    assert_eq!(
        frames(&place.file()),
        [
            (Direction::Outbound, question.clone()),
            (Direction::Inbound, answer.clone())
        ]
    );
    assert_eq!(
        frames(&place.0.join("wire.pcapng.2")),
        [
            (Direction::Inbound, question),
            (Direction::Outbound, answer)
        ]
    );
}

#[test]
fn what_an_hca_sends_to_itself_is_in_its_file_once() {
    let (place, network) = (Place::new(), Network::default());
    let mut here = tapped(&network, HERE, &place.file());
    send(&mut here, HERE, b"me");
    let mut seen = 0;
    here.receive(0, &mut |_, _| seen += 1).unwrap();
    assert_eq!(seen, 1);
    assert_eq!(
        frames(&place.file()),
        [(Direction::Outbound, framed(HERE, HERE, b"me"))]
    );
}

#[test]
fn a_missing_directory_is_an_error_and_a_full_disk_ends_only_the_capture() {
    let place = Place::new();
    let error = Capture::create(&place.0.join("none/wire"), "test").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    let mut capture = Capture::create(&place.file(), "test").unwrap();
    capture.file = Some(
        fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap(),
    );
    capture.frame(Direction::Inbound, &[b"frame"]);
    capture.flush();
    assert!(capture.file.is_none());
    capture.frame(Direction::Inbound, &[b"frame"]);
    assert!(capture.buffer.is_empty());
}
