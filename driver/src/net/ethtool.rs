//! Queues, rings, offloads and RSS of an interface, by the kernel's ethtool family
//! (`linux/ethtool_netlink.h`).

use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED};
use nix::errno::Errno;

use super::generic::{Attributes, Family, number};
use super::netlink::{Message, Netlink, NetlinkError};

/// Commands of ethtool's netlink family.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Question {
    Features = 11,
    SetFeatures = 12,
    Rings = 15,
    Channels = 17,
    /// Since Linux 6.2.
    Rss = 38,
}

/// The kernel's names of the family, and of the group that it notifies of changed settings.
const FAMILY: &str = "ethtool";
const MONITOR: &str = "monitor";

/// All messages begin with a header that names the interface.
const HEADER: u16 = 1;
const HEADER_INDEX: u16 = 1;

/// `ETH_RSS_HASH_TOP`, Toeplitz's hash function, which most NICs have.
const TOEPLITZ: u64 = 1;
/// The kernel's name of rx-vlan-offload.
const VLAN_STRIPPING: &str = "rx-vlan-hw-parse";

/// A number: its current value, and the driver's maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// Current value.
    pub now: u32,
    /// The driver's maximum.
    pub max: u32,
}

/// Queues of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Queues that only receive.
    pub rx: Setting,
    /// Queues that only send.
    pub tx: Setting,
    /// Queues that do both.
    pub combined: Setting,
}

/// Descriptors of each of the driver's rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverRings {
    /// Of a receive ring.
    pub rx: Setting,
    /// Of a transmit ring.
    pub tx: Setting,
}

/// How received packets are spread over the queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rss {
    /// Whether the hash function is Toeplitz's.
    pub toeplitz: bool,
    /// The indirection table: a queue for each remainder of the hash.
    pub table: Vec<u32>,
    /// The secret key, if the driver reports it.
    pub key: Vec<u8>,
}

/// The ethtool family, asked for one interface.
pub(super) struct Ethtool {
    family: Family,
    index: u32,
}

impl Ethtool {
    /// `None` on a kernel without it.
    pub(super) fn of(index: u32) -> Result<Option<Self>, NetlinkError> {
        let family = Family::open(FAMILY)?;
        Ok(family.map(|family| Self { family, index }))
    }

    /// `None` if the driver does not report it.
    fn ask(&mut self, question: Question) -> Result<Option<Attributes>, NetlinkError> {
        self.ask_with(question, Vec::new())
    }

    fn ask_with(
        &mut self,
        question: Question,
        more: Vec<DefaultNla>,
    ) -> Result<Option<Attributes>, NetlinkError> {
        let mut attributes = vec![nested(HEADER, &[number(HEADER_INDEX, self.index)])];
        attributes.extend(more);
        match self.family.get(question as u8, attributes) {
            Err(error) if error.refusal() == Some(Errno::EOPNOTSUPP) => Ok(None),
            answer => answer.map(Some),
        }
    }

    pub(super) fn channels(&mut self) -> Result<Option<Channels>, NetlinkError> {
        let answer = self.ask(Question::Channels)?;
        Ok(answer.map(|attributes| Channels {
            rx: setting(&attributes, 6, 2),
            tx: setting(&attributes, 7, 3),
            combined: setting(&attributes, 9, 5),
        }))
    }

    pub(super) fn rings(&mut self) -> Result<Option<DriverRings>, NetlinkError> {
        let answer = self.ask(Question::Rings)?;
        Ok(answer.map(|attributes| DriverRings {
            rx: setting(&attributes, 6, 2),
            tx: setting(&attributes, 9, 5),
        }))
    }

    /// The names of the offloads that are on, as `ethtool -k` has them.
    pub(super) fn features(&mut self) -> Result<Vec<String>, NetlinkError> {
        let (active, bits, bit, name) = (4, 3, 1, 2);
        let answer = self.ask(Question::Features)?;
        let bits = (answer.and_then(|attributes| attributes.nested(active)))
            .and_then(|set| set.nested(bits));
        let names = bits.into_iter().flat_map(|bits| {
            let each = bits.every_nested(bit).collect::<Vec<_>>();
            each.into_iter().filter_map(|bit| bit.text(name))
        });
        Ok(names.collect())
    }

    /// Wants offloads on or off. What the driver does not change stays.
    fn switch(&mut self, names: &[String], on: bool) -> Result<(), NetlinkError> {
        let (wanted, bits, bit, name_of_bit, value) = (3, 3, 1, 2, 3);
        let each: Vec<DefaultNla> = (names.iter())
            .map(|name| {
                let mut text = name.as_bytes().to_vec();
                text.push(0);
                let mut parts = vec![DefaultNla::new(name_of_bit, text)];
                parts.extend(on.then(|| DefaultNla::new(value, Vec::new())));
                nested(bit, &parts)
            })
            .collect();
        let wanted = nested(wanted, &[nested(bits, &each)]);
        self.ask_with(Question::SetFeatures, vec![wanted])?;
        Ok(())
    }

    pub(super) fn rss(&mut self) -> Result<Option<Rss>, NetlinkError> {
        let (function, table, key) = (3, 4, 5);
        let answer = self.ask(Question::Rss)?;
        Ok(answer.map(|attributes| Rss {
            toeplitz: attributes.number(function) == Some(TOEPLITZ),
            table: words(attributes.bytes(table).unwrap_or_default()),
            key: attributes.bytes(key).unwrap_or_default().to_vec(),
        }))
    }
}

