//! Numbers of `rdma/rdma_cma.h`.

pub(super) const RDMA_PS_TCP: u32 = 0x0106;
pub(super) const RDMA_PS_IB: u32 = 0x013f;

/// Depth that stands for the device's largest initiator or responder depth.
pub(super) const RDMA_MAX_DEPTH: u8 = 0xff;

pub(super) const RAI_PASSIVE: i32 = 0x1;
pub(super) const RAI_NUMERICHOST: i32 = 0x2;
pub(super) const RAI_NOROUTE: i32 = 0x4;
pub(super) const RAI_FAMILY: i32 = 0x8;

pub(super) const RDMA_OPTION_ID: i32 = 0;
pub(super) const RDMA_OPTION_ID_TOS: i32 = 0;
pub(super) const RDMA_OPTION_ID_REUSEADDR: i32 = 1;
pub(super) const RDMA_OPTION_ID_AFONLY: i32 = 2;

/// Events of an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum EventKind {
    AddressResolved = 0,
    RouteResolved = 2,
    ConnectRequest = 4,
    ConnectError = 6,
    Unreachable = 7,
    Rejected = 8,
    Established = 9,
    Disconnected = 10,
    DeviceRemoval = 11,
    TimewaitExit = 15,
}
