//! The command: its options, how it ends, and the browser that it starts.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    process::{Output, Stdio},
};

use biolat_testing::wait_for;
use serde_json::{Value, json};

use crate::{
    file::{HOST, SAVED, SavedFile},
    server::{Open, command},
};

fn error(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn serves_on_loopback_until_interrupted() {
    let file = SavedFile::of(600, 0);
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut with_port = command(&file.path);
    with_port.args(["--port", &free.to_string()]);
    let mut open = Open::run(&mut with_port);
    assert_eq!(open.address, SocketAddr::from(([127, 0, 0, 1], free)));
    assert_eq!(open.get("/").status, 200);
    TcpStream::connect(SocketAddr::from(([127, 0, 0, 2], free))).unwrap_err();
    assert!(open.interrupt().success());
    let mut with_json = command(&file.path);
    let open = Open::run(with_json.arg("-j"));
    let expected = json!({"url": format!("http://{}/", open.address), "host": HOST, "saved": SAVED as f64});
    assert_eq!(serde_json::from_str::<Value>(&open.line).unwrap(), expected);
}

#[test]
fn reports_unservable_files_in_one_line() {
    let file = SavedFile::of(600, 0);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = command(&file.path).args(["--port", &port]).output().unwrap();
    let expected = format!("cannot listen on 127.0.0.1:{port}; give another --port: Address already in use");
    assert!(error(&output).contains(&expected), "{output:?}");
    let empty = SavedFile::write(file.head.clone(), vec![]);
    let text = error(&command(&empty.path).output().unwrap());
    assert!(text.contains(&format!("{}: it has no intervals\n", empty.path.display())), "{text}");
    let mut head = file.head.clone();
    head["saved"] = json!(1e300);
    let wrong = SavedFile::write(head, file.intervals.clone());
    let text = error(&command(&wrong.path).output().unwrap());
    assert!(text.contains("it is damaged: an invalid time") && text.lines().count() == 1, "{text}");
    fs::write(&wrong.path, "no history").unwrap();
    let text = error(&command(&wrong.path).output().unwrap());
    assert!(text.contains("it is not a history") && text.lines().count() == 1, "{text}");
}

#[test]
fn serves_standard_input() {
    let file = SavedFile::of(600, 0);
    let mut from_pipe = command("-".as_ref());
    from_pipe.stdin(fs::File::open(&file.path).unwrap());
    let open = Open::run(&mut from_pipe);
    assert_eq!(open.json("/api/v1/history?from=-1h")["intervals"].as_array().unwrap().len(), 10);
}

/// The browser gets the address, and no capabilities.
#[test]
fn opens_the_browser() {
    let file = SavedFile::of(600, 0);
    let folder = env::temp_dir().join(format!("biolat-open-{}-{SAVED}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (program, opened) = (folder.join("xdg-open"), folder.join("opened"));
    let script = format!(
        "#!/bin/sh\n{{ echo \"$1\"; grep -E '^(CapPrm|CapEff|NoNewPrivs)' /proc/self/status; }} >{0}.new && mv {0}.new {0}\n",
        opened.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.display(), env::var("PATH").unwrap());
    let with_browser = |path: &str| {
        let mut with_browser = command(&file.path);
        with_browser.arg("--browser").env("PATH", path).stderr(Stdio::piped());
        Open::run(&mut with_browser)
    };
    let open = with_browser(&path);
    wait_for("the browser", || opened.exists());
    let none = "0".repeat(16);
    let expected = format!("http://{}/\nCapPrm:\t{none}\nCapEff:\t{none}\nNoNewPrivs:\t1\n", open.address);
    assert_eq!(fs::read_to_string(&opened).unwrap(), expected);
    // If there is no browser, or it fails, a line says so and serving continues.
    fs::write(&program, "#!/bin/sh\nexit 3\n").unwrap();
    for (path, why) in [
        (path.as_str(), "xdg-open failed: exit status: 3"),
        ("/nowhere", "cannot run xdg-open: No such file or directory (os error 2)"),
    ] {
        let mut open = with_browser(path);
        let mut line = String::new();
        BufReader::new(open.child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, format!("cannot open the browser: {why}; open the address yourself\n"));
        assert_eq!(open.get("/").status, 200);
    }
    fs::remove_dir_all(folder).unwrap();
}
