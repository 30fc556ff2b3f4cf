//! An etcd by TLS: Debian's server, certificates by rcgen, and each thing that must be refused.

use std::path::Path;
use std::thread;

use rendezvous::{EtcdStore, Store, StoreError};
use test_basics::certificates::{Authority, Issued, set_mode};
use test_basics::etcd::{Etcd, TlsServer};
use test_basics::limits::HANG;

/// `ca=..`, and `cert=..&key=..` of a client.
fn options(authority: &Authority, client: Option<&Issued>) -> String {
    let name = |path: &Path| path.display().to_string();
    let identity = client.map_or_else(String::new, |client| {
        format!(
            "&cert={}&key={}",
            name(&client.certificate),
            name(&client.key)
        )
    });
    format!("ca={}{identity}", name(&authority.certificate()))
}

fn refusal(url: &str) -> String {
    EtcdStore::open(url, "run").unwrap_err().to_string()
}

#[test]
fn an_etcd_that_asks_for_certificates_takes_clients_that_have_one() {
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let server = authority.issue("server", &["127.0.0.1"], true);
    let tls = TlsServer {
        issued: &server,
        clients: Some(&authority),
    };
    let Some(etcd) = Etcd::start_with_tls(&tls) else {
        return;
    };
    let client = authority.issue("client", &["rank"], true);
    let url = etcd.tls_url("127.0.0.1", "run", &options(&authority, Some(&client)));
    let store = EtcdStore::open(&url, "run").unwrap();
    store.put("rank/0", b"here").unwrap();
    assert!(
        store
            .compare_and_set("rank/0", Some(b"here"), b"there")
            .unwrap()
    );
    // The watch goes by TLS as well.
    let change = thread::spawn({
        let store = EtcdStore::open(&url, "run").unwrap();
        move || store.put("rank/0", b"gone").unwrap()
    });
    let seen = store.watch("rank/0", Some(b"there"), HANG).unwrap();
    assert_eq!(seen.as_deref(), Some(b"gone".as_slice()));
    change.join().unwrap();

    let without = refusal(&etcd.tls_url("127.0.0.1", "run", &options(&authority, None)));
    let expired = authority.issue("late", &["rank"], false);
    let late = refusal(&etcd.tls_url("127.0.0.1", "run", &options(&authority, Some(&expired))));
    let strange = other.issue("stranger", &["rank"], true);
    let strange = refusal(&etcd.tls_url("127.0.0.1", "run", &options(&authority, Some(&strange))));
    for error in [without, late, strange] {
        // The words are those of an alert of Go's TLS, which differ between versions.
        assert!(error.contains("127.0.0.1"), "{error}");
        assert!(!error.contains("BEGIN"), "{error}");
    }
}

#[test]
fn a_member_whose_certificate_does_not_prove_its_name_is_refused() {
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let cases = [
        (
            authority.issue("named", &["etcd.example"], true),
            &authority,
            "not valid for name",
        ),
        (
            authority.issue("late", &["127.0.0.1"], false),
            &authority,
            "expired",
        ),
        (
            authority.issue("right", &["127.0.0.1"], true),
            &other,
            "UnknownIssuer",
        ),
    ];
    for (issued, trusted, problem) in &cases {
        let tls = TlsServer {
            issued,
            clients: None,
        };
        let Some(etcd) = Etcd::start_with_tls(&tls) else {
            return;
        };
        let url = etcd.tls_url("127.0.0.1", "run", &options(trusted, None));
        let error = EtcdStore::open(&url, "run").unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
        let error = error.to_string();
        assert!(error.contains("invalid peer certificate"), "{error}");
        assert!(error.contains(problem), "{problem}: {error}");
        // Browsers trust none of them.
        let url = etcd.tls_url("127.0.0.1", "run", "ca=/dev/null");
        assert!(refusal(&url).contains("holds no certificate"));
    }
}

#[test]
fn files_that_cannot_be_used_are_refused_by_name_before_anything_is_sent() {
    let authority = Authority::new("ours");
    let client = authority.issue("client", &["rank"], true);
    let url = |options: &str| format!("etcds://192.0.2.1:1/run?{options}");
    let both = options(&authority, Some(&client));

    for mode in [0o644, 0o640, 0o604, 0o620] {
        set_mode(&client.key, mode);
        let error = refusal(&url(&both));
        let name = client.key.display().to_string();
        assert!(
            error.contains(&name) && error.contains(&format!("{mode:04o}")),
            "{error}"
        );
    }
    set_mode(&client.key, 0o600);
    let missing = authority.path("nothing");
    let (missing, key) = (missing.display(), client.key.display());
    let certificate = client.certificate.display();
    for (options, word) in [
        (format!("ca={missing}"), "the CA file"),
        (format!("ca={key}"), "holds no certificate"),
        (format!("cert={missing}&key={key}"), "the certificate file"),
        (format!("cert={certificate}&key={missing}"), "the key file"),
        ("ca=/dev/zero".to_owned(), "more than 1048576 bytes"),
    ] {
        let error = refusal(&url(&options));
        assert!(error.contains(word), "{word}: {error}");
    }
    // The certificate is world-readable, as certificates are, and no key.
    set_mode(&client.certificate, 0o600);
    let error = refusal(&url(&format!("cert={certificate}&key={certificate}")));
    assert!(error.contains("holds no key"), "{error}");
}
