//! A hostile peer: it sends random segments, most of them right. A reference says what RFC 5040,
//! 5041 and 7306 make of each (wire.md §9): the Terminate, the state, all memory, the completions
//! and the answers.

mod areas;
mod checks;
mod ends;
mod fields;
mod reference;
mod segments;

use std::collections::VecDeque;
use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::error::TermCode;
use xwarp::{Listener, Opcode, QpConfig, QpState, RemoteAddress, SendRequest, Sge, Stag, WrId};
use xwarp_sim_tests::wire::{REPLY, REQUEST, Tagged, Untagged, fpdu};
use xwarp_sim_tests::{PlainPeer, Sim, SimEnd, for_each_seed};
use xwarp_test_kit::netsim::{Rng, Seed};

use areas::Areas;
use checks::awaited;
use fields::Fields;
use reference::{IRD, Outcome, Reference};

/// Connections of a program, and steps of each unless it ends before.
const CONNECTIONS: usize = 40;
const STEPS: usize = 60;
/// Bytes of a receive buffer.
const BUFFER: usize = 600;
/// Requests of the RNIC's that are outstanding.
const REQUESTS: usize = 4;
const DROPS: [&str; 4] = [
    "drop_refused_segment",
    "drop_bad_fpdu",
    "drop_after_failure",
    "drop_no_flow",
];

/// A work request of the RNIC's.
struct Asked {
    id: u64,
    opcode: Opcode,
    len: usize,
    /// It was sent, or answered.
    done: bool,
}

struct Program {
    rng: Rng,
    end: SimEnd,
    peer: PlainPeer,
    listener: Listener,
    reference: Reference,
    next_id: u64,
    /// What the RNIC was asked to send, and has not completed.
    asked: VecDeque<Asked>,
    /// Its Sends on this connection.
    sent: u32,
    /// Bytes from the RNIC that the model has checked.
    seen: usize,
    sim: Sim,
}

#[test]
fn random_segments_do_what_the_model_says() {
    for_each_seed(|seed| Program::new(seed).run());
}

impl Program {
    fn new(seed: Seed) -> Self {
        let (sim, peer) = Sim::with_plain_peer(seed);
        let mut sim = sim
            .one_way_delay(Duration::from_micros(50))
            .expecting(&DROPS);
        let config = QpConfig::default().ird(u16::try_from(IRD).unwrap());
        let mut end = sim.a().end(&config);
        let at = sim.a().at(sim.new_port());
        let areas = Areas::new(&mut end);
        Self {
            rng: Rng::new(seed, 3),
            listener: sim.a().rnic().listen(at).unwrap(),
            reference: Reference::new(areas),
            end,
            peer,
            next_id: 1,
            asked: VecDeque::new(),
            sent: 0,
            seen: 0,
            sim,
        }
    }

    fn run(mut self) {
        for _ in 0..CONNECTIONS {
            self.connect();
            let goes_on = (0..STEPS).all(|_| self.step());
            if goes_on {
                self.close();
            }
            assert!(self.end.sends().is_empty() && self.end.receives().is_empty());
            if self.end.state() == QpState::Error {
                self.end.qp.modify(QpChange::to(QpState::Idle)).unwrap();
            }
            assert_eq!(self.end.state(), QpState::Idle);
            self.reference = Reference::new(Areas::new(&mut self.end));
        }
        self.end.qp.abort().unwrap();
    }

    fn connect(&mut self) {
        let at = self.listener.addresses()[0];
        self.peer.connect(at);
        self.peer.send(REQUEST);
        let listener = &mut self.listener;
        let request = self
            .sim
            .wait_for("a Request", || listener.try_accept().unwrap());
        request.accept(&mut self.end.qp, b"").unwrap();
        self.peer.send(&Tagged::write(Stag(1), 0).fpdu(b""));
        self.sim.run_until_idle();
        assert_eq!(self.peer.received(), REPLY);
        (self.sent, self.seen) = (0, REPLY.len());
        (0..3).for_each(|_| self.post_recv());
        self.check();
    }

    /// One step; false if the connection has ended with it.
    fn step(&mut self) -> bool {
        match self.rng.index(100) {
            0..60 => return self.segments(),
            60..82 if self.reference.posted.len() < 10 => self.post_recv(),
            82..90 => self.ask(),
            90..93 => self.send(),
            93 if self.rng.chance(0.3) => self.reference.areas.deregister(self.rng.index(3)),
            94..96 => return self.burst(0),
            96 => return self.burst(1),
            97 if self.rng.chance(0.3) => self.modify_ird(),
            97 if self.rng.chance(0.5) => return self.bad_crc(),
            98 if self.rng.chance(0.3) => return self.close(),
            99 if self.rng.chance(0.3) => return self.reset(),
            _ => return true,
        }
        self.check();
        true
    }

