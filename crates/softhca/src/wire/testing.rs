//! Common parts of the wire's tests: a device made of two byte arrays, and operations on it.

use super::headers::{AtomicEth, AtomicOp};
use crate::envelope::{Destination, Envelope, Name};
use crate::transport::{
    Datagram, Device, Failure, NakCode, Operation, OperationKind, ReceiveError, Received,
    RemoteAccess, SendWith, Target,
};
use std::collections::VecDeque;
use std::time::Duration;

/// The longest wait of a test for something that must happen. The limit only ends a hang.
pub(crate) const HANG: Duration = Duration::from_secs(240);

/// The only key that the memory of a [`TestDevice`] has.
pub(crate) const RKEY: u32 = 0x1234;

/// The queue key that all datagrams must carry.
pub(crate) const QKEY: u32 = 0x1111_1111;

/// A device whose remotely accessible memory starts at address 0 and has the key [`RKEY`].
#[derive(Debug, Default)]
pub(crate) struct TestDevice {
    pub memory: Vec<u8>,
    /// Completions in order: the tag of the operation and its outcome.
    pub completed: Vec<(usize, Result<(), Failure>)>,
    /// The data that READs and atomics brought back, by tag.
    pub returned: Vec<(usize, Vec<u8>)>,
    pub bytes_written: u64,
    pub atomics_done: u64,
    /// Receive WQEs. Each number says how often `receive_begin` returns "not ready" before it takes the WQE. Without a WQE it never
    /// succeeds.
    pub receives: VecDeque<u32>,
    /// The SRQs that requests have named.
    pub srqs: Vec<Option<u32>>,
    pub message: Vec<u8>,
    /// True if a receive WQE is in use.
    pub begun: bool,
    pub received: Vec<(Received, Vec<u8>)>,
    pub refused: Option<NakCode>,
}

/// A WQE of a test: its tag and its local data.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TestWqe {
    pub tag: usize,
    pub data: Vec<u8>,
    /// True if the local memory fails.
    pub broken: bool,
    /// Version and source of a datagram.
    pub envelope: Envelope,
}

impl TestWqe {
    pub(crate) fn new(tag: usize, data: Vec<u8>) -> Self {
        Self {
            tag,
            data,
            broken: false,
            envelope: Envelope::V2_IPV4,
        }
    }
}

impl TestDevice {
    pub(crate) fn new(memory: Vec<u8>) -> Self {
        Self {
            memory,
            ..Self::default()
        }
    }

    fn range(&self, rkey: u32, va: u64, bytes: usize) -> Result<std::ops::Range<usize>, NakCode> {
        let start = usize::try_from(va).map_err(|_| NakCode::REMOTE_ACCESS_ERROR)?;
        let end = start
            .checked_add(bytes)
            .ok_or(NakCode::REMOTE_ACCESS_ERROR)?;
        if rkey == RKEY && end <= self.memory.len() {
            Ok(start..end)
        } else {
            Err(NakCode::REMOTE_ACCESS_ERROR)
        }
    }

    pub(crate) fn word(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.memory[at..at + 8].try_into().unwrap())
    }
}

impl Device for TestDevice {
    type Wqe = TestWqe;

    fn gather(
        &mut self,
        _: u32,
        wqe: &TestWqe,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), Failure> {
        if wqe.broken {
            return Err(Failure::LocalProtection);
        }
        let start = usize::try_from(offset).unwrap();
        out.copy_from_slice(&wqe.data[start..start + out.len()]);
        Ok(())
    }

    fn destination(&self, wqe: &TestWqe, to: &Datagram) -> Option<Destination> {
        let (address, destination) = Name::of(&to.gid)?;
        let envelope = Envelope {
            destination,
            ..wqe.envelope
        };
        Some(Destination {
            address,
            envelope,
            path_bits: to.path_bits,
        })
    }

    fn scatter(&mut self, _: u32, wqe: &TestWqe, offset: u64, data: &[u8]) -> Result<(), Failure> {
        if wqe.broken {
            return Err(Failure::LocalProtection);
        }
        if offset == 0 {
            self.returned.push((wqe.tag, vec![]));
        }
        let (_, bytes) = self
            .returned
            .iter_mut()
            .rfind(|(tag, _)| *tag == wqe.tag)
            .unwrap();
        assert_eq!(
            bytes.len() as u64,
            offset,
            "responses come in order, each byte once"
        );
        bytes.extend(data);
        Ok(())
    }

