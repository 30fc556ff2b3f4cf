use super::*;
use crate::gpu::Stream;
use std::sync::mpsc::{SyncSender, sync_channel};

const LONG: Duration = Duration::from_secs(60);

/// A list of numbers in the order in which work ran.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u32>>>);

impl Log {
    fn note(&self, number: u32) -> Work {
        let log = self.clone();
        Arc::new(move |_| {
            lock(&log.0).push(number);
            Ok(())
        })
    }

    fn take(&self) -> Vec<u32> {
        std::mem::take(&mut *lock(&self.0))
    }
}

/// Returns work that does not end before the sender has sent.
fn gate() -> (SyncSender<()>, Work) {
    let (gate, open) = sync_channel::<()>(0);
    let open = Mutex::new(open);
    let work = move |_| lock(&open).recv().map_err(|error| error.to_string());
    (gate, Arc::new(work))
}

fn streams<const N: usize>() -> [Arc<SimtStream>; N] {
    let health = Arc::default();
    [(); N].map(|()| Arc::new(SimtStream::start(&health).unwrap()))
}

fn public(stream: &Arc<SimtStream>) -> Stream {
    let stream: Arc<SimtStream> = Arc::clone(stream);
    Stream::new(stream)
}

fn replay(graph: &Graph, stream: &Arc<SimtStream>) {
    // SAFETY: the work of these tests uses no addresses.
    let event = unsafe { graph.launch(&public(stream)) }.unwrap();
    event.wait(LONG).unwrap();
}

#[test]
fn work_runs_in_order_and_launching_does_not_wait() {
    let [stream] = streams();
    let log = Log::default();
    let (open, closed) = gate();
    let first = stream.submit("first", closed).unwrap();
    let second = stream.submit("second", log.note(2)).unwrap();
    assert!(!first.is_done() && !second.is_done());
    let error = first.wait(Duration::from_millis(5)).unwrap_err();
    assert!(matches!(error, GpuError::Timeout { .. }), "{error}");
    open.send(()).unwrap();
    second.wait(LONG).unwrap();
    assert!(first.is_done());
    first.wait(Duration::ZERO).unwrap();
    assert_eq!(log.take(), [2]);
}

#[test]
fn streams_run_beside_each_other_and_wait_for_events_only() {
    let [a, b] = streams();
    let log = Log::default();
    let (open, closed) = gate();
    let held = a.submit("held", closed).unwrap();
    b.submit("free", log.note(1)).unwrap().wait(LONG).unwrap();
    b.wait(&held).unwrap();
    let behind = b.submit("behind", log.note(2)).unwrap();
    assert!(!behind.is_done());
    open.send(()).unwrap();
    behind.wait(LONG).unwrap();
    assert!(held.is_done());
    let end = b.record().unwrap();
    end.wait(LONG).unwrap();
    assert_eq!(log.take(), [1, 2]);
}

#[test]
fn a_failure_stops_every_stream_of_the_device_until_it_has_been_seen() {
    let [a, b] = streams();
    let log = Log::default();
    let (open, closed) = gate();
    a.submit("held", closed).unwrap();
    let bad = a
        .submit("bad", Arc::new(|_| Err("deadlock: block 3".to_owned())))
        .unwrap();
    let behind = a.submit("behind", log.note(1)).unwrap();
    b.wait(&bad).unwrap();
    let other = b.submit("other", log.note(2)).unwrap();
    open.send(()).unwrap();
    for (event, name) in [(&behind, "behind"), (&other, "other")] {
        assert_eq!(
            event.wait(LONG).unwrap_err().to_string(),
            format!("kernel {name} did not run: bad failed before it on the same device")
        );
    }
    // `is_done` does not count as a look at the failure.
    assert!(bad.is_done());
    assert!(b.submit("again", log.note(3)).is_err());
    for _ in 0..2 {
        let error = bad.wait(LONG).unwrap_err().to_string();
        assert_eq!(error, "kernel bad failed: deadlock: block 3");
    }
    b.submit("good", log.note(4)).unwrap().wait(LONG).unwrap();
    assert_eq!(log.take(), [4]);
}

#[test]
fn dropping_the_stream_runs_what_was_queued() {
    let [stream] = streams();
    let event = stream.submit("last", Arc::new(|_| Ok(()))).unwrap();
    drop(stream);
    event.wait(Duration::ZERO).unwrap();
}

#[test]
fn a_graph_runs_what_was_recorded_as_often_as_it_is_launched() {
    let [a, b] = streams();
    let log = Log::default();
    a.begin_capture().unwrap();
    let event = a.submit("first", log.note(1)).unwrap();
    a.submit("second", log.note(2)).unwrap();
    let error = event.wait(LONG).unwrap_err();
    assert!(matches!(error, GpuError::Captured { .. }), "{error}");
    let graph = a.end_capture().unwrap();
    assert_eq!((graph.len(), log.take()), (2, vec![]));
    replay(&graph, &a);
    a.submit("eager", log.note(9)).unwrap().wait(LONG).unwrap();
    replay(&graph, &b);
    assert_eq!(log.take(), [1, 2, 9, 1, 2]);
}

