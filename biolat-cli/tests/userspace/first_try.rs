//! Errors on a first try: each is a sentence with a next step.

use std::{
    net::TcpListener,
    process::{Command, Output},
    time::{Duration, Instant},
};

use biolat_history::{HistoryLimits, SharedHistory};

use crate::{
    live::biolat,
    support::{
        PROGRAM, certificates::Folder, fails, history::filled, run, server::BackgroundServer,
        snapshots::snapshot, text, unwrapped, works,
    },
};

/// Runs biolat without privileges, on a host without a network and therefore without a daemon.
fn without_rights_or_daemon(arguments: &[&str]) -> Output {
    let mut command = Command::new("unshare");
    command.args(["--user", "--net", PROGRAM]).args(arguments).env_remove("BIOLAT_HOST").output().unwrap()
}

#[test]
fn explains_missing_root_and_daemon() {
    for arguments in [&[][..], &["hist"], &["sizes"], &["cpus"], &["who"], &["slow"]] {
        let output = without_rights_or_daemon(arguments);
        fails(
            &output,
            &["requires CAP_BPF and CAP_PERFMON", "run as root", "no biolat-daemon listens on port 9976"],
        );
        assert!(text(&output.stderr).contains("--host HOST asks another one"));
        assert!(text(&output.stderr).contains(PROGRAM), "the path to grant capabilities to");
    }
    for arguments in
        [&["at", "-1h"][..], &["since", "-1h"], &["worst"], &["save", "-"], &["who", "--at", "-1h"]]
    {
        let output = without_rights_or_daemon(arguments);
        fails(
            &output,
            &["cannot connect to http://localhost:9976", "--host HOST", "only a daemon keeps a history"],
        );
    }
}

#[test]
fn explains_an_unreachable_host() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap().to_string();
    for command in [&[][..], &["who"], &["slow"], &["at", "-1h"], &["worst"], &["save", "-"]] {
        let output = run(&[command, &["--host", &free]].concat());
        fails(&output, &["Connection refused", "is biolat-daemon running there, on that port?"]);
    }
    let began = Instant::now();
    fails(
        &run(&["worst", "--host", &silent]),
        &["the answer took longer than 10 s: is that biolat-daemon's port?"],
    );
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    // Without a network, names cannot be resolved.
    let output = without_rights_or_daemon(&["--host", "db1"]);
    fails(&output, &["cannot connect to http://db1:9976", "check the name"]);
}

#[test]
fn explains_a_missing_password() {
    let folder = Folder::new("first-password");
    let hash = bcrypt::hash("hunter2", 5).unwrap();
    let config = folder.write("web.yml", &format!("basic_auth_users:\n  alice: {hash}\n"));
    let address = biolat(Some(&config)).to_string();
    for command in [&[][..], &["who"], &["slow"], &["at", "-1h"], &["worst"], &["save", "-"]] {
        let output = run(&[command, &["--host", &address]].concat());
        fails(&output, &["requires a password: give --user NAME", "BIOLAT_PASSWORD or --password-file FILE"]);
    }
    // Follow the advice; the options can come before the command.
    let password = folder.write("password", "hunter2\n");
    let options = ["--host", &address, "--user", "alice", "--password-file", password.to_str().unwrap()];
    works(&[&options[..], &["who", "200ms", "1"]].concat());
    works(&[&["hist", "200ms", "1"], &options[..]].concat());
    works(&[&options[..], &["--for", "200ms"]].concat());
}

#[test]
fn explains_a_history_that_is_too_short() {
    // A history of 100 s.
    let (history, _) = filled(1, 20);
    let host = BackgroundServer::of_history(Some(snapshot(1)), history).address.to_string();
    for command in [["at", "-3h"], ["hist", "--at=-3h"], ["who", "--at=-3h"]] {
        let shown = unwrapped(&works(&[&command[..], &["--host", &host]].concat()));
        assert!(shown.contains("nothing is kept from that time: the history begins at 20"), "{shown}");
    }
    for command in [["since", "-3h"], ["worst", "--since=-3h"]] {
        let shown = unwrapped(&works(&[&command[..], &["--host", &host]].concat()));
        assert!(shown.contains("the history begins at 20") && !shown.contains("nothing is kept"), "{shown}");
    }
    let limits = HistoryLimits { age: Duration::from_secs(3600), bytes: 1 << 20 };
    let empty = SharedHistory::new(limits, Duration::ZERO);
    let host = BackgroundServer::of_history(None, empty).address.to_string();
    let shown = unwrapped(&works(&["at", "-1m", "--host", &host]));
    assert!(shown.contains("nothing is kept yet: no collection has succeeded"), "{shown}");
}
