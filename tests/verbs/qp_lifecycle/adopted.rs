//! A device and a domain that an application has opened itself. The tests check which of them are refused, what is left when any
//! step fails, and every order in which they may go.

// UNSAFETY: hands over what the application has opened; forges contexts that it could not have opened.
#![expect(unsafe_code, reason = "objects of an application by address")]

use std::any::Any;
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::Arc;

use mlx5_prm::cmd::{Opcode, Status};
use softhca::{FailCommand, Hca, HcaConfig};
use test_support::application::Application;
use test_support::hca::{hca, hca_with};
use test_support::node::{Node, connect};
use warpverbs::verbs::{Context, Pd, QpConfig, VerbsError, adopted};

use super::{HEAP, assert_nothing_left, fail, infiniband, lives};

fn adopt(application: &Application) -> Result<Arc<Pd>, VerbsError> {
    // SAFETY: the tests close the application when nothing uses it any more, and it checks that itself.
    unsafe {
        let context = Context::adopt(application.context())?;
        Pd::adopt(&context, application.pd())
    }
}

/// The application has its objects back, all others are gone, and it can close them.
#[track_caller]
fn assert_given_back(hca: &Hca, application: Application) {
    let uses = [application.context(), application.pd()].map(|raw| adopted(raw));
    assert_eq!(uses, [0, 0]);
    application.check_works();
    let live = hca.live_objects();
    let rest = (live.mr, live.mkey, live.umem, live.cq, live.qp);
    assert_eq!(
        (live.context, live.pd, rest),
        (1, 1, (0, 0, 0, 0, 0)),
        "{live:?}"
    );
    application.close();
    assert_nothing_left(hca);
}

#[test]
fn an_adopted_device_is_counted_used_and_never_closed() {
    let hca = hca();
    let application = Application::open(&hca);
    let pd = adopt(&application).unwrap();
    let again = adopt(&application).unwrap_err().to_string();
    assert!(again.contains("adopted already"), "{again}");
    // SAFETY: as in `adopt`.
    let second = unsafe { Pd::adopt(pd.context(), application.pd()) }.unwrap();
    let uses = || [application.context(), application.pd()].map(|raw| adopted(raw));
    assert_eq!(uses(), [1, 2]);
    drop(second);
    assert_eq!(uses(), [1, 1]);
    assert_eq!(pd.context().name(), hca.name());

    let node = Node::on(pd, HEAP).unwrap();
    let qps = connect([&node, &node], &QpConfig::default()).unwrap();
    application.check_works();
    let live = hca.live_objects();
    assert_eq!((live.context, live.pd, live.qp), (1, 1, 2));
    // The application may adopt anew when all has gone.
    drop((qps, node));
    drop(adopt(&application).unwrap());
    assert_given_back(&hca, application);
}

#[test]
fn what_the_hca_does_not_end_stays_counted() {
    for (opcode, kept) in [
        (Opcode::DESTROY_MKEY, [1, 1]),
        (Opcode::DESTROY_UMEM, [1, 0]),
        (Opcode::DESTROY_QP, [1, 1]),
    ] {
        let hca = hca();
        let application = Application::open(&hca);
        let node = Node::on(adopt(&application).unwrap(), HEAP).unwrap();
        let window = node.window(4096).unwrap();
        let qps = connect([&node, &node], &QpConfig::default()).unwrap();
        fail(&hca, opcode, Status::BAD_RES_STATE, 0);
        drop((qps, window, node));
        let uses = [application.context(), application.pd()].map(|raw| adopted(raw));
        assert_eq!(uses, kept, "{opcode}");
        application.check_works();
    }
}

#[test]
fn commands_fail_in_turn_on_an_adopted_device_and_its_owner_keeps_it() {
    for config in [HcaConfig::default(), infiniband()] {
        for status in [Status::NO_RES, Status::LIM_ERR] {
            commands_fail(&config, status);
        }
    }
}

fn commands_fail(config: &HcaConfig, status: Status) {
    let (mut failed, mut ignored) = (BTreeSet::new(), 0);
    for nth in 1..200 {
        let hca = hca_with(config.clone());
        let application = Application::open(&hca);
        hca.fail_command(FailCommand {
            opcode: None,
            nth,
            status: status.0,
            syndrome: nth,
        });
        let result = adopt(&application)
            .and_then(|pd| Node::on(pd, HEAP))
            .and_then(|node| lives(&node, &QpConfig::default()));
        if !matches!(&result, Err(VerbsError::Command { source, .. }) if source.opcode == Opcode::QUERY_QP)
        {
            assert_given_back(&hca, application);
        } else {
            println!("{nth} commands: {failed:?} failed, {ignored} did not");
            assert!(failed.contains("CREATE_QP (0x500)") && failed.contains("ibv_reg_mr"));
            return;
        }
        match result {
            Ok(()) => ignored += 1,
            Err(VerbsError::Command { source, .. }) => {
                failed.insert(source.opcode.to_string());
            }
            Err(VerbsError::Call { call, .. }) => {
                failed.insert(call.to_owned());
            }
            Err(other) => panic!("command {nth}: {other}"),
        }
    }
    panic!("no end after 200 commands: {failed:?}");
}

