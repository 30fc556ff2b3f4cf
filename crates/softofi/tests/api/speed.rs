//! What writes cost: `cargo test -p softofi --test api speed -- --ignored --nocapture`.

use std::time::Instant;

use crate::rig::{Fabric, Kind, Pair};

#[test]
#[ignore = "prints timings"]
fn writes_of_a_loop_that_keeps_32_under_way() {
    for kind in kinds() {
        let Some(fabric) = Fabric::open(&kind) else {
            continue;
        };
        for bytes in [4096, 65_536] {
            let pair = Pair::new(&fabric, bytes);
            let count = 4000;
            let mut seen = pair.seen();
            pair.here.write(&pair.work(bytes), &mut seen);
            let start = Instant::now();
            let (mut posted, mut told) = (1, 0);
            while told < count {
                if posted < count && posted - told < 32 {
                    posted += usize::from(pair.here.try_write(&pair.work(bytes)).is_ok());
                }
                told += pair.here.completions().len();
                pair.there.completions();
            }
            let seconds = start.elapsed().as_secs_f64();
            let rate = f64::from(u32::try_from(count).unwrap()) / seconds;
            println!("{kind:?}: {bytes} bytes: {rate:.0} a second");
        }
    }
}

/// All, or softofi with the configuration of the variable.
fn kinds() -> Vec<Kind> {
    match std::env::var("SOFTOFI_SPEED") {
        Ok(config) => vec![Kind::soft(&config)],
        Err(_) => Kind::all(),
    }
}
