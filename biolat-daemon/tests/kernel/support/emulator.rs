//! The emulator of this machine (QEMU), whose QMP socket is at the other end of a serial line.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
};

use serde_json::{Value, json};

const LINE: &str = "/dev/ttyS2";

pub(crate) struct Emulator {
    requests: File,
    answers: BufReader<File>,
    number: u64,
}

impl Emulator {
    pub(crate) fn connect() -> Self {
        let requests = OpenOptions::new().write(true).open(LINE).unwrap();
        let answers = BufReader::new(File::open(LINE).unwrap());
        let mut emulator = Self { requests, answers, number: 0 };
        // The line may have echoed part of the emulator's greeting before echo was turned off. An invalid byte makes the emulator
        // discard all earlier input.
        emulator.requests.write_all(b"\x01\n").unwrap();
        emulator.execute("qmp_capabilities", json!({}));
        emulator
    }

    /// Executes a QMP command.
    pub(crate) fn execute(&mut self, command: &str, arguments: Value) {
        self.number += 1;
        let request = json!({"execute": command, "arguments": arguments, "id": self.number});
        self.requests.write_all(format!("{request}\n").as_bytes()).unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(self.answers.read_line(&mut line).unwrap(), 0, "the emulator closed the line");
            // Greetings, events and errors about earlier input can come first.
            let Ok(answer) = serde_json::from_str::<Value>(line.trim()) else { continue };
            if answer["id"] == self.number {
                assert!(answer.get("return").is_some(), "{request}: {answer}");
                return;
            }
        }
    }

    /// Limits a drive to this many I/Os per second; 0 is unlimited.
    pub(crate) fn throttle(&mut self, drive: &str, iops: u64) {
        let limits = json!({
            "id": drive, "bps": 0, "bps_rd": 0, "bps_wr": 0, "iops": iops, "iops_rd": 0, "iops_wr": 0
        });
        self.execute("block_set_io_throttle", limits);
    }

    /// Inserts an NVMe drive into a hot-plug slot.
    pub(crate) fn insert(&mut self, drive: &str, slot: &str) {
        let device = json!({"driver": "nvme", "id": drive, "bus": slot, "drive": drive, "serial": drive});
        self.execute("device_add", device);
    }
}
