//! A table of who does the I/O: a name, its share with a bar, and numbers.

use std::fmt::Write as _;

use super::{INDENT, TextStyle};

/// Maximum number of rows.
pub(super) const MAX_ROWS: usize = 20;

/// Shortest and longest bar, in characters.
const BAR: std::ops::RangeInclusive<usize> = 4..=20;

/// Minimum width for names.
const SHORTEST_NAME: usize = 12;

/// A row of the table.
pub(super) struct RankedRow {
    pub(super) name: String,
    /// Length of the bar, which follows the first cell.
    pub(super) share: f64,
    /// One cell for each title, and perhaps more, which are not shown.
    pub(super) cells: Vec<String>,
}

impl TextStyle {
    /// Adds the table. `what` is the title of the names.
    pub(super) fn ranking(&self, text: &mut String, what: &str, titles: &[&str], rows: &[RankedRow]) {
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row.cells[column].chars().count());
            cells.fold(titles[column].len(), usize::max)
        };
        let widths: Vec<_> = (0..titles.len()).map(width).collect();
        // Two spaces before each number.
        let left = INDENT + widths.iter().map(|width| width + 2).sum::<usize>();
        let free = self.width.saturating_sub(left);
        let longest = rows.iter().map(|row| row.name.chars().count()).fold(what.len(), usize::max);
        let has_bars = free > SHORTEST_NAME + BAR.start();
        let for_name = if has_bars { free - BAR.start() - 1 } else { free.max(SHORTEST_NAME) };
        let name = longest.min(for_name);
        let bar = if has_bars { (free - name - 1).min(*BAR.end()) } else { 0 };
        let mut line = |of: &str, cells: &mut dyn Iterator<Item = &str>, bar: &str| {
            let mut line = format!("{:INDENT$}{of:<name$}", "");
            for (column, (cell, width)) in cells.zip(&widths).enumerate() {
                let _ = write!(line, "  {cell:>width$}");
                if column == 0 {
                    line.push_str(bar);
                }
            }
            let _ = writeln!(text, "{}", line.trim_end());
        };
        line(what, &mut titles.iter().copied(), &" ".repeat(if bar > 0 { bar + 1 } else { 0 }));
        for row in rows {
            let drawn = match bar {
                0 => String::new(),
                _ => format!(" {}", self.terminal.bar(row.share, bar, true)),
            };
            let cells = &mut row.cells.iter().map(String::as_str);
            line(&self.terminal.cut(&row.name, name), cells, &drawn);
        }
    }
}
