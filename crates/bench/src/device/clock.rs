//! The clock of a device, read between the launches of a stream. A host would measure how long its thread sleeps.

// UNSAFETY: launches the kernel that stores the clock.
#![expect(unsafe_code, reason = "launch of the kernel that stores the clock")]

use std::mem::ManuallyDrop;
use std::time::Duration;

use bytemuck::{bytes_of, cast_slice_mut};

use crate::device::abi::StampBenchParams;
use crate::error::BenchError;
use warpverbs::abi::DevicePtr;
use warpverbs::gpu::{DeviceMemory, Gpu, Launch, Stream};

/// Times of the device clock, stored in one stream. The device has the kernels of this crate.
pub(crate) struct Clock<'a> {
    gpu: &'a dyn Gpu,
    stream: &'a Stream,
    /// Memory for the times. Only `read` frees it: without `read` a launch may still store to it.
    times: ManuallyDrop<DeviceMemory>,
    count: u32,
    taken: u32,
}

impl<'a> Clock<'a> {
    /// Returns a clock with room for `count` times.
    pub(crate) fn new(
        gpu: &'a dyn Gpu,
        stream: &'a Stream,
        count: u32,
    ) -> Result<Self, BenchError> {
        Ok(Self {
            times: ManuallyDrop::new(gpu.alloc(8 * count as usize, 128)?),
            gpu,
            stream,
            count,
            taken: 0,
        })
    }

    /// Launches a kernel that stores the time at which all earlier work of the stream has ended.
    pub(crate) fn stamp(&mut self) -> Result<(), BenchError> {
        assert!(self.taken < self.count, "room was made for each stamp");
        let params = StampBenchParams {
            at: DevicePtr::new(self.times.addr() + 8 * u64::from(self.taken)),
        };
        let launch = Launch::new("wv_bench_stamp", 1, 32).with_stream(Some(self.stream));
        // SAFETY: the word lies in `times`, which lives until `read` has waited for the stream.
        unsafe { self.gpu.launch(&launch, bytes_of(&params)) }?;
        self.taken += 1;
        Ok(())
    }

    /// Waits for the stream, at most `patience`. Returns all stored times, ns.
    pub(crate) fn read(self, patience: Duration) -> Result<Vec<u64>, BenchError> {
        let end = self.stream.record()?;
        self.gpu.wait(&end, patience)?;
        let memory = ManuallyDrop::into_inner(self.times);
        let mut times = vec![0u64; self.taken as usize];
        self.gpu.read(memory.addr(), cast_slice_mut(&mut times))?;
        Ok(times)
    }
}
