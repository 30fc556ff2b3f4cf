//! The way down: each step of each ladder refused in turn, and a step of MoE on the remaining ones.

use std::env;
use std::process::Command;
use std::sync::Arc;

use mlx5_prm::cmd::{Opcode, Status};
use softhca::{FailCommand, Hca};
use test_support::fleet::{Hcas, Setup, on_threads};
use test_support::moe::Call;
use test_support::moe::small::{SHAPE, TRAFFIC};
use test_support::ranks::{self, Meeting};
use warpverbs::config::{Config, GpuSelector, Memory};
use warpverbs::gpu::Gpu;
use warpverbs::gpu::WriteOrdering;
use warpverbs::gpu::simt::{SimtGpu, SimtOptions};
use warpverbs::internal::hide_functions;
use warpverbs::moe::Moe;
use warpverbs::team::{
    Choice, Doorbell, JoinOptions, Matter, MemoryStore, Queues, RankDevices, SignalOrder, Step,
    Team, TeamConfig, TeamError, choices_on,
};
use warpverbs::verbs::{Events, Rung};

/// Says that this process is to have older libraries.
const OLDER: &str = "WARPVERBS_TEST_OLDER";
/// What a device says when a test has it refuse.
const SYNDROME: u32 = 0x0017_0017;

/// A device whose memory is offered in every way.
fn options() -> SimtOptions<'static> {
    SimtOptions::default()
        .with_dmabufs(true)
        .with_dmabufs_across_pcie(true)
}

/// The next `count` commands of this kind after `skipped` are refused.
fn refuse(hca: &Hca, opcode: Opcode, skipped: u32, count: usize) {
    for _ in 0..count {
        hca.fail_command(FailCommand {
            opcode: Some(opcode.0),
            nth: skipped + 1,
            status: Status::BAD_PARAM.0,
            syndrome: SYNDROME,
        });
    }
}

/// The choices of rank 0 of a team on HCAs that `prepare` has changed, after a step of MoE. The step compares every element. The
/// error is that with which rank 0 did not join.
fn chosen(
    change: impl Fn(TeamConfig) -> TeamConfig + Sync,
    options: &SimtOptions<'static>,
    prepare: impl Fn(&Hca),
) -> Result<Vec<Choice>, String> {
    let setup = Setup::new(2);
    let hcas = Hcas::new(&setup);
    prepare(&hcas.of(0)[0]);
    let end = Meeting::new(2);
    let mut results = on_threads(&setup, &hcas, |rank, own, store| {
        let _attendance = end.attend();
        let config = change(setup.of_rank(rank));
        let contexts = ranks::contexts(own.iter().map(Arc::as_ref)).unwrap();
        let gpu: Arc<dyn Gpu> = match rank {
            0 => SimtGpu::with_options(options).unwrap(),
            _ => SimtGpu::open().unwrap(),
        };
        let made = JoinOptions::new(config)
            .with_contexts(&contexts)
            .with_gpu(&gpu)
            .with_store(store)
            .join()
            .and_then(|team| one_step(&team).map(|()| team));
        // No rank takes its windows away while others may still write to them.
        end.wait();
        made.map(|team| team.choices())
            .map_err(|error| error.to_string())
    });
    hcas.check();
    let other = results.pop().unwrap();
    let first = results.pop().unwrap();
    match &first {
        Ok(_) => assert!(other.is_ok(), "{other:?}"),
        // The other rank gets the reason.
        Err(why) => assert!(other.unwrap_err().contains(why.as_str()), "{why}"),
    }
    first
}

fn one_step(team: &Arc<Team>) -> Result<(), TeamError> {
    let moe = match Moe::new(team, "ladders", SHAPE) {
        Ok(moe) => moe,
        Err(warpverbs::moe::MoeError::Team(error)) => return Err(error),
        Err(other) => panic!("{other}"),
    };
    let mut call = Call::new(&moe);
    call.send(TRAFFIC, 17, 0);
    call.receive();
    call.send_back();
    call.receive_back();
    Ok(())
}

fn of(choices: &[Choice], matter: Matter) -> &Choice {
    choices
        .iter()
        .find(|choice| choice.matter == matter)
        .unwrap()
}

