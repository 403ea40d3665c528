//! The options under which a source may send spans.

use dsync_wire::options::{
    DeleteTiming, EventLevel, FakeSuper, FilterRule, ModeRule, MungeLinks, SyncOptions,
};

/// Returns a rule with these modifiers.
fn rule(modifiers: &str) -> Vec<FilterRule> {
    vec![FilterRule::default().pattern(b"*.o".to_vec()).modifiers(modifiers.to_owned())]
}

#[test]
fn spans_are_off_where_the_destination_cannot_tell_what_is_listed() {
    let archive = SyncOptions::archive;
    let off = [
        ("without recursive", archive().recursive(false)),
        ("prune-empty-dirs", archive().prune_empty_dirs(true)),
        ("relative", archive().relative(true)),
        ("copy-links", archive().copy_links(true)),
        ("copy-dirlinks", archive().copy_dirlinks(true)),
        ("copy-unsafe-links", archive().copy_unsafe_links(true)),
        ("munge-links", archive().munge_links(MungeLinks::default().destination(true))),
        ("copy-devices", archive().copy_devices(true)),
        ("one-file-system", archive().one_file_system(true)),
        ("fake-super", archive().fake_super(FakeSuper::default().source(true))),
        ("explain", archive().explain(vec!["a".into()])),
        ("delete-missing-args", archive().delete_missing_args(true)),
        ("rules in files", archive().filters(rule(":"))),
        ("rules with modifiers", archive().filters(rule("!"))),
        ("atimes", archive().atimes(true)),
        ("acls", archive().acls(true)),
        ("xattrs", archive().xattrs(true)),
        ("hard-links", archive().hard_links(true)),
        ("checksum", archive().checksum(true)),
        ("keep-dirlinks", archive().keep_dirlinks(true)),
        ("delete-before", archive().delete(true).delete_timing(DeleteTiming::Before)),
        ("remove-source-files", archive().remove_source_files(true)),
    ];
    for (name, options) in off {
        assert!(!options.allows_spans(), "{name}");
    }
}

#[test]
fn spans_are_on_where_the_listing_does_not_depend_on_the_option() {
    let archive = SyncOptions::archive;
    let on = [
        ("archive", archive()),
        ("recursive alone", SyncOptions::default().recursive(true)),
        ("delete", archive().delete(true).delete_excluded(true)),
        ("rules", archive().filters(rule(""))),
        ("dry-run", archive().dry_run(true).events(EventLevel::All)),
        ("numeric-ids", archive().numeric_ids(true)),
        ("ignore-times", archive().ignore_times(true)),
        ("update", archive().update(true).existing(true)),
        ("sizes", archive().min_size(1).max_size(Some(9))),
        ("chmod", archive().mode_rules(Vec::<ModeRule>::new())),
    ];
    for (name, options) in on {
        assert!(options.allows_spans(), "{name}");
    }
}
