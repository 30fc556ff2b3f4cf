//! A rank starts on a driver that refuses one call after the other. It says what to do, or takes another way, and leaves nothing
//! behind.

// UNSAFETY: hands over a device and a domain that outlive the team.
#![expect(unsafe_code, reason = "objects of an application by address")]

use std::collections::BTreeMap;
use std::sync::Arc;

use softhca::link::Link;
use softhca::{Hca, HcaConfig};
use test_support::application::Application;
use test_support::counts::full;
use test_support::fake_cuda::Fake;
use test_support::hca::hca_with;
use test_support::ranks;
use warpverbs::gpu::Gpu;
use warpverbs::gpu::cuda::{CudaGpu, CudaOptions, MemoryLocation};
use warpverbs::team::{JoinOptions, MemoryStore, Team, TeamConfig, TeamError};
use warpverbs::verbs::{Context, Pd, adopted};

use super::fake;

const OUT_OF_MEMORY: u32 = 2;
const UNKNOWN: u32 = 999;

/// A start that the driver is to refuse.
#[derive(Clone, Copy, Debug)]
struct Start {
    link: Link,
    memory: MemoryLocation,
    /// The application has opened the device itself.
    adopts: bool,
    /// What the driver answers.
    code: u32,
}

/// One of each value, and all combinations with WV_TEST_FULL.
fn starts() -> Vec<Start> {
    let mut starts = Vec::new();
    for link in [Link::Ethernet, Link::InfiniBand] {
        for memory in [MemoryLocation::Device, MemoryLocation::Host] {
            for adopts in [false, true] {
                for code in [UNKNOWN, OUT_OF_MEMORY] {
                    starts.push(Start {
                        link,
                        memory,
                        adopts,
                        code,
                    });
                }
            }
        }
    }
    if !full() {
        starts = [0, 7, 10, 13].map(|nth| starts[nth]).into();
    }
    starts
}

impl Start {
    fn hca(self) -> Hca {
        hca_with(HcaConfig {
            link: self.link,
            ..HcaConfig::default()
        })
    }

    /// Opens the GPU, joins a team of one, makes a window and leaves. What was not the best way, in words.
    fn run(self, hca: &Hca) -> Result<String, String> {
        if !self.adopts {
            let contexts = ranks::contexts([hca]).map_err(|error| error.to_string())?;
            return self.join(|gpu, store| {
                let options = JoinOptions::new(TeamConfig::new(0, 1)).with_contexts(&contexts);
                options.with_gpu(gpu).with_store(store).join()
            });
        }
        let application = Application::open(hca);
        let ran = self.join(|gpu, store| {
            // SAFETY: the application closes both below, when nothing uses them any more.
            let pd = unsafe {
                let context = Context::adopt(application.context()).unwrap();
                Pd::adopt(&context, application.pd()).unwrap()
            };
            let options = JoinOptions::new(TeamConfig::new(0, 1)).with_pds([&pd]);
            options.with_gpu(gpu).with_store(store).join()
        });
        let uses = [application.context(), application.pd()].map(|raw| adopted(raw));
        assert_eq!(uses, [0, 0], "{self:?}");
        application.check_works();
        application.close();
        ran
    }

    fn join(
        self,
        join: impl FnOnce(&Arc<dyn Gpu>, Arc<MemoryStore>) -> Result<Arc<Team>, TeamError>,
    ) -> Result<String, String> {
        let options = CudaOptions::default().with_location(self.memory);
        let gpu: Arc<dyn Gpu> =
            CudaGpu::with_options(0, &options).map_err(|error| error.to_string())?;
        let team = join(&gpu, Arc::new(MemoryStore::new())).map_err(|error| error.to_string())?;
        team.window(4096).map_err(|error| error.to_string())?;
        let choices: Vec<String> = team.choices().iter().map(ToString::to_string).collect();
        let report = team.close().unwrap();
        assert!(report.is_clean(), "{report}");
        Ok(choices.join("\n"))
    }
}

