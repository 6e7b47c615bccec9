//! Clients: some connect, transfer and go, over and over; one stays.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use xwarp::cm::PrivateData;
use xwarp::error::{ConnectError, HostError};
use xwarp::{
    Access, CompletionQueue, MemoryRegion, ProtectionDomain, QpConfig, QueuePair, RemoteAddress,
    Rnic, SendRequest, Stag, WrId,
};
use xwarp_driver::net::RouteError;
use xwarp_system_tests::eventually;
use xwarp_system_tests::impair::{HostThread, Side};
use xwarp_test_kit::netsim::{Rng, Seed};

use crate::server::{IRD, LEN, PORT};
use crate::{COMERS, Stop, USER_TIMEOUT};

/// Writes that make up the server's memory.
const PIECES: u64 = 8;
const PIECE: u32 = 2 << 10;
/// Marks the Read that brings all back.
const BACK: WrId = WrId(PIECES);
/// No connection and no transfer may take longer, whatever happens to the network.
const TIMEOUT: Duration = USER_TIMEOUT;
/// A connection that takes longer than this is worth a line beside the faults.
const SLOW: Duration = Duration::from_secs(4);

/// A connection, with memory to write from and to read back into.
struct Connection {
    qp: QueuePair,
    cq: CompletionQueue,
    out: MemoryRegion,
    back: MemoryRegion,
    place: RemoteAddress,
    _pd: ProtectionDomain,
}

impl Connection {
    /// The `number`-th connection of a client.
    fn open(rnic: &Rnic, client: u64, number: u64) -> Self {
        let pd = rnic.allocate_pd().expect("a protection domain");
        let cq = rnic.create_cq(64).expect("a completion queue");
        let config = QpConfig::default().ord(IRD);
        let mut qp = pd.create_qp(&config, &cq, &cq).expect("a queue pair");
        let access = Access::LOCAL_READ | Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let [out, back] = [(); 2].map(|()| pd.allocate(LEN, access).expect("memory"));
        let name = [client, number].map(u64::to_be_bytes).concat();
        let answer = connect(rnic, &mut qp, &name);
        let (stag, to) = answer.split_at(4);
        let place = RemoteAddress {
            stag: Stag(u32::from_be_bytes(stag.try_into().expect("an STag"))),
            to: u64::from_be_bytes(to.try_into().expect("a Tagged Offset")),
        };
        Self {
            qp,
            cq,
            out,
            back,
            place,
            _pd: pd,
        }
    }

    /// Writes other bytes than before, reads them back, and compares.
    fn transfer(&mut self, rng: &mut Rng) {
        let bytes = rng.bytes(LEN);
        self.out.bytes().write(0, &bytes).expect("its own length");
        for piece in 0..PIECES {
            let at = piece * u64::from(PIECE);
            let to = RemoteAddress {
                to: self.place.to + at,
                ..self.place
            };
            let write = SendRequest::write(WrId(piece), self.out.local(at, PIECE), to);
            self.qp.post_send(write).expect("room");
        }
        let whole = self.back.local(0, u32::try_from(LEN).expect("it is small"));
        let read = SendRequest::read(BACK, whole, self.place);
        self.qp.post_send(read).expect("room");
        loop {
            let done = self.cq.wait(TIMEOUT).expect("an RNIC");
            let done = done.unwrap_or_else(|| panic!("nothing completes: {:?}", self.qp.query()));
            assert!(done.is_success(), "{done:?}");
            if done.wr_id == BACK {
                break;
            }
        }
        assert!(self.back.bytes().to_vec() == bytes, "other bytes came back");
    }

    /// Ends it in one of the ways that there are.
    fn end(mut self, way: u64) {
        match way % 3 {
            0 => self.qp.disconnect(TIMEOUT).expect("a close"),
            1 => self.qp.abort().expect("an RNIC"),
            _ => drop(self.qp),
        }
    }
}

/// Connects. While the interface is switched off or its cable is out, the kernel may have neither
/// route nor neighbour, and says so.
fn connect(rnic: &Rnic, qp: &mut QueuePair, name: &[u8]) -> PrivateData {
    let server = SocketAddr::from((Side::B.address(), PORT));
    let (mut answer, began) = (None, Instant::now());
    eventually("a connection", || match qp.connect(server, name, TIMEOUT) {
        Ok(private_data) => answer.replace(private_data).is_none(),
        Err(ConnectError::Host(
            HostError::Route(RouteError::NoRoute { .. }) | HostError::Neighbour(_),
        )) => false,
        Err(error) => panic!("no connection: {error:?}; {:?}", rnic.counters()),
    });
    if began.elapsed() > SLOW {
        println!("a connection took {:?}", began.elapsed());
    }
    answer.expect("there is one")
}

/// Connects, transfers and goes until the end; how often.
pub(crate) fn start_coming(
    host: &HostThread,
    rnic: &Arc<Rnic>,
    seed: Seed,
    number: u64,
    stop: Stop,
) -> Receiver<u64> {
    let (rnic, mut rng) = (Arc::clone(rnic), Rng::new(seed, 10 + number));
    host.begin(move || {
        let mut times = 0;
        while !stop.is_set() {
            let mut connection = Connection::open(&rnic, number, times);
            connection.transfer(&mut rng);
            connection.end(times);
            times += 1;
            while rnic.events().try_next().ok().flatten().is_some() {}
        }
        times
    })
}

/// Connects once, and transfers until the end; how often.
pub(crate) fn start_staying(
    host: &HostThread,
    rnic: &Arc<Rnic>,
    seed: Seed,
    stop: Stop,
) -> Receiver<u64> {
    let (rnic, mut rng) = (Arc::clone(rnic), Rng::new(seed, 9));
    host.begin(move || {
        let mut connection = Connection::open(&rnic, COMERS, 0);
        let mut laps = 0;
        while !stop.is_set() {
            connection.transfer(&mut rng);
            laps += 1;
        }
        connection.end(0);
        laps
    })
}
