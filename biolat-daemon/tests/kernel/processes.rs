//! `biolat processes` agrees with fio and dd about the I/O of each process.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::{
    awake::Awake,
    biolat::Biolat,
    daemon::Daemon,
    kernel::{self, Ability},
    loop_device::LoopDevice,
    run,
};

/// I/Os and bytes.
type Totals = (u64, u64);

const READS: u64 = 5000;
const WRITES: u64 = 3000;

/// Runs two fio jobs at once, each in its own process. Returns the reads of one and the writes of the other, as fio counted them.
fn read_and_write(device: &LoopDevice, options: &[&str]) -> [Totals; 2] {
    let file = format!("--filename={}", device.path().display());
    let shared = ["--direct=1", "--ioengine=psync", "--size=128m", "--output-format=json", &file];
    let (reads, writes) = (format!("--number_ios={READS}"), format!("--number_ios={WRITES}"));
    let readers = ["--name=readers", "--rw=randread", "--bs=4k", &reads];
    let writers = ["--name=writers", "--rw=randwrite", "--bs=8k", &writes];
    let output = run("fio", &[&shared[..], options, &readers, &writers].concat());
    let report: Value = serde_json::from_str(&output[output.find('{').unwrap()..]).unwrap();
    let of = |job: usize, op: &str| {
        let figures = &report["jobs"][job][op];
        (figures["total_ios"].as_u64().unwrap(), figures["io_bytes"].as_u64().unwrap())
    };
    assert_eq!((of(0, "write").0, of(1, "read").0), (0, 0));
    [of(0, "read"), of(1, "write")]
}

/// Reads with a process that has ended when its I/O is counted.
fn read_with_dd(device: &LoopDevice) {
    let input = format!("if={}", device.path().display());
    run("dd", &[&input, "of=/dev/null", "bs=4k", "count=100", "iflag=direct", "status=none"]);
}

pub(crate) fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

pub(crate) fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("{field}: {value}"))
}

/// Sums I/Os and bytes by name, process and op.
fn sums(ios: impl Iterator<Item = (String, u64, String, Totals)>) -> BTreeMap<(String, u64, String), Totals> {
    let mut sums = BTreeMap::new();
    for (name, pid, op, (ios, bytes)) in ios {
        let sum: &mut Totals = sums.entry((name, pid, op)).or_default();
        *sum = (sum.0 + ios, sum.1 + bytes);
    }
    sums
}

/// Asserts that two processes called fio and one called dd did all of the I/O, except for completions for which the kernel ran no
/// program. The daemon has missed the same ones. A kernel that preempts programs may also refuse to run the start program; the
/// process is then unknown.
fn assert_exact(
    sums: &BTreeMap<(String, u64, String), Totals>,
    [reads, writes]: [Totals; 2],
    missed: u64,
    text: &str,
) {
    assert_eq!((reads.0, writes.0), (READS, WRITES));
    let unknown: Vec<_> = sums.iter().filter(|((name, pid, _), _)| (&**name, *pid) == ("", 0)).collect();
    assert!(unknown.is_empty() || !kernel::has(Ability::UnpreemptedRuns), "{text}");
    let mut unaccounted = missed + unknown.iter().map(|(_, (ios, _))| ios).sum::<u64>();
    let mut process_of = |name: &str, op: &str, (ios, bytes): Totals| {
        let matching = sums.iter().filter(|((found, _, of), _)| found == name && of == op);
        let matching: Vec<_> = matching.map(|((_, pid, _), totals)| (*pid, *totals)).collect();
        let [(pid, totals)] = matching[..] else { panic!("{name} {op}: {matching:?}: {text}") };
        assert_eq!(totals.1, totals.0 * (bytes / ios), "{text}");
        unaccounted = unaccounted.checked_sub(ios - totals.0).unwrap_or_else(|| panic!("{missed}: {text}"));
        pid
    };
    let readers = process_of("fio", "read", reads);
    let writers = process_of("fio", "write", writes);
    process_of("dd", "read", (100, 100 * 4096));
    assert_ne!(readers, writers);
    assert_eq!((sums.len() - unknown.len(), unaccounted), (3, 0), "{text}");
}

#[test]
#[ignore = "needs root and fio: cargo xtask test"]
fn counts_agree_with_fio() {
    let device = LoopDevice::attach("processes", true);
    let daemon = Daemon::start(&["--interval", "100ms", "--device", &device.name]);
    let _awake = Awake::all_cpus();
    let running = Biolat::start("processes", &["processes", "-j", "100ms", "-d", &device.name]);
    let expected = read_and_write(&device, &[]);
    read_with_dd(&device);
    let missed = daemon.fresh().missed(&device.name);
    let text = running.end();
    let windows = lines(&text);
    assert!(windows.len() >= 2, "{text}");
    let lost = windows.iter().map(|window| {
        let lost = window["lost"].as_object().unwrap();
        assert!(lost.keys().all(|reason| reason == "missed"), "{text}");
        lost.get("missed").map_or(0, |missed| missed.as_u64().unwrap())
    });
    assert_eq!(lost.sum::<u64>(), missed, "{text}");
    let rows = windows.iter().flat_map(|window| window["processes"].as_array().unwrap());
    let by_op = rows.flat_map(|row| {
        assert_eq!((row["device"].as_str(), row["kernel"].as_bool()), (Some(&*device.name), Some(false)));
        assert_eq!(number(row, "ios"), number(&row["latency"], "count"));
        assert!(row["device_seconds"].as_f64().unwrap() > 0.0 && row["latency"]["p99"].is_f64(), "{row}");
        row["ops"].as_object().unwrap().iter().map(|(op, figures)| {
            let totals = (number(figures, "ios"), number(figures, "bytes"));
            (row["name"].as_str().unwrap().to_owned(), number(row, "pid"), op.clone(), totals)
        })
    });
    assert_exact(&sums(by_op), expected, missed, &text);
}

#[test]
#[ignore = "needs root and fio: cargo xtask test"]
fn single_ios_agree_with_fio() {
    let device = LoopDevice::attach("processes", true);
    let daemon = Daemon::start(&["--interval", "100ms", "--device", &device.name]);
    let _awake = Awake::all_cpus();
    let running = Biolat::start("processes", &["processes", "--io", "-j", "-d", &device.name]);
    let expected = read_and_write(&device, &["--rate_iops=1500"]);
    read_with_dd(&device);
    let missed = daemon.fresh().missed(&device.name);
    let text = running.end();
    let by_op = lines(&text).into_iter().map(|io| {
        assert_eq!(
            (&io["device"], &io["status"], &io["one_of"]),
            (&json!(device.name), &json!("ok"), &json!(1))
        );
        assert!(
            number(&io, "sector").is_multiple_of(8) && io["device_seconds"].as_f64().unwrap() > 0.0,
            "{io}"
        );
        let (name, op) = (io["name"].as_str().unwrap().to_owned(), io["op"].as_str().unwrap().to_owned());
        (name, number(&io, "pid"), op, (1, number(&io, "bytes")))
    });
    assert_exact(&sums(by_op), expected, missed, &text);
}
