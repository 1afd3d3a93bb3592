//! Asks a running daemon, here or on another host, for its snapshots, slow I/Os and history. Answers can come from anyone: their
//! size is limited, text is sanitized as it is read, and impossible figures are rejected. Error messages name the options of
//! `biolat`.

#![deny(unsafe_code)]

mod client;
mod credentials;
mod document;
mod history;
mod history_answer;
mod intervals;
mod remote;
mod target;
mod tls;
mod update;
pub mod validate;

pub use credentials::Credentials;
pub use document::{Document, Endpoint, Versions, parse};
pub use history::history;
pub use intervals::{IntervalSink, Intervals, select_workloads};
pub use remote::{MAX_OUTAGE, Remote, fetch};
pub use target::{PORT, Target};
pub use update::Update;
