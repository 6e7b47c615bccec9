//! MPA start-up: the parameters that an application asks for, and what was negotiated (RFC 5044
//! §7.1, RFC 6581).

use std::fmt;
use std::time::Duration;

use xwarp_iwarp::mpa::{
    Enhanced, EnhancedData, EnhancedHeader, MAX_PRIVATE_DATA, Negotiated, Request, Revision, Rtr,
    RtrTypes, StartupParams,
};

/// How an RNIC speaks MPA, in either role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MpaConfig {
    /// The highest revision. With [`Revision::Two`], the default, an initiator sends its IRD and
    /// ORD. If the peer then closes the connection, the initiator falls back to revision 1 on a new
    /// TCP connection (RFC 6581 §10). Revision 1 is always understood.
    pub max_revision: Revision,
    /// CRCs are wanted. Without, they are off only if the peer does not want them either (RFC 5044
    /// §7.1.1); TCP's checksum alone then guards the data. See [`ConnectionInfo::crc`] for what
    /// came of it.
    pub crc: bool,
    /// The peer is asked to put markers into what it sends (RFC 5044 §4.3). What we send has them
    /// if the peer asks, whatever is said here.
    pub markers: bool,
    /// Permissive mode: peers of the RDMA Consortium, MPA revision 0, are spoken with, too
    /// (RFC 5044, appendix C).
    pub allow_revision_0: bool,
    /// As initiator: how long a peer may send nothing after the first message of this side. Then
    /// RDMA Writes of no bytes wake it, four at most. Linux siw sometimes needs that, as it can
    /// overlook what follows its Reply at once; other peers ignore them. `None` never wakes the
    /// peer.
    pub first_fpdu_retry: Option<Duration>,
}

xwarp_driver::setters!(MpaConfig {
    /// Sets the highest MPA revision.
    max_revision: Revision,
    /// Sets whether CRCs are wanted.
    crc: bool,
    /// Sets whether the peer is asked to send markers.
    markers: bool,
    /// Sets whether peers of MPA revision 0 are accepted.
    allow_revision_0: bool,
    /// Sets after how long a silent peer is woken by an RDMA Write of no bytes. `None` never does.
    first_fpdu_retry: Option<Duration>,
});

impl Default for MpaConfig {
    /// Revision 2, CRCs on, no markers, no RDMA Consortium, silent peers woken after 5 ms.
    fn default() -> Self {
        Self {
            max_revision: Revision::Two,
            crc: true,
            markers: false,
            allow_revision_0: false,
            first_fpdu_retry: Some(Duration::from_millis(5)),
        }
    }
}

impl MpaConfig {
    /// What the protocol's state machines need of it.
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

    /// Bytes of private data that fit into our Request, besides the enhanced data of revision 2.
    #[doc(hidden)]
    pub fn private_data_limit(self) -> usize {
        match self.max_revision {
            Revision::One => MAX_PRIVATE_DATA,
            Revision::Two => MAX_PRIVATE_DATA - size_of::<EnhancedHeader>(),
        }
    }
}

/// The peer-to-peer model (RFC 6581 §9.2): the initiator says by an RTR that it is Ready To
/// Receive, so that the responder may send first. The RTR is no work of the application's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerToPeer {
    /// The RTR types that this side can do; at least one. Of those in common a Write is preferred,
    /// then a Read, then a Send.
    pub rtr: RtrTypes,
    /// A peer that knows no RTR is not connected with. Otherwise the connection becomes one of the
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
    /// As initiator. Depths are no condition: a peer that does not negotiate them is good enough
    /// (wire.md D10).
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

    /// As responder to `request`. Without Reads the IRD is raised only for an RTR that can be
    /// nothing else (R6581-9.1-4).
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

/// What MPA start-up has settled for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// MPA revision of the Reply: 1, 2, or 0 with a peer of the RDMA Consortium. Also 0 on a stream
    /// that the application has handed over, where no MPA start-up was.
    pub revision: u8,
    /// CRCs are generated and checked: one side's wish is enough.
    pub crc: bool,
    /// What we send carries markers.
    pub send_markers: bool,
    /// What the peer sends carries markers.
    pub receive_markers: bool,
    /// Reads that the peer may have outstanding.
    pub ird: u16,
    /// Reads that we may have outstanding.
    pub ord: u16,
    /// What the peer's frame said of its depths and RTR types (RFC 6581 §9); `None` if that was not
    /// enhanced.
    pub peer: Option<EnhancedData>,
    /// The RTR that we send as initiator of the peer-to-peer model.
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

/// What differs from connection to connection, as one line: `MPA revision 2  CRC on  markers off`.
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
