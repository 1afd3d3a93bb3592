//! Tests drives over time: histograms agree with each other, and faults slow I/O by their configured factor.

use std::time::{Duration, SystemTime};

use biolat_common::series::Phase;
use biolat_model::{
    device::Device,
    histogram::Histogram,
    snapshot::{DeviceView, SeriesView},
};
use rand::SeedableRng as _;

use crate::model::{
    Random,
    drive::Drive,
    drive_model::{DISK, DriveModel, MAX_UTILISATION, Op, QLC, SATA, TLC},
    effect::{Change, Effect, Extra, Rate, Slower},
    service::{SERVICES, Service},
};

const MODELS: [&DriveModel; 4] = [&TLC, &QLC, &SATA, &DISK];
const HOUR: f64 = 3600.0;

fn drive(model: &'static DriveModel, service: &'static Service, load: f64, seed: u64) -> (Drive, Random) {
    let mut random = Random::seed_from_u64(seed);
    (Drive::new(Device::default(), model, service, load, &mut random), random)
}

/// Returns the view of a drive after this many hours.
fn after(
    model: &'static DriveModel,
    service: &'static Service,
    load: f64,
    hours: f64,
    effects: &[Change],
) -> DeviceView {
    let (mut drive, mut random) = drive(model, service, load, 9);
    for change in effects {
        drive.add_effect(Effect { from: 0.0, to: 1e9, change: change.clone() });
    }
    for minute in 0..(hours * 60.0) as u32 {
        drive.advance(f64::from(minute) * 60.0, 60.0, 1.0, 0.0, &mut random);
    }
    drive.view(SystemTime::UNIX_EPOCH + Duration::from_secs(1))
}

fn of(view: &DeviceView, op: Op) -> &SeriesView {
    view.series.iter().find(|series| series.op == op.name()).unwrap()
}

/// Returns the median of a band, in seconds.
fn median(view: &DeviceView, op: Op, band: &str) -> f64 {
    let sizes = of(view, op).sizes.as_ref().unwrap();
    let latencies = &sizes.bands.iter().find(|found| found.size == band).unwrap().device;
    interpolated(latencies.at_most_schema_1(), 4)
}

/// Returns the median, interpolated within its bucket as Prometheus does. A bucket spans `width` indices.
fn interpolated(histogram: &Histogram, width: i32) -> f64 {
    let half = histogram.count() as f64 / 2.0;
    let mut before = histogram.zero as f64;
    for &(index, count) in &histogram.buckets {
        if before + count as f64 >= half {
            let place = (half - before) / count as f64;
            return ((f64::from(index - width) + place * f64::from(width)) / 8.0).exp2();
        }
        before += count as f64;
    }
    unreachable!("half of all is below the end")
}

fn slower(factor: f64, op: Option<Op>, above: u32) -> Change {
    Change::Slower(Slower { factor, op, above, is_rising: false })
}

#[test]
fn histograms_agree_with_each_other() {
    let fault = Change::Path { share: 0.4, factor: 3.0 };
    for model in MODELS {
        for service in &SERVICES {
            let view = after(model, service, 1.0, 3.0, std::slice::from_ref(&fault));
            assert_eq!(view.series.len(), if model.is_flushed { 3 } else { 2 }, "{}", model.name);
            for series in &view.series {
                let [admission, queue, device, total] = &series.histograms;
                assert_eq!(admission.count(), 0);
                assert!(
                    device.count() > 0 && queue.count() == device.count() && total.count() == device.count()
                );
                assert_eq!(queue.sum_ns + device.sum_ns, total.sum_ns);
                let sizes = series.sizes.as_ref().unwrap();
                assert_eq!(sizes.requests.count(), device.count());
                // The bytes are between the sums of the size cells' lower and upper bounds.
                let upper: u64 = sizes.requests.buckets.iter().map(|&(i, count)| count << i).sum();
                assert!(series.bytes <= upper && series.bytes >= upper / 2, "{} {upper}", series.bytes);
                let mut bands = Histogram::new();
                sizes.bands.iter().for_each(|band| bands.add(band.device.at_most_schema_1()));
                if series.op == "flush" {
                    assert_eq!((series.bytes, bands.count(), sizes.requests.zero), (0, 0, device.count()));
                } else {
                    assert_eq!(bands.at_schema(1), device.at_schema(1));
                    assert_eq!(bands.sum_ns, device.sum_ns);
                }
                assert!(within_buckets(device) && within_buckets(queue) && within_buckets(total));
            }
        }
    }
}

/// Whether latencies in these buckets can add up to this sum, within a nanosecond each.
fn within_buckets(histogram: &Histogram) -> bool {
    let bounds = |pick: fn(biolat_model::histogram::Bounds) -> f64| -> f64 {
        histogram.ranges().map(|(bounds, count)| pick(bounds) * count as f64).sum()
    };
    let error = 1e-9 * histogram.count() as f64;
    (bounds(|b| b.lower) - error..=bounds(|b| b.upper) + error).contains(&histogram.sum_seconds())
}

/// The drive's load is low, so queueing adds nothing.
#[test]
fn factor_of_two_doubles_the_median() {
    for model in MODELS {
        let load = 0.05;
        let service = &SERVICES[1];
        let healthy = after(model, service, load, 48.0, &[]);
        let sick = after(model, service, load, 48.0, &[slower(2.0, None, 0)]);
        for (op, band) in [(Op::Read, "le_4KiB"), (Op::Read, "le_256KiB"), (Op::Write, "le_1MiB")] {
            let factor = median(&sick, op, band) / median(&healthy, op, band);
            assert!((1.8..2.25).contains(&factor), "{}: {op:?} {band} {factor}", model.name);
        }
    }
}

