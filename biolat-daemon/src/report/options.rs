//! The command line of `report`. Letters mean what they mean to biolatency.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, anyhow};
use clap::{Args, builder::TypedValueParser, error::ErrorKind};

use super::remote::target::Target;
use crate::{device::selection::Selection, host::Host, terminal::Color};

const EXAMPLES: &str = "Examples:
  biolat-daemon report                       until Ctrl-C, then all of it
  biolat-daemon report 1 10                  ten windows of one second
  biolat-daemon report -DF 5                 by device and op, every 5 s
  biolat-daemon report -P -d 'nvme.*' 1      queue, device and total side by side
  biolat-daemon report --from db1:9976 5     what biolat on db1 sees; takes no root
  biolat-daemon report -jDF 1 | jq           a JSON object a window

Without --from it takes root, or the capabilities CAP_BPF and CAP_PERFMON. Exit status: 0 when it is done or was \
interrupted, 1 if it cannot run, 2 for a wrong option.";

/// Options of `report`.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Options {
    /// Seconds in a window, or a time as 500ms, 1s, 2m; without, it is one window until Ctrl-C
    #[arg(value_parser = interval)]
    pub interval: Option<Duration>,

    /// How many windows; without, until Ctrl-C
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// A histogram for each device
    #[arg(short = 'D', long)]
    pub by_device: bool,

    /// A histogram for each op: read, write, flush, …
    #[arg(short = 'F', long)]
    pub by_op: bool,

    /// Only devices whose whole name matches this regular expression; may be given more than once
    ///
    /// Commas separate several of them. By default every device that has requests of its own, but disks made of memory.
    #[arg(short, long = "device", value_name = "REGEX", value_parser = devices)]
    pub devices: Vec<String>,

    /// Include the time in the queue: the total latency. By default it is the device's
    #[arg(short = 'Q', long, conflicts_with = "phases")]
    pub queued: bool,

    /// Queue, device and total side by side
    #[arg(short = 'P', long)]
    pub phases: bool,

    /// Say when each window ended
    #[arg(short = 'T', long)]
    pub timestamp: bool,

    /// Times in milliseconds
    #[arg(short, long)]
    pub milliseconds: bool,

    /// A row for each bucket: eight for a power of two
    #[arg(long)]
    pub fine: bool,

    /// A JSON object a line and window (docs/report.md)
    #[arg(short, long)]
    pub json: bool,

    /// A live table in place of histograms
    #[arg(long, conflicts_with_all = ["json", "fine", "by_op", "phases", "timestamp", "milliseconds"])]
    pub top: bool,

    /// When to use colours
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: Color,

    /// Read a biolat that runs already, here or elsewhere: no root, no probe of its own
    ///
    /// HOST or HOST:PORT is short for http://HOST:9976. A window is then as long as the time between that biolat's passes (its
    /// --interval), or several of them. A password in the URL is seen by whoever lists processes: see --user.
    #[arg(long, value_name = "URL", value_parser = Url)]
    pub from: Option<Target>,

    /// The user's name, if it wants a password: that is in BIOLAT_PASSWORD, or in --password-file
    #[arg(long, value_name = "NAME", requires = "from")]
    pub user: Option<String>,

    /// A file whose first line is the password
    #[arg(long, value_name = "FILE", requires = "from")]
    pub password_file: Option<PathBuf>,

    /// Certificates in PEM to trust in place of the system's: the authority's, or the server's own
    #[arg(long, value_name = "FILE", requires = "from")]
    pub ca_file: Option<PathBuf>,

    #[command(flatten)]
    pub host: Host,

    /// Do not filter system calls
    #[arg(long, env = "BIOLAT_NO_SECCOMP", hide_env_values = true)]
    #[arg(value_parser = clap::builder::FalseyValueParser::new())]
    pub no_seccomp: bool,
}

impl Options {
    /// Which devices are wanted; nothing if that was not said.
    pub fn selection(&self) -> Result<Option<Selection>> {
        if self.devices.is_empty() {
            return Ok(None);
        }
        let selection = Selection::new(Some(&self.devices.join("|")), None);
        selection.map(Some).map_err(|bad| anyhow!("--device: {}", bad.reason))
    }
}

/// A [`Target`]. What is wrong is told without the text that was given, as clap would: there may be a password in it.
#[derive(Clone)]
struct Url;

