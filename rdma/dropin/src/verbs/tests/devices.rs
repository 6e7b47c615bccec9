//! Attributes of a device that the machine does not have.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::abi::Zeroed;
use crate::abi::numbers::IBV_PORT_ACTIVE;
use crate::abi::verbs::{ibv_gid, ibv_port_attr};
use crate::devices::fixed::Fixed;
use crate::object::Object;
use crate::verbs::context::ibv_close_device;
use crate::verbs::device::{ibv_get_device_guid, ibv_get_device_index};
use crate::verbs::device_list::Listed;
use crate::verbs::operations::open;
use crate::verbs::query::{ibv_query_gid, ibv_query_port};

#[test]
fn attributes_are_those_of_the_source() {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let devices = Listed::of(Arc::new(Fixed::new(&[loopback], &[])));
    let device = devices.all().expect("the device").remove(0);
    let again = devices.all().expect("the device").remove(0);
    assert!(Arc::ptr_eq(&device, &again));
    let handle = Object::handle(&device);
    assert_eq!(ibv_get_device_index(handle), Fixed::INDEX.cast_signed());
    let guid = [0, 0, 0, 0xff, 0xfe, 0, 0, 1];
    assert_eq!(ibv_get_device_guid(handle), u64::from_ne_bytes(guid));
    let context = open(&device).expect("descriptors");
    let mut port = ibv_port_attr::zeroed();
    assert_eq!(ibv_query_port(context, 1, (&raw mut port).cast()), 0);
    assert_eq!((port.state, port.gid_tbl_len), (IBV_PORT_ACTIVE, 1));
    // 4096 bytes, which is InfiniBand's largest; 4 lanes of 25 Gb/s.
    assert_eq!(port.active_mtu, 5);
    assert_eq!((port.active_width, port.active_speed), (2, 32));
    let mut first = ibv_gid([0; 16]);
    assert_eq!(ibv_query_gid(context, 1, 0, Some(&mut first)), 0);
    let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
    assert_eq!(first, ibv_gid(mapped));
    assert_eq!(ibv_close_device(context), 0);
}
