//! Our bit offsets against an independent table: the PRM structures that Debian's python3-pyverbs ships with its tests.
//!
//! They are lists of scapy fields, read here by a small parser of that text. Where the package is not installed, the test
//! says so and compares nothing.

use mlx5_prm::layout::Field;
use mlx5_prm::{cmd, cq, hca_cap, mkey, qp};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const TABLE: &str = "/usr/share/doc/rdma-core/tests/mlx5_prm_structs.py.gz";

/// One of our layouts, theirs, and where they differ in name.
struct Pairing {
    theirs: &'static str,
    ours: &'static [Field],
    /// Our name, their name.
    renamed: &'static [(&'static str, &'static str)],
    /// Names of ours that they do not have, each for a reason given beside it.
    missing: &'static [&'static str],
}

const PAIRINGS: &[Pairing] = &[
    Pairing {
        theirs: "AllocPdOut",
        ours: cmd::CreateOut::FIELDS,
        renamed: &[("number", "pd")],
        missing: &[],
    },
    Pairing {
        theirs: "SwCqc",
        ours: cq::Cqc::FIELDS,
        renamed: &[],
        missing: &["dbr_addr"], // theirs is cut in two; compared below
    },
    Pairing {
        theirs: "CreateCqIn",
        ours: cq::CreateCqIn::FIELDS,
        renamed: &[
            ("cqc", "sw_cqc"),
            ("cq_umem_offset", "e_mtt_pointer_or_cq_umem_offset"),
        ],
        missing: &[],
    },
    Pairing {
        theirs: "CreateCqOut",
        ours: cq::CreateCqOut::FIELDS,
        renamed: &[],
        missing: &[],
    },
    Pairing {
        theirs: "SwAds",
        ours: mlx5_prm::qpc::Ads::FIELDS,
        renamed: &[],
        missing: &["rmac_47_32", "rmac_31_0"], // theirs is one field; compared below
    },
    Pairing {
        theirs: "SwQpc",
        ours: mlx5_prm::qpc::Qpc::FIELDS,
        renamed: &[("rlky", "rlkey")],
        missing: &["send_dbr_mode", "dp_ordering_force", "dp_ordering_1"], // newer than their table
    },
    Pairing {
        theirs: "CreateQpIn",
        ours: qp::CreateQpIn::FIELDS,
        renamed: &[
            ("qpc", "sw_qpc"),
            ("wq_umem_offset", "e_mtt_pointer_or_wq_umem_offset"),
        ],
        missing: &["ece"], // newer than their table
    },
    Pairing {
        theirs: "CreateQpOut",
        ours: qp::CreateQpOut::FIELDS,
        renamed: &[],
        missing: &["ece"], // newer than their table
    },
    Pairing {
        theirs: "ModifyQpIn",
        ours: qp::QpModifyIn::FIELDS,
        renamed: &[("qpc", "sw_qpc")],
        missing: &[],
    },
    Pairing {
        theirs: "QueryQpIn",
        ours: qp::QueryQpIn::FIELDS,
        renamed: &[],
        missing: &[],
    },
    Pairing {
        theirs: "QueryQpOut",
        ours: qp::QueryQpOut::FIELDS,
        renamed: &[("qpc", "sw_qpc")],
        missing: &["ece"], // newer than their table
    },
    Pairing {
        theirs: "QueryHcaCapIn",
        ours: hca_cap::QueryHcaCapIn::FIELDS,
        renamed: &[],
        missing: &[],
    },
    Pairing {
        theirs: "CmdHcaCap",
        ours: hca_cap::CmdHcaCap::FIELDS,
        renamed: &[("log_max_srq", "log_max_srqs")],
        missing: &["dp_ordering_ooo_rw_rc", "dp_ordering_ooo_all_rc"], // newer than their table
    },
    Pairing {
        theirs: "SwMkc",
        ours: mkey::Mkc::FIELDS,
        renamed: &[("log_page_size", "log_entity_size")],
        missing: &[],
    },
    Pairing {
        theirs: "CreateMkeyIn",
        ours: mkey::CreateMkeyIn::FIELDS,
        renamed: &[("mkc", "sw_mkc")],
        missing: &[],
    },
    Pairing {
        theirs: "CreateMkeyOut",
        ours: mkey::CreateMkeyOut::FIELDS,
        renamed: &[],
        missing: &[],
    },
];

