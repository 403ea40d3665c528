//! Requirements of the controller, on simulated paths. Rates in Mbit/s, times in ms.

use super::{Cubic, LinkConfig, Sim, Source, Stretch};

/// Makes a path with `queue` ms of queue at its rate, and `loss` packets in a million lost at
/// random.
fn path(rate: u64, rtt: u64, queue: u64, loss: u64) -> LinkConfig {
    LinkConfig {
        rate: rate * MBIT,
        rtt: rtt * 1_000_000,
        queue: rate * MBIT * queue / 1000,
        loss,
        jitter: 0,
        policer: None,
    }
}

/// Simulates one flow of ours, alone.
fn alone(config: LinkConfig) -> Sim {
    let mut sim = Sim::new(config, SEED);
    sim.add_ours();
    sim
}

fn mbit(stretch: Stretch) -> u64 {
    stretch.rate / MBIT
}

/// Returns what both flows did in `ms`.
fn both(sim: &mut Sim, ms: u64) -> [Stretch; 2] {
    let marks = [sim.mark(0), sim.mark(1)];
    sim.run_ms(ms);
    [sim.since(0, marks[0]), sim.since(1, marks[1])]
}

fn assert_shared(shares: [Stretch; 2], percent: u64) {
    let [a, b] = shares.map(mbit);
    assert!(a.min(b) * 100 >= (a + b) * percent, "{a} : {b}");
    assert!(a + b >= 90, "{a} + {b} of 100");
}

#[test]
fn the_start_doubles_until_the_path_is_full() {
    // From 10 packets to the 2,000 of the path is 8 doublings.
    for (rtt, limit) in [(20, 500), (100, 1600)] {
        let mut sim = alone(path(200, rtt, 20, 0));
        sim.run_ms(limit);
        let then = sim.stretch(0, 1000);
        assert!(mbit(then) >= 180, "{rtt} ms: {then:?}");
    }
}

#[test]
fn a_path_stays_full_whatever_it_loses_at_random() {
    for rtt in [20, 100] {
        for loss in [0, 1_000, 10_000] {
            let mut sim = alone(path(200, rtt, 20, loss));
            sim.run_ms(4000);
            let then = sim.stretch(0, 10_000);
            assert!(mbit(then) >= 182, "{rtt} ms, {loss} ppm: {then:?}");
            assert!(then.drops < 1.0, "{rtt} ms, {loss} ppm: {then:?}");
        }
    }
}

#[test]
fn five_per_cent_loss_is_no_congestion() {
    let mut sim = alone(path(100, 40, 40, 50_000));
    sim.run_ms(4000);
    let then = sim.stretch(0, 8000);
    assert!(mbit(then) >= 85, "{then:?}");
}

#[test]
fn loss_far_above_ten_per_cent_is_congestion() {
    let mut sim = alone(path(100, 40, 40, 0));
    sim.run_ms(4000);
    sim.link.config.loss = 250_000;
    sim.run_ms(2000);
    let then = sim.stretch(0, 4000);
    assert!(mbit(then) < 10, "{then:?}");
    sim.link.config.loss = 0;
    sim.run_ms(4000);
    let after = sim.stretch(0, 4000);
    assert!(mbit(after) >= 90, "{after:?}");
}

#[test]
fn a_short_queue_is_enough_and_is_not_overrun() {
    for queue in [4, 10] {
        let mut sim = alone(path(200, 20, queue, 0));
        sim.run_ms(3000);
        let then = sim.stretch(0, 10_000);
        assert!(mbit(then) >= 180 && then.drops < 2.0, "{queue} ms: {then:?}");
    }
}

#[test]
fn a_deep_queue_stays_nearly_empty() {
    let mut sim = alone(path(100, 40, 2000, 0));
    sim.run_ms(3000);
    let then = sim.stretch(0, 20_000);
    assert!(mbit(then) >= 95 && then.rtt.as_millis() < 50 && then.drops == 0.0, "{then:?}");
}

#[test]
fn a_path_that_halves_its_rate_is_not_flooded() {
    for (rtt, queue, loss) in [(20, 20, 0), (100, 40, 1_000), (40, 40, 10_000)] {
        let mut sim = alone(path(200, rtt, queue, loss));
        sim.run_ms(4000);
        sim.link.config.rate = 100 * MBIT;
        sim.run_ms(2000);
        let then = sim.stretch(0, 4000);
        assert!(mbit(then) >= 90 && then.drops < 2.0, "{rtt} ms: {then:?}");
        assert!(u64::try_from(then.rtt.as_millis()).unwrap() < rtt + rtt / 4 + 5, "{rtt} ms: {then:?}");
    }
}

#[test]
fn a_path_that_doubles_its_rate_is_found_out() {
    for (rtt, queue, loss) in [(20, 20, 0), (100, 40, 1_000), (40, 40, 10_000)] {
        let mut sim = alone(path(100, rtt, queue, loss));
        sim.run_ms(4000);
        sim.link.config.rate = 200 * MBIT;
        sim.run_ms(3000);
        let then = sim.stretch(0, 4000);
        assert!(mbit(then) >= 175 && then.drops < 2.0, "{rtt} ms: {then:?}");
    }
}

