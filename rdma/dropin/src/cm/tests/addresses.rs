//! Binding and resolving over a device that the machine does not have, with a loopback address of
//! its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use nix::errno::Errno;

use crate::abi::cm::{rdma_cm_id, rdma_event_channel};
use crate::backend::EventTarget;
use crate::backend::testbed::Alone;
use crate::cm::events::{rdma_create_event_channel, rdma_destroy_event_channel};
use crate::cm::id::{Id, Phase};
use crate::cm::life::rdma_destroy_id;
use crate::cm::numbers::EventKind::{AddressResolved, RouteResolved};
use crate::cm::resolving::{bind, rdma_resolve_route, resolve};
use crate::cm::testbed::{expect_event, found, is_quiet, new_id, shown};
use crate::devices::fixed::Fixed;
use crate::object::Object;
use crate::verbs::device::Targets;
use crate::verbs::device_list::Listed;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LINK_LOCAL: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));
/// Addresses for documentation, which no interface has (RFC 5737 §3).
const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
const PORT: u16 = 7471;

/// A program whose only device has addresses of these kinds, and one peer.
struct Program {
    devices: Listed,
    channel: *mut rdma_event_channel,
}

impl Program {
    fn new() -> Self {
        let addresses = [OWN, LOOPBACK, LINK_LOCAL];
        Self {
            devices: Listed::of(Arc::new(Fixed::new(&addresses, &[PEER]))),
            channel: rdma_create_event_channel(),
        }
    }

    fn id(&self) -> (*mut rdma_cm_id, Arc<Id>) {
        let handle = new_id(self.channel);
        (handle, found(handle))
    }

    /// Gives the device an RNIC whose address is the loopback address.
    fn open(&self) -> Alone {
        let devices = self.devices.all().expect("the device");
        let device = devices.first().expect("the device").body();
        let targets: Arc<dyn EventTarget> = Arc::<Targets>::clone(device.targets());
        let rnic = Alone::open(|_side| LOOPBACK, targets);
        device.set_backend(&rnic.backend());
        rnic
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        rdma_destroy_event_channel(self.channel);
    }
}

fn at(address: IpAddr) -> SocketAddr {
    SocketAddr::new(address, PORT)
}

#[test]
fn address_is_resolved_to_its_device_and_source() {
    for (remote, source) in [(LOOPBACK, LOOPBACK), (OWN, OWN), (PEER, OWN)] {
        let program = Program::new();
        let (handle, id) = program.id();
        let resolved = resolve(&id, &program.devices, None, at(remote));
        assert_eq!(resolved, Ok(()), "{remote}");
        expect_event(program.channel, AddressResolved, handle);
        let state = id.body().state();
        let source = SocketAddr::new(source, 0);
        assert_eq!(state.source, Some(source));
        assert_eq!(state.destination, Some(at(remote)));
        drop(state);
        let devices = program.devices.all().expect("the device");
        // SAFETY: a context lives as long as the process.
        let device = unsafe { (*shown(handle, |it| it.verbs)).device };
        assert_eq!(device, Object::handle(&devices[0]));
        assert_eq!(rdma_resolve_route(handle, 1), 0);
        expect_event(program.channel, RouteResolved, handle);
        assert_eq!(rdma_destroy_id(handle), 0);
    }
}

#[test]
fn scope_of_a_link_local_source_is_its_device() {
    let program = Program::new();
    let (handle, id) = program.id();
    let resolved = resolve(&id, &program.devices, None, at(LINK_LOCAL));
    assert_eq!(resolved, Ok(()));
    let source = id.body().state().source.expect("it is resolved");
    let SocketAddr::V6(source) = source else {
        panic!("{source} is of another family");
    };
    assert_eq!(source.scope_id(), Fixed::INDEX);
    assert_eq!(rdma_destroy_id(handle), 0);
}

#[test]
fn unreachable_address_is_refused_without_an_event() {
    let program = Program::new();
    let (handle, id) = program.id();
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    for unreachable in [STRANGER, any, IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        let resolved = resolve(&id, &program.devices, None, at(unreachable));
        assert_eq!(resolved, Err(Errno::ENETUNREACH), "{unreachable}");
    }
    assert!(is_quiet(program.channel));
    assert!(shown(handle, |it| it.verbs).is_null());
    // A source that no device has.
    let named = resolve(&id, &program.devices, Some(at(STRANGER)), at(PEER));
    assert_eq!(named, Err(Errno::EADDRNOTAVAIL));
    // The identifier is as it was.
    assert_eq!(resolve(&id, &program.devices, None, at(PEER)), Ok(()));
    expect_event(program.channel, AddressResolved, handle);
    assert_eq!(rdma_destroy_id(handle), 0);
}

#[test]
fn loopback_address_of_a_device_is_bound() {
    let program = Program::new();
    let rnic = program.open();
    let (first, id) = program.id();
    assert_eq!(bind(&id, &program.devices, at(LOOPBACK)), Ok(()));
    let state = id.body().state();
    assert_eq!((state.source, state.ports.len()), (Some(at(LOOPBACK)), 1));
    assert_eq!(state.phase, Phase::Bound);
    drop(state);
    let (second, other) = program.id();
    let taken = bind(&other, &program.devices, at(LOOPBACK));
    assert_eq!(taken, Err(Errno::EADDRINUSE));
    let (third, other) = program.id();
    let missing = bind(&other, &program.devices, at(STRANGER));
    assert_eq!(missing, Err(Errno::EADDRNOTAVAIL));
    for id in [first, second, third] {
        assert_eq!(rdma_destroy_id(id), 0);
    }
    rnic.backend().close();
}

#[test]
fn wildcard_address_is_bound_at_the_device() {
    let program = Program::new();
    let rnic = program.open();
    let (first, id) = program.id();
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    assert_eq!(bind(&id, &program.devices, at(any)), Ok(()));
    let (second, other) = program.id();
    let taken = bind(&other, &program.devices, at(LOOPBACK));
    assert_eq!(taken, Err(Errno::EADDRINUSE), "the wildcard includes it");
    for id in [first, second] {
        assert_eq!(rdma_destroy_id(id), 0);
    }
    rnic.backend().close();
}

/// Some servers have an identifier for each family, on hosts without IPv6, too.
#[test]
fn wildcard_of_a_family_that_no_device_has_is_bound_to_nothing() {
    let program = Program::new();
    let rnic = program.open();
    let any = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), PORT);
    let bound = |port, one_family| {
        let (handle, id) = program.id();
        id.body().state().one_family = one_family;
        let mut wanted = any;
        wanted.set_port(port);
        let bound = bind(&id, &program.devices, wanted);
        let ports = id.body().state().ports.len();
        assert_eq!(rdma_destroy_id(handle), 0);
        (bound, ports)
    };
    assert_eq!(bound(PORT, true), (Ok(()), 0));
    assert_eq!(bound(0, true), (Err(Errno::EADDRNOTAVAIL), 0));
    assert_eq!(bound(PORT, false), (Ok(()), 1), "it includes IPv4");
    rnic.backend().close();
}