/// The choice in `matter` is step `refused` of its ladder, and those above it were refused by a device.
#[track_caller]
fn is_step(choices: &[Choice], matter: Matter, refused: usize, cell: &str) {
    let choice = of(choices, matter);
    let ladder = matter.ladder();
    assert_eq!(choice.step, ladder[refused], "{cell}: {choice}");
    let left: Vec<_> = choice.refused.iter().map(|refused| refused.step).collect();
    assert_eq!(left, ladder[..refused], "{cell}: {choice}");
}

/// Doorbells: none refused; the QP without a record; the register.
const DOORBELLS: usize = 3;
/// Queues and windows: the steps that are refused, up to all.
const MEMORY: usize = 5;

#[test]
fn each_refused_step_leaves_the_next_one_which_carries_a_step_of_moe() {
    let (mut run, mut failed) = (0, 0);
    for doorbells in 0..DOORBELLS {
        for queues in 0..MEMORY {
            for windows in 0..MEMORY {
                let cell = format!("doorbells {doorbells}, queues {queues}, windows {windows}");
                let options = options().with_maps_registers(doorbells != 2);
                // Each QP that is tried comes with a region for results of atomics.
                let tried = if doorbells == 0 { 1 } else { 2 };
                let chosen = chosen(
                    |config| config,
                    &options,
                    |hca| {
                        refuse(hca, Opcode::CREATE_UMEM, 0, queues);
                        refuse(hca, Opcode::CREATE_QP, 0, usize::from(doorbells == 1));
                        refuse(hca, Opcode::CREATE_MKEY, tried, windows);
                    },
                );
                let lost = match (queues, windows) {
                    (4, _) => Some(Matter::Queues),
                    (_, 4) => Some(Matter::Windows),
                    _ => None,
                };
                match (chosen, lost) {
                    (Ok(choices), None) => {
                        is_step(&choices, Matter::Doorbells, doorbells, &cell);
                        is_step(&choices, Matter::Queues, queues, &cell);
                        is_step(&choices, Matter::Windows, windows, &cell);
                    }
                    (Err(why), Some(matter)) => {
                        assert!(
                            why.starts_with(&format!("no way for {matter}: ")),
                            "{cell}: {why}"
                        );
                        for step in matter.ladder() {
                            assert!(why.contains(&format!("{step}: ")), "{cell}: {why}");
                        }
                        failed += 1;
                    }
                    (chosen, _) => panic!("{cell}: {chosen:?}"),
                }
                run += 1;
            }
        }
    }
    println!(
        "{run} cells of {}: {failed} have no way and tell all reasons, the others carry a step of MoE",
        DOORBELLS * MEMORY * MEMORY
    );
    assert_eq!(run, DOORBELLS * MEMORY * MEMORY);
    assert_eq!(failed, DOORBELLS * (MEMORY + (MEMORY - 1)));
}

#[test]
fn a_step_that_is_named_is_never_left() {
    let device = chosen(
        |config| config.with_queues(Some(Queues::Device)),
        &options(),
        |hca| refuse(hca, Opcode::CREATE_UMEM, 0, 3),
    );
    let why = device.unwrap_err();
    assert!(
        why.starts_with("no way for queues: by dmabuf (PCIe): "),
        "{why}"
    );
    assert!(!why.contains("host memory:"), "{why}");

    let host = |config: TeamConfig| config.with_memory(Some(Memory::Host));
    let why = chosen(host, &options(), |hca| {
        refuse(hca, Opcode::CREATE_MKEY, 1, 1)
    });
    let why = why.unwrap_err();
    assert!(why.starts_with("ibv_reg_mr on mlx5_"), "{why}");

    let record = |config: TeamConfig| config.with_doorbell(Some(Doorbell::Record));
    let why = chosen(record, &options().with_maps_registers(false), |_| {}).unwrap_err();
    assert!(why.contains("WARPVERBS_DOORBELL=mailbox"), "{why}");

    let named = |config: TeamConfig| {
        host(config)
            .with_queues(Some(Queues::Host))
            .with_doorbell(Some(Doorbell::Mailbox))
    };
    let choices = chosen(named, &options(), |_| {}).unwrap();
    for choice in &choices {
        assert!(choice.refused.is_empty(), "{choice}");
    }
    assert_eq!(of(&choices, Matter::Windows).step, Step::Memory(Rung::Host));
}

