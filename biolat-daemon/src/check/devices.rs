//! Checks which latencies the kernel records for each device.

use std::{io, path::Path};

use biolat_model::{
    device::{Device, MissingLatency, Selection, WITHOUT_THROTTLING},
    shell::quoted,
};

use super::finding::Finding;

const SUBJECT: &str = "devices";

/// Findings about devices.
pub(super) struct Devices {
    pub(super) findings: Vec<Finding>,
    /// Number of devices that are shown.
    pub(super) shown: usize,
}

/// Checks all devices. Commands in the fixes use sudo unless `is_root`.
pub(super) fn devices(
    found: io::Result<Vec<Device>>,
    selection: &Selection,
    root: &Path,
    is_root: bool,
) -> Devices {
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            let text = format!("cannot list {}: {error}", root.join("block").display());
            let finding = Finding::fail("devices.list", SUBJECT, text)
                .step("give the mount point of sysfs with --sysfs");
            return Devices { findings: vec![finding], shown: 0 };
        }
    };
    let selection = selection.clone().for_devices(found.iter().map(|device| device.name.as_str()));
    let (shown, hidden): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|device| selection.shows(&device.name));
    let mut findings: Vec<_> = shown.iter().map(|device| latencies(device, root, is_root)).collect();
    let hidden = || hidden.iter().map(|device| device.name.as_str());
    if shown.is_empty() {
        findings.push(none_shown(&hidden().collect::<Vec<_>>().join(", ")));
    } else {
        let (by_default, excluded): (Vec<_>, Vec<_>) = hidden().partition(|name| selection.leaves_out(name));
        for (names, why) in
            [(by_default, "not shown unless selected by --loop or --device"), (excluded, "excluded")]
        {
            if !names.is_empty() {
                let text = format!("{why}: {}", names.join(", "));
                findings.push(Finding::ok("devices.left_out", SUBJECT, text));
            }
        }
    }
    Devices { findings, shown: shown.len() }
}

fn none_shown(hidden: &str) -> Finding {
    const ID: &str = "devices.none";
    if hidden.is_empty() {
        return Finding::note(ID, SUBJECT, "none yet; new devices will be measured as they appear");
    }
    Finding::note(ID, SUBJECT, format!("none is selected; this host has {hidden}")).step(
        "change --device and --device-exclude, which match full device names; --loop selects loop devices",
    )
}

fn latencies(device: &Device, root: &Path, is_root: bool) -> Finding {
    const ID: &str = "device.latencies";
    let name = device.name.as_str();
    let description = description(device);
    let command = device
        .remedy(root)
        .map(|command| if is_root { command } else { format!("sudo sh -c {}", quoted(&command)) });
    let finding = match device.missing_latency() {
        None => return Finding::ok(ID, name, format!("{description}: queue, device and total latency")),
        Some(MissingLatency::QueueAndDevice) => {
            let text = format!(
                "{description}: total latency only, unless a cgroup uses io.cost, or the scheduler is bfq or kyber"
            );
            Finding::note(ID, name, text)
        }
        Some(MissingLatency::All) => Finding::fail(
            ID,
            name,
            format!("{description}: no latency: I/O statistics are disabled (queue/iostats is 0)"),
        ),
    };
    match command {
        Some(command) => finding.command(command),
        None => finding.step(WITHOUT_THROTTLING),
    }
}

