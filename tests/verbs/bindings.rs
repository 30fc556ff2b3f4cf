//! `src/sys/bindings.rs` is what bindgen makes of the installed rdma-core headers.
//!
//! bindgen's output follows the headers, so the text is compared only with rdma-core 44.x (Debian 12). With other versions the
//! sizes of the structures that cross the border are compared. `UPDATE=1 cargo test --test bindings` rewrites the file.

use std::collections::BTreeMap;
use std::process::Command;

use bindgen::{Builder, EnumVariation, Formatter};

const CHECKED_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sys/bindings.rs");

const HEADERS: &str = "#include <infiniband/verbs.h>\n#include <infiniband/mlx5dv.h>\n";

/// The release whose headers the checked-in file was made from.
const RDMA_CORE: &str = "44.";

/// What the runtime calls, and nothing else; the types follow from it.
const FUNCTIONS: [&str; 44] = [
    "ibv_get_device_list",
    "ibv_free_device_list",
    "ibv_get_device_name",
    "ibv_open_device",
    "ibv_close_device",
    "ibv_query_device",
    "ibv_query_port",
    "_ibv_query_gid_table",
    "ibv_alloc_pd",
    "ibv_dealloc_pd",
    "ibv_reg_mr",
    "ibv_reg_mr_iova",
    "ibv_reg_dmabuf_mr",
    "ibv_dereg_mr",
    "ibv_create_ah",
    "ibv_destroy_ah",
    "ibv_create_comp_channel",
    "ibv_destroy_comp_channel",
    "ibv_create_cq",
    "ibv_destroy_cq",
    "ibv_get_cq_event",
    "ibv_ack_cq_events",
    "ibv_create_qp",
    "ibv_modify_qp",
    "ibv_query_qp",
    "ibv_destroy_qp",
    "mlx5dv_is_supported",
    "mlx5dv_open_device",
    "mlx5dv_init_obj",
    "mlx5dv_devx_general_cmd",
    "mlx5dv_devx_obj_create",
    "mlx5dv_devx_obj_modify",
    "mlx5dv_devx_obj_query",
    "mlx5dv_devx_obj_destroy",
    "mlx5dv_devx_umem_reg",
    "mlx5dv_devx_umem_reg_ex",
    "mlx5dv_devx_umem_dereg",
    "mlx5dv_devx_alloc_uar",
    "mlx5dv_devx_free_uar",
    "mlx5dv_devx_query_eqn",
    "mlx5dv_devx_create_event_channel",
    "mlx5dv_devx_destroy_event_channel",
    "mlx5dv_devx_subscribe_devx_event",
    "mlx5dv_devx_get_event",
];

/// Types that no function names, and enums whose constants are used.
const TYPES: [&str; 16] = [
    "ibv_port_attr",
    "ibv_access_flags",
    "ibv_gid_type",
    "ibv_transport_type",
    "ibv_atomic_cap",
    "ibv_wc",
    "ibv_wc_status",
    "ibv_wc_flags",
    "ibv_send_flags",
    "ibv_qp_attr_mask",
    "ibv_qp_state",
    "ibv_qp_type",
    "pthread_mutex_t",
    "pthread_cond_t",
    "mlx5dv_obj_type",
    "mlx5dv_context_attr_flags",
];

/// Enumerators of nameless enums.
const CONSTANTS: [&str; 1] = ["IBV_LINK_LAYER_ETHERNET"];

/// Types that are only pointed to: no code of ours uses their fields.
const OPAQUE: [&str; 5] = [
    "_ibv_device_ops",
    "ibv_(ah|srq|wq|dm|mw|mw_bind|td|xrcd)",
    "pthread_(mutex|cond)_t",
    "mlx5dv_(qp|cq|srq|rwq|dm)",
    "_compat_ibv_port_attr",
];

