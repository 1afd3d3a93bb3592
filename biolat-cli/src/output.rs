//! Writes to standard output without ever delaying the handling of a signal.

use std::{
    future::pending,
    io::{self, Write as _},
    time::Duration,
};

use anyhow::Result;
use biolat_system::terminal::{Color, Terminal, wrapped};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    stdio::stdout,
};
use serde::Serialize;
use tokio::task::spawn_blocking;

/// Writes in another thread: a pipe can be full and a terminal stopped, and signals must still be handled.
pub(super) async fn write(text: String) -> Result<()> {
    let written = spawn_blocking(move || {
        let mut output = io::stdout().lock();
        output.write_all(text.as_bytes())?;
        output.flush()
    });
    Ok(written.await??)
}

/// Formats a value as one line of JSON.
pub(super) fn json_line(value: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string(value)? + "\n")
}

/// Formats lines that fit the terminal. In a pipe they are not wrapped.
pub(super) fn lines<'a>(lines: impl IntoIterator<Item = &'a str>) -> String {
    let width = Terminal::of_stdout(Color::Never).line_width();
    lines.into_iter().map(|line| wrapped(line, width, 0) + "\n").collect()
}

pub(super) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Waits until the reader of a pipe closes it. Between windows, there is no write that could fail.
pub(super) async fn closed(terminal: Terminal) {
    if terminal.is_terminal {
        return pending().await;
    }
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let mut output = [PollFd::from_borrowed_fd(stdout(), PollFlags::empty())];
        if poll(&mut output, Some(&Timespec::default())) == Ok(1)
            && output[0].revents().contains(PollFlags::ERR)
        {
            return;
        }
    }
}
