//! The scenarios of rsync's own test suite (sets A and B: what a black box can be asked), by name, with the test here
//! that covers each. Only the names are rsync's: what it does is seen by running it.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, chown, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
};

use dsync_tests::{
    Outcome, Run, Scope, Scratch, Sshd, Via, differences, needs_dsync, needs_root, oracle, program,
    scratch::slash, strace, survey,
};

/// Each scenario with `FILE TEST` of what covers it; a file is one of this directory, or a path in the repository.
#[rustfmt::skip]
const COVERED: &[(&str, &[&str])] = &[
    // Transfer, metadata, selection.
    ("00-hello", &["crates/dsync-cli/tests/transcripts.rs command_says_what_the_transcripts_say", "remote.rs odd_bytes_in_remote_paths_reach_no_shell"]),
    ("hands", &["local.rs copy_is_identical_and_quiet", "remote.rs push_is_identical_and_quiet_over_every_carrier"]),
    ("merge", &["local.rs first_of_several_sources_wins_and_directories_are_joined", "crates/dsync-fs/tests/walk.rs operands_merge_as_rsync_merges_them"]),
    ("duplicates", &["scenarios.rs lines_of_the_scenarios_do_what_rsync_does"]),
    ("dirs", &["operands.rs directories_are_copied_without_what_is_in_them"]),
    ("longdir", &["troubled_disk.rs depth_of_two_thousand_and_names_of_255_bytes_are_copied_and_deleted"]),
    ("deep-path", &["crates/dsync-fs/tests/walk.rs a_very_deep_tree_is_walked_and_its_files_reached_again"]),
    ("missing", &["repeat.rs dry_run_of_a_missing_destination_makes_nothing", "scenarios.rs lines_of_the_scenarios_do_what_rsync_does"]),
    ("mkpath", &["scenarios.rs lines_of_the_scenarios_do_what_rsync_does"]),
    ("file-to-file-mkpath-dry-run", &["scenarios.rs lines_of_the_scenarios_do_what_rsync_does"]),
    ("relative", &["operands.rs relative_operands_bring_their_paths"]),
    ("relative-content", &["operands.rs relative_operands_bring_their_paths"]),
    ("relative-implied", &["operands.rs directories_on_the_way_are_made_or_left"]),
    ("relative-implied-symlink", &["operands.rs a_link_at_the_destination_is_followed_only_without_implied_directories"]),
    ("relative-symlinked-parent", &["scenarios.rs lines_of_the_scenarios_do_what_rsync_does"]),
    ("relative-symlinked-parent-dotdot", &["operands.rs a_path_that_goes_upwards_is_no_relative_operand"]),
    ("no-implied-dirs-symlink", &["operands.rs a_link_at_the_destination_is_followed_only_without_implied_directories"]),
    ("dest-symlinked-dir", &["links_of_others.rs destination_is_reached_through_links_of_root_and_of_ones_own_only", "slash.rs every_form_means_what_it_means_to_rsync"]),
    ("search-only-destination", &["crates/dsync-fs/tests/unprivileged.rs directories_without_read_permission_can_be_passed_but_not_listed"]),
    ("links", &["followed_links.rs links_are_followed_as_by_rsync"]),
    ("symlink-ignore", &["crates/dsync-cli/tests/runs.rs skipped_entries_are_told_in_the_words_of_rsync", "scenarios.rs lines_of_the_scenarios_do_what_rsync_does"]),
    ("safe-links", &["selection.rs links_that_lead_out_are_skipped"]),
    ("safe-links-absolute-intree", &["scenarios.rs lines_of_the_scenarios_do_what_rsync_does"]),
    ("safe-links-unsafe-def", &["selection.rs links_that_lead_out_are_skipped", "scenarios.rs lines_of_the_scenarios_do_what_rsync_does"]),
    ("unsafe-links", &["followed_links.rs links_are_followed_as_by_rsync"]),
    ("ki72-safe-links-backup", &["scenarios.rs lines_of_the_scenarios_do_what_rsync_does"]),
    ("keep-dirlinks-rule", &["selection.rs links_to_directories_are_kept_and_written_through"]),
    ("keep-dirlinks-symlinked-dest", &["selection.rs links_to_directories_are_kept_over_the_wire"]),
    ("symlink-dirlink-basis", &["selection.rs links_to_directories_are_kept_over_the_wire"]),
    ("hardlinks", &["hard_links.rs names_are_kept_together_in_every_direction_and_a_second_run_does_nothing"]),
    ("hardlinks-deep", &["hard_links.rs groups_span_several_operands", "generated.rs local_copies_with_everything_are_those_of_rsync"]),
    ("devices", &["local.rs devices_and_foreign_owners_are_kept_as_root"]),
    ("devices-fake", &["fake_super.rs trees_of_rsync_and_of_dsync_are_interchangeable"]),
    ("nested-socket-specials", &["scenarios.rs lines_of_the_scenarios_do_what_rsync_does"]),
    ("chmod", &["directories.rs user_works_in_his_own_directories_whatever_their_permissions_and_leaves_them_as_they_are_to_be"]),
    ("chmod-option", &["attributes.rs permissions_are_changed_on_the_way_as_rsync_changes_them"]),
    ("chmod-setid", &["special_bits.rs bits_of_a_file_stay_only_with_its_owner_and_group"]),
    ("chmod-temp-dir", &["staging.rs temporaries_are_in_their_directory_and_unfinished_files_stay_there"]),
    ("dir-sgid", &["new_entries.rs new_directories_in_a_setgid_directory_keep_its_group_for_what_follows"]),
    ("executability", &["attributes.rs executability_alone_and_times_of_links_are_as_rsync_has_them"]),
    ("nonroot-restrictive-perms", &["directories.rs user_works_in_his_own_directories_whatever_their_permissions_and_leaves_them_as_they_are_to_be"]),
    ("chown", &["attributes.rs owners_are_mapped_as_rsync_maps_them"]),
    ("chown-fake", &["fake_super.rs trees_of_rsync_and_of_dsync_are_interchangeable"]),
    ("chgrp", &["troubled_source.rs user_without_privileges_copies_what_rsync_copies"]),
    ("ownership-depth", &["attributes.rs owners_are_mapped_as_rsync_maps_them"]),
    ("metadata-depth", &["generated.rs local_copies_with_everything_are_those_of_rsync"]),
    ("atimes", &["access_times.rs another_access_time_alone_is_set_and_itemized_as_rsync_does"]),
    ("open-noatime", &["attributes.rs files_are_read_without_a_trace_when_that_is_asked_for"]),
    ("omit-times", &["attributes.rs executability_alone_and_times_of_links_are_as_rsync_has_them", "combinations.rs any_combination_of_options_does_what_it_does_in_rsync"]),
    ("acls", &["attributes.rs lists_and_attributes_are_kept_in_every_direction"]),
    ("acls-default", &["attributes.rs without_perms_a_default_list_takes_the_place_of_the_mask_as_with_rsync"]),
    ("acls-depth", &["attributes.rs any_tree_with_lists_and_attributes_is_identical_and_rsync_agrees"]),
    ("acls-unpinnable", &["fake_super.rs a_directory_that_only_takes_files_in_stays_as_it_is"]),
    ("xattrs", &["attributes.rs changed_lists_and_attributes_alone_are_itemized_as_rsync_does_and_move_no_content"]),
    ("xattrs-depth", &["attributes.rs any_tree_with_lists_and_attributes_is_identical_and_rsync_agrees"]),
    ("xattrs-hlink", &["generated.rs local_copies_with_everything_are_those_of_rsync"]),
    ("fake-super-acl-xattr", &["fake_super.rs trees_of_rsync_and_of_dsync_are_interchangeable"]),
    ("sparse", &["sparse.rs sparse_files_take_the_space_that_rsync_gives_them"]),
    ("preallocate", &["writes.rs preallocated_file_is_the_same_file"]),
    // Deletion, filters, updates, robustness.
    ("delete", &["delete.rs deletes_what_rsync_deletes"]),
    ("delete-deep", &["delete.rs deleting_before_keeps_to_the_limit_and_to_dry_runs", "delete.rs deletes_as_many_as_the_limit_allows"]),
    ("prune-empty-dirs", &["operands.rs directories_that_hold_only_directories_are_pruned"]),
    ("exclude", &["filters.rs rules_choose_what_rsyncs_choose"]),
    ("exclude-lsh", &["filters.rs rules_hold_over_the_wire_in_both_directions"]),
    ("filter-depth", &["rule_files.rs rule_files_choose_and_protect_as_rsyncs_do"]),
    ("cvs-exclude", &["rule_files.rs rule_files_choose_and_protect_as_rsyncs_do"]),
    ("ki73-cvs-clear-list", &["rule_files.rs rule_files_choose_and_protect_as_rsyncs_do"]),
    ("wildmatch", &["crates/dsync-fs/tests/filter_rsync.rs random_patterns_select_what_rsync_selects"]),
    ("filter-merge-recursion", &["crates/dsync-fs/src/filter/scope.rs file_that_names_itself_or_is_too_large_ends"]),
    ("filter-merge-content-echo", &["crates/dsync-cli/tests/runs.rs pattern_that_matches_nothing_is_told_once_and_the_text_of_a_file_never"]),
    ("files-from", &["files_from.rs lines_are_those_that_rsync_reads"]),
    ("files-from-depth", &["files_from.rs directories_are_copied_as_their_lines_say"]),
    ("files-from-path-clamp", &["files_from.rs lines_are_those_that_rsync_reads"]),
    ("size-filter", &["selection.rs files_outside_the_sizes_are_left_alone"]),
    ("compare", &["repeat.rs comparison_options_mean_what_they_mean_to_rsync"]),
    ("update", &["repeat.rs comparison_options_mean_what_they_mean_to_rsync", "delete.rs directory_gives_way_by_force_as_with_rsync"]),
    ("alt-dest", &["writes.rs alternate_directories_are_used_as_by_rsync"]),
    ("alt-dest-deep", &["combinations.rs any_combination_of_options_does_what_it_does_in_rsync"]),
    ("link-dest-relative-basis", &["writes.rs alternate_directories_are_used_as_by_rsync"]),
    ("link-dest-symlink-enotsup", &["alternates.rs directory_gives_way_to_a_copy_where_there_can_be_no_link"]),
    ("fuzzy", &["fuzzy.rs a_new_file_is_made_from_the_most_similar_one"]),
    ("fuzzy-basis", &["fuzzy.rs a_file_of_the_same_size_and_time_is_the_basis_whatever_its_name"]),
    ("inplace", &["writes.rs file_written_in_place_keeps_its_inode_and_its_delta"]),
    ("append", &["append.rs every_case_comes_out_as_with_rsync"]),
    ("append-shortsum", &["append.rs old_content_is_not_read_where_it_is_believed_and_is_where_it_is_compared"]),
    ("partial", &["survive.rs a_run_that_gave_up_keeps_its_part_for_the_next"]),
    ("partial_nowrite", &["directories.rs a_file_that_its_owner_may_not_write_is_rewritten_in_place"]),
    ("partial-dir-abs-delta", &["staging.rs unfinished_files_wait_in_a_directory_of_their_own"]),
    ("partial-protected-regular-retry-linux", &["survive.rs a_part_of_another_user_in_a_sticky_directory_stops_no_run"]),
    ("partial-protected-regular-retry-policy", &["survive.rs a_part_of_another_user_in_a_sticky_directory_stops_no_run"]),
    ("readonly-partial-abort-mode-regression", &["survive.rs a_part_of_a_read_only_file_is_taken_up_as_often_as_it_is_left"]),
    ("delay-updates", &["delayed.rs no_name_is_new_before_all_content_is_on_the_disk"]),
    ("delay-updates-deep", &["writes.rs files_that_get_their_names_at_the_end_are_those_of_rsync"]),
    ("temp-dir", &["staging.rs temporaries_are_in_their_directory_and_unfinished_files_stay_there"]),
    ("backup", &["writes.rs backups_are_those_of_rsync"]),
    ("backup-deep", &["backups.rs every_type_over_every_type_leaves_the_backups_of_rsync_in_a_tree_beside"]),
    ("backup-incremental", &["backups.rs older_backups_of_another_type_give_way_and_directories_of_the_destination_do_not"]),
    ("backup-dir-relative", &["backups.rs every_type_over_every_type_leaves_the_backups_of_rsync_in_a_tree_within"]),
    ("backup-dir-repeated-separator-delete", &["scenarios.rs slashes_too_many_in_a_backup_directory_are_one"]),
    ("backup-crossdev-copy", &["backups.rs every_type_over_every_type_leaves_the_backups_of_rsync_on_another_filesystem"]),
    ("backup-acl-xattr-cache", &["attributes.rs backups_are_kept_from_whom_their_directory_is"]),
    ("sender-remove-source-relative-anchor", &["scenarios.rs lines_of_the_scenarios_do_what_rsync_does"]),
    ("sender-remove-source-secure", &["moves.rs a_file_that_has_changed_since_it_was_listed_stays", "race.rs flipped_directories_of_the_source_let_nothing_in"]),
    ("compress-options", &["delta.rs compressible_first_copy_costs_less_than_itself_with_z", "crates/dsync-cli/tests/runs.rs options_of_rsync_without_effect_change_no_tree_and_no_list"]),
    ("itemize", &["hard_links.rs changed_and_broken_groups_are_itemized_as_rsync_does", "crates/dsync-cli/tests/runs.rs itemized_lines_are_all_that_is_printed"]),
    ("output-options", &["crates/dsync-cli/tests/runs.rs kinds_of_lines_are_chosen_one_by_one"]),
    ("ki58-log-format-percent", &["crates/dsync-cli/tests/runs.rs formats_are_printed_as_rsync_prints_them"]),
    ("log-control-chars", &["screen.rs no_name_of_any_end_reaches_the_screen_or_the_log_raw"]),
    ("stop-time", &["stopping.rs a_run_stops_after_its_time_and_is_taken_up_again"]),
    ("ssh-basic", &["remote.rs push_is_identical_and_quiet_over_every_carrier"]),
    ("growing-file", &["troubled_source.rs file_that_keeps_changing_ends_with_24_and_the_old_copy_stays_whole"]),
    ("change-shrink", &["append.rs source_that_shrinks_while_it_is_added_leaves_nothing_beyond_its_end"]),
    ("change-vanish", &["troubled_source.rs files_that_vanish_end_with_24_and_the_rest_is_copied"]),
    ("source-change-size-continues", &["troubled_source.rs file_that_keeps_changing_ends_with_24_and_the_old_copy_stays_whole"]),
    ("hashsearch-chain", &["delta.rs blocks_that_moved_are_found"]),
    ("highfd-hang", &["scenarios.rs descriptors_beyond_1024_hang_nothing"]),
    ("variety", &["real_tree.rs real_tree_goes_both_ways_over_both_carriers_in_little_memory"]),
    ("variety-symlink-traversal", &["followed_links.rs links_that_lead_in_circles_are_named_and_followed_no_further"]),
    ("misc-coverage", &["crates/dsync-cli/tests/runs.rs options_of_rsync_without_effect_change_no_tree_and_no_list"]),
    ("msg-io-timeout-zero", &["network.rs path_that_is_gone_for_good_ends_both_ends_and_the_next_run_goes_on"]),
    ("scanner-argv-bounds", &["wide.rs as_many_operands_as_a_command_line_takes_are_copied"]),
    ("scanner-delete-delay-overread", &["delete.rs deletes_what_rsync_deletes"]),
    ("remote-shell-newline-escaping", &["remote.rs odd_bytes_in_remote_paths_reach_no_shell"]),
    ("reverse-daemon-delta", &["generated.rs pulls_of_any_tree_are_identical"]),
    ("fake-super-backup-fifo-regression", &["scenarios.rs a_fifo_that_gives_way_under_fake_super_has_a_backup"]),
    ("delete-missing-args-files-from", &["scenarios.rs listed_paths_that_are_missing_go_at_the_destination"]),
    ("sender-remove-source-root-anchor", &["scenarios.rs files_leave_a_source_that_is_named_from_the_root"]),
    ("batch-only-remove-source-regression", &["batch.rs files_that_would_leave_their_source_stay_in_a_run_that_only_records"]),
    ("batch-mode", &["batch.rs a_recorded_run_is_applied_elsewhere_as_rsync_applies_its_own", "batch.rs a_batch_of_a_push_is_applied_here_and_on_a_host", "batch.rs a_batch_comes_through_a_pipe"]),
    ("scanner-batch-flag-mismatch", &["batch.rs options_that_decide_what_is_copied_have_to_be_those_of_the_recorded_run"]),
    ("write-batch-filter-injection", &["batch.rs rules_of_the_recorded_run_protect_where_none_are_given"]),
    ("write-batch-quoting", &["batch.rs names_with_quotes_and_spaces_are_recorded"]),
    ("protected-regular", &["scenarios.rs a_file_of_another_user_in_a_sticky_directory_is_written"]),
];

