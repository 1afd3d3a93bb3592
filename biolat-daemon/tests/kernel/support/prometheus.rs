//! A Prometheus server for a test.

use std::{
    ffi::OsStr,
    fs,
    net::{SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use super::{Folder, http};

/// A running server; killed when it is dropped.
pub(crate) struct Prometheus {
    child: Child,
    address: SocketAddr,
    _folder: Folder,
}

impl Prometheus {
    /// The one in PATH, with native histograms.
    pub(crate) fn scraping(target: SocketAddr) -> Self {
        Self::start(target, &["--enable-feature=native-histograms"])
    }

    /// The one in PATH, with these flags.
    pub(crate) fn start(target: SocketAddr, features: &[&str]) -> Self {
        let name = if features.is_empty() { "prometheus-classic" } else { "prometheus" };
        let config = format!(
            "scrape_configs:\n- job_name: biolat\n  scrape_interval: 500ms\n  scrape_timeout: 500ms\n  \
             static_configs:\n  - targets: ['{target}']\n"
        );
        Self::run(name, "prometheus".as_ref(), features, &[("prometheus.yml", &config)])
    }

    /// Any program, with these files in a folder: `prometheus.yml` and the files that it names.
    pub(crate) fn run(name: &str, program: &OsStr, flags: &[&str], files: &[(&str, &str)]) -> Self {
        let folder = Folder::new(name, false);
        for (file, text) in files {
            fs::write(folder.0.join(file), text).unwrap();
        }
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new(program)
            .arg(format!("--config.file={}", folder.0.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.0.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .args(flags)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        Self { child, address, _folder: folder }
    }

    /// The data of an API response; `None` while there is no response.
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        let answer = http::get(self.address, &format!("/api/v1/{path}"), "").ok()?;
        let mut json: Value = serde_json::from_slice(&answer.body).ok()?;
        assert!(answer.status != 400, "{path}: {}", json["error"]);
        Some(json["data"].take())
    }

    /// The result of an instant query.
    pub(crate) fn vector(&self, query: &str) -> Vec<Value> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let data = self.get(&format!("query?query={escaped}"));
        data.and_then(|mut data| data["result"].as_array_mut().map(std::mem::take)).unwrap_or_default()
    }

    /// The one value of an instant query.
    pub(crate) fn query(&self, query: &str) -> Option<f64> {
        self.vector(query).first()?["value"][1].as_str()?.parse().ok()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
