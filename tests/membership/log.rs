//! The log of a test program. Not in `test-support`, because no library depends on what formats a log.

use test_support::log::Lines;

/// Lines of level info and worse of all threads of this process, from now on. One test of a program may ask.
pub(crate) fn of_process() -> Lines {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .without_time()
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    lines
}
