//! `biolat save` and `--file`: a file gives the same output as the daemon, and anything else is rejected with one clear line.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde_json::{Value, json};

use crate::{
    past::{DRIVE, MINUTES, STALL, date, day, now},
    support::{
        PROGRAM, certificates::Folder, fails, is_refused, run, run_in_400_mib, server::BackgroundServer,
        server_of, snapshots::snapshot, text, unwrapped, works,
    },
};

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn unzipped(path: &Path) -> String {
    let mut lines = String::new();
    GzDecoder::new(fs::File::open(path).unwrap()).read_to_string(&mut lines).unwrap();
    lines
}

fn saved(folder: &Folder, from: SocketAddr) -> PathBuf {
    let path = folder.0.join("db1.biolat.gz");
    works(&["save", path.to_str().unwrap(), "--host", &from.to_string()]);
    path
}

/// The output after the introductory lines.
fn shown(output: &str) -> &str {
    output.split_once("\n\n").map_or(output, |(_, shown)| shown)
}

fn server(now: u64) -> SocketAddr {
    BackgroundServer::of_history(Some(snapshot(8)), day(now)).address
}

#[test]
fn a_file_gives_the_daemons_output() {
    let folder = Folder::new("saved-equal");
    let now = now();
    let from = server(now);
    let file = saved(&folder, from);
    let stall = now - 60 * STALL;
    let (clock, since) = (date(stall, "%H:%M"), (stall - 120).to_string());
    let until = (stall + 300).to_string();
    for arguments in [
        &["worst"][..],
        &["worst", "-j"],
        &["worst", "--since", &since, "--until", &until],
        &["at", &clock, "--for", "5m", "-D"],
        &["at", &clock, "-DF", "-P", "-m"],
        &["at", &(stall + 20).to_string(), "--for", "5s", "-F"],
        &["since", &since, "--until", &until, "-D", "--every", "60"],
        &["since", &since, "--until", &until, "-jDF", "--every", "90"],
        &["since", "1000000000", "-j"],
        &["since", "1000000000", "-d", DRIVE, "-jD", "--every", "3600"],
        &["since", "1000000000", "--fine", "-Q"],
        &["hist", "--at", &clock, "--for", "5m", "-DF"],
        &["who", "--at", &clock],
        &["sizes", "--since", &since, "--until", &until, "60"],
    ] {
        let live = works(&[arguments, &["--host", &from.to_string()]].concat());
        let loaded = works(&[arguments, &["--file", file.to_str().unwrap()]].concat());
        assert_eq!(shown(&loaded), shown(&live), "{arguments:?}");
        assert!(!shown(&live).is_empty(), "{arguments:?}");
    }
    for source in [["--file", file.to_str().unwrap()], ["--host", &from.to_string()]] {
        let before = works(&[&["at", "1000000000"], &source[..]].concat());
        assert!(before.contains("nothing is kept from that time: the history begins at 20"), "{before}");
    }
    let all = works(&["hist", "--file", file.to_str().unwrap(), "-D"]);
    let about = format!("on example in {}, saved at ", file.display());
    assert!(unwrapped(&all).contains(&about), "{all}");
    assert!(all.contains(&format!("{} I/O in ", "86,407")), "60 a minute, and 7: {all}");
    let json = works(&["hist", "--file", file.to_str().unwrap(), "-jD", "60"]);
    assert_eq!(json.lines().count() as u64, MINUTES);
}