#[test]
fn fault_of_large_reads_affects_nothing_else() {
    let service = &SERVICES[0];
    let healthy = after(&TLC, service, 1.0, 12.0, &[]);
    let sick = after(&TLC, service, 1.0, 12.0, &[slower(2.0, Some(Op::Read), 65536)]);
    for (op, band, expected) in [
        (Op::Read, "le_256KiB", 2.0),
        (Op::Read, "le_1MiB", 2.0),
        (Op::Read, "le_64KiB", 1.0),
        (Op::Read, "le_4KiB", 1.0),
        (Op::Write, "le_256KiB", 1.0),
    ] {
        let factor = median(&sick, op, band) / median(&healthy, op, band);
        assert!((factor / expected - 1.0).abs() < 0.08, "{op:?} {band} {factor}");
    }
}

/// If 40 % of the I/Os take ten times as long, 40 % are above three times the healthy median.
#[test]
fn slow_path_affects_its_share() {
    let view = after(&TLC, &SERVICES[0], 1.0, 12.0, &[Change::Path { share: 0.4, factor: 10.0 }]);
    let healthy = after(&TLC, &SERVICES[0], 1.0, 12.0, &[]);
    let limit = 3.0 * median(&healthy, Op::Read, "le_4KiB");
    let device = &of(&view, Op::Read).histograms[Phase::Device as usize];
    let above: u64 = device.ranges().filter(|(bounds, _)| bounds.lower > limit).map(|(_, count)| count).sum();
    let share = above as f64 / device.count() as f64;
    assert!((share - 0.4).abs() < 0.03, "{share}");
}

/// Even a 1000-fold slowdown or load puts no more I/Os in the drive than its queue depth.
#[test]
fn requests_do_not_exceed_depth() {
    for model in MODELS {
        for (load, effects) in [(1.0, vec![Change::Stalled(1000.0)]), (1.0, vec![Change::Load(1000.0)])] {
            let hours = 2.0;
            let view = after(model, &SERVICES[1], load, hours, &effects);
            let in_device: f64 = view
                .series
                .iter()
                .map(|series| series.histograms[Phase::Device as usize].sum_seconds())
                .sum();
            let depth = in_device / (hours * HOUR);
            assert!(depth <= model.depth * 1.1, "{}: {depth} requests at a time", model.name);
        }
    }
}

#[test]
fn utilisation_does_not_exceed_its_maximum() {
    for model in MODELS {
        for service in &SERVICES {
            let (mut drive, mut random) = drive(model, service, 1.0, 4);
            let scrub =
                Extra { op: Op::Read, bytes: 1 << 20, is_sequential: true, rate: Rate::Utilisation(0.4) };
            drive.add_effect(Effect { from: 0.0, to: 1e9, change: Change::Extra(scrub) });
            for minute in 0..600 {
                let load = if minute < 300 { 1.0 } else { 50.0 };
                drive.advance(f64::from(minute) * 60.0, 60.0, load, 0.0, &mut random);
                let utilisation = drive.utilisation;
                assert!(
                    (0.3..=MAX_UTILISATION + 1e-9).contains(&utilisation),
                    "{} {utilisation}",
                    model.name
                );
            }
        }
    }
}

/// On a slow drive, a service that waits for its I/O does fewer I/Os; one that does not wait does just as many, with more in
/// flight.
#[test]
fn waiting_services_do_less_on_a_slow_drive() {
    for (service, expected) in [(&SERVICES[0], 2_f64.powf(-0.6)), (&SERVICES[1], 1.0)] {
        let count = |effects: &[Change]| {
            let view = after(&TLC, service, 1.0, 24.0, effects);
            of(&view, Op::Read).histograms[Phase::Total as usize].count() as f64
        };
        let ratio = count(&[slower(2.0, None, 0)]) / count(&[]);
        assert!((ratio / expected - 1.0).abs() < 0.01, "{}: {ratio}", service.name);
    }
}

#[test]
fn size_shift_changes_bytes_but_not_the_number_of_ios() {
    let service = &SERVICES[1];
    let [usual, large] = [0.0, 0.5].map(|power| after(&QLC, service, 1.0, 24.0, &[Change::Sizes(power)]));
    let count = |view| of(view, Op::Read).histograms[Phase::Total as usize].count() as f64;
    assert!((count(&large) / count(&usual) - 1.0).abs() < 0.05);
    assert!(of(&large, Op::Read).bytes as f64 / of(&usual, Op::Read).bytes as f64 > 1.5);
}

/// Measures the share of minutes in which a healthy drive is more than twice as slow as usual.
#[test]
fn healthy_drives_are_rarely_slow() {
    let mut minutes = [0_u32; 2];
    for seed in 0..20 {
        let (mut drive, mut random) = drive(&TLC, &SERVICES[0], 0.1, seed);
        let mut means = Vec::new();
        let mut before = Histogram::new();
        for minute in 0..1440 {
            drive.advance(f64::from(minute) * 60.0, 60.0, 1.0, 0.0, &mut random);
            let now =
                of(&drive.view(SystemTime::UNIX_EPOCH), Op::Read).histograms[Phase::Device as usize].clone();
            means.extend(now.since(&before).percentile(0.5).map(|bounds| bounds.upper));
            before = now;
        }
        let mut sorted = means.clone();
        sorted.sort_by(f64::total_cmp);
        let usual = sorted[sorted.len() / 2];
        minutes[0] += means.iter().filter(|&&median| median >= 2.0 * usual).count() as u32;
        minutes[1] += means.len() as u32;
    }
    let share = f64::from(minutes[0]) / f64::from(minutes[1]);
    assert!((0.0005..0.006).contains(&share), "{share} of the time");
}
