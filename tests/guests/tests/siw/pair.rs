//! xwarp and a peer program on siw, connected in either role.

use std::net::{IpAddr, SocketAddr};
use std::thread;

use xwarp_guest_tests::siw::{Guest, Image, Lab, Mtus, Peer};
use xwarp_test_kit::next_request;

use crate::PORT;
use crate::xwarp::{Setup, Xwarp};

/// Who connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Initiator,
    Responder,
}

impl Role {
    pub(crate) const BOTH: [Self; 2] = [Self::Initiator, Self::Responder];
}

/// Runs a test beside a guest, which is skipped where guests cannot be had.
pub(crate) fn with_guest(test: impl FnOnce(&Lab, &Guest<'_>)) {
    with_guest_on(Mtus::default(), test);
}

/// The same, with these MTUs.
pub(crate) fn with_guest_on(mtus: Mtus, test: impl FnOnce(&Lab, &Guest<'_>)) {
    let Some(image) = Image::find() else { return };
    let lab = Lab::with_mtus(mtus);
    let guest = Guest::boot(&lab, &image, 1);
    test(&lab, &guest);
}

/// Two ends of a connection; siw's is called `s`, and its memory `r`.
pub(crate) struct Pair<'a> {
    pub(crate) xwarp: Xwarp<'a>,
    pub(crate) siw: Peer<'a>,
    /// siw's memory, for xwarp.
    pub(crate) remote: ::xwarp::RemoteAddress,
    /// The private data that either side received.
    pub(crate) told_xwarp: Vec<u8>,
    pub(crate) told_siw: String,
}

impl<'a> Pair<'a> {
    /// Connects them: `role` is xwarp's.
    pub(crate) fn connect(lab: &'a Lab, guest: &'a Guest<'a>, role: Role, setup: &Setup) -> Self {
        Self::connect_saying(lab, guest, role, setup, b"from xwarp", "66726f6d20736977")
    }

    /// The same, with this private data in the frames; siw's in hex.
    pub(crate) fn connect_saying(
        lab: &'a Lab,
        guest: &'a Guest<'a>,
        role: Role,
        setup: &Setup,
        ours: &[u8],
        theirs: &str,
    ) -> Self {
        let xwarp = Xwarp::open(lab, setup);
        let mut siw = Peer::start(guest);
        let bytes = xwarp.end.sink.bytes().len();
        let region = siw.ask(&format!(
            "region region=r size={bytes} rights=local-write,remote-read,remote-write"
        ));
        let remote = ::xwarp::RemoteAddress {
            stag: ::xwarp::Stag(u32::try_from(region.number("stag")).expect("32 bits")),
            to: region.number("to"),
        };
        let mut pair = Self {
            xwarp,
            siw,
            remote,
            told_xwarp: Vec::new(),
            told_siw: String::new(),
        };
        match role {
            Role::Initiator => pair.initiate(address_of(guest, setup), setup, ours, theirs),
            Role::Responder => pair.respond(setup, ours, theirs),
        }
        pair
    }

    fn initiate(&mut self, address: IpAddr, setup: &Setup, ours: &[u8], theirs: &str) {
        let (xwarp, siw) = (&mut self.xwarp, &mut self.siw);
        let depths = setup.depths_of_siw();
        siw.ask(&format!("listen name=l address={address} port={PORT}"));
        (self.told_xwarp, self.told_siw) = thread::scope(|scope| {
            let accepting = scope.spawn(|| {
                let request = siw.ask("take listener=l name=s depth=256");
                siw.ask(&format!("accept name=s data={theirs} {depths}"));
                siw.expect_event("s", "ESTABLISHED");
                request.text("data").to_owned()
            });
            let at = SocketAddr::new(address, PORT);
            let told = xwarp.connect(at, ours).expect("a connection");
            (told.into(), accepting.join().expect("siw accepts"))
        });
    }

    fn respond(&mut self, setup: &Setup, ours: &[u8], theirs: &str) {
        let (address, depths) = (setup.xwarp_address(), setup.depths_of_siw());
        let mut listener = self.xwarp.listen();
        self.siw.ask(&format!(
            "resolve name=s address={address} port={PORT} depth=256"
        ));
        self.siw
            .ask(&format!("connect name=s data={theirs} {depths}"));
        let request = next_request(&mut listener);
        self.told_xwarp = request.private_data().to_vec();
        request
            .accept(&mut self.xwarp.end.qp, ours)
            .expect("accepted");
        let reply = self.siw.expect_event("s", "ESTABLISHED");
        reply.text("data").clone_into(&mut self.told_siw);
    }

    /// A Send each way, the initiator's first, with their content checked.
    pub(crate) fn exchange(&mut self, role: Role, len: u32) {
        self.xwarp.end.post_recv(100, len);
        self.siw.ask(&format!(
            "recv name=s id=100 region=r offset=0 length={len}"
        ));
        match role {
            Role::Initiator => {
                self.send_to_siw(len);
                self.send_to_xwarp(len);
            }
            Role::Responder => {
                self.send_to_xwarp(len);
                self.send_to_siw(len);
            }
        }
    }

    fn send_to_siw(&mut self, len: u32) {
        self.xwarp.send(101, len);
        self.xwarp.done(101, ::xwarp::Opcode::Send);
        let received = &self.siw.poll("s", 1)[0];
        assert_eq!((received.id, received.status.as_str()), (100, "success"));
        assert_eq!(received.length, u64::from(len));
        self.siw
            .ask(&format!("check region=r offset=0 length={len} seed=1"));
    }

    fn send_to_xwarp(&mut self, len: u32) {
        let at = self.xwarp.end.sink.bytes().len() / 2;
        self.siw
            .ask(&format!("fill region=r offset={at} length={len} seed=2"));
        self.siw.ask(&format!(
            "send name=s id=101 region=r offset={at} length={len}"
        ));
        let received = self.xwarp.done(100, ::xwarp::Opcode::Receive);
        assert_eq!(received.byte_len, len);
        assert_eq!(self.siw.poll("s", 1)[0].status, "success");
        self.xwarp.assert_received(len as usize, 2);
    }
}

/// Fails unless connections can be made and used, in either role.
pub(crate) fn assert_works(lab: &Lab, guest: &Guest<'_>) {
    for role in Role::BOTH {
        let mut pair = Pair::connect(lab, guest, role, &Setup::default());
        pair.exchange(role, 1000);
    }
}

/// The guest's address of the family that is used.
pub(crate) fn address_of(guest: &Guest<'_>, setup: &Setup) -> IpAddr {
    if setup.ipv6 {
        guest.address_6()
    } else {
        guest.address()
    }
}
