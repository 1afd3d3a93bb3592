//! Kernel tracing as an independent counter of tracepoint events.

use std::{fs, path::PathBuf};

use super::block;

const TRACING: &str = "/sys/kernel/debug/tracing";

/// Whether the kernel has this event.
pub(crate) fn has_event(event: &str) -> bool {
    PathBuf::from(TRACING).join("events/block").join(event).exists()
}

/// A counter of a device's events.
pub(crate) struct Events {
    folder: PathBuf,
    event: &'static str,
}

impl Events {
    /// Starts counting in a separate tracing instance.
    pub(crate) fn count(event: &'static str, device: &str) -> Self {
        let folder = PathBuf::from(TRACING).join("instances/biolat");
        fs::create_dir(&folder).unwrap();
        let events = Self { folder, event };
        let (major, minor) = {
            let number = block::attribute(device, "dev");
            let (major, minor) = number.split_once(':').unwrap();
            (major.parse::<u64>().unwrap(), minor.parse::<u64>().unwrap())
        };
        fs::write(events.folder.join("buffer_size_kb"), "4096").unwrap();
        let event = events.folder.join("events/block").join(events.event);
        fs::write(event.join("filter"), format!("dev == {}", major << 20 | minor)).unwrap();
        fs::write(event.join("enable"), "1").unwrap();
        events
    }

    /// Stops counting, and returns the number of events.
    pub(crate) fn stop(self) -> usize {
        fs::write(self.folder.join("events/block").join(self.event).join("enable"), "0").unwrap();
        let trace = fs::read_to_string(self.folder.join("trace")).unwrap();
        trace.lines().filter(|line| line.contains(&format!(" {}: ", self.event))).count()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}
