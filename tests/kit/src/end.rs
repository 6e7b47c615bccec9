//! Ends of connections whose RNICs run by themselves, and what they wait for.

use xwarp::cm::ConnectionRequest;
use xwarp::{
    Access, CompletionQueue, Listener, MemoryRegion, ProtectionDomain, QpConfig, QueuePair,
    RecvRequest, SendRequest, WorkCompletion, WrId,
};

use crate::TIMEOUT;

/// A queue pair with memory to send from and to receive into. Its completion queue is the test's, as several ends may share one.
pub struct End {
    /// The queue pair.
    pub qp: QueuePair,
    /// May be read, by the peer too.
    pub source: MemoryRegion,
    /// May be written, by the peer too.
    pub sink: MemoryRegion,
}

impl End {
    /// An end that is not connected. Each of its regions has `bytes` bytes.
    pub fn new(
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        config: &QpConfig,
        bytes: usize,
    ) -> Self {
        let region = |access| pd.allocate(bytes, access).expect("memory");
        Self {
            qp: pd.create_qp(config, cq, cq).expect("a queue pair"),
            source: region(Access::LOCAL_READ | Access::REMOTE_READ),
            sink: region(Access::LOCAL_WRITE | Access::REMOTE_WRITE),
        }
    }

    /// Posts to the send queue.
    pub fn post(&mut self, request: SendRequest) {
        self.qp.post_send(request).expect("room");
    }

    /// A Send of the first `len` bytes of the source.
    pub fn send(&self, id: u64, len: u32) -> SendRequest {
        SendRequest::send(WrId(id), self.source.local(0, len))
    }

    /// Posts a receive for `len` bytes, to the begin of the sink.
    pub fn post_recv(&mut self, id: u64, len: u32) {
        let buffer = self.sink.local(0, len);
        let posted = self.qp.post_recv(RecvRequest::new(WrId(id), buffer));
        posted.expect("room");
    }

    /// Accepts the next request, which must come in time; its private data.
    pub fn accept(&mut self, listener: &mut Listener, answer: &[u8]) -> Vec<u8> {
        let request = next_request(listener);
        let private_data = request.private_data().to_vec();
        let accepted = request.accept(&mut self.qp, answer);
        accepted.expect("a connection");
        private_data
    }
}

/// The next request of a listener, which must come in time.
pub fn next_request(listener: &mut Listener) -> ConnectionRequest {
    let request = listener.accept(TIMEOUT).expect("an RNIC");
    request.expect("a request in time")
}

/// The next completion, which must come in time.
pub fn next_completion(cq: &mut CompletionQueue) -> WorkCompletion {
    let completion = cq.wait(TIMEOUT).expect("a completion queue");
    completion.expect("a wake-up was lost: nothing has completed")
}

/// The same, of work that has succeeded.
pub fn next_success(cq: &mut CompletionQueue) -> WorkCompletion {
    let completion = next_completion(cq);
    assert!(completion.is_success(), "{completion:?}");
    completion
}
