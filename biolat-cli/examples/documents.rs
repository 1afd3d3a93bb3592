//! Generates the manual pages, one per command, and the shell completions from the options of both programs.
//!
//! `cargo run --example documents -- 2026-01-31 FOLDER`; the date is printed on the pages. `cargo xtask dist` packages them.

use std::{error::Error, fs, io, path::Path};

use biolat_cli::cli::Cli as ToolCli;
use biolat_daemon::cli::Cli as DaemonCli;
use clap::{Arg, Command, CommandFactory as _};
use clap_complete::{Shell, generate_to};
use clap_mangen::{
    Man,
    roff::{Roff, bold, italic, roman},
};

/// A program and its manual pages.
#[derive(Clone)]
struct Program {
    command: Command,
    /// 1 for user commands, 8 for daemons and system administration.
    section: &'static str,
    manual: &'static str,
}

fn daemon() -> Program {
    Program { command: DaemonCli::command(), section: "8", manual: "System Administration" }
}

fn tool() -> Program {
    Program { command: ToolCli::command(), section: "1", manual: "User Commands" }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(date), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err("give a date and a folder".into());
    };
    let folder = Path::new(&folder);
    for program in [daemon(), tool()] {
        let name = program.command.get_name().to_owned();
        let write = |name: &str, page| fs::write(folder.join(format!("{name}.{}", program.section)), page);
        write(&name, program.manual(&date)?)?;
        for command in program.commands() {
            write(&program.page_of(command), program.command_manual(command, &date)?)?;
        }
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            generate_to(shell, &mut program.command.clone(), &name, folder)?;
        }
    }
    fix_bash(&folder.join("biolat-daemon.bash"))?;
    Ok(())
}

/// Works around a bug in clap_complete 4.6: if the program's name has a hyphen, the script spells subcommand names in two
/// different ways, and bash finds no completions for them.
fn fix_bash(path: &Path) -> io::Result<()> {
    let script = fs::read_to_string(path)?;
    fs::write(path, script.replace("biolat__subcmd__daemon", "biolat__daemon"))
}

impl Program {
    fn name(&self) -> &str {
        self.command.get_name()
    }

    /// The commands that --help shows.
    fn commands(&self) -> impl Iterator<Item = &Command> {
        self.command.get_subcommands().filter(|command| !command.is_hide_set())
    }

    fn page_of(&self, command: &Command) -> String {
        format!("{}-{}", self.name(), command.get_name())
    }

    /// The program's own page.
    fn manual(&self, date: &str) -> io::Result<Vec<u8>> {
        let mut sections = vec![self.command_list()];
        if self.section == "8" {
            sections.extend([environment(&self.command, &VARIABLES), exit_status(), files(), examples()]);
        } else {
            sections.extend([environment(&self.command, &TOOL_VARIABLES), tool_exit_status()]);
            sections.extend(closing(&self.command));
        }
        sections.push(self.see_also(self.name()));
        self.page(self.command.clone().subcommand_value_name("COMMAND"), date, &sections)
    }

    /// A command's page. Each paragraph after the options in --help becomes a section.
    fn command_manual(&self, command: &Command, date: &str) -> io::Result<Vec<u8>> {
        let mut sections = vec![environment(command, &[])];
        sections.extend(closing(command));
        sections.push(self.see_also(&self.page_of(command)));
        let named = command.clone().display_name(self.page_of(command)).bin_name(format!(
            "{} {}",
            self.name(),
            command.get_name()
        ));
        self.page(named, date, &sections)
    }

    fn page(&self, command: Command, date: &str, sections: &[Roff]) -> io::Result<Vec<u8>> {
        // The pages include every option, with its help.
        let command =
            command.after_help("").after_long_help("").mut_args(|option| option.hide_short_help(false));
        let description = description(&command);
        let man = Man::new(command)
            .section(self.section)
            .date(date)
            .source(format!("biolat {}", biolat_model::version::VERSION))
            .manual(self.manual);
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
    fn command_list(&self) -> Roff {
        let mut roff = section("COMMANDS");
        for command in self.commands() {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let page = format!("{about}: {}({})", self.page_of(command), self.section);
            item(&mut roff, command.get_name(), &page);
        }
        roff
    }

    /// All pages except this one, then pages of other programs.
    fn see_also(&self, own: &str) -> Roff {
        let mut roff = section("SEE ALSO");
        let mut pages = Vec::new();
        for program in [daemon(), tool()] {
            pages.push((program.name().to_owned(), program.section));
            if program.section == self.section {
                pages.extend(program.commands().map(|command| (program.page_of(command), program.section)));
            }
        }
        pages.retain(|(page, _)| page != own);
        let others =
            [("systemctl", "1"), ("journalctl", "1"), ("iostat", "1"), ("bpf", "2"), ("capabilities", "7")];
        pages.extend(others.map(|(page, section)| (page.to_owned(), section)));
        for (index, (page, section)) in pages.iter().enumerate() {
            let end = if index + 1 < pages.len() { ", " } else { "" };
            roff.text([bold(page), roman(format!("({section}){end}"))]);
        }
        roff.control("PP", []);
        let folder = "/usr/share/doc/biolat/docs/";
        roff.text([roman("Every metric and what it means: "), italic(format!("{folder}metrics.md"))]);
        roff
    }
}

/// Turns each paragraph that begins with a title into a section. Indented lines are kept as they are.
fn closing(command: &Command) -> Vec<Roff> {
    let text = command.get_after_long_help().or(command.get_after_help());
    let text = text.map(ToString::to_string).unwrap_or_default();
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

/// The first part of --help. Indented lines become terms and their descriptions.
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

/// Environment variables that have no option.
const VARIABLES: [(&str, &str); 3] = [
    ("LISTEN_FDS", "number of sockets passed by systemd: sd_listen_fds(3)"),
    ("NOTIFY_SOCKET", "socket on which systemd is notified of the start and the end: sd_notify(3)"),
    (
        "WATCHDOG_USEC",
        "time after which systemd restarts a service that does not feed its watchdog: sd_watchdog_enabled(3)",
    ),
];

const TOOL_VARIABLES: [(&str, &str); 2] = [
    ("BIOLAT_PASSWORD", "the password of --user"),
    ("NO_COLOR", "turns colours off unless --color is given"),
];

/// The environment variables of the options, then `others`.
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

fn tool_exit_status() -> Roff {
    let mut roff = section("EXIT STATUS");
    for (status, text) in [
        ("0", "done, or interrupted"),
        ("1", "cannot run: one line on standard error says why, and what to do"),
        ("2", "invalid option"),
    ] {
        item(&mut roff, status, text);
    }
    roff
}

fn exit_status() -> Roff {
    let mut roff = section("EXIT STATUS");
    for (status, text) in [
        ("0", "after SIGTERM or SIGINT"),
        ("1", "cannot run, or cannot continue: one line on standard error says why, and what to do"),
        ("2", "invalid option or web config"),
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
