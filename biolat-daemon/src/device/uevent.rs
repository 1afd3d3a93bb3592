//! The kernel's announcements of disks that come and go, over a netlink socket that takes no right.

use std::{
    io,
    mem::{size_of, zeroed},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use tokio::io::unix::AsyncFd;

/// Multicast group of the kernel's own messages; udev's go to another.
const KERNEL_GROUP: u32 = 1;

/// A subscription.
pub struct Uevents(AsyncFd<OwnedFd>);

impl Uevents {
    /// Subscribes. Call it from within the runtime.
    pub fn subscribe() -> io::Result<Self> {
        // SAFETY: a plain call; the result is checked.
        let fd = unsafe {
            libc::socket(
                libc::AF_NETLINK,
                libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                libc::NETLINK_KOBJECT_UEVENT,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the socket is ours alone.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: plain integers, for which zero is valid.
        let mut address: libc::sockaddr_nl = unsafe { zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = KERNEL_GROUP;
        let size = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: the address is valid for its size.
        if unsafe { libc::bind(fd, (&raw const address).cast(), size) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: an `OwnedFd` gives the same descriptor for as long as it lives, and closes it only then.
        Ok(Self(unsafe { AsyncFd::register(socket) }?))
    }

    /// Waits until something happened to a disk. Messages that were dropped count as such.
    pub async fn next(&self) -> io::Result<()> {
        let mut message = [0; 8192];
        loop {
            let mut ready = self.0.readable().await?;
            let Ok(received) = ready.try_io(|socket| receive(socket.get_ref(), &mut message)) else {
                continue;
            };
            match received {
                Ok(length) if is_about_a_disk(&message[..length]) => return Ok(()),
                Ok(_) => {}
                // The queue overflowed: something was lost, perhaps a disk.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is valid for its length.
    let length = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}

/// `add@/devices/…\0ACTION=add\0…\0SUBSYSTEM=block\0DEVTYPE=disk\0…`
fn is_about_a_disk(message: &[u8]) -> bool {
    let mut fields = message.split(|&byte| byte == 0);
    fields.clone().any(|field| field == b"SUBSYSTEM=block") && fields.any(|field| field == b"DEVTYPE=disk")
}

#[cfg(test)]
mod tests {
    use super::is_about_a_disk;

    #[test]
    fn disks_and_others() {
        let disk = b"change@/devices/virtual/block/loop3\0ACTION=change\0SUBSYSTEM=block\0DEVTYPE=disk\0";
        assert!(is_about_a_disk(disk));
        assert!(!is_about_a_disk(b"add@/x\0ACTION=add\0SUBSYSTEM=block\0DEVTYPE=partition\0"));
        assert!(!is_about_a_disk(b"add@/x\0ACTION=add\0SUBSYSTEM=net\0"));
        assert!(!is_about_a_disk(b"libudev\0garbage"));
    }
}
