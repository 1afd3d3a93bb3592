//! Generates the manual pages, one for each command, and shell completions from the daemon's options.
//!
//! `cargo run --example documents -- 2026-01-31 FOLDER`; the date is printed on the pages. `cargo xtask dist` packages them.

use std::{error::Error, fs, io, path::Path};

use biolat_daemon::cli::Cli;
use clap::{Arg, Command, CommandFactory as _};
use clap_complete::{Shell, generate_to};
use clap_mangen::{
    Man,
    roff::{Roff, bold, italic, roman},
};

/// Daemons and system administration commands.
const SECTION: &str = "8";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(date), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err("give a date and a folder".into());
    };
    let folder = Path::new(&folder);
    let daemon = Cli::command();
    let write = |name: &str, page| fs::write(folder.join(format!("{name}.{SECTION}")), page);
    write("biolat-daemon", manual(&daemon, &date)?)?;
    for command in daemon.get_subcommands() {
        write(&page_of(command), command_manual(command, &date)?)?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut daemon.clone(), "biolat-daemon", folder)?;
    }
    fix_bash(&folder.join("biolat-daemon.bash"))?;
    Ok(())
}

/// Works around a bug of clap_complete 4.6: if the program's name has a hyphen, the script spells the names of its subcommands
/// in two ways, so that bash finds no completions for them.
fn fix_bash(path: &Path) -> io::Result<()> {
    let script = fs::read_to_string(path)?;
    fs::write(path, script.replace("biolat__subcmd__daemon", "biolat__daemon"))
}

/// The daemon's own page.
fn manual(command: &Command, date: &str) -> io::Result<Vec<u8>> {
    let mut sections = vec![commands(command), environment(command, &VARIABLES)];
    sections.extend([exit_status(), files(), examples(), see_also(command, "biolat-daemon")]);
    page(command.clone().subcommand_value_name("COMMAND"), date, &sections)
}

/// A command's page. Each paragraph after the options in --help becomes a section.
fn command_manual(command: &Command, date: &str) -> io::Result<Vec<u8>> {
    let mut sections = vec![environment(command, &[])];
    sections.extend(closing(command));
    sections.push(see_also(&Cli::command(), &page_of(command)));
    let named = command
        .clone()
        .display_name(page_of(command))
        .bin_name(format!("biolat-daemon {}", command.get_name()));
    page(named, date, &sections)
}

fn page_of(command: &Command) -> String {
    format!("biolat-daemon-{}", command.get_name())
}

fn page(command: Command, date: &str, sections: &[Roff]) -> io::Result<Vec<u8>> {
    let command = command.after_help("").after_long_help("");
    let description = description(&command);
    let man = Man::new(command)
        .section(SECTION)
        .date(date)
        .source(format!("biolat {}", biolat_model::version::VERSION))
        .manual("System Administration");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    description.to_writer(&mut page)?;
    man.render_options_section(&mut page)?;
    for section in sections {
        section.to_writer(&mut page)?;
    }
    Ok(page)
}

/// The subcommands.
fn commands(command: &Command) -> Roff {
    let mut roff = section("COMMANDS");
    for command in command.get_subcommands() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        item(&mut roff, command.get_name(), &format!("{about}: {}({SECTION})", page_of(command)));
    }
    roff
}

/// Makes a section of each paragraph that begins with a title. Indented lines are kept as they are.
fn closing(command: &Command) -> Vec<Roff> {
    let text = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let mut sections = Vec::new();
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
        let (title, rest) = paragraph.split_once(':').unwrap_or(("NOTES", paragraph));
        let mut roff = section(&title.to_uppercase());
        let rest = rest.trim_matches('\n');
        if rest.starts_with("  ") {
            roff.control("EX", []);
            for line in rest.lines() {
                roff.text([roman(line.trim())]);
            }
            roff.control("EE", []);
        } else {
            roff.text([roman(rest.trim())]);
        }
        sections.push(roff);
    }
    sections
}

fn section(title: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    roff
}

/// A term and its description.
fn item(roff: &mut Roff, term: &str, text: &str) {
    roff.control("TP", []).text([bold(term)]).text([roman(text)]);
}

