//! The results of a collection as plain data, independent of the kernel, Prometheus, HTTP and terminals.

#![forbid(unsafe_code)]

pub mod api;
pub mod band_histogram;
pub mod cgroup;
pub mod device;
pub mod epoch;
pub mod histogram;
pub mod interval;
pub mod io_names;
mod json;
pub mod losses;
pub mod name;
pub mod period;
pub mod saturating;
pub mod shell;
pub mod size_histogram;
pub mod snapshot;
pub mod text;
pub mod version;