#[test]
fn a_replay_keeps_every_recorded_order_and_no_other() {
    let [a, b] = streams();
    let log = Log::default();
    a.begin_capture().unwrap();
    let fork = a.submit("fork", log.note(0)).unwrap();
    b.wait(&fork).unwrap();
    a.submit("left", log.note(1)).unwrap();
    a.submit("left", log.note(2)).unwrap();
    b.submit("right", log.note(3)).unwrap();
    let end = b.record().unwrap();
    a.wait(&end).unwrap();
    a.submit("join", log.note(4)).unwrap();
    let graph = a.end_capture().unwrap();
    b.submit("eager again", log.note(7))
        .unwrap()
        .wait(LONG)
        .unwrap();
    assert_eq!(log.take(), [7]);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..60 {
        replay(&graph, &a);
        seen.insert(log.take());
    }
    let orders = [[0, 1, 2, 3, 4], [0, 1, 3, 2, 4], [0, 3, 1, 2, 4]];
    assert_eq!(seen, orders.map(Vec::from).into());
}

#[test]
fn a_graph_whose_node_fails_says_which() {
    let [stream] = streams();
    stream.begin_capture().unwrap();
    stream
        .submit("bad", Arc::new(|_| Err("trap".to_owned())))
        .unwrap();
    let graph = stream.end_capture().unwrap();
    // SAFETY: the work uses no addresses.
    let event = unsafe { graph.launch(&public(&stream)) }.unwrap();
    let error = event.wait(LONG).unwrap_err().to_string();
    assert_eq!(error, "kernel a graph failed: bad: trap");
}

#[test]
fn what_a_capture_does_not_allow_is_refused_in_words() {
    let [a, b, c] = streams();
    let log = Log::default();
    let refusal = |result: Result<(), GpuError>| result.unwrap_err().to_string();
    let ended = |stream: &Arc<SimtStream>| refusal(stream.end_capture().map(drop));
    assert!(ended(&a).contains("none began in this stream"));
    let eager = b.submit("eager", log.note(1)).unwrap();
    a.begin_capture().unwrap();
    assert!(refusal(a.begin_capture()).contains("in one already"));
    assert!(refusal(a.wait(&eager)).contains("eager, which is not recorded"));
    let fork = a.submit("fork", log.note(2)).unwrap();
    b.wait(&fork).unwrap();
    assert!(ended(&b).contains("began in another stream"));
    c.begin_capture().unwrap();
    assert!(refusal(c.wait(&fork)).contains("in another one than the event"));
    b.submit("lost", log.note(3)).unwrap();
    assert!(ended(&a).contains("lost ran in a stream that the first one has not waited for"));
    assert!(refusal(c.wait(&fork)).contains("has ended"));
    // After a refused end, all of them are normal streams again.
    eager.wait(LONG).unwrap();
    for stream in [&a, &b] {
        stream
            .submit("good", log.note(4))
            .unwrap()
            .wait(LONG)
            .unwrap();
    }
    assert_eq!(log.take(), [1, 4, 4]);
    // An empty recording is a graph, too. A stream refuses the event and the graph of another device.
    let empty = c.end_capture().unwrap();
    assert!(empty.is_empty());
    replay(&empty, &a);
    let [foreign] = streams();
    // SAFETY: the graph is empty.
    let error = refusal(unsafe { empty.launch(&public(&foreign)) }.map(drop));
    assert!(error.contains("stream is of another device"), "{error}");
    let error = refusal(foreign.wait(&eager));
    assert!(error.contains("event is of another device"), "{error}");
}

#[test]
fn a_stream_that_goes_away_takes_its_capture_with_it() {
    let [a, b] = streams();
    let log = Log::default();
    a.begin_capture().unwrap();
    let fork = a.submit("fork", log.note(1)).unwrap();
    b.wait(&fork).unwrap();
    drop(a);
    b.submit("good", log.note(2)).unwrap().wait(LONG).unwrap();
    assert_eq!(log.take(), [2]);
}

#[test]
fn a_graph_may_be_part_of_another() {
    let [stream] = streams();
    let log = Log::default();
    stream.begin_capture().unwrap();
    stream.submit("inner", log.note(1)).unwrap();
    let inner = stream.end_capture().unwrap();
    stream.begin_capture().unwrap();
    for _ in 0..2 {
        // SAFETY: the work uses no addresses.
        unsafe { inner.launch(&public(&stream)) }.unwrap();
        stream.submit("outer", log.note(2)).unwrap();
    }
    let outer = stream.end_capture().unwrap();
    replay(&outer, &stream);
    assert_eq!(log.take(), [1, 2, 1, 2]);
}

#[test]
fn panicking_work_reports_the_words_of_its_panic_and_the_stream_goes_on() {
    let [stream] = streams();
    let log = Log::default();
    let broken = stream
        .submit("broken", Arc::new(|_| panic!("planted {}", 5)))
        .unwrap();
    let behind = public(&stream);
    while !broken.is_done() {
        std::thread::yield_now();
    }
    let refused = stream.submit("next", log.note(1)).unwrap_err();
    assert!(matches!(refused, GpuError::Poisoned { .. }), "{refused}");
    let error = broken.wait(LONG).unwrap_err();
    let GpuError::Panicked(panicked) = &error else {
        panic!("{error}");
    };
    assert_eq!(
        (panicked.thread.as_str(), panicked.message.as_str()),
        ("simt-stream", "planted 5")
    );
    behind.record().unwrap().wait(LONG).unwrap();
    stream
        .submit("after", log.note(2))
        .unwrap()
        .wait(LONG)
        .unwrap();
    assert_eq!(log.take(), [2]);
}

#[test]
fn a_launch_that_no_thread_runs_any_more_ends_with_that() {
    let done = Done::new("lost");
    let pending = Pending {
        done: Arc::clone(&done),
        health: Arc::default(),
    };
    drop(Ending(done));
    let error = pending.wait(LONG).unwrap_err();
    assert!(matches!(error, GpuError::Panicked(_)), "{error}");
}
