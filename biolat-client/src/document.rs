//! The documents that biolat reads from a daemon's API.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use biolat_model::{
    api::{self, ApiHistory, ApiSlowLog},
    device::Selection,
    snapshot::Snapshot,
    text::sanitize,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{target::PATH, validate};

/// The endpoint of a document.
pub trait Endpoint: Send + Sync + 'static {
    const PATH: &'static str;
    /// Name in messages.
    const NAME: &'static str;
    /// The command that requires this endpoint, which older daemons lack.
    const COMMAND: &'static str;
}

/// A document that is read as a whole.
pub trait Document: Endpoint + DeserializeOwned + Serialize {
    /// The daemon's version.
    fn biolat(&self) -> &str;
    /// The host's name.
    fn host(&self) -> &str;
    /// Interval between collections.
    fn interval(&self) -> Duration;

    /// Returns an error if the figures are impossible.
    fn validate(&self) -> Result<()>;

    /// Removes other devices.
    fn select(&mut self, selection: &Selection);
}

impl Endpoint for Snapshot {
    const PATH: &'static str = PATH;
    const NAME: &'static str = "a biolat snapshot";
    const COMMAND: &'static str = "biolat --host";
}

impl Endpoint for ApiSlowLog {
    const PATH: &'static str = "/api/v1/slow";
    const NAME: &'static str = "a biolat log of slow I/Os";
    const COMMAND: &'static str = "biolat slow";
}

impl Endpoint for ApiHistory {
    const PATH: &'static str = "/api/v1/history";
    const NAME: &'static str = "a biolat history";
    const COMMAND: &'static str = "biolat at";
}

impl Document for Snapshot {
    fn biolat(&self) -> &str {
        &self.biolat
    }

    fn host(&self) -> &str {
        &self.host
    }

    fn interval(&self) -> Duration {
        self.interval
    }

    fn validate(&self) -> Result<()> {
        validate::snapshot(self)
    }

    fn select(&mut self, selection: &Selection) {
        self.devices.retain(|view| selection.shows(&view.device.name));
    }
}

impl Document for ApiSlowLog {
    fn biolat(&self) -> &str {
        &self.biolat
    }

    fn host(&self) -> &str {
        &self.host
    }

    fn interval(&self) -> Duration {
        self.interval
    }

    fn validate(&self) -> Result<()> {
        validate::slow_log(self)
    }

    /// Record numbers count the I/Os of all devices, so filtering is left to the reader of the log.
    fn select(&mut self, _: &Selection) {}
}

/// The fields that every document has.
#[derive(Deserialize)]
pub struct Versions {
    version: u32,
    biolat: String,
}

impl Versions {
    /// Returns an error unless this version of biolat can read the document.
    pub fn check(&self) -> Result<()> {
        if self.version != api::VERSION {
            bail!(
                "biolat {} there has version {} of the API, but this one reads version {}: use the same version of biolat",
                sanitize::text(&self.biolat),
                self.version,
                api::VERSION
            );
        }
        Ok(())
    }
}

/// Reads a document, and returns an error if its figures are impossible.
pub fn parse<T: Document>(json: &[u8]) -> Result<T> {
    // Check the version first: another version can have other fields.
    let versions: Versions =
        serde_json::from_slice(json).map_err(|error| anyhow!("the answer is not {}: {error}", T::NAME))?;
    versions.check()?;
    let document: T = serde_json::from_slice(json).map_err(malformed)?;
    document.validate()?;
    Ok(document)
}

