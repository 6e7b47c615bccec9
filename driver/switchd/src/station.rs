//! Ethernet addresses of the switch and of its clients.

/// An Ethernet address.
pub type MacAddress = [u8; 6];

/// First bytes of all addresses here: locally administered, unicast (IEEE 802-2014 §8.4).
const PREFIX: [u8; 4] = [0x02, 0x78, 0x77, 0x72];

/// The switch itself, which is the next hop to every client.
pub const SWITCH: MacAddress = [0x02, 0x78, 0x77, 0x72, 0xff, 0xff];

/// The address of the client with a number below 65,535.
pub(crate) fn of_client(number: u16) -> MacAddress {
    let [a, b, c, d] = PREFIX;
    let [high, low] = number.to_be_bytes();
    [a, b, c, d, high, low]
}
