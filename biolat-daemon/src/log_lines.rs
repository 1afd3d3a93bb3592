//! Log lines on standard error: one line for each message, as text or as JSON. No times in text: whatever
//! keeps the lines (a journal, a container's log) stamps them.

use std::{
    io::Write as _,
    time::{SystemTime, UNIX_EPOCH},
};

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::config::LogFormat;

struct Lines(LogFormat);

/// Starts logging. Later calls change nothing.
pub fn start(format: LogFormat) {
    if log::set_boxed_logger(Box::new(Lines(format))).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Libraries speak up only when something is wrong.
        let ours = metadata.target().starts_with("biolat");
        metadata.level() <= if ours { Level::Info } else { Level::Warn }
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = line(self.0, record, SystemTime::now());
            // With standard error closed there is nobody left to tell.
            let _ = std::io::stderr().lock().write_all(line.as_bytes());
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

    use super::line;
    use crate::config::LogFormat;

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
