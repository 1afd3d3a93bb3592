//! NVMe over TCP: a target on this machine, and two paths to it.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use super::{block, daemon::wait_for, null_blk::NullBlk, run};

const NQN: &str = "biolat";
const SERVICES: [&str; 2] = ["4421", "4422"];

/// A multipath device with two paths, removed on drop.
pub(crate) struct TwoPaths {
    /// Name of the multipath device.
    pub(crate) head: String,
    pub(crate) paths: [String; 2],
    target: Target,
}

/// A target with a port for each path.
struct Target {
    subsystem: PathBuf,
    ports: [PathBuf; 2],
    /// The disk behind the namespace. It is bio-based: completions of requests of its own could interrupt the probe.
    _drive: NullBlk,
}

impl TwoPaths {
    /// Connects both paths to a target that takes 100 ms for each I/O.
    pub(crate) fn connect() -> Self {
        Self::to(NullBlk::with_latency(100_000_000, &[("queue_mode", "0")]))
    }

    /// Connects both paths to a target that completes each I/O immediately.
    pub(crate) fn fast() -> Self {
        Self::to(NullBlk::new(&[("irqmode", "0"), ("queue_mode", "0")]))
    }

    fn to(drive: NullBlk) -> Self {
        run("modprobe", &["nvmet-tcp"]);
        run("modprobe", &["nvme-tcp"]);
        let target = Target::create(drive);
        for service in SERVICES {
            let options = format!(
                "transport=tcp,traddr=127.0.0.1,trsvcid={service},nqn={NQN},nr_io_queues=2,reconnect_delay=1"
            );
            fs::write("/dev/nvme-fabrics", options).unwrap();
        }
        let disks = || block::devices_with("device/subsysnqn", NQN);
        wait_for("the head and two paths", || disks().len() == 3);
        let head = disks().into_iter().find(|name| block::attribute(name, "hidden") == "0").unwrap();
        wait_for("its size", || block::number(&head, "size") > 0);
        let path_over = |service| {
            let is_over = |name: &String| block::attribute(name, "device/address").contains(service);
            disks().into_iter().find(is_over).unwrap()
        };
        block::set_attribute(&head, "device/iopolicy", "round-robin");
        Self { head, paths: SERVICES.map(path_over), target }
    }

    /// Disconnects the second path; its port then refuses new connections.
    pub(crate) fn disconnect_second(&self) {
        fs::remove_file(self.target.link(1)).unwrap();
    }

    pub(crate) fn reconnect_second(&self) {
        symlink(&self.target.subsystem, self.target.link(1)).unwrap();
    }

    /// Sets the ANA state of the second path.
    pub(crate) fn set_access_of_second(&self, access: &str) {
        self.target.set_access(1, access);
    }

    /// Sets the ANA state of both paths.
    pub(crate) fn set_access(&self, access: &str) {
        for port in 0..SERVICES.len() {
            self.target.set_access(port, access);
        }
    }
}

impl Drop for TwoPaths {
    fn drop(&mut self) {
        for path in &self.paths {
            let _ = fs::write(format!("/sys/block/{path}/device/delete_controller"), "1");
        }
    }
}

impl Target {
    fn create(drive: NullBlk) -> Self {
        let root = Path::new("/sys/kernel/config/nvmet");
        let subsystem = root.join("subsystems").join(NQN);
        let namespace = subsystem.join("namespaces/1");
        fs::create_dir(&subsystem).unwrap();
        fs::write(subsystem.join("attr_allow_any_host"), "1").unwrap();
        fs::create_dir(&namespace).unwrap();
        fs::write(namespace.join("device_path"), drive.path().to_str().unwrap()).unwrap();
        fs::write(namespace.join("enable"), "1").unwrap();
        let ports = SERVICES.map(|service| root.join("ports").join(service));
        let target = Self { subsystem, ports, _drive: drive };
        for (number, service) in SERVICES.into_iter().enumerate() {
            let port = &target.ports[number];
            fs::create_dir(port).unwrap();
            for (attribute, value) in
                [("trtype", "tcp"), ("adrfam", "ipv4"), ("traddr", "127.0.0.1"), ("trsvcid", service)]
            {
                fs::write(port.join(format!("addr_{attribute}")), value).unwrap();
            }
            symlink(&target.subsystem, target.link(number)).unwrap();
        }
        target
    }

    fn set_access(&self, port: usize, access: &str) {
        fs::write(self.ports[port].join("ana_groups/1/ana_state"), access).unwrap();
    }

    /// Returns the path of the symlink that exports the subsystem through a port.
    fn link(&self, port: usize) -> PathBuf {
        self.ports[port].join("subsystems").join(NQN)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        for (number, port) in self.ports.iter().enumerate() {
            let _ = fs::remove_file(self.link(number));
            let _ = fs::remove_dir(port);
        }
        let _ = fs::remove_dir(self.subsystem.join("namespaces/1"));
        let _ = fs::remove_dir(&self.subsystem);
    }
}
