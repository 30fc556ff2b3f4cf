//! Inputs that fuzzing starts from: right ones, of every kind.

use mlx5_prm::cmd::Opcode;
use mlx5_prm::qp::{QpModifyIn, Qpc, QueryQpIn};
use mlx5_prm::wqe::{CtrlSeg, WqeOpcode};
use softhca::wire::envelope::Envelope;
use softhca::wire::headers::{Aeth, AtomicEth, AtomicOp, Deth, NakCode, Reth, Syndrome};
use softhca::wire::packet::{Body, Head, ReadPart, SendEnd, Transport, WriteEnd, write_headers};
use softhca::wire::psn::Psn;
use softhca_rig::bringup::{create_cq, create_qp};
use softhca_rig::fuzzing::ARENA;
use softhca_rig::{data, inline, raddr};

type Seed = (String, Vec<u8>);

/// Returns the seeds of a target.
pub(crate) fn of(target: &str) -> Vec<Seed> {
    match target {
        "ioctls" => ioctls(),
        "commands" => commands(),
        "wqes" => wqes(),
        _ => packets(),
    }
}

fn u16s(values: &[u16]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// Returns a call: object, method, attributes of (what, id, length, flags, data).
fn call(object: u16, method: u16, attributes: &[(u8, u16, u16, u8, u32)]) -> Vec<u8> {
    let mut bytes = u16s(&[object, method]);
    bytes.push(u8::try_from(attributes.len()).unwrap());
    for (what, id, length, flags, value) in attributes {
        bytes.push(*what);
        bytes.extend(u16s(&[*id, *length]));
        bytes.push(*flags);
        bytes.extend(value.to_le_bytes());
    }
    bytes
}

/// Attribute data that is a number, or points into the arena.
const NUMBER: u8 = 0;
const PLACE: u8 = 1;

fn ioctls() -> Vec<Seed> {
    let with = |name: &str, calls: &[Vec<u8>], arena: &[(usize, Vec<u8>)]| {
        let calls = calls.concat();
        let mut bytes = u16s(&[u16::try_from(calls.len()).unwrap()]);
        bytes.extend(calls);
        let start = bytes.len();
        for (at, content) in arena {
            bytes.resize(bytes.len().max(start + at + content.len()), 0);
            bytes[start + at..start + at + content.len()].copy_from_slice(content);
        }
        (name.to_owned(), bytes)
    };
    let invoke = |command: u32, input: u16, output: u16| {
        let core_in = (PLACE, 0, input, 1, 0x100);
        call(
            0,
            0,
            &[
                core_in,
                (PLACE, 1, output, 1, 0x800),
                (NUMBER, 2, 8, 1, command),
            ],
        )
    };
    let address = |offset: u64| (ARENA + offset).to_le_bytes();
    // PD 1, and a region of 4 KiB in it.
    let region = [
        address(0x2000),
        0x1000u64.to_le_bytes(),
        address(0x2000),
        (1u64 | 15 << 32).to_le_bytes(),
    ]
    .concat();
    let pd = || invoke(0x3, 8, 4);
    vec![
        with(
            "port",
            &[call(
                0,
                2,
                &[(NUMBER, 0, 8, 1, 1), (PLACE, 1, 48, 1, 0x900)],
            )],
            &[],
        ),
        with(
            "gids",
            &[call(
                0,
                5,
                &[
                    (NUMBER, 0, 8, 1, 32),
                    (PLACE, 2, 128, 1, 0x900),
                    (PLACE, 3, 8, 1, 0x980),
                ],
            )],
            &[],
        ),
        with(
            "pd",
            &[
                pd(),
                call(
                    1,
                    0x1000,
                    &[(NUMBER, 0x1000, 0, 1, 1), (PLACE, 0x1001, 4, 1, 0x900)],
                ),
            ],
            &[],
        ),
        with(
            "region",
            &[
                pd(),
                invoke(0x9, 40, 12),
                call(7, 1, &[(NUMBER, 0, 0, 1, 2)]),
            ],
            &[(0x108, region)],
        ),
        with(
            "eqn",
            &[call(
                0x1000,
                0x1002,
                &[(NUMBER, 0x1000, 4, 1, 0), (PLACE, 0x1001, 4, 1, 0x900)],
            )],
            &[],
        ),
        with(
            "caps",
            &[call(
                0x1000,
                0x1000,
                &[
                    (PLACE, 0x1000, 16, 1, 0x100),
                    (PLACE, 0x1001, 272, 1, 0x900),
                ],
            )],
            &[(0x100, [0x01, 0, 0, 0, 0, 0, 0, 1].to_vec())],
        ),
        with(
            "umem",
            &[call(
                0x1002,
                0x1000,
                &[
                    (NUMBER, 0x1000, 0, 1, 0),
                    (PLACE, 0x1001, 8, 1, 0x3000),
                    (NUMBER, 0x1002, 8, 1, 0x1000),
                    (NUMBER, 0x1003, 4, 1, 1),
                    (PLACE, 0x1004, 4, 1, 0x900),
                ],
            )],
            &[],
        ),
        with(
            "device",
            &[invoke(0x1, 8, 176), invoke(0x8000_0001, 8, 184)],
            &[],
        ),
        with("channel", &[invoke(0x11, 8, 4)], &[]),
        with(
            "uar",
            &[call(
                0x1003,
                0x1000,
                &[(NUMBER, 0x1000, 0, 1, 0), (NUMBER, 0x1001, 4, 1, 0)],
            )],
            &[],
        ),
    ]
}

fn commands() -> Vec<Seed> {
    let send = |how: u8, which: u8, command: &[u8]| {
        let mut bytes = vec![how, which];
        bytes.extend(u16s(&[300, u16::try_from(command.len()).unwrap()]));
        bytes.extend(command);
        bytes
    };
    let (general, query, modify, create, destroy, named) = (0, 1, 2, 3, 4, 0x80);
    // The numbers of a fresh device, as `bring_up` gets them.
    let made = softhca_rig::fuzzing::bring_up_numbers();
    let qp = create_qp(made.pdn, made.umem, made.page_id, made.cqn);
    let cq = create_cq(made.umem, made.page_id, 1);
    let mut transitions = send(create, 0, qp.as_bytes());
    for opcode in [
        Opcode::RST2INIT_QP,
        Opcode::INIT2RTR_QP,
        Opcode::RTR2RTS_QP,
        Opcode::TO_ERR_QP,
        Opcode::TO_RST_QP,
    ] {
        let qpc = Qpc::default()
            .with_mtu(3)
            .with_remote_qpn(7)
            .with_log_msg_max(30);
        let input = QpModifyIn::default()
            .with_opcode(opcode.0.into())
            .with_qpc(qpc);
        transitions.extend(send(modify | named, 1, input.as_bytes()));
    }
    // `how % 5` selects the kind: 0x80 is 3 more.
    let plain = |kind: u8| {
        (0..=255u8)
            .find(|how| how % 5 == kind && how & 0x80 != 0)
            .unwrap()
    };
    let opcode = |opcode: Opcode, bytes: usize| {
        let mut command = opcode.0.to_be_bytes().to_vec();
        command.resize(bytes, 0);
        command
    };
    let query_qp = QueryQpIn::default().with_opcode(Opcode::QUERY_QP.0.into());
    let twice = [
        send(create, 0, qp.as_bytes()),
        send(plain(query), 1, query_qp.as_bytes()),
    ]
    .concat();
    vec![
        ("cq".to_owned(), send(create, 0, cq.as_bytes())),
        ("qp".to_owned(), twice),
        ("transitions".to_owned(), transitions),
        (
            "pd".to_owned(),
            [
                send(create, 0, &opcode(Opcode::ALLOC_PD, 16)),
                send(destroy, 1, &[]),
            ]
            .concat(),
        ),
        (
            "caps".to_owned(),
            send(general, 0, &opcode(Opcode::QUERY_HCA_CAP, 16)),
        ),
        (
            "query-cq".to_owned(),
            send(plain(query), 0, &opcode(Opcode::QUERY_CQ, 16)),
        ),
        (
            "mkey".to_owned(),
            send(create, 0, &opcode(Opcode::CREATE_MKEY, 272)),
        ),
        (
            "modify-cq".to_owned(),
            send(plain(modify), 0, &opcode(Opcode::MODIFY_CQ, 272)),
        ),
    ]
}

fn wqes() -> Vec<Seed> {
    let (lkey, rkey) = softhca_rig::fuzzing::wqe_keys();
    let base = softhca_rig::fuzzing::IOVA;
    let place = |bytes| data(bytes, lkey, base + 64);
    let remote = raddr(base + 0x800, rkey);
    let header = inline(&[1; 28]);
    let wqe = |opcode: WqeOpcode, opmod: u8, rest: &[&[u8]]| {
        let rest = rest.concat();
        let units = u8::try_from(1 + rest.len() / 16).unwrap();
        let mut ctrl = CtrlSeg::new(opcode, 0, 0, units).with_opmod(opmod);
        ctrl.fm_ce_se = CtrlSeg::CE_ALWAYS;
        let mut bytes = vec![2, units];
        bytes.extend(bytemuck::bytes_of(&ctrl));
        bytes.extend(rest);
        bytes
    };
    let all = [
        ("nop", wqe(WqeOpcode::NOP, 0, &[])),
        (
            "write",
            wqe(WqeOpcode::RDMA_WRITE, 0, &[&remote, &place(3000)]),
        ),
        (
            "write-imm",
            wqe(WqeOpcode::RDMA_WRITE_IMM, 0, &[&remote, &place(8)]),
        ),
        (
            "write-inline",
            wqe(WqeOpcode::RDMA_WRITE, 0, &[&remote, &inline(&[1; 40])]),
        ),
        (
            "read",
            wqe(WqeOpcode::RDMA_READ, 0, &[&remote, &place(100), &place(7)]),
        ),
        (
            "cas",
            wqe(WqeOpcode::ATOMIC_CS, 0, &[&remote, &[0; 16], &place(8)]),
        ),
        (
            "add",
            wqe(WqeOpcode::ATOMIC_FA, 0, &[&remote, &[0; 16], &place(8)]),
        ),
        (
            "masked-cas",
            wqe(
                WqeOpcode::ATOMIC_MASKED_CS,
                9,
                &[&remote, &[0; 32], &place(8)],
            ),
        ),
        (
            "masked-add",
            wqe(
                WqeOpcode::ATOMIC_MASKED_FA,
                8,
                &[&remote, &[0; 16], &place(4)],
            ),
        ),
        ("send", wqe(WqeOpcode::SEND, 0, &[&place(2000)])),
        ("send-imm", wqe(WqeOpcode::SEND_IMM, 0, &[&inline(&[1; 5])])),
        ("send-inval", wqe(WqeOpcode::SEND_INVAL, 0, &[&place(1)])),
        ("umr", wqe(WqeOpcode::UMR, 0, &[&[0; 48], &[0; 64]])),
        (
            "send-mixed",
            wqe(WqeOpcode::SEND, 0, &[&header, &place(900), &header]),
        ),
        (
            "write-mixed",
            wqe(WqeOpcode::RDMA_WRITE, 0, &[&remote, &place(9), &header]),
        ),
    ];
    let mut seeds = Vec::new();
    for (how, path) in [(0, "memory"), (1, "packets")] {
        let bytes = [
            vec![how],
            all.iter().flat_map(|(_, wqe)| wqe.clone()).collect(),
        ]
        .concat();
        seeds.push((format!("all-{path}"), bytes));
    }
    for (how, kind) in [(0, "rc"), (2, "uc"), (5, "ud")] {
        seeds.extend(
            all.iter()
                .filter(|_| how == 0)
                .map(|(name, wqe)| (format!("{kind}-{name}"), [vec![how], wqe.clone()].concat())),
        );
        let some: Vec<u8> = all
            .iter()
            .flat_map(|(_, wqe)| wqe.clone())
            .take(400)
            .collect();
        seeds.push((format!("{kind}-some"), [vec![how], some].concat()));
    }
    seeds
}

fn packets() -> Vec<Seed> {
    let (_, rkey) = softhca_rig::fuzzing::wqe_keys();
    let reth = |bytes| Reth {
        va: softhca_rig::fuzzing::IOVA,
        rkey,
        bytes,
    };
    let says = |syndrome| Aeth { syndrome, msn: 1 };
    let aeth = || says(Syndrome::Ack { credits: 31 });
    let atomic = AtomicEth {
        va: softhca_rig::fuzzing::IOVA,
        rkey,
        op: AtomicOp::FetchAdd { add: 1 },
    };
    let bodies: Vec<(&str, Body, usize)> = vec![
        (
            "send-only",
            Body::Send {
                starts: true,
                end: Some(SendEnd::Plain),
            },
            20,
        ),
        (
            "send-first",
            Body::Send {
                starts: true,
                end: None,
            },
            1024,
        ),
        (
            "send-last",
            Body::Send {
                starts: false,
                end: Some(SendEnd::Immediate(7)),
            },
            5,
        ),
        (
            "send-inval",
            Body::Send {
                starts: true,
                end: Some(SendEnd::Invalidate(rkey)),
            },
            5,
        ),
        (
            "write-only",
            Body::Write {
                start: Some(reth(9)),
                end: Some(WriteEnd::Plain),
            },
            9,
        ),
        (
            "write-first",
            Body::Write {
                start: Some(reth(1030)),
                end: None,
            },
            1024,
        ),
        (
            "write-last",
            Body::Write {
                start: None,
                end: Some(WriteEnd::Immediate(3)),
            },
            6,
        ),
        ("read", Body::ReadRequest(reth(3000)), 0),
        ("read-answer", Body::ReadResponse(ReadPart::Only(aeth())), 8),
        ("ack", Body::Acknowledge(aeth()), 0),
        ("nak", Body::Acknowledge(says(Syndrome::Nak(NakCode(0)))), 0),
        (
            "rnr-nak",
            Body::Acknowledge(says(Syndrome::RnrNak { timer: 1 })),
            0,
        ),
        ("atomic", Body::Atomic(atomic), 0),
        (
            "atomic-answer",
            Body::AtomicAcknowledge {
                aeth: aeth(),
                original: 5,
            },
            0,
        ),
    ];
    let packet = |body: &Body, payload: usize, flags: u8, transport: Transport| {
        let head = Head {
            dest_qpn: 0,
            psn: Psn::new(0),
            ack_request: true,
            solicited: false,
            transport,
        };
        let mut bytes = vec![0; 128];
        let used = write_headers(&head, body, payload, &mut bytes);
        bytes.truncate(used);
        bytes.extend((0..payload).map(|at| at.to_le_bytes()[0]));
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let mut item = vec![flags];
        item.extend(u16s(&[u16::try_from(bytes.len()).unwrap()]));
        item.extend(bytes);
        item
    };
    let mut seeds: Vec<Seed> = bodies
        .iter()
        .map(|(name, body, payload)| {
            (
                (*name).to_owned(),
                [vec![0], packet(body, *payload, 6, Transport::Rc)].concat(),
            )
        })
        .collect();
    let datagram = Transport::Ud(Deth {
        qkey: 0,
        source_qpn: 0x42,
        without_grh: false,
        envelope: Envelope::V2_IPV4,
        lmc: 0,
    });
    for (kind, name, transport) in [
        (0, "rc", Transport::Rc),
        (1, "uc", Transport::Uc),
        (2, "ud", datagram),
    ] {
        let one_way = |body: &Body| {
            transport == Transport::Rc || matches!(body, Body::Send { end: Some(_), .. })
        };
        let all = bodies
            .iter()
            .filter(|(_, body, _)| one_way(body))
            .flat_map(|(_, body, payload)| packet(body, *payload, 0x12, transport));
        let all: Vec<u8> = [kind].into_iter().chain(all).collect();
        seeds.push((format!("all-{name}"), all));
    }
    seeds
}
