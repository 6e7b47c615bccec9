//! MPA start-up by the kernel's TCP, for peers that misbehave from there on.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use xwarp_system_tests::{Hosts, TIMEOUT};

/// Bytes of a start-up frame ahead of its private data: key, flags, revision, `PD_Length` (RFC 5044
/// §7.1.1).
const HEADER: usize = 20;
/// CRCs, and enhanced (RFC 6581 §4): no markers.
const FLAGS: u8 = 0x50;
/// The Rejected Connection bit.
const REJECTED: u8 = 0x20;
/// IRD and ORD of an enhanced frame (RFC 6581 §6): 1 each.
const DEPTHS: [u8; 4] = [0, 1, 0, 1];

fn frame(key: &[u8; 16], flags: u8, private_data: &[u8]) -> Vec<u8> {
    let len = u16::try_from(DEPTHS.len() + private_data.len()).unwrap();
    let head = [&key[..], &[flags, 2], &len.to_be_bytes()].concat();
    [&head[..], &DEPTHS, private_data].concat()
}

/// A Request of revision 2.
pub(crate) fn request(private_data: &[u8]) -> Vec<u8> {
    frame(b"MPA ID Req Frame", FLAGS, private_data)
}

/// A Reply that accepts.
pub(crate) fn acceptance(private_data: &[u8]) -> Vec<u8> {
    frame(b"MPA ID Rep Frame", FLAGS, private_data)
}

/// A Reply that rejects.
pub(crate) fn rejection(private_data: &[u8]) -> Vec<u8> {
    frame(b"MPA ID Rep Frame", FLAGS | REJECTED, private_data)
}

/// The flags and the private data of the peer's frame.
pub(crate) fn read_frame(peer: &mut TcpStream) -> (u8, Vec<u8>) {
    peer.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut header = [0; HEADER];
    peer.read_exact(&mut header).unwrap();
    let len = u16::from_be_bytes([header[18], header[19]]);
    let mut data = vec![0; len.into()];
    peer.read_exact(&mut data).unwrap();
    (header[16], data[DEPTHS.len()..].to_vec())
}

/// Whether the peer has rejected the connection.
pub(crate) fn is_rejection(flags: u8) -> bool {
    flags & REJECTED != 0
}

/// Connects from host A to host B by the kernel's TCP, and sends a Request.
pub(crate) fn connect(hosts: &Hosts, port: u16, private_data: &[u8]) -> TcpStream {
    let to = (Hosts::SERVER, port).into();
    let connected = hosts.a.run(|| TcpStream::connect_timeout(&to, TIMEOUT));
    let mut peer = connected.expect("the RNIC answers");
    peer.write_all(&request(private_data)).unwrap();
    peer
}

/// A server of the kernel's TCP on host B that takes one connection, answers its Request and does
/// `then`.
pub(crate) fn serve<T: Send + 'static>(
    hosts: &Hosts,
    port: u16,
    reply: Vec<u8>,
    then: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> JoinHandle<T> {
    hosts.b.compute_checksums();
    let listener = hosts.b.run(|| TcpListener::bind((Hosts::SERVER, port)));
    let listener = listener.unwrap();
    thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        read_frame(&mut peer);
        peer.write_all(&reply).unwrap();
        then(peer)
    })
}
