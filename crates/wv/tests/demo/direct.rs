//! Rank processes that load from and store to each other's memory: the same bytes as by the HCA, which posts nothing.

use serde_json::Value;

use crate::{Demo, arrays};

/// Sum over the ranks of what `pick` takes of each.
fn sum(value: &Value, pick: impl Fn(&Value) -> &Value) -> u64 {
    let ranks = value["per_rank"].as_array().unwrap();
    ranks.iter().map(|rank| pick(rank).as_u64().unwrap()).sum()
}

#[test]
fn stores_bring_ranks_of_one_machine_the_bytes_of_the_hca_without_posts() {
    let directory = tempfile::tempdir().unwrap();
    let run = |name: &str, more: &[&str], variable: Option<&str>| {
        let dump = directory.path().join(name);
        let arguments = [
            "--ranks", "3", "--steps", "3", "--tokens", "24", "--json", "--dump",
        ];
        let arguments = [&arguments[..], &[dump.to_str().unwrap()], more].concat();
        let demo = Demo::new(&arguments);
        let value = match variable {
            Some(variable) => demo.set("WARPVERBS_DIRECT", variable).verified(),
            None => demo.verified(),
        };
        let counted = |name: &str| sum(&value, |rank| &rank["counters"][name]);
        let direct = sum(&value, |rank| &rank["direct_peers"]);
        assert_eq!(counted("findings"), 0);
        (
            arrays(&dump),
            direct,
            counted("tx_wqes"),
            counted("tx_bytes"),
        )
    };
    let (sent, direct, wqes, bytes) = run("sent", &[], None);
    assert_eq!(direct, 0, "no rank is direct that does not ask for it");
    assert!(wqes > 0 && bytes > 0);
    assert_eq!(sent.len(), 3 * 3 * 6);
    // The option and the variable ask for the same; the option wins.
    let asked: [(&str, &[&str], Option<&str>); 3] = [
        ("option", &["--direct"], None),
        ("variable", &[], Some("1")),
        ("both", &["--direct"], Some("0")),
    ];
    for (name, more, variable) in asked {
        let (stored, direct, wqes, bytes) = run(name, more, variable);
        assert_eq!((direct, wqes, bytes), (3 * 2, 0, 0), "{name}");
        assert!(stored == sent, "{name}");
    }
}

#[test]
fn a_killed_rank_comes_back_where_others_store_into_its_memory() {
    let value = Demo::new(&[
        "--ranks",
        "3",
        "--tokens",
        "16",
        "--hidden",
        "64",
        "--steps",
        "400",
        "--json",
        "--kill",
        "1@5",
        "--rejoin-after",
        "0.1",
        "--direct",
    ])
    .json();
    assert_eq!(
        (&value["deaths"], &value["expelled"]),
        (&1.into(), &0.into()),
        "{value}"
    );
    assert_eq!(value["rejoin"].as_array().unwrap().len(), 1, "{value}");
}