fn description(device: &Device) -> String {
    let path = device.path_of.as_ref().map(|head| format!("path of {head}"));
    let kind = if device.rotational { "rotational" } else { "non-rotational" };
    let known = |text: &String| (!text.is_empty()).then(|| text.clone());
    let scheduler = known(&device.scheduler).map(|name| format!("scheduler {name}"));
    let parts = [known(&device.model), path, Some(kind.into()), scheduler];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::io;

    use biolat_collect::device::{IdKind, scan};
    use biolat_model::device::Selection;
    use biolat_testing::Tree;

    use super::{
        super::finding::{
            Fix,
            Verdict::{Fail, Note, Ok as Fine},
        },
        devices,
    };

    fn host(name: &str) -> Tree {
        Tree::new(
            name,
            &[
                ("loop3/mq/0/x", ""),
                ("loop3/diskseq", "3"),
                ("loop3/loop/backing_file", "/x"),
                ("loop3/queue/iostats", "0"),
                ("loop3/queue/rotational", "0"),
                ("nvme0n1/mq/0/x", ""),
                ("nvme0n1/diskseq", "1"),
                ("nvme0n1/queue/iostats", "1"),
                ("nvme0n1/queue/rotational", "0"),
                ("nvme0n1/queue/scheduler", "[none] bfq"),
                ("nvme0n1/device/model", "FAST SSD 990"),
                ("nvme0n1/queue/wbt_lat_usec", "2000"),
                ("sda/mq/0/x", ""),
                ("sda/diskseq", "2"),
                ("sda/queue/iostats", "1"),
                ("sda/queue/rotational", "1"),
                ("sda/queue/wbt_lat_usec", ""),
                ("sdb/mq/0/x", ""),
                ("sdb/diskseq", "4"),
                ("sdb/queue/iostats", "1"),
            ],
        )
    }

    #[test]
    fn reports_missing_latencies_with_fixes() {
        let tree = host("missing");
        let everything = Selection::default().with_loops();
        let found = devices(scan(&tree.0, IdKind::Diskseq, |_| None), &everything, &tree.0, true);
        assert_eq!(found.shown, 4);
        let [r#loop, nvme, sda, sdb] = &found.findings[..] else { panic!("{:?}", found.findings) };
        assert_eq!((nvme.id, nvme.subject.as_str(), nvme.verdict), ("device.latencies", "nvme0n1", Fine));
        assert_eq!(
            nvme.text,
            "FAST SSD 990, non-rotational, scheduler none: queue, device and total latency"
        );
        assert_eq!((r#loop.verdict, sda.verdict, sdb.verdict), (Fail, Note, Note));
        let block = tree.0.join("block").display().to_string();
        let command = |command: String| vec![Fix::Command(command)];
        assert_eq!(r#loop.fix, command(format!("echo 1 > {block}/loop3/queue/iostats")));
        assert_eq!(sda.fix, command(format!("echo 75000 > {block}/sda/queue/wbt_lat_usec")));
        assert!(matches!(&sdb.fix[..], [Fix::Step(step)] if step.contains("CONFIG_BLK_WBT")), "{sdb:?}");
        let found = devices(scan(&tree.0, IdKind::Diskseq, |_| None), &everything, &tree.0, false);
        let wanted = format!("sudo sh -c 'echo 1 > {block}/loop3/queue/iostats'");
        assert_eq!(found.findings[0].fix, command(wanted), "sudo unless root");
    }

    #[test]
    fn quotes_device_names_in_commands() {
        let tree = Tree::new(
            "names",
            &[("a'b;id/mq/0/x", ""), ("a'b;id/diskseq", "1"), ("a'b;id/queue/iostats", "0")],
        );
        let everything = Selection::new(None, None).unwrap();
        let found = devices(scan(&tree.0, IdKind::Diskseq, |_| None), &everything, &tree.0, false);
        let Some(Fix::Command(command)) = found.findings[0].fix.first() else {
            panic!("{:?}", found.findings)
        };
        // Parsed twice: by this shell, and by the one that sudo would start.
        let script = command.replace("sudo sh -c", "sh -c");
        assert!(
            std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success(),
            "{command}"
        );
        let written = std::fs::read(tree.0.join("block/a'b;id/queue/iostats")).unwrap();
        assert_eq!(written, b"1\n", "{command}");
    }

    #[test]
    fn reports_excluded_devices() {
        let tree = host("chosen");
        let select = |device: &str| {
            let selection = Selection::new(Some(device), None).unwrap();
            let found = devices(scan(&tree.0, IdKind::Diskseq, |_| None), &selection, &tree.0, true);
            let first = found.findings[0].clone();
            (found.shown, first.id, first.verdict, found.findings.get(1).cloned())
        };
        let (shown, id, verdict, excluded) = select("nvme.*");
        assert_eq!((shown, id, verdict), (1, "device.latencies", Fine));
        let excluded = excluded.unwrap();
        assert_eq!((excluded.verdict, excluded.text.as_str()), (Fine, "excluded: loop3, sda, sdb"));
        let (shown, id, verdict, _) = select("vda");
        assert_eq!((shown, id, verdict), (0, "devices.none", Note));
    }

    #[test]
    fn hides_loop_devices_unless_there_are_no_others() {
        let tree = host("loops");
        let found = || scan(&tree.0, IdKind::Diskseq, |_| None);
        let chosen = devices(found(), &Selection::new(None, Some("sdb")).unwrap(), &tree.0, true);
        assert_eq!(chosen.shown, 2);
        let texts: Vec<_> =
            chosen.findings.iter().filter(|finding| finding.id == "devices.left_out").collect();
        let [by_default, excluded] = &texts[..] else { panic!("{texts:?}") };
        assert_eq!(by_default.text, "not shown unless selected by --loop or --device: loop3");
        assert_eq!(excluded.text, "excluded: sdb");
        for name in ["nvme0n1", "sda", "sdb"] {
            std::fs::remove_dir_all(tree.0.join("block").join(name)).unwrap();
        }
        let alone = devices(found(), &Selection::default(), &tree.0, true);
        assert_eq!((alone.shown, alone.findings[0].subject.as_str()), (1, "loop3"));
    }

    #[test]
    fn reports_that_there_are_no_devices() {
        let tree = Tree::new("nothing", &[("ram0/size", "1")]);
        let everything = Selection::new(None, None).unwrap();
        let found = devices(scan(&tree.0, IdKind::Diskseq, |_| None), &everything, &tree.0, true);
        let [none] = &found.findings[..] else { panic!("{:?}", found.findings) };
        assert_eq!((none.id, none.verdict), ("devices.none", Note));
        let failed = devices(Err(io::Error::from(io::ErrorKind::NotFound)), &everything, &tree.0, true);
        assert_eq!((failed.findings[0].id, failed.findings[0].verdict), ("devices.list", Fail));
    }
}
