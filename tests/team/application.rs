//! A team in the device, the domain and the memory of an application, which keeps using all three.

// UNSAFETY: memory of the application by address.
#![expect(
    unsafe_code,
    reason = "objects and memory of an application by address"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;

use mlx5_prm::cmd::Status as Refusal;
use softhca::link::Link;
use softhca::{FailCommand, FaultSpec, HcaConfig};
use test_support::application::Application;
use test_support::kernels::open;
use test_support::ranks::{self, Meeting};
use warpverbs::abi::Status;
use warpverbs::gpu::{DeviceMemory, Gpu, GpuError, GpuSelector};
use warpverbs::team::{JoinOptions, Matter, MemoryStore, TeamConfig, TeamError};
use warpverbs::verbs::{Context, Pd, VerbsError, adopted};

use crate::modes::exchange;
use crate::rank::{Put, Rank, WORDS, setup};
use test_support::fleet::Hcas;

const LAYOUT: Layout = match Layout::from_size_align(WORDS as usize * 8, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("a layout"),
};

/// Memory that the runtime did not allocate.
struct Memory(*mut u8);

impl Memory {
    fn new() -> Self {
        // SAFETY: the layout is not empty.
        let memory = Self(unsafe { alloc_zeroed(LAYOUT) });
        assert!(!memory.0.is_null());
        memory
    }