#[test]
fn writes_the_documented_lines() {
    let folder = Folder::new("saved-lines");
    let now = now();
    let from = server(now);
    let path = saved(&folder, from);
    let lines = unzipped(&path);
    assert!(lines.starts_with("{\"format\":\"biolat history\",\"format_version\":1,\"saved\":"));
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let head = &lines[0];
    assert!(head["saved"].as_f64().unwrap() >= now as f64);
    assert_eq!((&head["history"]["host"], &head["history"]["to"]), (&json!("example"), &head["saved"]));
    assert_eq!(head["history"]["from"].as_f64(), Some((now - 60 * MINUTES) as f64));
    assert!(head["history"].get("intervals").is_none());
    assert_eq!(head["snapshot"]["devices"].as_array().unwrap().len(), 8);
    assert_eq!(head["slow"]["ios"], json!([]));
    assert_eq!(lines.last(), Some(&json!({"end": {"intervals": MINUTES}})));
    // The intervals are the same as in the API.
    let (file, began) = (folder.0.join("range.gz"), (now - 300).to_string());
    let range = ["--at", &began, "--for", "3m", "--host", &from.to_string()];
    let about = works(&[&["save", file.to_str().unwrap()], &range[..]].concat());
    assert!(about.starts_with("saved 3 intervals of example to "), "{about}");
    let again = folder.0.join("again.gz");
    let about = works(&[&["save", "-j", again.to_str().unwrap()], &range[..]].concat());
    let expected = json!({
        "file": again.to_str().unwrap(),
        "host": "example",
        "intervals": 3,
        "began": (now - 300) as f64,
        "ended": (now - 120) as f64,
        "missing": null,
    });
    assert_eq!(serde_json::from_str::<Value>(&about).unwrap(), expected);
    let part = unzipped(&file);
    let part: Vec<Value> = part.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(part[1..4], lines[lines.len() - 6..lines.len() - 3]);
    assert_eq!(part[0]["history"]["from"].as_f64(), Some((now - 300) as f64));
    // Only one device, including in the snapshot.
    let one = folder.0.join("one.gz");
    works(&["save", one.to_str().unwrap(), "--host", &from.to_string(), "-d", DRIVE]);
    let one = unzipped(&one);
    assert!(one.contains(DRIVE) && !one.contains("nvme0n1"));
    // For another device, through pipes.
    let script = "\"$0\" save - --host $1 -d nvme0n1 | \"$0\" hist --file - -jD";
    let output = Command::new("sh").args(["-c", script, PROGRAM, &from.to_string()]).output().unwrap();
    let window: Value = serde_json::from_slice(&output.stdout).unwrap();
    let blocks = window["blocks"].as_array().unwrap();
    assert_eq!((blocks.len(), &blocks[0]["ios"]), (1, &json!(86_400)));
    assert!(text(&output.stderr).contains("saved 1,440 intervals"), "{}", text(&output.stderr));
}

/// Files of format 1 must stay readable.
#[test]
fn reads_a_recorded_file() {
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/userspace/fixtures/saved_history_1.jsonl.gz");
    let fixture = fixture.to_str().unwrap();
    let json = works(&["since", "1767582000", "--file", fixture, "-jDF", "--every", "60"]);
    let windows: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let figures = |window: &Value| {
        let block = &window["blocks"][0];
        (block["device"].clone(), block["op"].clone(), block["ios"].clone(), block["bytes"].clone())
    };
    let expected = [67_u64, 60].map(|ios| (json!("nvme3n1"), json!("read"), json!(ios), json!(4096 * ios)));
    assert_eq!(windows.iter().map(figures).collect::<Vec<_>>(), expected);
    assert_eq!(windows[0]["slow"][0]["workload"], "/system.slice/postgresql.service");
    assert_eq!((&windows[0]["host"], &windows[0]["ended"]), (&json!("db1"), &json!(1_767_582_060.0)));
    let worst = works(&["worst", "--file", fixture, "-j"]);
    let worst: Value = serde_json::from_str(worst.lines().next().unwrap()).unwrap();
    let expected = (&json!("nvme3n1"), &json!(3.999), &json!(1_767_582_000.0));
    assert_eq!((&worst["device"], &worst["latency"], &worst["began"]), expected);
}

fn head(change: impl FnOnce(&mut Value)) -> String {
    let mut head = json!({
        "format": "biolat history", "format_version": 1, "saved": 1_767_582_120.0,
        "history": {
            "version": 1, "biolat": "0.1.0", "host": "db1", "interval": 5.0, "from": 0.0, "to": 1_767_582_120.0,
            "complete_from": null, "ten_seconds_from": null, "collections_from": null,
        },
        "snapshot": null, "slow": null,
    });
    change(&mut head);
    format!("{head}\n")
}

const INTERVAL: &str = "{\"began\":1767582000,\"taken\":1767582060,\"seconds\":60,\"collections\":12,\"failures\":0,\"lost\":{},\
                        \"slow\":[],\"slow_dropped\":0}\n";
const END: &str = "{\"end\":{\"intervals\":1}}\n";

