//! Attributes of a device and its port, which are queried without opening an RNIC.

use std::ffi::{c_int, c_void};
use std::net::IpAddr;
use std::ptr;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;

use super::context::Context;
use crate::abi::Zeroed;
use crate::abi::numbers::{
    IBV_ATOMIC_HCA, IBV_DEVICE_CURR_QP_STATE_MOD, IBV_DEVICE_MEM_MGT_EXTENSIONS,
    IBV_DEVICE_MEM_WINDOW, IBV_DEVICE_MEM_WINDOW_TYPE_2A, IBV_DEVICE_SRQ_RESIZE,
    IBV_DEVICE_SYS_IMAGE_GUID, IBV_GID_TYPE_ROCE_V2, IBV_LINK_LAYER_ETHERNET, IBV_PORT_ACTIVE,
    IBV_PORT_DOWN,
};
use crate::abi::verbs::{
    ibv_context, ibv_device_attr, ibv_device_attr_ex, ibv_gid, ibv_gid_entry, ibv_port_attr,
    ibv_query_device_ex_input, ibv_values_ex,
};
use crate::backend::{limits, times_are_wanted};
use crate::devices::Interface;
use crate::entry::{Result, always, returns, sets_status};
use crate::object::Object;

/// The one port of a device.
const PORT: u32 = 1;
/// The one partition key.
const PKEY: u16 = 0xffff;
/// Bytes of port attributes that old programs have room for.
const OLD_PORT_ATTR: usize = 48;
/// Largest number of outstanding Reads that is reported: programs store it in a byte.
const REPORTED_READS: usize = 128;
/// Largest message in bytes: the largest length of DDP, as the kernel's siw reports it.
const MAX_MESSAGE: u32 = u32::MAX;
/// RoCE v2 as sysfs has it, which `ibv_query_gid_type` returns.
const SYSFS_ROCE_V2: u32 = 1;
/// Vendor of devices: a locally administered OUI, `02-58-57`, which IEEE assigns to no vendor.
/// Programs take 0 for an unknown device.
const VENDOR: u32 = 0x02_5857;
/// Flag of `ibv_values_ex`: the clock is reported.
const VALUES_MASK_RAW_CLOCK: u32 = 1;

/// Reads that a queue pair may have outstanding, as `ibv_query_device` reports them.
pub(crate) fn max_reads() -> usize {
    limits().reads.min(REPORTED_READS)
}

fn number(size: usize) -> c_int {
    c_int::try_from(size).unwrap_or(c_int::MAX)
}

fn interface_of(context: *mut ibv_context) -> Result<Interface> {
    Object::<Context>::find(context)?
        .body()
        .device()
        .interface()
}

fn device_attributes(context: *mut ibv_context) -> Result<ibv_device_attr> {
    let context = Object::<Context>::find(context)?;
    let guid = u64::from_ne_bytes(context.body().device().guid());
    let limits = limits();
    let mut attr = ibv_device_attr::zeroed();
    let version = env!("CARGO_PKG_VERSION").as_bytes().iter();
    let pairs = attr.fw_ver.iter_mut().zip(version);
    pairs.for_each(|(into, from)| *into = *from);
    attr.node_guid = guid;
    attr.sys_image_guid = guid;
    attr.vendor_id = VENDOR;
    // The only product. Programs take 0 for a driver's error.
    attr.vendor_part_id = 1;
    attr.max_mr_size = u64::MAX;
    attr.page_size_cap = !0xfff;
    attr.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD
        | IBV_DEVICE_SYS_IMAGE_GUID
        | IBV_DEVICE_SRQ_RESIZE
        | IBV_DEVICE_MEM_WINDOW
        | IBV_DEVICE_MEM_WINDOW_TYPE_2A
        | IBV_DEVICE_MEM_MGT_EXTENSIONS;
    attr.max_qp = number(limits.qps);
    attr.max_qp_wr = number(limits.depth);
    // A Read places its answer into one piece of memory.
    attr.max_sge = number(limits.sge);
    attr.max_sge_rd = 1;
    attr.max_cq = number(limits.cqs);
    attr.max_cqe = number(limits.cq_entries);
    attr.max_mr = number(limits.stags);
    attr.max_mw = number(limits.stags);
    attr.max_pd = number(limits.pds);
    let reads = max_reads();
    attr.max_qp_rd_atom = number(reads);
    attr.max_qp_init_rd_atom = number(reads);
    attr.max_res_rd_atom = number(reads.saturating_mul(limits.qps));
    attr.atomic_cap = IBV_ATOMIC_HCA;
    attr.max_ah = number(limits.qps);
    attr.max_srq = number(limits.srqs);
    attr.max_srq_wr = number(limits.depth);
    attr.max_srq_sge = number(limits.sge);
    attr.max_pkeys = 1;
    attr.phys_port_cnt = 1;
    Ok(attr)
}

