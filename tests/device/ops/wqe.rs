//! The bytes of every WQE format are those of the manual's structs, and nothing else is written.

// UNSAFETY: starts a kernel.
#![expect(unsafe_code, reason = "launches a kernel")]

use bytemuck::{Pod, bytes_of, cast_slice};
use mlx5_prm::be::{Be32, Be64};
use mlx5_prm::wqe::{
    AtomicSeg, CtrlSeg, DataSeg, InlineHeader, MaskedCas32Seg, MaskedCas64Seg, MaskedFa32Seg,
    MaskedFa64Seg, OPMOD_MASKED_4_BYTES, OPMOD_MASKED_8_BYTES, RaddrSeg, WqeOpcode,
};
use test_support::abi::ops::OpsWqeParams;
use warpverbs::abi::{QpContext, Status};
use warpverbs::gpu::{GpuSelector, Launch};

use test_support::kernels::open;
use test_support::limits::HANG;

const DEPTH: u32 = 256;
const QPN: u32 = 0xab_cdef;
const REMOTE: u64 = 0x0102_0304_0506_0708;
const LOCAL: u64 = 0x1112_1314_1516_1718;
const OPERANDS: [u64; 4] = [
    0x2122_2324_2526_2728,
    0x3132_3334_3536_3738,
    0x4142_4344_4546_4748,
    0x5152_5354_5556_5758,
];
const RKEY: u32 = 0x6162_6364;
const LKEY: u32 = 0x7172_7374;
const IMM: u32 = 0x8182_8384;

/// What a WQE is made of: opcode, modifier, immediate, segments.
type Expected = (WqeOpcode, u8, u32, Vec<u8>);

fn data(bytes: u32, place: u32) -> DataSeg {
    DataSeg {
        byte_count: Be32::new(bytes),
        lkey: Be32::new(LKEY + place),
        addr: Be64::new(LOCAL + 0x1000 * u64::from(place)),
    }
}

fn join(segments: &[&[u8]]) -> Vec<u8> {
    let raddr = RaddrSeg {
        raddr: Be64::new(REMOTE),
        rkey: Be32::new(RKEY),
        ..RaddrSeg::default()
    };
    [&[bytes_of(&raddr)], segments].concat().concat()
}

fn inline(words: &[u32]) -> Vec<u8> {
    let header = InlineHeader::new(4 * words.len() as u32);
    join(&[bytes_of(&header), cast_slice(words)])
}

fn atomic(operands: &impl Pod, bytes: u32) -> Vec<u8> {
    join(&[bytes_of(operands), bytes_of(&data(bytes, 0))])
}

fn expected() -> Vec<Expected> {
    let [a, b, c, d] = OPERANDS.map(Be64::new);
    let [a4, b4, c4, d4] = OPERANDS.map(|word| Be32::new(word as u32));
    let one = data(0x9192, 0);
    let fa = AtomicSeg {
        swap_add: a,
        ..AtomicSeg::default()
    };
    let cs = AtomicSeg {
        swap_add: b,
        compare: a,
    };
    let fa4 = MaskedFa32Seg {
        add: a4,
        field_boundary: b4,
        ..MaskedFa32Seg::default()
    };
    let fa8 = MaskedFa64Seg {
        add: a,
        field_boundary: b,
    };
    let cs4 = MaskedCas32Seg {
        swap: a4,
        compare: b4,
        swap_mask: c4,
        compare_mask: d4,
    };
    let cs8 = MaskedCas64Seg {
        swap: a,
        compare: b,
        swap_mask: c,
        compare_mask: d,
    };
    let (write, write_imm) = (WqeOpcode::RDMA_WRITE, WqeOpcode::RDMA_WRITE_IMM);
    let (masked_fa, masked_cs) = (WqeOpcode::ATOMIC_MASKED_FA, WqeOpcode::ATOMIC_MASKED_CS);
    vec![
        (write, 0, 0, join(&[bytes_of(&one)])),
        (
            write,
            0,
            0,
            join(&[bytes_of(&one), bytes_of(&data(0x91, 1))]),
        ),
        (write_imm, 0, IMM, join(&[bytes_of(&one)])),
        (write_imm, 0, IMM, join(&[])),
        (WqeOpcode::RDMA_READ, 0, 0, join(&[bytes_of(&one)])),
        (write, 0, 0, inline(&[1, 2, 3])),
        (write, 0, 0, inline(&[1, 2, 3, 4, 5, 6, 7])),
        (WqeOpcode::ATOMIC_FA, 0, 0, atomic(&fa, 8)),
        (WqeOpcode::ATOMIC_CS, 0, 0, atomic(&cs, 8)),
        (masked_fa, OPMOD_MASKED_4_BYTES, 0, atomic(&fa4, 4)),
        (masked_fa, OPMOD_MASKED_8_BYTES, 0, atomic(&fa8, 8)),
        (masked_cs, OPMOD_MASKED_4_BYTES, 0, atomic(&cs4, 4)),
        (masked_cs, OPMOD_MASKED_8_BYTES, 0, atomic(&cs8, 8)),
        (WqeOpcode::NOP, 0, 0, vec![]),
    ]
}