/// Each is rejected with one clear line, and is not mistaken for a history.
#[test]
fn rejects_invalid_files() {
    let folder = Folder::new("saved-bad");
    let plain = |_: &mut Value| {};
    let whole = head(plain) + INTERVAL + END;
    let mut truncated = gzip(whole.as_bytes());
    truncated.truncate(truncated.len() - 9);
    let mut flipped = gzip(whole.as_bytes());
    let last = flipped.len() - 6;
    flipped[last] ^= 1;
    let newer = head(|head| head["format_version"] = 2.into());
    let other_api = head(|head| head["history"]["version"] = 2.into());
    let bomb = [head(plain).as_bytes(), &[b' '; 64 << 20]].concat();
    for (content, expected) in [
        (Vec::new(), "it is empty"),
        (b"x".to_vec(), "not a history"),
        (b"{\"version\":1,\"biolat\":\"0.1.0\",\"intervals\":[]}".to_vec(), "not a history"),
        (gzip(b"\x7fELF"), "not a history"),
        (b"\x1f\x8bnot gzip".to_vec(), "it is damaged"),
        (gzip(newer.as_bytes()), "it has version 2 of the format"),
        (gzip(other_api.as_bytes()), "version 2 of the API"),
        (truncated, "it is incomplete"),
        (flipped, "it is damaged: "),
        (head(plain).into_bytes(), "it is incomplete"),
        ((head(plain) + INTERVAL).into_bytes(), "it is incomplete"),
        (whole.trim_end().as_bytes().to_vec(), "it is incomplete"),
        ((head(plain) + END).into_bytes(), "it has 0 of 1 intervals"),
        ((whole.clone() + INTERVAL).into_bytes(), "it has data after its end"),
        ((head(plain) + "{\"began\":1}\n" + END).into_bytes(), "interval 1: missing field"),
        (
            (head(plain) + &INTERVAL.replace(":60,", ":-60,") + END).into_bytes(),
            "interval 1: cannot convert float seconds",
        ),
        ((head(|head| head["saved"] = json!(-1.0)) + INTERVAL + END).into_bytes(), "an invalid time"),
        ((head(|head| head["saved"] = json!(1e300)) + INTERVAL + END).into_bytes(), "an invalid time"),
        (head(|head| head["history"]["interval"] = json!(0.0)).into_bytes(), "it collects every 0 s"),
        (gzip(&bomb), "a line is longer than 32 MiB"),
    ] {
        let path = folder.0.join("file");
        fs::write(&path, content).unwrap();
        let output = run_in_400_mib("\"$0\" worst --file \"$1\"", &[path.to_str().unwrap()]);
        fails(&output, &[&path.display().to_string(), expected]);
    }
    let path = folder.0.join("file");
    fs::write(&path, whole).unwrap();
    assert!(works(&["worst", "--file", path.to_str().unwrap()]).contains("no I/O"));
    let lost = format!("{{\"lost\":{{\"clock\":{}}},", u64::MAX / 2 + 1);
    let lost = INTERVAL.replace("\"lost\":{},", "").replacen('{', &lost, 1);
    fs::write(&path, head(plain) + &lost + &lost + &END.replace('1', "2")).unwrap();
    let sum = works(&["hist", "--file", path.to_str().unwrap(), "60"]);
    assert!(sum.contains("18,446,744,073,709,551,615 clock"), "{sum}");
    fails(&run(&["hist", "--file", folder.0.to_str().unwrap()]), &["Is a directory"]);
    fails(&run(&["who", "--file", "/nonexistent/file"]), &["cannot open /nonexistent/file", "No such file"]);
}

#[test]
fn reports_unwritable_places() {
    let folder = Folder::new("saved-places");
    let from = server(now()).to_string();
    let save = |file: &Path| run(&["save", file.to_str().unwrap(), "--host", &from]);
    let existing = folder.write("existing", "precious");
    fails(&save(&existing), &["existing exists: give another name, or remove it"]);
    assert_eq!(fs::read_to_string(&existing).unwrap(), "precious");
    fails(&save(&folder.0), &["exists"]);
    fails(&save(&folder.0.join("no/file")), &["its folder does not exist"]);
    fails(&save(Path::new("/proc/biolat.gz")), &["cannot write /proc/biolat.gz: "]);
    fails(&save(&existing.join("file")), &["cannot write "]);
    // A file system that is full after 4 KiB.
    let full = folder.0.join("full");
    let output = Command::new("sh")
        .args([
            "-c",
            "ulimit -f 8; exec \"$0\" save \"$1\" --host \"$2\"",
            PROGRAM,
            full.to_str().unwrap(),
            &from,
        ])
        .output()
        .unwrap();
    fails(&output, &["cannot write ", "full: File too large"]);
    // A response that is cut off in the middle.
    let half = b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{\"version\":1,\"biolat\"";
    let half = server_of(half).to_string();
    let cut = run(&["save", folder.0.join("cut").to_str().unwrap(), "--host", &half]);
    fails(&cut, &["closed the connection in the middle of its answer"]);
    let names: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["existing"], "nothing is left");
}

