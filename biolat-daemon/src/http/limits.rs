//! Resource and time limits for clients.

use std::time::Duration;

/// Limits for one client, and for all clients together.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections; fewer if that would take more than half of the process's file descriptors or leave fewer than 16 free.
    /// Each further connection evicts an existing one.
    pub connections: usize,
    /// Time for the head of a request, from when the connection becomes idle.
    pub head: Duration,
    /// Size of a request's head and of a connection's buffers, in bytes.
    pub head_bytes: usize,
    /// Time for a TLS handshake.
    pub handshake: Duration,
    /// Memory used by all response bodies, in bytes. Beyond it, connections that still read an older snapshot are closed,
    /// longest-reading first.
    pub body_bytes: usize,
    /// Time for the client to read some more of a response.
    pub write: Duration,
    /// Time for the client to read the whole response.
    pub answer: Duration,
    /// Event streams; at most an eighth of the connections.
    pub streams: usize,
    /// Time without an event after which a stream sends a heartbeat.
    pub heartbeat: Duration,
    /// Maximum lifetime of a stream; clients reconnect.
    pub stream: Duration,
    /// Time to finish responses when the server shuts down.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self::of_interval(Duration::from_secs(5))
    }
}

impl Limits {
    /// Returns the limits for a collection interval. A slow client keeps the body of an old snapshot in memory, so a response may
    /// take only a few intervals.
    #[must_use]
    pub fn of_interval(interval: Duration) -> Self {
        let answer = (8 * interval).clamp(Duration::from_secs(2), Duration::from_secs(15));
        Self {
            connections: 256,
            head: Duration::from_secs(30),
            head_bytes: 16 * 1024,
            body_bytes: 32 << 20,
            handshake: Duration::from_secs(10),
            write: Duration::from_secs(10),
            answer,
            streams: 32,
            heartbeat: Duration::from_secs(15),
            stream: Duration::from_secs(3600),
            grace: Duration::from_secs(1),
        }
    }
}