/// Nothing is left on the HCA. How many things the driver had when its last user let go of it.
#[track_caller]
fn left(fake: &Fake, hca: &Hca) -> usize {
    let live = hca.live_objects();
    assert_eq!(live.total(), 0, "{live:?}");
    assert_eq!(hca.findings(), [""; 0]);
    let released = fake.calls("cuDevicePrimaryCtxRelease_v2");
    // None where the device was not opened.
    released.last().map_or(0, |last| {
        let (_, count) = last.rsplit_once(' ').unwrap();
        count.parse().unwrap()
    })
}

/// Calls that give something back. Refused, the driver keeps it, and no other thing.
const ENDS: &[&str] = &[
    "cuCtxSetCurrent",
    "cuDevicePrimaryCtxRelease_v2",
    "cuEventDestroy_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemHostUnregister",
    "cuModuleUnload",
    "cuStreamDestroy_v2",
];

/// What a person may do, in the texts of the start.
const REMEDIES: &[&str] = &["NVRM", "nvidia-smi", "ulimit", "docker run", "WARPVERBS_"];

/// Lets go of the context that the runtime could not let go of: what is in it would be in the way of later starts.
fn release_again() {
    // SAFETY: nothing of this process uses the context that the refused call has named.
    unsafe { cudarc::driver::result::primary_ctx::release(0) }.unwrap();
}

/// What came of refusing a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Error,
    AnotherWay,
    /// It was none of the start's: it gave something back, or another call took its place.
    Nothing,
}

/// Refuses the `nth` call of `start`: its name, and what came of it.
fn refuse(fake: &Fake, start: Start, nth: usize, best: &str) -> (String, Outcome) {
    fake.forget_calls();
    fake.set(&format!("refuse-any {nth} {}", start.code));
    let hca = start.hca();
    let ran = start.run(&hca);
    let calls = fake.all_calls();
    let of_it = format!("{start:?}, call {nth}: {:?}", calls.get(nth - 1));
    let call = calls[nth - 1].split(' ').next().unwrap().to_owned();
    if call == "cuDevicePrimaryCtxRelease_v2" {
        release_again();
    }
    let left = left(fake, &hca);
    let may_leave = usize::from(ENDS.contains(&&*call));
    assert!(left <= may_leave, "{of_it} leaves {left} things: {ran:?}");
    let outcome = match ran {
        Err(text) => {
            assert!(
                text.contains(call.trim_end_matches("_v2")),
                "{of_it}: {text}"
            );
            assert!(
                text.contains(&format!("({})", start.code)),
                "{of_it}: {text}"
            );
            assert!(
                REMEDIES.iter().any(|words| text.contains(words)),
                "{of_it}: {text}"
            );
            Outcome::Error
        }
        Ok(ways) if ways == best => Outcome::Nothing,
        Ok(ways) => {
            assert!(
                ways.contains(&format!("({})", start.code)),
                "{of_it}: {ways}"
            );
            Outcome::AnotherWay
        }
    };
    (call, outcome)
}

#[test]
fn each_call_of_a_start_is_refused_in_turn_and_nothing_is_left() {
    fake("").run(|fake| {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for start in starts() {
            let whole = || {
                fake.forget_calls();
                fake.set("refuse-any 0 0");
                let hca = start.hca();
                let ways = start.run(&hca).unwrap();
                assert_eq!(left(fake, &hca), 0, "{start:?}");
                (ways, fake.all_calls().len())
            };
            let (best, count) = whole();
            let mut chosen: Vec<usize> = (1..=count).collect();
            if !full() {
                random.shuffle(&mut chosen);
                chosen.truncate(count.div_ceil(10));
            }
            let mut outcomes: BTreeMap<(String, Outcome), u32> = BTreeMap::new();
            for nth in &chosen {
                let came = refuse(fake, start, *nth, &best);
                *outcomes.entry(came).or_default() += 1;
            }
            println!("{start:?}: {} of {count} calls refused", chosen.len());
            for ((call, outcome), times) in &outcomes {
                println!("  {call}: {outcome:?}, {times}");
            }
            // Nothing of all that is remembered.
            assert_eq!(whole(), (best, count), "{start:?}");
        }
    });
}