/// Writes the beginning of an attribute struct, as many bytes as the program has room for.
fn write_part<T: Copy>(from: &T, into: *mut c_void, room: usize) -> Result<()> {
    if into.is_null() {
        return Err(Errno::EINVAL);
    }
    let bytes = room.min(size_of::<T>());
    let from = ptr::from_ref(from).cast::<u8>();
    // SAFETY: by its manual page, there is room for that many bytes, which are not ours.
    unsafe { from.copy_to_nonoverlapping(into.cast(), bytes) };
    Ok(())
}

/// InfiniBand's number of the largest MTU that fits into an IP packet of `mtu` bytes.
fn mtu_number(mtu: usize) -> u32 {
    match mtu {
        4096.. => 5,
        2048.. => 4,
        1024.. => 3,
        512.. => 2,
        _ => 1,
    }
}

/// Lanes and the speed of each, by InfiniBand's numbers, from an interface's Mb/s.
fn width_and_speed(speed: Option<u32>) -> (u8, u8) {
    match speed.unwrap_or(10_000) {
        100_000.. => (2, 32),
        50_000.. => (1, 64),
        40_000.. => (2, 4),
        25_000.. => (1, 32),
        10_000.. => (1, 4),
        _ => (1, 1),
    }
}

fn port_attributes(context: *mut ibv_context, port: u8) -> Result<ibv_port_attr> {
    const CM_SUPPORTED: u32 = 1 << 16;
    const LINK_UP: u8 = 5;
    const DISABLED: u8 = 3;
    let context = Object::<Context>::find(context)?;
    let device = context.body().device();
    let interface = device.interface()?;
    check_port(port.into())?;
    let mut attr = ibv_port_attr::zeroed();
    (attr.state, attr.phys_state) = if interface.is_active {
        (IBV_PORT_ACTIVE, LINK_UP)
    } else {
        (IBV_PORT_DOWN, DISABLED)
    };
    attr.max_mtu = 5;
    attr.active_mtu = mtu_number(device.mtu());
    attr.gid_tbl_len = number(interface.addresses.len());
    attr.port_cap_flags = CM_SUPPORTED;
    attr.max_msg_sz = MAX_MESSAGE;
    attr.pkey_tbl_len = 1;
    attr.max_vl_num = 1;
    (attr.active_width, attr.active_speed) = width_and_speed(device.speed());
    attr.link_layer = IBV_LINK_LAYER_ETHERNET;
    Ok(attr)
}

fn check_port(port: u32) -> Result<()> {
    if port == PORT {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

/// An address as a GID: IPv4 is mapped into IPv6.
fn gid_of(address: IpAddr) -> ibv_gid {
    ibv_gid(match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    })
}

/// A row of the GID table: the addresses of the interface, IPv4 first.
fn gid_entry(context: *mut ibv_context, port: u32, index: u32) -> Result<ibv_gid_entry> {
    let interface = interface_of(context)?;
    check_port(port)?;
    let address = interface.addresses.get(index as usize);
    Ok(ibv_gid_entry {
        gid: gid_of(*address.ok_or(Errno::ENODATA)?),
        gid_index: index,
        port_num: PORT,
        gid_type: IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex: interface.index,
    })
}

/// `ibv_query_device(3)`: returns the error number.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: Option<&mut ibv_device_attr>,
) -> c_int {
    returns(|| {
        *attr.ok_or(Errno::EINVAL)? = device_attributes(context)?;
        Ok(())
    })
}

/// The clock of completion times, in kHz: they are nanoseconds.
const CLOCK: u64 = 1_000_000;

/// `ibv_query_device_ex(3)`: returns the error number. Of its additional attributes, only times of
/// completions are supported, if `XWARP_TIMESTAMPS` asks for them.
pub(super) extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    returns(|| {
        // SAFETY: by its manual page, there is nothing or such a struct.
        let input = unsafe { input.as_ref() };
        if input.is_some_and(|input| input.comp_mask != 0) || size < size_of::<ibv_device_attr>() {
            return Err(Errno::EINVAL);
        }
        let mut all = ibv_device_attr_ex::zeroed();
        all.orig_attr = device_attributes(context)?;
        all.phys_port_cnt_ex = PORT;
        if times_are_wanted() {
            all.completion_timestamp_mask = u64::MAX;
            all.hca_core_clock = CLOCK;
        }
        write_part(&all, attr.cast(), size)
    })
}

