//! The side of xwarp: an RNIC in a lab, with one queue pair.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ::xwarp::{
    Access, AsyncEventKind, CompletionQueue, ConnectError, Connecting, ConnectionInfo, Listener,
    MemoryRegion, MpaConfig, NicConfig, Opcode, ProtectionDomain, QpConfig, QueuePair, RecvRequest,
    Rnic, RnicConfig, SendRequest, WorkCompletion, WrId, XdpMode,
};
use xwarp_interop_tests::{Lab, XWARP_ADDRESS, XWARP_ADDRESS_6, filling};
use xwarp_system_tests::{DEV, TIMEOUT};

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
    /// How long beyond the round trip an answer may take before a segment is sent again, if not the default.
    pub(crate) min_rto: Option<Duration>,
}

impl Setup {
    /// This many Reads outstanding each way.
    pub(crate) fn with_depths(ird: u16, ord: u16) -> Self {
        Self {
            qp: QpConfig {
                ird,
                ord,
                ..QpConfig::default()
            },
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
        RnicConfig {
            nic: NicConfig {
                region_bytes: regions * self.region_bytes() + (1 << 20),
                mode: self.mode,
                ..NicConfig::default()
            },
            mpa: self.mpa,
            keepalive: self.keepalive,
            user_timeout: self.user_timeout.unwrap_or(default.user_timeout),
            min_rto: self.min_rto.unwrap_or(default.min_rto),
            ..default
        }
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
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    /// May be read, by the peer too; holds pattern 1.
    pub(crate) source: MemoryRegion,
    /// May be written, by the peer too.
    pub(crate) sink: MemoryRegion,
    pub(crate) pd: ProtectionDomain,
    pub(crate) rnic: Rnic,
}

impl<'a> Xwarp<'a> {
    pub(crate) fn open(lab: &'a Lab, setup: &Setup) -> Self {
        let rnic = open(lab, setup, 2);
        let bytes = setup.region_bytes();
        let cq = rnic.create_cq(1024).expect("a queue");
        let pd = rnic.allocate_pd().expect("a protection domain");
        let memory = |access| pd.allocate(bytes, access).expect("memory");
        let this = Self {
            lab,
            address: setup.xwarp_address(),
            qp: pd.create_qp(&setup.qp, &cq, &cq).expect("a queue pair"),
            source: memory(Access::LOCAL_READ | Access::REMOTE_READ),
            sink: memory(Access::LOCAL_WRITE | Access::REMOTE_WRITE),
            cq,
            pd,
            rnic,
        };
        let source = filling(bytes, 1);
        this.source.bytes().write(0, &source).expect("our memory");
        this
    }

    /// Connects, and returns the private data of the reply.
    pub(crate) fn connect(
        &mut self,
        to: SocketAddr,
        private_data: &[u8],
    ) -> Result<Vec<u8>, ConnectError> {
        let qp = &mut self.qp;
        let connect = || qp.connect(to, private_data, TIMEOUT);
        self.lab.xwarp.run(connect)
    }

    /// Begins to connect.
    pub(crate) fn begin_connect(
        &mut self,
        to: SocketAddr,
        limit: Duration,
    ) -> Result<Connecting, ConnectError> {
        let qp = &mut self.qp;
        let connect = || qp.begin_connect(to, b"", limit);
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
        self.qp.connection().expect("a connection")
    }

    /// Posts a receive for `len` bytes of the sink.
    pub(crate) fn expect(&mut self, id: u64, len: u32) {
        let buffer = self.sink.local(0, len);
        let request = RecvRequest::new(WrId(id), buffer);
        self.qp.post_recv(request).expect("room");
    }

    pub(crate) fn post(&mut self, request: SendRequest) {
        self.qp.post_send(request).expect("room");
    }

    /// Sends the first `len` bytes of the source.
    pub(crate) fn send(&mut self, id: u64, len: u32) {
        self.post(SendRequest::send(WrId(id), self.source.local(0, len)));
    }

    /// The next completion.
    pub(crate) fn completion(&mut self) -> WorkCompletion {
        let done = self.cq.wait(TIMEOUT).expect("a completion queue");
        done.expect("a completion in time")
    }

    /// The next completion, which must be of this work request and successful.
    pub(crate) fn done(&mut self, id: u64, opcode: Opcode) -> WorkCompletion {
        let done = self.completion();
        assert!(done.is_success(), "{done:?}");
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
        let held = self.sink.bytes().to_vec();
        assert!(held[..len] == filling(len, seed), "{len} bytes of {seed}");
    }
}

/// Opens an RNIC with room for so many regions.
pub(crate) fn open(lab: &Lab, setup: &Setup, regions: usize) -> Rnic {
    let config = setup.config(regions);
    let rnic = lab.xwarp.run(|| Rnic::open(DEV, &config));
    rnic.expect("an RNIC")
}
