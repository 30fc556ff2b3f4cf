//! Ranks as threads of one process, which run at the same time, each with a software HCA of its own.

use std::thread;

use crate::error::BenchError;
use warpverbs::error::ThreadPanicked;

/// Returns the first `ranks` of `devices`.
pub(super) fn devices_of(ranks: u32, devices: &[String]) -> Result<&[String], BenchError> {
    let few = || BenchError::Option {
        what: "number of HCAs",
        value: devices.len().to_string(),
        limit: format!("{ranks} or more, one for each rank"),
    };
    devices.get(..ranks as usize).ok_or_else(few)
}

/// Runs all of `runs` at the same time. Returns their results in order, or the first error. `case` names them in an error.
pub(super) fn together<T: Send>(
    runs: Vec<impl FnOnce() -> Result<T, BenchError> + Send>,
    case: &str,
) -> Result<Vec<T>, BenchError> {
    thread::scope(|scope| {
        let threads: Vec<_> = runs.into_iter().map(|run| scope.spawn(run)).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            let panicked = |panic: Box<_>| BenchError::Wrong {
                case: case.to_owned(),
                detail: ThreadPanicked::new("rank", &*panic).to_string(),
            };
            thread.join().map_err(panicked).flatten()
        };
        threads.into_iter().map(join).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_has_a_device_and_too_few_are_refused_with_both_numbers() {
        let devices = ["a".to_owned(), "b".to_owned()];
        assert_eq!(devices_of(1, &devices).unwrap(), ["a"]);
        let error = devices_of(3, &devices).unwrap_err().to_string();
        assert!(
            error.contains('2') && error.contains("3 or more"),
            "{error}"
        );
    }

    #[test]
    fn results_come_in_order_and_one_error_is_that_of_all() {
        let run = |fails: u32| {
            let runs = (0..4u32).map(|rank| {
                move || match rank == fails {
                    true => devices_of(rank, &[]).map(|_| rank),
                    false => Ok(rank),
                }
            });
            together(runs.collect(), "a case")
        };
        assert_eq!(run(9).unwrap(), [0, 1, 2, 3]);
        assert!(run(2).is_err());
    }
}
