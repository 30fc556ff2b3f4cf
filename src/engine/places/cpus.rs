//! The CPUs on which the workers of a rail run.

use std::{fs, io};

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::config::{CpuList, EngineCpus};
use crate::engine::error::{EngineError, HostError};
use crate::provider::ProviderError;

/// The file in which the kernel lists what it knows of this thread.
const STATUS: &str = "/proc/thread-self/status";

/// Returns the CPUs that this thread, and threads that it starts, may use.
fn allowed() -> Result<Option<CpuList>, HostError> {
    allowed_by(sched_getaffinity(None))
}

/// Returns the CPUs in this answer of the system. If the machine has more CPUs than a mask, they are read from the status of the thread.
fn allowed_by(answer: Result<CpuSet, Errno>) -> Result<Option<CpuList>, HostError> {
    let failed = |call, source| ProviderError::System { call, source };
    match answer {
        Ok(set) => {
            let has = |cpu: &u32| set.is_set(*cpu as usize);
            let most = u32::try_from(CpuSet::MAX_CPU).unwrap_or(u32::MAX);
            Ok(CpuList::of((0..most).filter(has)))
        }
        // The machine has more CPUs than a mask of this size.
        Err(Errno::INVAL) => {
            let status = fs::read_to_string(STATUS).map_err(|error| failed(STATUS, error))?;
            Ok(listed(&status))
        }
        Err(errno) => Err(failed("sched_getaffinity", io::Error::from(errno)).into()),
    }
}

/// Returns the CPUs that the status of a thread lists.
fn listed(status: &str) -> Option<CpuList> {
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    list.trim().parse().ok()
}

/// Returns the CPUs for the workers of a rail. `near` has the CPUs near its NIC, if the system tells them. None: the workers run
/// on all CPUs that they may use.
pub(in crate::engine) fn choose(
    wanted: &EngineCpus,
    near: Option<&str>,
) -> Result<Option<CpuList>, HostError> {
    match wanted {
        EngineCpus::Any => Ok(None),
        _ => Ok(choice(wanted, near, allowed()?.as_ref())?),
    }
}

/// Returns the CPUs of each worker, where each rail has `workers` workers and these CPUs. A list that names as many CPUs as there
/// are workers is divided among them. So the system puts no two workers on one CPU.
pub(in crate::engine) fn of_each(
    wanted: &EngineCpus,
    rails: Vec<Option<CpuList>>,
    workers: u32,
) -> Vec<Option<CpuList>> {
    let workers = workers as usize;
    let all = rails.len() * workers;
    let of_worker = rails
        .into_iter()
        .flat_map(|cpus| std::iter::repeat_n(cpus, workers));
    match wanted {
        EngineCpus::Near | EngineCpus::Any => of_worker.collect(),
        EngineCpus::Listed(_) => (0..)
            .zip(of_worker)
            .map(|(nth, cpus)| Some(cpus?.part(nth, all)))
            .collect(),
    }
}

/// Returns the CPUs on which workers may run, before any NIC is chosen. None: the system does not say.
pub(in crate::engine) fn of_workers(wanted: &EngineCpus) -> Result<Option<CpuList>, HostError> {
    match wanted {
        EngineCpus::Listed(list) => Ok(Some(list.clone())),
        EngineCpus::Any | EngineCpus::Near => allowed(),
    }
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
            // If the near CPUs are all that the workers may use, no CPUs need to be set.
            Ok(near
                .and_then(|near| near.within(allowed))
                .filter(|near| near != allowed))
        }
        EngineCpus::Listed(list) => {
            let mut all = list.numbers().iter();
            match all.find(|cpu| !allowed.has(**cpu)) {
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

/// Lets this thread run on these CPUs from now on, as far as the mask of the call has them. If the system refuses, the thread
/// runs where it did.
pub(in crate::engine) fn pin(cpus: &CpuList) {
    if let Err(error) = sched_setaffinity(None, &mask(cpus)) {
        tracing::warn!("a worker does not run on CPUs {cpus}: {error}");
    }
}

fn mask(cpus: &CpuList) -> CpuSet {
    let mut set = CpuSet::new();
    let numbers = cpus.numbers().iter().map(|cpu| *cpu as usize);
    for cpu in numbers.take_while(|cpu| *cpu < CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    set
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
    fn a_mask_that_is_too_short_gives_way_to_the_list_of_the_kernel() {
        let by_mask = allowed().unwrap();
        assert!(by_mask.is_some());
        assert_eq!(allowed_by(Err(Errno::INVAL)).unwrap(), by_mask);
        let refused = allowed_by(Err(Errno::PERM)).unwrap_err().to_string();
        assert!(refused.starts_with("sched_getaffinity: "), "{refused}");
        let status = "Name:\twv\nCpus_allowed:\tff,00000000\nCpus_allowed_list:\t1022-1025,4000\n";
        assert_eq!(listed(status), Some(list("1022-1025,4000")));
        for other in ["", "Cpus_allowed_list:\t\n", "Cpus_allowed_list:\t8192\n"] {
            assert_eq!(listed(other), None, "{other}");
        }
    }

    #[test]
    fn a_mask_has_those_cpus_that_fit_it() {
        let set = mask(&list("0,1023-1024,8191"));
        let has = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
        assert_eq!(has.collect::<Vec<_>>(), [0, 1023]);
    }

    #[test]
    fn workers_may_run_on_listed_cpus_else_on_those_of_the_process() {
        let of = |text: &str| of_workers(&text.parse().unwrap()).unwrap();
        assert_eq!(of("8000-8001"), Some(list("8000-8001")));
        for word in ["any", "near"] {
            assert_eq!(of(word), allowed().unwrap(), "{word}");
        }
        assert_eq!(choose(&EngineCpus::Any, Some("0")).unwrap(), None);
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