#[test]
fn offsets_and_widths_agree_with_the_table_of_pyverbs() {
    let Some(text) = table() else {
        return;
    };
    let structures = parse(&text);
    let mut compared = 0;
    let mut wrong = Vec::new();
    for pairing in PAIRINGS {
        let theirs = &structures[pairing.theirs];
        for field in pairing.ours {
            if pairing.missing.contains(&field.name) {
                continue;
            }
            let name = pairing
                .renamed
                .iter()
                .find(|(ours, _)| *ours == field.name)
                .map_or(field.name, |(_, theirs)| theirs);
            compared += 1;
            match theirs.fields.get(name) {
                Some(&(offset, width)) if (offset, width) == (field.offset, field.width) => {}
                found => wrong.push(format!(
                    "{}.{}: ours {:#x}/{}, theirs {found:x?}",
                    pairing.theirs, field.name, field.offset, field.width
                )),
            }
        }
        for name in pairing.missing {
            assert!(!theirs.fields.contains_key(*name), "{name} is not missing");
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(compared > 200, "only {compared} fields compared");
    eprintln!("{compared} fields compared");

    // Fields that are cut differently.
    let at = |structure: &str, field: &str| structures[structure].fields[field];
    assert_eq!(at("SwCqc", "db_record_addr_63_32"), (0x1c0, 32));
    assert_eq!(at("SwAds", "rmac"), (0x130, 48));
    assert_eq!(structures["SwQpc"].bits, 8 * mlx5_prm::qpc::Qpc::BYTES);
    assert_eq!(structures["SwCqc"].bits, 8 * cq::Cqc::BYTES);
    assert_eq!(structures["SwMkc"].bits, 8 * mkey::Mkc::BYTES);
}

/// Returns the text of the table, or `None`, and why, on stderr.
fn table() -> Option<String> {
    if !Path::new(TABLE).exists() {
        eprintln!("skipped: layouts of pyverbs: {TABLE} (package python3-pyverbs) is missing");
        return None;
    }
    let output = Command::new("gzip").args(["-dc", TABLE]).output().ok()?;
    assert!(output.status.success(), "gzip cannot read {TABLE}");
    String::from_utf8(output.stdout).ok()
}

/// A structure of theirs: (offset, width) by name.
#[derive(Default)]
struct Structure {
    fields: BTreeMap<String, (usize, usize)>,
    bits: usize,
}

/// Reads `class NAME(Packet): fields_desc = [ … ]`, in order: a nested structure comes before its users.
fn parse(text: &str) -> BTreeMap<String, Structure> {
    let mut structures = BTreeMap::new();
    'classes: for class in text.split("\nclass ").skip(1) {
        let name: String = class.chars().take_while(|c| c.is_alphanumeric()).collect();
        let Some((_, list)) = class.split_once("fields_desc = [") else {
            continue;
        };
        let mut structure = Structure::default();
        for entry in entries(list) {
            let Some((kind, arguments)) = entry.split_once('(') else {
                continue;
            };
            let field: String = arguments
                .trim_start_matches('\'')
                .chars()
                .take_while(|c| *c != '\'')
                .collect();
            let Some(width) = width(kind, arguments, &structures) else {
                // Something conditional: not one of those that are compared.
                continue 'classes;
            };
            structure.fields.insert(field, (structure.bits, width));
            structure.bits += width;
        }
        structures.insert(name, structure);
    }
    structures
}

/// The calls in a Python list, up to its closing bracket, without line breaks.
fn entries(list: &str) -> Vec<String> {
    let mut entries = Vec::new();
    let (mut entry, mut depth) = (String::new(), 0);
    for c in list.chars() {
        match c {
            '(' | '[' => depth += 1,
            ']' if depth == 0 => break,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                entries.push(std::mem::take(&mut entry));
                continue;
            }
            _ => {}
        }
        if !c.is_whitespace() {
            entry.push(c);
        }
    }
    entries.push(entry);
    entries
}

fn width(kind: &str, arguments: &str, known: &BTreeMap<String, Structure>) -> Option<usize> {
    let arguments = arguments.strip_suffix(')')?;
    let last = arguments.rsplit(',').next()?;
    match kind {
        "BitField" => last.parse().ok(),
        "ByteField" => Some(8),
        "ShortField" => Some(16),
        "IntField" => Some(32),
        "LongField" => Some(64),
        "MACField" => Some(48),
        "StrFixedLenField" => Some(8 * last.strip_prefix("length=")?.parse::<usize>().ok()?),
        "PacketField" => known.get(last).map(|nested| nested.bits),
        // A list of as many as it says; of none if it can be any number.
        "FieldListField" => {
            let count: usize = arguments.rsplit(':').next()?.parse().ok()?;
            let element = if arguments.contains("IntField(") {
                32
            } else {
                8
            };
            Some(element * count)
        }
        "PacketListField" => Some(0),
        _ => None,
    }
}
