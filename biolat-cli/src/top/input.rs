//! Terminal events: keys, resizing, signals.

use std::{io, thread};

use ratatui::crossterm::event::{self, KeyEvent, KeyEventKind};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

use super::state::Action;

pub(super) enum Event {
    Key(KeyEvent),
    /// The action of a signal.
    Signal(Action),
    /// The terminal was resized.
    Resized,
    /// The process was stopped and continued.
    Continued,
    /// The terminal can no longer be read.
    End(io::Error),
}

pub(super) struct Input {
    events: mpsc::Receiver<io::Result<event::Event>>,
    ends: [Signal; 4],
    stop: Signal,
    resume: Signal,
}

impl Input {
    pub(super) fn listen() -> io::Result<Self> {
        let on = |number| signal(SignalKind::from_raw(number));
        let ends = [on(libc::SIGTERM)?, on(libc::SIGHUP)?, on(libc::SIGINT)?, on(libc::SIGQUIT)?];
        let (stop, resume) = (on(libc::SIGTSTP)?, on(libc::SIGCONT)?);
        // In a thread of its own, because reading can block: another process may have left the terminal in line mode.
        let (sender, events) = mpsc::channel(1);
        thread::Builder::new().name("keys".to_owned()).spawn(move || {
            let mut is_well = true;
            while is_well {
                let event = event::read();
                is_well = event.is_ok();
                is_well &= sender.blocking_send(event).is_ok();
            }
        })?;
        Ok(Self { events, ends, stop, resume })
    }

    /// The next event. Cancel-safe.
    pub(super) async fn next(&mut self) -> Event {
        loop {
            let [terminate, hang_up, interrupt, quit] = &mut self.ends;
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(Ok(event::Event::Key(key))) if key.kind != KeyEventKind::Release => return Event::Key(key),
                    Some(Ok(event::Event::Resize(..))) => return Event::Resized,
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Event::End(error),
                    None => return Event::End(io::ErrorKind::UnexpectedEof.into()),
                },
                _ = terminate.recv() => return Event::Signal(Action::Quit),
                _ = hang_up.recv() => return Event::Signal(Action::Quit),
                _ = interrupt.recv() => return Event::Signal(Action::Quit),
                _ = quit.recv() => return Event::Signal(Action::Quit),
                _ = self.stop.recv() => return Event::Signal(Action::Suspend),
                _ = self.resume.recv() => return Event::Continued,
            }
        }
    }
}
