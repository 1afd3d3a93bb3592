//! Single I/Os with their processes, one line each.

use anyhow::Result;
use biolat_collect::processes::ProcessIo;
use biolat_model::text::{format, time::unix_seconds};
use biolat_system::{clock, terminal::Highlight};
use serde::Serialize;

use crate::{output::json_line, process_figures, text::TextStyle};

/// Width of a process, in characters.
const PROCESS: usize = 24;

#[derive(Serialize)]
struct IoJson<'a> {
    completed: f64,
    pid: u32,
    name: &'a str,
    kernel: bool,
    device: &'a str,
    op: &'a str,
    sector: Option<u64>,
    bytes: u32,
    status: &'a str,
    queue_seconds: f64,
    device_seconds: f64,
    one_of: u32,
}

/// Formats I/Os, as JSON or as text.
pub(super) fn lines(ios: &[ProcessIo], style: &TextStyle, json: bool) -> Result<String> {
    let mut text = String::new();
    for io in ios {
        text += &if json { json_line(&IoJson::from(io))? } else { line(io, style) };
    }
    Ok(text)
}

fn line(io: &ProcessIo, style: &TextStyle) -> String {
    let completed = unix_seconds(io.completed);
    let milliseconds = (completed * 1e3) as u64 % 1000;
    let (terminal, numbers) = (style.terminal, style.numbers);
    let name = terminal.cut(&process_figures::name(&io.process), PROCESS);
    let failed = match io.status {
        "ok" => String::new(),
        status => format!("  {}", terminal.paint(Highlight::Bad, &format!("failed: {status}"))),
    };
    let cells = [
        &format!("{}.{milliseconds:03}", clock::local(completed)),
        &name,
        &io.device,
        &io.op,
        &io.sector.map_or_else(|| "-".to_owned(), |sector| sector.to_string()),
        &format::bytes(f64::from(io.bytes)),
        &numbers.latency(io.queue.as_secs_f64()),
        &numbers.latency(io.device_latency.as_secs_f64()),
    ];
    columns(cells.map(String::as_str)) + &failed + "\n"
}

/// Heads the columns.
pub(super) fn heading() -> String {
    columns(["time", "process", "device", "op", "sector", "size", "queue", "device"]) + "\n"
}

fn columns([time, process, device, op, sector, size, queue, latency]: [&str; 8]) -> String {
    format!(
        "{time:<12} {process:<PROCESS$} {device:<9} {op:<7} {sector:<11} {size:>8} {queue:>7} {latency:>7}"
    )
}

impl<'a> From<&'a ProcessIo> for IoJson<'a> {
    fn from(io: &'a ProcessIo) -> Self {
        Self {
            completed: unix_seconds(io.completed),
            pid: io.process.pid,
            name: &io.process.name,
            kernel: io.process.is_kernel,
            device: &io.device,
            op: &io.op,
            sector: io.sector,
            bytes: io.bytes,
            status: io.status,
            queue_seconds: io.queue.as_secs_f64(),
            device_seconds: io.device_latency.as_secs_f64(),
            one_of: io.one_of,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use biolat_collect::processes::{Process, ProcessIo};
    use biolat_system::terminal::Terminal;
    use biolat_testing::samples::at;
    use serde_json::{Value, json};

    use super::{heading, lines};
    use crate::processes::style;

    fn io() -> ProcessIo {
        ProcessIo {
            completed: at(0.5),
            process: Process { pid: 1234, name: "fio".into(), is_kernel: false },
            device: "sda".into(),
            op: "read".into(),
            sector: Some(2048),
            bytes: 4096,
            status: "ok",
            queue: Duration::from_micros(12),
            device_latency: Duration::from_millis(3),
            one_of: 4,
        }
    }

    #[test]
    fn formats_lines_below_the_heading() {
        let style = style(Terminal { color: false, unicode: true, is_terminal: true }, false);
        // The time of day depends on the time zone.
        let text = lines(&[io()], &style, false).unwrap().split_off("22:13:20".len());
        let expected =
            ".500 fio (1234)               sda       read    2048        4.00 KiB 12.0 µs 3.00 ms\n";
        assert_eq!(text, expected);
        assert_eq!(heading().chars().count(), expected.chars().count() + "22:13:20".len());
        let failed = ProcessIo { status: "medium", ..io() };
        assert!(lines(&[failed], &style, false).unwrap().ends_with("  failed: medium\n"));
    }

    #[test]
    fn writes_an_object_per_line() {
        let style = style(Terminal { color: false, unicode: true, is_terminal: true }, false);
        let line: Value = serde_json::from_str(&lines(&[io()], &style, true).unwrap()).unwrap();
        let [pid, queue, one_of] = ["pid", "queue_seconds", "one_of"].map(|field| &line[field]);
        assert_eq!((pid, queue, one_of), (&json!(1234), &json!(12e-6), &json!(4)));
    }
}
