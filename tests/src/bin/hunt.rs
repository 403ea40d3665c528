//! `cargo xtask hunt`: random cases, each run with rsync and with dsync.

use std::{
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitCode},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use dsync_tests::{
    hunt::{INSIDE, Plan, hunt},
    skip::is_root,
};

const USAGE: &str = "usage: hunt [--minutes N | --cases N] [--seed S] [--on tmpfs,ext4,xfs,btrfs] [--case SEED] [--without OPTION,...]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(plan) = plan(&args) else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    // Use loop mounts that nobody else sees and that vanish with this process.
    if is_root() && std::env::var_os(INSIDE).is_none() {
        let itself = std::env::current_exe().expect("the path of this program");
        let mut inside = Command::new("unshare");
        inside.args(["--mount", "--propagation", "private", "--"]).arg(itself).args(&args).env(INSIDE, "1");
        let error = inside.exec();
        eprintln!("hunt: cannot start unshare: {error}");
    }
    // A case that fails by a panic is a finding and reported as one.
    std::panic::set_hook(Box::new(|_| {}));
    if hunt(&plan) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn plan(args: &[String]) -> Option<Plan> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let list = |words: &str| words.split(',').map(str::to_owned).collect::<Vec<_>>();
    let mut plan = Plan {
        seed: since.as_secs(),
        time: Duration::from_secs(180),
        on: list("tmpfs,ext4,xfs,btrfs"),
        cases: None,
        case: None,
        without: Vec::new(),
        scripts: PathBuf::from("target/hunt"),
    };
    for pair in args.chunks(2) {
        let [option, value] = pair else { return None };
        match option.as_str() {
            "--minutes" => plan.time = Duration::from_secs_f64(60.0 * value.parse::<f64>().ok()?),
            "--cases" => plan.cases = Some(value.parse().ok()?),
            "--seed" => plan.seed = value.parse().ok()?,
            "--on" => plan.on = list(value),
            "--case" => plan.case = Some(value.parse().ok()?),
            "--without" => plan.without = list(value),
            _ => return None,
        }
    }
    Some(plan)
}