    /// A frame or two of segments, up to the first that is refused.
    fn segments(&mut self) -> bool {
        let mut bytes = Vec::new();
        for _ in 0..=self.rng.index(3) {
            let ulpdu = segments::segment(&mut self.rng, &self.reference);
            match self.reference.judge(&ulpdu, 0) {
                Outcome::Fine => self.reference.apply(&ulpdu),
                Outcome::Refused(faults) => {
                    self.peer.send(&bytes);
                    self.sim.run_until_idle();
                    self.check();
                    return self.offend(&fpdu(&ulpdu), &ulpdu, &faults);
                }
                // It is left out: how that ends, `close` says.
                Outcome::Terminated => break,
            }
            bytes.extend(fpdu(&ulpdu));
            // What a Read finds may be of later segments already.
            if !self.reference.answers.is_empty() {
                break;
            }
        }
        self.peer.send_pieces(&bytes, 1 + self.rng.index(1400));
        self.sim.run_until_idle();
        self.check();
        true
    }

    /// As many requests at once as may be, or one more.
    fn burst(&mut self, excess: usize) -> bool {
        let mut bytes = Vec::new();
        let ird = self.reference.ird;
        for _ in 0..ird {
            let ulpdu = segments::right_read(&mut self.rng, &self.reference);
            self.reference.apply(&ulpdu);
            bytes.extend(fpdu(&ulpdu));
        }
        if excess == 0 {
            self.peer.send(&bytes);
            self.sim.run_until_idle();
            self.check();
            return true;
        }
        let ulpdu = segments::right_read(&mut self.rng, &self.reference);
        let Outcome::Refused(faults) = self.reference.judge(&ulpdu, ird) else {
            panic!("one too many")
        };
        bytes.extend(fpdu(&ulpdu));
        self.reference.answers.clear(); // they may be cut off
        self.offend(&bytes, &ulpdu, &faults)
    }

    /// A byte behind the length is another one (row 31).
    fn bad_crc(&mut self) -> bool {
        let ulpdu = segments::segment(&mut self.rng, &self.reference);
        let mut bytes = fpdu(&ulpdu);
        let at = 2 + self.rng.index(bytes.len() - 2);
        bytes[at] ^= 1 << self.rng.below(8);
        self.offend(&bytes, &[], &[TermCode::mpa(2)])
    }

    fn post_recv(&mut self) {
        let len = self.rng.index(BUFFER + 1);
        self.end.post_recv(self.next_id, len);
        self.reference.posted.push_back((self.next_id, len));
        self.next_id += 1;
    }

    /// The RNIC's own Read, or addition.
    fn ask(&mut self) {
        if self.reference.awaited.len() >= REQUESTS {
            return;
        }
        // A sink that was deallocated would end the connection here, before the Read is asked for.
        let sink = [0, 3][self.rng.index(2)];
        if !self.reference.areas.list[sink].is_valid() {
            return;
        }
        let (id, far) = (self.next_id, self.rng.draw());
        self.next_id += 1;
        let remote = RemoteAddress {
            stag: Stag(0x1234_5678),
            to: far,
        };
        let (request, opcode, len) = if self.rng.chance(0.3) {
            (
                SendRequest::fetch_add(WrId(id), far, remote),
                Opcode::FetchAdd,
                8,
            )
        } else {
            let area = &self.reference.areas.list[sink];
            let len = self.rng.index(area.len + 1);
            let to = area.base + self.rng.below((area.len - len) as u64 + 1);
            let sink = Sge {
                stag: Stag(area.stag),
                to,
                len: u32::try_from(len).unwrap(),
            };
            (SendRequest::read(WrId(id), sink, remote), Opcode::Read, len)
        };
        self.end.post(request);
        self.asked.push_back(Asked {
            id,
            opcode,
            len,
            done: false,
        });
        self.sim.run_until_idle();
        let new = self.new_ulpdus();
        let fields = Fields::read(&new[0]).unwrap();
        assert_eq!((new.len(), fields.qn), (1, 1), "one request");
        self.reference.awaited.push_back(awaited(&fields, len));
    }

    /// Those that wait are answered already.
    fn modify_ird(&mut self) {
        let ird = self.rng.index(IRD + 1);
        let change = QpChange::to(QpState::Rts).ird(u16::try_from(ird).unwrap());
        self.end.qp.modify(change).unwrap();
        self.reference.ird = ird;
    }

    fn send(&mut self) {
        let bytes = self.rng.bytes(20);
        let id = self.next_id;
        self.next_id += 1;
        self.end.post_send(id, &bytes);
        self.asked.push_back(Asked {
            id,
            opcode: Opcode::Send,
            len: bytes.len(),
            done: true,
        });
        self.sim.run_until_idle();
        let new = self.new_ulpdus();
        assert_eq!(new.len(), 1);
        self.sent += 1;
        let header = Untagged {
            msn: self.sent,
            ..Untagged::default()
        };
        assert_eq!(new[0], header.ulpdu(&bytes));
    }
}