/// The bytes of the WQE at `index`.
fn wqe((opcode, opmod, imm, rest): &Expected, index: u64, flags: u32) -> Vec<u8> {
    let ds = 1 + rest.len() / 16;
    let mut ctrl = CtrlSeg::new(*opcode, index as u16, QPN, ds as u8).with_opmod(*opmod);
    ctrl.imm = Be32::new(*imm);
    // Of two WQEBBs: its CQE would name the first one only.
    if flags & 1 != 0 && ds <= 4 {
        ctrl.fm_ce_se |= CtrlSeg::CE_ALWAYS;
    }
    if flags & 2 != 0 {
        ctrl.fm_ce_se |= 4 << 5; // MLX5_WQE_CTRL_FENCE
    }
    [bytes_of(&ctrl), rest.as_slice()].concat()
}

#[test]
fn each_format_has_the_bytes_of_the_manual_and_writes_no_others() {
    const UNWRITTEN: u8 = 0xee;
    let gpu = open(GpuSelector::Simt).unwrap();
    let ring = gpu.alloc(64 * DEPTH as usize, 128).unwrap();
    let memory = gpu.alloc(size_of::<QpContext>(), 128).unwrap();
    let status = gpu.alloc(4, 128).unwrap();
    let context = QpContext {
        sq: ring.addr().into(),
        qpn_be: (QPN << 8).to_be(),
        mask: DEPTH - 1,
        depth: DEPTH,
        ..QpContext::default()
    };
    gpu.write(memory.addr(), bytes_of(&context)).unwrap();
    // From the start, over the ring's end between two WQEs, and between the two WQEBBs of each one.
    for (start, flags) in (0..4).flat_map(|flags| {
        let wraps = [0, (1 << 40) + u64::from(DEPTH) - 6, (1 << 16) - 4];
        let odd = (1..60).step_by(2).map(|back| 3 * (1 << 16) - back);
        wraps
            .into_iter()
            .chain(odd)
            .map(move |start| (start, flags))
    }) {
        gpu.write(ring.addr(), &[UNWRITTEN; 64 * DEPTH as usize])
            .unwrap();
        let params = OpsWqeParams {
            qp: memory.addr().into(),
            index: start,
            flags,
            status: status.addr().into(),
            ..OpsWqeParams::default()
        };
        let launch = Launch::new("wv_test_ops_wqe", 1, 1);
        // SAFETY: the parameters name memory that outlives the launch, which no other code touches.
        let event = unsafe { gpu.launch(&launch, bytes_of(&params)) }.unwrap();
        gpu.wait(&event, HANG).unwrap();
        let mut ended = Status::INVALID;
        gpu.read(status.addr(), bytemuck::bytes_of_mut(&mut ended))
            .unwrap();
        assert_eq!(ended, Status::OK);

        let mut image = vec![UNWRITTEN; 64 * DEPTH as usize];
        for (k, expected) in expected().iter().enumerate() {
            let index = start + 2 * k as u64;
            for (unit, bytes) in wqe(expected, index, flags).chunks(16).enumerate() {
                let at = (index as usize * 64 + unit * 16) % image.len();
                // Inline data ends where it ends; its last 16 bytes are written whole.
                image[at..at + 16].fill(0);
                image[at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
        let mut written = vec![0; image.len()];
        gpu.read(ring.addr(), &mut written).unwrap();
        for (block, (written, expected)) in written.chunks(64).zip(image.chunks(64)).enumerate() {
            assert!(
                written == expected,
                "start {start:#x}, flags {flags}: WQEBB {block} is\n{written:02x?}, expected\n{expected:02x?}"
            );
        }
    }
}
