//! How a guest's run ended, from what it printed and from its kernel's log.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::Child,
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

/// When to give a guest up.
#[derive(Clone, Copy)]
pub(crate) struct Timeouts {
    /// After so long without a line.
    pub(crate) silence: Duration,
    /// After so long in all.
    pub(crate) total: Duration,
}

/// A guest that has ended.
pub(crate) struct Outcome {
    /// The test runner's exit code, and what the kernel says of its own health: both at the end.
    exit: Option<u32>,
    taint: Option<u32>,
    timed_out: bool,
    /// The signal that the emulator crashed with.
    crash_signal: Option<i32>,
    /// What it printed last.
    last: String,
    log: String,
    pub(crate) took: Duration,
}

const EXIT: &str = "biolat-guest: exit ";
const TAINT: &str = "biolat-guest: taint ";
/// The last line of a whole log.
const END_OF_LOG: &str = "biolat-guest: end of log";

/// Machine check, bad page, oops, warning, lock-up.
///
/// <https://docs.kernel.org/admin-guide/tainted-kernels.html>
const BAD_TAINT: u32 = 1 << 4 | 1 << 5 | 1 << 7 | 1 << 9 | 1 << 14;

/// What a kernel says when something is wrong with itself.
const ALARMS: [&str; 16] = [
    "Kernel panic",
    "BUG:",
    "kernel BUG at",
    "WARNING:",
    "Oops",
    "[#1]",
    "general protection fault",
    "Call Trace:",
    "soft lockup",
    "hard LOCKUP",
    "blocked for more than",
    "detected stall",
    "expedited stalls",
    "UBSAN:",
    "possible circular locking",
    "messages dropped",
];

/// Killed when it is dropped: nothing of it is worth keeping.
struct Emulator(Child);

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Outcome {
    /// Follows a guest to its end, line by line.
    pub(super) fn of(
        guest: Child,
        log: &Path,
        timeouts: Timeouts,
        mut line: impl FnMut(&str),
    ) -> Result<Self> {
        let began = Instant::now();
        let mut running = Emulator(guest);
        let lines = follow(&mut running.0)?;
        let mut outcome = Self {
            exit: None,
            taint: None,
            timed_out: false,
            crash_signal: None,
            last: String::new(),
            log: String::new(),
            took: Duration::ZERO,
        };
        loop {
            let left = timeouts.total.saturating_sub(began.elapsed());
            match lines.recv_timeout(left.min(timeouts.silence)) {
                Ok(text) => outcome.handle_line(text, &mut line),
                Err(RecvTimeoutError::Disconnected) => {
                    outcome.crash_signal = running.0.wait().context("cannot wait for the emulator")?.signal();
                    break;
                }
                Err(RecvTimeoutError::Timeout) => {
                    outcome.timed_out = true;
                    break;
                }
            }
        }
        outcome.took = began.elapsed();
        drop(running);
        // A line that it had begun comes now.
        for text in lines {
            outcome.handle_line(text, &mut line);
        }
        let bytes = fs::read(log).with_context(|| format!("cannot read {}", log.display()))?;
        outcome.log = String::from_utf8_lossy(&bytes).into_owned();
        Ok(outcome)
    }

    fn handle_line(&mut self, text: String, line: &mut impl FnMut(&str)) {
        if let Some(code) = text.strip_prefix(EXIT) {
            self.exit = code.trim().parse().ok();
        } else if let Some(bits) = text.strip_prefix(TAINT) {
            self.taint = bits.trim().parse().ok();
        } else {
            line(&text);
            self.last = text;
        }
    }

    /// How the emulator ended the run, if it did and what is tested did not.
    pub(super) fn emulator_fault(&self) -> Option<String> {
        if let Some(signal) = self.crash_signal {
            return Some(format!("the emulator crashed with signal {signal}, at: {}", self.last));
        }
        // A CPU executed code that another one was patching, which no real one does: the kernel puts a breakpoint there
        // meanwhile.
        let hit_patched_code = self.log.contains("int3: 0000 [#1]");
        hit_patched_code
            .then(|| format!("the emulator let a CPU run into code being patched, at: {}", self.last))
    }

    /// An error that says what went wrong: which tests failed, or, with the end of its log, what is wrong with the
    /// guest.
    pub(super) fn verdict(&self, failed: &[String]) -> Result<()> {
        let wrong = if self.alarm().is_some() {
            "its kernel warned or crashed".to_owned()
        } else if self.timed_out {
            format!("it was given up after {:.0} s, at: {}", self.took.as_secs_f64(), self.last)
        } else if let Some(fault) = self.emulator_fault() {
            fault
        } else if self.exit.is_none() || self.taint.is_none() {
            format!("it ended before the tests did, at: {}", self.last)
        } else if self.taint.is_some_and(|taint| taint & BAD_TAINT != 0) {
            format!("its kernel is tainted: {}", self.taint.unwrap_or_default())
        } else if !self.log.contains(END_OF_LOG) {
            "its kernel's log is not whole".to_owned()
        } else if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        } else if let Some(code) = self.exit.filter(|&code| code != 0) {
            bail!("the test runner ended with code {code}");
        } else {
            return Ok(());
        };
        bail!("{wrong}; its kernel's log:\n{}", self.tail())
    }

    fn alarm(&self) -> Option<usize> {
        self.log.lines().position(|line| ALARMS.iter().any(|alarm| line.contains(alarm)))
    }

    /// The log from a little before the first alarm, or its end.
    pub(super) fn tail(&self) -> String {
        let lines: Vec<_> = self.log.lines().collect();
        let from = self.alarm().unwrap_or(lines.len()).saturating_sub(20);
        lines[from..].iter().take(80).copied().collect::<Vec<_>>().join("\n")
    }
}