    fn complete(&mut self, _: u32, wqe: TestWqe, outcome: Result<(), Failure>) {
        self.completed.push((wqe.tag, outcome));
    }

    fn check_remote(
        &mut self,
        _: u32,
        _: RemoteAccess,
        rkey: u32,
        va: u64,
        bytes: u32,
    ) -> Result<(), NakCode> {
        self.range(rkey, va, bytes as usize).map(drop)
    }

    fn remote_write(&mut self, _: u32, rkey: u32, va: u64, data: &[u8]) -> Result<(), NakCode> {
        let range = self.range(rkey, va, data.len())?;
        self.memory[range].copy_from_slice(data);
        self.bytes_written += data.len() as u64;
        Ok(())
    }

    fn remote_read(&mut self, _: u32, rkey: u32, va: u64, out: &mut [u8]) -> Result<(), NakCode> {
        let range = self.range(rkey, va, out.len())?;
        out.copy_from_slice(&self.memory[range]);
        Ok(())
    }

    fn remote_atomic(&mut self, _: u32, atomic: &AtomicEth) -> Result<u64, NakCode> {
        let range = self.range(atomic.rkey, atomic.va, 8)?;
        let original = self.word(range.start);
        let value = match atomic.op {
            AtomicOp::FetchAdd { add } => original.wrapping_add(add),
            AtomicOp::CompareSwap { compare, swap } if compare == original => swap,
            AtomicOp::CompareSwap { .. } => original,
            other => unreachable!("tests do not send {other:?}"),
        };
        self.memory[range].copy_from_slice(&value.to_ne_bytes());
        self.atomics_done += 1;
        Ok(original)
    }

    fn accepts_datagram(&mut self, _: u32, qkey: u32) -> bool {
        qkey == QKEY
    }

    fn receive_begin(&mut self, _: u32, srqn: Option<u32>) -> Result<(), ReceiveError> {
        self.srqs.push(srqn);
        if self.begun {
            self.message.clear(); // the message before broke off
            return Ok(());
        }
        match self.receives.front_mut() {
            None => Err(ReceiveError::NotReady),
            Some(0) => {
                self.receives.pop_front();
                self.message.clear();
                self.begun = true;
                Ok(())
            }
            Some(refusals) => {
                *refusals -= 1;
                Err(ReceiveError::NotReady)
            }
        }
    }

    fn receive_bytes(&mut self, _: u32, offset: u64, data: &[u8]) -> Result<(), NakCode> {
        assert_eq!(self.message.len() as u64, offset);
        self.message.extend(data);
        Ok(())
    }

    fn receive_done(&mut self, _: u32, received: &Received) -> Result<(), NakCode> {
        assert!(std::mem::take(&mut self.begun), "a receive WQE is in use");
        self.received
            .push((*received, std::mem::take(&mut self.message)));
        Ok(())
    }

    fn responder_failed(&mut self, _: u32, code: NakCode) {
        assert_eq!(self.refused.replace(code), None, "reported once");
    }
}

pub(crate) fn write(va: u64, bytes: usize) -> Operation {
    operation(
        OperationKind::Write {
            va,
            rkey: RKEY,
            immediate: None,
        },
        bytes,
    )
}

pub(crate) fn read(va: u64, bytes: usize) -> Operation {
    operation(OperationKind::Read { va, rkey: RKEY }, bytes)
}

pub(crate) fn fetch_add(va: u64, add: u64) -> Operation {
    operation(
        OperationKind::Atomic(AtomicEth {
            va,
            rkey: RKEY,
            op: AtomicOp::FetchAdd { add },
        }),
        8,
    )
}

pub(crate) fn send(bytes: usize) -> Operation {
    operation(
        OperationKind::Send {
            with: SendWith::Nothing,
        },
        bytes,
    )
}

pub(crate) fn operation(kind: OperationKind, bytes: usize) -> Operation {
    Operation {
        to: Target::Connected,
        kind,
        bytes: u32::try_from(bytes).unwrap(),
        solicited: false,
        fence: false,
    }
}
