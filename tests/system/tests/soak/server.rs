//! The host that is written to and read from.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use xwarp::attr::RnicCounters;
use xwarp::cm::ConnectionRequest;
use xwarp::{
    Access, CompletionQueue, MemoryRegion, ProtectionDomain, QpConfig, QpState, QueuePair, Rnic,
};
use xwarp_system_tests::eventually_within;
use xwarp_system_tests::impair::HostThread;

use crate::{REGION_BYTES, Stop, open};

/// Where it listens.
pub(crate) const PORT: u16 = 7600;
/// Bytes that each client may write and read.
pub(crate) const LEN: usize = 16 << 10;
/// Reads that a client may have outstanding.
pub(crate) const IRD: u16 = 4;
/// How long the server waits for a client before it looks whether others have gone.
const GLANCE: Duration = Duration::from_millis(20);
/// How long the last connections may take to go: longer than a fault of the cable.
const FAREWELL: Duration = Duration::from_secs(30);

/// What the server has done.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) register: Register,
    pub(crate) counters: RnicCounters,
}

/// Which connections of each client were served.
#[derive(Debug, Default)]
pub(crate) struct Register {
    /// How many, by client.
    pub(crate) served: BTreeMap<u64, u64>,
    /// Connections whose last ACK came again after their end. If a SYN cookie made them, nothing is
    /// left that would know it, and they are made once more; the client resets them.
    pub(crate) repeated: u64,
}

impl Register {
    /// Each client has one connection after the other, and says in its Request which it is.
    fn note(&mut self, private_data: &[u8]) {
        let (client, number) = private_data.split_at(8);
        let [client, number] = [client, number]
            .map(|bytes| u64::from_be_bytes(bytes.try_into().expect("two numbers")));
        let next = self.served.entry(client).or_default();
        assert!(
            number <= *next,
            "connection {next} of client {client} is missing"
        );
        if number == *next {
            *next += 1;
        } else {
            self.repeated += 1;
        }
    }
}

/// One connection, and the memory of its peer.
struct Client {
    qp: QueuePair,
    _memory: MemoryRegion,
}

impl Client {
    /// `None` if the client has gone meanwhile.
    fn admit(
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        request: ConnectionRequest,
    ) -> Option<Self> {
        let config = QpConfig::default().ird(IRD);
        let mut qp = pd.create_qp(&config, cq, cq).expect("a queue pair");
        let access =
            Access::LOCAL_READ | Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let memory = pd
            .allocate(LEN, access)
            .expect("memory of clients that have gone");
        let place = memory.remote(0);
        let mut answer = place.stag.0.to_be_bytes().to_vec();
        answer.extend(place.to.to_be_bytes());
        request.accept(&mut qp, &answer).ok()?;
        Some(Self {
            qp,
            _memory: memory,
        })
    }

    fn is_here(&self) -> bool {
        !matches!(self.qp.state(), QpState::Idle | QpState::Error)
    }
}

/// Starts it on its host, and waits until it listens.
pub(crate) fn start(host: &HostThread, stop: Stop) -> Receiver<Served> {
    let (rnic, listener) = host.call(|| {
        let rnic = open();
        let listener = rnic.listen(SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)));
        (rnic, listener.expect("a port"))
    });
    host.begin(move || serve(&rnic, listener, &stop))
}

fn serve(rnic: &Rnic, mut listener: xwarp::Listener, stop: &Stop) -> Served {
    let pd = rnic.allocate_pd().expect("a protection domain");
    let mut cq = rnic.create_cq(64).expect("a completion queue");
    let (mut clients, mut register) = (Vec::new(), Register::default());
    while !stop.is_set() {
        if let Some(request) = listener.accept(GLANCE).expect("an RNIC") {
            let name = request.private_data().to_vec();
            if let Some(client) = Client::admit(&pd, &cq, request) {
                register.note(&name);
                clients.push(client);
            }
        }
        clients.retain(Client::is_here);
        assert!(cq.poll().expect("an RNIC").is_none(), "nothing was posted");
        while rnic.events().try_next().ok().flatten().is_some() {} // a peer that aborts is an event
    }
    let all_ended = eventually_within(FAREWELL, || {
        clients.retain(Client::is_here);
        clients.is_empty()
    });
    assert!(all_ended, "{} connections never ended", clients.len());
    check_memory(&pd);
    Served {
        register,
        counters: rnic.counters().expect("an engine"),
    }
}

/// All memory of clients that have gone can be had again, in one piece.
fn check_memory(pd: &ProtectionDomain) {
    let all = pd.allocate(REGION_BYTES, Access::LOCAL_WRITE);
    assert!(all.is_ok(), "memory is lost: {:?}", all.err());
}