#[test]
fn a_path_that_grows_longer_or_shorter_stays_full() {
    for (before, after) in [(20, 40), (20, 80), (50, 150), (100, 20)] {
        let mut sim = alone(path(100, before, 100, 1_000));
        sim.run_ms(4000);
        sim.link.config.rtt = after * 1_000_000;
        sim.run_ms(3000);
        let then = sim.stretch(0, 6000);
        assert!(mbit(then) >= 90, "{before} to {after} ms: {then:?}");
        let rtt = u64::try_from(then.rtt.as_millis()).unwrap();
        assert!(rtt < after + after / 4 + 5, "{before} to {after} ms: {then:?}");
    }
}

#[test]
fn jitter_as_long_as_the_path_does_not_starve() {
    for (rtt, jitter, least) in [(20, 5, 90), (20, 20, 75), (100, 20, 80)] {
        for seed in 1..=12 {
            let config = LinkConfig { jitter: jitter * 1_000_000, ..path(100, rtt, 40, 1_000) };
            let mut sim = Sim::new(config, seed);
            sim.add_ours();
            sim.run_ms(5000);
            let then = sim.stretch(0, 6000);
            assert!(mbit(then) >= least, "{rtt} ms, jitter {jitter} ms, seed {seed}: {then:?}");
        }
    }
}

#[test]
fn a_policer_is_found_and_kept_to() {
    for (rtt, bucket) in [(40, 100), (40, 1000), (20, 50)] {
        let policer = Some((50 * MBIT, 50 * MBIT * bucket / 1000));
        let mut sim = alone(LinkConfig { policer, ..path(1000, rtt, 20, 0) });
        sim.run_ms(4000);
        let then = sim.stretch(0, 16_000);
        assert!(mbit(then) >= 35 && then.drops < 10.0, "{rtt} ms, bucket of {bucket} ms: {then:?}");
    }
}

#[test]
fn a_slow_source_does_not_pass_for_a_slow_path() {
    let mut sim = alone(path(200, 50, 50, 0));
    sim.run_ms(3000);
    sim.set_source(0, Source::Rate(20 * MBIT, sim.now));
    sim.run_ms(200);
    let limited = sim.stretch(0, 1500);
    assert!((19..=20).contains(&mbit(limited)), "{limited:?}");
    sim.set_source(0, Source::Endless);
    sim.run_ms(500);
    let then = sim.stretch(0, 1000);
    assert!(mbit(then) >= 180 && then.drops < 2.0, "{then:?}");
}

#[test]
fn idle_time_costs_no_rate_and_floods_nothing() {
    for (idle, drops) in [(2000, 1.0), (15_000, 10.0)] {
        let mut sim = alone(path(200, 50, 50, 0));
        sim.run_ms(3000);
        sim.set_source(0, Source::Nothing);
        sim.run_ms(idle);
        sim.set_source(0, Source::Endless);
        let first = sim.stretch(0, 700);
        assert!(mbit(first) >= 150 && first.drops < drops, "{idle} ms: {first:?}");
    }
}

#[test]
fn a_cut_of_five_seconds_is_survived() {
    let mut sim = alone(path(200, 50, 50, 0));
    sim.run_ms(3000);
    sim.link.config.loss = 1_000_000;
    sim.run_ms(5000);
    sim.link.config.loss = 0;
    // The next timeout may be as far away as the cut was long.
    sim.run_ms(6500);
    let then = sim.stretch(0, 1000);
    assert!(mbit(then) >= 180, "{then:?}");
}

#[test]
fn a_cubic_flow_and_ours_share_over_twenty_and_sixty_seconds() {
    // One bandwidth-delay product of queue; together, ours first, ours second.
    for order in 0..3 {
        let mut sim = Sim::new(path(100, 40, 40, 0), SEED);
        sim.add_ours();
        if order == 1 {
            sim.run_ms(5000);
        }
        sim.add(Box::new(Cubic::new()));
        if order == 2 {
            sim.set_source(0, Source::Nothing);
            sim.run_ms(5000);
            sim.set_source(0, Source::Endless);
        }
        let begin = [sim.mark(0), sim.mark(1)];
        let twenty = both(&mut sim, 20_000);
        assert_shared(twenty, 25);
        sim.run_ms(20_000);
        let last = both(&mut sim, 20_000);
        assert_shared(last, 25);
        assert!(last[0].drops < 2.0, "{last:?}");
        assert_shared([sim.since(0, begin[0]), sim.since(1, begin[1])], 25);
    }
}

#[test]
fn a_short_or_long_queue_does_not_starve_cubic() {
    for queue in [10, 80] {
        let mut sim = Sim::new(path(100, 40, queue, 0), SEED);
        sim.add_ours();
        sim.run_ms(3000);
        sim.add(Box::new(Cubic::new()));
        sim.run_ms(10_000);
        assert_shared(both(&mut sim, 20_000), 20);
    }
}

