//! The operations, and one call of each.

use std::time::Duration;

use test_support::abi::conformance as abi;
use test_support::abi::conformance::{ConformanceEnd, ConformanceParams};
use test_support::abi::kernels::PutItem;
use warpverbs::abi::Status;
use warpverbs::gpu::Event;

use test_support::bench::{Bench, HALF};

/// One operation of the library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    /// What is in flight when it is called: CONFORMANCE_*.
    pub(crate) before: u32,
    /// The call itself, and what ends it.
    call: u32,
    end: u32,
    /// Whether it posts, so that a full ring or an error refuses it.
    pub(crate) posts: bool,
    /// Whether it has a form that does not wait for ring space.
    pub(crate) has_try: bool,
    /// It looks at the error word and at no completion.
    pub(crate) only_word: bool,
}

const fn post(name: &'static str, call: u32) -> Operation {
    Operation {
        name,
        before: call,
        call,
        end: abi::CONFORMANCE_END_WAIT,
        posts: true,
        has_try: true,
        only_word: false,
    }
}

const fn after_puts(name: &'static str, call: u32, end: u32) -> Operation {
    Operation {
        before: abi::CONFORMANCE_PUT,
        end,
        ..post(name, call)
    }
}

const fn wait(name: &'static str, end: u32) -> Operation {
    Operation {
        posts: false,
        has_try: false,
        ..after_puts(name, abi::CONFORMANCE_NOTHING, end)
    }
}

/// All of them.
pub(crate) const ALL: [Operation; 18] = [
    post("put", abi::CONFORMANCE_PUT),
    post("put_value", abi::CONFORMANCE_PUT_VALUE),
    post("put_signal", abi::CONFORMANCE_PUT_SIGNAL),
    post("signal", abi::CONFORMANCE_SIGNAL),
    post("signal, add", abi::CONFORMANCE_SIGNAL_ADD),
    post("put_two", abi::CONFORMANCE_PUT_TWO),
    Operation {
        end: abi::CONFORMANCE_END_WAIT_DATA,
        ..post("get", abi::CONFORMANCE_GET)
    },
    Operation {
        end: abi::CONFORMANCE_END_WAIT_DATA,
        ..post("amo", abi::CONFORMANCE_ADD)
    },
    Operation {
        end: abi::CONFORMANCE_END_WAIT_DATA,
        ..post("amo, 4 bytes", abi::CONFORMANCE_AMO)
    },
    post("put_imm", abi::CONFORMANCE_PUT_IMM),
    after_puts("fence", abi::CONFORMANCE_FENCE, abi::CONFORMANCE_END_WAIT),
    Operation {
        has_try: false,
        ..after_puts("flush", abi::CONFORMANCE_FLUSH, abi::CONFORMANCE_END_WAIT)
    },
    Operation {
        has_try: false,
        ..after_puts(
            "quiet",
            abi::CONFORMANCE_NOTHING,
            abi::CONFORMANCE_END_QUIET,
        )
    },
    wait("wait", abi::CONFORMANCE_END_WAIT),
    wait("test", abi::CONFORMANCE_END_TEST),
    wait("wait_any", abi::CONFORMANCE_END_WAIT_ANY),
    Operation {
        only_word: true,
        ..wait("wait_signal", abi::CONFORMANCE_END_WAIT_SIGNAL)
    },
    Operation {
        call: abi::CONFORMANCE_TAKE_IMM,
        has_try: true,
        only_word: true,
        ..wait("wait_imm", abi::CONFORMANCE_END_NOTHING)
    },
];

/// How a call ended: what it returned at last, and how long it took on the device clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// What posting returned; of an operation that posts nothing `ok`.
    pub(crate) posted: Status,
    pub(crate) status: Status,
    pub(crate) took: Duration,
}

impl From<&ConformanceEnd> for Outcome {
    fn from(end: &ConformanceEnd) -> Self {
        Self {
            posted: end.posted,
            status: end.status,
            // The longer one of the two calls: each has a deadline of its own.
            took: Duration::from_nanos(end.post_ns.max(end.end_ns)),
        }
    }
}

/// `count` items of 28 bytes, which any operation can put, each at its own place.
pub(crate) fn items(count: u64) -> Vec<PutItem> {
    let item = |k: u64| PutItem {
        src_offset: 32 * k,
        dst_offset: HALF + 32 * k,
        bytes: 28,
    };
    (0..count).map(item).collect()
}

impl Operation {
    /// One scope makes the call.
    pub(crate) fn start(
        &self,
        bench: &Bench,
        ticket: u64,
        deadline: Duration,
        options: u32,
    ) -> Event {
        let deadline_ns = u64::try_from(deadline.as_nanos()).unwrap();
        let solo = bench.cell.solo();
        let takes_items = matches!(
            self.call,
            abi::CONFORMANCE_PUT
                | abi::CONFORMANCE_PUT_VALUE
                | abi::CONFORMANCE_PUT_SIGNAL
                | abi::CONFORMANCE_GET
                | abi::CONFORMANCE_PUT_TWO
                | abi::CONFORMANCE_ADD
                | abi::CONFORMANCE_AMO
                | abi::CONFORMANCE_PUT_IMM
        );
        let list = if takes_items {
            items(solo.size.into())
        } else {
            Vec::new()
        };
        let params = ConformanceParams {
            operation: self.call,
            end: self.end,
            options,
            rounds: 1,
            ticket,
            deadline_ns,
            ..bench.params(0, &list)
        };
        bench.start(0, &bench.cell.kernel(), solo, &params)
    }

    /// Waits for the call.
    pub(crate) fn finish(bench: &Bench, event: &Event) -> Outcome {
        Outcome::from(&bench.finish(0, event, 1)[0])
    }

    /// Makes the call and waits for it.
    pub(crate) fn call(
        &self,
        bench: &Bench,
        ticket: u64,
        deadline: Duration,
        options: u32,
    ) -> Outcome {
        bench.forget();
        let event = self.start(bench, ticket, deadline, options);
        Self::finish(bench, &event)
    }
}
