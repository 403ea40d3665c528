//! Runs a command on the near host of a lab and prints the path's counts.
//!
//! `cargo xtask lab NAME [OPTIONS] -- COMMAND...`. The command sees `$LAB_HOST`, the far host's
//! address; `$LAB_SSH`, an ssh command that reaches it; and `$LAB_FAR`, a prefix that runs a
//! command there. The program under test is first on its path. The lab ends with the command's exit
//! code.

use std::{
    env,
    ffi::OsString,
    process::{Command, ExitCode},
    sync::mpsc,
    thread,
    time::Duration,
};

use dsync_tests::{
    Lab,
    lab::{Counts, Path, flags},
    program,
};

fn main() -> ExitCode {
    let Some(order) = Order::parse(env::args().skip(1)) else {
        eprintln!(
            "usage: cargo xtask lab NAME [OPTIONS] -- COMMAND...\n  NAME is one of {}",
            Path::NAMES.join(", ")
        );
        eprintln!("{}", flags::HELP);
        eprintln!("  --cut AFTER,FOR  seconds: cut the path once");
        return ExitCode::from(2);
    };
    let Some(lab) = Lab::create(&order.path) else {
        eprintln!("lab: namespaces and TUN devices need root, and /dev/net/tun");
        return ExitCode::FAILURE;
    };
    eprintln!("lab {}: {}", order.name, order.path);
    let code = run(&lab, &order);
    for (name, counts) in ["near to far", "far to near"].iter().zip(lab.counts()) {
        eprintln!("lab {}: {name}: {}", order.name, describe(&counts));
    }
    code
}

struct Order {
    name: String,
    path: Path,
    cut: Option<(Duration, Duration)>,
    command: Vec<String>,
}

impl Order {
    fn parse(args: impl Iterator<Item = String>) -> Option<Self> {
        let mut args = args;
        let name = args.next()?;
        let mut order = Self { path: Path::named(&name)?, name, cut: None, command: Vec::new() };
        while let Some(flag) = args.next() {
            match flag.as_str() {
                "--" => {
                    order.command = args.collect();
                    break;
                }
                "--cut" => {
                    let (after, time) = flags::pair(&args.next()?)?;
                    order.cut = Some((
                        Duration::try_from_secs_f64(after).ok()?,
                        Duration::try_from_secs_f64(time).ok()?,
                    ));
                }
                _ => flags::apply(&mut order.path, &flag, &mut args)?,
            }
        }
        (!order.command.is_empty()).then_some(order)
    }
}

fn run(lab: &Lab, order: &Order) -> ExitCode {
    let enter = lab.near().enter();
    let mut command = Command::new(&enter[0]);
    command.args(&enter[1..]).args(&order.command);
    let far: Vec<String> = lab.far().enter().iter().map(|word| word.to_string_lossy().into_owned()).collect();
    command.env("LAB_HOST", lab.host()).env("LAB_SSH", lab.sshd().shell()).env("LAB_FAR", far.join(" "));
    let mut path: OsString = program().parent().expect("the program's directory").into();
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_default());
    command.env("PATH", path);
    let (ended, end) = mpsc::channel::<()>();
    thread::scope(|scope| {
        if let Some((after, time)) = order.cut {
            // Wakes when the command ends, because its sender is gone then.
            scope.spawn(move || {
                if end.recv_timeout(after) == Err(mpsc::RecvTimeoutError::Timeout) {
                    lab.cut(time);
                }
            });
        }
        let status = command.status();
        drop(ended);
        match status {
            Ok(status) => ExitCode::from(status.code().and_then(|code| code.try_into().ok()).unwrap_or(255)),
            Err(error) => {
                eprintln!("lab: cannot run '{}': {error}", order.command[0]);
                ExitCode::FAILURE
            }
        }
    })
}

fn describe(counts: &Counts) -> String {
    let mut text = format!(
        "{} packets of {} bytes offered, {} of {} delivered",
        counts.offered_packets, counts.offered_bytes, counts.delivered_packets, counts.delivered_bytes
    );
    for (count, cause) in [
        (counts.queue, "dropped at the full queue"),
        (counts.loss, "lost on the wire"),
        (counts.blocked, "blocked UDP"),
        (counts.cut, "lost while cut"),
        (counts.overrun, "never taken: the machine is too slow for this path"),
    ] {
        if count > 0 {
            let share = 100.0 * count as f64 / counts.offered_packets.max(1) as f64;
            text.push_str(&format!(", {count} ({share:.2} %) {cause}"));
        }
    }
    text
}