/// Its lines, as they come.
fn follow(guest: &mut Child) -> Result<Receiver<String>> {
    let output = guest.stdout.take().context("no output")?;
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let text = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            if sender.send(text).is_err() {
                break;
            }
        }
    });
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{END_OF_LOG, Outcome};

    fn outcome(exit: Option<u32>, taint: Option<u32>, log: &str) -> Outcome {
        let (log, last) = (log.to_owned(), "test a ... ".to_owned());
        Outcome { exit, taint, timed_out: false, crash_signal: None, last, log, took: Duration::ZERO }
    }

    #[test]
    fn only_a_whole_and_healthy_run_is_one() {
        let log = format!("[    1.0] I/O error, dev sda, sector 1\n[    2.0] {END_OF_LOG}\n");
        assert!(outcome(Some(0), Some(0), &log).verdict(&[]).is_ok());
        let wrong = |outcome: Outcome| outcome.verdict(&[]).unwrap_err().to_string();
        assert_eq!(wrong(outcome(Some(101), Some(0), &log)), "the test runner ended with code 101");
        let failed = outcome(Some(101), Some(0), &log).verdict(&["a".to_owned(), "b".to_owned()]);
        assert_eq!(failed.unwrap_err().to_string(), "failed: a, b");
        assert!(wrong(outcome(None, None, &log)).contains("before the tests did, at: test a"));
        assert!(wrong(outcome(Some(0), None, &log)).contains("before the tests did"));
        assert!(wrong(outcome(Some(0), Some(1 << 9), &log)).contains("tainted: 512"));
        assert!(wrong(outcome(Some(0), Some(0), "")).contains("log is not whole"));
        let warned =
            format!("before\n[    1.0] WARNING: CPU: 1 PID: 2 at block/blk-mq.c\nafter\n{END_OF_LOG}");
        let text = wrong(outcome(Some(0), Some(0), &warned));
        assert!(text.starts_with("its kernel warned") && text.contains("before\n") && text.contains("after"));
        let late = Outcome { timed_out: true, ..outcome(None, None, &log) };
        assert!(wrong(late).contains("given up after 0 s, at: test a ... "));
        let crashed = Outcome { crash_signal: Some(11), ..outcome(None, None, &log) };
        assert!(wrong(crashed).contains("the emulator crashed with signal 11, at: test a ... "));
    }
}