#[test]
fn signals_are_inline_only_where_gpu_and_pci_keep_their_order() {
    let none = options().with_write_ordering(WriteOrdering::None);
    let same = |config: TeamConfig| config;
    let relaxed = |config: TeamConfig| config.with_pci_relaxed(true);
    let in_order = |order: WriteOrdering| options().with_write_ordering(order);
    for (change, options, step) in [
        (
            same as fn(TeamConfig) -> TeamConfig,
            options(),
            SignalOrder::Inline,
        ),
        (same, in_order(WriteOrdering::Owner), SignalOrder::Inline),
        (relaxed, options(), SignalOrder::Swap),
    ] {
        let choices = chosen(change, &options, |_| {}).unwrap();
        assert_eq!(of(&choices, Matter::Signals).step, Step::Signal(step));
    }
    // Both ranks signal alike, and only rank 0 has a GPU without an order.
    let choices = chosen(same, &none, |_| {}).unwrap();
    let signals = of(&choices, Matter::Signals);
    assert_eq!(signals.step, Step::Signal(SignalOrder::Swap));
    let text = signals.to_string();
    assert!(text.contains("WRITES_ORDERING is none"), "{text}");
    let both = |config: TeamConfig| config.with_order(Some(SignalOrder::Swap));
    chosen(both, &none, |_| {}).unwrap();
    // In host memory no GPU has a say.
    let host = |config: TeamConfig| config.with_memory(Some(Memory::Host));
    let choices = chosen(host, &none, |_| {}).unwrap();
    assert_eq!(
        of(&choices, Matter::Signals).step,
        Step::Signal(SignalOrder::Inline)
    );
    // Named, it is refused with the reason.
    let inline = |config: TeamConfig| config.with_order(Some(SignalOrder::Inline));
    let why = chosen(inline, &none, |_| {}).unwrap_err();
    for part in [
        "to be inline",
        "WRITES_ORDERING is none",
        "WARPVERBS_MOE_ORDER",
    ] {
        assert!(why.contains(part), "{part} is not in {why}");
    }
}

#[test]
fn windows_are_registered_on_one_step_and_none_of_them_on_another() {
    let setup = Setup::new(1);
    let hcas = Hcas::new(&setup);
    on_threads(&setup, &hcas, |_, own, store| {
        let contexts = ranks::contexts(own.iter().map(Arc::as_ref)).unwrap();
        let gpu: Arc<dyn Gpu> = SimtGpu::with_options(&options()).unwrap();
        let team = JoinOptions::new(setup.team)
            .with_contexts(&contexts)
            .with_gpu(&gpu)
            .with_store(store)
            .join()
            .unwrap();
        // The first one refused has all lie a step lower; a later one is an error.
        refuse(&own[0], Opcode::CREATE_MKEY, 0, 1);
        team.window(4096).unwrap();
        is_step(&team.choices(), Matter::Windows, 1, "the first window");
        refuse(&own[0], Opcode::CREATE_MKEY, 0, 1);
        let why = team.window(4096).unwrap_err().to_string();
        assert!(why.starts_with("ibv_reg_dmabuf_mr on "), "{why}");
        team.window(4096).unwrap();
        let windows = team.exports().into_iter().skip(1);
        assert!(
            windows
                .into_iter()
                .all(|(_, _, export)| export.rung == Rung::Dmabuf)
        );
    });
    hcas.check();
}

#[test]
fn a_gpu_and_a_nic_alone_tell_the_choices_of_a_team_and_leave_nothing() {
    let setup = Setup::new(1);
    let hcas = Hcas::new(&setup);
    let own = hcas.of(0);
    refuse(&own[0], Opcode::CREATE_UMEM, 0, 1);
    let contexts = ranks::contexts(own.iter().map(Arc::as_ref)).unwrap();
    let gpu: Arc<dyn Gpu> = SimtGpu::with_options(&options()).unwrap();
    let choices = choices_on(&TeamConfig::new(0, 1), &contexts, &gpu).unwrap();
    let matters: Vec<_> = choices.iter().map(|choice| choice.matter).collect();
    assert_eq!(matters, Matter::ALL);
    is_step(&choices, Matter::Queues, 1, "queues");
    let text = of(&choices, Matter::Queues).to_string();
    assert!(
        text.starts_with(
            "queues by dmabuf (not by dmabuf (PCIe): mlx5dv_devx_umem_reg_ex on mlx5_"
        ),
        "{text}"
    );
    is_step(&choices, Matter::Windows, 0, "windows");

    let none = choices_on(&TeamConfig::new(0, 1), &[], &gpu).unwrap_err();
    assert!(matches!(none, TeamError::Limit { .. }), "{none}");
    let deep = TeamConfig::new(0, 1).with_log_depth(3);
    let deep = choices_on(&deep, &contexts, &gpu).unwrap_err().to_string();
    assert!(
        deep.starts_with("log_depth is 3; it must be 8 to "),
        "{deep}"
    );

    // A device that has failed since it was opened.
    let before = own[0].live_objects().total();
    own[0].die();
    let why = choices_on(&TeamConfig::new(0, 1), &contexts, &gpu).unwrap_err();
    assert!(
        matches!(why, TeamError::Verbs(_) | TeamError::NoWay { .. }),
        "{why}"
    );
    assert_eq!(own[0].live_objects().total(), before);
    drop(contexts);
    hcas.check();
}

