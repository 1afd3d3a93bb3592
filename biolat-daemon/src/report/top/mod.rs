//! `report --top`: the devices in a table that is drawn anew in place, the worst at the top.

mod columns;
mod details;
mod draw;
mod help;
mod input;
mod live;
mod rows;
#[cfg(test)]
mod samples;
mod screen;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod words;

use std::{
    io::{IsTerminal as _, stdin, stdout},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result};
use tokio::time::{MissedTickBehavior, interval};

use super::{options::Options, source::Source};
use input::{Came, Input};
use live::Live;
use screen::Screen;
use state::Asks;

const CANNOT_DRAW: &str = "cannot draw on the terminal";

/// Whether there is something to draw on, and keys. Another terminal than ours could not be opened any more.
pub(super) fn has_terminal() -> bool {
    stdin().is_terminal() && stdout().is_terminal()
}

/// Shows the table until it is left.
pub(super) async fn run(mut source: Source, options: &Options) -> Result<ExitCode> {
    let mut input = Input::listen().context("cannot listen to keys and signals")?;
    let mut live = Live::of(&source, options);
    let mut screen = Screen::take().context(CANNOT_DRAW)?;
    // How old the figures are is shown.
    let mut clock = interval(Duration::from_secs(1));
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !live.is_over() {
        screen.draw(|buffer| live.draw(buffer)).context(CANNOT_DRAW)?;
        let came = tokio::select! {
            news = source.next() => {
                live.take(news?);
                continue;
            }
            _ = clock.tick() => continue,
            came = input.next() => came,
        };
        let asks = match came {
            Came::Key(key) => live.press(key),
            Came::Signal(asks) => asks,
            Came::Resized => Asks::Nothing,
            Came::Continued => {
                screen.retake().context(CANNOT_DRAW)?;
                Asks::Nothing
            }
            Came::End(error) => return Err(error).context("cannot read keys any more"),
        };
        match asks {
            Asks::Nothing => {}
            Asks::Quit => break,
            Asks::Suspend => screen.suspend().context(CANNOT_DRAW)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}
