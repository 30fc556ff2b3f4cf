//! The table of variables: for each its possible values, its default, and its meaning.
//!
//! All code that reads a variable takes its range and its default from this table. `wv config` prints the table with the values of a
//! process, and `docs/configuration.md` is rendered from it.

use crate::config::choices::{
    CQ, DOORBELL, ENGINE_CQ, ENGINE_DEPTH, ENGINE_PAIRING, ENGINE_PATH, GRH, MEMORY, MOE_ORDER,
    MTU, QUEUES, READ_DEPTH, SHARING,
};
use crate::config::limits::{INBOX, MAX_QPS_PER_PEER, MAX_RANKS, MOST_WINDOWS};
use crate::config::variable::{Group, Reader, Values, Variable};

const fn row(
    name: &'static str,
    values: Values,
    default: &'static str,
    meaning: &'static str,
) -> Variable {
    Variable {
        name,
        values,
        default,
        meaning,
    }
}

const fn number(least: u64, most: u64) -> Values {
    Values::Number { least, most }
}

const fn auto_or(least: u64, most: u64) -> Values {
    Values::NumberOr {
        word: "auto",
        least,
        most,
    }
}

const fn zero_or(least: u64, most: u64) -> Values {
    Values::NumberOr {
        word: "0",
        least,
        most,
    }
}

