//! On which CPUs the workers of a rail run.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::error::{EngineError, HostError};
use crate::config::{CpuList, EngineCpus};
use crate::provider::ProviderError;

/// The CPUs that this thread may use, and the threads that it starts.
fn allowed() -> Result<Option<CpuList>, HostError> {
    let set = sched_getaffinity(None).map_err(|errno| ProviderError::System {
        call: "sched_getaffinity",
        source: errno.into(),
    })?;
    let has = |cpu: &u32| set.is_set(*cpu as usize);
    let most = u32::try_from(CpuSet::MAX_CPU).unwrap_or(u32::MAX);
    Ok(CpuList::of((0..most).filter(has)))
}

/// The CPUs for the workers of a rail, near whose NIC are those of `near`, where the system says it. None: all that they may use.
pub(super) fn choose(
    wanted: &EngineCpus,
    near: Option<&str>,
) -> Result<Option<CpuList>, HostError> {
    Ok(choice(wanted, near, allowed()?.as_ref())?)
}

fn choice(
    wanted: &EngineCpus,
    near: Option<&str>,
    allowed: Option<&CpuList>,
) -> Result<Option<CpuList>, EngineError> {
    let Some(allowed) = allowed else {
        return Ok(None);
    };
    match wanted {
        EngineCpus::Any => Ok(None),
        EngineCpus::Near => {
            let near = near.and_then(|text| text.trim().parse::<CpuList>().ok());
            // All of them need no word to the system.
            Ok(near
                .and_then(|near| near.within(allowed))
                .filter(|near| near != allowed))
        }
        EngineCpus::Listed(list) => {
            let mut all = list.numbers().iter();
            match all.find(|cpu| !allowed.numbers().contains(cpu)) {
                Some(cpu) => Err(EngineError::Knob {
                    what: "a CPU in WARPVERBS_ENGINE_CPUS",
                    value: (*cpu).into(),
                    limit: format!("of those that this process may use, {allowed}"),
                }),
                None => Ok(Some(list.clone())),
            }
        }
    }
}

/// This thread runs on them from now on. Where the system refuses, it runs where it did.
pub(super) fn pin(cpus: &CpuList) {
    let mut set = CpuSet::new();
    for cpu in cpus.numbers() {
        set.set(*cpu as usize);
    }
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!("a worker does not run on CPUs {cpus}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    #[test]
    fn near_cpus_are_those_of_the_nic_that_the_process_may_use() {
        let allowed = list("0-7");
        let of = |near| choice(&EngineCpus::Near, near, Some(&allowed)).unwrap();
        assert_eq!(of(Some("4-11\n")), Some(list("4-7")));
        for near in [
            None,
            Some(""),
            Some("\n"),
            Some("garbage"),
            Some("8-15"),
            Some("0-7"),
        ] {
            assert_eq!(of(near), None, "{near:?}");
        }
        let any = choice(&EngineCpus::Any, Some("4-5"), Some(&allowed));
        assert_eq!(any.unwrap(), None);
    }

    #[test]
    fn a_listed_cpu_that_the_process_may_not_use_is_refused() {
        let allowed = list("2-3,6");
        let of = |text| choice(&EngineCpus::Listed(list(text)), Some("0-1"), Some(&allowed));
        assert_eq!(of("3,6").unwrap(), Some(list("3,6")));
        assert_eq!(
            of("3-6").unwrap_err().to_string(),
            "a CPU in WARPVERBS_ENGINE_CPUS is 4; it must be of those that this process may use, 2-3,6"
        );
    }
}
