//! The emulator that this machine runs in: its control socket is at the other end of a serial line.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
};

use serde_json::{Value, json};

const LINE: &str = "/dev/ttyS2";

pub(crate) struct Emulator {
    requests: File,
    answers: BufReader<File>,
}

impl Emulator {
    pub(crate) fn connect() -> Self {
        let requests = OpenOptions::new().write(true).open(LINE).unwrap();
        let answers = BufReader::new(File::open(LINE).unwrap());
        let mut emulator = Self { requests, answers };
        emulator.tell("qmp_capabilities", json!({}));
        emulator
    }

    /// Has a command carried out.
    pub(crate) fn tell(&mut self, command: &str, arguments: Value) {
        let request = json!({"execute": command, "arguments": arguments});
        self.requests.write_all(format!("{request}\n").as_bytes()).unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(self.answers.read_line(&mut line).unwrap(), 0, "the emulator is silent");
            // Greetings and events come in between.
            let Ok(answer) = serde_json::from_str::<Value>(line.trim()) else { continue };
            assert!(answer.get("error").is_none(), "{request}: {answer}");
            if answer.get("return").is_some() {
                return;
            }
        }
    }

    /// Lets a drive do only so many I/Os a second; any number if it is 0.
    pub(crate) fn throttle(&mut self, drive: &str, iops: u64) {
        let limits = json!({
            "id": drive, "bps": 0, "bps_rd": 0, "bps_wr": 0, "iops": iops, "iops_rd": 0, "iops_wr": 0
        });
        self.tell("block_set_io_throttle", limits);
    }

    /// Puts an NVMe drive into a bay.
    pub(crate) fn put_in(&mut self, drive: &str, bay: &str) {
        let device = json!({"driver": "nvme", "id": drive, "bus": bay, "drive": drive, "serial": drive});
        self.tell("device_add", device);
    }
}