/// Returns the words of a table of words and meanings.
const fn words<T: Copy, const N: usize>(meanings: &[(&'static str, T); N]) -> [&'static str; N] {
    let mut words = [""; N];
    let mut at = 0;
    while at < N {
        words[at] = meanings[at].0;
        at += 1;
    }
    words
}

const SHARING_WORDS: [&str; SHARING.len()] = words(&SHARING);
const DOORBELL_WORDS: [&str; DOORBELL.len()] = words(&DOORBELL);
const QUEUES_WORDS: [&str; QUEUES.len()] = words(&QUEUES);
const MEMORY_WORDS: [&str; MEMORY.len()] = words(&MEMORY);
const CQ_WORDS: [&str; CQ.len()] = words(&CQ);
const MOE_ORDER_WORDS: [&str; MOE_ORDER.len()] = words(&MOE_ORDER);
const GRH_WORDS: [&str; GRH.len()] = words(&GRH);
const MTU_WORDS: [&str; MTU.len()] = words(&MTU);
const ENGINE_CQ_WORDS: [&str; ENGINE_CQ.len()] = words(&ENGINE_CQ);
const ENGINE_DEPTH_WORDS: [&str; ENGINE_DEPTH.len()] = words(&ENGINE_DEPTH);
const ENGINE_PAIRING_WORDS: [&str; ENGINE_PAIRING.len()] = words(&ENGINE_PAIRING);
const ENGINE_PATH_WORDS: [&str; ENGINE_PATH.len()] = words(&ENGINE_PATH);
const READ_DEPTH_WORDS: [&str; READ_DEPTH.len()] = words(&READ_DEPTH);

const SWITCH: Values = Values::Words(&["0", "1"]);
/// The longest time that a variable may have: a day, in ms.
const LONGEST_MS: u64 = 86_400_000;
/// The largest size of a control heap in bytes: more than the memory of any present GPU.
const MOST_CONTROL_BYTES: u64 = 1 << 40;

/// The limits of the bytes of a host engine's slice.
const SLICE: [u64; 2] = [1 << 12, 1 << 30];
const RANK: &[Reader] = &[Reader::Rank];
const BOTH: &[Reader] = &[Reader::Rank, Reader::Engine];

/// All variables, by subject.
pub const GROUPS: [Group; 7] = [
    Group {
        title: "Rank and store",
        readers: RANK,
        variables: &[
            row(
                "WARPVERBS_RANK",
                Values::Text("a rank below WARPVERBS_RANKS"),
                "",
                "this rank; by default what the launcher says",
            ),
            row(
                "WARPVERBS_RANKS",
                number(1, MAX_RANKS as u64),
                "",
                "ranks of the team; by default what the launcher says",
            ),
            row(
                "WARPVERBS_LOCAL_RANK",
                Values::Text("a number below WARPVERBS_RANKS"),
                "",
                "number of this rank among those of its machine, which chooses the GPU, and the NIC among equals; by default what the launcher says, else 0",
            ),
            row(
                "WARPVERBS_RUN_ID",
                Values::Text("text"),
                "",
                "a store of one run refuses ranks of another, by this name; by default the launcher's number of the job, else 0",
            ),
            row(
                "WARPVERBS_STORE",
                Values::Text("`file://DIRECTORY`, `etcd://HOST:PORT/PREFIX` or `etcds://..`"),
                "",
                "where ranks meet; a team of one needs none",
            ),
            row(
                "WARPVERBS_STORE_SHARED",
                SWITCH,
                "0",
                "`1`: a directory of `file://` may belong to other users or be writable for them",
            ),
            row(
                "WARPVERBS_STORE_CA",
                Values::Text("a file"),
                "",
                "certificates of those that may sign for the servers of `etcds://`",
            ),
            row(
                "WARPVERBS_STORE_CERT",
                Values::Text("a file"),
                "",
                "this user's certificate for `etcds://`",
            ),
            row(
                "WARPVERBS_STORE_KEY",
                Values::Text("a file"),
                "",
                "the key of that certificate, which others may not be able to read",
            ),
            row(
                "WARPVERBS_JOIN_TIMEOUT_MS",
                number(1, LONGEST_MS),
                "30000",
                "longest wait for other ranks while a team is built, ms",
            ),
        ],
    },
    Group {
        title: "GPU",
        readers: BOTH,
        variables: &[row(
            "WARPVERBS_GPU",
            Values::Text("`auto`, `simt`, `simt-dmabuf` or the number of a CUDA device"),
            "auto",
            "where kernels run; `auto`: the CUDA device of the rank's number on its machine, else the CPU. An engine runs none: it takes NICs near a CUDA device that is named",
        )],
    },
    Group {
        title: "NIC and address",
        readers: BOTH,
        variables: &[
            row(
                "WARPVERBS_DEVICE",
                Values::Text(
                    "`auto`, `mlx5_3`, `mlx5_3:2`, a list, or `^` and those that are left out",
                ),
                "auto",
                "RDMA devices, one per rail, with the port where one is named; `auto`: the best one for the GPU. An engine stripes transfers over up to 8; by `auto` it takes as many as WARPVERBS_ENGINE_RAILS says",
            ),
            row(
                "WARPVERBS_GID",
                Values::Text("`auto`, an index, a subnet, an address or a network interface"),
                "auto",
                "the address that a rank or an engine speaks from; `auto`: a routable one before a link-local one, then the lowest index",
            ),
        ],
    },
    Group {
        title: "QPs",
        readers: RANK,
        variables: &[
            row(
                "WARPVERBS_QPS_PER_PEER",
                number(1, MAX_QPS_PER_PEER as u64),
                "4",
                "QPs to each peer at most; the founder that asks for the fewest decides. 4: dispatch and combine, two sets",
            ),
            row(
                "WARPVERBS_LOG_DEPTH",
                number(8, 15),
                "10",
                "log2 of a send queue's WQEBBs",
            ),
            row(
                "WARPVERBS_LOG_RECV_DEPTH",
                zero_or(4, 15),
                "0",
                "log2 of the receive queue's WQEs, which writes with immediate (`put_imm`) consume; `0`: no receive queue",
            ),
            row(
                "WARPVERBS_SHARING",
                Values::Words(&SHARING_WORDS),
                "shared",
                "which threads post on a QP at the same time: any, one thread or warp, those of one block",
            ),
            row(
                "WARPVERBS_DOORBELL",
                Values::Words(&DOORBELL_WORDS),
                "auto",
                "how the NIC hears of work; `mailbox`: a thread of the host rings, for a UAR that the GPU cannot map; `auto`: without a doorbell record where the NIC can, else with one, by the mailbox where the GPU's driver refuses it ([the way down](teams.md#the-way-down))",
            ),
            row(
                "WARPVERBS_QUEUES",
                Values::Words(&QUEUES_WORDS),
                "auto",
                "which memory rings, doorbell records and CQEs lie in; `auto`: that of the device where the NIC reaches it, else that of the host",
            ),
            row(
                "WARPVERBS_CQ",
                Values::Words(&CQ_WORDS),
                "collapsed",
                "one CQE, or one per WQE, in which the cause of a failure survives the flush after it",
            ),
            row(
                "WARPVERBS_CONTROL_BYTES",
                zero_or(4096, MOST_CONTROL_BYTES),
                "0",
                "device memory for contexts, rings and flags of each rail's QPs, bytes; `0`: what they need",
            ),
            row(
                "WARPVERBS_DEADLINE_MS",
                number(1, LONGEST_MS),
                "1000",
                "longest wait of a device call, ms",
            ),
        ],
    },
    Group {
        title: "Packets",
        readers: BOTH,
        variables: &[
            row(
                "WARPVERBS_MTU",
                Values::Words(&MTU_WORDS),
                "auto",
                "most payload of a packet, bytes; `auto`: the port's. QPs send with the smaller one of both ends",
            ),
            row(
                "WARPVERBS_TRAFFIC_CLASS",
                auto_or(0, 255),
                "auto",
                "IP traffic class, or that of the GRH; `auto`: `tc/PORT/traffic_class` of the device in sysfs, else `default_roce_tos` of the RDMA-CM, else 0",
            ),
            row("WARPVERBS_PRIORITY", number(0, 7), "0", "Ethernet priority"),
            row(
                "WARPVERBS_SERVICE_LEVEL",
                number(0, 15),
                "0",
                "InfiniBand service level",
            ),
            row(
                "WARPVERBS_PATH_BITS",
                number(0, 127),
                "0",
                "which of its 2^LMC LIDs an InfiniBand port sends from, and its peers send to; less than 2^LMC",
            ),
            row(
                "WARPVERBS_HOP_LIMIT",
                number(1, 255),
                "64",
                "IP time to live, or hop limit of the GRH",
            ),
            row(
                "WARPVERBS_PKEY",
                auto_or(1, 65_535),
                "auto",
                "partition key, by its value, such as `0x8001`; `auto`: the first of the port",
            ),
            row(
                "WARPVERBS_GRH",
                Values::Words(&GRH_WORDS),
                "auto",
                "when packets have a global route header on InfiniBand; `auto`: where the subnet prefixes of both ports differ, or one port demands it",
            ),
            row(
                "WARPVERBS_LAG_PORT",
                zero_or(1, 15),
                "0",
                "port of a link aggregation group (bond) that packets leave by; `0`: the QPs to a peer take its ports in turn",
            ),
            row(
                "WARPVERBS_READ_DEPTH",
                Values::Words(&READ_DEPTH_WORDS),
                "auto",
                "reads and atomics that a QP has under way at once, and that it takes of its peer; `auto`: as many as the device can",
            ),
            row(
                "WARPVERBS_ACK_TIMEOUT",
                auto_or(12, 20),
                "auto",
                "a packet is sent again after 4.096 us x 2^n without an answer; `auto`: 14 (67 ms), 17 on a software HCA, whose host may let it wait",
            ),
            row(
                "WARPVERBS_RETRY_COUNT",
                number(0, 7),
                "7",
                "how often a packet is sent again. A peer that has gone shows as an error after 4.096 us x 2^WARPVERBS_ACK_TIMEOUT x (this + 1), on some devices after four times that",
            ),
            row(
                "WARPVERBS_RNR_RETRY",
                number(0, 7),
                "7",
                "how often a packet is sent again that met no receive WQE; 7: for ever",
            ),
            row(
                "WARPVERBS_MIN_RNR_TIMER",
                number(0, 31),
                "12",
                "PRM code of the delay that a receiver-not-ready answer asks for; 12: 0.64 ms",
            ),
        ],
    },
    Group {
        title: "Windows and MoE",
        readers: RANK,
        variables: &[
            row(
                "WARPVERBS_WINDOWS",
                number(1, MOST_WINDOWS as u64),
                "16",
                "windows that a team has room for; a MoE layer takes three",
            ),
            row(
                "WARPVERBS_MEMORY",
                Values::Words(&MEMORY_WORDS),
                "auto",
                "which memory windows lie in, all alike; `auto`: as for queues",
            ),
            row(
                "WARPVERBS_PCI_RELAXED",
                SWITCH,
                "0",
                "`1`: the NIC's PCI writes are relaxed by force (`mlxconfig -d DEVICE query PCI_WR_ORDERING` says `force_relax`), which no program can ask it; signals are then not inline",
            ),
            row(
                "WARPVERBS_DIRECT",
                SWITCH,
                "0",
                "`1`: ranks reach peers of the same machine and user by load and store (`path.cuh`), in MoE too; both must want it, and their memory must open; the HCA then carries no payload",
            ),
            row(
                "WARPVERBS_MOE_ORDER",
                Values::Words(&MOE_ORDER_WORDS),
                "auto",
                "how a MoE signal is kept after its data; `auto`: the first that the devices of all rails keep at all ranks. One that they do not keep is refused, and so are ranks that name different ones",
            ),
        ],
    },
    Group {
        title: "Host engine",
        readers: &[Reader::Engine],
        variables: &[
            row(
                "WARPVERBS_PROVIDER",
                Values::Text("`auto`, `mlx5`, `verbs`, `ofi` or `ofi:NAME`"),
                "auto",
                "what drives the NICs of an engine: `mlx5` by DevX, `verbs` any NIC with QPs of type RC by libibverbs alone, `ofi` the first provider of libfabric that drives a NIC, `ofi:NAME` that provider of libfabric; `auto`: the first of mlx5, verbs and ofi that can drive the device",
            ),
            row(
                "WARPVERBS_LIBFABRIC",
                Values::Text("a file"),
                "",
                "the library of the provider `ofi`; not set: `libfabric.so.1` as the loader finds it",
            ),
            row(
                "WARPVERBS_ENGINE_QPS",
                number(1, 8),
                "4",
                "QPs to a peer; each connection has the smaller number of its two ends",
            ),
            row(
                "WARPVERBS_ENGINE_RAILS",
                number(1, 8),
                "1",
                "most ports that an engine takes by WARPVERBS_DEVICE=auto, all as near and as fast as the best one; at most WARPVERBS_ENGINE_QPS. A list in WARPVERBS_DEVICE is taken whole",
            ),
            row(
                "WARPVERBS_ENGINE_WORKERS",
                number(1, 8),
                "1",
                "threads that post on each device",
            ),
            row(
                "WARPVERBS_ENGINE_CPUS",
                Values::Text("`near`, `any` or CPUs below 8192, as 0-3,8"),
                "near",
                "CPUs on which these threads run: those near the device, any, or these; of as many as threads each has its own",
            ),
            row(
                "WARPVERBS_ENGINE_CQ",
                Values::Words(&ENGINE_CQ_WORDS),
                "worker",
                "whether each `worker` has CQs of its own, or those of a `nic` have them in common; then the worker that looks takes completions for all, under a lock",
            ),
            row(
                "WARPVERBS_ENGINE_DEPTH",
                Values::Words(&ENGINE_DEPTH_WORDS),
                "512",
                "WQEBBs of a send queue; a CQ has an entry for each WQEBB of all its queues",
            ),
            row(
                "WARPVERBS_ENGINE_CHAIN",
                number(1, 64),
                "16",
                "most WQEs of one doorbell",
            ),
            row(
                "WARPVERBS_ENGINE_REAP",
                number(1, 256),
                "64",
                "most completions that a worker takes before it posts again",
            ),
            row(
                "WARPVERBS_ENGINE_SLICE",
                number(SLICE[0], SLICE[1]),
                "65536",
                "bytes of a slice, which is what one WQE moves; with the fragment at most 2^30",
            ),
            row(
                "WARPVERBS_ENGINE_FRAGMENT",
                number(0, SLICE[1]),
                "4096",
                "bytes by which the last slice of an operation may be longer, at most those of a slice; `0`: none is",
            ),
            row(
                "WARPVERBS_ENGINE_GATHER",
                number(1, 16),
                "4",
                "most local ranges of a WQE, where operations follow each other at the peer",
            ),
            row(
                "WARPVERBS_ENGINE_INLINE",
                number(0, 28),
                "28",
                "bytes up to which a WRITE is carried by its WQE, so that the device reads no memory for it; `0`: none is",
            ),
            row(
                "WARPVERBS_ENGINE_TRANSFERS",
                number(1, 65_536),
                "4096",
                "transfers that are not released; one more is refused, or waits",
            ),
            row(
                "WARPVERBS_ENGINE_PEERS",
                number(1, 65_536),
                "1024",
                "peers at a time; one more is refused. Queues and CQs for the first 16 are registered at the start, for others as they come",
            ),
            row(
                "WARPVERBS_ENGINE_INBOX",
                number(INBOX[0], INBOX[1]),
                "4194304",
                "bytes of notices of one peer that wait for the program, each with 64 more; what has no room is refused where it is sent",
            ),
            row(
                "WARPVERBS_ENGINE_RETRY",
                number(0, 16),
                "3",
                "how often a slice whose QP has failed is posted again on another QP of the connection",
            ),
            row(
                "WARPVERBS_ENGINE_PAIRING",
                Values::Words(&ENGINE_PAIRING_WORDS),
                "place",
                "which rails of both ends meet: `place` rail `n` and rail `n`, `near` all; then slices enter by a rail near the memory of the peer",
            ),
            row(
                "WARPVERBS_ENGINE_PATH",
                Values::Words(&ENGINE_PATH_WORDS),
                "auto",
                "how transfers go to peers of this machine and user: `local` copies within the machine, and refuses a peer for which that cannot be; `auto` takes the NIC then",
            ),
            row(
                "WARPVERBS_ENGINE_CONNECT_TIMEOUT_MS",
                number(1, LONGEST_MS),
                "5000",
                "longest wait for the other end in each step of a connection, ms",
            ),
            row(
                "WARPVERBS_ENGINE_DEADLINE_MS",
                zero_or(1, LONGEST_MS),
                "0",
                "deadline of transfers that name none, ms: after it nothing more of them is handed out; `0`: none",
            ),
            row(
                "WARPVERBS_ENGINE_LISTEN",
                Values::Text("an IP address and a port, or `unix:PATH`"),
                "127.0.0.1:0",
                "where an engine listens if the program does not say; port 0 is any. Without a key only loopback, which all users of the machine reach, or a Unix socket, which only this user does",
            ),
            row(
                "WARPVERBS_ENGINE_ALLOW",
                Values::Text("names of engines with commas between them"),
                "",
                "peers that it connects with, all others are refused; not set: all",
            ),
            row(
                "WARPVERBS_ENGINE_KEY_FILE",
                Values::Text("a file"),
                "",
                "key that peers must have too, 32 bytes or 64 hexadecimal digits, in a file that only its user may read; it encrypts connections; not set: none",
            ),
        ],
    },
];

/// Returns all variables, in the order of their groups.
pub fn variables() -> impl Iterator<Item = &'static Variable> {
    GROUPS.iter().flat_map(|group| group.variables)
}

/// Returns the variable of this name.
#[must_use]
pub fn variable(name: &str) -> Option<&'static Variable> {
    variables().find(|variable| variable.name == name)
}

