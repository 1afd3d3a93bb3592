//! Log lines on standard error: one line for each message, as text or as JSON. Text has no times: what stores the lines (the
//! journal, a container's log) adds them.
//!
//! Logging never waits: a line that standard error has no room for is dropped and counted. A pipe holds some hundred lines that
//! its reader has not read yet.

use std::{
    fs::{File, OpenOptions},
    io::{IsTerminal as _, Write as _, stderr},
    mem,
    os::{
        fd::{AsFd, AsRawFd as _, RawFd},
        unix::fs::OpenOptionsExt as _,
    },
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use biolat_model::text::sanitize;
use clap::ValueEnum;
use log::{Level, LevelFilter, Log, Metadata, Record};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// A JSON object per line.
    Json,
}

/// Which messages are logged: these and more serious ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Errors.
    Error,
    /// Errors and warnings.
    Warn,
    /// Also changes of state, such as devices that appear.
    Info,
    /// Also diagnostics, such as the verifier's last lines if the kernel refuses the probe.
    Debug,
}

struct Lines(LogFormat);

const MAX_HELD: usize = 100;

/// Lines held back while the terminal shows something else: the first [`MAX_HELD`], and the last.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// Starts logging. Later calls change nothing.
pub fn start(format: LogFormat, level: LogLevel) {
    open_terminal();
    if log::set_boxed_logger(Box::new(Lines(format))).is_ok() {
        log::set_max_level(match level {
            LogLevel::Error => LevelFilter::Error,
            LogLevel::Warn => LevelFilter::Warn,
            LogLevel::Info => LevelFilter::Info,
            LogLevel::Debug => LevelFilter::Debug,
        });
    }
}

/// Holds lines back that would go to a terminal, until they are released.
pub fn hold() {
    if stderr().is_terminal() {
        HELD.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
    }
}

/// Writes the lines that were held back.
pub fn release() {
    let held = mem::take(&mut *HELD.lock().unwrap_or_else(PoisonError::into_inner));
    held.iter().flatten().for_each(|line| write_text(line));
}

/// The last line that is held back.
pub fn last_held() -> Option<String> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.last().cloned()
}

/// The longest message: a pipe that has room for anything has room for a line of 4096 bytes.
const MAX_MESSAGE: usize = 2000;

/// Lines that have been dropped since the last one that was written.
static DROPPED: AtomicU64 = AtomicU64::new(0);
/// Standard error, if it is a terminal: without waiting where it has room for a part of a line only.
static TERMINAL: OnceLock<File> = OnceLock::new();

/// Opens the terminal of standard error once more, with flags of its own.
fn open_terminal() {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    if stderr().is_terminal()
        && let Ok(terminal) = options.open("/proc/self/fd/2")
    {
        let _ = TERMINAL.set(terminal);
    }
}

/// The descriptor that lines are written to besides standard error.
pub fn terminal() -> Option<RawFd> {
    TERMINAL.get().map(File::as_raw_fd)
}

/// Writes a line without waiting, or drops it.
fn write(format: LogFormat, line: &str) {
    let dropped = if is_written(line) { DROPPED.swap(0, Relaxed) } else { 0 };
    if dropped > 0 {
        let text = format!("{dropped} log lines before this were dropped: standard error was not read");
        if !is_written(&formatted(format, Level::Warn, &text, SystemTime::now())) {
            // The last one counts itself.
            DROPPED.fetch_add(dropped - 1, Relaxed);
        }
    }
}

/// Writes text to standard error without waiting, or drops it.
pub fn write_text(text: &str) {
    for line in text.split_inclusive('\n') {
        is_written(line);
    }
}

/// Writes a line without waiting. If it is dropped, it counts.
fn is_written(line: &str) -> bool {
    let mut stderr = stderr().lock();
    let written = match TERMINAL.get() {
        _ if !has_room(&stderr) => 0,
        Some(mut terminal) => terminal.write(line.as_bytes()).unwrap_or(0),
        // If standard error is closed, there is nowhere left to write.
        None => stderr.write_all(line.as_bytes()).map_or(0, |()| line.len()),
    };
    let is_written = written == line.len();
    DROPPED.fetch_add(u64::from(!is_written), Relaxed);
    is_written
}

/// Whether a write would not wait: not for the reader of a full pipe, nor for a stopped terminal.
fn has_room(stderr: &impl AsFd) -> bool {
    let mut waiting = [PollFd::new(stderr, PollFlags::OUT)];
    // If it cannot be polled, it is closed.
    poll(&mut waiting, Some(&Timespec::default())) != Ok(0)
}

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Libraries only when something is wrong.
        let ours = metadata.target().starts_with("biolat");
        ours || metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = line(self.0, record, SystemTime::now());
            match &mut *HELD.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(held) => {
                    held.truncate(MAX_HELD);
                    held.push(line);
                }
                None => write(self.0, &line),
            }
        }
    }

    fn flush(&self) {}
}

fn line(format: LogFormat, record: &Record<'_>, now: SystemTime) -> String {
    formatted(format, record.level(), &record.args().to_string(), now)
}

fn formatted(format: LogFormat, level: Level, message: &str, now: SystemTime) -> String {
    let level = level.as_str().to_lowercase();
    // Names of devices and texts of drives may contain anything.
    let mut message = sanitize::text(&message.replace('\n', " "));
    message.truncate(message.floor_char_boundary(MAX_MESSAGE));
    match format {
        LogFormat::Text => format!("{level}: {message}\n"),
        LogFormat::Json => {
            let time = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            let line = serde_json::json!({ "time": time, "level": level, "message": message });
            format!("{line}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use log::{Level, Record};

    use super::{LogFormat, line};

    #[test]
    fn one_line_each() {
        let now = UNIX_EPOCH + Duration::from_millis(1_500);
        let write = |format| {
            line(format, &Record::builder().level(Level::Warn).args(format_args!("a \"b\"\nc")).build(), now)
        };
        assert_eq!(write(LogFormat::Text), "warn: a \"b\" c\n");
        assert_eq!(
            write(LogFormat::Json),
            "{\"level\":\"warn\",\"message\":\"a \\\"b\\\" c\",\"time\":1.5}\n"
        );
    }

    #[test]
    fn a_line_fits_into_a_pipe_and_has_no_control_characters() {
        let long = "ä".repeat(2000);
        let line = line(
            LogFormat::Text,
            &Record::builder().level(Level::Warn).args(format_args!("\u{1b}[2J{long}")).build(),
            UNIX_EPOCH,
        );
        assert!(
            line.starts_with("warn: \u{fffd}[2Jä") && line.ends_with("ä\n") && line.len() < 2010,
            "{line}"
        );
    }
}
