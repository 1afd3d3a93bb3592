//! Determines the outcome of a guest's run from its output and its kernel log.

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

/// A guest is killed after this time without a line of output. It is long enough for a busy host.
const MAX_SILENCE: Duration = Duration::from_secs(240);
/// A guest is killed after this time.
const MAX_RUN: Duration = Duration::from_secs(1800);

/// The outcome of a guest's run.
pub(crate) struct Outcome {
    /// The test runner's exit code, printed at the end.
    exit: Option<u32>,
    /// The kernel's taint flags, printed at the end.
    taint: Option<u32>,
    timed_out: bool,
    /// Signal that killed the emulator.
    crash_signal: Option<i32>,
    /// Last line of output.
    last: String,
    log: String,
    pub(crate) took: Duration,
}

const EXIT: &str = "biolat-guest: exit ";
const TAINT: &str = "biolat-guest: taint ";
/// Last line of a complete kernel log.
const END_OF_LOG: &str = "biolat-guest: end of log";

/// Taint flags that fail a run: machine check, bad page, oops, warning, lockup.
///
/// <https://docs.kernel.org/admin-guide/tainted-kernels.html>
const BAD_TAINT: u32 = 1 << 4 | 1 << 5 | 1 << 7 | 1 << 9 | 1 << 14;

/// Messages in which a kernel reports its own faults.
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

/// The emulator's process. It is killed on drop, because nothing in the guest has to be preserved.
struct Emulator(Child);

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Outcome {
    /// Reads a guest's output until it ends or a timeout expires.
    pub(super) fn of(guest: Child, log: &Path, mut line: impl FnMut(&str)) -> Result<Self> {
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
            let left = MAX_RUN.saturating_sub(began.elapsed());
            match lines.recv_timeout(left.min(MAX_SILENCE)) {
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
        // Drain the pipe.
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

    /// Returns the emulator fault that ended the run, if any. Such a fault says nothing about the tested code.
    pub(super) fn emulator_fault(&self) -> Option<String> {
        if let Some(signal) = self.crash_signal {
            return Some(format!("the emulator crashed with signal {signal}, at: {}", self.last));
        }
        // An emulated CPU executed code that another CPU was patching. On real CPUs the kernel prevents that with a temporary
        // breakpoint.
        let hit_patched_code = self.log.contains("int3: 0000 [#1]");
        hit_patched_code
            .then(|| format!("the emulator ran code that another CPU was patching, at: {}", self.last))
    }

    /// Fails if the run failed. The error lists the failed tests, or describes the guest's fault with an excerpt of its kernel
    /// log.
    pub(super) fn verdict(&self, failed: &[String]) -> Result<()> {
        if let Some(wrong) = self.guest_fault() {
            bail!("{wrong}; the guest's kernel log:\n{}", self.log_excerpt())
        } else if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        } else if let Some(code) = self.exit.filter(|&code| code != 0) {
            bail!("the test runner exited with code {code}");
        }
        Ok(())
    }

    /// Returns the guest's fault, if any, regardless of test results.
    pub(super) fn guest_fault(&self) -> Option<String> {
        if self.alarm().is_some() {
            Some("the guest's kernel warned or crashed".to_owned())
        } else if self.timed_out {
            Some(format!("the guest timed out after {:.0} s, at: {}", self.took.as_secs_f64(), self.last))
        } else if let Some(fault) = self.emulator_fault() {
            Some(fault)
        } else if self.exit.is_none() || self.taint.is_none() {
            Some(format!("the guest ended before the tests, at: {}", self.last))
        } else if self.taint.is_some_and(|taint| taint & BAD_TAINT != 0) {
            Some(format!("the guest's kernel is tainted: {}", self.taint.unwrap_or_default()))
        } else if !self.log.contains(END_OF_LOG) {
            Some("the guest's kernel log is incomplete".to_owned())
        } else {
            None
        }
    }

    fn alarm(&self) -> Option<usize> {
        self.log.lines().position(|line| ALARMS.iter().any(|alarm| line.contains(alarm)))
    }

    /// Returns an excerpt of the log, from around the first alarm or, if there is none, from the end.
    pub(super) fn log_excerpt(&self) -> String {
        let lines: Vec<_> = self.log.lines().collect();
        let from = self.alarm().unwrap_or(lines.len()).saturating_sub(20);
        lines[from..].iter().take(80).copied().collect::<Vec<_>>().join("\n")
    }
}

/// Starts a thread that sends the guest's output line by line.
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
    fn run_passes_only_if_complete_and_without_kernel_faults() {
        let log = format!("[    1.0] I/O error, dev sda, sector 1\n[    2.0] {END_OF_LOG}\n");
        assert!(outcome(Some(0), Some(0), &log).verdict(&[]).is_ok());
        let wrong = |outcome: Outcome| outcome.verdict(&[]).unwrap_err().to_string();
        assert_eq!(wrong(outcome(Some(101), Some(0), &log)), "the test runner exited with code 101");
        let failed = outcome(Some(101), Some(0), &log).verdict(&["a".to_owned(), "b".to_owned()]);
        assert_eq!(failed.unwrap_err().to_string(), "failed: a, b");
        assert!(wrong(outcome(None, None, &log)).contains("before the tests, at: test a"));
        assert!(wrong(outcome(Some(0), None, &log)).contains("before the tests"));
        assert!(wrong(outcome(Some(0), Some(1 << 9), &log)).contains("tainted: 512"));
        assert!(wrong(outcome(Some(0), Some(0), "")).contains("log is incomplete"));
        let warned =
            format!("before\n[    1.0] WARNING: CPU: 1 PID: 2 at block/blk-mq.c\nafter\n{END_OF_LOG}");
        let text = wrong(outcome(Some(0), Some(0), &warned));
        assert!(
            text.starts_with("the guest's kernel warned")
                && text.contains("before\n")
                && text.contains("after")
        );
        let late = Outcome { timed_out: true, ..outcome(None, None, &log) };
        assert!(wrong(late).contains("timed out after 0 s, at: test a ... "));
        let crashed = Outcome { crash_signal: Some(11), ..outcome(None, None, &log) };
        assert!(wrong(crashed).contains("the emulator crashed with signal 11, at: test a ... "));
    }
}
