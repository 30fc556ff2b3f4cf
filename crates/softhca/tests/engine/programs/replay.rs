//! Runs a program on two simulated HCAs and compares with the model after every round.

use super::encode::{self, Keys};
use super::program::{
    Key, LOG_DEPTH, LOG_RECEIVES, MEMORY, PART_IOVA, Program, Round, Setup, Work,
};
use super::reference::{Completion, Model, State};
use mlx5_prm::cmd::Opcode;
use mlx5_prm::cqe::{Cqe64, CqeOpcode};
use mlx5_prm::qp::{QpState, Qpc};
use softhca::device::{Access, Simulation};
use softhca::wire::memory::Network;
use softhca::{Hca, HcaConfig};
use softhca_rig::{End, Shape, simulated_pair};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::OnceLock;
use std::time::Duration;

/// Turns after which a round that has not come to rest is taken to hang.
const TURNS: usize = 200_000;

/// How far a program was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// To its end.
    Same,
    /// Until two things were wrong with one WQE.
    Ambiguous,
}

struct Bench {
    simulation: Simulation,
    // Closed before their devices go.
    ends: [End; 2],
    hcas: [Hca; 2],
    keys: [Keys; 2],
    model: Model,
}

/// Runs `program`.
///
/// # Errors
///
/// Device and model differ: in what, after which round.
pub(crate) fn replay(program: &Program) -> Result<Outcome, String> {
    let mut bench = Bench::new(&program.setup);
    bench.connect(program.setup.psn);
    for (number, round) in program.rounds.iter().enumerate() {
        let said = |what: String| format!("round {number}: {what}");
        if !bench.apply(round).map_err(said)? {
            return Ok(Outcome::Ambiguous);
        }
        bench.compare().map_err(said)?;
    }
    Ok(Outcome::Same)
}

/// Returns what memory holds at the start.
fn start_memory(side: usize) -> &'static [u8] {
    static BYTES: [OnceLock<Vec<u8>>; 2] = [OnceLock::new(), OnceLock::new()];
    let byte = |at: usize| {
        // Each fourth block of 64 bytes has words of small numbers, so that some comparisons succeed.
        if (at / 64).is_multiple_of(4) {
            u8::from(at.is_multiple_of(8))
        } else {
            (at * 31 + side * 7 + at / 251).to_le_bytes()[0]
        }
    };
    BYTES[side].get_or_init(|| (0..usize::try_from(MEMORY).unwrap()).map(byte).collect())
}

impl Bench {
    fn new(setup: &Setup) -> Self {
        let simulation = Simulation::new();
        let network = Network::with_latency(setup.latency_ns);
        let config = HcaConfig {
            loopback: setup.loopback,
            strict: setup.strict,
            schedule_seed: setup.schedule_seed,
            ..HcaConfig::default()
        };
        let hcas = simulated_pair(&simulation, &network, &config);
        let ends = [0, 1].map(|side| {
            let rights = setup.rights[side];
            End::new(
                &hcas[side],
                Shape {
                    log_depth: LOG_DEPTH,
                    log_cq: Some(8),
                    log_receive: Some(LOG_RECEIVES),
                    data_bytes: usize::try_from(MEMORY).unwrap(),
                    access: 15,
                    rwe: rights.write.into(),
                    rre: rights.read.into(),
                    rae: rights.atomic.into(),
                    ack_timeout: 8,
                    retry_count: 3,
                    rnr_retry: setup.rnr_retry,
                    mtu: setup.mtu,
                    ..Shape::default()
                },
            )
        });
        let keys = [0, 1].map(|side| register(&ends[side]));
        let memory = [0, 1].map(|side| start_memory(side).to_vec());
        for (side, end) in ends.iter().enumerate() {
            end.data.write(0, &memory[side]);
        }
        Self {
            simulation,
            hcas,
            ends,
            keys,
            model: Model::new(setup, memory),
        }
    }

    fn connect(&mut self, psn: u32) {
        for side in 0..2 {
            let gid = self.hcas[1 - side].gid();
            let qpn = self.ends[1 - side].qpn;
            // Each direction has numbers of its own.
            let numbers = [psn, (psn + 0x1000) & 0xff_ffff];
            let (own, other) = (numbers[side], numbers[1 - side]);
            self.ends[side].init();
            self.ends[side].ready_to_receive(gid, qpn, other);
            self.ends[side].ready_to_send(own);
        }
    }

    /// Does one round on both, device and model; false if what the device does is open from here on.
    fn apply(&mut self, round: &Round) -> Result<bool, String> {
        match round {
            Round::Batch { side, work } => {
                let side = *side;
                if self.model.sides[side].state == State::Reset {
                    return Ok(true);
                }
                let work = self.post(side, work);
                self.model.run(side, &work);
            }
            Round::Both(works) => {
                // Receives of earlier rounds may lie anywhere.
                if self
                    .model
                    .sides
                    .iter()
                    .any(|side| side.state != State::Ready || !side.is_empty())
                {
                    return Ok(true);
                }
                let works = [0, 1].map(|side| self.post(side, &works[side]));
                for (side, work) in works.iter().enumerate() {
                    self.model.run(side, work);
                }
            }
            Round::Renew { psn } => {
                for end in &mut self.ends {
                    end.reset();
                }
                self.connect(*psn);
                self.model.renew();
            }
            Round::Silence { side } => {
                self.ends[*side].reset();
                self.model.sides[*side].reset();
            }
            Round::ToError { side } => {
                if self.model.sides[*side].state == State::Reset {
                    return Ok(true);
                }
                self.ends[*side]
                    .modify(Opcode::TO_ERR_QP, Qpc::default())
                    .unwrap();
                if self.model.sides[*side].state == State::Ready {
                    self.model.sides[*side].enter_error();
                }
            }
        }
        if !self.simulation.run(TURNS) {
            return Err(format!("not at rest after {TURNS} turns"));
        }
        Ok(!self.model.ambiguous)
    }

