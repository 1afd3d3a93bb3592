//! Properties that hold for any input: negotiation with any header, and the formats of any snapshot.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use biolat_common::size::{BAND_CELLS, BAND_NAMES, BANDS, CELLS};
use biolat_daemon::{expose::Format, http::negotiate};
use biolat_model::{
    band_histogram::BandHistogram,
    device::{Device, Group, Holder, MultipathPath},
    histogram::Histogram,
    io_names::IoNames,
    size_histogram::SizeHistogram,
    snapshot::{
        BandView, CpuSpread, DeviceView, Health, Inflight, PoolWaits, ProbeRuns, Process, SeriesView,
        SizesView, SlowIo, Snapshot, TagWaits,
    },
};
use hyper::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue};
use proptest::{collection, option, prelude::*, sample::subsequence};

use crate::formats::{assert_json_agrees_with_protobuf, assert_texts_agree_with_protobuf};

fn histogram() -> impl Strategy<Value = Histogram> {
    let count = 1..1_u64 << 40;
    let buckets = collection::btree_map(-159..=80_i32, count.clone(), 0..6);
    // With longer decimals serde_json can get the last digit wrong.
    let sum = 0..1_000_000_000_000_000_u64;
    (option::of(count.clone()), buckets, option::of(count), sum).prop_map(
        |(zero, buckets, overflow, sum_ns)| Histogram {
            zero: zero.unwrap_or(0),
            buckets: buckets.into_iter().collect(),
            overflow: overflow.unwrap_or(0),
            sum_ns: sum_ns.into(),
        },
    )
}

fn sizes() -> impl Strategy<Value = SizesView> {
    let cell = || 0..1_u64 << 40;
    let bands = subsequence(BAND_NAMES.to_vec(), 0..=BANDS);
    (any::<[u32; CELLS]>(), bands, collection::vec(cell(), BAND_CELLS), 0..1_000_000_000_000_000_u64)
        .prop_map(|(requests, bands, cells, sum_ns)| {
            let cells = std::array::from_fn(|cell| if cell == BAND_CELLS - 1 { 0 } else { cells[cell] });
            let band = BandHistogram::from_cells(&cells, sum_ns.into());
            let band = |name: &'static str| BandView { size: name.into(), device: band.clone() };
            SizesView {
                requests: SizeHistogram::from_cells(&requests.map(u64::from)),
                bands: bands.into_iter().map(band).collect(),
            }
        })
}

fn series() -> impl Strategy<Value = Vec<SeriesView>> {
    let op = subsequence(vec!["read", "write", "flush", "discard", "zone_append"], 0..=3);
    let errors = (subsequence(vec!["ioerr", "medium", "timeout", "nospc"], 0..=4), 1..1_u64 << 40);
    (op, any::<u64>(), [histogram(), histogram(), histogram(), histogram()], errors, sizes()).prop_map(
        |(ops, bytes, histograms, (statuses, errors), sizes)| {
            let series = |op: &str| SeriesView {
                op: op.to_owned(),
                bytes,
                histograms: histograms.clone(),
                errors: statuses.iter().map(|&status| (status.into(), errors)).collect(),
                requeues: bytes / 3,
                sizes: (bytes % 2 == 0).then(|| sizes.clone()),
                ended_workload_ios: bytes / 5,
            };
            ops.into_iter().map(series).collect()
        },
    )
}

fn path() -> impl Strategy<Value = MultipathPath> {
    any::<[String; 4]>().prop_map(|[of, transport, address, state]| MultipathPath {
        of,
        transport,
        address,
        state,
    })
}

/// Mount points can be any text as well.
fn stack(holders: &[String], name: &str) -> Arc<[Holder]> {
    let holder = |(holder, depth): (&String, u32)| Holder {
        device: holder.clone(),
        kind: "mount".to_owned(),
        name: name.to_owned(),
        depth,
    };
    holders.iter().zip(1..).map(holder).collect()
}

