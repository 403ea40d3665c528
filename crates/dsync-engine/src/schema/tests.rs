use std::{io, time::Duration};

use dsync_wire::{event::TypeCounts, link::MoveCause};
use serde_json::{Value, json};

use super::*;
use crate::SyncError;

fn summary() -> Summary {
    let listed = TypeCounts::default().files(3).directories(1);
    Summary {
        report: Report::default().listed(listed).literal_bytes(7).linked(Some(2)),
        connection: Some(Connection {
            carrier: Carrier::Tls,
            reason: Some("a path of 17 ms".to_owned()),
            moves: vec![Move::new(Carrier::Quic, MoveCause::Loss { per_million: 9_000 })],
        }),
        reconnects: 1,
        files_done_before: 4,
        traffic: Traffic::new(5, 6),
        elapsed: Duration::from_millis(1500),
        dry_run: true,
    }
}

#[test]
fn what_a_product_stores_is_read_back_equal() {
    let summary = summary();
    let local = Summary { connection: None, dry_run: false, ..summary.clone() };
    for summary in [summary, local] {
        let text = serde_json::to_string(&summary).unwrap();
        assert_eq!(serde_json::from_str::<Summary>(&text).unwrap(), summary);
    }
    let file = FileProgress::new(b"d/\xff".to_vec(), 9).done_bytes(3);
    let value = serde_json::to_value(&file).unwrap();
    assert_eq!(value, json!({ "path": "d/\u{fffd}", "path_hex": "642fff", "size": 9, "done_bytes": 3 }));
    assert_eq!(serde_json::from_value::<FileProgress>(value).unwrap(), file);
}

#[test]
fn an_outcome_has_what_an_error_does_not_take_away() {
    let progress = Progress::default().files_done(2);
    let failed = vec!["".into(), "f".into()];
    let error = SyncError::Connector { source: io::Error::other("refused") };
    let broken = RunOutcome { summary: None, error: Some(error), progress, failed };
    let value: Value = serde_json::to_value(&broken).unwrap();
    assert_eq!((&value["exit_code"], &value["fault"]), (&10.into(), &"connection".into()));
    assert_eq!((&value["error"], &value["retryable"]), (&"cannot connect: refused".into(), &true.into()));
    assert_eq!(value["failed"], json!([{ "path": "." }, { "path": "f" }]));
    assert_eq!((&value["progress"]["files_done"], value.get("totals")), (&2.into(), None));

    let whole = RunOutcome { summary: Some(summary()), error: None, progress, failed: Vec::new() };
    let value = serde_json::to_value(&whole).unwrap();
    assert_eq!((&value["exit_code"], &value["totals"]["listed"]["files"]), (&0.into(), &3.into()));
    assert_eq!((value.get("error"), value.get("fault")), (None, None));
}

#[test]
fn a_difference_has_all_of_its_fields() {
    let finding = |difference| Finding { path: "f".into(), difference };
    let rot = serde_json::to_value(finding(Difference::Rot)).unwrap();
    assert_eq!(rot, json!({ "kind": "rot", "path": "f", "path_hex": null, "changes": null, "why": null }));
    let edited = serde_json::to_value(finding(Difference::Edited(Changes::SIZE))).unwrap();
    assert_eq!(edited["changes"], json!(["size"]));
    let unreadable = finding(Difference::Unreadable(io::Error::other("a bad block")));
    assert_eq!(serde_json::to_value(unreadable).unwrap()["why"], "a bad block");
}
