//! xwarp, the library on real `AF_XDP`, against the kernel's siw in a guest.

use std::net::SocketAddr;
use std::time::Duration;

use xwarp::{
    Access, CompletionQueue, MemoryRegion, Opcode, ProtectionDomain, QpConfig, QueuePair,
    RecvRequest, Rnic, RnicConfig, SendRequest, WorkCompletion, WrId,
};
use xwarp_interop_tests::Lab;
use xwarp_system_tests::{DEV, PATIENCE};

mod sending;

/// siw's responder loses what reaches it between its MPA Reply and its looking for more, unless something follows that wakes it.
const SETTLE: Duration = Duration::from_millis(5);
const PORT: u16 = 7471;
const OCTETS: usize = 64 << 10;

/// An RNIC in a lab with one queue pair, and memory to send from and to receive into.
struct Xwarp<'a> {
    lab: &'a Lab,
    qp: QueuePair,
    cq: CompletionQueue,
    source: MemoryRegion,
    sink: MemoryRegion,
    #[expect(dead_code, reason = "its objects belong to it")]
    pd: ProtectionDomain,
    /// Kept open.
    rnic: Rnic,
}

impl<'a> Xwarp<'a> {
    fn open(lab: &'a Lab) -> Self {
        let rnic = lab.xwarp.run(|| Rnic::open(DEV, &RnicConfig::default()));
        let rnic = rnic.expect("an RNIC");
        let cq = rnic.create_cq(64).expect("a queue");
        let pd = rnic.allocate_pd();
        let memory = |access| pd.allocate(OCTETS, access).expect("memory");
        Self {
            lab,
            qp: pd
                .create_qp(&QpConfig::default(), &cq, &cq)
                .expect("a queue pair"),
            source: memory(Access::LOCAL_READ | Access::REMOTE_READ),
            sink: memory(Access::LOCAL_WRITE | Access::REMOTE_WRITE),
            cq,
            pd,
            rnic,
        }
    }

    /// Connects, and returns the private data of the reply.
    fn connect(&mut self, to: SocketAddr, private_data: &[u8]) -> Vec<u8> {
        let qp = &mut self.qp;
        let answer = self
            .lab
            .xwarp
            .run(|| qp.connect(to, private_data, PATIENCE));
        answer.expect("a connection")
    }

    /// Posts a receive for the first `len` octets of the sink.
    fn expect(&mut self, id: u64, len: u32) {
        let buffer = self.sink.local(0, len);
        self.qp
            .post_recv(RecvRequest::new(WrId(id), buffer))
            .expect("room");
    }

    /// Sends the first `len` octets of the source.
    fn send(&mut self, id: u64, len: u32) {
        let request = SendRequest::send(WrId(id), self.source.local(0, len));
        self.qp.post_send(request).expect("room");
    }

    /// The next completion, which must be of this work request and successful.
    fn done(&mut self, id: u64, opcode: Opcode) -> WorkCompletion {
        let done = self.cq.wait(PATIENCE).expect("a completion queue");
        let done = done.unwrap_or_else(|| panic!("{opcode:?} {id} has not completed"));
        assert!(done.is_success(), "{done:?}");
        assert_eq!((done.wr_id, done.opcode), (WrId(id), opcode));
        done
    }
}