fn device() -> impl Strategy<Value = DeviceView> {
    // Drives can report any text as model and serial number.
    let texts =
        (any::<String>(), any::<String>(), collection::vec("[a-z]{1,3}[0-9]", 0..3), option::of(path()));
    (texts, any::<bool>(), any::<[bool; 4]>(), series(), any::<[u32; 4]>(), any::<u32>()).prop_map(
        |((model, serial, holders, path), rotational, phases, series, missed, since)| DeviceView {
            device: Device {
                firmware: serial.clone(),
                stack: stack(&holders, &model),
                model,
                serial,
                holders,
                path,
                rotational,
                ..Device::default()
            },
            since: UNIX_EPOCH + Duration::from_millis(since.into()),
            phases,
            lacks: String::new(),
            series,
            unseen: Group::ALL.into_iter().zip(missed.map(u64::from)).collect(),
            inflight: Inflight {
                reads: since.into(),
                writes: missed[0].into(),
                oldest: Duration::from_millis(missed[1].into()),
                is_exact: rotational,
            },
            tag_waits: rotational.then(|| TagWaits {
                driver: PoolWaits { waits: missed[2].into(), tags: 64 },
                ..TagWaits::default()
            }),
            spread: CpuSpread {
                completions: vec![7, 0, 9],
                effective_cpus: Some(1.9),
                largest_share: Some(0.5625),
                off_node_share: None,
            },
            nvme_events: [("reset".into(), missed[2].into())].into(),
        },
    )
}

prop_compose! {
    fn slow_io()(
        device in 0..4,
        op in prop::sample::select(vec!["read", "write", "flush"]),
        completed in 0..1_u64 << 52,
        sector in any::<u64>(),
        bytes in any::<u32>(),
        latencies in any::<[Option<u64>; 4]>(),
    ) -> SlowIo {
        SlowIo {
            number: 0,
            completed: UNIX_EPOCH + Duration::from_micros(completed),
            device: format!("nvme{device}n1"),
            op: op.to_owned(),
            sector,
            bytes,
            status: "ok".into(),
            // From one nanosecond to beyond the range.
            latencies: latencies.map(|ns| ns.map(|ns| Duration::from_nanos(ns >> (24 + ns % 40)))),
            cpu: bytes % 7,
            workload: None,
            names: IoNames::default(),
        }
    }
}

fn numbered(mut ios: Vec<SlowIo>) -> Arc<[SlowIo]> {
    (1..).zip(&mut ios).for_each(|(number, io)| io.number = number);
    ios.into()
}

prop_compose! {
    fn snapshot()(
        mut devices in collection::vec(device(), 0..3),
        taken in 0..1_u64 << 52,
        lost in subsequence(vec!["clock", "no_room", "passthrough", "recursion"], 0..=4),
        count in any::<u32>(),
        durations in histogram(),
        ios in collection::vec(slow_io(), 0..20),
        runs in option::of((any::<u32>(), 0..1_000_000_000_u64)),
    ) -> Snapshot {
        for (number, view) in devices.iter_mut().enumerate() {
            view.device.name = format!("nvme{number}n1");
        }
        Snapshot {
            taken: UNIX_EPOCH + Duration::from_micros(taken),
            started: UNIX_EPOCH,
            devices,
            lost: lost.into_iter().map(|reason| (reason.into(), count.into())).collect(),
            slow: numbered(ios),
            slow_dropped: count.into(),
            health: Health { durations, failures: count.into(), ..Health::default() },
            probe: runs.map(|(runs, ns)| ProbeRuns { count: runs.into(), time: Duration::from_nanos(ns) }),
            process: Some(Process { resident_bytes: count.into(), ..Process::default() }),
            online_cpus: runs.map(|(runs, _)| runs as usize),
            ..Snapshot::default()
        }
    }
}