    fn addr(&self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// The last word, which no other code writes.
    fn last(&self) -> *mut u64 {
        self.0.wrapping_add(LAYOUT.size() - 8).cast()
    }

    fn lend(&self, gpu: &dyn Gpu) -> Result<DeviceMemory, GpuError> {
        // SAFETY: the tests drop the team before the memory, and have no reference to it meanwhile.
        unsafe { gpu.wrap_memory(self.addr(), LAYOUT.size()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, freed once.
        unsafe { dealloc(self.0, LAYOUT) };
    }
}

/// Returns what the application hands over.
fn adopt(application: &Application) -> Result<Arc<Pd>, VerbsError> {
    // SAFETY: the tests close the application when nothing uses it any more.
    unsafe { Pd::adopt(&Context::adopt(application.context())?, application.pd()) }
}

fn in_use(application: &Application) -> [usize; 2] {
    [application.context(), application.pd()].map(|raw| adopted(raw))
}

#[test]
fn a_team_lives_in_what_the_application_has_and_leaves_it() {
    let setup = setup(2);
    let hcas = Hcas::new(&setup);
    let applications: Vec<_> = hcas.all().map(|hca| Application::open(hca)).collect();
    let barrier = Meeting::new(2);
    ranks::on_threads(2, |number, store| {
        let _attendance = barrier.attend();
        let application = &applications[number as usize];
        let memory = Memory::new();
        // SAFETY: no other code has the memory yet.
        unsafe { memory.last().write(4711) };
        let gpu = open(GpuSelector::Simt).unwrap();
        let team = JoinOptions::new(setup.of_rank(number))
            .with_pds(&[adopt(application).unwrap()])
            .with_gpu(&gpu)
            .with_store(store)
            .join()
            .unwrap();
        let window = team
            .window_over(memory.lend(gpu.as_ref()).unwrap())
            .unwrap();
        let words = (window.base, window.bytes);
        assert_eq!(words, (memory.addr(), u64::from(WORDS) * 8));
        let rank = Rank::with_window(team, window, hcas.of(number), &barrier).unwrap();
        let peer = 1 - number;
        let put = Put::new(peer, 100);
        let seen = rank.put(&put).finish()[0];
        assert_eq!((seen.status, seen.done, seen.failed), (Status::OK, 100, 0));
        rank.sync();
        assert_eq!(rank.wrong_words(peer, put.dst_word, 100), Vec::<u32>::new());
        exchange(&rank, 2);
        application.check_works();
        assert_eq!(in_use(application), [1, 1]);
        drop(rank);
        assert_eq!(in_use(application), [0, 0]);
        // SAFETY: the team is gone.
        assert_eq!(unsafe { memory.last().read() }, 4711);
        application.check_works();
    });
    for application in applications {
        application.close();
    }
    hcas.check();
}

#[test]
fn a_join_without_a_rail_is_refused() {
    let hcas = ranks::hcas(1, &HcaConfig::default());
    let application = Application::open(&hcas[0]);
    let gpu = open(GpuSelector::Simt).unwrap();
    let join = |config: TeamConfig, domains: &[Arc<Pd>]| {
        JoinOptions::new(config)
            .with_pds(domains)
            .with_gpu(&gpu)
            .with_store(Arc::new(MemoryStore::new()))
            .join()
    };
    let none = join(TeamConfig::new(0, 1), &[]).unwrap_err().to_string();
    assert!(none.contains("number of rails is 0"), "{none}");
    assert_eq!(in_use(&application), [0, 0]);
    application.close();
    ranks::check(&hcas);
}

/// From adopting the device to a window; a rung of a ladder takes up what some commands refuse.
#[test]
fn each_command_of_a_join_fails_in_turn_and_the_application_keeps_all() {
    for (link, status) in [
        (Link::Ethernet, Refusal::NO_RES),
        (Link::InfiniBand, Refusal::LIM_ERR),
    ] {
        commands_of_a_join_fail(link, status);
    }
}

fn commands_of_a_join_fail(link: Link, status: Refusal) {
    let config = HcaConfig {
        link,
        ..HcaConfig::default()
    };
    let gpu = open(GpuSelector::Simt).unwrap();
    let (mut failed, mut passed, mut kept, mut nth) = (0, 0, 0, 0);
    // Until none has struck for a while.
    while passed < 20 {
        nth += 1;
        assert!(nth < 1000, "a join of more than 1,000 commands");
        let hcas = ranks::hcas(1, &config);
        let application = Application::open(&hcas[0]);
        hcas[0].fail_command(FailCommand {
            opcode: None,
            nth,
            status: status.0,
            syndrome: nth,
        });
        let memory = Memory::new();
        let joined = adopt(&application).map_err(TeamError::from).and_then(|pd| {
            let store = Arc::new(MemoryStore::new());
            let team = JoinOptions::new(TeamConfig::new(0, 1))
                .with_pds([&pd])
                .with_gpu(&gpu)
                .with_store(store)
                .join()?;
            team.window_over(memory.lend(gpu.as_ref())?)?;
            Ok(team)
        });
        // What ends objects is not to fail: they would stay.
        hcas[0].set_faults(&FaultSpec::default());
        if joined.is_err() {
            (failed, passed) = (failed + 1, 0)
        } else {
            passed += 1;
        }
        drop(joined);
        let live = hcas[0].live_objects();
        let rest = (live.pd - 1) + live.mr + live.mkey + live.umem + live.cq + live.qp;
        application.check_works();
        if rest != 0 {
            // An object of an attempt before the join: the HCA would not end it.
            kept += 1;
            continue;
        }
        assert_eq!(in_use(&application), [0, 0], "command {nth}");
        application.close();
        ranks::check(&hcas);
    }
    println!(
        "{link:?}, {status:?}, {} commands: {failed} ended the join, {kept} left an object behind",
        nth - passed
    );
    assert!(failed > 5 && kept <= failed, "{failed} failed, {kept} kept");
}

#[test]
fn memory_that_no_window_can_lie_in_is_refused_by_name() {
    let hcas = ranks::hcas(1, &HcaConfig::default());
    let alone = |selector| {
        let contexts = ranks::contexts([hcas[0].as_ref()]).unwrap();
        let gpu = open(selector).unwrap();
        let store = Arc::new(MemoryStore::new());
        let team = JoinOptions::new(TeamConfig::new(0, 1))
            .with_contexts(&contexts)
            .with_gpu(&gpu)
            .with_store(store)
            .join()
            .unwrap();
        (team, gpu)
    };
    let memory = Memory::new();
    let lend = |gpu: &Arc<dyn Gpu>, addr: u64, bytes: usize| {
        // SAFETY: the memory outlives the teams of this test, and has no references.
        unsafe { gpu.wrap_memory(addr, bytes) }
    };
    {
        let (team, gpu) = alone(GpuSelector::Simt);
        let oblique = lend(&gpu, memory.addr() + 8, 64).unwrap();
        let error = team.window_over(oblique).unwrap_err().to_string();
        let begin = format!("address of a window is {:#x}", memory.addr() + 8);
        assert!(error.starts_with(&begin), "{error}");
        assert!(lend(&gpu, memory.addr(), 0).is_err());
        let first = lend(&gpu, memory.addr(), 256).unwrap();
        let twice = lend(&gpu, memory.addr() + 128, 256)
            .unwrap_err()
            .to_string();
        assert!(
            twice.contains("memory of the caller is 256 bytes"),
            "{twice}"
        );
        drop(first);
        let window = team.window_over(lend(&gpu, memory.addr() + 128, 256).unwrap());
        assert_eq!(window.unwrap().bytes, 256);
    }
    // Where windows are reached by DMA-BUFs, which the application does not have, the first one decides for all.
    let (team, gpu) = alone(GpuSelector::SimtDmabuf);
    team.window_over(memory.lend(gpu.as_ref()).unwrap())
        .unwrap();
    let choices = team.choices();
    let windows = choices.iter().find(|of| of.matter == Matter::Windows);
    let refused = &windows.unwrap().refused;
    assert!(
        refused.iter().any(|step| step.reason.contains("DMA-BUFs")),
        "{refused:?}"
    );
    drop(team);
    let (team, gpu) = alone(GpuSelector::SimtDmabuf);
    team.window(4096).unwrap();
    let error = team
        .window_over(memory.lend(gpu.as_ref()).unwrap())
        .unwrap_err();
    assert!(!matches!(error, TeamError::PeerFailed { .. }), "{error}");
    assert!(error.to_string().contains("DMA-BUFs"), "{error}");
}