/// Scenarios without a test here, each with the reason.
#[rustfmt::skip]
const OPEN: &[(&str, &str)] = &[
    ("crtimes", "Linux keeps no settable time of creation; -N does not exist"),
    ("macos-setgid-ordinary-mode-regression", "dsync is for Linux"),
    ("iwildmatch-fold", "about a function of rsync's that folds case"),
    ("compress-zlib-insert", "dsync has no zlib"),
    ("max-alloc-zero-rejected", "--max-alloc=0 means no limit, and a peer has no say in it"),
    ("msg-io-timeout-overflow", "no message of dsync's carries a time limit"),
    ("connect-prog-host-quoting", "RSYNC_CONNECT_PROG is for the daemon, which dsync is not"),
    ("connect-prog-nested-singlequote-host-injection", "RSYNC_CONNECT_PROG is for the daemon, which dsync is not"),
    ("idn", "host names go to the remote shell as they are"),
];

#[test]
fn each_scenario_has_a_test_that_exists_or_a_reason() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = Vec::new();
    for (scenario, covers) in COVERED {
        assert!(!covers.is_empty(), "{scenario}");
        for cover in *covers {
            let (file, test) = cover.split_once(' ').expect("file and test");
            let path =
                if file.contains('/') { tests.join("..").join(file) } else { tests.join("tests").join(file) };
            let text =
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{scenario}: {file}: {error}"));
            let head = format!("fn {test}(");
            let found = text.match_indices(&head).any(|(at, _)| {
                let before = text[..at].trim_end().lines().rev().map(str::trim);
                before.take_while(|line| !line.is_empty() && *line != "}").any(|line| line == "#[test]")
            });
            assert!(found, "{scenario}: no test {test} in {file}");
        }
        names.push(*scenario);
    }
    for (scenario, reason) in OPEN {
        assert!(!reason.is_empty(), "{scenario}");
        names.push(scenario);
    }
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "a scenario is there twice");
}