/// The heap of all QPs is longer than that of the one which was tried, and may be refused where that was not.
#[test]
fn a_heap_that_is_refused_at_its_whole_length_steps_down_too() {
    let choices = chosen(
        |config| config,
        &options(),
        |hca| {
            refuse(hca, Opcode::CREATE_UMEM, 1, 1);
        },
    );
    let choices = choices.unwrap();
    is_step(&choices, Matter::Queues, 1, "a long heap");
    is_step(&choices, Matter::Windows, 0, "a long heap");
}

#[test]
fn libraries_that_are_too_old_for_a_step_lack_that_step_alone() {
    if env::var_os(OLDER).is_none() {
        let name = "ladders::libraries_that_are_too_old_for_a_step_lack_that_step_alone";
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", name])
            .env(OLDER, "1")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(
            told.contains("1 passed"),
            "{told}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    assert!(hide_functions(&[
        "ibv_reg_dmabuf_mr",
        "mlx5dv_devx_umem_reg_ex",
        "mlx5dv_devx_create_event_channel",
    ]));
    let missing = warpverbs::verbs::missing_functions().unwrap();
    assert_eq!(missing.len(), 3, "{missing:?}");
    let choices = chosen(|config| config, &options(), |_| {}).unwrap();
    for (matter, reason) in [
        (
            Matter::Queues,
            "no mlx5dv_devx_umem_reg_ex, which came with rdma-core 35",
        ),
        (
            Matter::Windows,
            "no ibv_reg_dmabuf_mr, which came with rdma-core 34",
        ),
    ] {
        is_step(&choices, matter, 2, "older libraries");
        let choice = of(&choices, matter);
        assert!(choice.to_string().contains(reason), "{choice}");
    }
    let hcas = Hcas::new(&Setup::new(1));
    let contexts = ranks::contexts(hcas.all().map(Arc::as_ref)).unwrap();
    let why = Events::open(&contexts[0]).unwrap_err().to_string();
    assert!(why.contains("mlx5dv_devx_create_event_channel"), "{why}");
}

/// Between the choice of devices and their use a port goes down, or a device fails.
#[test]
fn a_device_that_fails_between_choice_and_use_is_named_and_leaves_nothing() {
    for dies in [false, true] {
        let setup = Setup::new(1);
        let hcas = Hcas::new(&setup);
        let hca = &hcas.of(0)[0];
        let config = Config::default()
            .with_device(hca.name().parse().unwrap())
            .with_gpu(GpuSelector::Simt);
        let devices = RankDevices::open(&config).unwrap();
        let store = Arc::new(MemoryStore::new());
        if dies {
            hca.die()
        } else {
            hca.set_port(false)
        }
        let contexts = devices.contexts;
        let joined = JoinOptions::new(setup.team)
            .with_contexts(&contexts)
            .with_gpu(&devices.gpu)
            .with_store(store)
            .join();
        let why = joined.unwrap_err().to_string();
        assert!(why.contains(hca.name()), "{why}");
        if !dies {
            let told = format!("{}: port state is 1, needed: 4 (active)", hca.name());
            assert!(why.starts_with(&told), "{why}");
            // Each software HCA stands on the loopback interface.
            let mended = "its interface lo up (ip link set lo up)?";
            assert!(why.contains(mended), "{why}");
        }
        drop(contexts);
        hcas.check();
    }
}
