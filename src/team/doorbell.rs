//! How the HCAs hear of work where the configuration leaves that open: in the cheapest way that neither HCA nor GPU refuses.

use super::{Doorbell, TeamConfig, TeamError};
use crate::gpu::GpuError;
use crate::verbs::Caps;

/// The ways that are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ringing {
    /// What the configuration says.
    asked: Option<Doorbell>,
    /// Kernels reach the registers.
    register: bool,
    /// An HCA says that it can do without records, and has not refused it.
    no_record: bool,
}

impl Ringing {
    /// On devices with these capabilities.
    pub(super) fn new<'a>(config: &TeamConfig, caps: impl IntoIterator<Item = &'a Caps>) -> Self {
        let mut ways = caps.into_iter().map(Doorbell::by_capability);
        Self {
            asked: config.doorbell,
            register: true,
            no_record: ways.any(|way| way == Doorbell::NoRecord),
        }
    }

    /// For QPs on a device with `caps`.
    pub(super) fn on(&self, caps: &Caps) -> Doorbell {
        match self.asked {
            Some(asked) => asked,
            None if !self.register => Doorbell::Mailbox,
            None if !self.no_record => Doorbell::Record,
            None => Doorbell::by_capability(caps),
        }
    }

    /// Goes on to the next way if `refusal` is one of the present way, and tells so; whether it is. Each way is left once, for all
    /// rails: a GPU that does not map the registers of one HCA maps those of none.
    pub(super) fn fall_back(&mut self, refusal: &TeamError) -> bool {
        if self.asked.is_some() || !self.register {
            return false;
        }
        match refusal {
            TeamError::Gpu(GpuError::Doorbell { .. }) => {
                self.register = false;
                tracing::warn!("a thread of the host rings for this rank: {refusal}");
                true
            }
            TeamError::Verbs(error) if self.no_record && error.is_of_no_record() => {
                self.no_record = false;
                tracing::warn!("QPs are rung by doorbell records: {refusal}");
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_the_register() -> TeamError {
        TeamError::Gpu(GpuError::Doorbell {
            kind: "I/O memory",
            refusal: "refused".to_owned(),
            advice: "",
        })
    }

    #[test]
    fn each_way_is_left_once_and_only_for_a_refusal_of_it() {
        let mut auto = Ringing::new(&TeamConfig::new(0, 2), None);
        let other = TeamError::limit("ranks", 0, "1");
        assert!(!auto.fall_back(&other));
        let lost = TeamError::Gpu(GpuError::NoDevice {
            ordinal: 0,
            count: 0,
        });
        assert!(!auto.fall_back(&lost));
        assert_eq!(auto, Ringing::new(&TeamConfig::new(0, 2), None));
        assert!(auto.fall_back(&of_the_register()));
        assert!(!auto.fall_back(&of_the_register()));
    }

    #[test]
    fn what_was_asked_for_is_never_left() {
        for doorbell in [Doorbell::Record, Doorbell::NoRecord, Doorbell::Mailbox] {
            let config = TeamConfig::new(0, 2).with_doorbell(Some(doorbell));
            let mut asked = Ringing::new(&config, None);
            assert!(!asked.fall_back(&of_the_register()));
        }
    }
}
