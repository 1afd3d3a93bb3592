//! The worst intervals as a table, or as JSON.

use std::array;

use anyhow::Result;
use biolat_history::worst::WorstInterval;
use biolat_model::{period::IN_FLIGHT, text::format};
use biolat_system::{clock, terminal::Highlight};

use super::Output;
use crate::{
    output::{json_line, write},
    slow_line::Line,
    text::widths,
};

pub(super) async fn show(output: &Output, rows: &[WorstInterval]) -> Result<()> {
    if !output.view.json {
        return write(table(output, rows)).await;
    }
    let lines = rows.iter().map(json_line).collect::<Result<String>>()?;
    if lines.is_empty() { Ok(()) } else { write(lines).await }
}

/// Columns are as wide as their cells: 80 characters are enough for most hosts.
fn table(output: &Output, rows: &[WorstInterval]) -> String {
    if rows.is_empty() {
        return "\nno I/O\n".to_owned();
    }
    let titles =
        ["begin", "length", "device", "op", "slowest", "I/Os", "failed", "completed"].map(str::to_owned);
    let cells: Vec<_> = rows.iter().map(|row| cells(output, row)).collect();
    let widths = widths(cells.iter().chain([&titles]));
    let line = |cells: &[String; 8]| -> [String; 8] {
        array::from_fn(|column| {
            let (cell, width) = (&cells[column], widths[column]);
            // Times and names to the left, numbers to the right.
            if matches!(column, 0 | 2 | 3 | 7) {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        })
    };
    let mut text = output.view.heading(line(&titles).join("  ").trim_end());
    let terminal = output.view.style.terminal;
    for (row, cells) in rows.iter().zip(&cells) {
        let mut line = line(cells);
        let width = line.join("  ").trim_end().chars().count();
        if row.errors > 0 {
            line[6] = terminal.paint(Highlight::Bad, &line[6]);
        }
        let begin = line.join("  ").trim_end().to_owned();
        let mut line = Line::new(begin, width, terminal, terminal.line_width());
        line.add_names(&row.names);
        text.push_str(&line.text);
        text.push('\n');
    }
    text
}

fn cells(output: &Output, row: &WorstInterval) -> [String; 8] {
    [
        clock::local_with_date(row.began),
        format::duration(row.seconds),
        row.device.to_string(),
        row.op.to_string(),
        output.view.style.numbers.latency(row.latency),
        if row.op == IN_FLIGHT { "-".to_owned() } else { format::count(row.ios) },
        if row.errors == 0 { "-".to_owned() } else { format::count(row.errors) },
        row.completed.map(clock::local).unwrap_or_default(),
    ]
}
