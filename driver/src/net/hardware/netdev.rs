//! XDP features and interrupts of an interface, by the kernel's netdev family (`linux/netdev.h`,
//! Linux 6.3).

use nix::errno::Errno;

use crate::net::generic::{Attributes, Family, number};
use crate::net::netlink::NetlinkError;

/// Commands.
const DEVICE_GET: u8 = 1;
/// Since Linux 6.8, both.
const QUEUE_GET: u8 = 10;
const NAPI_GET: u8 = 11;

/// Attributes of a device.
const DEVICE_INDEX: u16 = 1;
const XDP_FEATURES: u16 = 3;
const ZERO_COPY_SEGMENTS: u16 = 4;
const RX_METADATA: u16 = 5;
const TX_METADATA: u16 = 6;
/// Attributes of a queue, and those of its types that receive and send.
const QUEUE_ID: u16 = 1;
const QUEUE_DEVICE: u16 = 2;
const QUEUE_TYPE: u16 = 3;
const QUEUE_NAPI: u16 = 4;
const RECEIVES: u32 = 0;
const SENDS: u32 = 1;
/// Attributes of a NAPI instance.
const NAPI_DEVICE: u16 = 1;
const NAPI_IRQ: u16 = 3;

/// An XDP feature of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum XdpFeature {
    /// The driver runs programs itself (native mode).
    Native,
    /// Native programs can redirect, to `AF_XDP` among others.
    Redirect,
    /// `AF_XDP` with zero copy.
    ZeroCopy,
    /// Native programs see frames of several buffers.
    SeveralBuffers,
    /// The program can read the receive timestamp.
    RxTimestamp,
    /// The program can read the hash that chose the queue.
    RxHash,
    /// The program can read the stripped VLAN tag.
    RxVlanTag,
    /// The NIC can report when a frame of `AF_XDP` was sent.
    TxTimestamp,
    /// The NIC can compute checksums of frames that `AF_XDP` sends.
    TxChecksum,
}

/// Where the kernel reports each: the attribute and its bit.
const BITS: [(XdpFeature, u16, u32); 9] = [
    (XdpFeature::Native, XDP_FEATURES, 0),
    (XdpFeature::Redirect, XDP_FEATURES, 1),
    (XdpFeature::ZeroCopy, XDP_FEATURES, 3),
    (XdpFeature::SeveralBuffers, XDP_FEATURES, 5),
    (XdpFeature::RxTimestamp, RX_METADATA, 0),
    (XdpFeature::RxHash, RX_METADATA, 1),
    (XdpFeature::RxVlanTag, RX_METADATA, 2),
    (XdpFeature::TxTimestamp, TX_METADATA, 0),
    (XdpFeature::TxChecksum, TX_METADATA, 1),
];

/// XDP features that a driver reports. It may still refuse them with its current settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures {
    /// All reported features.
    pub named: Vec<XdpFeature>,
    /// Maximum number of buffers of a frame with zero copy; more than 1 means several.
    pub zero_copy_segments: u32,
}

impl XdpFeatures {
    fn of(attributes: &Attributes) -> Self {
        let has = |kind, bit: u32| attributes.number(kind).unwrap_or_default() >> bit & 1 == 1;
        let segments = attributes.number(ZERO_COPY_SEGMENTS).unwrap_or_default();
        Self {
            named: (BITS.into_iter())
                .filter_map(|(feature, kind, bit)| has(kind, bit).then_some(feature))
                .collect(),
            zero_copy_segments: segments.try_into().unwrap_or(u32::MAX),
        }
    }

    /// Whether the driver reports the feature.
    pub fn has(&self, feature: XdpFeature) -> bool {
        self.named.contains(&feature)
    }
}

/// The XDP features of interface `index`, or `None` if this kernel does not report them.
pub(super) fn xdp_features(index: u32) -> Result<Option<XdpFeatures>, NetlinkError> {
    let Some(mut family) = Family::open("netdev")? else {
        return Ok(None);
    };
    let attributes = family.get(DEVICE_GET, vec![number(DEVICE_INDEX, index)])?;
    Ok(Some(XdpFeatures::of(&attributes)))
}

/// Numbers of the interrupts of interface `index`. `None` if its driver has none, or this kernel
/// does not report them.
pub(super) fn interrupts(index: u32) -> Result<Vec<u32>, NetlinkError> {
    let Some(mut family) = Family::open("netdev")? else {
        return Ok(Vec::new());
    };
    let question = vec![number(NAPI_DEVICE, index)];
    let instances = if_known(family.dump(NAPI_GET, question))?;
    let mut interrupts: Vec<u32> = (instances.iter())
        .filter_map(|napi| napi.number(NAPI_IRQ)?.try_into().ok())
        .collect();
    interrupts.sort_unstable();
    interrupts.dedup();
    Ok(interrupts)
}

/// Queues of interface `index` that both receive and send by one NAPI instance. Before Linux 6.8
/// none are known.
pub(super) fn queues_of_one_napi(index: u32) -> Result<Vec<u32>, NetlinkError> {
    let Some(mut family) = Family::open("netdev")? else {
        return Ok(Vec::new());
    };
    let all = if_known(family.dump(QUEUE_GET, vec![number(QUEUE_DEVICE, index)]))?;
    Ok(shared(&all))
}

/// The queues that both receive and send by one NAPI instance.
fn shared(all: &[Attributes]) -> Vec<u32> {
    let napi = |kind: u32| {
        let of_kind = move |queue: &&Attributes| queue.number(QUEUE_TYPE) == Some(kind.into());
        let place = |queue: &Attributes| Some((queue.number(QUEUE_ID)?, queue.number(QUEUE_NAPI)?));
        all.iter().filter(of_kind).filter_map(place)
    };
    let both = napi(RECEIVES).filter(|(_, instance)| *instance != 0);
    let both = both.filter(|place| napi(SENDS).any(|other| other == *place));
    both.filter_map(|(queue, _)| queue.try_into().ok())
        .collect()
}

/// A table, or an empty one if this kernel does not know it.
fn if_known(
    answer: Result<Vec<Attributes>, NetlinkError>,
) -> Result<Vec<Attributes>, NetlinkError> {
    match answer {
        Err(error) if matches!(error.refusal(), Some(Errno::EOPNOTSUPP | Errno::EINVAL)) => {
            Ok(Vec::new())
        }
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(kind: u32, id: u32, napi: Option<u32>) -> Attributes {
        let mut attributes = vec![number(QUEUE_ID, id), number(QUEUE_TYPE, kind)];
        attributes.extend(napi.map(|instance| number(QUEUE_NAPI, instance)));
        Attributes::of(&attributes)
    }

    /// As reported by igb with paired queues, virtio, a driver with one instance for each
    /// direction, and one that has none.
    #[test]
    fn queue_is_shared_whose_instance_receives_and_sends() {
        let all = [
            queue(RECEIVES, 0, Some(8193)),
            queue(RECEIVES, 1, Some(8194)),
            queue(RECEIVES, 2, Some(8195)),
            queue(RECEIVES, 3, Some(0)),
            queue(RECEIVES, 4, None),
            queue(SENDS, 0, Some(8193)),
            queue(SENDS, 1, None),
            queue(SENDS, 2, Some(8194)),
            queue(SENDS, 3, Some(0)),
            queue(SENDS, 4, None),
        ];
        assert_eq!(shared(&all), [0]);
    }
}
