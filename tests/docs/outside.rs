//! Three crates outside the workspace, built in one target directory as a user's own workspace would be. One has the library, one
//! the headers of the device library only, one `moe-reference` only. The first also makes every configuration of the library,
//! whose structs no other crate can write as an expression.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Of a crate with the library: nothing says where its headers are.
const SQUARES_MANIFEST: &str = r#"
[package]
name = "squares"
version = "0.1.0"
edition = "2024"

[dependencies]
bytemuck = { version = "1.25", features = ["derive"] }
warpverbs = { path = "ROOT", default-features = false }

[build-dependencies]
warpverbs-build = { path = "ROOT/crates/warpverbs-build" }

[profile.dev]
debug = false

[workspace]
"#;

const SQUARES_BUILD: &str = r#"
fn main() {
    println!("cargo::rustc-env=HEADERS={}", std::env::var("DEP_WARPVERBS_INCLUDE").unwrap());
    warpverbs_build::kernels("kernels").compile();
}
"#;

const SQUARES_KERNEL: &str = r#"
#include <warpverbs/wait.cuh>

#include "params.h"

extern "C" __global__ void squares(mine::SquaresParams p) {
  const uint64_t at = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at < p.count) p.words[at] = at * at;
}
WV_EXPORT(squares)
"#;

/// As `header::file` renders it.
const SQUARES_HEADER: &str = "// Rendered from src/main.rs.
#pragma once

#include <warpverbs/abi.h>

namespace mine {

/// What `squares` takes.
struct SquaresParams {
  /// Where the squares go.
  uint64_t *words;
  /// How many.
  uint64_t count;
};
static_assert(sizeof(SquaresParams) == 16 && alignof(SquaresParams) == 8);
static_assert(offsetof(SquaresParams, words) == 0);
static_assert(offsetof(SquaresParams, count) == 8);

}  // namespace mine
";

const SQUARES_MAIN: &str = r#"
#![deny(unsafe_code, warnings)]

use std::time::Duration;

use warpverbs::abi::{DevicePtr, header};
use warpverbs::gpu::{GpuSelector, Launch, open};

mod configurations;

warpverbs::kernels! { static KERNELS }

warpverbs::abi_struct! {
    /// What `squares` takes.
    pub struct SquaresParams {
        /// Where the squares go.
        pub words: DevicePtr<u64>,
        /// How many.
        pub count: u64,
    }
}

#[expect(unsafe_code, reason = "launches a kernel")]
fn main() {
    let items = vec![header::struct_item::<SquaresParams>()];
    let text = header::file("Rendered from src/main.rs.", "mine", &["<warpverbs/abi.h>"], items);
    header::check("kernels/params.h".as_ref(), &text).unwrap();

    let gpu = open(GpuSelector::Simt).unwrap();
    gpu.add_kernels(&KERNELS).unwrap();
    let words = gpu.alloc(100 * 8, 8).unwrap();
    let params = SquaresParams { words: words.addr().into(), count: 100 };
    // SAFETY: the parameters are the kernel's; the words live until it has ended.
    let event = unsafe { gpu.launch(&Launch::new("squares", 2, 64), bytemuck::bytes_of(&params)) };
    gpu.wait(&event.unwrap(), Duration::from_secs(20)).unwrap();
    let mut out = vec![0u64; 100];
    gpu.read(words.addr(), bytemuck::cast_slice_mut(&mut out)).unwrap();
    assert!(out.iter().zip(0..).all(|(word, at)| *word == at * at));
    println!("{} of {}: {}", KERNELS.cpu()[0].name, KERNELS.package(), out[99]);
    println!("{}", env!("HEADERS"));
    configurations::print();
}
"#;

/// One of each configuration, but for that of CUDA, which the crate is built without. [`configurations`] finds the others.
const SQUARES_CONFIGURATIONS: &str = r#"
use std::sync::Arc;
use std::time::Duration;

