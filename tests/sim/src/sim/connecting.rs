//! Connections between the two hosts.

use std::time::Duration;

use xwarp::{QpConfig, SendRequest, WrId};

use super::Sim;
use crate::end::SimEnd;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_mins(2);

impl Sim {
    /// Two connected ends, of which either may send.
    pub fn connected_pair(&mut self) -> (SimEnd, SimEnd) {
        self.connected_pair_with(&QpConfig::default())
    }

    /// The same with other limits than the default.
    pub fn connected_pair_with(&mut self, config: &QpConfig) -> (SimEnd, SimEnd) {
        let (mut a, mut b) = (self.a().end(config), self.b().end(config));
        self.connect(&mut a, &mut b);
        (a, b)
    }

    /// Connects `a` to `b`, and lets `a` say a first word, which `b` must wait for (RFC 5044
    /// §7.1.2): an empty Write.
    pub fn connect(&mut self, a: &mut SimEnd, b: &mut SimEnd) {
        self.connect_silently(a, b);
        let nowhere = xwarp::RemoteAddress {
            stag: xwarp::Stag::PLACEHOLDER,
            to: 0,
        };
        let heard = |end: &SimEnd| end.host().rnic().counters().unwrap().rdma.fpdus_in;
        let before = heard(b);
        a.post(SendRequest::write(WrId(0), xwarp::work::Sgl::new(), nowhere).unsignaled());
        self.run_until("the first FPDU", || heard(b) > before);
    }

    /// Connects `a` to `b`. Neither end has sent an FPDU when this returns.
    pub fn connect_silently(&mut self, a: &mut SimEnd, b: &mut SimEnd) {
        let at = b.host().at(self.new_port());
        let mut listener = b.host().rnic().listen(at).unwrap();
        let mut connecting = a.qp.begin_connect(at, b"hello", CONNECT_TIMEOUT).unwrap();
        let request = self.wait_for("a connection request", || listener.try_accept().unwrap());
        assert_eq!(request.private_data(), b"hello");
        request.accept(&mut b.qp, b"welcome").unwrap();
        let answer = self.wait_for("the answer to a connection request", || {
            connecting.try_finish()
        });
        assert_eq!(answer.unwrap(), b"welcome");
    }

    /// A port that no listener has had.
    pub fn new_port(&mut self) -> u16 {
        self.next_port += 1;
        self.next_port
    }
}