    /// Writes and rings the WQEs that fit into the rings, and returns those.
    fn post(&mut self, side: usize, work: &Work) -> Work {
        let mut work = work.clone();
        let peer = &self.model.sides[1 - side];
        // A queue in error is not looked at again before its next doorbell.
        work.receives.truncate(if peer.state == State::Ready {
            peer.room()
        } else {
            0
        });
        for receive in &work.receives {
            let bytes = encode::receive(receive, &self.keys[1 - side]);
            self.ends[1 - side].post_receive_bytes(&bytes);
        }
        let [first, second] = &self.keys;
        let (own, peer) = if side == 0 {
            (first, second)
        } else {
            (second, first)
        };
        let end = &mut self.ends[side];
        for wqe in &work.wqes {
            let bytes = encode::wqe(wqe, end.index, end.qpn, own, peer);
            end.write_raw(&bytes);
        }
        end.post();
        work
    }

    fn compare(&mut self) -> Result<(), String> {
        for side in 0..2 {
            let end = &mut self.ends[side];
            let model = &mut self.model.sides[side];
            let (mut sent, mut received) = (Vec::new(), Vec::new());
            while let Some(cqe) = end.poll_for(Duration::ZERO, |_| true) {
                match completion(&cqe, end.qpn)? {
                    seen @ (Completion::Sent { .. } | Completion::SendFailed { .. }) => {
                        sent.push(seen)
                    }
                    seen => received.push(seen),
                }
            }
            same(
                &format!("completions of sends of side {side}"),
                &sent,
                &std::mem::take(&mut model.sent),
            )?;
            let expected = std::mem::take(&mut model.received);
            same(
                &format!("completions of receives of side {side}"),
                &received,
                &expected,
            )?;
            let state = match model.state {
                State::Ready => QpState::RTS,
                State::Error => QpState::ERR,
                State::Reset => QpState::RST,
            };
            let found = QpState(u8::try_from(end.query().state()).unwrap());
            if found != state {
                return Err(format!("side {side} is in state {found:?}, not {state:?}"));
            }
            let found = end.data.read(0, model.memory.len());
            if let Err(at) = model.compare(&found) {
                let (found, expected) = (found[at], model.memory[at]);
                return Err(format!(
                    "byte {at:#x} of side {side} is {found:#x}, not {expected:#x}"
                ));
            }
        }
        Ok(())
    }
}

/// One list is the other.
fn same<T: PartialEq + Debug>(what: &str, found: &[T], expected: &[T]) -> Result<(), String> {
    let at = (0..found.len().max(expected.len())).find(|&at| found.get(at) != expected.get(at));
    match at {
        None => Ok(()),
        Some(at) => Err(format!(
            "{what}: number {at} is {:?}, not {:?}",
            found.get(at),
            expected.get(at)
        )),
    }
}

/// Returns a completion as the model has it.
fn completion(cqe: &Cqe64, qpn: u32) -> Result<Completion, String> {
    let index = cqe.wqe_counter.get();
    let named = cqe.sop_drop_qpn.get() & 0xff_ffff;
    if named != qpn || cqe.srqn_uidx.get() != 0x777 {
        return Err(format!("the completion {cqe:x?} names another QP"));
    }
    let opcode = cqe.sop_drop_qpn.bytes()[0];
    let bytes = cqe.byte_cnt.get();
    Ok(match cqe.opcode() {
        CqeOpcode::REQ => Completion::Sent {
            index,
            opcode,
            bytes,
        },
        CqeOpcode::REQ_ERR => Completion::SendFailed {
            index,
            opcode,
            syndrome: cqe.as_error().syndrome,
        },
        CqeOpcode::RESP_ERR => Completion::ReceiveFailed {
            index,
            syndrome: cqe.as_error().syndrome,
        },
        CqeOpcode(kind) => Completion::Received {
            index,
            kind,
            bytes,
            with: cqe.imm_inval_pkey.get(),
            solicited: cqe.op_own & 2 != 0,
        },
    })
}

/// Registers the data memory under every key.
#[expect(
    unsafe_code,
    reason = "the end owns the memory, and closes its context before that goes"
)]
fn register(end: &End) -> Keys {
    let base = end.data.address();
    let mut numbers = BTreeMap::new();
    let other_domain = end.context.alloc_pd().unwrap();
    for key in Key::EVERY {
        let (pdn, access) = match key {
            Key::OtherDomain => (other_domain, 15),
            Key::Stale => continue,
            _ => (end.pdn, key.access().unwrap_or(15)),
        };
        let range = key.range();
        let iova = if key == Key::Part {
            PART_IOVA
        } else {
            base + range.start
        };
        let (start, bytes) = (base + range.start, range.end - range.start);
        // SAFETY: see above.
        let made = unsafe { end.context.reg_mr(pdn, start, bytes, iova, Access(access)) }.unwrap();
        numbers.insert(key, made.lkey);
    }
    end.context.dereg_mr(numbers[&Key::Gone]).unwrap();
    numbers.insert(Key::Stale, numbers[&Key::All] ^ 1);
    Keys { numbers, base }
}
