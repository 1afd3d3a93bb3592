//! Selects the columns that fit, and their widths.

use biolat_common::series::Phase;

use super::{
    columns::Column,
    row::TopRow,
    state::{Ops, TopState},
};

/// Columns by priority.
const BY_PRIORITY: [Column; 15] = [
    Column::Device,
    Column::P99,
    Column::Op,
    Column::Iops,
    Column::Max,
    Column::P50,
    Column::Bytes,
    Column::P999,
    Column::Queue,
    Column::Errors,
    Column::Model,
    Column::Oldest,
    Column::Inflight,
    Column::Shape,
    Column::History,
];

/// At this width and above, columns are two spaces apart.
const ROOMY: u16 = 60;

/// At this width and above, the queue's share has a bar.
const WIDE: u16 = 110;

pub(super) const fn is_roomy(width: u16) -> bool {
    width >= ROOMY
}

/// Space between two columns.
pub(super) const fn gap(width: u16) -> u16 {
    if is_roomy(width) { 2 } else { 1 }
}

impl Column {
    /// The minimum and the maximum useful width.
    fn widths(self, rows: &[TopRow], screen: u16) -> (u16, u16) {
        let longest = |text: fn(&TopRow) -> &str| {
            let longest = rows.iter().map(|row| text(row).chars().count()).max().unwrap_or_default();
            longest.min(usize::from(u16::MAX)) as u16
        };
        match self {
            Self::Device => {
                let width = longest(|row| &row.device).clamp(6, if screen < ROOMY { 9 } else { 16 });
                (width, width)
            }
            Self::Model => {
                let width = longest(|row| &row.model).max(5);
                (width.min(10), width.min(28))
            }
            Self::Op => {
                let width = longest(|row| &row.op).clamp(2, if screen < ROOMY { 7 } else { 14 });
                (width, width)
            }
            Self::Queue => (5, if screen < WIDE { 5 } else { 14 }),
            Self::Errors | Self::Inflight => (4, 4),
            Self::Oldest => (6, 6),
            Self::Shape => (16, 32),
            Self::History => (12, 60),
            _ => (5, 5),
        }
    }
}

/// The columns that fit, from left to right, with their widths. If a device is hung, its I/Os in flight have priority. The sort
/// column is always included, and so are errors if there are any.
pub(super) fn columns(width: u16, state: &TopState, rows: &[TopRow]) -> Vec<(Column, u16)> {
    let gap = gap(width);
    let mut wanted = BY_PRIORITY.to_vec();
    wanted.retain(|column| match column {
        Column::Op => state.ops == Ops::Each || state.sort == Column::Op,
        Column::Model => rows.iter().any(|row| !row.model.is_empty()) || state.sort == Column::Model,
        // In the queue phase, the queue's share is always 100 %.
        Column::Queue => state.phase != Phase::Queue || state.sort == Column::Queue,
        _ => true,
    });
    let has_hung = rows.iter().any(TopRow::is_hung);
    let has_errors = rows.iter().any(|row| row.figures.failed() > 0);
    wanted[1..].sort_by_key(|&column| match column {
        Column::Oldest | Column::Inflight if has_hung => 0,
        Column::Errors if has_errors => 1,
        column if column == state.sort => 1,
        _ => 2,
    });

    let mut chosen: Vec<(Column, u16, u16)> = Vec::new();
    let mut used = 0;
    for column in wanted {
        let (least, most) = column.widths(rows, width);
        let more = least + if chosen.is_empty() { 0 } else { gap };
        if used + more > width {
            // The remaining columns are less useful, and none should come and go with the width of another.
            break;
        }
        used += more;
        chosen.push((column, least, most));
    }
    let mut spare = width - used;
    for (_, least, most) in &mut chosen {
        let more = spare.min(*most - *least);
        *least += more;
        spare -= more;
    }
    chosen.sort_by_key(|(column, ..)| *column);
    chosen.into_iter().map(|(column, width, _)| (column, width)).collect()
}