fn builder() -> Builder {
    let builder = Builder::default()
        .header_contents("rdma.h", HEADERS)
        .dynamic_library_name("Rdma")
        .dynamic_link_require_all(false)
        .default_enum_style(EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_debug(false)
        .generate_comments(false)
        .disable_header_comment()
        .layout_tests(false)
        .wrap_unsafe_ops(true)
        .use_core()
        .formatter(Formatter::None)
        // It is packed *and* aligned to 4, for which bindgen emits a 20-byte struct: the segments are those of mlx5-prm.
        .blocklist_type("mlx5_wqe_ctrl_seg");
    let builder = FUNCTIONS
        .into_iter()
        .fold(builder, |b, name| b.allowlist_function(name));
    let builder = TYPES
        .into_iter()
        .fold(builder, |b, name| b.allowlist_type(name));
    let builder = CONSTANTS
        .into_iter()
        .fold(builder, |b, name| b.allowlist_var(name));
    OPAQUE
        .into_iter()
        .fold(builder, |b, name| b.opaque_type(name))
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

/// Installed release of rdma-core, from the header's package.
fn installed() -> Option<String> {
    let output = Command::new("dpkg-query")
        .args(["-W", "-f", "${Version}", "libibverbs-dev"])
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Sizes of the structures that the runtime passes or reads, as the installed headers have them.
fn sizes_of_the_headers() -> BTreeMap<String, usize> {
    let code = builder()
        .layout_tests(true)
        .generate()
        .expect("bindgen")
        .to_string();
    let code = formatted(&code)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    // `["Size of NAME"][::core::mem::size_of::<NAME>() - 16usize]`
    code.split("\"Size of ")
        .skip(1)
        .filter_map(|rest| {
            let (name, rest) = rest.split_once('"')?;
            let (_, rest) = rest.split_once("() - ")?;
            let (size, _) = rest.split_once("usize")?;
            Some((name.to_owned(), size.parse().ok()?))
        })
        .collect()
}

#[test]
fn the_checked_in_bindings_are_those_of_the_installed_headers() {
    let header = "//! Made by bindgen from the headers of rdma-core; see tests/verbs/bindings.rs. Do not edit.\n\n";
    let generated = builder()
        .generate()
        .expect("bindgen over verbs.h and mlx5dv.h")
        .to_string();
    let generated = formatted(&format!("{header}{generated}"));
    assert!(!generated.contains("mlx5_wqe_ctrl_seg"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(CHECKED_IN, &generated).unwrap();
    }
    let version = installed();
    if !version
        .as_deref()
        .is_some_and(|version| version.starts_with(RDMA_CORE))
    {
        println!(
            "left out: the text of the bindings: rdma-core is {version:?}, not {RDMA_CORE}x; the sizes are compared"
        );
        return;
    }
    let checked_in = std::fs::read_to_string(CHECKED_IN).unwrap();
    let differs = checked_in
        .lines()
        .zip(generated.lines())
        .position(|(a, b)| a != b);
    assert!(
        checked_in == generated,
        "src/sys/bindings.rs is stale from line {:?}: UPDATE=1 cargo test --test bindings",
        differs.map(|line| line + 1)
    );
}

#[test]
fn bound_structures_have_the_sizes_of_the_installed_headers() {
    use warpverbs::internal::bindings as sys;
    let headers = sizes_of_the_headers();
    let ours = [
        ("ibv_device", size_of::<sys::ibv_device>()),
        ("ibv_context", size_of::<sys::ibv_context>()),
        ("ibv_context_ops", size_of::<sys::ibv_context_ops>()),
        ("ibv_comp_channel", size_of::<sys::ibv_comp_channel>()),
        ("ibv_pd", size_of::<sys::ibv_pd>()),
        ("ibv_cq", size_of::<sys::ibv_cq>()),
        ("ibv_qp", size_of::<sys::ibv_qp>()),
        ("ibv_device_attr", size_of::<sys::ibv_device_attr>()),
        ("ibv_qp_attr", size_of::<sys::ibv_qp_attr>()),
        ("ibv_qp_init_attr", size_of::<sys::ibv_qp_init_attr>()),
        ("ibv_send_wr", size_of::<sys::ibv_send_wr>()),
        ("ibv_recv_wr", size_of::<sys::ibv_recv_wr>()),
        ("ibv_sge", size_of::<sys::ibv_sge>()),
        ("ibv_wc", size_of::<sys::ibv_wc>()),
        ("ibv_gid_entry", size_of::<sys::ibv_gid_entry>()),
        ("ibv_port_attr", size_of::<sys::ibv_port_attr>()),
        ("ibv_mr", size_of::<sys::ibv_mr>()),
        ("ibv_ah_attr", size_of::<sys::ibv_ah_attr>()),
        ("mlx5dv_context_attr", size_of::<sys::mlx5dv_context_attr>()),
        ("mlx5dv_obj", size_of::<sys::mlx5dv_obj>()),
        ("mlx5dv_pd", size_of::<sys::mlx5dv_pd>()),
        ("mlx5dv_ah", size_of::<sys::mlx5dv_ah>()),
        ("mlx5_wqe_av", size_of::<sys::mlx5_wqe_av>()),
        ("mlx5dv_devx_umem", size_of::<sys::mlx5dv_devx_umem>()),
        ("mlx5dv_devx_uar", size_of::<sys::mlx5dv_devx_uar>()),
    ];
    for (name, size) in ours {
        assert_eq!(headers.get(name), Some(&size), "{name}");
    }
}
