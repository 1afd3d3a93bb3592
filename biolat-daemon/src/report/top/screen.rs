//! The terminal while it is ours, and its return to how it was, whatever ends us.

use std::{
    io::{self, Stdout},
    panic,
    sync::atomic::{AtomicBool, Ordering},
};

use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    buffer::Buffer,
    crossterm::{
        cursor::{Hide, Show},
        execute,
        terminal::{
            Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
        },
    },
};

use crate::{c_library::stop_process, log_lines};

/// Whether the terminal has to be restored.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// The terminal, ours until it is dropped.
pub(super) struct Screen(Terminal<CrosstermBackend<Stdout>>);

impl Screen {
    pub(super) fn take() -> io::Result<Self> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
        enter().map(Self)
    }

    /// Whatever the size is by now.
    pub(super) fn draw(&mut self, fill: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        self.0.draw(|frame| fill(frame.buffer_mut())).map(|_| ())
    }

    /// Somebody else has had the terminal in the meantime.
    pub(super) fn retake(&mut self) -> io::Result<()> {
        restore();
        self.0 = enter()?;
        Ok(())
    }

    /// Gives the terminal back and stops, as every program does on Ctrl-Z, until somebody has us go on.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        restore();
        stop_process();
        self.retake()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// With nothing on it, and nothing remembered of what was.
fn enter() -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    IS_OURS.store(true, Ordering::SeqCst);
    log_lines::hold();
    let entered = enable_raw_mode()
        .and_then(|()| execute!(io::stdout(), EnterAlternateScreen, Hide, Clear(ClearType::All)))
        .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
    entered.inspect_err(|_| restore())
}

/// Makes the terminal what it was, once.
fn restore() {
    if IS_OURS.swap(false, Ordering::SeqCst) {
        // If it is gone, there is nothing to restore.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
        log_lines::release();
    }
}
