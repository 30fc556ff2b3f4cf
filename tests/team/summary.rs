//! What a team does by default, and the line that it logs when it has joined.

use std::io;
use std::sync::{Arc, Mutex};

use warpverbs::team::{CqKind, Doorbell, Queues, TeamConfig};

use crate::rank::setup;
use test_support::fleet::{Hcas, Setup};
use test_support::ranks;

/// Log lines of one thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What each rank of two logs while it joins with that change, and which of its peers are direct when it has a window.
fn joined(change: fn(&mut TeamConfig)) -> Vec<(String, bool)> {
    let setup = Setup { change, ..setup(2) };
    let hcas = Hcas::new(&setup);
    let results = ranks::on_threads(2, |rank, store| {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_writer(move || writer.clone())
            .without_time()
            .finish();
        let own = hcas.of(rank).iter().map(Arc::as_ref);
        let team = tracing::subscriber::with_default(subscriber, || {
            ranks::join(setup.of_rank(rank), own, store).unwrap()
        });
        team.window(4096).unwrap();
        let direct = team.is_direct(1 - rank).unwrap();
        team.barrier("seen").unwrap();
        let logged = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        (logged, direct)
    });
    hcas.check();
    results
}

#[test]
fn by_default_no_peer_is_direct_and_the_first_line_says_so() {
    for (rank, (logged, direct)) in joined(|_| {}).into_iter().enumerate() {
        assert!(!direct, "rank {rank}");
        let first = logged.lines().next().expect("a line");
        for part in [
            format!("rank {rank} of 2, generation 1, on simt and mlx5_"),
            ": 1 peers by QP, 0 direct; 2 QPs to each, depth 256".to_owned(),
            "doorbell with".to_owned(),
            "queues in device memory, one CQE, 0 receive WQEs, signals inline, control heap by "
                .to_owned(),
        ] {
            assert!(first.contains(&part), "{part:?} is not in {first:?}");
        }
    }
}

#[test]
fn the_first_line_says_what_was_asked_for() {
    let asked = joined(|config| {
        config.direct = true;
        config.doorbell = Some(Doorbell::Mailbox);
        config.queues = Queues::Host;
        config.cq = CqKind::Wide;
        config.log_recv_depth = Some(4);
    });
    for (rank, (logged, direct)) in asked.into_iter().enumerate() {
        assert!(direct, "rank {rank}");
        let first = logged.lines().next().expect("a line");
        for part in [
            ": 0 peers by QP, 1 direct; ",
            "doorbell by a host thread, queues in host memory, one CQE per WQE, 16 receive WQEs",
        ] {
            assert!(first.contains(part), "{part:?} is not in {first:?}");
        }
    }
}
