//! The worst intervals as a table, or as JSON.

use anyhow::Result;
use biolat_history::worst::WorstInterval;
use biolat_model::{period::IN_FLIGHT, text::format};
use biolat_system::{clock, terminal::Highlight};

use super::Output;
use crate::output::write;

pub(super) async fn show(output: &Output, rows: &[WorstInterval]) -> Result<()> {
    if !output.view.json {
        return write(table(output, rows)).await;
    }
    let lines = rows.iter().map(|row| Ok(serde_json::to_string(row)? + "\n"));
    let lines = lines.collect::<Result<String>>()?;
    if lines.is_empty() { Ok(()) } else { write(lines).await }
}

fn table(output: &Output, rows: &[WorstInterval]) -> String {
    let title = format!(
        "{:<19}  {:>7}  {:<12}  {:<9}  {:>8}  {:>10}  {:>8}  completed",
        "begin", "length", "device", "op", "slowest", "I/Os", "failed"
    );
    let mut text = output.view.heading(&title);
    for row in rows {
        let failed = if row.errors == 0 {
            format!("{:>8}", "-")
        } else {
            output.view.style.terminal.paint(Highlight::Bad, &format!("{:>8}", format::count(row.errors)))
        };
        let ios = if row.op == IN_FLIGHT { "-".to_owned() } else { format::count(row.ios) };
        let line = format!(
            "{}  {:>7}  {:<12}  {:<9}  {:>8}  {ios:>10}  {failed}  {}",
            clock::local_with_date(row.began),
            format::duration(row.seconds),
            row.device,
            row.op,
            output.view.style.numbers.latency(row.latency),
            row.completed.map(clock::local).unwrap_or_default(),
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if rows.is_empty() {
        text = "\nno I/O\n".to_owned();
    }
    text
}
