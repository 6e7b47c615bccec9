//! Ends of connections whose RNICs run by themselves, and what they wait for.

use xwarp::cm::ConnectionRequest;
use xwarp::{
    Access, CompletionQueue, Listener, MemoryRegion, ProtectionDomain, QpConfig, QueuePair,
    RecvRequest, SendRequest, WorkCompletion, WrId,
};

use std::time::{Duration, Instant};

use crate::{diagnosis, timeout};

/// A queue pair with memory to send from and to receive into. Its completion queue is the test's,
/// as several ends may share one.
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
    let timeout = timeout();
    let request = listener.accept(timeout).expect("an RNIC");
    request.unwrap_or_else(|| panic!("no request within {timeout:?}\n{}", diagnosis()))
}

/// The next completion, which must come in time.
pub fn next_completion(cq: &mut CompletionQueue) -> WorkCompletion {
    next_completion_within(timeout(), cq)
}

/// The next completion, which must come within `limit`. If none does, the state of everything is
/// printed twice: an engine that is asked for its state is woken. So what completes then says that
/// a wake-up was lost.
fn next_completion_within(limit: Duration, cq: &mut CompletionQueue) -> WorkCompletion {
    let began = Instant::now();
    let completion = cq.wait(limit).expect("a completion queue");
    let in_time = began.elapsed() < limit;
    if let Some(completion) = completion {
        assert!(
            in_time,
            "a wake-up was lost: {completion:?} was found at the end of {limit:?}\n{cq:?}"
        );
        return completion;
    }
    let before = format!("{cq:?}");
    let state = diagnosis();
    let verdict = if cq.poll().expect("a completion queue").is_some() {
        "a wake-up may have been lost: what was awaited came when engines were asked for their state"
    } else {
        "nothing has completed"
    };
    panic!("{verdict}, within {limit:?}\nbefore: {before}\nafter: {cq:?}\n{state}");
}

/// The same, of work that has succeeded.
pub fn next_success(cq: &mut CompletionQueue) -> WorkCompletion {
    let completion = next_completion(cq);
    assert!(completion.is_success(), "{completion:?}\n{}", diagnosis());
    completion
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use xwarp::config::Progress;

    use super::*;
    use crate::{MemoryRnic, MemoryRnics, Side, TIMEOUT};

    const BYTES: u32 = 100;

    /// What the RNICs of the process show when the awaited message is not sent.
    fn complaint(progress: Progress) -> String {
        let of = |side| MemoryRnic::at(side).progress(progress).announced();
        let MemoryRnics { a, b, cable } = MemoryRnics::open(of);
        let mut cqs = [&a, &b].map(|rnic| rnic.create_cq(8).expect("a completion queue"));
        let [mut near, mut far] = [(&a, &cqs[0]), (&b, &cqs[1])].map(|(rnic, cq)| {
            let pd = rnic.allocate_pd().expect("a domain");
            End::new(&pd, cq, &QpConfig::default(), BYTES as usize)
        });
        let address = (Side::B.address(), 7471).into();
        let mut listener = b.listen(address).expect("a port");
        near.post_recv(1, BYTES);
        let begun = near.qp.begin_connect(address, b"", TIMEOUT);
        far.accept(&mut listener, b"");
        begun.expect("memory").wait().expect("a connection");
        let wait = || next_completion_within(Duration::from_millis(50), &mut cqs[0]);
        let complaint = catch_unwind(AssertUnwindSafe(wait)).expect_err("no message comes");
        drop(cable);
        *complaint.downcast::<String>().expect("a text")
    }

    #[test]
    fn wait_in_vain_prints_what_explains_it() {
        for progress in [Progress::Thread, Progress::Assisted] {
            let complaint = complaint(progress);
            let parts = [
                "nothing has completed, within 50ms",
                "armed: ArmState(2)",   // the completion queue
                "is_waited_for",        // a sleep flag
                "engine 0 Running",     // what the engine does
                "next deadline",        // and when
                "fill_ring: ",          // its rings
                "rx_frames: ",          // its counters
                "state: Established",   // TCP,
                "una: ",                // its sequence numbers,
                "retransmit: None",     // timers
                "rto: ",                // and timeouts
                "QpContext { id: QpId", // the queue pair
                "receives: ReceiveBuffers { posted: Some(1)",
                "CqSink { cq: CqId", // the engine's end of the completion queue
                " S in ",            // a thread that sleeps
            ];
            for part in parts {
                assert!(complaint.contains(part), "no {part:?} in {complaint}");
            }
        }
    }
}