/// The trees were made at different times.
const NAMES: Scope = Scope {
    owners: true,
    modes: true,
    times: false,
    dir_times: false,
    root: false,
    xattrs: true,
    links: false,
    atimes: false,
};

/// Makes the tree of a line: a source, an older destination, and links between.
fn plant(at: &Path) {
    for file in ["src/f", "src/d/g", "src/d/e/h", "dst/f", "dst/old/x", "rel/real/in/file"] {
        let path = at.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    fs::File::options()
        .write(true)
        .open(at.join("dst/f"))
        .unwrap()
        .set_modified(std::time::UNIX_EPOCH)
        .unwrap();
    symlink("real", at.join("rel/link")).unwrap();
    symlink("f", at.join("src/near")).unwrap();
    symlink("../../away", at.join("src/d/away")).unwrap();
    symlink("a/../../../b", at.join("src/d/winding")).unwrap();
    symlink("/etc/passwd", at.join("src/absolute")).unwrap();
    symlink(at.join("src/f"), at.join("src/d/inside")).unwrap();
    // What the source's unsafe link replaces has a backup, or not.
    fs::create_dir(at.join("dst/d")).unwrap();
    fs::write(at.join("dst/d/away"), "a file").unwrap();
    for place in ["src", "src/d/e"] {
        drop(UnixListener::bind(at.join(place).join("socket")).unwrap());
        let made = Run::of("mkfifo").arg(at.join(place).join("fifo")).run();
        assert_eq!(made.code(), Some(0), "{}", made.account());
    }
}

/// Runs a line with rsync and one with dsync, each in a tree of its own, and returns what differs.
fn difference(theirs: &[&str], ours: &[&str]) -> Option<String> {
    let scratch = Scratch::new();
    let both: Vec<(PathBuf, Outcome)> = [("rsync", Run::of("rsync"), theirs), ("dsync", Run::dsync(), ours)]
        .map(|(name, program, line)| {
            // The same length for both, as a link's text has it.
            let at = scratch.at(name);
            plant(&at);
            (at.clone(), program.args(line).cwd(&at).run())
        })
        .into();
    let [(wanted, rsync), (made, dsync)] = both.as_slice() else { unreachable!() };
    // A link whose text has its own tree's path.
    let found = differences(wanted, made, NAMES).into_iter().filter(|line| !line.contains("inside"));
    let found: Vec<_> = found.collect();
    let same = found.is_empty() && rsync.code() == dsync.code();
    (!same).then(|| format!("{ours:?}: {found:?}\n{}\n{}", rsync.account(), dsync.account()))
}

#[test]
fn lines_of_the_scenarios_do_what_rsync_does() {
    let lines: &[&[&str]] = &[
        // duplicates
        &["-a", "src/", "src/", "new/"],
        &["-a", "src", "src", "src/d", "new/"],
        // missing
        &["-rn", "--delete", "src/", "new/"],
        &["-a", "--existing", "src/", "new/"],
        &["-a", "--existing", "src/", "dst/"],
        &["-a", "--ignore-existing", "src/", "dst/"],
        // mkpath, and of one file to another
        &["-a", "--mkpath", "src/", "new/way/to/"],
        &["-a", "--mkpath", "src/f", "new/way/g"],
        &["-a", "--mkpath", "src/f", "new/way/"],
        // relative, with a link on the way
        &["-aR", "rel/link/in", "new/"],
        &["-aR", "rel/./link/in/file", "new/"],
        &["-aR", "--no-implied-dirs", "rel/link/in/file", "new/"],
        // relative, with a link on the way that is followed; without empty directories
        &["-aR", "-L", "rel/link/in", "new/"],
        &["-aR", "-L", "rel/./link/in/file", "new/"],
        &["-aR", "-k", "rel/link", "new/"],
        &["-aR", "-k", "rel/./link/", "new/"],
        &["-aR", "-L", "--no-implied-dirs", "rel/link/in/file", "new/"],
        &["-aR", "--copy-unsafe-links", "rel/link/in", "new/"],
        &["-aRm", "-L", "rel/link", "new/"],
        &["-am", "-k", "--exclude=none", "rel/", "new/"],
        // links: none, safe ones, with backups
        &["-rtp", "src/", "new/"],
        &["-a", "--safe-links", "src/", "new/"],
        &["-a", "--safe-links", "--backup", "src/", "dst/"],
        &["-a", "--safe-links", "--delete", "src/", "dst/"],
        // specials in directories
        &["-a", "--specials", "src/", "new/"],
        &["-a", "--no-specials", "src/", "new/"],
        // moved with their path
        &["-aR", "--remove-source-files", "src/./d/e/h", "new/"],
        &["-aR", "--remove-source-files", "src/d", "new/"],
    ];
    // Older ones miss the directory that they only said they would make.
    let mkpath: &[&str] = &["-an", "--mkpath", "src/f", "new/way/g"];
    let lines = lines.iter().chain(oracle::is_since((3, 5, 0)).then_some(&mkpath));
    let wrong: Vec<_> = lines.filter_map(|line| difference(line, line)).collect();
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// rsync 3.5.0 makes no backup of what it removes where the directory is written with two slashes.
#[test]
fn slashes_too_many_in_a_backup_directory_are_one() {
    for (plain, odd) in [("kept/below", "kept//below///"), ("../kept/below", "../kept//below/")] {
        let [plain, odd] = [plain, odd].map(|dir| format!("--backup-dir={dir}"));
        let line = |dir: &'static str| ["-a", "--delete", "--backup", dir, "src/", "dst/"];
        assert_eq!(difference(&line(plain.leak()), &line(odd.leak())), None);
    }
}

/// A caller that has more files open than select(2) counts.
#[test]
fn descriptors_beyond_1024_hang_nothing() {
    let scratch = Scratch::new();
    fs::write(scratch.src().join("f"), "content").unwrap();
    let script = "ulimit -n 4096 || exit 77; exec perl -e '$^F = 10000; my @open; \
                  for (1..1500) { open(my $one, \"<\", \"/dev/null\") or exit 78; push @open, $one } exec @ARGV' \"$@\"";
    let run = Run::of("sh").args(["-c", script, "sh"]).arg(program()).arg("-a");
    let outcome = run.arg(slash(&scratch.src())).arg(scratch.dst()).run();
    assert_eq!(outcome.code(), Some(0), "{}", outcome.account());
    assert_eq!(fs::read(scratch.dst().join("f")).unwrap(), b"content");
}

/// A real fifo, and a file that stands for one.
#[test]
fn a_fifo_that_gives_way_under_fake_super_has_a_backup() {
    needs_dsync!();
    for (stands_for_one, more) in [(false, "-b"), (false, "--backup-dir=../kept"), (true, "-b")] {
        let scratch = Scratch::new();
        let both = [("rsync", Run::of("rsync")), ("dsync", Run::dsync())].map(|(name, program)| {
            let at = scratch.at(name);
            fs::create_dir_all(at.join("src")).unwrap();
            fs::create_dir_all(at.join("dst")).unwrap();
            let of_fifo = if stands_for_one { at.join("src/p") } else { at.join("dst/p") };
            let made = Run::of("mkfifo").arg(&of_fifo).run();
            assert_eq!(made.code(), Some(0), "{}", made.account());
            if stands_for_one {
                let _ = oracle::rsync(["-a", "--fake-super", "src/", "dst"].map(|word| match word {
                    "src/" => slash(&at.join("src")),
                    "dst" => at.join("dst").into(),
                    option => option.into(),
                }));
                fs::remove_file(&of_fifo).unwrap();
            }
            fs::write(at.join("src/p"), "a file").unwrap();
            let line = ["-a", "--fake-super", "-b", more, "src/", "dst/"];
            (at.clone(), program.args(line).cwd(&at).run())
        });
        let [(wanted, rsync), (made, dsync)] = &both;
        let accounts = format!("{}\n{}", rsync.account(), dsync.account());
        assert_eq!((rsync.code(), dsync.code()), (Some(0), Some(0)), "{accounts}");
        assert_eq!(differences(wanted, made, NAMES), [""; 0], "{more} {accounts}");
        let backup = if more == "-b" { made.join("dst/p~") } else { made.join("kept/p") };
        assert!(fs::symlink_metadata(backup).is_ok(), "{accounts}");
    }
}

#[test]
fn listed_paths_that_are_missing_go_at_the_destination() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for option in ["--delete-missing-args", "--ignore-missing-args", "-n"] {
        let mut wanted = None;
        // Older ones end with 2 there.
        let is_reference = option != "--delete-missing-args" || oracle::is_since((3, 5, 0));
        for way in ["rsync", "local", "push", "pull"].into_iter().skip(usize::from(!is_reference)) {
            let scratch = Scratch::new();
            for file in ["src/f", "dst/gone", "dst/stays", "dst/d/gone", "dst/d/stays"] {
                fs::create_dir_all(scratch.at(file).parent().unwrap()).unwrap();
                fs::write(scratch.at(file), file).unwrap();
            }
            fs::create_dir_all(scratch.at("src/d")).unwrap();
            fs::create_dir_all(scratch.at("dst/d/empty")).unwrap();
            fs::write(scratch.at("list"), "f\ngone\nd/gone\nd/empty\nnever\n").unwrap();

            let run = match way {
                "rsync" => Run::of("rsync"),
                "local" => Run::dsync(),
                _ => sshd.run(Via::Ssh),
            };
            let list = format!("--files-from={}", scratch.at("list").display());
            let (src, dst) = (slash(&scratch.src()), slash(&scratch.dst()));
            let run = run.args(["-a", option, &list]);
            let outcome = match way {
                "push" => run.arg(src).arg(sshd.operand(dst)),
                "pull" => run.arg(sshd.operand(src)).arg(dst),
                _ => run.arg(src).arg(dst),
            }
            .run();
            let left: Vec<_> = survey(&scratch.dst()).into_keys().collect();
            let is_gone = option == "--delete-missing-args";
            assert_eq!(scratch.dst().join("d/gone").exists(), !is_gone, "{way} {}", outcome.account());
            let result = (outcome.code(), left);
            assert_eq!(*wanted.get_or_insert_with(|| result.clone()), result, "{way} {}", outcome.account());
        }
    }
}

#[test]
fn files_leave_a_source_that_is_named_from_the_root() {
    for options in [&["-aR", "--remove-source-files"][..], &["-a", "--remove-source-files"]] {
        for anchor in ["", "./"] {
            let scratch = Scratch::new();
            let both = [("rsync", Run::of("rsync")), ("dsync", Run::dsync())].map(|(name, program)| {
                let at = scratch.at(name);
                plant(&at);
                let inner = at.join("src");
                let from = format!("{}/{anchor}d/e", inner.display());
                (at.clone(), program.args(options).arg(from).arg("new/").cwd(&at).run())
            });
            let [(wanted, rsync), (made, dsync)] = &both;
            let accounts = format!("{}\n{}", rsync.account(), dsync.account());
            assert_eq!((rsync.code(), dsync.code()), (Some(0), Some(0)), "{accounts}");
            // Without the anchor the copy has the path of its own tree.
            for part in ["src", "new"] {
                let (wanted, made) = (files(&wanted.join(part)), files(&made.join(part)));
                assert_eq!(made, wanted, "{options:?} {anchor} {accounts}");
            }
            assert!(!made.join("src/d/e/h").exists(), "{accounts}");
        }
    }
}

/// Returns the names of all files below a directory, without their directories, and how many.
fn files(at: &Path) -> Vec<Vec<u8>> {
    let last = |path: &Vec<u8>| path.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec();
    let mut names: Vec<_> =
        survey(at).keys().map(last).filter(|name| name != b"dsync" && name != b"rsync").collect();
    names.sort_unstable();
    names
}

/// The system, where `fs.protected_regular` is set, lets not even root open such a file with `O_CREAT`:
/// so no call does, but for a name that is new.
#[test]
fn a_file_of_another_user_in_a_sticky_directory_is_written() {
    needs_dsync!();
    needs_root!();
    for options in [&["-a"][..], &["-a", "--inplace"], &["-a", "--append-verify"], &["-a", "--partial"]] {
        let scratch = Scratch::new();
        let _ = fs::create_dir(scratch.dst());
        fs::write(scratch.src().join("f"), "content and more").unwrap();
        fs::write(scratch.dst().join("f"), "content").unwrap();
        chown(scratch.dst().join("f"), Some(1234), Some(1234)).unwrap();
        chown(scratch.src(), Some(4321), Some(4321)).unwrap();
        chown(scratch.dst(), Some(4321), Some(4321)).unwrap();
        for dir in [scratch.src(), scratch.dst()] {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o1777)).unwrap();
        }
        let (outcome, calls) = strace::watch("openat,openat2,creat,open", &scratch.at("log"), |run| {
            run.args(options).arg(slash(&scratch.src())).arg(slash(&scratch.dst()))
        });
        let _ = outcome.expect_quiet_success();
        let may_hit = |call: &&String| call.contains("O_CREAT") && !call.contains("O_EXCL");
        let found: Vec<_> = calls.iter().filter(may_hit).collect();
        assert!(!calls.is_empty() && found.is_empty(), "{options:?}: {found:?}");
        assert_eq!(fs::read(scratch.dst().join("f")).unwrap(), b"content and more", "{options:?}");
    }
}
