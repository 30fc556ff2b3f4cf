//! Which steps a rank takes on what a driver offers and refuses, with software HCAs. No kernel runs, so nothing is sent.

use std::sync::Arc;

use mlx5_prm::cmd::{Opcode, Status};
use softhca::{FailCommand, Hca};
use test_support::ranks;
use warpverbs::gpu::cuda::{CudaGpu, CudaOptions, MemoryLocation};
use warpverbs::gpu::{Gpu, GpuError};
use warpverbs::team::{Choice, Doorbell, Matter, SignalOrder, Step, TeamConfig, choices_on};
use warpverbs::verbs::Rung;

use super::{fake, says};

/// Attributes by number.
const DMA_BUF: u32 = 124;
const WRITES_ORDERING: u32 = 118;

fn choices(ordinal: u32, location: MemoryLocation, hca: &Hca) -> Result<Vec<Choice>, String> {
    let contexts = ranks::contexts([hca]).unwrap();
    let options = CudaOptions::default().with_location(location);
    let gpu: Arc<dyn Gpu> = CudaGpu::with_options(ordinal, &options).unwrap();
    choices_on(&TeamConfig::new(0, 1), &contexts, &gpu).map_err(|error| error.to_string())
}

fn of(choices: &[Choice], matter: Matter) -> &Choice {
    choices
        .iter()
        .find(|choice| choice.matter == matter)
        .unwrap()
}

/// Of queues and windows.
fn rungs(choices: &[Choice]) -> [Step; 2] {
    [Matter::Queues, Matter::Windows].map(|matter| of(choices, matter).step)
}

/// Every reason of a choice.
fn reasons(choice: &Choice) -> Vec<&str> {
    choice
        .refused
        .iter()
        .map(|refused| refused.reason.as_str())
        .collect()
}

#[test]
fn each_export_that_the_driver_refuses_leaves_the_others() {
    fake("").run(|fake| {
        let hca = Hca::new().unwrap();
        let device = MemoryLocation::Device;
        for (settings, rung, told) in [
            ("", Rung::DmabufPcie, ""),
            // A refused plain export takes nothing from the one across PCIe.
            ("dmabuf 0 801", Rung::DmabufPcie, ""),
            ("dmabuf 1 1", Rung::Dmabuf, "CUDA 12.8 or later"),
            ("dmabuf 1 801\ndmabuf 0 801", Rung::Address, "nvidia-open"),
            (
                &format!("attribute {DMA_BUF} 0"),
                Rung::Address,
                "the device has no DMA-BUFs",
            ),
        ] {
            fake.set(settings);
            let choices = choices(0, device, &hca).unwrap();
            assert_eq!(rungs(&choices), [Step::Memory(rung); 2], "{settings}");
            let reasons = reasons(of(&choices, Matter::Queues)).join("\n");
            assert!(reasons.contains(told), "{settings}: {reasons}");
        }
        let refused = fake.calls("cuMemGetHandleForAddressRange");
        assert!(!refused.is_empty());
        ranks::check([&Arc::new(hca)]);
    });
}

#[test]
fn memory_that_no_hca_reaches_leaves_that_of_the_host_or_every_reason() {
    fake("").run(|fake| {
        let hca = Hca::new().unwrap();
        fake.set("dmabuf 0 801\ndmabuf 1 801");
        // By address the HCA refuses queues, windows and what takes results of atomics.
        let refuse = |opcode: Opcode, skipped: u32| {
            hca.fail_command(FailCommand {
                opcode: Some(opcode.0),
                nth: skipped + 1,
                status: Status::BAD_PARAM.0,
                syndrome: 0x17,
            });
        };
        refuse(Opcode::CREATE_UMEM, 0);
        refuse(Opcode::CREATE_MKEY, 1);
        let left = choices(0, MemoryLocation::Device, &hca).unwrap();
        assert_eq!(rungs(&left), [Step::Memory(Rung::Host); 2]);
        for matter in [Matter::Queues, Matter::Windows] {
            let choice = of(&left, matter);
            assert_eq!(reasons(choice).len(), 3, "{choice}");
            assert!(choice.price().unwrap().contains("across PCIe"), "{choice}");
            assert!(
                choice.remedy().unwrap().contains("nvidia_peermem"),
                "{choice}"
            );
        }

        // And pinned memory that kernels have at another address is no window.
        fake.set("dmabuf 0 801\ndmabuf 1 801\nno-uva");
        refuse(Opcode::CREATE_MKEY, 1);
        let why = choices(0, MemoryLocation::Device, &hca).unwrap_err();
        for part in [
            "no way for windows: by dmabuf (PCIe): ",
            "by dmabuf: ",
            "by address: ",
            "in host memory: ",
            "no unified addressing",
        ] {
            assert!(why.contains(part), "{part:?} is not in {why}");
        }
    });
}

