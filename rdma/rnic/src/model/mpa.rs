//! MPA start-up: the parameters that an application requests, and the negotiated ones (RFC 5044
//! §7.1, RFC 6581).

use std::fmt;
use std::time::Duration;

use xwarp_iwarp::mpa::{
    Enhanced, EnhancedData, EnhancedHeader, MAX_PRIVATE_DATA, Negotiated, Request, Revision, Rtr,
    RtrTypes, StartupParams,
};

/// Configuration of MPA, in either role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "options of the protocol")]
pub struct MpaConfig {
    /// The highest revision. With [`Revision::Two`], the default, an initiator sends its IRD and
    /// ORD. If the peer then closes the connection, the initiator falls back to revision 1 on a new
    /// TCP connection (RFC 6581 §10). Revision 1 is always understood.
    pub max_revision: Revision,
    /// Whether CRCs are requested. If not, they are off only if the peer does not request them
    /// either (RFC 5044 §7.1.1); then only TCP's checksum protects the data.
    /// [`ConnectionInfo::crc`] has the negotiated result.
    pub crc: bool,
    /// Whether CRCs are requested of peers, too, whose segments stay in memory of this kernel and
    /// have no TCP checksum: other programs of this user, by a software switch. False by default.
    pub crc_on_host: bool,
    /// Whether the peer is asked to insert markers (RFC 5044 §4.3). This side inserts markers if
    /// the peer asks for them, whatever this value is.
    pub markers: bool,
    /// Permissive mode: peers of the RDMA Consortium, MPA revision 0, are accepted, too (RFC 5044,
    /// appendix C).
    pub allow_revision_0: bool,
    /// As initiator: how long the peer may stay silent after the first message of this side. Then
    /// RDMA Writes of no bytes wake it, four at most. Linux siw sometimes needs that, as it can
    /// overlook bytes that arrive right after its Reply; other peers ignore such Writes. `None`
    /// never wakes the peer.
    pub first_fpdu_retry: Option<Duration>,
}

xwarp_driver::setters!(MpaConfig {
    /// Sets the highest MPA revision.
    max_revision: Revision,
    /// Sets whether CRCs are requested.
    crc: bool,
    /// Sets whether CRCs are requested of peers, too, whose segments stay in memory of this kernel.
    crc_on_host: bool,
    /// Sets whether the peer is asked to insert markers.
    markers: bool,
    /// Sets whether peers of MPA revision 0 are accepted.
    allow_revision_0: bool,
    /// Sets how long a peer may stay silent before an RDMA Write of no bytes wakes it. `None` never
    /// does.
    first_fpdu_retry: Option<Duration>,
});

impl Default for MpaConfig {
    /// Revision 2, CRCs on, no markers, no revision 0, silent peers woken after 5 ms.
    fn default() -> Self {
        Self {
            max_revision: Revision::Two,
            crc: true,
            crc_on_host: false,
            markers: false,
            allow_revision_0: false,
            first_fpdu_retry: Some(Duration::from_millis(5)),
        }
    }
}

impl MpaConfig {
    /// Parameters of the protocol's state machines.
    #[doc(hidden)]
    pub fn params(self, enhanced: Option<Enhanced>) -> StartupParams {
        StartupParams {
            crc: self.crc,
            markers: self.markers,
            max_revision: self.max_revision,
            enhanced,
            allow_revision_0: self.allow_revision_0,
        }
    }

    /// The same on a connection. `is_summed`: whether its segments have TCP checksums.
    #[doc(hidden)]
    pub fn params_on(self, is_summed: bool, enhanced: Option<Enhanced>) -> StartupParams {
        StartupParams {
            crc: self.crc && (is_summed || self.crc_on_host),
            ..self.params(enhanced)
        }
    }

    /// Bytes of private data that fit into a Request, besides the enhanced data of revision 2.
    #[doc(hidden)]
    pub fn private_data_limit(self) -> usize {
        match self.max_revision {
            Revision::One => MAX_PRIVATE_DATA,
            Revision::Two => MAX_PRIVATE_DATA - size_of::<EnhancedHeader>(),
        }
    }
}

