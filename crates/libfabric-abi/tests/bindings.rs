//! `crates/libfabric-abi/src/bindings.rs` is what bindgen makes of the installed headers of libfabric, and later headers have only
//! grown at the ends.
//!
//! bindgen's output follows the headers, so the text is compared only with libfabric 1.17 (Debian 12). With other versions the
//! offsets of all fields are compared. `UPDATE=1 cargo test -p libfabric-abi --test bindings` rewrites the file. The variable
//! `LIBFABRIC_INCLUDE` names another folder of headers than the system's, for example that of a later release.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::process::Command;

use bindgen::Builder;
use bindgen::callbacks::{IntKind, ParseCallbacks};
use bindgen::{EnumVariation, Formatter};

const CHECKED_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bindings.rs");

const HEADERS: &str = "#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_atomic.h>
";

/// The release whose headers the checked-in file was made from.
const RELEASE: Release = Release {
    major: 1,
    minor: 17,
};

/// Structures that a user or a library needs; those which they name follow.
const TYPES: &[&str] = &[
    "fi_(info|fabric_attr|domain_attr|ep_attr|tx_attr|rx_attr)",
    "fi_(av_attr|cq_attr|mr_attr|msg_rma|rma_iov|context|context2)",
    "fi_cq_(entry|msg_entry|data_entry|tagged_entry|err_entry)",
    "fi_(device_attr|bus_attr|pci_attr|link_attr)",
    "fi_(alias|fid_var|mr_raw_attr|mr_map_raw|mr_modify)",
    "fid_(fabric|domain|av|mr|ep|cq|eq|nic)",
    "fi_ops",
    "fi_ops_(fabric|domain|av|mr|ep|cm|msg|rma|atomic|cq|eq)",
    // Enums, whose constants are used.
    "fi_(av_type|mr_mode|progress|threading|resource_mgmt|ep_type)",
    "fi_(wait_obj|cq_format|cq_wait_cond|hmem_iface|datatype|op|type)",
    "fi_(bus_type|link_state)",
];

/// Macros, and enumerators of nameless enums.
const CONSTANTS: &[&str] = &[
    "FI_(MAJOR|MINOR|REVISION)_VERSION",
    // Capabilities, and flags of operations.
    "FI_(MSG|RMA|TAGGED|ATOMIC|MULTICAST|COLLECTIVE|READ|WRITE|RECV|SEND|TRANSMIT)",
    "FI_(REMOTE_READ|REMOTE_WRITE|MULTI_RECV|REMOTE_CQ_DATA|MORE|FENCE|COMPLETION)",
    "FI_(INJECT|INJECT_COMPLETE|TRANSMIT_COMPLETE|DELIVERY_COMPLETE|COMMIT_COMPLETE)",
    "FI_(HMEM|HMEM_HOST_ALLOC|HMEM_DEVICE_ONLY|RMA_PMEM|LOCAL_COMM|REMOTE_COMM)",
    "FI_(RMA_EVENT|SOURCE|SOURCE_ERR|DIRECTED_RECV|SHARED_AV|NUMERICHOST|PROV_ATTR_ONLY)",
    "FI_(SELECTIVE_COMPLETION|SYNC_ERR|SYMMETRIC|EVENT|AFFINITY|PEER)",
    // Modes.
    "FI_(CONTEXT|CONTEXT2|MSG_PREFIX|ASYNC_IOV|RX_CQ_DATA|LOCAL_MR|NOTIFY_FLAGS_ONLY)",
    "FI_(RESTRICTED_COMP|BUFFERED_RECV)",
    "FI_MR_.*",
    "FI_ORDER_.*",
    "FI_HMEM_P2P_.*",
    // Numbers.
    "FI_(FORMAT_UNSPEC|SOCKADDR.*|ADDR_.*)",
    "FI_(PROTO|CLASS|OPT)_.*",
    "FI_(GETWAIT|GETWAITOBJ|ENABLE|ALIAS|BACKLOG|GETOPSFLAG|SETOPSFLAG|REFRESH)",
    "FI_(GET_RAW_MR|MAP_RAW_MR|UNMAP_KEY|GET_VAL|SET_VAL)",
    "FI_(SUCCESS|ERRNO_OFFSET|ERRNO_MAX|E[A-Z0-9]*)",
];