/// Returns the variables that `reader` reads, in the order of their groups.
pub fn variables_of(reader: Reader) -> impl Iterator<Item = &'static Variable> {
    let is_read = move |group: &&Group| group.readers.contains(&reader);
    GROUPS
        .iter()
        .filter(is_read)
        .flat_map(|group| group.variables)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use super::*;
    use crate::config::error::ConfigError;
    use crate::config::source::{in_table, in_words};
    use crate::config::{Config, EngineConfig};

    #[test]
    fn the_table_has_every_variable_that_is_read_and_no_other() {
        let asked = RefCell::new(BTreeSet::new());
        let source = |name: &str| {
            asked.borrow_mut().insert(name.to_owned());
            match name {
                "WARPVERBS_RANK" => Some("0".to_owned()),
                "WARPVERBS_RANKS" => Some("2".to_owned()),
                "WARPVERBS_STORE" => Some("etcds://h:1/p".to_owned()),
                _ => None,
            }
        };
        let read_now = || -> BTreeSet<String> {
            let own = |name: &String| name.starts_with("WARPVERBS_");
            asked.take().into_iter().filter(own).collect()
        };
        let table = |reader| -> BTreeSet<String> {
            variables_of(reader)
                .map(|row| row.name.to_owned())
                .collect()
        };
        Config::from_variables(source).unwrap();
        assert_eq!(read_now(), table(Reader::Rank));
        EngineConfig::from_variables("a", source).unwrap();
        assert_eq!(read_now(), table(Reader::Engine));
        let names: BTreeSet<&str> = variables().map(|row| row.name).collect();
        assert_eq!(
            variables().count(),
            names.len(),
            "a name stands there twice"
        );
        for reader in [Reader::Rank, Reader::Engine] {
            let fields: BTreeSet<String> = variables_of(reader).map(Variable::field).collect();
            assert_eq!(
                fields.len(),
                table(reader).len(),
                "a field stands there twice"
            );
        }
    }

    /// Returns the configurations of a rank and of an engine if variable `name` has `value`.
    fn config(name: &str, value: &str) -> Result<(Config, EngineConfig), ConfigError> {
        let source = |asked: &str| match asked {
            _ if asked == name => Some(value.to_owned()),
            "WARPVERBS_RANK" => Some("0".to_owned()),
            "WARPVERBS_RANKS" => Some("2".to_owned()),
            _ => None,
        };
        let rank = Config::from_variables(source)?;
        Ok((rank, EngineConfig::from_variables("a", source)?))
    }

    #[test]
    fn a_value_that_is_no_text_is_refused_by_name() {
        let not_text = OsString::from_vec(b"k\xff".to_vec());
        let launcher = ["RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"];
        let names = variables().map(|row| row.name).chain(launcher);
        for name in names {
            let source = |asked: &str| match asked {
                _ if asked == name => Some(not_text.clone()),
                // The second variable of a launcher means nothing without the first.
                "RANK" if name == "WORLD_SIZE" => Some("0".into()),
                "SLURM_PROCID" if name == "SLURM_NTASKS" => Some("0".into()),
                // This URL makes the configuration read all variables of a store.
                "WARPVERBS_STORE" => Some("etcds://h:1/p".into()),
                "WARPVERBS_RANK" if !launcher.contains(&name) => Some("0".into()),
                "WARPVERBS_RANKS" if !launcher.contains(&name) => Some("2".into()),
                _ => None,
            };
            let refused = [
                Config::from_variables(source).err(),
                EngineConfig::from_variables("a", source).err(),
            ];
            let is_it = |error: &ConfigError| match error {
                ConfigError::NotText { name: of, value } => of == name && *value == not_text,
                _ => false,
            };
            let mut found = refused.iter().flatten();
            assert!(found.any(is_it), "{name}: {refused:?}");
        }
    }

    #[test]
    fn a_variable_takes_no_number_with_a_sign_or_zeros_before_it() {
        for name in ["WARPVERBS_ENGINE_QPS", "WARPVERBS_GPU"] {
            assert!(config(name, "4").is_ok());
            for wrong in ["+4", "04"] {
                assert!(config(name, wrong).is_err(), "{name}={wrong}");
            }
        }
        // `+4` may be the name of a network interface, so only `04` is refused here.
        assert!(config("WARPVERBS_GID", "04").is_err());
    }

    #[test]
    fn an_empty_list_or_file_is_none() {
        for name in [
            "WARPVERBS_ENGINE_ALLOW",
            "WARPVERBS_ENGINE_KEY_FILE",
            "WARPVERBS_LIBFABRIC",
        ] {
            let refused = config(name, "").unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
        }
    }

    #[test]
    fn a_variable_takes_both_ends_of_its_range_and_its_refusals_name_them() {
        for row in variables() {
            let Some([least, most]) = row.limits() else {
                continue;
            };
            for good in [least, most] {
                let read = config(row.name, &good.to_string());
                assert!(read.is_ok(), "{} of {good}: {read:?}", row.name);
                let hex = config(row.name, &format!("{good:#x}"));
                assert_eq!(hex, read, "{}", row.name);
            }
            let below = least.checked_sub(1).filter(|below| *below != 0);
            let bad = below.into_iter().chain([most + 1]).map(|n| n.to_string());
            for bad in bad.chain([
                "".to_owned(),
                "-1".to_owned(),
                "4.5".to_owned(),
                "x".to_owned(),
            ]) {
                let text = config(row.name, &bad).unwrap_err().to_string();
                let named = text.contains(row.name) && text.contains(&format!("'{bad}'"));
                assert!(named, "{text}");
                assert!(text.contains(&format!("from {least} to {most}")), "{text}");
            }
        }
    }

    #[test]
    fn every_word_means_something_else_and_the_default_is_one() {
        for row in variables() {
            let Values::Words(words) = row.values else {
                continue;
            };
            let means: Vec<_> = words
                .iter()
                .map(|word| config(row.name, word).unwrap())
                .collect();
            // The variables of a store mean something only with a store of their kind.
            if !row.name.starts_with("WARPVERBS_STORE") {
                for (at, one) in means.iter().enumerate() {
                    assert!(!means[..at].contains(one), "{}: {}", row.name, words[at]);
                }
            }
            assert!(words.contains(&row.default), "{}", row.name);
            let text = config(row.name, "nonsense").unwrap_err().to_string();
            assert!(text.contains(words[0]) && text.contains(row.name), "{text}");
        }
    }

    #[test]
    fn a_field_that_code_sets_has_the_limits_of_its_variable() {
        in_table("windows", Some(1024_u32)).unwrap();
        in_table("ack_timeout", None::<u32>).unwrap();
        let refused = in_table("windows", Some(1025_u32)).unwrap_err();
        assert_eq!((refused.value, refused.limit.as_str()), (1025, "1 to 1024"));
        in_words("mtu", Some(256), &MTU).unwrap();
        let refused = in_words("mtu", Some(257), &MTU).unwrap_err();
        assert_eq!(refused.limit, "one of auto, 256, 512, 1024, 2048, 4096");
        for row in variables() {
            assert_eq!(row.field(), row.field().trim(), "{}", row.name);
        }
    }

    #[test]
    fn a_default_means_what_a_variable_that_is_not_set_means() {
        let unset = config("", "").unwrap();
        assert_eq!(unset.1, EngineConfig::new("a"));
        for row in variables().filter(|row| !row.default.is_empty()) {
            assert_eq!(
                config(row.name, row.default).unwrap(),
                unset,
                "{}",
                row.name
            );
        }
    }
}
