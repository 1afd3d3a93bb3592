//! Receives the kernel's uevents about disks from a netlink socket. Opening it needs no capability.

use std::{io, net::UdpSocket};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind,
    netlink::{KOBJECT_UEVENT, SocketAddrNetlink},
    socket_with,
};

/// Multicast group of the kernel's own messages. udev sends to another group.
const KERNEL_GROUP: u32 = 1;

/// Longer than any uevent (the kernel's `UEVENT_BUFFER_SIZE` is 2048).
const MESSAGE_BYTES: usize = 8192;

/// A subscription to uevents.
pub struct Uevents(tokio::net::UdpSocket);

impl Uevents {
    /// Subscribes. Must be called within a tokio runtime.
    pub fn subscribe() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(KOBJECT_UEVENT))?;
        bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP))?;
        // The socket is not UDP, but tokio has no other datagram type that is safe to construct. Only recv(2) is used.
        Ok(Self(tokio::net::UdpSocket::from_std(UdpSocket::from(socket))?))
    }

    /// Waits for an event about a disk. Messages dropped by the kernel count as an event, because one of them could have been
    /// about a disk.
    pub async fn next(&self) -> io::Result<()> {
        let mut message = [0; MESSAGE_BYTES];
        loop {
            match self.0.recv(&mut message).await {
                Ok(length) if is_about_a_disk(&message[..length]) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether a message is about a disk: `add@/devices/…\0ACTION=add\0…\0SUBSYSTEM=block\0DEVTYPE=disk\0…`
fn is_about_a_disk(message: &[u8]) -> bool {
    let mut fields = message.split(|&byte| byte == 0);
    fields.clone().any(|field| field == b"SUBSYSTEM=block") && fields.any(|field| field == b"DEVTYPE=disk")
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::is_about_a_disk;

    #[test]
    fn recognizes_disks() {
        let disk = b"change@/devices/virtual/block/loop3\0ACTION=change\0SUBSYSTEM=block\0DEVTYPE=disk\0";
        assert!(is_about_a_disk(disk));
        assert!(!is_about_a_disk(b"add@/x\0ACTION=add\0SUBSYSTEM=block\0DEVTYPE=partition\0"));
        assert!(!is_about_a_disk(b"add@/x\0ACTION=add\0SUBSYSTEM=net\0"));
        assert!(!is_about_a_disk(b"libudev\0garbage"));
    }

    /// Generates a field that does not identify a disk.
    fn other_field() -> impl Strategy<Value = String> {
        "[A-Z]{1,12}=[ -~]{0,24}"
            .prop_filter("field of a disk", |field| field != "SUBSYSTEM=block" && field != "DEVTYPE=disk")
    }

    fn datagram(fields: &[String]) -> Vec<u8> {
        fields.iter().flat_map(|field| [field.as_bytes(), b"\0"].concat()).collect()
    }

    proptest! {
        #[test]
        fn parses_any_datagram_without_panic(message: Vec<u8>) {
            let _ = is_about_a_disk(&message);
        }

        /// The order of the fields does not matter.
        #[test]
        fn recognizes_disk_among_other_fields(
            mut fields in vec(other_field(), 0..12),
            [subsystem, device_type]: [prop::sample::Index; 2],
        ) {
            fields.insert(subsystem.index(fields.len() + 1), "SUBSYSTEM=block".to_owned());
            fields.insert(device_type.index(fields.len() + 1), "DEVTYPE=disk".to_owned());
            let message = datagram(&fields);
            prop_assert!(is_about_a_disk(&message));
            prop_assert!(is_about_a_disk(&message[..message.len() - 1]), "without the last terminator");
        }

        #[test]
        fn requires_both_fields(mut fields in vec(other_field(), 0..12), subsystem: bool) {
            prop_assert!(!is_about_a_disk(&datagram(&fields)));
            fields.push(if subsystem { "SUBSYSTEM=block" } else { "DEVTYPE=disk" }.to_owned());
            prop_assert!(!is_about_a_disk(&datagram(&fields)));
        }
    }
}