impl TypedValueParser for Url {
    type Value = Target;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        text: &std::ffi::OsStr,
    ) -> Result<Target, clap::Error> {
        let refused =
            |why: String| command.clone().error(ErrorKind::ValueValidation, format!("--from: {why}"));
        Target::parse(&text.to_string_lossy()).map_err(refused)
    }
}

/// Seconds, or a number and a unit.
fn interval(text: &str) -> Result<Duration, String> {
    const ALLOWED: std::ops::RangeInclusive<Duration> =
        Duration::from_millis(100)..=Duration::from_secs(86_400);
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("give seconds, or a number and a unit, as in 500ms, 1s or 2m".to_owned()),
    };
    let seconds = number.parse::<f64>().map_err(|_| format!("'{number}' is not a number"))? * scale;
    let interval = Duration::try_from_secs_f64(seconds).map_err(|_| "out of range".to_owned())?;
    if ALLOWED.contains(&interval) { Ok(interval) } else { Err("allowed is from 100ms to 24h".to_owned()) }
}

/// Expressions with commas between them, as one that stands for any of them. A comma in braces is the expression's own.
fn devices(text: &str) -> Result<String, String> {
    let mut braces = 0;
    let separates = |c: char| {
        match c {
            '{' => braces += 1,
            '}' => braces -= 1,
            _ => {}
        }
        c == ',' && braces == 0
    };
    let each = text.split(separates).map(|device| device.strip_prefix("/dev/").unwrap_or(device));
    let each: Vec<_> = each.filter(|device| !device.is_empty()).collect();
    if each.is_empty() {
        return Err("give the name of a device, as in nvme0n1 or 'sd.*'".to_owned());
    }
    for device in &each {
        Selection::new(Some(device), None)
            .map_err(|bad| format!("'{device}' is not a regular expression: {}", bad.reason))?;
    }
    Ok(each.iter().map(|device| format!("(?:{device})")).collect::<Vec<_>>().join("|"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;

    use super::{Options, devices, interval};

    #[derive(clap::Parser, Debug)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(line: &str) -> Result<Options, String> {
        let words = ["report"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.options).map_err(|error| error.to_string())
    }

    #[test]
    fn as_one_writes_it_for_biolatency() {
        let options = parse("-mT 1 10").unwrap();
        assert_eq!((options.interval, options.count), (Some(Duration::from_secs(1)), Some(10)));
        assert!(options.milliseconds && options.timestamp && !options.by_device);
        let options = parse("-DFQ -d sdc").unwrap();
        assert!(options.by_device && options.by_op && options.queued && options.interval.is_none());
        assert!(parse("").unwrap().selection().unwrap().is_none());
    }

    #[test]
    fn intervals() {
        for (text, milliseconds) in
            [("1", 1000), ("0.5", 500), ("500ms", 500), ("2s", 2000), ("2m", 120_000), ("1h", 3_600_000)]
        {
            assert_eq!(interval(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for wrong in ["0", "50ms", "", "s", "1d", "-1", "25h", "1e3", "x"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn devices_by_name_by_list_and_by_expression() {
        let shows = |line: &str, name: &str| {
            parse(line).unwrap().selection().unwrap().is_some_and(|selection| selection.shows(name))
        };
        assert!(shows("-d sda", "sda") && !shows("-d sda", "sdab") && !shows("-d sda", "xsda"));
        assert!(
            shows("-d sda,sdb", "sdb") && shows("-d sda -d sd[c-d]", "sdd") && shows("-d /dev/sda", "sda")
        );
        assert!(shows("-d sda|sdb", "sda") && !shows("-d sda|sdb,vda", "sdax"));
        assert!(shows("-d nvme[0-9]{1,2}n1,vda", "nvme10n1") && shows("-d nvme[0-9]{1,2}n1,vda", "vda"));
        assert!(devices("sd[").unwrap_err().starts_with("'sd[' is not a regular expression: "));
        assert!(devices(",").is_err() && devices("").is_err());
    }

    #[test]
    fn what_does_not_go_together() {
        for line in ["-Q -P", "--user x", "--ca-file x", "--top -j", "--color blue", "1 0", "--from"] {
            assert!(parse(line).is_err(), "{line}");
        }
        let refused = parse("--from http://alice:secret@db1:port").unwrap_err();
        assert!(refused.contains("'db1:port' is not a URL") && !refused.contains("secret"), "{refused}");
        let options = parse("--from db1 --user alice 5").unwrap();
        assert_eq!(options.from.unwrap().to_string(), "http://db1:9976");
    }
}
