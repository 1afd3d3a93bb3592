//! The kernel's announcements of disks that come and go, from a netlink socket. Opening one needs no capability.

use std::{io, net::UdpSocket};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind,
    netlink::{KOBJECT_UEVENT, SocketAddrNetlink},
    socket_with,
};

/// Multicast group of the kernel's own messages; udev's go to another.
const KERNEL_GROUP: u32 = 1;

/// Longer than any uevent (the kernel's `UEVENT_BUFFER_SIZE` is 2048).
const MESSAGE_BYTES: usize = 8192;

/// A subscription to uevents.
pub struct Uevents(tokio::net::UdpSocket);

impl Uevents {
    /// Subscribes. Must be called within the runtime.
    pub fn subscribe() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(KOBJECT_UEVENT))?;
        bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP))?;
        // Not UDP, but tokio has no type for other datagram sockets that is safe to construct. Only recv(2) is used.
        Ok(Self(tokio::net::UdpSocket::from_std(UdpSocket::from(socket))?))
    }

    /// Waits for an event of a disk. If the kernel dropped messages, one of them may have been such an event, so that counts
    /// as one.
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

/// `add@/devices/…\0ACTION=add\0…\0SUBSYSTEM=block\0DEVTYPE=disk\0…`
fn is_about_a_disk(message: &[u8]) -> bool {
    let mut fields = message.split(|&byte| byte == 0);
    fields.clone().any(|field| field == b"SUBSYSTEM=block") && fields.any(|field| field == b"DEVTYPE=disk")
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::is_about_a_disk;

    #[test]
    fn disks_and_others() {
        let disk = b"change@/devices/virtual/block/loop3\0ACTION=change\0SUBSYSTEM=block\0DEVTYPE=disk\0";
        assert!(is_about_a_disk(disk));
        assert!(!is_about_a_disk(b"add@/x\0ACTION=add\0SUBSYSTEM=block\0DEVTYPE=partition\0"));
        assert!(!is_about_a_disk(b"add@/x\0ACTION=add\0SUBSYSTEM=net\0"));
        assert!(!is_about_a_disk(b"libudev\0garbage"));
    }

    /// A field of a uevent that says nothing about disks.
    fn other_field() -> impl Strategy<Value = String> {
        "[A-Z]{1,12}=[ -~]{0,24}"
            .prop_filter("a disk's field", |field| field != "SUBSYSTEM=block" && field != "DEVTYPE=disk")
    }

    fn datagram(fields: &[String]) -> Vec<u8> {
        fields.iter().flat_map(|field| [field.as_bytes(), b"\0"].concat()).collect()
    }

    proptest! {
        #[test]
        fn any_datagram_is_read_without_a_panic(message: Vec<u8>) {
            let _ = is_about_a_disk(&message);
        }

        /// Whatever the order of the fields.
        #[test]
        fn a_disk_is_found_among_other_fields(
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
        fn one_of_the_two_fields_is_not_enough(mut fields in vec(other_field(), 0..12), subsystem: bool) {
            prop_assert!(!is_about_a_disk(&datagram(&fields)));
            fields.push(if subsystem { "SUBSYSTEM=block" } else { "DEVTYPE=disk" }.to_owned());
            prop_assert!(!is_about_a_disk(&datagram(&fields)));
        }
    }
}