use warpverbs::config::{Config, EngineConfig, EngineKey, GrhUse, PathConfig, QpModes, TeamSettings};
use warpverbs::gpu::Launch;
use warpverbs::gpu::simt::SimtOptions;
use warpverbs::membership::GroupConfig;
use warpverbs::moe::{
    CombineInput, CombineOptions, CombineOutput, Deadlines, DispatchInput, DispatchOutput, MoeConfig,
};
use warpverbs::team::{Queues, Sharing, TeamConfig};
use warpverbs::verbs::{
    ControlHeap, Gid, GlobalRoute, HeapRegion, ImageAttr, InfinibandAddress, PathAttr, QpConfig, QpPlaces,
    RoceAddress, SendAttr,
};

const SHAPE: MoeConfig = MoeConfig::BF16
    .with_hidden(64)
    .with_experts(4)
    .with_top_k(2)
    .with_max_tokens(16);

pub fn print() {
    let modes = QpModes::default().with_sharing(Sharing::Cta).with_queues(Some(Queues::Host));
    let config = Config::default().with_ranks(2).with_modes(modes);
    let settings = TeamSettings::default().with_rank(1).with_ranks(2).with_modes(config.modes);
    let team = TeamConfig::new(0, 1).with_settings(settings).with_windows(3);
    assert_eq!((team.rank, team.ranks, team.modes, config.windows), (1, 2, modes, 16));
    let mut group = GroupConfig::new().with_lease_ttl(Duration::from_secs(3));
    group.stall_bound = Some(Duration::from_secs(9));
    let path = PathAttr::new(5, RoceAddress::new(Gid::default()).with_priority(1), 7).with_rail(1);
    let route = GlobalRoute::new(Gid::default()).with_hop_limit(2);
    let lid = InfinibandAddress::new(5).with_grh(Some(route));
    let ways = PathConfig::default().with_grh(GrhUse::Always).with_retry_count(3);
    let send = SendAttr::new(7).with_retry(2);
    let qp = QpConfig::default().with_log_depth(9);
    let image = ImageAttr::new(8).with_life(1);
    let deadlines = Deadlines::new(Duration::from_secs(1)).with_warm_calls(2);
    let region = HeapRegion::device(4096, 4096).with_umem(false);
    let launch = Launch::new("squares", 1, 32).with_seed(4);
    // A heap needs an HCA, which is not opened here.
    let _: fn(&Arc<ControlHeap>) -> QpPlaces<'_> = |heap| QpPlaces::from(heap).with_proxy(None);
    let simt = SimtOptions::default().with_workers(2);
    let engine = EngineConfig::new("a").with_qps(8).with_path(ways).with_key(Some(EngineKey::new([1; 32])));
    assert_eq!((engine.qps, engine.path.hop_limit, engine.slice), (8, 64, 1 << 16));
    let weights = CombineOptions::default().with_weights(Some(vec![1.0]));
    let sent = DispatchInput::default().with_x(1).with_tokens(1);
    let came = DispatchOutput::default().with_recv_x(2);
    let back = CombineInput::default().with_y(3);
    let sums = CombineOutput::default().with_out(4);
    assert_eq!((team.modes.sharing, team.modes.queues, config.ranks), (Sharing::Cta, Some(Queues::Host), 2));
    assert_eq!((lid.service_level, route.traffic_class, ways.hop_limit), (0, 0, 64));
    assert_eq!((group.promise_bound, path.min_rnr_timer, send.timeout), (None, 12, 14));
    assert_eq!((qp.depth(), region.umem, launch.seed, simt.workers), (512, false, 4, 2));
    assert_eq!((sent.x, came.recv_x, back.y, sums.out), (1, 2, 3, 4));
    assert_eq!((image.base, deadlines.warm_calls), (0, 2));
    println!("{} experts, {:?}", SHAPE.experts, weights.weights);
}
"#;

/// Of a crate with the headers of the device library, and of Warpverbs nothing else but what runs kernels on the CPU.
const LEADERS_MANIFEST: &str = r#"
[package]
name = "leaders"
version = "0.1.0"
edition = "2024"

