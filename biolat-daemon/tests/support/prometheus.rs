//! A Prometheus server process.

use std::{
    ffi::OsStr,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
};

/// A running server, killed on drop.
pub(crate) struct PrometheusServer {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl PrometheusServer {
    /// Starts `program` with a config file, a data folder and flags.
    pub(crate) fn start(program: &OsStr, config: &Path, data: &Path, flags: &[&str]) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new(program)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address={address}"))
            .args(flags)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        Self { child, address }
    }
}

impl Drop for PrometheusServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
