//! The terminal's alternate screen. The terminal is restored however the process ends.

use std::{
    io::{self, Stdout},
    panic,
    sync::atomic::{AtomicBool, Ordering},
};

use biolat_system::{c_library::stop_process, log_lines};
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

/// Whether the terminal has to be restored.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);

/// The alternate screen, which is left on drop.
pub(super) struct AlternateScreen(Terminal<CrosstermBackend<Stdout>>);

impl AlternateScreen {
    pub(super) fn enter() -> io::Result<Self> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
        enter().map(Self)
    }

    /// Draws at the current size.
    pub(super) fn draw(&mut self, fill: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        self.0.draw(|frame| fill(frame.buffer_mut())).map(|_| ())
    }

    /// Enters it again after another process has used the terminal.
    pub(super) fn reenter(&mut self) -> io::Result<()> {
        restore();
        self.0 = enter()?;
        Ok(())
    }

    /// Restores the terminal and stops this process until it is continued, like Ctrl-Z elsewhere.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        restore();
        stop_process();
        self.reenter()
    }
}

impl Drop for AlternateScreen {
    fn drop(&mut self) {
        restore();
    }
}

/// Enters and clears the alternate screen.
fn enter() -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    IS_ENTERED.store(true, Ordering::SeqCst);
    log_lines::hold();
    let entered = enable_raw_mode()
        .and_then(|()| execute!(io::stdout(), EnterAlternateScreen, Hide, Clear(ClearType::All)))
        .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
    entered.inspect_err(|_| restore())
}

/// Restores the terminal, at most once.
fn restore() {
    if IS_ENTERED.swap(false, Ordering::SeqCst) {
        // A terminal that is gone needs no restoring.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
        log_lines::release();
    }
}
