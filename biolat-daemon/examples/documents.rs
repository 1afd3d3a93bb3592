//! Writes what is made of the daemon's options: the manual page, and completions for shells.
//!
//! `cargo run --example documents -- 2026-01-31 FOLDER`; the date is the page's. `cargo xtask dist` packs them.

use std::{error::Error, fs, path::Path};

use biolat_daemon::{config::Options, version};
use clap::CommandFactory as _;
use clap_complete::{Shell, generate_to};
use clap_mangen::{
    Man,
    roff::{Roff, bold, italic, roman},
};

/// Daemons and what administers a system.
const SECTION: &str = "8";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(date), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err("give a date and a folder".into());
    };
    let folder = Path::new(&folder);
    fs::write(folder.join(format!("biolat-daemon.{SECTION}")), manual(&date)?)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut Options::command(), "biolat-daemon", folder)?;
    }
    Ok(())
}

fn manual(date: &str) -> std::io::Result<Vec<u8>> {
    // What follows the options in --help has sections of its own here.
    let command = Options::command().after_help("").after_long_help("");
    let (description, environment) = (description(&command), environment(&command));
    let man = Man::new(command)
        .section(SECTION)
        .date(date)
        .source(format!("biolat {}", version::VERSION))
        .manual("System Administration");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    description.to_writer(&mut page)?;
    man.render_options_section(&mut page)?;
    for section in [environment, exit_status(), files(), examples(), see_also()] {
        section.to_writer(&mut page)?;
    }
    Ok(page)
}

fn section(title: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    roff
}

/// A term, and what it is.
fn item(roff: &mut Roff, term: &str, text: &str) {
    roff.control("TP", []).text([bold(term)]).text([roman(text)]);
}

/// What --help says first. Indented lines are terms and what they are.
fn description(command: &clap::Command) -> Roff {
    let mut roff = section("DESCRIPTION");
    let text = command.get_long_about().map(ToString::to_string).unwrap_or_default();
    for line in text.lines() {
        match line.strip_prefix("  ").and_then(|line| line.split_once("  ")) {
            Some((term, text)) => item(&mut roff, term, text.trim()),
            None if line.is_empty() => drop(roff.control("PP", [])),
            None => drop(roff.text([roman(line)])),
        }
    }
    roff
}

/// Each option's variable.
fn environment(command: &clap::Command) -> Roff {
    let mut roff = section("ENVIRONMENT");
    roff.text([
        roman("Each option can be given in the environment too, which the command line overrides. One that takes no \
               value is on with "),
        bold("true"),
        roman("."),
    ]);
    for argument in command.get_arguments() {
        if let (Some(variable), Some(option)) = (argument.get_env(), argument.get_long()) {
            let text = [roman("as "), bold(format!("--{option}"))];
            roff.control("TP", []).text([bold(variable.to_string_lossy())]).text(text);
        }
    }
    for (variable, text) in [
        ("LISTEN_FDS", "how many sockets systemd hands over: sd_listen_fds(3)"),
        (
            "NOTIFY_SOCKET",
            "where systemd is told that there are figures, and that the end has begun: sd_notify(3)",
        ),
        ("WATCHDOG_USEC", "how often systemd wants to hear that all is well: sd_watchdog_enabled(3)"),
    ] {
        item(&mut roff, variable, text);
    }
    roff
}

fn exit_status() -> Roff {
    let mut roff = section("EXIT STATUS");
    for (status, text) in [
        ("0", "after SIGTERM or SIGINT"),
        ("1", "it cannot run, or no longer: one line on standard error says why, and what to do"),
        ("2", "an option is wrong"),
    ] {
        item(&mut roff, status, text);
    }
    roff
}

fn files() -> Roff {
    let mut roff = section("FILES");
    for (file, text) in [
        ("/etc/default/biolat", "the environment of the systemd unit, for options"),
        ("/usr/lib/systemd/system/biolat.service", "the systemd unit"),
        ("/usr/lib/systemd/system/biolat.socket", "has systemd listen in its stead; not enabled by default"),
        ("/sys/kernel/btf/vmlinux", "the kernel's types, without which the probe cannot be loaded"),
        ("/sys/block/*/stat", "the kernel's own disk statistics, against which its counts are checked"),
    ] {
        item(&mut roff, file, text);
    }
    roff
}

fn examples() -> Roff {
    let mut roff = section("EXAMPLES");
    for (text, command) in [
        ("Serve on port 9976 of every address:", "biolat-daemon"),
        ("NVMe drives only, read every second:", "biolat-daemon --device 'nvme.*' --interval 1s"),
        ("This host alone may ask:", "biolat-daemon --listen 127.0.0.1:9976 --listen [::1]:9976"),
        (
            "See how many I/Os there were:",
            "curl -s localhost:9976/metrics | grep total_latency_seconds_count",
        ),
    ] {
        roff.text([roman(text)]);
        roff.control("PP", []).control("RS", ["4"]).control("EX", []);
        roff.text([roman(command)]);
        roff.control("EE", []).control("RE", []).control("PP", []);
    }
    roff
}

fn see_also() -> Roff {
    let mut roff = section("SEE ALSO");
    for (page, section, end) in [
        ("systemctl", "(1), ", false),
        ("journalctl", "(1), ", false),
        ("iostat", "(1), ", false),
        ("bpf", "(2), ", false),
        ("capabilities", "(7)", true),
    ] {
        roff.text([bold(page), roman(section)]);
        if end {
            roff.control("PP", []);
        }
    }
    roff.text([roman("Every metric and what it means: "), italic("/usr/share/doc/biolat/README.md")]);
    roff
}
