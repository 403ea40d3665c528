//! Runs and refusals of a build, whichever features it has.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use std::fs;

use dsync_engine::{
    CancelToken, ConnectOptions, Destination, Job, Operand, Silent, Source, Summary, SyncError, SyncOptions,
    TransportChoice,
};

fn push(transport: TransportChoice) -> Result<Summary, SyncError> {
    let tree = tempfile::tempdir().unwrap();
    let Operand::Remote { host, path } = Operand::parse("nowhere.invalid:tree".as_ref()).unwrap() else {
        panic!("not remote")
    };
    let connect = ConnectOptions::default().shell(vec!["/no/such/shell".into()]).transport(transport);
    let source = Source::Local { paths: vec![tree.path().into()] };
    let job = Job::new(source, Destination::Remote { host, path });
    job.connect(connect).run(&Silent, &CancelToken::new())
}

#[test]
fn every_build_mirrors_a_tree_of_this_machine() {
    let scratch = tempfile::tempdir().unwrap();
    let (tree, copy) = (scratch.path().join("tree"), scratch.path().join("copy"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "content").unwrap();
    let job =
        Job::new(Source::Local { paths: vec![tree.join("")] }, Destination::Local { path: copy.clone() });

    let summary = job.options(SyncOptions::archive()).run(&Silent, &CancelToken::new()).unwrap();

    assert_eq!(summary.exit_code(), 0);
    assert_eq!(fs::read(copy.join("file")).unwrap(), b"content");
}

#[test]
fn a_build_without_ssh_refuses_another_host_before_anything_starts() {
    let outcome = push(TransportChoice::Auto);
    if cfg!(feature = "ssh") {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("/no/such/shell"), "{error}");
    } else {
        assert!(matches!(outcome, Err(SyncError::InvalidOption { option: "host", .. })), "{outcome:?}");
    }
}

#[test]
#[cfg(feature = "ssh")]
fn a_carrier_that_the_build_lacks_is_refused_before_the_shell_starts() {
    let carriers = [
        (TransportChoice::Quic, cfg!(feature = "quic"), "built without QUIC"),
        (TransportChoice::Tls, cfg!(feature = "tls"), "built without TLS"),
    ];
    for (transport, is_built, words) in carriers {
        let error = push(transport).unwrap_err().to_string();
        assert_eq!(error.contains(words), !is_built, "{error}");
    }
}
