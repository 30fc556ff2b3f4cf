//! What a doorbell does in each state of its QP, with a doorbell record and without, and what becomes of it in the next state.
//!
//! On simulated HCAs: when the engine rests, everything that was to happen has happened.

use mlx5_prm::cmd::Opcode;
use mlx5_prm::cqe::{Cqe64, CqeOpcode, Syndrome};
use mlx5_prm::qp::{QpState, Qpc};
use softhca::device::Simulation;
use softhca::wire::memory::Network;
use softhca::{Hca, HcaConfig};
use softhca_rig::{End, Kind, Shape, simulated_pair};
use std::time::Duration;

/// Turns after which an engine that does not rest is taken to hang.
const TURNS: usize = 10_000;

/// Two HCAs, a QP of the first, and its peer.
struct Bench {
    simulation: Simulation,
    a: End,
    b: End,
    hcas: [Hca; 2],
}

impl Bench {
    fn new(shape: &Shape, strict: bool) -> Self {
        let simulation = Simulation::new();
        let config = HcaConfig {
            strict,
            ..HcaConfig::default()
        };
        let hcas = simulated_pair(&simulation, &Network::default(), &config);
        let [a, b] = [0, 1].map(|side| End::new(&hcas[side], shape.clone()));
        b.connect(hcas[0].gid(), a.qpn, 7);
        Self {
            simulation,
            a,
            b,
            hcas,
        }
    }

    /// Brings the QP from reset to `state`; whatever it has completed on the way is taken.
    fn bring_to(&mut self, state: QpState) {
        let (gid, peer) = (self.hcas[1].gid(), self.b.qpn);
        if state == QpState::RST {
            return;
        }
        self.a.init();
        if state == QpState::INIT {
            return;
        }
        self.a.ready_to_receive(gid, peer, 7);
        if state == QpState::RTR {
            return;
        }
        self.a.ready_to_send(7);
        match state {
            QpState::SQD => self.modify(Opcode::RTS2SQD_QP),
            QpState::ERR => self.modify(Opcode::TO_ERR_QP),
            QpState::SQER => {
                // A key of the own side that is none.
                let rkey = self.b.keys.rkey;
                self.a.keys.lkey ^= 1;
                self.a.write(0, 8, self.b.data.address(), rkey);
                self.a.keys.lkey ^= 1;
                self.a.post();
                let failed = self.completions();
                assert_eq!(failed, [Err(Syndrome::LOCAL_PROT_ERR)]);
            }
            _ => {}
        }
        assert_eq!(self.state(), state);
    }

    fn modify(&self, opcode: Opcode) {
        self.a.modify(opcode, Qpc::default()).unwrap();
    }

    /// Returns the state, that of a queue that drains included.
    fn state(&self) -> QpState {
        QpState(self.a.query().state().try_into().unwrap())
    }

    /// Lets the engine come to rest.
    fn rest(&self) {
        assert!(
            self.simulation.run(TURNS),
            "not at rest after {TURNS} turns"
        );
    }

    /// Returns what has completed when the engine rests: what went well, and why the others did not.
    fn completions(&mut self) -> Vec<Result<u16, Syndrome>> {
        self.rest();
        completions(&mut self.a)
    }

    fn write(&mut self) -> u16 {
        let rkey = self.b.keys.rkey;
        self.a.write(0, 8, self.b.data.address(), rkey)
    }

    /// Returns how far the device may run, by its own account.
    fn posted(&self) -> u16 {
        self.a.query().sw_sq_wqebb_counter().try_into().unwrap()
    }
}

fn completions(end: &mut End) -> Vec<Result<u16, Syndrome>> {
    let outcome = |cqe: Cqe64| match cqe.opcode() {
        CqeOpcode::REQ => Ok(cqe.wqe_counter.get()),
        _ => Err(cqe.as_error().reason()),
    };
    std::iter::from_fn(|| end.poll_for(Duration::ZERO, |_| true))
        .map(outcome)
        .collect()
}

/// UC, whose send queue can be in error alone.
fn shape(no_record: bool) -> Shape {
    Shape {
        kind: Kind::Uc,
        no_record,
        ..Shape::default()
    }
}

/// Calls `body` with a QP in `state`, with and without a doorbell record.
fn each_kind(state: QpState, body: impl Fn(&mut Bench, &str)) {
    for no_record in [false, true] {
        let mut bench = Bench::new(&shape(no_record), true);
        bench.bring_to(state);
        body(
            &mut bench,
            &format!("{state:?}, without record: {no_record}"),
        );
    }
}

#[test]
fn before_rts_a_doorbell_is_ignored_and_the_next_one_in_rts_counts() {
    for state in [QpState::RST, QpState::INIT, QpState::RTR] {
        each_kind(state, |bench, what| {
            let early = bench.write();
            bench.a.post();
            assert_eq!(bench.completions(), [], "{what}");
            assert_eq!(bench.posted(), 0, "{what}");
            match state {
                QpState::RST => bench.bring_to(QpState::RTS),
                QpState::INIT => {
                    let (gid, peer) = (bench.hcas[1].gid(), bench.b.qpn);
                    bench.a.ready_to_receive(gid, peer, 7);
                    bench.a.ready_to_send(7);
                }
                _ => bench.a.ready_to_send(7),
            }
            assert_eq!(bench.completions(), [], "{what}: the doorbell is past");
            let late = bench.write();
            bench.a.post();
            assert_eq!(bench.completions(), [Ok(early), Ok(late)], "{what}");
        });
    }
}

