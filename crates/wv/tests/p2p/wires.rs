//! Two ends of `wv p2p` that are driven by providers of different wires.

use std::fs;

use crate::{Server, p2p, succeeds};

/// Variables of an end over softofi. Both ends use their NICs, though they are on one machine.
fn over_softofi(library: &str) -> [(&str, &str); 4] {
    [
        ("WARPVERBS_ENGINE_PATH", "nic"),
        ("WARPVERBS_PROVIDER", "ofi:efa"),
        (softofi::LIBRARY_VARIABLE, library),
        (softofi::VARIABLE, "profile=efa-direct,again=100,seed=7"),
    ]
}

#[test]
fn ends_of_different_wires_refuse_each_other_and_both_wires_are_named() {
    let (runtime, served) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bytes = vec![7_u8; 5_000_000];
    fs::write(served.path().join("file"), &bytes).unwrap();
    let library = softofi::library().unwrap();
    let over = over_softofi(library.to_str().unwrap());
    let by_mlx5 = [
        ("WARPVERBS_ENGINE_PATH", "nic"),
        ("WARPVERBS_PROVIDER", "mlx5"),
    ];
    let serve = |variables: &[(&str, &str)]| {
        let directory = served.path().to_str().unwrap();
        let options = ["serve", directory, "--listen", "127.0.0.1:0"];
        let mut command = p2p(runtime.path(), &options);
        command.envs(variables.iter().copied());
        Server::of(command)
    };
    let copy = served.path().join("copy");
    let get = |place: &str, variables: &[(&str, &str)]| {
        let options = ["get", place, "file", copy.to_str().unwrap()];
        let mut command = p2p(runtime.path(), &options);
        command.envs(variables.iter().copied());
        command.output().unwrap()
    };
    for (server, client) in [(&over[..], &by_mlx5[..]), (&by_mlx5[..], &over[..])] {
        let server = serve(server);
        let output = get(&server.place, client);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && !copy.exists(), "{said}");
        let names_both = said.contains("'ofi:efa'") && said.contains("'rc'");
        assert!(names_both, "{said}");
    }
    let server = serve(&over);
    let text = succeeds(&get(&server.place, &over));
    assert!(text.contains("by ofi:efa (fabric efa-direct, "), "{text}");
    assert!(fs::read(&copy).unwrap() == bytes);
}