/// The peer-to-peer model (RFC 6581 §9.2): the initiator announces by an RTR that it is Ready To
/// Receive, so that the responder may send first. The RTR is not the application's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerToPeer {
    /// The RTR types that this side supports; at least one. Of the common types a Write is
    /// preferred, then a Read, then a Send.
    pub rtr: RtrTypes,
    /// Whether connecting fails if the peer supports no RTR. Otherwise the connection then uses the
    /// client-server model.
    pub required: bool,
}

impl Default for PeerToPeer {
    /// All types; required.
    fn default() -> Self {
        Self {
            rtr: RtrTypes::ALL,
            required: true,
        }
    }
}

/// Parameters of MPA start-up that a queue pair asks for.
#[derive(Clone, Copy, Debug)]
pub struct StartUpParameters {
    /// Reads that the peer may have outstanding.
    pub ird: u16,
    /// Reads that this side may have outstanding.
    pub ord: u16,
    /// The peer-to-peer model, and its RTR types.
    pub peer_to_peer: Option<PeerToPeer>,
}

impl StartUpParameters {
    /// The enhanced data of an initiator. It does not require depths: a peer that does not
    /// negotiate them is accepted (wire.md D10).
    pub fn offer(self) -> Enhanced {
        let depths = Enhanced::with_depths(self.ird, self.ord);
        match self.peer_to_peer {
            None => Enhanced {
                required: false,
                ..depths
            },
            Some(PeerToPeer { rtr, required }) => Enhanced {
                peer_to_peer: true,
                rtr,
                required,
                ..depths
            },
        }
    }

    /// The enhanced data of a responder to `request`. If the queue pair allows no Reads, the IRD is
    /// raised only if a Read is the only possible RTR (R6581-9.1-4).
    pub(crate) fn answer(self, request: &Request) -> Enhanced {
        let rtr = self.peer_to_peer.map_or(RtrTypes::ALL, |p2p| p2p.rtr);
        let offered = request.enhanced.and_then(|enhanced| enhanced.rtr);
        let common = offered.map(|offered| offered.common(rtr));
        let needed = u16::from(common == Some(RtrTypes::only(Rtr::Read)));
        Enhanced {
            max_ird: self.ird.max(needed),
            rtr,
            ..Enhanced::with_depths(self.ird, self.ord)
        }
    }
}

/// Parameters that MPA start-up has negotiated for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// MPA revision of the Reply: 1, 2, or 0 with a peer of the RDMA Consortium. Also 0 on a stream
    /// that the application has handed over, without MPA start-up.
    pub revision: u8,
    /// Whether CRCs are generated and checked: one side's request suffices.
    pub crc: bool,
    /// Whether this side inserts markers.
    pub send_markers: bool,
    /// Whether the peer inserts markers.
    pub receive_markers: bool,
    /// Reads that the peer may have outstanding.
    pub ird: u16,
    /// Reads that this side may have outstanding.
    pub ord: u16,
    /// Depths and RTR types in the peer's frame (RFC 6581 §9); `None` if the frame was not
    /// enhanced.
    pub peer: Option<EnhancedData>,
    /// The RTR that this side sends as initiator of the peer-to-peer model.
    pub rtr: Option<Rtr>,
}

impl ConnectionInfo {
    pub(crate) fn new(negotiated: &Negotiated, start_up: StartUpParameters) -> Self {
        let enhanced = negotiated.enhanced.as_ref();
        Self {
            revision: negotiated.revision,
            crc: negotiated.crc,
            send_markers: negotiated.send_markers,
            receive_markers: negotiated.receive_markers,
            ird: enhanced.and_then(|it| it.ird).unwrap_or(start_up.ird),
            ord: enhanced.and_then(|it| it.ord).unwrap_or(start_up.ord),
            peer: enhanced.map(|it| it.peer),
            rtr: enhanced.and_then(|it| it.send_rtr),
        }
    }
}

/// The parameters that differ between connections, in one line: `MPA revision 2  CRC on  markers
/// off`.
impl fmt::Display for ConnectionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let crc = if self.crc { "on" } else { "off" };
        let markers = match (self.send_markers, self.receive_markers) {
            (false, false) => "off",
            (true, false) => "sent",
            (false, true) => "received",
            (true, true) => "both ways",
        };
        let revision = self.revision;
        write!(f, "MPA revision {revision}  CRC {crc}  markers {markers}")
    }
}
