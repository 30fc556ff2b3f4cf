//! The engine: what an HCA does by itself, between the rings and the wire.
//!
//! ```text
//! UAR register ──> intake: the record says how far to run, WQEs are fetched and decoded
//!                    └─> send ─┬─> memory of a peer in this process ──┐
//!                              └─> wire (RoCEv2 over UDP) ────────────┴─> completion ──> CQ
//! peer's request ──> receive: keys, memory, receive WQEs
//! ```
//!
//! One thread per process serves all HCAs in turns; nothing in a turn blocks. In strict mode a WQE runs only after a store to the doorbell
//! register. The doorbell record, not the value stored, decides which WQEs run. Software sees the bytes of a WQE no later than the bytes of
//! the next WQE of the same QP.
//!
//! | folder | duty |
//! |---|---|
//! | `run` | the thread, its turns, and how it waits between them |
//! | `intake` | doorbells, and WQEs from their ring to an operation |
//! | `send` | a QP's turn: carries operations out, by memory or by the wire |
//! | `receive` | what peers ask for: memory by rkey, atomics, receive WQEs |
//! | `completion` | completion entries, the events for them, the flush of a QP in error |
//!
//! `local` finds the local memory of a WQE. `commands` is what commands of the device ask of the engine. The boundary to the wire is
//! [`transport`]. An RC write uses neither datagrams (`send::datagram`, `receive::grh`) nor shared receive queues (`receive::srq`) nor UMR
//! (`send::umr`): other programs need these.
//!
//! # How a WQE travels
//!
//! 1. The thread (`run::thread::run`) takes the lock and runs one turn (`run::turn::turn`) after the other. For each HCA a turn
//!    takes doorbells: `intake::doorbell::take` exchanges the registers that `device::objects::watch` names with 0. For each doorbell `look`
//!    reads the QP's doorbell record, checks that its counter can be right, and keeps it as `SendQueue::posted`.
//!    `HcaState::schedule` then puts the QP in line.
//! 2. `run::turn::run_ready` gives each QP in line a turn of its own, `send::turn`, for a limited number of WQEs or about a MiB.
//! 3. `send::turn` first offers the posted WQEs to `send::express::run`, the fast path. The WQEs that the fast path does not take
//!    go on with step 4, one by one.
//! 4. `send::begin::begin` makes the WQE an operation. `intake::fetch::fetch` copies it out of its ring, and checks its index, QP number
//!    and length. `intake::decode::decode` says what it asks for. A NOP or a UMR is over with that.
//! 5. `send::turn::way` chooses how the operation gets to its peer:
//!    - To an HCA of this process, `send::loopback::step` carries it out: `find_peer` finds the other end and compares sequence
//!      numbers. `local::resolve_data` finds the local memory, `HcaState::grant_remote` (`receive::responder`) that of the
//!      peer by its rkey. Then bytes are copied from the one to the other. A SEND takes a receive WQE by `receive::message::begin`.
//!    - To other HCAs, `send::turn::submit` hands it to the wire. `run::turn::poll_wire` lets the wire send and receive. At the
//!      peer the wire calls the same functions of `receive`, through [`crate::transport::Device`], and here `Device::complete`
//!      when the peer has acknowledged.
//! 6. On either way `completion::complete_send` or `fail_send` ends the WQE, and `Cq::push` writes its entry if software wants
//!    one. `completion::arming` raises an event if software waits for one. A QP in error has the rest flushed by
//!    `completion::flush::flush`.
//! 7. After the turn the thread gives the lock back and delivers events. It bumps the word of [`softhca_wake_word`] if the turn
//!    has written something that software may wait for.
//!
//! # The fast path
//!
//! Most WQEs between QPs of a process are RDMA WRITEs and READs of one WQEBB. `send::express::run` carries out a run of them with
//! one look at both ends, in place of steps 4 to 6. It begins if
//!
//! - the QP is RC and in Rts, its peer is in this process, and nothing of it is under way, parked or failed;
//! - the peer exists, is awake and past Rtr (a first request in Rtr is an event), and expects the sequence number that is due;
//! - the checker looks neither at bytes of WQEs nor for overlaps;
//! - no fault for completions is set, and no [`Adversary`](crate::device::Adversary) holds back writes to the peer;
//!
//! and it goes on while the next WQE is a WRITE or a READ that bears the index and the QP number that are due. The WQE has one data
//! segment or inline data, and moves 1 byte to 1 MiB. Both keys give memory in one piece, with the rights that it needs. That
//! memory lies in no file that may be truncated. An entry for which software waits, or a full completion queue, ends the run.
//!
//! The result is the same as with steps 4 to 6, for these reasons. The thread holds the lock, so neither end, key nor queue changes during
//! a run. The fast path looks at each WQE as a whole before its first byte moves. If a WQE is of another kind or would fail, the fast path
//! leaves it untouched, and step 4 begins with it anew. So the fast path has no errors of its own. The test
//! `the_short_way_and_the_long_way_look_the_same` (`tests/engine/express.rs`) runs random batches with and without the fast path. It
//! compares entries, counters, sequence numbers and memory. The random programs of `tests/engine/programs` run on the fast path and are
//! compared with a model.

mod commands;
pub(crate) mod completion;
pub(crate) mod intake;
mod local;
mod receive;
mod run;
pub(crate) mod send;

pub use crate::transport;
pub(crate) use commands::ForCommands;
pub(crate) use run::thread::start;
pub(crate) use run::turn::turn;
pub(crate) use run::wake::{announce, kick, serve_executor};
pub use run::wake::{softhca_kick, softhca_wake_word};
