//! The packet interface as smoltcp sees it: one connection's, with at most one packet waiting.

use smoltcp::phy::{self, Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium};
use smoltcp::time::Instant;
use xwarp_driver::TxFrame;

use crate::lower::Lower;
use crate::track::Tracker;

/// A connection's view of the packet interface, made for one call into smoltcp.
pub(crate) struct Port<'p> {
    lower: &'p mut Lower,
    link: &'p [u8],
    track: &'p mut Tracker,
    inbound: Option<&'p [u8]>,
    /// smoltcp had something to send and there was no TX frame.
    pub(crate) exhausted: bool,
}

impl<'p> Port<'p> {
    pub(crate) fn new(lower: &'p mut Lower, link: &'p [u8], track: &'p mut Tracker) -> Self {
        Self {
            lower,
            link,
            track,
            inbound: None,
            exhausted: false,
        }
    }

    /// Lets one IP packet wait.
    pub(crate) fn with_inbound(self, packet: &'p [u8]) -> Self {
        Self {
            inbound: Some(packet),
            ..self
        }
    }
}

impl<'p> Device for Port<'p> {
    type RxToken<'a>
        = RxToken<'p>
    where
        Self: 'a;
    type TxToken<'a>
        = TxToken<'a, 'p>
    where
        Self: 'a;

    /// The token for an answer takes its frame only when there is one: most packets are answered by the burst's ACK.
    fn receive(&mut self, _: Instant) -> Option<(RxToken<'p>, TxToken<'_, 'p>)> {
        let packet = self.inbound.take()?;
        let answer = TxToken {
            port: self,
            frame: None,
        };
        Some((RxToken(packet), answer))
    }

    /// The frame is taken here, as smoltcp keeps what it could not send only if it is told so here.
    fn transmit(&mut self, _: Instant) -> Option<TxToken<'_, 'p>> {
        let frame = self.lower.take_frame();
        self.exhausted = frame.is_none();
        frame.map(|frame| TxToken {
            port: self,
            frame: Some(frame),
        })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut checksum = ChecksumCapabilities::ignored();
        checksum.ipv4 = Checksum::Tx; // `inbound::parse` has verified what comes in
        checksum.tcp = Checksum::Tx;
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.lower.mtu;
        capabilities.max_burst_size = None; // anything else would cap the window at so many segments
        capabilities.checksum = checksum;
        capabilities
    }
}

/// A packet for smoltcp.
pub(crate) struct RxToken<'p>(&'p [u8]);

impl phy::RxToken for RxToken<'_> {
    fn consume<R, F>(self, f: F) -> R
    where
        F: FnOnce(&[u8]) -> R,
    {
        f(self.0)
    }
}

/// smoltcp's leave to send one packet.
pub(crate) struct TxToken<'a, 'p> {
    port: &'a mut Port<'p>,
    frame: Option<TxFrame>,
}

impl phy::TxToken for TxToken<'_, '_> {
    fn consume<R, F>(mut self, len: usize, f: F) -> R
    where
        F: FnOnce(&mut [u8]) -> R,
    {
        let frame = self.frame.take();
        let Port {
            lower, link, track, ..
        } = &mut *self.port;
        let frame = frame.or_else(|| lower.take_frame());
        let mut retransmitted = false;
        let result = lower.send(frame, link, len, |packet| {
            let result = f(packet);
            retransmitted = track.emitted(packet);
            result
        });
        lower.counters.retransmissions += u64::from(retransmitted);
        result
    }
}

impl Drop for TxToken<'_, '_> {
    fn drop(&mut self) {
        if let Some(frame) = self.frame.take() {
            self.port.lower.io.discard(frame);
        }
    }
}
