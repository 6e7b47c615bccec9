//! TCP connections in a capture of Ethernet frames.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use pcap_file::pcap::PcapReader;
use smoltcp::wire::{IpProtocol, Ipv4Packet, TcpPacket};

const ETHERNET_HEADER: usize = 14;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];

/// Direction of sent bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// The sender of the SYN.
    Initiator,
    /// The host that answered it.
    Responder,
}

/// New in-order bytes of one TCP segment.
pub(crate) struct Chunk {
    pub(crate) from: Sender,
    pub(crate) bytes: Vec<u8>,
}

/// A connection and its bytes, in the order of the capture.
pub(crate) struct Connection {
    initiator: SocketAddr,
    responder: SocketAddr,
    next: [u32; 2],
    pub(crate) chunks: Vec<Chunk>,
}

impl Connection {
    fn from(&self, source: SocketAddr, destination: SocketAddr) -> Option<Sender> {
        if (source, destination) == (self.initiator, self.responder) {
            Some(Sender::Initiator)
        } else if (source, destination) == (self.responder, self.initiator) {
            Some(Sender::Responder)
        } else {
            None
        }
    }

    /// Keeps the new bytes of a segment. The captures were made without loss, so no segment comes
    /// early.
    fn add(&mut self, from: Sender, tcp: &TcpPacket<&[u8]>) {
        let next = &mut self.next[from as usize];
        let seq = tcp.seq_number().0.cast_unsigned();
        if tcp.syn() {
            *next = seq.wrapping_add(1);
            return;
        }
        let payload = tcp.payload();
        let old = next.wrapping_sub(seq) as usize;
        let Some(new) = payload.get(old..).filter(|new| !new.is_empty()) else {
            assert!(
                payload.is_empty() || old < 1 << 31,
                "a segment is missing before {seq}"
            );
            return;
        };
        *next = seq.wrapping_add(u32::try_from(payload.len()).expect("below 64 KiB"));
        self.chunks.push(Chunk {
            from,
            bytes: new.to_vec(),
        });
    }
}

/// All connections, in the order of their SYNs.
pub(crate) fn connections(file: &Path) -> Vec<Connection> {
    let file = File::open(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut reader = PcapReader::new(file).expect("a capture");
    let mut connections = Vec::new();
    while let Some(packet) = reader.next_packet() {
        add_frame(&mut connections, &packet.expect("a whole frame").data);
    }
    connections
}

fn add_frame(connections: &mut Vec<Connection>, frame: &[u8]) {
    if frame.get(12..ETHERNET_HEADER) != Some(&ETHERTYPE_IPV4) {
        return;
    }
    let ip = Ipv4Packet::new_checked(&frame[ETHERNET_HEADER..]).expect("IPv4");
    if ip.next_header() != IpProtocol::Tcp {
        return;
    }
    let tcp = TcpPacket::new_checked(ip.payload()).expect("TCP");
    let source = SocketAddr::new(IpAddr::V4(ip.src_addr()), tcp.src_port());
    let destination = SocketAddr::new(IpAddr::V4(ip.dst_addr()), tcp.dst_port());
    if tcp.syn() && !tcp.ack() {
        connections.push(Connection {
            initiator: source,
            responder: destination,
            next: [0; 2],
            chunks: Vec::new(),
        });
    }
    let known = connections
        .iter_mut()
        .find_map(|c| c.from(source, destination).map(|from| (c, from)));
    if let Some((connection, from)) = known {
        connection.add(from, &tcp);
    }
}
