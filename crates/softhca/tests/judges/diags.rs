//! `ibstat` and `ibstatus` of Debian's infiniband-diags, which look at sysfs alone.

use softhca_rig::tools::programs::{LIMIT, Running, Scratch, is_installed};

/// What the tool prints of two devices, the link layers of which are `link`. None: it is not installed.
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

#[test]
fn ibstat_shows_each_device_and_its_port() {
    for (link, name) in [("eth", "Ethernet"), ("ib", "InfiniBand")] {
        let Some(text) = printed("ibstat", link) else {
            return;
        };
        for words in [
            "CA 'mlx5_0'",
            "CA 'mlx5_1'",
            "CA type: MT4129",
            "Number of ports: 1",
            "Firmware version: 28.39.1002",
            "State: Active",
            "Physical state: LinkUp",
            "Rate: 400",
            &format!("Link layer: {name}"),
        ] {
            assert!(text.contains(words), "{words}:\n{text}");
        }
    }
}

#[test]
fn ibstatus_shows_each_device_and_its_port() {
    for (link, name) in [("eth", "Ethernet"), ("ib", "InfiniBand")] {
        let Some(text) = printed("ibstatus", link) else {
            return;
        };
        for words in [
            "Infiniband device 'mlx5_0' port 1 status:",
            "Infiniband device 'mlx5_1' port 1 status:",
            "4: ACTIVE",
            "5: LinkUp",
            "400 Gb/sec (4X NDR)",
            name,
        ] {
            assert!(text.contains(words), "{words}:\n{text}");
        }
    }
}
