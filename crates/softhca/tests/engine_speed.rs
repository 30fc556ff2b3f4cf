//! What the engine costs. That an idle one sleeps is tested; speeds are printed, by hand:
//! `cargo test -p softhca --test engine_speed -- --ignored --nocapture`.

use softhca::{Hca, HcaConfig};
use softhca_rig::engine_time::{engine_sleeps, engine_time};
use softhca_rig::{End, Pair, Shape};
use std::time::{Duration, Instant};

#[test]
fn an_idle_engine_sleeps() {
    // What a rank of eight has: 32 QPs, here without peers.
    let hca = Hca::new().unwrap();
    let mut ends: Vec<End> = (0..32).map(|_| End::new(&hca, Shape::default())).collect();
    for end in &mut ends {
        end.connect(hca.gid(), end.qpn, 1);
        end.nop(true);
        end.run(1);
    }
    // Each sleep of an idle engine is twice as long as the one before it, up to 4 ms. A machine that is slow makes them longer and
    // never shorter. So `SLEEPS` of them take at least 4 ms each. The test asks for half of that: something else may end a sleep,
    // such as a fault on a page.
    const SLEEPS: u64 = 128;
    const LEAST: Duration = Duration::from_millis(4 * SLEEPS / 2);
    let (before, start, time) = (engine_sleeps(), Instant::now(), engine_time());
    softhca_rig::patience::wait_until("an idle engine sleeps again and again", || {
        std::thread::sleep(Duration::from_millis(20));
        engine_sleeps() >= before + SLEEPS
    });
    let elapsed = start.elapsed();
    let share = (engine_time() - time).as_secs_f64() / elapsed.as_secs_f64();
    println!(
        "idle engine with 32 QPs: {:.2}% of a core, {} sleeps in {elapsed:?}",
        share * 100.0,
        engine_sleeps() - before
    );
    assert!(elapsed >= LEAST, "{elapsed:?}");
}

/// Posts batches and waits for the last WQE of each. Returns WQEs per second, and the least time per WQE from doorbell to
/// completion of a batch, in nanoseconds. The engine needs that time if no other thread takes its core.
fn rate(pair: &mut Pair, bytes: u32, batch: u16, time: Duration) -> (f64, f64) {
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    let start = Instant::now();
    let mut wqes = 0u64;
    let mut least = Duration::MAX;
    while start.elapsed() < time {
        let mut last = 0;
        for _ in 0..batch {
            last = if bytes <= 24 {
                pair.a
                    .write_inline(&[1; 24][..bytes as usize], remote, rkey)
            } else {
                pair.a.write(0, bytes, remote, rkey)
            };
        }
        let rung = Instant::now();
        pair.a.post();
        pair.a
            .poll_for(softhca_rig::patience::HANG, |cqe| {
                cqe.wqe_counter.get() == last
            })
            .expect("the batch completes");
        least = least.min(rung.elapsed());
        wqes += u64::from(batch);
    }
    (
        wqes as f64 / start.elapsed().as_secs_f64(),
        least.as_secs_f64() * 1e9 / f64::from(batch),
    )
}

#[test]
#[ignore = "a measurement"]
fn rates() {
    for loopback in [true, false] {
        let config = HcaConfig {
            loopback,
            ..HcaConfig::default()
        };
        let shape = Shape {
            log_depth: 10,
            log_cq: None,
            data_bytes: 1 << 20,
            mtu: 5,
            ..Shape::default()
        };
        for (bytes, batch) in [(8, 1), (8, 32), (8, 512), (4096, 32), (1 << 20, 4)] {
            let mut pair = Pair::with(&config, shape.clone(), shape.clone());
            let (rate, cost) = rate(&mut pair, bytes, batch, Duration::from_millis(500));
            eprintln!(
                "loopback {loopback}, {bytes} bytes, {batch} per doorbell: {:.3} M WQE/s, {:.2} GB/s, at best {cost:.0} ns each",
                rate / 1e6,
                rate * f64::from(bytes) / 1e9
            );
        }
    }
}