#[test]
fn a_gpu_without_an_order_of_writes_has_no_inline_signals_in_its_memory() {
    fake(&format!("attribute {WRITES_ORDERING} 0")).run(|_| {
        let hca = Hca::new().unwrap();
        for (location, order) in [
            (MemoryLocation::Device, SignalOrder::Swap),
            (MemoryLocation::Host, SignalOrder::Inline),
        ] {
            let choices = choices(0, location, &hca).unwrap();
            let signals = of(&choices, Matter::Signals);
            assert_eq!(signals.step, Step::Signal(order), "{signals}");
            let told = reasons(signals)
                .concat()
                .contains("WRITES_ORDERING is none");
            assert_eq!(told, order == SignalOrder::Swap, "{signals}");
        }
    });
}

#[test]
fn one_gpu_of_a_machine_may_refuse_what_another_grants() {
    let two = "devices 2\npci 0 0000:1b:00\npci 1 0001:43:02\nmemory 8388608 1\n\
        refuse-on 1 cuMemHostRegister_v2 800\nattribute 118 0 1";
    fake(two).run(|_| {
        let hca = Hca::new().unwrap();
        let slots =
            [0, 1].map(|ordinal| CudaGpu::open(ordinal).unwrap().slot().unwrap().to_string());
        assert_eq!(slots, ["gpu 0 (0000:1b:00.0)", "gpu 1 (0001:43:02.0)"]);
        for (ordinal, doorbell, order) in [
            (0, Doorbell::NoRecord, SignalOrder::Inline),
            (1, Doorbell::Mailbox, SignalOrder::Swap),
        ] {
            let choices = choices(ordinal, MemoryLocation::Device, &hca).unwrap();
            assert_eq!(
                of(&choices, Matter::Doorbells).step,
                Step::Doorbell(doorbell)
            );
            assert_eq!(of(&choices, Matter::Signals).step, Step::Signal(order));
        }
        let large = [0, 1].map(|ordinal| CudaGpu::open(ordinal).unwrap().alloc(16 << 20, 4096));
        assert!(large[0].is_ok() && matches!(large[1], Err(GpuError::OutOfMemory { .. })));
    });
}

#[test]
fn a_gpu_that_cannot_be_had_says_what_to_do() {
    fake("devices 2\nrefuse-on 1 cuDevicePrimaryCtxRetain 46").run(|fake| {
        CudaGpu::open(0).unwrap();
        let error = CudaGpu::open(1).unwrap_err();
        says(
            &error,
            &[
                "CUDA_ERROR_DEVICE_UNAVAILABLE (46)",
                "nvidia-smi -c DEFAULT",
            ],
        );
        let error = CudaGpu::open(2).unwrap_err();
        says(
            &error,
            &[
                "no CUDA device 2: the driver knows 2",
                "CUDA_VISIBLE_DEVICES",
            ],
        );
        fake.set("devices 2\nrefuse cuModuleLoadDataEx 221");
        says(
            &CudaGpu::open(1).unwrap_err(),
            &["NVIDIA_DRIVER_CAPABILITIES=compute"],
        );
        fake.set("devices 2\nrefuse cuModuleLoadDataEx 223");
        says(&CudaGpu::open(1).unwrap_err(), &["CUDA_DISABLE_PTX_JIT"]);
    });
}
