//! Teams on the driver without a GPU, with software HCAs: which way of ringing they take. No kernel runs, so nothing is sent.

use std::sync::Arc;

use softhca::HcaConfig;
use test_support::log::Lines;
use test_support::ranks::{self, DEADLINE};
use warpverbs::gpu::Gpu;
use warpverbs::gpu::cuda::{CudaGpu, CudaOptions, MemoryLocation};
use warpverbs::team::{Doorbell, JoinOptions, TeamConfig};

use super::fake;

/// Returns what each of two ranks logs that joins, or its error, with memory of the driver at `location`.
fn joined(location: MemoryLocation, doorbell: Option<Doorbell>) -> Vec<Result<String, String>> {
    let hcas = ranks::hcas(2, &HcaConfig::default());
    let logged = ranks::on_threads(2, |rank, store| {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_writer(move || writer.clone())
            .without_time()
            .finish();
        let config = TeamConfig::new(rank, 2)
            .with_join_timeout(DEADLINE)
            .with_doorbell(doorbell);
        let contexts = ranks::contexts([hcas[rank as usize].as_ref()]).unwrap();
        let options = CudaOptions::default().with_location(location);
        let gpu: Arc<dyn Gpu> = CudaGpu::with_options(0, &options).unwrap();
        let team = tracing::subscriber::with_default(subscriber, || {
            JoinOptions::new(config)
                .with_contexts(&contexts)
                .with_gpu(&gpu)
                .with_store(store)
                .join()
        });
        let team = team.map_err(|error| error.to_string())?;
        team.window(4096).unwrap();
        team.barrier("seen").unwrap();
        Ok(lines.text())
    });
    ranks::check(&hcas);
    logged
}

#[test]
fn two_ranks_join_with_registers_that_kernels_reach() {
    fake("name a fake").run(|fake| {
        for (location, memory) in [
            (MemoryLocation::Host, "control heap by address"),
            (MemoryLocation::Device, "control heap by dmabuf"),
        ] {
            for log in joined(location, None) {
                let log = log.unwrap();
                for part in ["on a fake and mlx5_", "doorbell without record", memory] {
                    assert!(log.contains(part), "{part:?} is not in {log}");
                }
            }
        }
        let registered = fake.calls("cuMemHostRegister_v2");
        let unregistered = fake.calls("cuMemHostUnregister");
        assert!(!registered.is_empty() && registered.len() == unregistered.len());
        let released = fake.calls("cuDevicePrimaryCtxRelease_v2");
        assert!(
            released.iter().all(|one| one.ends_with("left 0")),
            "{released:?}"
        );
    });
}

#[test]
fn a_driver_that_maps_no_register_makes_the_host_ring_and_says_so_once() {
    fake("").run(|fake| {
        fake.set("refuse cuMemHostRegister_v2 800");
        // By one of the ranks of a machine.
        for (log, times) in joined(MemoryLocation::Host, None).into_iter().zip([1, 0]) {
            let log = log.unwrap();
            assert!(log.contains("doorbell by a host thread"), "{log}");
            let told = "doorbells by a host thread, which costs ";
            assert_eq!(log.matches(told).count(), times, "{log}");
            let reason = log.contains("CUDA_ERROR_NOT_PERMITTED (800)");
            assert_eq!(reason, times == 1, "{log}");
        }
        // One try for each rank.
        assert_eq!(fake.calls("cuMemHostRegister_v2").len(), 2);
    });
}

#[test]
fn a_register_that_was_asked_for_and_is_refused_is_an_error() {
    fake("refuse cuMemHostRegister_v2 800").run(|_| {
        for doorbell in [Doorbell::Record, Doorbell::NoRecord] {
            for error in joined(MemoryLocation::Host, Some(doorbell)) {
                let error = error.unwrap_err();
                for part in [
                    "CUDA_ERROR_NOT_PERMITTED (800)",
                    "WARPVERBS_DOORBELL=mailbox",
                ] {
                    assert!(error.contains(part), "{part:?} is not in {error}");
                }
            }
        }
        for log in joined(MemoryLocation::Host, Some(Doorbell::Mailbox)) {
            assert!(log.unwrap().contains("doorbell by a host thread"));
        }
    });
}

#[test]
fn too_little_memory_for_the_qps_names_both_numbers() {
    fake("name a fake\nmemory 65536").run(|_| {
        let errors = joined(MemoryLocation::Device, None);
        for error in errors {
            let error = error.unwrap_err();
            let free = "of 65536 bytes are free on a fake";
            for part in ["no device memory for", free, "OUT_OF_MEMORY (2)"] {
                assert!(error.contains(part), "{part:?} is not in {error}");
            }
        }
    });
}
