//! The side of xwarp: an RNIC in a lab, with one queue pair.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ::xwarp::cm::{Connecting, ConnectionInfo, MpaConfig, PrivateData};
use ::xwarp::config::{NicConfig, XdpMode};
use ::xwarp::error::ConnectError;
use ::xwarp::event::AsyncEventKind;
use ::xwarp::{
    CompletionQueue, Listener, Opcode, ProtectionDomain, QpConfig, Rnic, RnicConfig,
    WorkCompletion, WrId,
};
use xwarp_guest_tests::siw::{Lab, XWARP_ADDRESS, XWARP_ADDRESS_6, filling};
use xwarp_system_tests::{DEV, TIMEOUT};
use xwarp_test_kit::{End, next_completion, next_success};

use crate::PORT;

/// How xwarp is set up.
#[derive(Clone, Default)]
pub(crate) struct Setup {
    pub(crate) mpa: MpaConfig,
    pub(crate) qp: QpConfig,
    /// Bytes of each region; 64 KiB if 0.
    pub(crate) bytes: usize,
    /// By IPv6.
    pub(crate) ipv6: bool,
    /// An XDP mode that is demanded.
    pub(crate) mode: Option<XdpMode>,
    /// The IRD and ORD that siw's application asks for; 16 each otherwise.
    pub(crate) siw_depths: Option<(u8, u8)>,
    /// After how long a silence a peer is asked whether it lives.
    pub(crate) keepalive: Option<Duration>,
    /// How long a peer may answer nothing, if not as long as by default.
    pub(crate) user_timeout: Option<Duration>,
    /// How long beyond the round trip an answer may take before a segment is sent again, if not the
    /// default.
    pub(crate) min_rto: Option<Duration>,
}

impl Setup {
    /// This many Reads outstanding each way.
    pub(crate) fn with_depths(ird: u16, ord: u16) -> Self {
        Self {
            qp: QpConfig::default().ird(ird).ord(ord),
            ..Self::default()
        }
    }

    /// Regions of this many bytes.
    pub(crate) fn with_bytes(bytes: usize) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
    }

    /// Bytes of each region.
    fn region_bytes(&self) -> usize {
        if self.bytes == 0 {
            64 << 10
        } else {
            self.bytes
        }
    }

    /// How an RNIC with room for `regions` regions is opened.
    fn config(&self, regions: usize) -> RnicConfig {
        let default = RnicConfig::default();
        let user_timeout = self.user_timeout.unwrap_or(default.user_timeout);
        let min_rto = self.min_rto.unwrap_or(default.min_rto);
        default
            .nic(
                NicConfig::default()
                    .region_bytes(regions * self.region_bytes() + (1 << 20))
                    .mode(self.mode),
            )
            .mpa(self.mpa)
            .keepalive(self.keepalive)
            .user_timeout(user_timeout)
            .min_rto(min_rto)
    }

    /// The same in a command for siw.
    pub(crate) fn depths_of_siw(&self) -> String {
        let (ird, ord) = self.siw_depths.unwrap_or((16, 16));
        format!("ird={ird} ord={ord}")
    }

    /// xwarp's address.
    pub(crate) fn xwarp_address(&self) -> IpAddr {
        if self.ipv6 {
            XWARP_ADDRESS_6
        } else {
            XWARP_ADDRESS
        }
    }
}

/// An RNIC in a lab with one queue pair, and memory to send from and to receive into.
pub(crate) struct Xwarp<'a> {
    lab: &'a Lab,
    address: IpAddr,
    /// Its source holds pattern 1.
    pub(crate) end: End,
    pub(crate) cq: CompletionQueue,
    pub(crate) pd: ProtectionDomain,
    pub(crate) rnic: Rnic,
}

impl<'a> Xwarp<'a> {
    pub(crate) fn open(lab: &'a Lab, setup: &Setup) -> Self {
        let rnic = open(lab, setup, 2);
        let bytes = setup.region_bytes();
        let cq = rnic.create_cq(1024).expect("a queue");
        let pd = rnic.allocate_pd().expect("a protection domain");
        let this = Self {
            lab,
            address: setup.xwarp_address(),
            end: End::new(&pd, &cq, &setup.qp, bytes),
            cq,
            pd,
            rnic,
        };
        let source = filling(bytes, 1);
        this.end
            .source
            .bytes()
            .write(0, &source)
            .expect("our memory");
        this
    }

    /// Connects, and returns the private data of the reply.
    pub(crate) fn connect(
        &mut self,
        to: SocketAddr,
        private_data: &[u8],
    ) -> Result<PrivateData, ConnectError> {
        let qp = &mut self.end.qp;
        let connect = || qp.connect(to, private_data, TIMEOUT);
        self.lab.xwarp.run(connect)
    }

    /// Begins to connect.
    pub(crate) fn begin_connect(
        &mut self,
        to: SocketAddr,
        timeout: Duration,
    ) -> Result<Connecting, ConnectError> {
        let qp = &mut self.end.qp;
        let connect = || qp.begin_connect(to, b"", timeout);
        self.lab.xwarp.run(connect)
    }

    /// Listens on [`PORT`].
    pub(crate) fn listen(&self) -> Listener {
        let at = SocketAddr::new(self.address, PORT);
        let rnic = &self.rnic;
        let listener = self.lab.xwarp.run(|| rnic.listen(at));
        listener.expect("a free port")
    }

    /// What start-up has settled.
    pub(crate) fn info(&self) -> ConnectionInfo {
        self.end.qp.connection().expect("a connection")
    }

    /// Sends the first `len` bytes of the source.
    pub(crate) fn send(&mut self, id: u64, len: u32) {
        self.end.post(self.end.send(id, len));
    }

    /// The next completion.
    pub(crate) fn completion(&mut self) -> WorkCompletion {
        next_completion(&mut self.cq)
    }

    /// The next completion, which must be of this work request and successful.
    pub(crate) fn done(&mut self, id: u64, opcode: Opcode) -> WorkCompletion {
        let done = next_success(&mut self.cq);
        assert_eq!((done.wr_id, done.opcode), (WrId(id), opcode));
        done
    }

    /// The next event.
    pub(crate) fn event(&self) -> AsyncEventKind {
        let mut found = None;
        xwarp_system_tests::eventually("an event of the RNIC", || {
            found = self.rnic.events().try_next().ok().flatten();
            found.is_some()
        });
        found.expect("just found").kind
    }

    /// Fails unless the first bytes of the sink are those of this pattern.
    pub(crate) fn assert_received(&self, len: usize, seed: usize) {
        let held = self.end.sink.bytes().to_vec();
        assert!(held[..len] == filling(len, seed), "{len} bytes of {seed}");
    }
}

/// Opens an RNIC with room for `regions` regions.
pub(crate) fn open(lab: &Lab, setup: &Setup, regions: usize) -> Rnic {
    let config = setup.config(regions);
    let rnic = lab.xwarp.run(|| Rnic::open(DEV, &config));
    rnic.expect("an RNIC")
}
