//! The side of xwarp: an RNIC in a lab, with one queue pair.

use std::net::SocketAddr;

use ::xwarp::{
    Access, AsyncEventKind, CompletionQueue, ConnectError, ConnectionInfo, Listener, MemoryRegion,
    MpaConfig, NicConfig, Opcode, ProtectionDomain, QpConfig, QueuePair, RecvRequest, Rnic,
    RnicConfig, SendRequest, WorkCompletion, WrId,
};
use xwarp_interop_tests::{Lab, XWARP_ADDRESS, pattern};
use xwarp_system_tests::{DEV, PATIENCE};

use crate::PORT;

/// How xwarp is set up.
#[derive(Clone, Default)]
pub(crate) struct Setup {
    pub(crate) mpa: MpaConfig,
    pub(crate) qp: QpConfig,
    /// Octets of each region; 64 KiB if 0.
    pub(crate) octets: usize,
}

/// An RNIC in a lab with one queue pair, and memory to send from and to receive into.
pub(crate) struct Xwarp<'a> {
    lab: &'a Lab,
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
        let octets = if setup.octets == 0 {
            64 << 10
        } else {
            setup.octets
        };
        let config = RnicConfig {
            nic: NicConfig {
                region_octets: 2 * octets + (1 << 20),
                ..NicConfig::default()
            },
            mpa: setup.mpa,
            ..RnicConfig::default()
        };
        let rnic = lab.xwarp.run(|| Rnic::open(DEV, &config));
        let rnic = rnic.expect("an RNIC");
        let cq = rnic.create_cq(1024).expect("a queue");
        let pd = rnic.allocate_pd();
        let memory = |access| pd.allocate(octets, access).expect("memory");
        let this = Self {
            lab,
            qp: pd.create_qp(&setup.qp, &cq, &cq).expect("a queue pair"),
            source: memory(Access::LOCAL_READ | Access::REMOTE_READ),
            sink: memory(Access::LOCAL_WRITE | Access::REMOTE_WRITE),
            cq,
            pd,
            rnic,
        };
        let source = pattern(octets, 1);
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
        let connect = || qp.connect(to, private_data, PATIENCE);
        self.lab.xwarp.run(connect)
    }

    /// Listens on [`PORT`].
    pub(crate) fn listen(&self) -> Listener {
        let at = SocketAddr::new(XWARP_ADDRESS, PORT);
        let rnic = &self.rnic;
        let listener = self.lab.xwarp.run(|| rnic.listen(at));
        listener.expect("a free port")
    }

    /// What start-up has settled.
    pub(crate) fn info(&self) -> ConnectionInfo {
        self.qp.connection().expect("a connection")
    }

    /// Posts a receive for `len` octets of the sink.
    pub(crate) fn expect(&mut self, id: u64, len: u32) {
        let buffer = self.sink.local(0, len);
        let request = RecvRequest::new(WrId(id), buffer);
        self.qp.post_recv(request).expect("room");
    }

    pub(crate) fn post(&mut self, request: SendRequest) {
        self.qp.post_send(request).expect("room");
    }

    /// Sends the first `len` octets of the source.
    pub(crate) fn send(&mut self, id: u64, len: u32) {
        self.post(SendRequest::send(WrId(id), self.source.local(0, len)));
    }

    /// The next completion.
    pub(crate) fn completion(&mut self) -> WorkCompletion {
        let done = self.cq.wait(PATIENCE).expect("a completion queue");
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
            found = self.rnic.poll_event();
            found.is_some()
        });
        found.expect("just found").kind
    }

    /// Fails unless the first octets of the sink are those of this pattern.
    pub(crate) fn assert_received(&self, len: usize, seed: usize) {
        let held = self.sink.bytes().to_vec();
        assert!(held[..len] == pattern(len, seed), "{len} octets of {seed}");
    }
}
