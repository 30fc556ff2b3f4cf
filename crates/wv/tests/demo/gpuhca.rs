//! Ranks as threads of one process, whose HCA is a kernel: the same bytes as by software HCAs, one process for each rank.

use crate::{Demo, arrays};

#[test]
fn ranks_on_gpuhca_get_the_same_bytes_as_on_software_hcas() {
    let directory = tempfile::tempdir().unwrap();
    let run = |name: &str, device: &str| {
        let dump = directory.path().join(name);
        let arguments = [
            "--ranks",
            "3",
            "--steps",
            "2",
            "--tokens",
            "24",
            "--gpu",
            "simt",
            "--json",
            "--dump",
            dump.to_str().unwrap(),
            "--device",
            device,
        ];
        let value = Demo::new(&arguments).verified();
        let ranks = value["per_rank"].as_array().unwrap();
        let sum = |name: &str| -> u64 {
            let counted = |rank: &serde_json::Value| rank["counters"][name].as_u64().unwrap();
            ranks.iter().map(counted).sum()
        };
        let label = value["label"].as_str().unwrap().to_owned();
        (
            arrays(&dump),
            label,
            [sum("tx_wqes"), sum("tx_bytes"), sum("findings")],
        )
    };
    let (by_kernel, label, [wqes, bytes, findings]) = run("kernel", "gpuhca");
    assert_eq!((label.as_str(), findings), ("gpuhca+simt", 0));
    assert!(wqes > 0 && bytes > 0, "{wqes} WQEs, {bytes} bytes");
    let (by_engine, label, [_, same_bytes, _]) = run("engine", "sim");
    assert_eq!(label, "softhca+simt");
    assert_eq!(bytes, same_bytes);
    assert_eq!(by_kernel.len(), by_engine.len());
    for (name, bytes) in &by_engine {
        assert!(by_kernel.get(name) == Some(bytes), "{name} differs");
    }
}

#[test]
fn what_needs_processes_of_its_own_is_refused() {
    let refused = |arguments: &[&str], words: &str| {
        let arguments = [&["--device", "gpuhca"], arguments].concat();
        let (status, output) = Demo::new(&arguments).refused();
        assert_eq!(status, 2, "{output}");
        assert!(output.contains(words), "{output}");
    };
    refused(&["--ranks", "65"], "1 to 64, all in one process");
    refused(&["--kill", "1@1"], "all ranks are threads of one");
}

#[test]
fn a_run_beyond_its_bound_ends_and_says_how_far_its_ranks_are() {
    let arguments = ["--device", "gpuhca", "--ranks", "2", "--gpu", "simt"];
    let endless = ["--steps", "1000000", "--tokens", "4", "--timeout", "2"];
    let (status, output) = Demo::new(&[arguments.as_slice(), &endless].concat()).refused();
    assert_eq!(status, 1, "{output}");
    let words = "wv demo: not done within 2 s (--timeout): ranks have verified ";
    assert!(output.contains(words), "{output}");
}