/// Generates header values from parts that parsers know and arbitrary bytes.
fn header() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "application/openmetrics-text",
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
        "text/plain",
        "*/*",
        "gzip",
        "x-gzip",
        "identity",
        "*",
        ";q=0",
        ";q=0.5",
        ";Q=1",
        ";q=nan",
        ";version=1.0.0",
        ",",
        ", ",
        "=",
        "\"",
    ]);
    let part = prop_oneof![
        4 => known.prop_map(|text| text.as_bytes().to_vec()),
        1 => collection::vec(any::<u8>(), 0..8),
    ];
    collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

/// Returns the header with this value, or none if the value is not valid.
fn headers(name: HeaderName, value: &[u8]) -> HeaderMap {
    HeaderValue::from_bytes(value).map(|value| (name, value)).into_iter().collect()
}

const NAMES: [(Format, &str); 3] = [
    (
        Format::Protobuf,
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
    ),
    (Format::OpenMetrics, "application/openmetrics-text"),
    (Format::Text, "text/plain"),
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_formats_have_same_values(mut snapshot in snapshot()) {
        assert_texts_agree_with_protobuf(&snapshot);
        // Replace text that deserialization would sanitize.
        for device in snapshot.devices.iter_mut().map(|view| &mut view.device) {
            let path = device.path.iter_mut();
            let path = path.flat_map(|path| [&mut path.of, &mut path.transport, &mut path.address, &mut path.state]);
            let holders = Arc::make_mut(&mut device.stack).iter_mut().map(|holder| &mut holder.name);
            let texts = [&mut device.model, &mut device.serial, &mut device.firmware];
            texts.into_iter().chain(path).chain(holders).for_each(|text| text.retain(|c| c.is_ascii() && !c.is_control()));
        }
        assert_json_agrees_with_protobuf(&snapshot);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A format other than the default is chosen only if the header names it.
    #[test]
    fn chooses_only_named_formats(value in header()) {
        let text = String::from_utf8_lossy(&value).to_ascii_lowercase();
        match negotiate::format(&headers(ACCEPT, &value)) {
            Format::Protobuf => prop_assert!(text.contains("application/vnd.google.protobuf")),
            Format::OpenMetrics => prop_assert!(text.contains("application/openmetrics-text")),
            Format::Text => {}
        }
    }

    /// `q=0` excludes a format, whatever else is accepted. If nothing is accepted, the text format is used.
    #[test]
    fn zero_weight_excludes_format(
        weights in [0..=1000_u16, 0..=1000_u16, 0..=1000_u16],
        order in Just(vec![0, 1, 2]).prop_shuffle(),
    ) {
        let element = |&at: &usize| format!("{};q={}", NAMES[at].1, f64::from(weights[at]) / 1000.0);
        let accept = order.iter().map(element).collect::<Vec<_>>().join(", ");
        let chosen = negotiate::format(&headers(ACCEPT, accept.as_bytes()));
        let at = NAMES.iter().position(|(format, _)| *format == chosen).unwrap();
        let most = *weights.iter().max().unwrap();
        prop_assert!(chosen == Format::Text && most == 0 || weights[at] > 0, "{chosen:?} of {accept}");
        // Parsing a float can be off by one thousandth.
        prop_assert!(weights[at] + 1 >= most, "{chosen:?} of {accept}");
    }

    #[test]
    fn chooses_gzip_only_if_named(value in header()) {
        let text = String::from_utf8_lossy(&value).to_ascii_lowercase();
        let chosen = negotiate::gzip(&headers(ACCEPT_ENCODING, &value));
        prop_assert!(!chosen || text.contains("gzip") || text.contains('*'), "{text}");
    }

    #[test]
    fn zero_weight_excludes_gzip(identity in 0..=1000_u16, first in any::<bool>()) {
        let identity = format!("identity;q={}", f64::from(identity) / 1000.0);
        for gzip in ["gzip;q=0", "gzip;q=0.0, *", "x-gzip;q=0, br"] {
            let value = if first { format!("{gzip}, {identity}") } else { format!("{identity}, {gzip}") };
            prop_assert!(!negotiate::gzip(&headers(ACCEPT_ENCODING, value.as_bytes())), "{value}");
        }
    }
}