#[test]
fn two_flows_of_ours_share() {
    for queue in [10, 40] {
        let mut sim = Sim::new(path(100, 40, queue, 0), SEED);
        sim.add_ours();
        sim.run_ms(3000);
        sim.add_ours();
        sim.run_ms(4000);
        let then = both(&mut sim, 16_000);
        assert_shared(then, 30);
        assert!(then[0].drops < 2.0 && then[1].drops < 2.0, "{then:?}");
    }
}

#[test]
fn a_host_that_stands_still_now_and_then_keeps_a_long_path_busy() {
    // 5 to 30 ms every 100 or 40 ms at either end, which is 17 or 44 % of the time.
    for (rate, rtt, gap, loss, least) in [
        (200, 100, 100, 0, 70),
        (200, 100, 100, 10_000, 66),
        (200, 20, 40, 0, 61),
        (200, 20, 40, 10_000, 61),
        (1000, 20, 40, 10_000, 45),
    ] {
        let rates: Vec<_> = (1..=SEEDS)
            .map(|seed| {
                let mut sim = Sim::new(path(rate, rtt, 20, loss), SEED + seed);
                sim.add_ours();
                sim.stall(0, gap, seed);
                mbit(sim.stretch(0, 6000))
            })
            .collect();
        assert!(mean(&rates) * 100 >= rate * least, "{rtt} ms, {gap} ms, {loss} ppm: {rates:?}");
        assert!(
            rates.iter().all(|&each| each * 100 >= rate * least * 2 / 3),
            "{rtt} ms, {gap} ms: {rates:?}"
        );
    }
}

#[test]
fn a_host_that_stands_still_keeps_its_share_beside_cubic() {
    // In either order; the other's hosts never pause, as TCP in a kernel does not.
    for (gap, first) in [(100, true), (100, false), (40, true), (40, false)] {
        let shares: Vec<_> = (1..=SEEDS).map(|seed| beside_cubic(gap, first, seed)).collect();
        let ours = mean(&shares.iter().map(|&[ours, _]| mbit(ours)).collect::<Vec<_>>());
        let other = mean(&shares.iter().map(|&[_, other]| mbit(other)).collect::<Vec<_>>());
        assert!(ours.min(other) * 100 >= (ours + other) * 25, "{gap} ms, {first}: {shares:?}");
    }
}

/// Returns what both flows did in 20 s beside CUBIC, after the later one started 5 s late.
fn beside_cubic(gap: u64, first: bool, seed: u64) -> [Stretch; 2] {
    let mut sim = Sim::new(path(100, 40, 40, 0), SEED + seed);
    sim.add_ours();
    sim.stall(0, gap, seed);
    if !first {
        sim.set_source(0, Source::Nothing);
        sim.add(Box::new(Cubic::new()));
    }
    sim.run_ms(5000);
    if first {
        sim.add(Box::new(Cubic::new()));
    } else {
        sim.set_source(0, Source::Endless);
    }
    both(&mut sim, 20_000)
}

fn mean(values: &[u64]) -> u64 {
    values.iter().sum::<u64>() / (values.len() as u64).max(1)
}

#[test]
fn the_design_page_has_the_figures_of_one_flow() {
    let links = [(1000, 100, 20), (1000, 20, 20), (200, 80, 40), (100, 600, 100), (20, 40, 40)];
    let row = |(rate, rtt, queue), loss| {
        let mut sim = alone(path(rate, rtt, queue, loss));
        let first = sim.stretch(0, 6000);
        sim.run_ms(4000);
        let then = sim.stretch(0, 6000);
        format!(
            "| {rate} | {rtt}, {queue} | {} % | {} [{:.1}] | {} [{:.2}] | {} ms |\n",
            loss as f64 / 10_000.0,
            mbit(first),
            first.drops,
            mbit(then),
            then.drops,
            then.rtt.as_millis()
        )
    };
    assert_documented(&links.map(|link| row(link, 0) + &row(link, 10_000)).concat());
}

#[test]
fn the_design_page_has_the_figures_of_two_flows() {
    let shares = |queue, second: fn(&mut Sim)| {
        let mut sim = Sim::new(path(100, 40, queue, 0), SEED);
        sim.add_ours();
        sim.run_ms(5000);
        second(&mut sim);
        let stretches = [(); 3].map(|()| {
            let [a, b] = both(&mut sim, 20_000).map(mbit);
            format!("{a}:{b}")
        });
        stretches.join(", ")
    };
    let row = |queue| {
        let beside_cubic = shares(queue, |sim| {
            sim.add(Box::new(Cubic::new()));
        });
        let beside_ours = shares(queue, |sim| {
            sim.add_ours();
        });
        format!("| {queue} ms | {beside_cubic} | {beside_ours} |\n")
    };
    assert_documented(&[10, 40, 80, 400].map(row).concat());
}

/// Asserts that a table of `docs/design/congestion.md` has these rows and no others.
#[allow(clippy::disallowed_methods)]
fn assert_documented(rows: &str) {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/congestion.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = format!("|\n{rows}\n");
    assert!(page.contains(&table), "the page has not:\n{rows}");
}

const MBIT: u64 = 125_000;
const SEED: u64 = 7;
const SEEDS: u64 = 4;
