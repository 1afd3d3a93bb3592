//! The client's network, the unit by which connections and failed logins are counted.

use std::net::IpAddr;

/// Returns the network of a client: its IPv4 address, or the /64 of its IPv6 address, because a host usually has a whole /64.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        four => four,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::network;

    #[test]
    fn groups_ipv6_by_64_and_ipv4_by_address() {
        let network = |text: &str| network(text.parse::<IpAddr>().unwrap()).to_string();
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(network("192.0.2.7"), "192.0.2.7");
        assert_eq!(network("::ffff:192.0.2.7"), "192.0.2.7");
    }
}