[dependencies]
simt = { path = "ROOT/crates/simt" }

[build-dependencies]
simt = { path = "ROOT/crates/simt" }

[profile.dev]
debug = false

[workspace]
"#;

const LEADERS_BUILD: &str = r#"
fn main() {
    simt::build::kernels(["leaders.cu"]).include("ROOT/kernels/include").compile();
}
"#;

const LEADERS_KERNEL: &str = r#"
#include <warpverbs/coop.cuh>

struct LeadersParams { uint32_t* out; };

extern "C" __global__ void leaders(LeadersParams p) {
  const uint32_t at = wv::thread_in_grid();
  p.out[at] = wv::Warp{}.broadcast(at);
}
WV_EXPORT(leaders)
"#;

const LEADERS_MAIN: &str = r#"
include!(concat!(env!("OUT_DIR"), "/simt_kernels.rs"));

#[repr(C)]
struct LeadersParams { out: *mut u32 }

fn main() {
    let mut out = vec![0u32; 128];
    let mut params = LeadersParams { out: out.as_mut_ptr() };
    let config = simt::LaunchConfig { grid: 2.into(), block: 64.into(), ..Default::default() };
    // SAFETY: the kernel takes one `LeadersParams` by value; `out` has a word for each of its 128 threads.
    unsafe { simt::launch(KERNELS[0].entry, &mut [(&raw mut params).cast()], &config) }.unwrap();
    assert!(out.iter().zip(0..).all(|(leader, thread)| *leader == thread / 32 * 32));
    println!("the leader of thread 127 is thread {}", out[127]);
}
"#;

const JUDGE_MANIFEST: &str = r#"
[package]
name = "judge"
version = "0.1.0"
edition = "2024"

[dependencies]
moe-reference = { path = "ROOT/crates/moe-reference" }

[profile.dev]
debug = false

[workspace]
"#;

const JUDGE_MAIN: &str = r#"
use moe_reference::{Batch, Homes, Returns, Shape, bf16, combine};

fn main() {
    let shape = Shape { hidden: 8, experts: 4, top_k: 2, max_tokens: 16, returns: Returns::Sums };
    let x = [bf16::from_f32(2.0); 8];
    let batch = Batch { x: &x, experts: &[0, 3], weights: &[0.75, 0.25] };
    batch.check(&shape).unwrap();
    let out = combine(&shape, &Homes::blocks(4, 2), 0, batch, |expert, x, y| {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = bf16::from_f32(bf16::to_f32(x) * (expert + 1) as f32);
        }
    });
    println!("{}", bf16::to_f32(out[0]));
}
"#;

/// Packages below `place` that share a target directory.
struct Outside<'a> {
    place: &'a Path,
    /// The root of this workspace.
    library: &'a str,
}

impl Outside<'_> {
    /// Writes the package, builds it and runs it; what it prints.
    fn run(&self, name: &str, files: &[(&str, &str)]) -> String {
        let package = self.place.join(name);
        for (path, text) in files {
            let path = package.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text.replace("ROOT", self.library)).unwrap();
        }
        // The versions of this workspace are those that an offline registry is sure to have.
        let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.lock");
        fs::copy(lock, package.join("Cargo.lock")).unwrap();
        let target = self.place.join("target");
        let built = Command::new(env!("CARGO"))
            .args(["build", "--offline", "--quiet"])
            .current_dir(&package)
            .stdin(Stdio::null())
            .env("CARGO_TARGET_DIR", &target)
            // The library leaves its own kernels out, which take long to compile and are not launched here.
            .env("UPDATE", "1")
            .env_remove("CXX")
            .env_remove("RUSTFLAGS")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{name}: {said}");
        let ran = Command::new(target.join("debug").join(name))
            .current_dir(&package)
            .env_remove("UPDATE")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{name}: {said}");
        String::from_utf8(ran.stdout).unwrap()
    }
}

