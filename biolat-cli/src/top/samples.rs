//! Windows and a screen for tests.

use std::{collections::VecDeque, time::Duration};

use biolat_model::histogram::Histogram;
use biolat_system::terminal::Terminal;
use ratatui::{
    buffer::Buffer,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    layout::Rect,
};

use super::{
    draw::draw,
    rows::{has_admission, ops, rows},
    state::{Action, Shown, TopState},
    view::TopView,
};
use crate::window::{DeviceWindow, Figures, OpWindow, Window};

/// Makes a histogram from counts of buckets that end at these powers of two, in seconds.
fn histogram(octaves: &[(i32, u64)]) -> Histogram {
    let buckets = octaves.iter().map(|&(octave, count)| (octave * 8, count)).collect();
    let seconds: f64 = octaves.iter().map(|&(octave, count)| f64::from(octave).exp2() * count as f64).sum();
    Histogram { zero: 0, overflow: 0, buckets, sum_ns: (seconds * 1e9) as u128 }
}

pub(super) fn op(name: &str, bytes: u64, queue: &[(i32, u64)], device: &[(i32, u64)]) -> OpWindow {
    // Queue times are too short to change the total.
    let histograms = [Histogram::new(), histogram(queue), histogram(device), histogram(device)];
    OpWindow {
        name: name.into(),
        figures: Figures { bytes, histograms, ..Figures::default() },
        ..OpWindow::default()
    }
}

pub(super) fn device(name: &str, model: &str, ops: Vec<OpWindow>) -> DeviceWindow {
    DeviceWindow { name: name.into(), model: model.into(), phases: [true; 4], ops, ..DeviceWindow::default() }
}

/// Two seconds of a fast drive, a slow one and an idle one.
pub(super) fn window() -> Window {
    let fast = vec![
        op("read", 40_960_000, &[(-19, 10_000)], &[(-13, 9_900), (-12, 95), (-10, 5)]),
        op("write", 8_192_000, &[(-19, 2_000)], &[(-15, 2_000)]),
    ];
    let mut slow = vec![op("write", 4_096_000, &[(-9, 1_000)], &[(-8, 950), (-5, 49), (-2, 1)])];
    slow[0].figures.errors.insert("medium".into(), 3);
    let devices = vec![
        device("nvme0n1", "Samsung SSD 980 PRO 1TB", fast),
        device("sda", "ST4000NM0035", slow),
        device("sdb", "ST4000NM0035", vec![op("read", 0, &[], &[])]),
    ];
    Window { ended: 100.0, seconds: 2.0, devices, ..Window::default() }
}

/// A screen that the test controls.
pub(super) struct TestScreen {
    pub(super) state: TopState,
    pub(super) windows: VecDeque<Window>,
    pub(super) trouble: Option<String>,
    pub(super) terminal: Terminal,
}

impl TestScreen {
    pub(super) fn showing(window: Window) -> Self {
        Self {
            state: TopState::new(1),
            windows: VecDeque::from([window]),
            trouble: None,
            terminal: Terminal { color: false, unicode: true, is_terminal: true },
        }
    }

    /// Presses a key.
    pub(super) fn press(&mut self, code: KeyCode) -> Action {
        self.press_with(code, KeyModifiers::NONE)
    }

    pub(super) fn press_with(&mut self, code: KeyCode, modifiers: KeyModifiers) -> Action {
        let window = self.windows.back().unwrap();
        let (rows, ops) = (rows(window, &self.state), ops(window));
        let shown = Shown { rows: &rows, ops: &ops, has_admission: has_admission(window) };
        self.state.apply(KeyEvent::new(code, modifiers), &shown)
    }

    /// Presses letter keys.
    pub(super) fn type_keys(&mut self, letters: &str) {
        for letter in letters.chars() {
            self.press(KeyCode::Char(letter));
        }
    }

    /// The lines on a screen of this size, without trailing blanks.
    pub(super) fn lines(&self, width: u16, height: u16) -> Vec<String> {
        let buffer = self.buffer(width, height);
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    pub(super) fn buffer(&self, width: u16, height: u16) -> Buffer {
        let rows = self.windows.back().map(|window| rows(window, &self.state)).unwrap_or_default();
        let view = TopView {
            state: &self.state,
            windows: &self.windows,
            rows: &rows,
            host: "db1",
            source: "local probe",
            interval: Duration::from_secs(2),
            age: self.windows.back().map(|_| Duration::from_millis(400)),
            trouble: self.trouble.as_deref(),
            logged: None,
            terminal: self.terminal,
        };
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        draw(&mut buffer, &view);
        buffer
    }

    /// The devices from top to bottom.
    pub(super) fn devices(&self) -> Vec<String> {
        let rows = rows(self.windows.back().unwrap(), &self.state);
        rows.into_iter().map(|row| row.device).collect()
    }
}