/// The first part of --help. Indented lines are terms and their descriptions.
fn description(command: &Command) -> Roff {
    let mut roff = section("DESCRIPTION");
    let text = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    for line in text.lines() {
        match line.strip_prefix("  ").and_then(|line| line.split_once("  ")) {
            Some((term, text)) => item(&mut roff, term, text.trim()),
            None if line.is_empty() => drop(roff.control("PP", [])),
            None => drop(roff.text([roman(line)])),
        }
    }
    roff
}

/// Environment variables without an option.
const VARIABLES: [(&str, &str); 3] = [
    ("LISTEN_FDS", "number of sockets passed by systemd: sd_listen_fds(3)"),
    ("NOTIFY_SOCKET", "socket on which systemd is notified of the start and the end: sd_notify(3)"),
    (
        "WATCHDOG_USEC",
        "time after which systemd restarts a service that does not feed its watchdog: sd_watchdog_enabled(3)",
    ),
];

/// The environment variables of the options, and others.
fn environment(command: &Command, others: &[(&str, &str)]) -> Roff {
    let variable = |argument: &Arg| Some((argument.get_env()?.to_owned(), argument.get_long()?.to_owned()));
    let variables: Vec<_> = command.get_arguments().filter_map(variable).collect();
    if variables.is_empty() && others.is_empty() {
        return Roff::new();
    }
    let mut roff = section("ENVIRONMENT");
    roff.text([
        roman("The command line overrides the environment. Enable an option without a value by "),
        bold("true"),
        roman("."),
    ]);
    for (variable, option) in variables {
        let text = [roman("as "), bold(format!("--{option}"))];
        roff.control("TP", []).text([bold(variable.to_string_lossy())]).text(text);
    }
    for (variable, text) in others {
        item(&mut roff, variable, text);
    }
    roff
}

fn exit_status() -> Roff {
    let mut roff = section("EXIT STATUS");
    for (status, text) in [
        ("0", "after SIGTERM or SIGINT"),
        ("1", "cannot run, or cannot continue: one line on standard error says why, and what to do"),
        ("2", "wrong option or web config"),
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
        ("/usr/lib/systemd/system/biolat.socket", "makes systemd listen on the port; not enabled by default"),
        ("/sys/kernel/btf/vmlinux", "the kernel's BTF, needed to load the probe"),
        ("/sys/block/*/stat", "the kernel's disk statistics, against which the counts are checked"),
    ] {
        item(&mut roff, file, text);
    }
    roff
}

fn examples() -> Roff {
    let mut roff = section("EXAMPLES");
    for (text, command) in [
        ("Serve on port 9976 of every address:", "biolat-daemon"),
        ("NVMe drives only, collected every second:", "biolat-daemon --device 'nvme.*' --interval 1s"),
        ("Serve this host only:", "biolat-daemon --listen 127.0.0.1:9976 --listen [::1]:9976"),
        ("Show the number of I/Os:", "curl -s localhost:9976/metrics | grep total_latency_seconds_count"),
    ] {
        roff.text([roman(text)]);
        roff.control("PP", []).control("RS", ["4"]).control("EX", []);
        roff.text([roman(command)]);
        roff.control("EE", []).control("RE", []).control("PP", []);
    }
    roff
}

/// All pages except this one.
fn see_also(daemon: &Command, own: &str) -> Roff {
    let mut roff = section("SEE ALSO");
    let mut pages = vec!["biolat-daemon".to_owned()];
    pages.extend(daemon.get_subcommands().map(page_of));
    let pages = pages.into_iter().filter(|page| page != own).map(|page| (page, SECTION));
    let others =
        [("systemctl", "1"), ("journalctl", "1"), ("iostat", "1"), ("bpf", "2"), ("capabilities", "7")];
    let pages: Vec<_> = pages.chain(others.map(|(page, section)| (page.to_owned(), section))).collect();
    for (index, (page, section)) in pages.iter().enumerate() {
        let end = if index + 1 < pages.len() { ", " } else { "" };
        roff.text([bold(page), roman(format!("({section}){end}"))]);
    }
    roff.control("PP", []);
    roff.text([roman("Every metric and what it means: "), italic("/usr/share/doc/biolat/docs/metrics.md")]);
    roff
}
