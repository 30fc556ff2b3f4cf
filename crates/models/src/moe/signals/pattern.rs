//! The orders of phases that programs run. All ranks run the same order. Tests that drive the kernels use these orders too.

/// The kind of a phase that dispatches.
pub const DISPATCH: usize = 0;
/// The kind of a phase that combines.
pub const COMBINE: usize = 1;

/// One phase of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// True if the phase sends. Otherwise it receives.
    pub sends: bool,
    /// The kind: [`DISPATCH`] or [`COMBINE`].
    pub kind: usize,
    /// The number of the call, from 1 on.
    pub call: u8,
}

/// An order of phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// A call is dispatched and combined, then the next call is.
    Fused,
    /// A combine is received after the next dispatch is sent.
    Hook,
    /// The calls of two micro-batches overlap.
    TwoBatches,
    /// Calls have no combine.
    DispatchOnly,
    /// There is no combine. A dispatch is received after the next one is sent.
    Split,
    /// Every second call has no combine.
    EverySecondCombine,
    /// Combines are sent and never received.
    DroppedHook,
}

use Pattern::{DispatchOnly, DroppedHook, EverySecondCombine, Fused, Hook, Split, TwoBatches};

impl Pattern {
    /// All seven orders.
    pub const ALL: [Self; 7] = [
        Fused,
        Hook,
        TwoBatches,
        DispatchOnly,
        Split,
        EverySecondCombine,
        DroppedHook,
    ];

    /// Returns the name of the order, in words.
    pub fn name(self) -> &'static str {
        match self {
            Fused => "fused",
            Hook => "hook after next send",
            TwoBatches => "two micro-batches",
            DispatchOnly => "dispatch only",
            Split => "dispatch-only split",
            EverySecondCombine => "every second combine missing",
            DroppedHook => "combine never received",
        }
    }

    /// Returns the phases of `calls` calls.
    pub fn phases(self, calls: u8) -> Vec<Phase> {
        let phase = |sends, kind| move |call| Phase { sends, kind, call };
        let (send, receive) = (phase(true, DISPATCH), phase(false, DISPATCH));
        let (send_back, receive_back) = (phase(true, COMBINE), phase(false, COMBINE));
        let mut phases = Vec::new();
        match self {
            Hook | Split => phases.push(send(1)),
            TwoBatches => phases.extend([send(1), send(2)]),
            _ => {}
        }
        for call in 1..=calls {
            let next = (call < calls).then(|| send(call + 1));
            match self {
                Fused => {
                    phases.extend([
                        send(call),
                        receive(call),
                        send_back(call),
                        receive_back(call),
                    ]);
                }
                Hook => {
                    phases.extend([receive(call), send_back(call)]);
                    phases.extend(next);
                    phases.push(receive_back(call));
                }
                TwoBatches => {
                    if call % 2 == 0 {
                        continue;
                    }
                    phases.extend([receive(call), send_back(call)]);
                    phases.extend([receive(call + 1), send_back(call + 1)]);
                    phases.push(receive_back(call));
                    phases.extend((call + 2 <= calls).then(|| send(call + 2)));
                    phases.push(receive_back(call + 1));
                    phases.extend((call + 3 <= calls).then(|| send(call + 3)));
                }
                DispatchOnly => phases.extend([send(call), receive(call)]),
                Split => {
                    phases.extend(next);
                    phases.push(receive(call));
                }
                EverySecondCombine => {
                    phases.extend([send(call), receive(call)]);
                    if call % 2 == 1 {
                        phases.extend([send_back(call), receive_back(call)]);
                    }
                }
                DroppedHook => phases.extend([send(call), receive(call), send_back(call)]),
            }
        }
        phases
    }
}
