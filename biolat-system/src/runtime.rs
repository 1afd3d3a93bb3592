//! Runs tokio's runtime and turns a failure to start a thread into an error: tokio panics if it cannot start one for blocking
//! work.

use std::{
    io,
    panic::{self, AssertUnwindSafe},
};

use anyhow::{Error, Result, anyhow};
use tokio::runtime::Runtime;

/// Prefix of tokio's panic message, before the reason.
const NO_THREAD: &str = "OS can't spawn worker thread: ";

/// Runs a future to completion. Turns a panic for lack of a thread into an error, without printing it.
pub fn block_on<T>(runtime: &Runtime, future: impl Future<Output = Result<T>>) -> Result<T> {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !panic.payload_as_str().is_some_and(|text| text.starts_with(NO_THREAD)) {
            report(panic);
        }
    }));
    panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(future))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>();
        match text.and_then(|text| text.strip_prefix(NO_THREAD)) {
            Some(reason) => Err(cannot_start("a thread", reason)),
            None => panic::resume_unwind(panic),
        }
    })
}

/// Converts an error from starting a thread.
pub fn no_thread(name: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |error| cannot_start(name, &error.to_string())
}

fn cannot_start(thread: &str, reason: &str) -> Error {
    anyhow!(
        "cannot start {thread}: {reason}: raise the limit of processes (ulimit -u, systemd's TasksMax=, pids.max of the cgroup)"
    )
}
