//! Addresses of identifiers: binding, and resolving the route of a connection.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use libc::sockaddr;
use nix::errno::Errno;

use super::address;
use super::devices::context_of;
use super::id::{ANY, BoundPort, CmId, Id, PendingEvent, Phase, State};
use super::life::completes;
use super::numbers::EventKind;
use crate::abi::cm::rdma_cm_id;
use crate::backend::BackendRef;
use crate::entry::{Result, always, sets_status};
use crate::object::Object;
use crate::verbs::device_list::{Listed, Located, listed};

/// Binds an identifier at a device of the list. A wildcard address stands for those of all devices
/// that the program means.
pub(super) fn bind(id: &Arc<Id>, devices: &Listed, local: SocketAddr) -> Result<()> {
    let mut state = id.body().living()?;
    if state.phase != Phase::New {
        return Err(Errno::EINVAL);
    }
    if local.ip().is_unspecified() {
        bind_to_any(id, devices, &mut state, local)?;
    } else {
        bind_at(id, &mut state, devices.with_address(local)?, local)?;
    }
    state.wanted_source = state.source.unwrap_or(ANY);
    state.phase = Phase::Bound;
    Ok(())
}

/// Binds a port at the device that has the address.
pub(super) fn bind_at(
    id: &Arc<Id>,
    state: &mut State,
    Located { device, address }: Located,
    mut local: SocketAddr,
) -> Result<()> {
    local.set_ip(address);
    state.bind(id, &device)?;
    let backend = state.backend()?;
    let (port, bound) = backend.bind(local, state.reusable)?;
    state.ports.push(BoundPort {
        device,
        backend: BackendRef::new(&backend),
        port,
    });
    let number = bound.first().map_or(0, SocketAddr::port);
    state.set_source(id, address::with_port(local, number));
    Ok(())
}

/// Binds the same port at every device. The IPv6 wildcard includes IPv4, unless the port is taken
/// there. As by the kernel, it is no error if no device has an address of the family: no peer comes
/// then. A port is only chosen at an address, though.
fn bind_to_any(id: &Arc<Id>, devices: &Listed, state: &mut State, local: SocketAddr) -> Result<()> {
    let second =
        (local.is_ipv6() && !state.one_family).then_some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let (mut number, mut refused) = (local.port(), Errno::EADDRNOTAVAIL);
    for device in devices.defaults()? {
        let backend = context_of(&device)?.body().backend()?;
        for ip in [Some(local.ip()), second].into_iter().flatten() {
            match backend.bind(SocketAddr::new(ip, number), state.reusable) {
                Ok((port, bound)) => {
                    number = bound.first().map_or(number, SocketAddr::port);
                    state.ports.push(BoundPort {
                        device: Arc::clone(&device),
                        backend: BackendRef::new(&backend),
                        port,
                    });
                }
                Err(errno) => refused = errno,
            }
        }
    }
    let is_without_address = refused == Errno::EADDRNOTAVAIL && number != 0;
    if state.ports.is_empty() && !is_without_address {
        return Err(refused);
    }
    state.set_source(id, address::with_port(local, number));
    Ok(())
}

/// Finds the device on the route to `remote`, and the source address of connections. A port that
/// the program names is bound, as by the kernel. Any other is chosen when the connection begins, as
/// it depends on the engine that makes it.
pub(super) fn resolve(
    id: &Arc<Id>,
    devices: &Listed,
    source: Option<SocketAddr>,
    remote: SocketAddr,
) -> Result<()> {
    let mut state = id.body().living()?;
    if !matches!(state.phase, Phase::New | Phase::Bound) {
        return Err(Errno::EINVAL);
    }
    let towards = devices.towards(remote)?;
    let named = source.map_or(Ok(ANY), |named| source_on(devices, &towards, named))?;
    let bound = (state.phase == Phase::Bound).then_some(state.wanted_source);
    let mut source = agreed(bound.unwrap_or(ANY), named)?;
    if !source.ip().is_unspecified() && source.is_ipv4() != remote.is_ipv4() {
        return Err(Errno::EINVAL);
    }
    state.wanted_source = source;
    state.bind(id, &towards.device)?;
    if source.ip().is_unspecified() {
        source = SocketAddr::new(towards.address, source.port());
    }
    if state.phase == Phase::New && source.port() != 0 {
        let at = Located {
            device: Arc::clone(&towards.device),
            address: source.ip(),
        };
        bind_at(id, &mut state, at, source)?;
    } else {
        state.set_source(id, source);
    }
    state.set_destination(id, address::destination(remote, towards.address));
    state.phase = Phase::Resolved;
    state.push(PendingEvent::new(id, EventKind::AddressResolved));
    Ok(())
}

