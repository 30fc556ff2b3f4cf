//! Kinds and lives of QPs, on the software HCA through libmlx5.

use warpverbs::abi::Status;
use warpverbs::verbs::{Doorbell, QpConfig};

use test_support::node::connect;
use test_support::pair::Pair;

fn config(doorbell: Doorbell) -> QpConfig {
    QpConfig::default()
        .with_log_depth(8)
        .with_doorbell(doorbell)
}

/// gpunetio, :590 and :421: code without a doorbell record drives a QP with one, or silently takes another way.
#[test]
fn a_qp_without_record_and_code_with_one_refuse_each_other() {
    for (made_for, other, code, wrong_code) in [
        (Doorbell::NoRecord, Doorbell::Record, "no_record", "record"),
        (Doorbell::Record, Doorbell::NoRecord, "record", "no_record"),
    ] {
        let pair = Pair::of_words(32 * 20, &config(made_for), None);
        let params = pair.params(20, 0);
        for scope in ["thread", "warp", "block"] {
            for wrong in [wrong_code, "mailbox"] {
                let kernel = format!("wv_test_put_shared_{wrong}_{scope}");
                let ends = pair.run(&kernel, 32, 0, &params);
                assert_eq!(ends, [(Status::INVALID, 0); 32], "{kernel}, {other:?}");
            }
        }
        let context = pair.context();
        assert_eq!((context.claim, context.resv, context.doorbells), (0, 0, 0));
        assert_eq!(pair.wrong_words().len(), 32 * 20);
        let kernel = format!("wv_test_put_shared_{code}_warp");
        let ends = pair.run(&kernel, 32, 0, &params);
        assert_eq!(ends, [(Status::OK, 20); 32], "{kernel}");
        assert_eq!(pair.wrong_words(), [0; 0], "{kernel}");
        assert_eq!(pair.findings(), [""; 0], "{kernel}");
    }
}

/// gpunetio: the second reset starts from indices that the first one left.
#[test]
fn three_recoveries_in_a_row_leave_right_indices() {
    let mut pair = Pair::of_words(8 * 300, &config(Doorbell::Record), None);
    for life in 0..4_u64 {
        let base = life << 16;
        pair.ends[1].write_words(8 * pair.words() as u64, &vec![0; pair.words()]);
        let ends = pair.run("wv_test_put_words", 8, life, &pair.params(300, 7));
        assert_eq!(ends, [(Status::OK, 300); 8], "life {life}");
        assert_eq!(pair.wrong_words(), [0; 0], "life {life}");
        let context = pair.context();
        assert_eq!(
            [context.base, context.claim, context.resv, context.cons],
            [base, base + 2400, base + 2400, base + 2400],
            "life {life}"
        );
        assert_eq!(context.doorbell_index, base + 2400, "life {life}");
        // Each earlier life ended with a key that is refused; nothing else was wrong.
        let refused = pair.findings();
        assert_eq!(refused.len() as u64, life, "{refused:?}");
        assert!(refused.iter().all(|line| line.contains("no such key")));
        // It ends by a failure in the middle of work.
        pair.ends[0].set_peer(&pair.ends[1], 0x0100_0000);
        let ends = pair.run("wv_test_put_words", 8, life, &pair.params(300, 7));
        assert!(
            ends.iter()
                .all(|end| end.0 == pair.context().err && end.1 < 300)
        );
        pair.ends[0].set_peer(&pair.ends[1], 0);

        pair.reset(base + 65_536);
    }
}

/// UCX, gdaki.c:792,1034, and MORI #607: the first QP that goes takes away the page that another one still rings.
#[test]
fn a_page_of_doorbell_registers_outlives_the_first_qp_on_it() {
    for first_goes in [true, false] {
        let config = config(Doorbell::Record);
        let mut pair = Pair::of_words(8 * 40, &config, None);
        let nodes = [&pair.ends[0].node, &pair.ends[1].node];
        let more = connect(nodes, &config).unwrap();
        let page = pair.qps()[0].doorbell().page_addr();
        assert_eq!(page, more[0].doorbell().page_addr(), "they share a page");
        assert_ne!(pair.qps()[0].doorbell().addr(), more[0].doorbell().addr());
        let goes = if first_goes {
            pair.replace_qps(more)
        } else {
            more
        };
        for qp in goes {
            qp.destroy().unwrap();
        }
        let ends = pair.run("wv_test_put_words", 8, 0, &pair.params(40, 3));
        assert_eq!(ends, [(Status::OK, 40); 8], "first goes: {first_goes}");
        assert_eq!(pair.wrong_words(), [0; 0]);
        assert_eq!(pair.findings(), [""; 0]);
        // A QP that comes later finds a register again, and the one that stayed keeps its own.
        let nodes = [&pair.ends[0].node, &pair.ends[1].node];
        let later = connect(nodes, &config).unwrap();
        assert_ne!(later[0].doorbell().addr(), pair.qps()[0].doorbell().addr());
    }
}