/// Drops everything of one life in a random order, on devices that the test or the runtime has opened.
#[test]
fn a_thousand_random_drop_orders_leave_nothing_behind() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let hca = hca();
    for order in 0..1000 {
        let application = (order % 2 == 0).then(|| Application::open(&hca));
        let node = match &application {
            Some(application) => Node::on(adopt(application).unwrap(), HEAP).unwrap(),
            None => Node::open(&hca, HEAP).unwrap(),
        };
        let window = node.window(4096).unwrap();
        let [a, b] = connect([&node, &node], &QpConfig::default().with_log_depth(8)).unwrap();
        let parts = (
            Arc::clone(&node.heap),
            Arc::clone(&node.pd),
            Arc::clone(&node.context),
        );
        let mut all: Vec<Box<dyn Any>> = vec![
            Box::new(node),
            Box::new(window),
            Box::new(a),
            Box::new(b),
            Box::new(parts.0),
            Box::new(parts.1),
            Box::new(parts.2),
        ];
        random.shuffle(&mut all);
        for part in all {
            drop(part);
        }
        match application {
            Some(application) => assert_given_back(&hca, application),
            None => assert_nothing_left(&hca),
        }
    }
    println!("1000 drop orders of 7 parts");
}

#[test]
fn what_is_no_context_or_domain_of_the_application_is_refused_by_name() {
    let hcas = [hca(), hca()];
    let [application, other] = [0, 1].map(|n| Application::open(&hcas[n]));
    // SAFETY: null is allowed; the others stay open until the end of this test.
    unsafe {
        let text = |result: Result<Arc<Context>, VerbsError>| result.unwrap_err().to_string();
        assert_eq!(
            text(Context::adopt(std::ptr::null_mut())),
            "adopted context is null; it must be an open struct ibv_context"
        );
        let context = Context::adopt(application.context()).unwrap();
        let text = |result: Result<Arc<Pd>, VerbsError>| result.unwrap_err().to_string();
        let limit = format!(
            "it must be a struct ibv_pd of the context of {} that was adopted",
            hcas[0].name()
        );
        assert_eq!(
            text(Pd::adopt(&context, std::ptr::null_mut())),
            format!("adopted domain is null; {limit}")
        );
        assert_eq!(
            text(Pd::adopt(&context, other.pd())),
            format!("adopted domain is one of another context; {limit}")
        );
    }
    for (application, hca) in [application, other].into_iter().zip(&hcas) {
        assert_given_back(hca, application);
    }
}

#[test]
fn a_context_without_devx_is_refused_by_name() {
    let hca = hca();
    fail(&hca, Opcode(FailCommand::DEVX), Status::NO_RES, 0);
    let application = Application::open(&hca);
    let error = adopt(&application).unwrap_err().to_string();
    let begin = format!("{}: DevX of the adopted context is off", hca.name());
    assert!(error.starts_with(&begin), "{error}");
    assert!(error.contains("MLX5DV_CONTEXT_FLAGS_DEVX"), "{error}");
    assert_given_back(&hca, application);
}

/// The first fields of a context: the device, and two functions of the library that opened it.
type Head = [usize; 3];

/// A context as another copy of libibverbs would have opened it: its functions lie in another file.
#[test]
fn a_context_of_another_copy_of_libibverbs_is_refused_with_both_files() {
    let hca = hca();
    let application = Application::open(&hca);
    // SAFETY: a context begins with these fields.
    let [device, ..] = unsafe { application.context().cast::<Head>().read() };
    for function in [libc::getpid as *const () as usize, 0] {
        let mut forged: Head = [device, function, function];
        let raw: *mut c_void = (&raw mut forged).cast();
        // SAFETY: it is read no further than to these fields, and no code keeps it.
        let error = unsafe { Context::adopt(raw) }.unwrap_err().to_string();
        let begin = format!("{}: libibverbs of the adopted context is ", hca.name());
        assert!(error.starts_with(&begin), "{error}");
        let file = if function == 0 {
            "an unknown file"
        } else {
            "libc.so"
        };
        assert!(error[begin.len()..].contains(file), "{error}");
        assert!(error.contains("libibverbs.so.1"), "{error}");
    }
    assert_given_back(&hca, application);
}

/// A device whose driver is none of libmlx5.
#[test]
fn a_context_of_another_provider_is_refused_by_name() {
    let hca = hca();
    let application = Application::open(&hca);
    // SAFETY: a context begins with these fields. The copy of a device is the part that verbs.h declares; the device is longer,
    // since the provider's part follows.
    let (mut head, device) = unsafe {
        let head = application.context().cast::<Head>().read();
        let device = std::ptr::with_exposed_provenance::<[u64; 83]>(head[0]).read();
        (head, device)
    };
    let mut forged = [0u64; 512];
    forged[..device.len()].copy_from_slice(&device);
    head[0] = (&raw mut forged).expose_provenance();
    // SAFETY: as above.
    let error = unsafe { Context::adopt((&raw mut head).cast()) }
        .unwrap_err()
        .to_string();
    let name = hca.name();
    let told =
        format!("{name}: provider is another one, needed: libmlx5; name a device of libmlx5");
    assert!(error.starts_with(&told), "{error}");
    assert_given_back(&hca, application);
}
