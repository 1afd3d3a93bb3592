//! The options of each command, and which of them can be combined.

use std::time::Duration;

use biolat_system::terminal::Color;
use clap::{CommandFactory as _, Parser as _};

use super::{By, CommonOptions, devices};
use crate::cli::{AtCommand, Cli, Command, HistCommand, SlowCommand, TableCommand, WorstCommand};

fn parse(line: &str) -> Result<Cli, String> {
    let words = ["biolat"].into_iter().chain(line.split_whitespace());
    Cli::try_parse_from(words).map_err(|error| error.to_string())
}

fn hist(line: &str) -> HistCommand {
    match parse(&format!("hist {line}")).unwrap().command {
        Some(Command::Hist(command)) => command,
        other => panic!("{other:?}"),
    }
}

/// The options of a command, including those before it.
fn common(line: &str) -> CommonOptions {
    let cli = parse(line).unwrap();
    match cli.command {
        None => cli.common,
        Some(Command::Hist(HistCommand { common, .. }) | Command::Who(TableCommand { common, .. })) => {
            common.or(&cli.common)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn definitions_pass_claps_own_checks() {
    Cli::command().debug_assert();
}

#[test]
fn accepts_biolatencys_options() {
    let HistCommand { windows, histogram, .. } = hist("-mT 1 10");
    assert_eq!((windows.interval, windows.count), (Some(Duration::from_secs(1)), Some(10)));
    assert!(histogram.milliseconds && windows.timestamp && !histogram.by_device);
    let HistCommand { windows, histogram, common, .. } = hist("-DFQ -d sdc");
    assert!(histogram.by_device && histogram.by_op && histogram.queued && windows.interval.is_none());
    assert_eq!(common.devices.devices, ["sdc"]);
    assert!(hist("").common.devices.selection().unwrap().is_none());
}

#[test]
fn histograms_are_by_claim_or_by_device() {
    assert_eq!(hist("--by claim -F").histogram.by, Some(By::Claim));
    assert!(parse("hist --by claim -D").unwrap_err().contains("cannot be used with '--by-device'"));
    assert!(parse("since -2h --by pod").unwrap_err().contains("possible values: device, volume, claim"));
}

#[test]
fn selects_devices_by_name_list_and_expression() {
    let shows = |line: &str, name: &str| {
        hist(line).common.devices.selection().unwrap().is_some_and(|selection| selection.shows(name))
    };
    assert!(shows("-d sda", "sda") && !shows("-d sda", "sdab") && !shows("-d sda", "xsda"));
    assert!(shows("--loop", "loop0") && shows("--loop", "sda") && shows("-d loop0", "loop0"));
    assert!(
        shows("-d sd[a,b]", "sdb")
            && shows("-d sda,sdb", "sdb")
            && shows("-d sda -d sd[c-d]", "sdd")
            && shows("-d /dev/sda", "sda")
    );
    assert!(shows("-d sda|sdb", "sda") && !shows("-d sda|sdb,vda", "sdax"));
    assert!(shows("-d nvme[0-9]{1,2}n1,vda", "nvme10n1") && shows("-d nvme[0-9]{1,2}n1,vda", "vda"));
    assert!(devices("sd[").unwrap_err().starts_with("'sd[' is not a regular expression: "));
    assert!(devices(",").is_err() && devices("").is_err());
}

#[test]
fn options_before_a_command_apply_to_it() {
    let host = |line: &str| common(line).source.host.map(|host| host.to_string());
    let db1 = Some("http://db1:9976".to_owned());
    assert_eq!((host(""), host("--host db1"), host("who")), (None, db1.clone(), None));
    assert_eq!((host("--host db1 who"), host("who --host db1")), (db1.clone(), db1.clone()));
    assert_eq!(host("--host db2 who --host db1"), db1);
    let before = common("--user alice --password-file p --ca-file c -d sda -j --color never hist");
    assert_eq!(before.source.user.as_deref(), Some("alice"));
    assert_eq!(before.source.password_file.as_deref(), Some("p".as_ref()));
    assert_eq!(before.source.ca_file.as_deref(), Some("c".as_ref()));
    assert_eq!(before.devices.devices, ["sda"]);
    assert!(before.json && before.color == Color::Never);
    let own = common("--user alice -d sda --color never hist --user bob -d sdb --color always");
    assert_eq!(own.source.user.as_deref(), Some("bob"));
    assert_eq!((own.devices.devices, own.color), (vec!["sdb".to_owned()], Color::Always));
    assert!(!own.json);
    assert!(common("--loop hist").devices.has_loops && !common("--loop hist -d sda").devices.has_loops);
}

#[test]
fn rejects_conflicting_options() {
    for line in [
        "hist -Q -P",
        "hist --loop --host x",
        "hist --at 03:00 --since 02:00",
        "worst --at 03:00 --until 02:00",
        "at 03:00 -Q -P",
        "who --file x --host db1",
        "hist --since -2h --for 5m",
        "worst --file x --user alice",
    ] {
        let error = parse(line).unwrap_err();
        assert!(error.contains("cannot be used with"), "{line}: {error}");
    }
    let error = parse("who --until 02:00").unwrap_err();
    assert!(error.contains("required") && error.contains("--since"), "{error}");
}

/// A command rejects options that have no effect on it.
#[test]
fn rejects_options_of_other_commands() {
    for command in ["sizes", "cpus", "who", "slow", "top", "worst", "save x"] {
        for option in ["-Q", "-P", "-D", "-F", "--fine"] {
            assert!(parse(&format!("{command} {option}")).is_err(), "{command} {option}");
        }
    }
    for line in [
        "cpus --at 03:00",
        "cpus --file x",
        "slow 1s 5",
        "slow --file x",
        "top --file x",
        "top -m",
        "worst 5",
        "at 03:00 5",
        "at",
        "since",
        "save",
        "save x 5",
        "save x --file y",
        "save x -m",
        "open",
        "hist 1 0",
        "hist --color blue",
        "hist --host",
        "hist 5 --from x",
        "everything",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn parses_times_and_lengths() {
    let slow = |line: &str| match parse(line).unwrap().command {
        Some(Command::Slow(SlowCommand { at_least, .. })) => at_least,
        other => panic!("{other:?}"),
    };
    assert_eq!((slow("slow"), slow("slow -d sda")), (None, None));
    assert_eq!(slow("slow 50ms -j --host db1"), Some(Duration::from_millis(50)));
    for line in ["slow off", "slow 1ms", "slow 5", "at 25:00", "since yesterday", "at 03:00 --for x"] {
        assert!(parse(line).is_err(), "{line}");
    }
    for line in ["at -2h", "at 03:00", "at 2026-01-05T03:00:00Z", "since -90m --until -1h", "worst --at -2h"]
    {
        assert!(parse(line).is_ok(), "{line}");
    }
    match parse("at 03:00").unwrap().command {
        Some(Command::At(AtCommand { length, shown, .. })) => {
            assert_eq!((length, shown.every), (Duration::from_secs(60), None));
        }
        other => panic!("{other:?}"),
    }
    match parse("worst").unwrap().command {
        Some(Command::Worst(WorstCommand { range, .. })) => assert!(!range.is_given()),
        other => panic!("{other:?}"),
    }
    assert!(hist("--since -2h").range.is_given() && hist("--at 03:00").range.is_given());
    assert_eq!(parse("--for 10s").unwrap().length, Some(Duration::from_secs(10)));
}

#[test]
fn errors_never_contain_the_password() {
    let refused = parse("who --host http://alice:secret@db1:port").unwrap_err();
    assert!(refused.contains("'db1:port' is not a URL") && !refused.contains("secret"), "{refused}");
}
