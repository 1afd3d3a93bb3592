//! Runs a Prometheus server, and queries its API and its own metrics.

use std::{
    fs::{self, File},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{folder::Folder, http, own_metrics::OwnMetrics};

/// A running server, killed on drop.
pub(crate) struct Prometheus {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) folder: Folder,
}

/// Time allowed for a server to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Flags for all runs. Queries of a large fleet take a long time, and data of any age must be kept.
const FLAGS: [&str; 4] = [
    "--web.enable-admin-api",
    "--web.enable-lifecycle",
    "--query.timeout=10m",
    "--storage.tsdb.retention.time=20y",
];

impl Prometheus {
    /// Returns the Prometheus binary that `cargo xtask fleet` passes in the environment.
    pub(crate) fn program() -> Result<PathBuf> {
        let program = std::env::var_os("BIOLAT_TEST_PROMETHEUS").map(PathBuf::from);
        let program = program.context("BIOLAT_TEST_PROMETHEUS is not set to a Prometheus 3.8 or later")?;
        if !program.is_file() {
            bail!("no Prometheus at {}: run .ci/install", program.display());
        }
        Ok(program)
    }

    /// Starts a server on a free loopback port and waits until it is ready.
    pub(crate) async fn start(config: &str, flags: &[&str]) -> Result<Self> {
        let program = Self::program()?;
        let folder = Folder::temporary()?;
        fs::write(folder.path().join("prometheus.yml"), config)?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let child = Command::new(&program)
            .current_dir(folder.path())
            .arg(format!("--web.listen-address={address}"))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .args(FLAGS)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.path().join("log"))?)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut server = Self { child, address, folder };
        server.wait_until_ready().await?;
        Ok(server)
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("Prometheus on {} exited ({status}): {}", self.address, self.last_log_line());
            }
            if http::get(self.address, "/-/ready").await.is_ok_and(|response| response.status.is_success()) {
                return Ok(());
            }
            if began.elapsed() > START_TIMEOUT {
                bail!("Prometheus is not ready after {START_TIMEOUT:?}: {}", self.last_log_line());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn last_log_line(&self) -> String {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        log.lines().last().unwrap_or("it has logged nothing").to_owned()
    }

    /// Writes a file next to the configuration.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.folder.path().join(name), text)?)
    }

    /// Reloads the configuration.
    pub(crate) async fn reload(&self) -> Result<()> {
        let response = http::post_form(self.address, "/-/reload", &[]).await?;
        if !response.status.is_success() {
            bail!("Prometheus rejected its configuration: {}", response.text());
        }
        Ok(())
    }

    /// Posts a form to the API and returns the data in the response.
    pub(crate) async fn api(&self, path: &str, fields: &[(&str, &str)]) -> Result<Value> {
        data(path, &http::post_form(self.address, &format!("/api/v1/{path}"), fields).await?)
    }

    /// Returns the state of the server's rules or targets from the API.
    pub(crate) async fn state(&self, path: &str) -> Result<Value> {
        data(path, &http::get(self.address, &format!("/api/v1/{path}")).await?)
    }

    /// Returns the series that an instant query yields. The time is in seconds.
    pub(crate) async fn query(&self, expression: &str, time: f64) -> Result<Vec<Value>> {
        let data = self.api("query", &[("query", expression), ("time", &time.to_string())]).await;
        series(data, expression)
    }

    /// Returns the value of an instant query that yields one series, or zero if it yields none.
    pub(crate) async fn value(&self, expression: &str, time: f64) -> Result<f64> {
        let series = self.query(expression, time).await?;
        let Some(value) = series.first().and_then(|series| series["value"][1].as_str()) else {
            return Ok(0.0);
        };
        value.parse().with_context(|| format!("{expression} is {value}"))
    }

    /// Returns the series that a range query yields. Times and step are in seconds.
    pub(crate) async fn query_range(
        &self,
        expression: &str,
        from: f64,
        to: f64,
        step: f64,
    ) -> Result<Vec<Value>> {
        let [from, to, step] = [from, to, step].map(|seconds| seconds.to_string());
        let fields = [("query", expression), ("start", &from), ("end", &to), ("step", &step)];
        series(self.api("query_range", &fields).await, expression)
    }

    /// Returns the server's own metrics.
    pub(crate) async fn own_metrics(&self) -> Result<OwnMetrics> {
        Ok(OwnMetrics::parse(&http::get(self.address, "/metrics").await?.text()))
    }

    /// Makes the server collect garbage.
    pub(crate) async fn collect_garbage(&self) -> Result<()> {
        http::get(self.address, "/debug/pprof/heap?gc=1").await?;
        Ok(())
    }

    /// Returns the server's resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kilobytes.context("/proc has no VmRSS of Prometheus")? * 1024)
    }

    /// Writes all data as blocks, including data in memory, and returns their directory.
    pub(crate) async fn snapshot(&self) -> Result<PathBuf> {
        let data = self.api("admin/tsdb/snapshot", &[]).await?;
        let name = data["name"].as_str().context("a snapshot without a name")?;
        Ok(self.folder.path().join("data/snapshots").join(Path::new(name)))
    }
}

fn data(path: &str, response: &http::Response) -> Result<Value> {
    let mut json: Value = serde_json::from_slice(&response.body).with_context(|| {
        format!("Prometheus responded to {path} with {}: {}", response.status, response.text())
    })?;
    if json["status"] != "success" {
        bail!("{}", json["error"].as_str().unwrap_or("an error without a message"));
    }
    Ok(json["data"].take())
}

fn series(data: Result<Value>, expression: &str) -> Result<Vec<Value>> {
    match data.with_context(|| expression.to_owned())?["result"].take() {
        Value::Array(series) => Ok(series),
        other => bail!("{expression} has no series: {other}"),
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the current time in seconds since the epoch.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
