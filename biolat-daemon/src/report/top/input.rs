//! What comes from outside: keys, another size, signals.

use std::{io, thread};

use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

use super::state::Asks;

/// What came.
pub(super) enum Came {
    Key(KeyEvent),
    /// A signal that asks for this.
    Signal(Asks),
    /// The terminal has another size.
    Resized,
    /// We were stopped and go on.
    Continued,
    /// Nothing can be read any more.
    End(io::Error),
}

pub(super) struct Input {
    events: mpsc::Receiver<io::Result<Event>>,
    ends: [Signal; 4],
    stop: Signal,
    go_on: Signal,
}

impl Input {
    pub(super) fn listen() -> io::Result<Self> {
        let on = |number| signal(SignalKind::from_raw(number));
        let ends = [on(libc::SIGTERM)?, on(libc::SIGHUP)?, on(libc::SIGINT)?, on(libc::SIGQUIT)?];
        let (stop, go_on) = (on(libc::SIGTSTP)?, on(libc::SIGCONT)?);
        // Nothing is read but there: a terminal that somebody else has left in a line of its own may keep a reader waiting.
        let (sender, events) = mpsc::channel(1);
        thread::Builder::new().name("keys".to_owned()).spawn(move || {
            let mut is_well = true;
            while is_well {
                let event = event::read();
                is_well = event.is_ok();
                is_well &= sender.blocking_send(event).is_ok();
            }
        })?;
        Ok(Self { events, ends, stop, go_on })
    }

    /// What comes next. May be dropped and called again at any time.
    pub(super) async fn next(&mut self) -> Came {
        loop {
            let [terminate, hang_up, interrupt, quit] = &mut self.ends;
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => return Came::Key(key),
                    Some(Ok(Event::Resize(..))) => return Came::Resized,
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Came::End(error),
                    None => return Came::End(io::ErrorKind::UnexpectedEof.into()),
                },
                _ = terminate.recv() => return Came::Signal(Asks::Quit),
                _ = hang_up.recv() => return Came::Signal(Asks::Quit),
                _ = interrupt.recv() => return Came::Signal(Asks::Quit),
                _ = quit.recv() => return Came::Signal(Asks::Quit),
                _ = self.stop.recv() => return Came::Signal(Asks::Suspend),
                _ = self.go_on.recv() => return Came::Continued,
            }
        }
    }
}
