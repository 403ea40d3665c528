//! The output and the end of the command, one file under `tests/cmd` for each behaviour.

/// Runs every transcript. `TRYCMD=overwrite` rewrites them after a wanted change.
#[test]
fn command_says_what_the_transcripts_say() {
    let cases = trycmd::TestCases::new();
    // A developer's shell variables must not reach the command.
    cases.env("DSYNC_LOG", "").env("DSYNC_RSH", "").env("RSYNC_RSH", "").env("LC_ALL", "C.UTF-8");
    cases.case("tests/cmd/*.trycmd");
    cases.case("README.md");
}
