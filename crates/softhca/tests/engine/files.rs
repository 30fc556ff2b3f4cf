//! Registered memory that is a mapping of a file, which somebody truncates: the operation that needs a page which is gone fails, and
//! the process lives.

// UNSAFETY: maps files and registers them.
#![expect(unsafe_code, reason = "mappings of files")]

use mlx5_prm::be::Be64;
use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::wqe::{AtomicSeg, CtrlSeg, OPMOD_MASKED_4_BYTES, WqeOpcode};
use rustix::fs::{MemfdFlags, memfd_create};
use softhca::HcaConfig;
use softhca::device::{Access, Adversary, MrKeys};
use softhca_rig::{End, Pair, Shape, data, inline, raddr};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU8, Ordering};
use test_basics::mapped::MappedFile;

const PAGE: u64 = 4096;
const BYTES: u64 = 4 * PAGE;
const HOW: [(&str, i32); 2] = [("shared", libc::MAP_SHARED), ("private", libc::MAP_PRIVATE)];

/// A file of 4 pages, all of it mapped.
struct Mapped(MappedFile);

impl Mapped {
    fn new(how: i32) -> Self {
        let file = File::from(memfd_create("mapped", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(BYTES).unwrap();
        Self(MappedFile::new(file, how))
    }

    fn address(&self) -> u64 {
        self.0.first().expose_provenance() as u64
    }

    /// Registers it for an end.
    fn register(&self, end: &End) -> MrKeys {
        // SAFETY: it is mapped until the end is gone: tests declare it first.
        let keys = unsafe {
            let address = self.address();
            end.context
                .reg_mr(end.pdn, address, BYTES, address, Access(0xf))
        };
        keys.unwrap()
    }

    /// Returns a byte whose page is there.
    fn byte(&self, at: u64) -> &AtomicU8 {
        // SAFETY: inside the mapping; the test names pages that the file has.
        unsafe { AtomicU8::from_ptr(self.0.first().add(usize::try_from(at).unwrap())) }
    }

    fn bytes(&self, at: u64, bytes: u64) -> Vec<u8> {
        (at..at + bytes)
            .map(|at| self.byte(at).load(Ordering::Relaxed))
            .collect()
    }
}

/// Returns the ways on which bytes go: from memory to memory, by packets, and late.
fn ways() -> [(&'static str, HcaConfig); 3] {
    let packets = HcaConfig {
        loopback: false,
        ..HcaConfig::default()
    };
    let late = HcaConfig {
        adversary: Some(Adversary::new(7)),
        ..HcaConfig::default()
    };
    [
        ("memory", HcaConfig::default()),
        ("packets", packets),
        ("late", late),
    ]
}

fn pair(config: &HcaConfig) -> Pair {
    let shape = Shape {
        log_receive: Some(3),
        ..Shape::default()
    };
    Pair::with(config, shape.clone(), shape)
}

fn both(pair: &mut Pair) -> [&mut End; 2] {
    [&mut pair.a, &mut pair.b]
}

/// Connected ends on the HCAs of others, which may have failed.
fn beside(pair: &Pair) -> [End; 2] {
    let shape = || Shape {
        log_receive: Some(3),
        ..Shape::default()
    };
    let [a, b] = [&pair.hca_a, &pair.hca_b].map(|hca| End::new(hca, shape()));
    a.connect(pair.hca_b.gid(), b.qpn, 5);
    b.connect(pair.hca_a.gid(), a.qpn, 5);
    [a, b]
}

fn add(by: u64) -> Vec<u8> {
    let segment = AtomicSeg {
        swap_add: Be64::new(by),
        compare: Be64::new(0),
    };
    bytemuck::bytes_of(&segment).to_vec()
}

/// What `a` is to do. `at` is in the file, which is at `b` if the operation names it as remote memory, else at `a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    WriteTo,
    WriteInlineTo,
    ReadFrom,
    AddTo,
    AddToHalf,
    WriteFrom,
    ReadInto,
    AddInto,
    SendFrom,
    ReceiveInto,
}

const ALL: [What; 10] = [
    What::WriteTo,
    What::WriteInlineTo,
    What::ReadFrom,
    What::AddTo,
    What::AddToHalf,
    What::WriteFrom,
    What::ReadInto,
    What::AddInto,
    What::SendFrom,
    What::ReceiveInto,
];

impl What {
    fn is_remote(self) -> bool {
        !matches!(
            self,
            Self::WriteFrom | Self::ReadInto | Self::AddInto | Self::SendFrom
        )
    }

    /// As for a key that does not give the memory.
    fn syndrome(self) -> Syndrome {
        match self {
            Self::ReceiveInto => Syndrome::REMOTE_OP_ERR,
            _ if self.is_remote() => Syndrome::REMOTE_ACCESS_ERR,
            _ => Syndrome::LOCAL_PROT_ERR,
        }
    }

    /// Bytes that it moves, of `most`.
    fn bytes(self, most: u32) -> u32 {
        match self {
            Self::AddToHalf => 4,
            Self::AddTo | Self::AddInto => 8,
            Self::WriteInlineTo => most.min(24),
            _ => most,
        }
    }

    /// Posts it. How it ends.
    fn run(self, [a, b]: [&mut End; 2], keys: MrKeys, at: u64, most: u32) -> Syndrome {
        let bytes = self.bytes(most);
        let file = raddr(at, keys.rkey).to_vec();
        let own = data(bytes, a.keys.lkey, a.data.address()).to_vec();
        let other = raddr(b.data.address(), b.keys.rkey).to_vec();
        let from = data(bytes, keys.lkey, at).to_vec();
        let (opcode, opmod, rest) = match self {
            Self::WriteTo => (WqeOpcode::RDMA_WRITE, 0, [file, own].concat()),
            Self::WriteInlineTo => {
                let bytes = vec![1; bytes as usize];
                (WqeOpcode::RDMA_WRITE, 0, [file, inline(&bytes)].concat())
            }
            Self::ReadFrom => (WqeOpcode::RDMA_READ, 0, [file, own].concat()),
            Self::AddTo => (WqeOpcode::ATOMIC_FA, 0, [file, add(1), own].concat()),
            Self::AddToHalf => {
                let fields = [1u32.to_be_bytes(), [0; 4], [0; 4], [0; 4]].concat();
                let rest = [file, fields, own].concat();
                (WqeOpcode::ATOMIC_MASKED_FA, OPMOD_MASKED_4_BYTES, rest)
            }
            Self::WriteFrom => (WqeOpcode::RDMA_WRITE, 0, [other, from].concat()),
            Self::ReadInto => (WqeOpcode::RDMA_READ, 0, [other, from].concat()),
            Self::AddInto => (WqeOpcode::ATOMIC_FA, 0, [other, add(1), from].concat()),
            Self::SendFrom => {
                b.post_receive(0, most);
                (WqeOpcode::SEND, 0, from)
            }
            Self::ReceiveInto => {
                let end = data(0, mlx5_prm::wqe::DataSeg::INVALID_LKEY, 0);
                b.post_receive_bytes(&[from, end.to_vec()].concat());
                (WqeOpcode::SEND, 0, own)
            }
        };
        a.write_wqe(opcode, opmod, CtrlSeg::CE_ALWAYS, 0, &rest);
        let cqe = a.run(1)[0];
        match cqe.opcode() {
            CqeOpcode::REQ => Syndrome(0),
            _ => cqe.as_error().reason(),
        }
    }
}

#[test]
fn memory_of_a_file_is_as_other_memory_while_the_file_has_it() {
    for (way, config) in ways() {
        for (name, how) in HOW {
            let file = Mapped::new(how);
            let mut pair = pair(&config);
            let keys = [&pair.a, &pair.b].map(|end| file.register(end));
            pair.a.data.write(0, &[0x5a; 9000]);
            let mut run = |what: What, at, bytes| {
                let keys = keys[usize::from(what.is_remote())];
                let ended = what.run(both(&mut pair), keys, file.address() + at, bytes);
                assert_eq!(ended, Syndrome(0), "{way} {name} {what:?}");
            };
            run(What::WriteTo, 3, 9000);
            run(What::AddTo, 0x2800, 8);
            run(What::AddTo, 0x2800, 8);
            run(What::AddToHalf, 0x2900, 4);
            run(What::SendFrom, 3, 100);
            run(What::ReceiveInto, 0x3001, 100);
            run(What::WriteFrom, 2, 9001);
            run(What::ReadInto, 0x3100, 64);
            // A WRITE from the file to itself.
            run(What::ReadFrom, 0x2800, 8);
            assert_eq!(file.bytes(0, 3), [0; 3]);
            assert_eq!(file.bytes(3, 9000), [0x5a; 9000]);
            assert_eq!(file.bytes(9003, 1), [0]);
            assert_eq!(file.bytes(0x2800, 8), 2u64.to_ne_bytes());
            assert_eq!(file.bytes(0x2900, 4), 1u32.to_ne_bytes());
            assert_eq!(file.bytes(0x3100, 2), [0, 0x5a]);
            assert_eq!(pair.b.data.read(0, 2), [0, 0x5a]);
            assert_eq!(pair.a.data.read(0, 8), 2u64.to_ne_bytes());
            pair.assert_clean();
        }
    }
}

#[test]
fn an_operation_on_a_page_that_is_gone_fails_as_by_a_bad_key() {
    for (way, config) in ways() {
        for (name, how) in HOW {
            // All of it; whole pages; to a point within a page, whose rest is there and zero.
            for (kept, gone) in [(0, 0), (2 * PAGE, 2 * PAGE), (PAGE + 100, 2 * PAGE)] {
                let pair = pair(&config);
                for what in ALL {
                    let file = Mapped::new(how);
                    let [mut a, mut b] = beside(&pair);
                    let keys = file.register(if what.is_remote() { &b } else { &a });
                    let found = || [pair.hca_a.findings(), pair.hca_b.findings()].concat();
                    let before = found().len();
                    (0..BYTES).for_each(|at| file.byte(at).store(3, Ordering::Relaxed));
                    file.0.file.set_len(kept).unwrap();
                    let told = format!("{way} {name} {kept} {what:?}");
                    let address = file.address();
                    if gone > 0 {
                        // What is left of the file, up to its last byte and beyond.
                        let bytes = u64::from(what.bytes(300));
                        let at = address + gone - bytes;
                        let ended = what.run([&mut a, &mut b], keys, at, 300);
                        assert_eq!(ended, Syndrome(0), "{told}");
                    }
                    let ended = what.run([&mut a, &mut b], keys, address + gone + 8, 5000);
                    assert_eq!(ended, what.syndrome(), "{told}");
                    let findings = &found()[before..];
                    let says = findings.iter().any(|text| text.contains("is gone"));
                    assert!(says, "{told}: {findings:?}");
                    let left = kept.min(gone.saturating_sub(300));
                    assert!(file.bytes(0, left).iter().all(|byte| *byte == 3), "{told}");
                }
            }
        }
    }
}

#[test]
fn a_write_across_the_end_of_a_file_fails_and_leaves_what_is_before_it() {
    for (way, config) in ways() {
        for kept in [2 * PAGE, PAGE + 100] {
            let file = Mapped::new(libc::MAP_SHARED);
            let mut pair = pair(&config);
            let keys = file.register(&pair.b);
            file.0.file.set_len(kept).unwrap();
            pair.a.data.write(0, &[9; 4096]);
            let at = 2 * PAGE - 1000;
            let ended = What::WriteTo.run(both(&mut pair), keys, file.address() + at, 4096);
            assert_eq!(ended, Syndrome::REMOTE_ACCESS_ERR, "{way} {kept}");
            assert!(file.bytes(0, at).iter().all(|byte| *byte == 0), "{way}");
            let part = file.bytes(at, 1000);
            assert!(part.iter().all(|byte| [0, 9].contains(byte)), "{way}");
            // Other memory, by other QPs: the device goes on.
            let [mut a, b] = beside(&pair);
            a.data.write(0, b"goes on.");
            a.write(0, 8, b.data.address(), b.keys.rkey);
            assert_eq!(a.run(1)[0].opcode(), CqeOpcode::REQ, "{way}");
            assert_eq!(b.data.read(0, 8), b"goes on.", "{way}");
        }
    }
}

#[test]
fn a_write_from_a_file_to_itself_moves_the_bytes_as_they_were() {
    let file = Mapped::new(libc::MAP_SHARED);
    let mut pair = pair(&HcaConfig::default());
    let [near, far] = [&pair.a, &pair.b].map(|end| file.register(end));
    for (from, to) in [(100, 4000), (4000, 100), (0, 8), (8, 0)] {
        let byte = |at: u64| u8::try_from(at % 251).unwrap();
        (0..BYTES).for_each(|at| file.byte(at).store(byte(at), Ordering::Relaxed));
        let rest = [
            raddr(file.address() + to, far.rkey),
            data(9000, near.lkey, file.address() + from),
        ];
        pair.a.write_wqe(
            WqeOpcode::RDMA_WRITE,
            0,
            CtrlSeg::CE_ALWAYS,
            0,
            &rest.concat(),
        );
        assert_eq!(pair.a.run(1)[0].opcode(), CqeOpcode::REQ);
        let expected: Vec<u8> = (from..from + 9000).map(byte).collect();
        assert!(file.bytes(to, 9000) == expected, "{from} to {to}");
    }
}

#[test]
fn a_buffer_by_its_descriptor_that_becomes_shorter_is_gone_too() {
    let file = Mapped::new(libc::MAP_SHARED);
    for (way, config) in ways() {
        let mut pair = pair(&config);
        file.0.file.set_len(BYTES).unwrap();
        let fd = file.0.file.as_raw_fd();
        let iova = 0x7000_0000;
        let keys = pair
            .b
            .context
            .reg_dmabuf_mr(pair.b.pdn, fd, 0, BYTES, iova, Access(0xf));
        let keys = keys.unwrap();
        file.0.file.set_len(PAGE).unwrap();
        let ended = What::WriteTo.run(both(&mut pair), keys, iova + 8, 64);
        assert_eq!(ended, Syndrome(0), "{way}");
        let ended = What::WriteTo.run(both(&mut pair), keys, iova + PAGE, 64);
        assert_eq!(ended, Syndrome::REMOTE_ACCESS_ERR, "{way}");
    }
}