#[test]
fn in_rts_a_doorbell_runs_what_is_posted() {
    each_kind(QpState::RTS, |bench, what| {
        let indices = [bench.write(), bench.write()];
        bench.a.post();
        assert_eq!(bench.completions(), indices.map(Ok), "{what}");
    });
}

#[test]
fn a_drained_queue_counts_doorbells_and_runs_them_back_in_rts() {
    for opcode in [Opcode::SQD_RTS_QP, Opcode::SQD2RTS_QP] {
        each_kind(QpState::SQD, |bench, what| {
            let first = bench.write();
            bench.a.post();
            assert_eq!(bench.completions(), [], "{what}");
            assert_eq!(bench.posted(), 1, "{what}");
            // A second doorbell overwrites the first in the register; the WQEs that the first announced still count.
            let second = bench.write();
            bench.a.post();
            assert_eq!(bench.completions(), [], "{what}");
            assert_eq!((bench.posted(), bench.state()), (2, QpState::SQD), "{what}");
            bench.modify(opcode);
            assert_eq!(bench.completions(), [Ok(first), Ok(second)], "{what}");
            let third = bench.write();
            bench.a.post();
            assert_eq!(bench.completions(), [Ok(third)], "{what}");
            assert_eq!(bench.hcas[0].findings(), [""; 0], "{what}");
        });
    }
}

#[test]
fn work_posted_to_a_drained_queue_is_flushed_with_it() {
    each_kind(QpState::SQD, |bench, what| {
        bench.write();
        bench.write();
        bench.a.post();
        assert_eq!(bench.completions(), [], "{what}");
        bench.modify(Opcode::TO_ERR_QP);
        let flushed = [Err(Syndrome::WR_FLUSH_ERR); 2];
        assert_eq!(bench.completions(), flushed, "{what}");
    });
}

#[test]
fn a_queue_in_error_flushes_posted_work_and_runs_only_new_work_in_rts() {
    each_kind(QpState::SQER, |bench, what| {
        for _ in 0..3 {
            bench.write();
            bench.a.post();
            let flushed = [Err(Syndrome::WR_FLUSH_ERR)];
            assert_eq!(bench.completions(), flushed, "{what}");
        }
        assert_eq!(bench.state(), QpState::SQER, "{what}");
        bench.modify(Opcode::SQERR2RTS_QP);
        assert_eq!(bench.completions(), [], "{what}");
        bench.a.data.write(0, b"anew....");
        let index = bench.write();
        bench.a.post();
        assert_eq!(bench.completions(), [Ok(index)], "{what}");
        assert_eq!(bench.b.data.read(0, 8), b"anew....", "{what}");
    });
}

#[test]
fn a_qp_in_error_flushes_what_is_posted() {
    each_kind(QpState::ERR, |bench, what| {
        for _ in 0..2 {
            bench.write();
            bench.a.post();
            let flushed = [Err(Syndrome::WR_FLUSH_ERR)];
            assert_eq!(bench.completions(), flushed, "{what}");
        }
    });
}

#[test]
fn a_doorbell_that_another_qp_overwrote_counts_in_every_usual_state() {
    let flushed = Err(Syndrome::WR_FLUSH_ERR);
    for (state, expected) in [
        (QpState::RTR, vec![]),
        (QpState::RTS, vec![Ok(0)]),
        (QpState::SQD, vec![]),
        (QpState::SQER, vec![flushed]),
        (QpState::ERR, vec![flushed]),
    ] {
        let mut bench = Bench::new(&shape(false), true);
        let mut other = bench.a.beside_in_page(shape(false));
        // It knows no peer: of an unreliable service that is nothing to complain about.
        other.connect(bench.hcas[1].gid(), bench.b.qpn, 7);
        bench.bring_to(state);
        bench.write();
        bench.a.post();
        let (remote, rkey) = (bench.b.data.address(), bench.b.keys.rkey);
        other.write(0, 8, remote, rkey);
        // The engine has had no turn: this is the word that it finds.
        other.post();
        assert_eq!(bench.completions(), expected, "{state:?}");
        assert_eq!(completions(&mut other), [Ok(0)], "{state:?}");
        if state == QpState::SQD {
            assert_eq!(bench.posted(), 1);
            bench.modify(Opcode::SQD_RTS_QP);
            assert_eq!(bench.completions(), [Ok(0)]);
        }
        assert_eq!(
            bench.hcas[0].finding_counts().len(),
            usize::from(state == QpState::SQER)
        );
    }
}

#[test]
fn where_the_record_is_enough_it_is_enough_in_the_same_states() {
    let flushed = Err(Syndrome::WR_FLUSH_ERR);
    for (state, expected, posted) in [
        (QpState::RST, vec![], 0),
        (QpState::INIT, vec![], 0),
        (QpState::RTR, vec![], 0),
        (QpState::RTS, vec![Ok(0)], 1),
        (QpState::SQD, vec![], 1),
        (QpState::SQER, vec![flushed], 2),
        (QpState::ERR, vec![flushed], 1),
    ] {
        let mut bench = Bench::new(&shape(false), false);
        bench.bring_to(state);
        bench.write();
        bench.a.record();
        assert_eq!(bench.completions(), expected, "{state:?}");
        assert_eq!(bench.posted(), posted, "{state:?}");
    }
}
