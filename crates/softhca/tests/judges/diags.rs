//! `ibstat` and `ibstatus` of Debian's infiniband-diags, which look at sysfs alone.

use softhca_rig::tools::programs::{LIMIT, Running, Scratch, is_installed};

/// Returns what the tool prints of two devices, the link layers of which are `link`. None: it is not installed.
fn printed(tool: &str, link: &str) -> Option<String> {
    if !is_installed(tool, "infiniband-diags", tool) {
        return None;
    }
    let scratch = Scratch::new();
    let mut command = scratch.preloaded(&[], tool);
    command
        .env("SOFTHCA_DEVICES", "2")
        .env("SOFTHCA_LINK", link);
    let ended = Running::start(command, &scratch, "printed").end_within(LIMIT);
    assert!(ended.is_success(), "{}", ended.report());
    Some(ended.printed)
}

/// With either link layer `program` prints all of these, and the name of the layer after `layer`.
fn shows(program: &str, words: &[&str], layer: &str) {
    for (link, name) in [("eth", "Ethernet"), ("ib", "InfiniBand")] {
        let Some(text) = printed(program, link) else {
            return;
        };
        let layer = format!("{layer}{name}");
        for words in words.iter().chain([&layer.as_str()]) {
            assert!(text.contains(words), "{words}:\n{text}");
        }
    }
}

#[test]
fn ibstat_shows_each_device_and_its_port() {
    let words = [
        "CA 'mlx5_0'",
        "CA 'mlx5_1'",
        "CA type: MT4129",
        "Number of ports: 1",
        "Firmware version: 28.39.1002",
        "State: Active",
        "Physical state: LinkUp",
        "Rate: 400",
    ];
    shows("ibstat", &words, "Link layer: ");
}

#[test]
fn ibstatus_shows_each_device_and_its_port() {
    let words = [
        "Infiniband device 'mlx5_0' port 1 status:",
        "Infiniband device 'mlx5_1' port 1 status:",
        "4: ACTIVE",
        "5: LinkUp",
        "400 Gb/sec (4X NDR)",
    ];
    shows("ibstatus", &words, "");
}
