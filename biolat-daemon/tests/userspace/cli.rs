//! Command line errors: one line with the fix, and the right exit code. They all occur before the probe is loaded, so no
//! privileges are needed.

use std::{
    fs,
    net::TcpListener,
    path::PathBuf,
    process::{Command, Output},
};

fn daemon(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_biolat-daemon"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BIOLAT_")) {
        command.env_remove(name);
    }
    command.args(arguments).output().unwrap()
}

/// Checks the exit code and the single error line.
fn fails(arguments: &[&str], code: i32, expected: &[&str]) {
    let output = daemon(arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    // Other lines are about this machine's devices.
    let errors: Vec<_> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(errors.len(), 1, "{stderr}");
    assert!(!stderr.contains("backtrace") && !stderr.contains("panicked"), "{stderr}");
    for part in expected {
        assert!(errors[0].contains(part), "{stderr} does not contain: {part}");
    }
}

/// Returns a sysfs root whose BTF file contains these bytes.
fn sysfs_with_btf(name: &str, bytes: &[u8]) -> PathBuf {
    let root = std::env::temp_dir().join(format!("biolat-cli-{name}-{}", std::process::id()));
    fs::create_dir_all(root.join("block")).unwrap();
    fs::create_dir_all(root.join("kernel/btf")).unwrap();
    fs::write(root.join("kernel/btf/vmlinux"), bytes).unwrap();
    root
}

#[test]
fn usage_errors_exit_with_2() {
    fails(&["--schema", "4"], 2, &["--schema", "4 is not in 0..=3", "--help"]);
    fails(&["--interval", "5"], 2, &["--interval", "500ms, 5s or 1m"]);
    fails(&["--interval", "10m"], 2, &["--interval", "from 100ms to 5m"]);
    fails(&["--slow", "5"], 2, &["--slow", "from 33ms to 1000s, as in 100ms, 1s or 1m, or off"]);
    fails(&["--listen", "localhost"], 2, &["--listen", "127.0.0.1:9976"]);
    fails(&["--format", "x"], 2, &["--format", "native, classic, both"]);
    fails(&["--log-format", "xml"], 2, &["text, json"]);
    fails(&["--intervall", "5s"], 2, &["--intervall", "a similar argument exists: '--interval'"]);
    fails(&["serve"], 2, &["unrecognized subcommand 'serve'"]);
    fails(&["--device", "nvme["], 2, &["--device 'nvme['", "not a regular expression", "--help"]);
    fails(&["--device-exclude", "("], 2, &["--device-exclude '('", "not a regular expression"]);
}

/// The terminal tool used to be a subcommand of the daemon.
#[test]
fn report_points_to_biolat() {
    for (arguments, command) in [
        (&[][..], "biolat hist (see"),
        (&["-DF", "1", "10"], "biolat hist (see"),
        (&["--who", "5"], "biolat who (see"),
        (&["--slow=100ms"], "biolat slow (see"),
        (&["--top", "--from", "db1"], "biolat top --host HOST (see"),
        (&["--from=db1", "--at", "03:00"], "biolat at TIME --host HOST (see"),
        (&["--load", "x", "--worst"], "biolat worst (see"),
        (&["--from", "db1", "--save", "x"], "biolat save FILE --host HOST (see"),
    ] {
        fails(&[&["report"], arguments].concat(), 2, &["report has been replaced: run ", command]);
    }
}

#[test]
fn validates_environment_variables() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_biolat-daemon")).env("BIOLAT_SCHEMA", "7").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("7 is not in 0..=3"));
}

#[test]
fn help_and_version_exit_with_0() {
    let help = daemon(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    let help = String::from_utf8(help.stdout).unwrap();
    for option in
        ["--listen", "--interval", "--schema", "--format", "--device", "--device-exclude", "--sysfs"]
    {
        assert!(help.contains(option), "{option}");
    }
    for environment in
        ["BIOLAT_LISTEN", "BIOLAT_PROCFS", "BIOLAT_LOG_FORMAT", "BIOLAT_SLOW", "BIOLAT_PROBE_STATS"]
    {
        assert!(help.contains(environment), "{environment}");
    }
    let version = daemon(&["--version"]);
    assert_eq!(version.status.code(), Some(0));
    let version = String::from_utf8(version.stdout).unwrap();
    assert!(version.starts_with(concat!("biolat-daemon ", env!("CARGO_PKG_VERSION"), " (")), "{version}");
}

#[test]
fn rejects_port_in_use() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    fails(
        &["--listen", &address],
        1,
        &["cannot listen on", &address, "in use", "is biolat running already?"],
    );
}

#[test]
fn rejects_address_of_other_host() {
    fails(&["--listen", "192.0.2.1:9976"], 1, &["192.0.2.1:9976", "does not have that address"]);
}

#[test]
fn rejects_missing_sysfs() {
    fails(
        &["--listen", "127.0.0.1:0", "--sysfs", "/nonexistent"],
        1,
        &["/nonexistent/kernel/btf/vmlinux", "--sysfs"],
    );
}

#[test]
fn rejects_missing_btf() {
    let root = sysfs_with_btf("none", b"");
    fs::remove_file(root.join("kernel/btf/vmlinux")).unwrap();
    let arguments = ["--listen", "127.0.0.1:0", "--sysfs", root.to_str().unwrap()];
    fails(&arguments, 1, &["kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF"]);
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn rejects_invalid_btf() {
    let root = sysfs_with_btf("garbage", &[7; 100]);
    fails(&["--listen", "127.0.0.1:0", "--sysfs", root.to_str().unwrap()], 1, &["malformed BTF"]);
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn rejects_kernel_without_tracepoint() {
    // A header, no types, and a string table that holds only the empty string.
    let mut bytes = vec![0x9f, 0xeb, 1, 0];
    for word in [24_u32, 0, 0, 0, 1] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.push(0);
    let root = sysfs_with_btf("tracepoint", &bytes);
    let arguments = ["--listen", "127.0.0.1:0", "--sysfs", root.to_str().unwrap()];
    fails(&arguments, 1, &["the kernel lacks tracepoint types (`btf_trace_block_rq_complete`)", "Linux 5.8"]);
    fs::remove_dir_all(root).unwrap();
}