/// The source that a program has bound, combined with the one that it names for resolving. What it
/// has named twice must agree.
fn agreed(bound: SocketAddr, named: SocketAddr) -> Result<SocketAddr> {
    let is_open = |it: SocketAddr| it.ip().is_unspecified();
    if !is_open(bound) && !is_open(named) && bound.ip() != named.ip()
        || bound.port() != 0 && named.port() != 0 && bound.port() != named.port()
    {
        return Err(Errno::EINVAL);
    }
    let address = if is_open(named) { bound } else { named };
    let port = bound.port().max(named.port());
    Ok(address::with_port(address, port))
}

/// The source of a connection. Its address must be one of the device on the route.
fn source_on(devices: &Listed, towards: &Located, mut named: SocketAddr) -> Result<SocketAddr> {
    if named.ip().is_unspecified() {
        return Ok(address::with_port(ANY, named.port()));
    }
    let of_source = devices.with_address(named)?;
    if !Arc::ptr_eq(&of_source.device, &towards.device) {
        return Err(Errno::ENETUNREACH);
    }
    named.set_ip(of_source.address);
    Ok(named)
}

/// The route was found together with the address.
pub(super) fn resolve_route(id: &Arc<Id>) -> Result<()> {
    let mut state = id.body().living()?;
    if state.phase != Phase::Resolved {
        return Err(Errno::EINVAL);
    }
    state.phase = Phase::Routed;
    state.push(PendingEvent::new(id, EventKind::RouteResolved));
    Ok(())
}

/// An optional address of C.
fn optional(address: *const sockaddr) -> Result<Option<SocketAddr>> {
    (!address.is_null())
        .then(|| address::read(address))
        .transpose()
}

/// `rdma_bind_addr(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, address: *const sockaddr) -> c_int {
    sets_status(|| {
        bind(
            &Object::<CmId>::find(id)?,
            listed(),
            address::read(address)?,
        )
    })
}

/// `rdma_resolve_addr(3)`: sets errno. Routes are looked up, which takes no time. A cancellation
/// point.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    source: *const sockaddr,
    destination: *const sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    let begun = sets_status(|| {
        let id = Object::<CmId>::find(id)?;
        resolve(
            &id,
            listed(),
            optional(source)?,
            address::read(destination)?,
        )
    });
    if begun == 0 { completes(id) } else { begun }
}

/// `rdma_resolve_route(3)`: sets errno. A cancellation point.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    let begun = sets_status(|| resolve_route(&Object::<CmId>::find(id)?));
    if begun == 0 { completes(id) } else { begun }
}

/// `rdma_get_src_port(3)`: in network byte order; 0 for an identifier without one.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    always(0, || {
        let id = Object::<CmId>::find(id)?;
        let source = id.body().state().source;
        Ok(source.map_or(0, |source| source.port().to_be()))
    })
}

/// `rdma_get_dst_port(3)`: in network byte order; 0 for an identifier without one.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    always(0, || {
        let id = Object::<CmId>::find(id)?;
        let destination = id.body().state().destination;
        Ok(destination.map_or(0, |destination| destination.port().to_be()))
    })
}

/// Binds an unbound identifier, to listen on it.
pub(super) fn bind_if_new(id: &Arc<Id>) -> Result<()> {
    let phase = id.body().state().phase;
    if phase != Phase::New {
        return Ok(());
    }
    bind(id, listed(), SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_that_is_named_twice_has_to_agree() {
        let parse = |text: &str| -> SocketAddr { text.parse().expect("an address") };
        for (bound, named, both) in [
            ("0.0.0.0:0", "0.0.0.0:0", "0.0.0.0:0"),
            ("0.0.0.0:0", "10.0.0.1:7", "10.0.0.1:7"),
            ("10.0.0.1:7", "0.0.0.0:0", "10.0.0.1:7"),
            ("10.0.0.1:7", "10.0.0.1:7", "10.0.0.1:7"),
            ("10.0.0.1:7", "10.0.0.1:0", "10.0.0.1:7"),
            ("0.0.0.0:7", "10.0.0.2:0", "10.0.0.2:7"),
            ("[::]:7", "10.0.0.2:0", "10.0.0.2:7"),
            ("[::]:7", "0.0.0.0:0", "[::]:7"),
        ] {
            let agreed = agreed(parse(bound), parse(named));
            assert_eq!(agreed, Ok(parse(both)), "{bound} {named}");
        }
        for (bound, named) in [
            ("10.0.0.1:7", "10.0.0.2:0"),
            ("10.0.0.1:7", "0.0.0.0:8"),
            ("10.0.0.1:7", "[fd00::1]:7"),
            ("0.0.0.0:7", "10.0.0.1:8"),
        ] {
            let agreed = agreed(parse(bound), parse(named));
            assert_eq!(agreed, Err(Errno::EINVAL), "{bound} {named}");
        }
    }
}