/// A socket that is notified when settings of an interface change (`ethtool -L`, `ethtool -G`).
/// `None` if the kernel has no such notifications.
pub(super) fn listen() -> Result<Option<Netlink>, NetlinkError> {
    Family::listen(FAMILY, MONITOR)
}

/// Whether a notification is of interface `index`.
pub(super) fn is_of(message: &Message, index: u32) -> bool {
    let attributes = Attributes::of_message(&message.payload);
    let header = attributes
        .ok()
        .and_then(|attributes| attributes.nested(HEADER));
    header.and_then(|header| header.number(HEADER_INDEX)) == Some(index.into())
}

/// An attribute that holds others.
fn nested(kind: u16, attributes: &[DefaultNla]) -> DefaultNla {
    let mut bytes = vec![0; attributes.buffer_len()];
    attributes.emit(&mut bytes);
    DefaultNla::new(kind | NLA_F_NESTED, bytes)
}

/// Switches off those offloads of interface `index` that are on, by the kernel's names. Returns the
/// names of those that went off. Offloads that depend on them go off, too, and return with them.
///
/// # Errors
///
/// The kernel refuses, for instance as the process lacks `CAP_NET_ADMIN`, or there is no such
/// interface.
pub fn switch_offloads_off(index: u32, names: &[&str]) -> Result<Vec<String>, NetlinkError> {
    let Some(mut ethtool) = Ethtool::of(index)? else {
        return Ok(Vec::new());
    };
    let mut on = ethtool.features()?;
    on.retain(|name| names.contains(&name.as_str()));
    if on.is_empty() {
        return Ok(on);
    }
    ethtool.switch(&on, false)?;
    let still = ethtool.features()?;
    on.retain(|name| !still.contains(name));
    Ok(on)
}

/// Switches offloads of interface `index` on again.
///
/// # Errors
///
/// As [`switch_offloads_off`].
pub fn switch_offloads_on(index: u32, names: &[String]) -> Result<(), NetlinkError> {
    match Ethtool::of(index)? {
        Some(mut ethtool) if !names.is_empty() => ethtool.switch(names, true),
        _ => Ok(()),
    }
}

/// The setting whose value and largest value these attributes have. What is left out is 0.
fn setting(attributes: &Attributes, now: u16, max: u16) -> Setting {
    let word = |kind| {
        attributes
            .number(kind)
            .and_then(|value| u32::try_from(value).ok())
    };
    Setting {
        now: word(now).unwrap_or_default(),
        max: word(max).unwrap_or_default(),
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let (words, _odd) = bytes.as_chunks();
    words.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}

/// Descriptors of the rings of interface `index`, or `None` if its driver does not report them.
pub(super) fn driver_rings(index: u32) -> Result<Option<DriverRings>, NetlinkError> {
    match Ethtool::of(index)? {
        Some(mut ethtool) => ethtool.rings(),
        None => Ok(None),
    }
}

/// Queues and rings of interface `index`, as far as its driver reports them.
pub(super) fn settings(
    index: u32,
) -> Result<(Option<Channels>, Option<DriverRings>), NetlinkError> {
    match Ethtool::of(index)? {
        Some(mut ethtool) => Ok((ethtool.channels()?, ethtool.rings()?)),
        None => Ok((None, None)),
    }
}

/// The number of receive queues of interface `index` in use now, or `None` if its driver does not
/// report it, as with loopback and ifb.
///
/// Veth reports queues that only receive, tun and most NICs combined ones.
pub(super) fn rx_queues(index: u32) -> Result<Option<u32>, NetlinkError> {
    let Some(mut ethtool) = Ethtool::of(index)? else {
        return Ok(None);
    };
    let channels = ethtool.channels()?;
    Ok(channels.map(|channels| channels.receiving()))
}

impl Channels {
    /// Queues that receive.
    pub fn receiving(&self) -> u32 {
        self.rx.now.saturating_add(self.combined.now)
    }
}

/// RSS configuration of interface `index`. `None` if its driver does not report it.
///
/// # Errors
///
/// The kernel refuses, for instance because there is no such interface.
pub fn rss(index: u32) -> Result<Option<Rss>, NetlinkError> {
    match Ethtool::of(index)? {
        Some(mut ethtool) => ethtool.rss(),
        None => Ok(None),
    }
}

/// True if interface `index` strips VLAN tags from the frames that it receives, before an XDP
/// program sees them (rx-vlan-offload).
///
/// # Errors
///
/// The kernel refuses, for instance because there is no such interface.
pub fn strips_vlan_tags(index: u32) -> Result<bool, NetlinkError> {
    let Some(mut ethtool) = Ethtool::of(index)? else {
        return Ok(false);
    };
    let on = ethtool.features()?;
    Ok(on.iter().any(|name| name == VLAN_STRIPPING))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notification_names_its_interface() {
        #[rustfmt::skip]
        let message = [
            26, 1, 0, 0,               // ETHTOOL_MSG_CHANNELS_NTF, version 1
            12, 0, 1, 0x80, 8, 0, 1, 0, 7, 0, 0, 0, // header: interface 7
            8, 0, 6, 0, 4, 0, 0, 0,    // ETHTOOL_A_CHANNELS_RX_COUNT
        ];
        let of = |len: usize, index| is_of(&Message::notification(0x15, &message[..len]), index);
        assert!(of(message.len(), 7));
        assert!(!of(message.len(), 4));
        assert!((0..16).all(|len| !of(len, 7)), "what is cut off is of none");
    }
}
