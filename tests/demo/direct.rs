//! Rank processes that load from and store to each other's memory: the same bytes as by the HCA, which posts nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::Demo;

/// Sum over the ranks of what `pick` takes of each.
fn sum(value: &Value, pick: impl Fn(&Value) -> &Value) -> u64 {
    let ranks = value["per_rank"].as_array().unwrap();
    ranks.iter().map(|rank| pick(rank).as_u64().unwrap()).sum()
}

fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap();
    let name_and_bytes = entries.map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read(path).unwrap())
    });
    name_and_bytes.collect()
}

#[test]
fn ranks_of_one_machine_get_the_same_bytes_by_stores_as_by_the_hca_and_post_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let run = |name: &str, more: &[&str], variable: &str| {
        let dump = directory.path().join(name);
        let arguments = [
            "--ranks", "3", "--steps", "3", "--tokens", "24", "--json", "--dump",
        ];
        let arguments = [&arguments[..], &[dump.to_str().unwrap()], more].concat();
        let value = Demo::new(&arguments)
            .set("WARPVERBS_DIRECT", variable)
            .verified();
        let counted = |name: &str| sum(&value, |rank| &rank["counters"][name]);
        let direct = sum(&value, |rank| &rank["direct_peers"]);
        assert_eq!(counted("findings"), 0);
        (
            files(&dump),
            direct,
            counted("tx_wqes"),
            counted("tx_bytes"),
        )
    };
    let (stored, direct, wqes, bytes) = run("stored", &["--direct"], "1");
    assert_eq!((direct, wqes, bytes), (3 * 2, 0, 0));
    let (sent, direct, wqes, bytes) = run("sent", &[], "1");
    assert_eq!(direct, 0);
    assert!(wqes > 0 && bytes > 0);
    assert!(stored.len() == 3 * 3 * 6 && stored == sent);
    // The variable turns it off for whatever asks for it.
    let (sent, direct, wqes, _) = run("off", &["--direct"], "0");
    assert!(direct == 0 && wqes > 0 && stored == sent);
}

#[test]
fn a_rank_that_was_killed_comes_back_where_the_others_store_into_its_memory() {
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
