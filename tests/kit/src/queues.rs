//! Queues of an interface in memory, joined as a NIC with RSS joins its own: each connection's
//! frames come to one of them.

use std::collections::HashMap;

use xwarp_driver::{MemoryIo, PacketIo, Wire};

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Frames that are taken at once.
const BATCH: usize = 64;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// The queue of connections that begin here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// That which its SYN has left by, as if the port were chosen by the hash.
    Own,
    /// That which a hash chooses that the RNIC does not know.
    Hashed,
    /// The first one.
    First,
}

/// What joins the queues to one wire.
///
/// A connection that begins elsewhere comes to the queue that a hash of its addresses and ports
/// chooses, the same for both directions. The frames of one that begins here come where [`Answers`]
/// says.
pub struct Queues {
    /// The end of the one wire.
    io: MemoryIo,
    wires: Vec<Wire>,
    /// The queues of connections that have begun here.
    begun: HashMap<Vec<u8>, usize>,
    answers: Answers,
    /// Frames that come before the NIC chooses other queues; `None`: it never does.
    resteers_after: Option<usize>,
    carried_in: usize,
}

impl Drop for Queues {
    /// What was sent last reaches the wire.
    fn drop(&mut self) {
        self.carry();
    }
}

/// A hash that spreads ports in a row evenly: FNV-1a of 32 bits, mixed once more.
fn fnv(bytes: &[u8]) -> usize {
    const BASIS: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    let mix = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(PRIME);
    let sum = bytes.iter().fold(BASIS, mix);
    ((sum ^ sum >> 15).wrapping_mul(PRIME) >> 8) as usize
}

/// A TCP segment in a frame: both endpoints in order, and its flags.
fn segment_of(frame: &[u8]) -> Option<(Vec<u8>, u8)> {
    let (kind, packet) = (frame.get(12..ETHERNET)?, frame.get(ETHERNET..)?);
    let (protocol, addresses, header) = match kind {
        [0x08, 0x00] => (
            *packet.get(9)?,
            12..20,
            usize::from(packet.first()? & 0xf) * 4,
        ),
        [0x86, 0xdd] => (*packet.get(6)?, 8..40, 40),
        _ => return None,
    };
    let (addresses, tcp) = (packet.get(addresses)?, packet.get(header..)?);
    let (source, destination) = addresses.split_at(addresses.len() / 2);
    let mut ends = [
        [source, tcp.get(..2)?].concat(),
        [destination, tcp.get(2..4)?].concat(),
    ];
    ends.sort();
    (protocol == 6).then_some((ends.concat(), *tcp.get(13)?))
}

impl Queues {
    /// Joins `queues` queues of `frames` frames each. Returns what joins them, the queues, and the
    /// wire.
    ///
    /// # Panics
    /// If there is no memory.
    pub fn join(queues: usize, frames: usize) -> (Self, Vec<MemoryIo>, Wire) {
        let (io, wire) = MemoryIo::new(queues * frames).expect("memory");
        let of_queues = (0..queues).map(|_| MemoryIo::new(frames).expect("memory"));
        let (ios, wires) = of_queues.unzip();
        let joined = Self {
            io,
            wires,
            begun: HashMap::new(),
            answers: Answers::Own,
            resteers_after: None,
            carried_in: 0,
        };
        (joined, ios, wire)
    }

    /// Has the frames of connections that begin here come to this queue.
    pub fn answers_come_to(&mut self, answers: Answers) {
        self.answers = answers;
    }

    /// Makes the NIC choose the next queue for each connection after every `frames` frames.
    pub fn resteer_after(&mut self, frames: usize) {
        self.resteers_after = Some(frames);
    }

    /// Carries what has come to the queues, and what these have sent to the wire; how many frames.
    ///
    /// # Panics
    /// If the wire fails.
    pub fn carry(&mut self) -> usize {
        let carried = self.carry_in() + self.carry_out();
        self.io.flush().expect("a wire in memory does not fail");
        carried
    }

    fn carry_in(&mut self) -> usize {
        let mut frames = Vec::new();
        self.io.receive(BATCH, &mut frames);
        let carried = frames.len();
        for frame in frames {
            let queue = (self.queue_of(&frame) + self.turns()) % self.wires.len();
            self.carried_in += 1;
            self.wires[queue].deliver(frame.to_vec());
            self.io.recycle(frame);
        }
        while let Some(icmp) = self.io.too_big() {
            for wire in &self.wires {
                wire.deliver_icmp(icmp.clone());
            }
        }
        carried
    }

    /// How often the NIC has chosen anew.
    fn turns(&self) -> usize {
        self.resteers_after
            .map_or(0, |after| self.carried_in / after)
    }

    /// The queue that a frame comes to at first.
    fn queue_of(&mut self, frame: &[u8]) -> usize {
        let Some((ends, flags)) = segment_of(frame) else {
            return 0;
        };
        if flags & (SYN | ACK) == SYN {
            self.begun.remove(&ends);
        }
        let hash = |ends: &[u8]| {
            ends.iter()
                .fold(0, |sum, byte| 31 * (sum % 997) + usize::from(*byte))
        };
        let begun = self.begun.get(&ends).map(|own| match self.answers {
            Answers::Own => *own,
            Answers::Hashed => fnv(&ends) % self.wires.len(),
            Answers::First => 0,
        });
        begun.unwrap_or_else(|| hash(&ends) % self.wires.len())
    }

    fn carry_out(&mut self) -> usize {
        let mut carried = 0;
        for (queue, wire) in self.wires.iter().enumerate() {
            while let Some(mut frame) = self.io.tx_frame() {
                let Some(sent) = wire.take_sent() else {
                    self.io.discard(frame);
                    break;
                };
                if let Some((ends, flags)) = segment_of(&sent)
                    && flags & (SYN | ACK) == SYN
                {
                    self.begun.insert(ends, queue);
                }
                frame.set_len(sent.len());
                frame.copy_from_slice(&sent);
                self.io.send(frame);
                carried += 1;
            }
        }
        carried
    }
}
