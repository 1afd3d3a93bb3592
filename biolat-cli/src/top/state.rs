//! The user's choices: plain data that only keys change.

use biolat_common::series::Phase;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{columns::Column, row::TopRow};

/// Which ops have rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ops {
    /// One row for all ops of a device.
    Merged,
    /// A row for each op.
    Each,
    /// Only this op.
    Only(String),
}

/// The selected row, wherever sorting puts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) device: String,
    pub(super) op: String,
}

impl Mark {
    fn of(row: &TopRow) -> Self {
        Self { device: row.device.clone(), op: row.op.clone() }
    }

    fn is(&self, row: &TopRow) -> bool {
        self.device == row.device && self.op == row.op
    }
}

/// The details of the selected row, below the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Details {
    Histogram,
    /// The workloads of the row's device.
    Who,
}

/// The user's choices.
#[derive(Clone, Debug)]
pub(super) struct TopState {
    pub(super) sort: Column,
    pub(super) is_reversed: bool,
    pub(super) phase: Phase,
    pub(super) ops: Ops,
    /// Text that device names must contain.
    pub(super) filter: String,
    pub(super) is_typing: bool,
    pub(super) is_paused: bool,
    pub(super) is_help: bool,
    pub(super) details: Option<Details>,
    pub(super) mark: Option<Mark>,
    /// Number of collections in a window.
    pub(super) collections: u64,
}

/// The contents of the screen when a key is pressed.
pub(super) struct Shown<'a> {
    pub(super) rows: &'a [TopRow],
    /// All ops.
    pub(super) ops: &'a [String],
    /// Whether the admission phase of any device is recorded.
    pub(super) has_admission: bool,
}

/// The effect of a key or a signal, besides changing the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Quit,
    /// Stops the process, like Ctrl-Z elsewhere.
    Suspend,
}

/// Window lengths that + and - step through, in collections.
const COLLECTIONS: [u64; 6] = [1, 2, 5, 10, 30, MAX_COLLECTIONS];

/// Maximum number of collections in a window.
pub(super) const MAX_COLLECTIONS: u64 = 60;

const PAGE: isize = 10;

const DEFAULT_SORT: Column = Column::P99;

impl TopState {
    pub(super) fn new(collections: u64) -> Self {
        Self {
            sort: DEFAULT_SORT,
            is_reversed: false,
            phase: Phase::Total,
            ops: Ops::Merged,
            filter: String::new(),
            is_typing: false,
            is_paused: false,
            is_help: false,
            details: None,
            mark: None,
            collections: collections.clamp(1, MAX_COLLECTIONS),
        }
    }

    /// Whether the sort order is unchanged.
    pub(super) fn is_default_order(&self) -> bool {
        self.sort == DEFAULT_SORT && !self.is_reversed
    }

    pub(super) fn apply(&mut self, key: KeyEvent, shown: &Shown<'_>) -> Action {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c' | 'd' | '\\') => Action::Quit,
                KeyCode::Char('z') => Action::Suspend,
                KeyCode::Char('u' | 'w') if self.is_typing => {
                    self.filter.clear();
                    Action::Nothing
                }
                _ => Action::Nothing,
            };
        }
        if key.modifiers.contains(KeyModifiers::ALT) {
            return Action::Nothing;
        }
        if self.is_typing {
            self.type_filter(key.code);
            return Action::Nothing;
        }
        if self.is_help {
            self.is_help = false;
            return if key.code == KeyCode::Char('q') { Action::Quit } else { Action::Nothing };
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Action::Quit,
            KeyCode::Char('s' | '>' | '.') | KeyCode::Right => self.sort_by(self.sort.next()),
            KeyCode::Char('S' | '<' | ',') | KeyCode::Left => self.sort_by(self.sort.previous()),
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('p') => self.phase = next_phase(self.phase, shown.has_admission),
            KeyCode::Char('o') => self.ops = self.next_ops(shown.ops),
            KeyCode::Char('f' | '/') => self.is_typing = true,
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.is_help = true,
            KeyCode::Enter => self.open(Details::Histogram, shown.rows),
            KeyCode::Char('w') => self.open(Details::Who, shown.rows),
            KeyCode::Down | KeyCode::Char('j') => self.move_mark(1, shown.rows),
            KeyCode::Up | KeyCode::Char('k') => self.move_mark(-1, shown.rows),
            KeyCode::PageDown => self.move_mark(PAGE, shown.rows),
            KeyCode::PageUp => self.move_mark(-PAGE, shown.rows),
            KeyCode::Home => self.move_mark(isize::MIN, shown.rows),
            KeyCode::End => self.move_mark(isize::MAX, shown.rows),
            KeyCode::Char('+' | '=') => self.change_collections(true),
            KeyCode::Char('-') => self.change_collections(false),
            _ => {}
        }
        Action::Nothing
    }

    /// The index of the selected row. If ops are now split differently, the index of its device's first row.
    pub(super) fn place(&self, rows: &[TopRow]) -> Option<usize> {
        let mark = self.mark.as_ref()?;
        let exact = rows.iter().position(|row| mark.is(row));
        exact.or_else(|| rows.iter().position(|row| mark.device == row.device))
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(char) => self.filter.push(char),
            _ => {}
        }
    }

    /// A newly chosen column is sorted worst first.
    fn sort_by(&mut self, column: Column) {
        self.sort = column;
        self.is_reversed = false;
    }

    fn next_ops(&self, known: &[String]) -> Ops {
        let only = |place: usize| known.get(place).cloned().map_or(Ops::Merged, Ops::Only);
        match &self.ops {
            Ops::Merged => Ops::Each,
            Ops::Each => only(0),
            Ops::Only(op) => match known.iter().position(|known| known == op) {
                Some(place) => only(place + 1),
                None => Ops::Merged,
            },
        }
    }

    /// Shows details, or closes them if they are already shown.
    fn open(&mut self, details: Details, rows: &[TopRow]) {
        let is_shown = self.details == Some(details) && self.place(rows).is_some();
        if self.place(rows).is_none() {
            self.mark = rows.first().map(Mark::of);
        }
        self.details = (!is_shown && self.mark.is_some()).then_some(details);
    }

    fn move_mark(&mut self, by: isize, rows: &[TopRow]) {
        let place = match self.place(rows) {
            Some(place) => place.saturating_add_signed(by).min(rows.len().saturating_sub(1)),
            None => 0,
        };
        self.mark = rows.get(place).map(Mark::of);
    }

    fn change_collections(&mut self, more: bool) {
        let next = if more {
            COLLECTIONS.into_iter().find(|&one| one > self.collections)
        } else {
            COLLECTIONS.into_iter().rev().find(|&one| one < self.collections)
        };
        self.collections = next.unwrap_or(self.collections);
    }
}

fn next_phase(phase: Phase, has_admission: bool) -> Phase {
    match phase {
        Phase::Total if has_admission => Phase::Admission,
        Phase::Total | Phase::Admission => Phase::Queue,
        Phase::Queue => Phase::Device,
        Phase::Device => Phase::Total,
    }
}
