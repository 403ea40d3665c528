//! Options that change a path, the same for every program that takes one.

use std::time::Duration;

use super::path::{Burst, Conditions, Medium, Path};

/// The options of [`apply`], one line each.
pub const HELP: &str = "\
\x20 --mtu BYTES      largest packet
  --congestion CC  TCP's congestion control at both ends (cubic)
  and for an emulated link:
  --rate MBIT      megabits per second, 0 for no limit
  --rtt MS         round trip
  --jitter MS      each packet takes up to this much longer
  --loss PERCENT   random loss
  --burst E,L      bursts of losses: chance to enter and to leave one, in percent for each packet
  --reorder PCT    packets that arrive 2 ms late
  --queue BYTES    queue before the link (default: a round trip's worth)
  --block-udp      drop UDP
  --seed N         what losses are drawn from";

/// Applies one option to a path; returns `None` if it is unknown or invalid.
pub fn apply(path: &mut Path, flag: &str, args: &mut impl Iterator<Item = String>) -> Option<()> {
    match flag {
        "--mtu" => path.mtu = args.next()?.parse().ok().filter(|mtu| (576..=u16::MAX).contains(mtu))?,
        "--congestion" => {
            let chosen = args.next()?;
            path.congestion = ["cubic", "bbr", "reno"].into_iter().find(|name| *name == chosen)?;
        }
        _ => {
            let Medium::Link(conditions) = &mut path.medium else { return None };
            return change(conditions, flag, args);
        }
    }
    Some(())
}

fn change(conditions: &mut Conditions, flag: &str, args: &mut impl Iterator<Item = String>) -> Option<()> {
    let had_usual_queue = conditions.queue_bytes == conditions.usual_queue();
    match flag {
        "--rate" => conditions.bits_per_second = (number(&args.next()?)? * 1e6) as u64,
        "--rtt" => conditions.round_trip = milliseconds(&args.next()?)?,
        "--jitter" => conditions.jitter = milliseconds(&args.next()?)?,
        "--loss" => conditions.loss = share(&args.next()?)?,
        "--burst" => {
            let (enter, leave) = pair(&args.next()?)?;
            conditions.burst = Some(Burst { enter: enter / 100.0, leave: leave / 100.0 });
        }
        "--reorder" => conditions.reorder = share(&args.next()?)?,
        "--queue" => {
            conditions.queue_bytes = args.next()?.parse().ok()?;
            return Some(());
        }
        "--block-udp" => conditions.udp_blocked = true,
        "--seed" => conditions.seed = args.next()?.parse().ok()?,
        _ => return None,
    }
    if had_usual_queue {
        conditions.queue_bytes = conditions.usual_queue();
    }
    Some(())
}

/// Parses two numbers with a comma between them, neither negative.
pub fn pair(text: &str) -> Option<(f64, f64)> {
    let (first, second) = text.split_once(',')?;
    Some((number(first)?, number(second)?))
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

fn share(text: &str) -> Option<f64> {
    number(text).filter(|percent| *percent <= 100.0).map(|percent| percent / 100.0)
}

fn milliseconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(number(text)? / 1000.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(name: &str, words: &[&str]) -> Option<Path> {
        let mut path = Path::named(name)?;
        let mut args = words.iter().map(|word| (*word).to_owned());
        while let Some(flag) = args.next() {
            apply(&mut path, &flag, &mut args)?;
        }
        Some(path)
    }

    #[test]
    fn options_change_the_path_and_the_usual_queue_follows() {
        let changed = applied("wan", &["--rate", "100", "--rtt", "40", "--loss", "1"]);
        let expected = Conditions { loss: 0.01, ..Conditions::of(100, Duration::from_millis(40)) };
        assert_eq!(changed, Some(Path::over(expected)));
        let changed = applied("wan", &["--queue", "70000", "--rtt", "40"]).expect("known options");
        assert!(matches!(changed.medium, Medium::Link(Conditions { queue_bytes: 70_000, .. })));
    }

    #[test]
    fn senseless_options_are_refused() {
        for words in
            [&["--loss", "101"][..], &["--rtt", "-1"], &["--rate"], &["--burst", "1"], &["--speed", "1"]]
        {
            assert_eq!(applied("wan", words), None, "{words:?}");
        }
        assert_eq!(applied("veth", &["--loss", "1"]), None);
        assert_eq!(applied("veth", &["--congestion", "vegas"]), None);
    }
}
