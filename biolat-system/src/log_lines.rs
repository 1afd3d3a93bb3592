//! Log lines on standard error: one per message, as text or as JSON. Text lines have no timestamp, because whatever stores them
//! (the journal, a container log) adds one.
//!
//! Logging never blocks: if standard error has no room for a line, the line is dropped and counted. A pipe buffers several
//! hundred lines.

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

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Human-readable lines.
    Text,
    /// A JSON object per line.
    Json,
}

/// Minimum severity of the messages that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Errors.
    Error,
    /// Errors and warnings.
    Warn,
    /// Also state changes, such as devices that appear.
    Info,
    /// Also diagnostics, such as the verifier's last lines if the kernel refuses the probe.
    Debug,
}

/// Writes log messages to standard error.
struct Logger(LogFormat);

const MAX_HELD: usize = 100;

/// Lines held back while the terminal shows something else: the first [`MAX_HELD`], and the latest.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// Starts logging. Later calls have no effect.
pub fn start(format: LogFormat, level: LogLevel) {
    open_terminal();
    if log::set_boxed_logger(Box::new(Logger(format))).is_ok() {
        log::set_max_level(match level {
            LogLevel::Error => LevelFilter::Error,
            LogLevel::Warn => LevelFilter::Warn,
            LogLevel::Info => LevelFilter::Info,
            LogLevel::Debug => LevelFilter::Debug,
        });
    }
}

/// Holds back lines for a terminal until [`release`] is called.
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

/// Returns the latest line that is held back.
pub fn last_held() -> Option<String> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.last().cloned()
}

/// Maximum message length in bytes. Once a pipe has any room, it has room for a line of 4096 bytes.
const MAX_MESSAGE: usize = 2000;

/// Lines dropped since the last one that was written.
static DROPPED: AtomicU64 = AtomicU64::new(0);
/// Standard error, if it is a terminal: opened in non-blocking mode, because it may have room for only part of a line.
static TERMINAL: OnceLock<File> = OnceLock::new();

/// Reopens the terminal on standard error, with its own flags.
fn open_terminal() {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    if stderr().is_terminal()
        && let Ok(terminal) = options.open("/proc/self/fd/2")
    {
        let _ = TERMINAL.set(terminal);
    }
}

/// Returns the additional descriptor that lines are written to.
pub fn terminal() -> Option<RawFd> {
    TERMINAL.get().map(File::as_raw_fd)
}

/// Writes a line without blocking, or drops it.
fn write(format: LogFormat, line: &str) {
    let dropped = if try_write(line) { DROPPED.swap(0, Relaxed) } else { 0 };
    if dropped > 0 {
        let text = format!("{dropped} log lines before this were dropped: standard error was not read");
        if !try_write(&formatted(format, Level::Warn, &text, SystemTime::now())) {
            // `try_write` has already added 1 for the warning itself.
            DROPPED.fetch_add(dropped - 1, Relaxed);
        }
    }
}

/// Writes text to standard error without blocking, or drops it.
pub fn write_text(text: &str) {
    for line in text.split_inclusive('\n') {
        try_write(line);
    }
}

/// Writes a line without blocking, and returns whether it was written. If not, it counts as dropped.
fn try_write(line: &str) -> bool {
    let mut stderr = stderr().lock();
    let written = match TERMINAL.get() {
        _ if !has_room(&stderr) => 0,
        Some(mut terminal) => terminal.write(line.as_bytes()).unwrap_or(0),
        // If standard error is closed, there is nowhere left to write to.
        None => stderr.write_all(line.as_bytes()).map_or(0, |()| line.len()),
    };
    let is_written = written == line.len();
    DROPPED.fetch_add(u64::from(!is_written), Relaxed);
    is_written
}

/// Whether a write would succeed without blocking. It would block on a full pipe or a stopped terminal.
fn has_room(stderr: &impl AsFd) -> bool {
    let mut waiting = [PollFd::new(stderr, PollFlags::OUT)];
    // An error means that standard error is closed.
    poll(&mut waiting, Some(&Timespec::default())) != Ok(0)
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // From libraries, only warnings and errors.
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
    // Device names and strings from drives can contain anything.
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
    fn writes_one_line_per_message() {
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
    fn truncates_and_sanitizes_lines() {
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