#[derive(Debug)]
struct IntegerTypes;

impl ParseCallbacks for IntegerTypes {
    /// Flags are of 64 bits, modes of registrations and errors are `int`.
    fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
        Some(match name {
            "FI_SUCCESS" | "FI_ERRNO_OFFSET" => IntKind::Int,
            _ if name.ends_with("_VERSION") => IntKind::U32,
            _ if name.starts_with("FI_MR_") => IntKind::Int,
            _ if name.starts_with("FI_E") && name != "FI_EVENT" => IntKind::Int,
            _ => IntKind::U64,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Release {
    major: u32,
    minor: u32,
}

impl Release {
    /// Of the headers that this text was made from.
    fn of(generated: &str) -> Self {
        let value = |name: &str| {
            let start = format!("pub const {name}: u32 = ");
            let rest = generated.split(&start).nth(1).expect("a version");
            rest.split(';').next().unwrap().trim().parse().unwrap()
        };
        Self {
            major: value("FI_MAJOR_VERSION"),
            minor: value("FI_MINOR_VERSION"),
        }
    }
}

fn builder() -> Builder {
    let builder = Builder::default()
        .header_contents("libfabric.h", HEADERS)
        .parse_callbacks(Box::new(IntegerTypes))
        .default_enum_style(EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_debug(false)
        .derive_default(true)
        .generate_comments(false)
        .disable_header_comment()
        .layout_tests(true)
        .wrap_unsafe_ops(true)
        .use_core()
        .blocklist_type("iovec")
        .raw_line("use libc::iovec;\n")
        .ignore_functions()
        .formatter(Formatter::None);
    let builder = match std::env::var_os("LIBFABRIC_INCLUDE") {
        Some(folder) => builder.clang_arg(format!("-I{}", folder.to_str().unwrap())),
        None => builder,
    };
    let builder = TYPES.iter().fold(builder, |b, name| b.allowlist_type(name));
    CONSTANTS
        .iter()
        .fold(builder, |b, name| b.allowlist_var(name))
}

/// rustfmt's opinion of `code`.
fn formatted(code: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bindings.rs");
    std::fs::write(&path, code).unwrap();
    let status = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .arg(&path)
        .status()
        .expect("rustfmt");
    assert!(status.success(), "rustfmt: {status}");
    std::fs::read_to_string(path).unwrap()
}

fn generated() -> String {
    let header = "//! Made by bindgen from the headers of libfabric; see tests/bindings.rs. Do not edit.\n\n";
    let generated = builder()
        .generate()
        .expect("bindgen over the headers of libfabric (Debian: apt-get install libfabric-dev)")
        .to_string();
    formatted(&format!("{header}{generated}"))
}

/// Sizes of structures and offsets of their fields, by name: `fi_info` and `fi_info::caps`.
fn layout(code: &str) -> BTreeMap<String, usize> {
    let words: Vec<&str> = code.split_whitespace().collect();
    let code = words.join(" ");
    // `["Size of NAME"][::core::mem::size_of::<NAME>() - 16usize]`, `["Offset of field: NAME::f"][.. - 8usize]`
    let number = |rest: &str| {
        let (_, rest) = rest.split_once(" - ")?;
        rest.split_once("usize")?.0.parse().ok()
    };
    let mut found = BTreeMap::new();
    for start in ["\"Size of ", "\"Offset of field: "] {
        for rest in code.split(start).skip(1) {
            let (name, rest) = rest.split_once('"').unwrap();
            found.insert(name.to_owned(), number(rest).unwrap());
        }
    }
    found
}

#[test]
fn the_checked_in_bindings_are_those_of_the_installed_headers() {
    let generated = generated();
    let release = Release::of(&generated);
    if release != RELEASE {
        println!(
            "left out: the text of the bindings: libfabric is {release:?}, not {RELEASE:?}; the offsets are compared"
        );
        return;
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(CHECKED_IN, &generated).unwrap();
    }
    let checked_in = std::fs::read_to_string(CHECKED_IN).unwrap();
    let differs = checked_in
        .lines()
        .zip(generated.lines())
        .position(|(a, b)| a != b);
    assert!(
        checked_in == generated,
        "src/bindings.rs is stale from line {:?}: UPDATE=1 cargo test -p libfabric-abi --test bindings",
        differs.map(|line| line + 1)
    );
}

/// Fields that later headers have in a nameless union, whose place is compared by the fields around it.
const IN_UNIONS: [&str; 2] = ["fi_domain_attr::data_progress", "fi_mr_attr::mr_iov"];

#[test]
fn later_headers_have_the_same_fields_at_the_same_places() {
    let generated = generated();
    let release = Release::of(&generated);
    let theirs = layout(&generated);
    let ours = layout(&std::fs::read_to_string(CHECKED_IN).unwrap());
    assert!(ours.len() > 300, "only {} sizes and offsets", ours.len());
    // bindgen numbers unions without names, and later headers have more of them.
    let named = ours
        .iter()
        .filter(|(name, _)| !name.contains("__bindgen_ty"));
    for (name, place) in named {
        let is_size = !name.contains("::");
        match theirs.get(name) {
            Some(theirs) if is_size && release > RELEASE => assert!(theirs >= place, "{name}"),
            Some(theirs) => assert_eq!(theirs, place, "{name}"),
            None => assert!(
                release > RELEASE && IN_UNIONS.contains(&name.as_str()),
                "{name} is gone"
            ),
        }
    }
}

#[test]
fn what_is_of_later_releases_is_as_their_headers_have_it() {
    use libfabric_abi::later::{fi_cq_attr, fi_cq_err_entry, fi_mr_attr, fi_mr_dmabuf};
    let generated = generated();
    let release = Release::of(&generated);
    if release < (Release { major: 2, minor: 0 }) {
        println!("left out: structures of later releases: the headers are those of {release:?}");
        return;
    }
    let theirs = layout(&generated);
    let ours = [
        ("fi_mr_attr", size_of::<fi_mr_attr>()),
        ("fi_mr_attr::iov_count", offset_of!(fi_mr_attr, iov_count)),
        ("fi_mr_attr::iface", offset_of!(fi_mr_attr, iface)),
        ("fi_mr_attr::device", offset_of!(fi_mr_attr, device)),
        ("fi_mr_attr::hmem_data", offset_of!(fi_mr_attr, hmem_data)),
        ("fi_mr_attr::page_size", offset_of!(fi_mr_attr, page_size)),
        ("fi_mr_attr::base_mr", offset_of!(fi_mr_attr, base_mr)),
        ("fi_mr_attr::sub_mr_cnt", offset_of!(fi_mr_attr, sub_mr_cnt)),
        ("fi_mr_dmabuf", size_of::<fi_mr_dmabuf>()),
        ("fi_mr_dmabuf::fd", offset_of!(fi_mr_dmabuf, fd)),
        ("fi_mr_dmabuf::offset", offset_of!(fi_mr_dmabuf, offset)),
        ("fi_mr_dmabuf::len", offset_of!(fi_mr_dmabuf, len)),
        (
            "fi_mr_dmabuf::base_addr",
            offset_of!(fi_mr_dmabuf, base_addr),
        ),
        ("fi_cq_err_entry", size_of::<fi_cq_err_entry>()),
        (
            "fi_cq_err_entry::src_addr",
            offset_of!(fi_cq_err_entry, src_addr),
        ),
    ];
    for (name, place) in ours {
        assert_eq!(theirs.get(name), Some(&place), "{name}");
    }
    // The releases up to 2.6 end before `xpu_ctx`.
    let size = theirs["fi_cq_attr"];
    assert!(size <= size_of::<fi_cq_attr>());
    if let Some(place) = theirs.get("fi_cq_attr::xpu_ctx") {
        assert_eq!(*place, offset_of!(fi_cq_attr, xpu_ctx));
    }
}
