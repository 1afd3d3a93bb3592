//! Log lines on standard error: one line for each message, as text or as JSON. Text has no times: what stores the lines (the
//! journal, a container's log) adds them.

use std::{
    io::{IsTerminal as _, Write as _, stderr},
    mem,
    sync::{Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use clap::ValueEnum;
use log::{Level, LevelFilter, Log, Metadata, Record};

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// A JSON object per line.
    Json,
}

struct Lines(LogFormat);

const MAX_HELD: usize = 100;

/// Lines held back while the terminal shows something else: the first [`MAX_HELD`], and the last.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// Starts logging. Later calls change nothing.
pub fn start(format: LogFormat) {
    if log::set_boxed_logger(Box::new(Lines(format))).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

/// Holds lines back that would go to a terminal, until they are released.
pub(crate) fn hold() {
    if stderr().is_terminal() {
        HELD.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
    }
}

/// Writes the lines that were held back.
pub(crate) fn release() {
    let held = mem::take(&mut *HELD.lock().unwrap_or_else(PoisonError::into_inner));
    held.iter().flatten().for_each(|line| write(line));
}

/// The last line that is held back.
pub(crate) fn last_held() -> Option<String> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.last().cloned()
}

fn write(line: &str) {
    // If standard error is closed, there is nowhere left to write.
    let _ = stderr().lock().write_all(line.as_bytes());
}

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Libraries only when something is wrong.
        let ours = metadata.target().starts_with("biolat");
        metadata.level() <= if ours { Level::Info } else { Level::Warn }
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = line(self.0, record, SystemTime::now());
            match &mut *HELD.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(held) => {
                    held.truncate(MAX_HELD);
                    held.push(line);
                }
                None => write(&line),
            }
        }
    }

    fn flush(&self) {}
}

fn line(format: LogFormat, record: &Record<'_>, now: SystemTime) -> String {
    let level = record.level().as_str().to_lowercase();
    let message = record.args().to_string().replace('\n', " ");
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
}
