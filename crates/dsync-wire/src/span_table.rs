//! The options under which the source may send spans.
//!
//! Every option has a row, so a new one does not compile without a decision. Spans are right under any
//! option, as what stands for a span is the source's own listing. They are off where the destination
//! cannot tell from its own tree what the source would list, or not without reading much more of it.

use crate::options::{DeleteTiming, FakeSuper, MungeLinks, SyncOptions};

/// Defines `allows_spans` by all options: those that turn spans off, with the condition, and those that
/// do not matter.
macro_rules! span_table {
    (off { $($($off:ident)|+ if $when:expr,)* } on { $($on:ident,)* }) => {
        impl SyncOptions {
            /// Returns whether the source may send digests of its listing, where the destination
            /// understands them.
            pub fn allows_spans(&self) -> bool {
                let Self { $($($off,)+)* $($on: _,)* } = self;
                !($($when)||*)
            }
        }
    };
}

span_table! {
    off {
    recursive if !*recursive,
    // The source lists another tree than it has, or only parts of it.
    prune_empty_dirs if *prune_empty_dirs,
    relative if *relative,
    copy_links if *copy_links,
    copy_dirlinks if *copy_dirlinks,
    copy_unsafe_links if *copy_unsafe_links,
    munge_links if *munge_links != MungeLinks::default(),
    copy_devices if *copy_devices,
    one_file_system if *one_file_system,
    fake_super if *fake_super != FakeSuper::default(),
    explain if !explain.is_empty(),
    delete_missing_args if *delete_missing_args,
    // Rules in files are those of the source's tree.
    filters if filters.iter().any(|rule| !rule.modifiers.is_empty()),
    // Entries have parts that no record has a place for.
    atimes if *atimes,
    acls if *acls,
    xattrs if *xattrs,
    hard_links if *hard_links,
    checksum if *checksum,
    names_hidden if *names_hidden,
    // Links that the destination takes as directories.
    keep_dirlinks if *keep_dirlinks,
    // The destination returns to what was listed, or the source waits for what has landed.
    delete | delete_timing if *delete && *delete_timing == DeleteTiming::Before,
    remove_source_files if *remove_source_files,
    }
    on {
    dirs, no_implied_dirs, links, perms, times, omit_dir_times, omit_link_times, executability,
    owner, group, numeric_ids, devices, specials, ignore_times, size_only, update, existing,
    ignore_existing, whole_file, fuzzy, fuzzy_alternates, detect_renamed, delete_excluded, max_delete,
    delete_all_or_nothing, ignore_errors, force, allow_empty_source, force_root, mkpath, safe_links,
    insecure_links, wildcards, ignore_missing_args, remove_sent_only, min_size, max_size,
    modify_window, dry_run, open_noatime, no_super, copy_as, keep_partial, durability, compression, mode_rules,
    id_rules, other_homes, writing, events, event_ends, event_backups, event_removals, event_done, event_tree, event_contents,
    contents_as_listed, contents_from_disk,
    rulings, state,
    }
}