/// Sanitizes the error, which can quote the response.
pub(super) fn malformed(error: serde_json::Error) -> anyhow::Error {
    anyhow!("malformed answer: {}", sanitize::text(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::{
        fmt::Debug,
        time::{Duration, UNIX_EPOCH},
    };

    use biolat_model::{
        api::ApiHistory,
        device::{Holder, MultipathPath},
        period::{Period, Summary},
        snapshot::Snapshot,
    };
    use biolat_testing::samples;
    use serde::{Serialize, de::DeserializeOwned};
    use serde_json::Value;

    const EVIL: &str = "a\u{1b}[2J\r\u{9b}b";

    /// Replaces all text, and adds an entry to each list of named counts. Returns the number of texts.
    fn poison(value: &mut Value) -> usize {
        match value {
            Value::String(text) => {
                EVIL.clone_into(text);
                1
            }
            Value::Array(elements) => elements.iter_mut().map(poison).sum(),
            Value::Object(members) => {
                // Unknown values are ignored here.
                let is_workload = members.contains_key("cgroup");
                members.retain(|name, _| name != "throttling" && !(is_workload && name == "kind"));
                let has_names = |(name, _): &(&String, &mut Value)| {
                    matches!(name.as_str(), "errors" | "lost" | "nvme_events")
                };
                let named =
                    members.iter_mut().filter(has_names).filter_map(|(_, counts)| counts.as_object_mut());
                let added = named.map(|counts| counts.insert(EVIL.to_owned(), 1.into())).count();
                let texts = members.iter_mut().filter(|(name, _)| *name != "phases");
                added + texts.map(|(_, value)| poison(value)).sum::<usize>()
            }
            _ => 0,
        }
    }

    fn is_harmless<T: Serialize + DeserializeOwned + Debug>(document: &T, texts: usize) {
        let mut json = serde_json::to_value(document).unwrap();
        assert_eq!(poison(&mut json), texts);
        let shown = format!("{:?}", serde_json::from_value::<T>(json).unwrap());
        assert!(
            !shown.contains(r"\u{1b}") && !shown.contains(r"\u{9b}") && !shown.contains(r"\r"),
            "{shown}"
        );
        assert_eq!(shown.matches("[2J").count(), texts, "{shown}");
    }

    #[test]
    fn text_is_sanitized() {
        let histogram = || samples::histogram(0, &[], 0, 0.0);
        let mut op = samples::op("read", 1, histogram(), histogram(), histogram());
        op.sizes = Some(samples::sizes(&[("le_4KiB", &[(12, 400)], 1e-4)]));
        let mut device = samples::device("sda", 9.0, vec![op]);
        device.device.holders = vec![String::new()];
        device.device.path_of = Some(String::new());
        let holder = || String::new();
        device.device.stack = [Holder { device: holder(), kind: holder(), name: holder(), depth: 1 }].into();
        let [of, transport, address, state] = Default::default();
        device.device.path = Some(MultipathPath { of, transport, address, state });
        device.nvme_events = [("retry".into(), 1)].into();
        // Per device with an op: 10 texts, a holder, one stack entry, a path, an event; the op, a band and its errors.
        let of_device = 10 + 1 + 3 + 4 + 1 + 1 + 1 + 1;
        let workloads = vec![samples::workload("/", vec![samples::usage("sda", "read", 1, 0.0, 0.0)])];
        let snapshot = samples::snapshot(1.0, vec![device]);
        let snapshot = Snapshot { workloads: Some(workloads), ..snapshot };
        // The version, the host and the losses; nine for the workload and two for its usage.
        is_harmless(&snapshot, of_device + 3 + 11);
        let mut io = samples::slow_io(1, "sda");
        io.workload = Some(String::new());
        is_harmless(&samples::slow_log(vec![io.clone()]), 2 + 4);
        let summary = Summary {
            device: String::new(),
            op: String::new(),
            ios: 1,
            bytes: 1,
            errors: 0,
            slowest_seconds: 1.0,
        };
        let interval = Period {
            began: samples::at(1.0),
            ended: samples::at(6.0),
            length: Duration::from_secs(5),
            collections: 1,
            failures: 0,
            devices: snapshot.devices,
            workloads: snapshot.workloads,
            summary: vec![summary],
            lost: snapshot.lost,
            slow: vec![io],
            slow_dropped: 0,
        };
        let history = ApiHistory::of("db1", Duration::from_secs(5), [UNIX_EPOCH; 2], None);
        let history = ApiHistory { intervals: vec![interval], ..history };
        is_harmless(&history, 2 + of_device + 11 + 2 + 1 + 4);
    }
}