/// `ibv_query_port(3)` of old programs, which have room for less: returns the error number.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut c_void) -> c_int {
    query_port(context, port, attr, OLD_PORT_ATTR)
}

/// `ibv_query_port(3)`: returns the error number.
pub(super) extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut c_void,
    size: usize,
) -> c_int {
    returns(|| write_part(&port_attributes(context, port)?, attr, size))
}

/// `ibv_query_port(3)` by the slot of old programs: returns the error number.
pub(super) extern "C" fn compat_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut c_void,
) -> c_int {
    query_port(context, port, attr, OLD_PORT_ATTR)
}

/// `ibv_query_gid(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: Option<&mut ibv_gid>,
) -> c_int {
    sets_status(|| {
        let index = u32::try_from(index).map_err(|_negative| Errno::EINVAL)?;
        *gid.ok_or(Errno::EINVAL)? = gid_entry(context, port.into(), index)?.gid;
        Ok(())
    })
}

/// Called by `ibv_query_gid_ex(3)`: returns the error number, ENODATA beyond the end.
#[unsafe(no_mangle)]
pub extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    returns(|| {
        if flags != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        write_part(&gid_entry(context, port, index)?, entry.cast(), size)
    })
}

/// Called by `ibv_query_gid_table(3)`: the number of rows, or the negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    room: usize,
    flags: u32,
    size: usize,
) -> isize {
    let mut rows = 0;
    let failed = returns(|| {
        let there = interface_of(context)?.addresses.len();
        if flags != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if there > room || size < size_of::<ibv_gid_entry>() {
            return Err(Errno::EINVAL);
        }
        for (index, place) in (0..).zip(0..there) {
            let place = entries.wrapping_byte_add(place * size);
            write_part(&gid_entry(context, PORT, index)?, place.cast(), size)?;
        }
        rows = there.cast_signed();
        Ok(())
    });
    if failed == 0 {
        rows
    } else {
        -(failed as isize)
    }
}

/// The type of a GID as sysfs has it: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: u32,
    gid_type: Option<&mut u32>,
) -> c_int {
    sets_status(|| {
        gid_entry(context, port.into(), index)?;
        *gid_type.ok_or(Errno::EINVAL)? = SYSFS_ROCE_V2;
        Ok(())
    })
}

/// `ibv_query_pkey(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: Option<&mut u16>,
) -> c_int {
    sets_status(|| {
        Object::<Context>::find(context)?;
        check_port(port.into())?;
        if index != 0 {
            return Err(Errno::EINVAL);
        }
        *pkey.ok_or(Errno::EINVAL)? = PKEY;
        Ok(())
    })
}

/// `ibv_get_pkey_index(3)`: -1 if there is no such key.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_pkey_index(context: *mut ibv_context, port: u8, pkey: u16) -> c_int {
    always(-1, || {
        Object::<Context>::find(context)?;
        check_port(port.into())?;
        Ok(if pkey == PKEY { 0 } else { -1 })
    })
}

/// `ibv_query_rt_values_ex(3)`: the raw clock is that of the system. Returns the error number.
pub(super) extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: Option<&mut ibv_values_ex>,
) -> c_int {
    returns(|| {
        Object::<Context>::find(context)?;
        let values = values.ok_or(Errno::EINVAL)?;
        if values.comp_mask & !VALUES_MASK_RAW_CLOCK != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_err(|_before_1970| Errno::EOVERFLOW)?;
        values.raw_clock.tv_sec = now.as_secs().cast_signed();
        values.raw_clock.tv_nsec = now.subsec_nanos().into();
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_is_the_largest_that_fits() {
        let cases = [(576, 2), (1500, 3), (4096, 5), (9000, 5), (100, 1)];
        for (mtu, number) in cases {
            assert_eq!(mtu_number(mtu), number, "{mtu}");
        }
    }

    #[test]
    fn ipv4_address_is_a_mapped_gid() {
        let gid = gid_of("10.1.2.3".parse().expect("an address"));
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3];
        assert_eq!(gid, ibv_gid(mapped));
    }
}
