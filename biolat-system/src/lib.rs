//! The process and the machine it runs on: privileges per thread, mount points of sysfs and procfs, local time, log lines, the
//! service manager, the C library.

#![deny(unsafe_code)]

pub mod c_library;
pub mod clock;
pub mod cpus;
pub mod host;
pub mod log_lines;
pub mod passed_fds;
pub mod process;
pub mod rights;
pub mod runtime;
pub mod service_manager;
pub mod terminal;
pub mod wall_time;
