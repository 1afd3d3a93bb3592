//! The results, as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::fio::Report;

/// One engine at one queue depth. Times are means in seconds.
pub(crate) struct Row {
    pub(crate) engine: &'static str,
    pub(crate) depth: u32,
    /// Reads that the probe counted.
    pub(crate) requests: u64,
    pub(crate) admission: Option<f64>,
    pub(crate) queue: Option<f64>,
    pub(crate) device: Option<f64>,
    pub(crate) total: f64,
    pub(crate) fio: Report,
}

impl Row {
    /// The part of fio's latency that the kernel's timestamps do not cover: before the request exists and after it has completed.
    fn rest(&self) -> f64 {
        self.fio.total - self.admission.unwrap_or(0.0) - self.total
    }
}

pub(crate) fn text(rows: &[Row], disk: &str) -> String {
    let mut text = format!(
        "Random reads of 4 KiB from {disk}, means in microseconds. submit, complete and all are what fio measured;\n\
         admission, queue and device what the kernel's timestamps say; the rest is in neither: system calls, wake-ups\n\
         and, with many I/Os in flight, the wait until the program looks for completions.\n\n"
    );
    let heads = ["IOPS", "submit", "complete", "all", "admission", "queue", "device", "rest", "CPU per I/O"];
    // Writing to a string cannot fail.
    let _ = write!(text, "{:<24} {:>5}", "engine", "depth");
    heads.iter().for_each(|head| text.push_str(&format!(" {head:>11}")));
    text.push('\n');
    for row in rows {
        let _ = write!(text, "{:<24} {:>5} {:>11.0}", row.engine, row.depth, row.fio.iops);
        let Report { submission, completion, total, cpu, .. } = row.fio;
        let times = [
            Some(submission),
            Some(completion),
            Some(total),
            row.admission,
            row.queue,
            row.device,
            Some(row.rest()),
            Some(cpu),
        ];
        for time in times {
            match time {
                Some(seconds) => _ = write!(text, " {:>11.1}", seconds * 1e6),
                None => _ = write!(text, " {:>11}", "-"),
            }
        }
        text.push('\n');
    }
    if rows.iter().any(|row| row.admission.is_none()) {
        text.push_str(
            "\n-: this kernel does not record when I/O is submitted; the rest has that wait, too.\n",
        );
    }
    text
}

pub(crate) fn json(rows: &[Row], disk: &str) -> Value {
    let row = |row: &Row| {
        json!({
            "engine": row.engine,
            "depth": row.depth,
            "iops": row.fio.iops,
            "reads": row.fio.reads,
            "requests": row.requests,
            "fio_submission_seconds": row.fio.submission,
            "fio_completion_seconds": row.fio.completion,
            "fio_total_seconds": row.fio.total,
            "admission_seconds": row.admission,
            "queue_seconds": row.queue,
            "device_seconds": row.device,
            "rest_seconds": row.rest(),
            "cpu_seconds": row.fio.cpu,
        })
    };
    json!({"disk": disk, "rows": rows.iter().map(row).collect::<Vec<_>>()})
}
