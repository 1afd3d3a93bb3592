//! The daemon's log of slow and failed I/Os.

use biolat_model::{api::ApiSlowLog, snapshot::SlowIo};

use super::{daemon::Daemon, http};

/// Returns a device's I/Os currently in the log, in order of completion.
pub(crate) fn slow_ios(daemon: &Daemon, device: &str) -> Vec<SlowIo> {
    let mut ios = all_slow_ios(daemon);
    ios.retain(|io| io.device == device);
    ios
}

/// Returns all I/Os currently in the log, in order of completion.
pub(crate) fn all_slow_ios(daemon: &Daemon) -> Vec<SlowIo> {
    let answer = http::get(daemon.address, "/api/v1/slow", "").unwrap();
    assert_eq!(answer.status, 200, "{}", answer.head);
    let log: ApiSlowLog = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(log.dropped, 0);
    log.ios.to_vec()
}
