//! `biolat top`: a live table of devices, worst first.

mod alternate_screen;
mod columns;
mod details;
mod draw;
mod help;
mod input;
mod layout;
mod live;
mod row;
mod rows;
#[cfg(test)]
mod samples;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod view;
mod who;

use std::{
    io::{IsTerminal as _, stdin, stdout},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result};
use tokio::time::{MissedTickBehavior, interval};

use super::{cli::TopCommand, source::Source};
use alternate_screen::AlternateScreen;
use input::{Event, Input};
use live::Live;
use state::Action;

const CANNOT_DRAW: &str = "cannot draw on the terminal";

/// Whether it can draw and read keys. After privileges are dropped, no other terminal can be opened.
pub(super) fn has_terminal() -> bool {
    stdin().is_terminal() && stdout().is_terminal()
}

/// Shows the table until the user quits.
pub(super) async fn run(mut source: Source, command: &TopCommand) -> Result<ExitCode> {
    let mut input = Input::listen().context("cannot listen to keys and signals")?;
    let mut live = Live::of(&source, command);
    let mut screen = AlternateScreen::enter().context(CANNOT_DRAW)?;
    // Redraw every second, because the screen shows the age of the figures.
    let mut clock = interval(Duration::from_secs(1));
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !live.is_over() {
        screen.draw(|buffer| live.draw(buffer)).context(CANNOT_DRAW)?;
        let event = tokio::select! {
            update = source.next() => {
                live.update(update?);
                continue;
            }
            _ = clock.tick() => continue,
            event = input.next() => event,
        };
        let action = match event {
            Event::Key(key) => live.press(key),
            Event::Signal(action) => action,
            Event::Resized => Action::Nothing,
            Event::Continued => {
                screen.reenter().context(CANNOT_DRAW)?;
                Action::Nothing
            }
            Event::End(error) => return Err(error).context("cannot read from the terminal"),
        };
        match action {
            Action::Nothing => {}
            Action::Quit => break,
            Action::Suspend => screen.suspend().context(CANNOT_DRAW)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}