#[test]
fn crates_that_use_library_headers_or_reference_share_a_target_directory() {
    let directory = tempfile::tempdir().unwrap();
    let outside = Outside {
        place: directory.path(),
        library: env!("CARGO_MANIFEST_DIR"),
    };
    let judge = [("Cargo.toml", JUDGE_MANIFEST), ("src/main.rs", JUDGE_MAIN)];
    assert_eq!(outside.run("judge", &judge), "3.5\n");

    let leaders = [
        ("Cargo.toml", LEADERS_MANIFEST),
        ("build.rs", LEADERS_BUILD),
        ("src/main.rs", LEADERS_MAIN),
        ("leaders.cu", LEADERS_KERNEL),
    ];
    let said = outside.run("leaders", &leaders);
    assert_eq!(said, "the leader of thread 127 is thread 96\n");

    let squares = [
        ("Cargo.toml", SQUARES_MANIFEST),
        ("build.rs", SQUARES_BUILD),
        ("src/main.rs", SQUARES_MAIN),
        ("src/configurations.rs", SQUARES_CONFIGURATIONS),
        ("kernels/squares.cu", SQUARES_KERNEL),
        ("kernels/params.h", SQUARES_HEADER),
    ];
    let headers = Path::new(outside.library).join("kernels/include");
    let expected = format!(
        "squares of squares: 9801\n{}\n4 experts, Some([1.0])\n",
        headers.display()
    );
    assert_eq!(outside.run("squares", &squares), expected);
}

/// The files of `src`.
fn sources(folder: &Path, texts: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, texts)
        } else {
            texts.push(fs::read_to_string(&path).unwrap())
        }
    }
}

/// Returns what a line of `text` that begins with `start` opens, up to the line that closes it.
fn block<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    let (_, behind) = text.split_once(&format!("\n{start}"))?;
    behind.split_once("\n}").map(|(inside, _)| inside)
}

/// The structs that `setters!` is used for, by name: what stands in the struct, and in the macro.
fn configurations() -> BTreeMap<String, (String, String)> {
    let mut texts = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut texts,
    );
    let mut found = BTreeMap::new();
    for text in &texts {
        // The settings of a team, whose setters other structs have too.
        if let Some((_, list)) = text.split_once("macro_rules! each_setting {") {
            let (setters, _) = list.split_once("\n}").unwrap();
            let fields = block(text, "#[non_exhaustive]\npub struct TeamSettings").unwrap();
            found.insert(
                "TeamSettings".to_owned(),
                (fields.to_owned(), setters.to_owned()),
            );
        }
        for use_of in text.split("\nsetters! {\n").skip(1) {
            let (setters, _) = use_of.split_once("\n}").unwrap();
            let head = setters.trim_start().trim_start_matches("const ");
            let name: String = head.chars().take_while(|c| c.is_alphanumeric()).collect();
            let fields = block(text, &format!("#[non_exhaustive]\npub struct {name}"));
            let fields = fields.unwrap_or_else(|| panic!("{name} is not non_exhaustive"));
            found.insert(name, (fields.to_owned(), setters.to_owned()));
        }
    }
    found
}

#[test]
fn every_configuration_has_setters_and_is_made_by_an_outside_crate() {
    let found = configurations();
    assert!(found.len() > 10, "{:?}", found.keys());
    for (name, (fields, setters)) in &found {
        let lines = fields.lines().map(str::trim);
        for field in lines.filter_map(|line| line.strip_prefix("pub ")) {
            let (field, _) = field.split_once(':').unwrap();
            let setter = format!("with_{field}({field}: ");
            assert!(setters.contains(&setter), "{name} has no with_{field}");
        }
        // The crate is built without CUDA.
        let is_left_out = name == "CudaOptions";
        let made = SQUARES_CONFIGURATIONS.contains(name.as_str()) || is_left_out;
        assert!(made, "{name} is not made in SQUARES_CONFIGURATIONS");
    }
}