#[test]
fn rejects_invalid_options() {
    for (arguments, expected) in [
        (&["save"][..], "<FILE>"),
        (&["hist", "--file", "x", "--host", "db1"], "cannot be used with"),
        (&["who", "--file", "x", "--user", "alice"], "cannot be used with"),
        (&["top", "--file", "x"], "unexpected argument '--file'"),
        (&["slow", "--file", "x"], "unexpected argument '--file'"),
        (&["save", "x", "--file", "y"], "unexpected argument '--file'"),
        (&["save", "x", "5"], "unexpected argument '5'"),
        (&["hist", "--file", "x", "5", "3"], "leave out COUNT and -T"),
    ] {
        is_refused(&run(arguments), &[expected]);
    }
}

/// A histogram with this many I/Os.
fn histogram(ios: u64) -> Value {
    json!({"count": ios, "seconds": 1.0, "zero": 0, "overflow": 0, "buckets": [[0, ios]]})
}

/// A file with this many devices, workloads and slow I/Os, spread over several lines within a minute.
fn crowded(devices: usize, per_line: usize) -> Vec<u8> {
    let numbers: Vec<_> = (0..devices).collect();
    let lines = numbers.chunks(per_line).map(|numbers| {
        let op = |ios: u64| {
            json!({
                "op": "read", "bytes": 4096, "errors": {}, "requeues": 0, "sizes": null,
                "latency": {"queue": histogram(ios), "device": histogram(ios), "total": histogram(ios)},
            })
        };
        let device = |number: &usize| {
            json!({
                "name": format!("sd{number}"), "model": "", "serial": "", "rotational": false, "holders": [], "since": 1.0,
                "phases": ["queue", "device", "total"], "lacks": "", "ops": [op(600)], "unseen": {},
                "inflight": {"read": 0, "write": 0, "oldest_seconds": 0.0, "exact": true},
            })
        };
        let workload = |number: &usize| {
            let usage = json!([{
                "device": "sd0", "op": "read", "bytes": 1, "errors": 0, "queue_seconds": 0.0, "device_seconds": 0.0,
                "total": histogram(0),
            }]);
            json!({
                "cgroup": format!("/{number}"), "name": "x", "kind": "other", "unit": "", "namespace": "", "pod": "",
                "container": "", "pod_uid": "", "container_id": "", "gone": false, "since": 1.0, "usage": usage,
            })
        };
        let slow = |number: &usize| {
            json!({
                "number": number, "completed": 1_767_582_001.0, "device": format!("sd{number}"), "op": "read", "sector": 0,
                "bytes": 4096, "status": "ok", "latency": {"total": 2.0}, "cpu": 0, "workload": "/",
            })
        };
        let mut line = json!({
            "began": 1_767_582_000, "taken": 1_767_582_060, "seconds": 60, "collections": 12, "failures": 0, "lost": {},
            "slow_dropped": 0,
        });
        line["devices"] = numbers.iter().map(device).collect();
        line["workloads"] = numbers.iter().map(workload).collect();
        line["slow"] = numbers.iter().map(slow).collect();
        format!("{line}\n")
    });
    let end = json!({"end": {"intervals": devices.div_ceil(per_line)}});
    gzip(format!("{}{}{end}\n", head(|_| ()), lines.collect::<String>()).as_bytes())
}

/// Returns the CPU time of a command that succeeds.
fn cpu_time(arguments: &[&str]) -> Duration {
    let script = r#""$0" "$@" >/dev/null && times"#;
    let output = Command::new("sh").args(["-c", script, PROGRAM]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    // The second line has the user and system time of the shell's children, such as 0m0.120s 0m0.010s.
    let seconds = |word: &str| {
        let (minutes, seconds) = word.trim_end_matches('s').split_once('m').unwrap();
        60.0 * minutes.parse::<f64>().unwrap() + seconds.parse::<f64>().unwrap()
    };
    let times = text(&output.stdout);
    Duration::from_secs_f64(times.lines().nth(1).unwrap().split(' ').map(seconds).sum())
}

/// No real host is this large, but ten times the devices must take ten times as long, not a hundred times.
#[test]
fn reads_crowded_files_in_linear_time() {
    let folder = Folder::new("saved-crowded");
    let times = |devices: usize, per_line: usize| {
        let path = folder.0.join(format!("{devices}-{per_line}"));
        fs::write(&path, crowded(devices, per_line)).unwrap();
        let path = path.to_str().unwrap();
        [&["since", "1000000000", "-D"][..], &["worst", "--since", "1000000000"]]
            .map(|command| cpu_time(&[command, &["--file", path]].concat()))
    };
    for lines in [1, 30] {
        let (few, many) = (times(900, 900 / lines), times(9000, 9000 / lines));
        println!("{lines} lines: {few:?}, {many:?}");
        for (few, many) in few.into_iter().zip(many) {
            assert!(many < 25 * few + Duration::from_millis(500), "{lines} lines: {few:?}, then {many:?}");
        }
    }
}
