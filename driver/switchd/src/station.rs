//! Ethernet addresses of the switch and of its clients.

/// An Ethernet address.
pub type MacAddress = [u8; 6];

/// First byte of a locally administered unicast address (IEEE 802-2014 §8.4).
const LOCAL: u8 = 0x02;

/// The switch itself, which is the next hop to every client.
pub const SWITCH: MacAddress = [LOCAL, 0x78, 0x77, 0x72, 0xff, 0xff];

/// The address of the client at a place, of a switch of a generation: clients of a former switch
/// keep their addresses, which are none of this one's.
pub(crate) fn of_client(generation: u64, place: u16) -> MacAddress {
    let [a, b, c, ..] = generation.to_le_bytes();
    let [high, low] = place.to_be_bytes();
    let address = [LOCAL, a, b, c, high, low];
    if address[..4] == SWITCH[..4] {
        return [LOCAL, !a, b, c, high, low];
    }
    address
}

/// Whether a client may have kept the address from a former switch.
pub(crate) fn is_a_clients(address: MacAddress) -> bool {
    address[0] == LOCAL && address[..4] != SWITCH[..4]
}
