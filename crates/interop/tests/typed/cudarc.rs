//! Streams and memory of cudarc, on the CUDA driver without a GPU.

// UNSAFETY: hands on what outlives its use.
#![expect(unsafe_code, reason = "streams and memory of cudarc")]

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, result, sys};
use test_support::fake_cuda::FakeDriver;
use test_support::limits::HANG;
use warpverbs_interop::cudarc::{gpu, memory, stream};

use kept::is_kept;
use orders::orders;

mod kept;
mod orders;

fn open(ordinal: usize) -> Arc<CudaContext> {
    CudaContext::new(ordinal).unwrap()
}

fn new_stream(context: &Arc<CudaContext>) -> Arc<CudaStream> {
    context.new_stream().unwrap()
}

fn raw(stream: &CudaStream) -> sys::CUstream {
    stream.cu_stream()
}

extern "C" fn nothing(_: *mut c_void) {}

/// A function of the program in its stream.
fn host(stream: &CudaStream) {
    // SAFETY: the stream lives, and the function needs nothing.
    unsafe {
        result::stream::launch_host_function(raw(stream), nothing, std::ptr::null_mut()).unwrap();
    }
}

#[test]
fn what_is_called_on_a_stream_of_the_program_comes_behind_what_is_there() {
    FakeDriver::new("").run(|fake| {
        let context = open(0);
        let own = new_stream(&context);
        let gpu = gpu(&context).unwrap();
        // SAFETY: the stream is dropped after the result.
        let stream = unsafe { stream(gpu.as_ref(), &own) }.unwrap();
        fake.note_order();
        host(&own);
        let event = stream.record().unwrap();
        host(&own);
        event.wait(HANG).unwrap();
        let order = fake.order();
        let of = format!("{:p}", raw(&own));
        assert!(order.iter().all(|(stream, _)| *stream == of), "{order:?}");
        let what: Vec<_> = order.iter().map(|(_, what)| what.as_str()).collect();
        assert_eq!(what, ["host", "event", "host"]);
        drop(stream);
        assert!(fake.calls("cuStreamDestroy_v2").is_empty());
    });
}

#[test]
fn a_stream_of_another_gpu_is_refused_by_both() {
    FakeDriver::new("devices 2\nname a fake").run(|_| {
        let other = open(1);
        let own = new_stream(&other);
        let context = open(0);
        let gpu = gpu(&context).unwrap();
        // SAFETY: the stream lives.
        let error = unsafe { stream(gpu.as_ref(), &own) }.unwrap_err().to_string();
        let begin = "stream is of another context, on CUDA device 1; it must be one of the primary context of CUDA device 0";
        assert!(error.starts_with(begin), "{error}");
    });
}

#[test]
fn memory_of_the_program_is_reached_and_not_freed() {
    FakeDriver::new("").run(|fake| {
        let context = open(0);
        let gpu = gpu(&context).unwrap();
        let mut own = context.default_stream().alloc_zeros::<u64>(1024).unwrap();
        // SAFETY: nothing of the program uses it meanwhile.
        let lent = unsafe { memory(gpu.as_ref(), &mut own) }.unwrap();
        assert_eq!(lent.bytes(), 8192);
        gpu.write(lent.addr() + 8184, &[7; 8]).unwrap();
        let freed = fake.calls("cuMemFree_v2").len();
        let addr = lent.addr();
        drop(lent);
        assert_eq!(fake.calls("cuMemFree_v2").len(), freed);
        assert!(gpu.check_range(addr, 8).is_err());
    });
}

#[test]
fn parts_that_are_dropped_in_any_order_leave_the_program_what_it_has() {
    FakeDriver::new("").run(|fake| {
        let orders = orders(4);
        for order in &orders {
            let context = open(0);
            let own = new_stream(&context);
            let mut own_memory = own.alloc_zeros::<u64>(1024).unwrap();
            let gpu = gpu(&context).unwrap();
            // SAFETY: the program keeps both until the parts are gone.
            let (stream, memory) = unsafe {
                let stream = stream(gpu.as_ref(), &own).unwrap();
                (stream, memory(gpu.as_ref(), &mut own_memory).unwrap())
            };
            let addr = memory.addr();
            is_kept(
                (fake, addr),
                [
                    Box::new(stream),
                    Box::new(memory),
                    Box::new(context),
                    Box::new(gpu),
                ],
                order,
            );
        }
        println!("{} orders of 4 parts", orders.len());
    });
}
