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
    number: u64,
}

impl Emulator {
    pub(crate) fn connect() -> Self {
        let requests = OpenOptions::new().write(true).open(LINE).unwrap();
        let answers = BufReader::new(File::open(LINE).unwrap());
        let mut emulator = Self { requests, answers, number: 0 };
        // The line may have sent a part of the emulator's greeting back to it before it was told not to. What is
        // no part of any request makes it forget what came before.
        emulator.requests.write_all(b"\x01\n").unwrap();
        emulator.tell("qmp_capabilities", json!({}));
        emulator
    }

    /// Has a command carried out.
    pub(crate) fn tell(&mut self, command: &str, arguments: Value) {
        self.number += 1;
        let request = json!({"execute": command, "arguments": arguments, "id": self.number});
        self.requests.write_all(format!("{request}\n").as_bytes()).unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(self.answers.read_line(&mut line).unwrap(), 0, "the emulator is silent");
            // Greetings, events and complaints about what was before come in between.
            let Ok(answer) = serde_json::from_str::<Value>(line.trim()) else { continue };
            if answer["id"] == self.number {
                assert!(answer.get("return").is_some(), "{request}: {answer}");
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
