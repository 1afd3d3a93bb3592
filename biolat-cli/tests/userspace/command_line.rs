//! Help, versions, and command line errors, each of which is one line.

use crate::support::{command, is_refused, run, text, works};

const COMMANDS: [&str; 13] = [
    "hist",
    "sizes",
    "cpus",
    "who",
    "processes",
    "slow",
    "top",
    "at",
    "since",
    "worst",
    "save",
    "open",
    "check",
];

/// The commands that `biolat --help` lists.
fn listed(help: &str) -> Vec<&str> {
    let (_, commands) = help.split_once("Commands:\n").unwrap_or_else(|| panic!("{help}"));
    let rows = commands.lines().take_while(|line| !line.is_empty());
    rows.filter_map(|row| row.split_whitespace().next()).filter(|name| *name != "help").collect()
}

fn fits_a_terminal(command: &str, help: &str) {
    assert!(help.lines().count() <= 40, "{command} has {} lines:\n{help}", help.lines().count());
    for line in help.lines() {
        assert!(line.chars().count() <= 100, "{command}: {line}");
    }
}

#[test]
fn help_names_every_command() {
    let help = works(&["--help"]);
    assert_eq!(listed(&help), COMMANDS);
    assert_eq!(works(&["-h"]), help);
    fits_a_terminal("biolat", &help);
}

#[test]
fn help_of_each_command_fits_a_terminal() {
    // `check` takes the daemon's options.
    for name in COMMANDS.into_iter().filter(|name| *name != "check") {
        let help = works(&[name, "--help"]);
        fits_a_terminal(name, &help);
        assert!(help.contains(&format!("Usage: biolat {name}")), "{help}");
        assert_eq!(works(&["help", name]).lines().next(), help.lines().next(), "{name}");
    }
    assert!(works(&["check", "--help"]).contains("Usage: biolat check"));
}

#[test]
fn prints_the_version() {
    let version = works(&["--version"]);
    assert!(version.starts_with(concat!("biolat ", env!("CARGO_PKG_VERSION"), " (")), "{version}");
}

#[test]
fn reports_usage_errors_in_one_line() {
    for (arguments, expected) in [
        (&["histogram"][..], &["unrecognized subcommand 'histogram'", "'hist'"][..]),
        (&["report", "--who"], &["unrecognized subcommand 'report'"]),
        (&["5", "1"], &["unrecognized subcommand '5'"]),
        (&["--who"], &["unexpected argument '--who'"]),
        (&["hist", "--who"], &["unexpected argument '--who'"]),
        (&["hist", "--from", "db1"], &["unexpected argument '--from'"]),
        (&["hist", "soon"], &["soon", "500ms"]),
        (&["hist", "1", "0"], &["0", "1.."]),
        (&["hist", "-d", "sd["], &["'sd[' is not a regular expression"]),
        (&["hist", "--color", "red"], &["auto, always, never"]),
        (&["at"], &["<TIME>"]),
        (&["at", "noon"], &["give a time as in 03:00"]),
        (&["--host", "http://alice:secret@db1:port"], &["--host: 'db1:port' is not a URL"]),
        (&["--host", "ftp://db1", "who"], &["unsupported scheme 'ftp'", "http://"]),
        (&["--host", "db1", "check"], &["biolat check only checks the host it runs on"]),
        (&["who", "--for", "1s", "5"], &["--for measures a single window"]),
        (&["worst", "--until", "02:00"], &["were not provided: --since <TIME> (see"]),
        (&["--host", "db1", "who", "--file", "x"], &["--host and --file exclude each other"]),
        (&["top"], &["needs a terminal", "biolat top -j"]),
    ] {
        let output = run(arguments);
        is_refused(&output, expected);
        let stderr = text(&output.stderr);
        assert!(stderr.starts_with("error: ") && stderr.ends_with("(see --help)\n"), "{stderr}");
        assert!(!stderr.contains("secret"), "{stderr}");
    }
}

#[test]
fn names_the_variable_of_an_invalid_host() {
    let output = command(&["who"]).env("BIOLAT_HOST", "ftp://db1").output().unwrap();
    is_refused(&output, &["BIOLAT_HOST: ", "unsupported scheme 'ftp'"]);
}

/// `biolat check` is `biolat-daemon check`.
#[test]
fn check_has_its_own_exit_codes_and_json() {
    for arguments in
        [&["check", "--json", "--listen", "127.0.0.1:0"][..], &["-j", "check", "--listen", "127.0.0.1:0"]]
    {
        let output = run(arguments);
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["version"], 1);
        assert_eq!(output.status.code(), Some(i32::from(document["works"] != true)), "{document}");
    }
    is_refused(&run(&["check", "everything"]), &["unexpected argument 'everything'"]);
}
